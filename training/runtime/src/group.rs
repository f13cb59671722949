//! A group of ranks that do things together, and the order in which they do them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use eirene_train_reduce::{DType, ReduceOp};
use eirene_train_schedule::{Algorithm, Collective};

use crate::call::{Call, Part};
use crate::choice::{Chooser, Given, Topology, Way};
use crate::collectives::{AGREE_FROM, Collectives, Queued};
use crate::error::Error;
use crate::interrupted::{self, Asking};
use crate::link::{Link, Outgoing};
use crate::mail::Mail;
use crate::memory::bell::{Turn, Waiting, now};
use crate::memory::meeting::Meeting;
use crate::mpi::{Messages, Room};
use crate::record::Record;
use crate::task::Progress;
use crate::transfers::{self, Receiving, Sending, Transfers};
use crate::tuning::candidates::is_offered;
use crate::tuning::explain;
use crate::tuning::policy::Policy;
use crate::tuning::table::Table;
use crate::work::{Ticket, Work};
use crate::world::Inner;

/// A group of ranks. Cheap to clone.
///
/// All its ranks must call the same collectives in the same order, from whatever threads. Transfers between two ranks keep an order of their
/// own.
#[derive(Clone)]
pub struct Group {
    shared: Arc<Shared>,
    world: Arc<Inner>,
}

/// What the handles of a group, the progress thread and the helpers share.
pub(crate) struct Shared {
    pub(crate) topic: u64,
    /// The last collectives that were begun.
    pub(crate) record: Arc<Record>,
    /// The group's ranks, by their rank in the world.
    pub(crate) ranks: Vec<u32>,
    pub(crate) me: u32,
    pub(crate) chooser: Chooser,
    collectives: Mutex<Collectives>,
    transfers: Mutex<Mail>,
    /// Collectives and transfers that are not done.
    outstanding: AtomicUsize,
}

/// What a group is built from.
pub(crate) struct Foundation {
    /// Its number in messages of the mesh.
    pub(crate) topic: u64,
    pub(crate) ranks: Vec<u32>,
    pub(crate) me: u32,
    pub(crate) topology: Topology,
    /// Links for collectives, by rank.
    pub(crate) collectives: Vec<Option<Link>>,
    /// Links for transfers, by rank, where they do not go through MPI as they are.
    pub(crate) transfers: Vec<Option<Link>>,
    /// Where all ranks meet, if all share memory.
    pub(crate) meeting: Option<Meeting>,
    /// Where MPI does collectives in its own way, if the world uses MPI.
    pub(crate) room: Option<Arc<Room>>,
    /// Transfers go through MPI as they are.
    pub(crate) by_mpi: bool,
}

impl Group {
    pub(crate) fn new(foundation: Foundation, world: Arc<Inner>) -> Self {
        let Foundation { topic, ranks, me, topology, collectives, transfers, meeting, room, by_mpi } = foundation;
        let size = ranks.len() as u32;
        let mail = match room.as_ref().filter(|_| by_mpi) {
            Some(room) => Mail::Mpi(Messages::new(Arc::clone(room), ranks.clone())),
            None => Mail::Links(Transfers::new(me, size), transfers),
        };
        let shared = Arc::new(Shared {
            topic,
            record: Arc::new(Record::new(ranks.clone(), ranks[me as usize])),
            ranks,
            me,
            chooser: Chooser::new(world.policy(), topology),
            collectives: Mutex::new(Collectives::new(collectives, meeting, room)),
            transfers: Mutex::new(mail),
            outstanding: AtomicUsize::new(0),
        });
        world.enter(&shared);
        Self { shared, world }
    }

    /// This rank's number in the group, from 0.
    pub fn rank(&self) -> u32 {
        self.shared.me
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.shared.ranks.len() as u32
    }

    /// The group's ranks by their numbers in the world.
    pub fn ranks(&self) -> &[u32] {
        &self.shared.ranks
    }

    /// Whether all its ranks are on one node.
    pub fn is_one_node(&self) -> bool {
        self.topology().is_one_node()
    }

