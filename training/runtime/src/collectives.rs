//! The collectives of a group, which are done one after the other: what is asked for is agreed on where ranks share memory, an algorithm is
//! taken for it, and its proven schedule carried out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_train_reduce::{ReduceOp, Reduction};
use eirene_train_schedule::{Algorithm, Collective, Schedule, Verified};

use crate::call::{self, Call, Part, describe};
use crate::choice::{Given, Way};
use crate::error::Error;
use crate::extent::{Extent, Table};
use crate::group::Shared;
use crate::link::Link;
use crate::memory::bell::now;
use crate::memory::meeting::{Meeting, Place, Saying};
use crate::message::Head;
use crate::mpi::{Room, Running};
use crate::record;
use crate::task::{Mapped, Parts, Progress, Task};
use crate::work::{Manner, Ticket};
use crate::world::Inner;

/// From so many bytes on, ranks that share memory agree on how before they begin: a fence is cheap beside what it saves when all buffers lie
/// in arenas, and everybody learns at once of a call that does not fit the others'.
pub(crate) const AGREE_FROM: usize = 64 << 10;

/// After so long the others are asked what they have called, where that is not seen in shared memory; and so often again, as long as some have
/// not come to it.
const ASK_AFTER: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The collectives of a group, which are done one after the other.
pub(crate) struct Collectives {
    links: Vec<Option<Link>>,
    meeting: Option<Meeting>,
    /// Where MPI does collectives in its own way.
    room: Option<Arc<Room>>,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) current: Option<Operation>,
    /// Of what has failed and is told why once that is known: a broken connection may be what follows from it.
    pub(crate) failed: Vec<Arc<Ticket>>,
    /// Calls so far, what the last one was, and what stands for all of them.
    number: u64,
    last: Head,
    history: u64,
    schedules: HashMap<(Collective, Algorithm), Arc<Verified>>,
    scratch: Vec<u64>,
}

/// A call that waits for its turn.
pub(crate) struct Queued {
    pub(crate) call: Call,
    /// A way that is to be tried out, instead of the one that would be chosen.
    pub(crate) tried: Option<Way>,
    pub(crate) allowed: Duration,
    pub(crate) ticket: Arc<Ticket>,
}

/// A collective under way.
pub(crate) struct Operation {
    call: Call,
    tried: Option<Way>,
    head: Head,
    stage: Stage,
    pub(crate) allowed: Duration,
    pub(crate) deadline: Instant,
    /// When the others are asked what they have called.
    ask: Instant,
    pub(crate) ticket: Arc<Ticket>,
}

enum Stage {
    /// The ranks tell each other what they have come with.
    Agreeing,
    /// They do it.
    Running(Box<Task>),
    /// MPI does it.
    Mpi(Box<Running>),
}