    /// Does a collective and waits for it. Where nothing else of the world's is under way it is done in the calling thread.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a call that cannot be, which nobody else notices; anything else ends the world for all ranks.
    ///
    /// # Safety
    /// The call's parts must be memory of the given lengths that nobody else uses before this returns.
    #[expect(unsafe_code, reason = "buffers are given by address")]
    pub unsafe fn run(&self, call: &Call, allowed: Duration) -> Result<(), Error> {
        // SAFETY: as promised to us.
        unsafe { self.run_by(call, None, allowed) }
    }

    /// The same by a way that is to be tried out.
    ///
    /// # Safety
    /// As [`Self::run`].
    #[expect(unsafe_code, reason = "buffers are given by address")]
    pub(crate) unsafe fn run_by(&self, call: &Call, tried: Option<&Way>, allowed: Duration) -> Result<(), Error> {
        call.check(self.rank(), self.size())?;
        self.world.well()?;
        if self.world.is_idle() {
            let mut lane = lock(&self.shared.collectives);
            if lane.is_idle() {
                let outcome = self.run_here(&mut lane, call, tried, allowed);
                drop(lane);
                self.world.done_here();
                return outcome;
            }
        }
        // It is waited for until it is done.
        let work = self.enqueue(call, tried, allowed)?;
        let mut asking = self.world.asking();
        loop {
            match work.wait(Some(interrupted::OFTEN)) {
                Err(Error::Timeout { .. }) if !work.is_done() => {}
                _ => return work.wait(None),
            }
            if asking.says_stop() {
                // What is under way by now may be another's, or not to be told without waiting for it.
                self.world.fail(Error::Interrupted { what: call.in_words() });
            }
        }
    }

    fn run_here(
        &self,
        lane: &mut Collectives,
        call: &Call,
        tried: Option<&Way>,
        allowed: Duration,
    ) -> Result<(), Error> {
        let queued = Queued { call: call.clone(), tried: tried.cloned(), allowed, ticket: Ticket::new() };
        let outcome = lane.begin(&self.shared, &self.world, queued).and_then(|()| self.finish_here(lane, allowed));
        if outcome.is_err() {
            lane.current = None;
        }
        outcome.map_err(|error| self.world.fail(error))
    }

    fn finish_here(&self, lane: &mut Collectives, allowed: Duration) -> Result<(), Error> {
        let mut waiting = Waiting::new(self.world.bell(), self.world.patience(), Some(now() + allowed));
        let mut asking = self.world.asking();
        loop {
            match lane.advance(&self.shared, &self.world)? {
                Progress::Done => return Ok(()),
                Progress::Some => waiting.progressed(),
                Progress::Nothing => {
                    if self.rest_here(lane, &mut waiting, &mut asking, allowed)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Spends a moment waiting, and looks now and then whether it is in vain; true if the call has come to its end meanwhile.
    fn rest_here(
        &self,
        lane: &mut Collectives,
        waiting: &mut Waiting<'_>,
        asking: &mut Asking<'_>,
        allowed: Duration,
    ) -> Result<bool, Error> {
        let mut outcome = Ok(Progress::Nothing);
        let turn = waiting.turn(|| {
            outcome = lane.advance(&self.shared, &self.world);
            !matches!(outcome, Ok(Progress::Nothing))
        });
        match (outcome?, turn) {
            (Progress::Done, _) => return Ok(true),
            (_, Turn::Again) => return Ok(false),
            (_, Turn::TooLong) => return Err(lane.overdue(&self.shared, &self.world, allowed)),
            (_, Turn::Look) => {}
        }
        if asking.says_stop() {
            return Err(Error::Interrupted { what: lane.doing() });
        }
        self.world.look_around(|| lane.doing())?;
        lane.compare(&self.shared)?;
        lane.inquire(&self.shared, &self.world);
        lane.parted(&self.shared, &self.world)?;
        let gone = self.world.gone(&self.shared.ranks);
        if gone.is_empty() {
            return Ok(false);
        }
        // What they had sent was here when they were seen to have left.
        match lane.advance(&self.shared, &self.world)? {
            Progress::Done => Ok(true),
            Progress::Some => Ok(false),
            Progress::Nothing => lane.needs_none_of(&self.shared, &gone).map(|()| false),
        }
    }

    /// Begins a collective.
    ///
    /// # Errors
    /// As [`Self::run`]; what goes wrong later is told by the work.
    ///
    /// # Safety
    /// The call's parts must be memory of the given lengths that nobody else uses before the work is done.
    #[expect(unsafe_code, reason = "buffers are given by address")]
    pub unsafe fn start(&self, call: &Call, allowed: Duration) -> Result<Work, Error> {
        call.check(self.rank(), self.size())?;
        self.world.well()?;
        self.enqueue(call, None, allowed)
    }

    /// Begins a call that has been checked.
    fn enqueue(&self, call: &Call, tried: Option<&Way>, allowed: Duration) -> Result<Work, Error> {
        let ticket = Ticket::new();
        let queued = Queued { call: call.clone(), tried: tried.cloned(), allowed, ticket: Arc::clone(&ticket) };
        self.begin_something();
        lock(&self.shared.collectives).queue.push_back(queued);
        self.world.wake_progress()?;
        Ok(Work::new(ticket, Arc::clone(&self.world)))
    }

    /// Sends to a rank of the group.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Safety
    /// As [`Self::start`].
    #[expect(unsafe_code, reason = "buffers are given by address")]
    pub unsafe fn send(&self, to: u32, tag: u32, part: Part, dtype: DType, allowed: Duration) -> Result<Work, Error> {
        self.has(to)?;
        lock(&self.shared.transfers).check(tag)?;
        self.world.well()?;
        let ticket = Ticket::new();
        let message = Outgoing::new(transfers::head(tag, dtype), transfers::content(part, dtype));
        let sending = Sending { to, message, began: now(), allowed, ticket: Arc::clone(&ticket) };
        self.begin_something();
        self.transfer(|transfers| transfers.send(sending))?;
        Ok(Work::new(ticket, Arc::clone(&self.world)))
    }

    /// Receives from a rank of the group, or from whichever sends first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such rank.
    ///
    /// # Safety
    /// As [`Self::start`].
    #[expect(unsafe_code, reason = "buffers are given by address")]
    pub unsafe fn receive(
        &self,
        from: Option<u32>,
        tag: u32,
        part: Part,
        dtype: DType,
        allowed: Duration,
    ) -> Result<Work, Error> {
        from.map_or(Ok(()), |from| self.has(from))?;
        lock(&self.shared.transfers).check(tag)?;
        self.world.well()?;
        let ticket = Ticket::new();
        let (head, into) = (transfers::head(tag, dtype), part.extent(dtype));
        let receiving = Receiving { from, head, into, began: now(), allowed, ticket: Arc::clone(&ticket) };
        self.begin_something();
        self.transfer(|transfers| transfers.receive(receiving))?;
        Ok(Work::new(ticket, Arc::clone(&self.world)))
    }

    fn has(&self, rank: u32) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(Error::Invalid { message: format!("there is no rank {rank} in a group of {}", self.size()) })
    }

    fn begin_something(&self) {
        self.shared.outstanding.fetch_add(1, Ordering::AcqRel);
        self.world.began();
    }

    /// Adds a transfer and does at once what can be done.
    fn transfer(&self, add: impl FnOnce(&mut Mail)) -> Result<(), Error> {
        let mut lane = lock(&self.shared.transfers);
        let before = lane.left();
        add(&mut lane);
        // A message to oneself is done by now.
        self.shared.ended((before + 1).saturating_sub(lane.left()), &self.world);
        let outcome = self.shared.advance_transfers(&mut lane, &self.world);
        drop(lane);
        outcome.map_err(|error| self.world.fail(error))?;
        self.world.wake_progress()
    }

    /// For callers that wait in slices for something they do together, and are asked to stop: ends the world for everybody, as giving up one of
    /// our own blocking calls does. Returns what is to be said of it.
    pub fn give_up(&self, what: &str) -> Error {
        self.world.fail(Error::Interrupted { what: what.to_owned() })
    }

    /// Which algorithm would be taken for a call of so many elements, and why, in words.
    pub fn explain(&self, collective: Collective, dtype: DType, elements: usize) -> String {
        let chooser = &self.shared.chooser;
        let bytes = elements * dtype.size();
        let mpi = self.has_mpi(collective, dtype, bytes);
        let staged = chooser.choose(collective, Given { bytes, shared: false, mpi });
        let mut parts = vec![format!("{}: {staged}", explain::what(collective, bytes, chooser.topology()))];
        let can_share = self.size() > 1 && is_offered(collective, &Algorithm::Shared, chooser.topology());
        if can_share && chooser.topology().is_one_node() && bytes >= AGREE_FROM {
            let shared = chooser.choose(collective, Given { bytes, shared: true, mpi });
            if shared.way != staged.way {
                parts.push(format!("if all buffers lie in arenas: {shared}"));
            }
        }
        if let Some(mpi) = self.world.mpi().filter(|_| staged.way == Way::Mpi) {
            parts.push(format!("MPI's own: {}", mpi.library()));
        }
        parts.extend(self.policy().remarks().iter().cloned());
        parts.join("; ")
    }

    /// How a message between two ranks goes, and why, in words.
    pub fn explain_messages(&self) -> String {
        let how = match (&*lock(&self.shared.transfers), self.world.mpi(), self.policy().messages()) {
            (Mail::Mpi(_), Some(mpi), Some(words)) => {
                format!("mpi: asked for by `{words}`; MPI's own: {}", mpi.library())
            }
            (_, Some(_), _) if !self.topology().is_one_node() => {
                "through shared memory in a node, over MPI between nodes".to_owned()
            }
            _ if !self.topology().is_one_node() => "through shared memory in a node, over TCP between nodes".to_owned(),
            _ => "through shared memory".to_owned(),
        };
        format!("a message between two ranks: {how}")
    }

    /// Whether MPI itself can do such a call, a sum if it reduces.
    pub(crate) fn has_mpi(&self, collective: Collective, dtype: DType, bytes: usize) -> bool {
        self.size() > 1 && self.world.mpi().is_some_and(|mpi| mpi.offers(collective, dtype, ReduceOp::Sum, bytes))
    }

    pub(crate) fn topology(&self) -> &Topology {
        self.shared.chooser.topology()
    }

    pub(crate) fn policy(&self) -> &Policy {
        self.world.policy()
    }

    /// How many of its ranks are on this one's node.
    pub(crate) fn near(&self) -> usize {
        let nodes = self.topology().nodes();
        nodes.iter().filter(|node| **node == nodes[self.shared.me as usize]).count()
    }

    /// What was measured for it, if anything was.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.shared.chooser.table()
    }

    /// Goes by what was measured from now on.
    pub(crate) fn adopt(&self, table: Arc<Table>) {
        self.world.adopt(self.size(), &table);
        self.shared.chooser.adopt(table);
    }

    /// Says something on the way, if that is wanted.
    pub(crate) fn tell(&self, text: &str) {
        self.shared.chooser.tell(text);
    }

    /// Lets go of schedules that were only tried, and of the memory they needed.
    pub(crate) fn forget_schedules(&self) {
        lock(&self.shared.collectives).forget();
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("ranks", &self.shared.ranks)
            .field("rank", &self.shared.me)
            .finish_non_exhaustive()
    }
}

/// A lock that a panic elsewhere does not take away: what it guards is then failed, not torn.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Shared {
    /// Does what can be done now, unless somebody else is at it; says whether that was anything.
    pub(crate) fn poll(&self, world: &Arc<Inner>) -> Result<bool, Error> {
        if self.outstanding.load(Ordering::Acquire) == 0 {
            return Ok(false);
        }
        let mut moved = false;
        if let Some(mut lane) = try_lock(&self.collectives) {
            moved |= self.advance_collectives(&mut lane, world)?;
        }
        if let Some(mut lane) = try_lock(&self.transfers) {
            moved |= self.advance_transfers(&mut lane, world)?;
        }
        Ok(moved)
    }

    fn advance_collectives(&self, lane: &mut Collectives, world: &Arc<Inner>) -> Result<bool, Error> {
        let mut moved = false;
        loop {
            if lane.current.is_none() {
                let Some(queued) = lane.queue.pop_front() else { return Ok(moved) };
                let ticket = Arc::clone(&queued.ticket);
                if let Err(error) = lane.begin(self, world, queued) {
                    lane.failed.push(ticket);
                    return Err(error);
                }
            }
            let ticket = lane.current.as_ref().map(|operation| Arc::clone(&operation.ticket));
            match lane.advance(self, world) {
                Ok(Progress::Nothing) => return Ok(moved),
                Ok(Progress::Some) => moved = true,
                Ok(Progress::Done) => {
                    moved = true;
                    self.ended(1, world);
                    if let Some(ticket) = ticket {
                        ticket.finish(Ok(()));
                    }
                }
                Err(error) => {
                    if lane.current.is_none() {
                        lane.failed.extend(ticket);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn advance_transfers(&self, lane: &mut Mail, world: &Arc<Inner>) -> Result<bool, Error> {
        let before = lane.left();
        let outcome = lane.poll();
        self.ended(before - lane.left(), world);
        outcome
    }

    fn ended(&self, count: usize, world: &Inner) {
        if count > 0 {
            self.outstanding.fetch_sub(count, Ordering::AcqRel);
            world.ended(count);
        }
    }

    /// What has taken too long or cannot come to an end, if anything.
    pub(crate) fn overdue(&self, world: &Inner) -> Option<Error> {
        if self.outstanding.load(Ordering::Acquire) == 0 {
            return None;
        }
        let time = now();
        if let Some(mut lane) = try_lock(&self.collectives)
            && let Some(operation) = &lane.current
        {
            if operation.deadline <= time {
                return Some(lane.overdue(self, world, operation.allowed));
            }
            lane.inquire(self, world);
            if let Err(error) = lane.compare(self).and_then(|()| lane.parted(self, world)) {
                return Some(error);
            }
        }
        let lane = try_lock(&self.transfers)?;
        let (rank, what, waited) = lane.overdue(time)?;
        let missing = rank.map(|rank| self.ranks[rank as usize]).into_iter().collect();
        Some(Error::Timeout { waited, what, missing })
    }

    /// An error if something waits for a rank that has left.
    pub(crate) fn look_for_gone(&self, world: &Arc<Inner>) -> Result<(), Error> {
        if let Some(mut lane) = try_lock(&self.transfers) {
            let before = lane.left();
            let outcome = lane.look_for_closed();
            self.ended(before - lane.left(), world);
            outcome?;
        }
        let gone = world.gone(&self.ranks);
        // What they had sent was here when they were seen to have left.
        if gone.is_empty() || self.poll(world)? {
            return Ok(());
        }
        if let Some(mut lane) = try_lock(&self.collectives) {
            lane.needs_none_of(self, &gone)?;
        }
        if let Some(mut lane) = try_lock(&self.transfers) {
            let waits = lane.waits_for();
            if let Some(rank) = waits.iter().map(|rank| self.ranks[*rank as usize]).find(|rank| gone.contains(rank)) {
                return Err(Error::Left { rank, what: "a transfer was under way".to_owned() });
            }
        }
        Ok(())
    }

    /// What is going on, in words.
    pub(crate) fn doing(&self) -> Option<String> {
        if self.outstanding.load(Ordering::Acquire) == 0 {
            return None;
        }
        let collective = try_lock(&self.collectives).filter(|lane| lane.current.is_some()).map(|lane| lane.doing());
        Some(collective.unwrap_or_else(|| "a transfer was under way".to_owned()))
    }

    pub(crate) fn topic(&self) -> u64 {
        self.topic
    }

    /// Lets go of what joins this rank to the others, once whoever works with it has seen that the world was left.
    pub(crate) fn close(&self, world: &Inner) {
        lock(&self.collectives).close();
        let mut lane = lock(&self.transfers);
        let before = lane.left();
        lane.close(Transfers::new(self.me, self.ranks.len() as u32));
        self.ended(before - lane.left(), world);
    }

    /// Ends everything with an error.
    pub(crate) fn fail(&self, error: &Error, world: &Inner) {
        if let Some(mut lane) = try_lock(&self.collectives) {
            let current = lane.current.take().map(|operation| operation.ticket);
            let failed = std::mem::take(&mut lane.failed);
            let queued = lane.queue.drain(..).map(|queued| queued.ticket);
            let tickets: Vec<_> = current.into_iter().chain(failed).chain(queued).collect();
            self.ended(tickets.iter().filter(|ticket| !ticket.is_done()).count(), world);
            for ticket in tickets {
                ticket.finish(Err(error.clone()));
            }
        }
        if let Some(mut lane) = try_lock(&self.transfers) {
            let left = lane.left();
            lane.fail(error);
            self.ended(left, world);
        }
    }
}