// SAFETY: a call holds addresses of buffers which the caller has promised to leave alone until it is done.
#[expect(unsafe_code, reason = "calls go from the caller to the progress thread")]
unsafe impl Send for Collectives {}
impl Collectives {
    /// None yet.
    pub(crate) fn new(links: Vec<Option<Link>>, meeting: Option<Meeting>, room: Option<Arc<Room>>) -> Self {
        Self {
            links,
            meeting,
            room,
            queue: VecDeque::new(),
            current: None,
            failed: Vec::new(),
            number: 0,
            last: Head::default(),
            history: 0,
            schedules: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Lets go of all links and of MPI: the world was left.
    pub(crate) fn close(&mut self) {
        self.current = None;
        self.links.iter_mut().for_each(|link| *link = None);
        self.room = None;
    }

    /// Nothing is under way, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// Lets go of what is kept for later calls: schedules, and the engine's own memory.
    pub(crate) fn forget(&mut self) {
        self.schedules = HashMap::new();
        if self.current.is_none() {
            self.scratch = Vec::new();
        }
    }

    /// An error if the current call waits for one of some ranks that have left.
    pub(crate) fn needs_none_of(&mut self, group: &Shared, gone: &[u32]) -> Result<(), Error> {
        let Some(operation) = &self.current else { return Ok(()) };
        let waits = match &operation.stage {
            Stage::Agreeing => self.meeting.as_ref().map(Meeting::not_arrived).unwrap_or_default(),
            Stage::Running(task) => task.waits_for(&mut self.links, self.meeting.as_ref()),
            // MPI does not say for whom it waits; `parted` does.
            Stage::Mpi(_) => return Ok(()),
        };
        match waits.iter().map(|rank| group.ranks[*rank as usize]).find(|rank| gone.contains(rank)) {
            Some(rank) => Err(Error::Left { rank, what: self.doing() }),
            None => Ok(()),
        }
    }

    /// An error if MPI waits for a rank that has left.
    pub(crate) fn parted(&self, group: &Shared, world: &Inner) -> Result<(), Error> {
        let Some(Operation { stage: Stage::Mpi(_), head, .. }) = &self.current else { return Ok(()) };
        match world.parted_before(group.topic, &group.ranks, head.call) {
            Some(rank) => Err(Error::Left { rank, what: self.doing() }),
            None => Ok(()),
        }
    }

    /// An error if a rank is seen to have called something else.
    pub(crate) fn compare(&mut self, group: &Shared) -> Result<(), Error> {
        let (Some(meeting), Some(operation)) = (&self.meeting, &self.current) else { return Ok(()) };
        let mine = operation.head;
        if let Some((mine, rank, theirs)) = meeting.disagreement(mine.call) {
            return Err(unlike(group, &mine, rank, &theirs));
        }
        // Who is so far ahead that it is not known any more has left a message, here or where somebody else finds it.
        let agrees = matches!(operation.stage, Stage::Agreeing);
        for (rank, link) in self.links.iter_mut().enumerate() {
            let Some(head) = link.as_mut().map_or(Ok(None), Link::next)? else { continue };
            let theirs = Head { bytes: 0, ..head };
            // It may be ahead, but not of what nobody does alone.
            let is_ahead = theirs.call > mine.call && (!agrees || meeting.complete());
            if theirs != mine && !is_ahead {
                return Err(unlike(group, &mine, rank, &theirs));
            }
        }
        Ok(())
    }

    /// Asks the others what they have called once the current call takes long, where only asking tells.
    pub(crate) fn inquire(&mut self, group: &Shared, world: &Inner) {
        let is_seen = self.meeting.is_some();
        let Some(operation) = &mut self.current else { return };
        let is_to_be_asked = !is_seen || matches!(operation.stage, Stage::Mpi(_));
        if is_to_be_asked && operation.ask <= now() {
            operation.ask = now() + ASK_AGAIN;
            world.ask(group.topic, &group.record, operation.head.call);
        }
    }

    /// What the ranks do not agree about, where a message that does not fit shows only that there is something.
    fn earlier(&self, group: &Shared, world: &Inner, head: &Head, in_question: Option<u64>) -> Option<Error> {
        if let Some(meeting) = &self.meeting {
            let (mine, rank, theirs) = meeting.disagreement(head.call)?;
            return Some(unlike(group, &mine, rank, &theirs));
        }
        let found = world.look_for_disagreement(group.topic, &group.record, in_question?);
        // Another rank may have found it meanwhile.
        let found = found.and_then(|()| world.look_around(|| describe(head))).err();
        found.filter(|error| matches!(error, Error::Mismatch { .. }))
    }

    /// Why MPI has refused a call: because of another rank's that does not fit, if there is one.
    fn refused(&mut self, group: &Shared, world: &Inner, error: Error) -> Error {
        let is_usable = self.room.as_ref().is_some_and(|room| room.engine.is_usable());
        if !is_usable || !matches!(error, Error::Mpi(_)) {
            return error;
        }
        let found =
            self.compare(group).and_then(|()| world.look_for_disagreement(group.topic, &group.record, self.number));
        found.err().unwrap_or(error)
    }

    /// What is going on, in words.
    pub(crate) fn doing(&self) -> String {
        self.current.as_ref().map_or_else(|| "nothing was going on".to_owned(), |operation| describe(&operation.head))
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, group: &Shared, world: &Arc<Inner>, queued: Queued) -> Result<(), Error> {
        let Queued { call, tried, allowed, ticket } = queued;
        self.number += 1;
        if self.meeting.is_some() && self.room.is_none() {
            group.record.count(self.number);
        } else {
            group.record.begin(&call, self.number);
        }
        let mut head = call.head(self.number);
        // A message has room for a part of it only, of bits that every bit of the last call has a say in; and the next call's will have another.
        let history = self.history;
        head.kind[3] = (history >> 21) as u8;
        self.history = head.history(history);
        let agrees = call.bytes() >= AGREE_FROM;
        let stage = match &mut self.meeting {
            Some(meeting) => {
                meeting.begin(&head);
                if agrees && group.ranks.len() > 1 {
                    let place = |extent: Option<Extent>| {
                        let place = |extent| world.place(extent, &group.ranks, allowed);
                        extent.map_or(Ok(Place::default()), place)
                    };
                    let wholes = call.wholes();
                    let (input, output) =
                        (place(wholes.map(|wholes| wholes.0))?, place(wholes.map(|wholes| wholes.1))?);
                    meeting.arrive(Some(&Saying { head, history, input, output }));
                    world.ring_others(&group.ranks);
                    Stage::Agreeing
                } else {
                    self.stage(group, &call, tried.as_ref(), head, Vec::new())
                        .map_err(|error| self.refused(group, world, error))?
                }
            }
            None => self
                .stage(group, &call, tried.as_ref(), head, Vec::new())
                .map_err(|error| self.refused(group, world, error))?,
        };
        if !matches!(stage, Stage::Agreeing) {
            ticket.is_done_by(self.manner(group, &stage, Manner::Small));
        }
        self.last = head;
        let began = now();
        let (deadline, ask) = (began + allowed, began + ASK_AFTER);
        self.current = Some(Operation { call, tried, head, stage, allowed, deadline, ask, ticket });
        Ok(())
    }

    /// Does what can be done now for the current call.
    pub(crate) fn advance(&mut self, group: &Shared, world: &Arc<Inner>) -> Result<Progress, Error> {
        let Some(mut operation) = self.current.take() else { return Ok(Progress::Done) };
        if matches!(operation.stage, Stage::Agreeing) {
            match &self.meeting {
                Some(meeting) if meeting.complete() => {
                    let (mapped, otherwise) = match agreed(meeting, group, &operation, world)? {
                        Agreed::Mapped(mapped) => (mapped, Manner::Chosen),
                        Agreed::Unshared { rank } => (Vec::new(), Manner::Unshared { rank }),
                    };
                    let tried = operation.tried.as_ref();
                    operation.stage = self.stage(group, &operation.call, tried, operation.head, mapped)?;
                    operation.ticket.is_done_by(self.manner(group, &operation.stage, otherwise));
                }
                _ => {
                    self.current = Some(operation);
                    return Ok(Progress::Nothing);
                }
            }
        }
        let arrivals = self.meeting.as_ref().map(Meeting::arrivals);
        let progress = match &mut operation.stage {
            Stage::Agreeing => Progress::Nothing,
            Stage::Running(task) => match task.poll(&mut self.links, self.meeting.as_mut()) {
                Ok(progress) => progress,
                Err(error) => {
                    let earlier = self.earlier(group, world, &operation.head, task.in_question());
                    return Err(earlier.unwrap_or(error));
                }
            },
            Stage::Mpi(running) => match running.poll() {
                Ok(true) => Progress::Done,
                Ok(false) => Progress::Nothing,
                Err(error) => {
                    self.current = Some(operation);
                    return Err(self.refused(group, world, error));
                }
            },
        };
        if self.meeting.as_ref().map(Meeting::arrivals) != arrivals {
            world.ring_others(&group.ranks);
        }
        if progress != Progress::Done {
            self.current = Some(operation);
        }
        Ok(progress)
    }

    /// Whether MPI itself can do a call.
    fn offers_mpi(&self, call: &Call) -> bool {
        let offers = |room: &Arc<Room>| room.engine.offers(call.collective, call.dtype, call.op, call.bytes());
        self.room.as_ref().is_some_and(offers)
    }

    /// A call's way, begun; `mapped` are all ranks' buffers, if they can be reached.
    fn stage(
        &mut self,
        group: &Shared,
        call: &Call,
        tried: Option<&Way>,
        head: Head,
        mapped: Vec<Mapped>,
    ) -> Result<Stage, Error> {
        let choose = || {
            let given = Given { bytes: call.bytes(), shared: !mapped.is_empty(), mpi: self.offers_mpi(call) };
            group.chooser.choose_and_tell(call.collective, given).way
        };
        let way = tried.cloned().unwrap_or_else(choose);
        match (way, &self.room) {
            (Way::Schedule(algorithm), _) => {
                self.task(group, call, algorithm, head, mapped).map(|task| Stage::Running(Box::new(task)))
            }
            (Way::Mpi, Some(room)) => Running::begin(room, call).map(|running| Stage::Mpi(Box::new(running))),
            (Way::Mpi, None) => Err(Error::Mpi("this world has none".to_owned())),
        }
    }

    /// How a call is done that has this stage; what else than in place, if it could be in place.
    fn manner(&self, group: &Shared, stage: &Stage, otherwise: Manner) -> Manner {
        match stage {
            _ if group.ranks.len() == 1 => Manner::InPlace,
            Stage::Running(task) if task.reaches() => Manner::InPlace,
            _ if self.meeting.is_none() => Manner::Nodes,
            _ => otherwise,
        }
    }

    /// A task for a call.
    fn task(
        &mut self,
        group: &Shared,
        call: &Call,
        algorithm: Algorithm,
        head: Head,
        mapped: Vec<Mapped>,
    ) -> Result<Task, Error> {
        let size = group.ranks.len() as u32;
        let known = if let Some(known) = self.schedules.get(&(call.collective, algorithm.clone())) {
            Arc::clone(known)
        } else {
            let known = prove(call.collective, &algorithm, size)?;
            self.schedules.insert((call.collective, algorithm), Arc::clone(&known));
            known
        };
        let schedule = known.schedule();
        let input = call::table(&call.input, call.dtype, size, schedule.input_chunks);
        let output = call::table(&call.output, call.dtype, size, schedule.output_chunks);
        let scratch = self.scratch(call, schedule);
        let reductions = if call::reduces(call.collective) {
            let make = |divisor| {
                Reduction::new(call.dtype, call.op, divisor)
                    .map_err(|undefined| Error::Invalid { message: undefined.to_string() })
            };
            let divisor = (call.op == ReduceOp::Avg).then_some(size);
            Some((make(None)?, make(divisor)?))
        } else {
            None
        };
        let element = call.dtype.size();
        Ok(Task::new(Parts {
            schedule: known,
            me: group.me,
            head,
            last: self.last,
            size: element,
            reductions,
            input,
            output,
            scratch,
            mapped,
        }))
    }

    /// Memory of the engine's, cut like the caller's input or output, whichever has as many chunks.
    fn scratch(&mut self, call: &Call, schedule: &Schedule) -> Table {
        if schedule.scratch_chunks == 0 {
            return Table::default();
        }
        let model = if schedule.scratch_chunks == schedule.input_chunks { &call.input } else { &call.output };
        let size = call.dtype.size();
        // Parts begin at whole words, as elements of any type may.
        let room: usize = model.iter().map(|part| (part.elements * size).next_multiple_of(8)).sum();
        if self.scratch.len() * 8 < room {
            self.scratch = vec![0; room / 8];
        }
        let mut address = self.scratch.as_mut_ptr() as usize;
        let parts: Vec<Part> = model
            .iter()
            .map(|part| {
                let place = Part { address, elements: part.elements };
                address += (part.elements * size).next_multiple_of(8);
                place
            })
            .collect();
        call::table(&parts, call.dtype, schedule.ranks, schedule.scratch_chunks)
    }

    /// That the current call has taken too long, and whose fault it is as far as can be seen.
    pub(crate) fn overdue(&self, group: &Shared, world: &Inner, waited: Duration) -> Error {
        let missing = match (&self.meeting, &self.current) {
            (Some(meeting), Some(operation)) => {
                Ok(meeting.not_begun(operation.head.call).into_iter().map(|rank| group.ranks[rank]).collect())
            }
            (None, Some(operation)) => world.ask_around(group.topic, &group.record, operation.head.call),
            (_, None) => Ok(Vec::new()),
        };
        missing.map_or_else(|error| error, |missing| Error::Timeout { waited, what: self.doing(), missing })
    }
}

/// What the ranks have come to a call with, if it was the same call.
enum Agreed {
    /// Where everybody's buffers are.
    Mapped(Vec<Mapped>),
    /// A rank of the world whose buffers cannot be reached.
    Unshared { rank: u32 },
}

/// Reads what everybody has come with: an error if it is not the same, else where everybody's buffers are, if all lie in arenas.
fn agreed(meeting: &Meeting, group: &Shared, operation: &Operation, world: &Inner) -> Result<Agreed, Error> {
    let sayings: Vec<Saying> = (0..group.ranks.len()).map(|rank| meeting.saying(rank)).collect();
    let me = group.me as usize;
    let says = |rank: usize| (sayings[rank].head, sayings[rank].history);
    if let Some(other) = (0..sayings.len()).find(|rank| says(*rank) != says(me)) {
        // It may have begun before this call.
        let (mine, other, theirs) =
            meeting.disagreement(sayings[me].head.call).unwrap_or((sayings[me].head, other, sayings[other].head));
        return Err(unlike(group, &mine, other, &theirs));
    }
    let unshared = sayings.iter().position(|saying| saying.input.region == 0 || saying.output.region == 0);
    // Without wholes ours would be among the unshared.
    let (None, Some((input, output))) = (unshared, operation.call.wholes()) else {
        // Those whose buffers do lie in an arena have told of it.
        let has_told =
            |rank: &usize| *rank != me && (sayings[*rank].input.region > 0 || sayings[*rank].output.region > 0);
        (0..sayings.len()).filter(has_told).try_for_each(|rank| world.hear(group.ranks[rank]))?;
        return Ok(Agreed::Unshared { rank: group.ranks[unshared.unwrap_or(me)] });
    };
    let find = |rank: usize| {
        if rank == me {
            return Ok(Mapped { input: input.address, output: output.address });
        }
        Ok(Mapped {
            input: world.find(group.ranks[rank], sayings[rank].input, input.bytes)?,
            output: world.find(group.ranks[rank], sayings[rank].output, output.bytes)?,
        })
    };
    (0..sayings.len()).map(find).collect::<Result<_, _>>().map(Agreed::Mapped)
}

/// That two ranks of a group have called different things.
fn unlike(group: &Shared, mine: &Head, rank: usize, theirs: &Head) -> Error {
    record::disagreement(group.ranks[group.me as usize], mine, group.ranks[rank], theirs)
}

/// Works a schedule out and proves it.
fn prove(collective: Collective, algorithm: &Algorithm, ranks: u32) -> Result<Arc<Verified>, Error> {
    let refused = |reason: String| Error::Invalid { message: format!("{}: {reason}", call::name(collective)) };
    let schedule = eirene_train_schedule::generate(collective, algorithm, ranks).map_err(|e| refused(e.to_string()))?;
    eirene_train_schedule::verify(schedule).map(Arc::new).map_err(|flaw| refused(flaw.to_string()))
}
