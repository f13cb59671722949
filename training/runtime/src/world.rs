//! All ranks, and what they have in common: who is where, who is well, whose turn it is to work.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use eirene_train_launch::Launch;
use eirene_train_mesh::{Mesh, Trouble};

use crate::arena::{Arena, Region};
use crate::choice::Topology;
use crate::error::Error;
use crate::forks;
use crate::group::{Foundation, Group, Shared};
use crate::link::{BellAt, Link, Memory, Stream};
use crate::memory::bell::{Bell, Patience, Turn, Waiting, now};
use crate::memory::lane::Shape;
use crate::memory::meeting::{Meeting, Place};
use crate::memory::segment::{LINE, Segment};

/// What messages over the mesh are about, beside those of groups, whose numbers are larger.
const TOPIC_BELLS: u64 = 1;
const TOPIC_ARENA: u64 = 2;
const TOPIC_STATUS: u64 = 3;
const FIRST_GROUP_TOPIC: u64 = 1 << 32;

/// How long an end is waited for that explains why a connection broke.
const EXPLANATION: Duration = Duration::from_secs(2);

/// How long the reason may take that made a rank leave, and that comes from another one.
const RUMOUR: Duration = Duration::from_millis(300);

/// How long the others may take to say where they are, when a collective has taken too long.
const ANSWER: Duration = Duration::from_millis(500);

/// How often those who wait look for such questions.
const LISTEN: Duration = Duration::from_millis(20);

/// How a world is joined.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long ranks may take to find each other.
    pub timeout: Duration,
    /// Cores that the ranks of a node share; those this process may use, if none.
    pub cores: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(1), cores: None }
    }
}

/// All ranks that were started together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct World {
    inner: Arc<Inner>,
}

/// What groups, works and the progress thread share.
pub(crate) struct Inner {
    mesh: Mesh,
    /// The ranks of this node, ascending.
    local: Vec<u32>,
    bells: Vec<BellAt>,
    bell: BellAt,
    patience: Patience,
    arena: Arc<Arena>,
    groups: RwLock<Vec<Weak<Shared>>>,
    /// How often a group was built, by its key: the same number everywhere.
    built: Mutex<HashMap<String, u64>>,
    /// Collectives and transfers that were begun and are not done.
    outstanding: AtomicUsize,
    /// Threads that wait for some of it, and work meanwhile.
    helpers: AtomicUsize,
    failed: AtomicBool,
    failure: OnceLock<Error>,
    /// Some ranks are on other nodes.
    is_far: AtomicBool,
    /// When questions were last looked for.
    listened: Mutex<Instant>,
    /// The progress thread has been started.
    has_progress: AtomicBool,
    stop: AtomicBool,
    forks: u32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.mesh.rank())
            .field("size", &self.mesh.size())
            .finish_non_exhaustive()
    }
}

impl World {
    /// Joins the world that this process was started in.
    ///
    /// # Errors
    /// [`Error::Meeting`] when the ranks do not find or trust each other in time; it names those that are missing.
    pub fn join(launch: &Launch, options: &Options) -> Result<Self, Error> {
        let plan = launch.plan(options.timeout).map_err(|error| Error::Meeting(error.to_string()))?;
        let mesh = Mesh::join(plan);
        launch.tidy();
        Self::over(mesh.map_err(|error| advised(error, launch))?, options)
    }

    /// The world of a mesh.
    ///
    /// # Errors
    /// When memory cannot be shared within the node.
    pub fn over(mesh: Mesh, options: &Options) -> Result<Self, Error> {
        let deadline = now() + options.timeout;
        let node = mesh.node_of(mesh.rank());
        let local: Vec<u32> = (0..mesh.size()).filter(|rank| mesh.node_of(*rank) == node).collect();
        let bytes = local.len() * LINE;
        let segment = Arc::new(share(&mesh, &local, TOPIC_BELLS, c"eirene-train-bells", bytes, deadline)?);
        let bells: Vec<BellAt> =
            (0..local.len()).map(|index| BellAt::new(Arc::clone(&segment), index * LINE)).collect();
        let me = local.iter().position(|rank| *rank == mesh.rank()).unwrap_or(0);
        let cores = options.cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let bell = bells[me].clone();
        let rung = bell.clone();
        mesh.on_trouble(Box::new(move || rung.bell().ring()));
        let inner = Inner {
            patience: Patience::new(local.len(), cores),
            local,
            bells,
            bell,
            arena: Arc::default(),
            groups: RwLock::default(),
            built: Mutex::default(),
            outstanding: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            is_far: AtomicBool::new(false),
            listened: Mutex::new(now()),
            has_progress: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            forks: forks::count(),
            mesh,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> u32 {
        self.inner.mesh.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.inner.mesh.size()
    }

    /// This rank's number among those of its node, from 0.
    pub fn local_rank(&self) -> u32 {
        self.inner.local.iter().take_while(|rank| **rank < self.rank()).count() as u32
    }

    /// Number of ranks on this node.
    pub fn local_size(&self) -> u32 {
        self.inner.local.len() as u32
    }

    /// Number of this rank's node, from 0, in the order of the lowest ranks.
    pub fn node(&self) -> u32 {
        self.inner.mesh.node_of(self.rank())
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u32 {
        (0..self.size()).map(|rank| self.inner.mesh.node_of(rank)).max().unwrap_or(0) + 1
    }

    /// The group of all ranks. Every call builds another one, on all ranks.
    ///
    /// # Errors
    /// As [`Self::group`].
    pub fn everybody(&self, allowed: Duration) -> Result<Group, Error> {
        self.group(&(0..self.size()).collect::<Vec<_>>(), "everybody", allowed)
    }

    /// Builds a group of some ranks, given in the order of their ranks in the group. Its members alone call this, with the same ranks and
    /// the same key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ranks that do not exist, are there twice, or of which this is none; [`Error::Meeting`] when the others do not
    /// come in time.
    pub fn group(&self, ranks: &[u32], key: &str, allowed: Duration) -> Result<Group, Error> {
        self.inner.well()?;
        let me = ranks.iter().position(|rank| *rank == self.rank());
        let wrong = |message: String| Err(Error::Invalid { message });
        let Some(me) = me else { return wrong(format!("rank {} is not of the group {ranks:?}", self.rank())) };
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != ranks.len() || sorted.iter().any(|rank| *rank >= self.size()) {
            return wrong(format!("a group of {ranks:?} in a world of {} ranks", self.size()));
        }
        let foundation = self.inner.build(ranks, me, key, now() + allowed)?;
        Ok(Group::new(foundation, Arc::clone(&self.inner)))
    }

    /// Memory that the other ranks of this node can reach into. Collectives of ranks of one node whose buffers all lie in such memory work on
    /// it in place.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is not as much.
    pub fn arena(&self, bytes: usize) -> Result<Region, Error> {
        self.inner.well()?;
        let (region, number) = self.inner.arena.region(bytes)?;
        let says = [number.to_le_bytes(), (region.bytes() as u64).to_le_bytes()].concat();
        for rank in self.inner.local.iter().filter(|rank| **rank != self.rank()) {
            self.inner.mesh.send(*rank, TOPIC_ARENA, &says, &[Arena::descriptor(&region)])?;
        }
        Ok(region)
    }

    /// Leaves the world in order. What is called later fails.
    pub fn leave(&self) {
        self.inner.leave();
    }
}

/// Ranks that did not meet in time are told where they waited, and what to do about it.
fn advised(error: eirene_train_mesh::Error, launch: &Launch) -> Error {
    match error {
        eirene_train_mesh::Error::Timeout { .. } => Error::Meeting(format!("{error}; {}", launch.advice())),
        other => other.into(),
    }
}

/// New memory that some ranks of a node share; the first of them makes it.
fn share(
    mesh: &Mesh,
    ranks: &[u32],
    topic: u64,
    name: &std::ffi::CStr,
    bytes: usize,
    deadline: Instant,
) -> Result<Segment, Error> {
    let first = ranks.first().copied().unwrap_or(mesh.rank());
    if mesh.rank() == first {
        let segment = Segment::new(name, bytes)?;
        for rank in &ranks[1..] {
            mesh.send(*rank, topic, &(bytes as u64).to_le_bytes(), &[segment.descriptor()])?;
        }
        return Ok(segment);
    }
    let (_, mut descriptors) = mesh.receive(first, topic, deadline)?;
    let descriptor = descriptors.pop().ok_or_else(|| Error::Meeting(format!("rank {first} sent no memory")))?;
    Segment::theirs(descriptor, bytes)
}

impl Inner {
    /// Builds what a group stands on.
    fn build(&self, ranks: &[u32], me: usize, key: &str, deadline: Instant) -> Result<Foundation, Error> {
        let topic = self.topic(ranks, key);
        let node = |rank: u32| self.mesh.node_of(rank);
        let mine = node(ranks[me]);
        // Positions in the group of those who share this node's memory.
        let near: Vec<usize> = (0..ranks.len()).filter(|position| node(ranks[*position]) == mine).collect();
        let all_near = near.len() == ranks.len();
        let shape = Shape::for_peers(near.len() - 1);
        let meeting_bytes = Meeting::bytes(near.len()).next_multiple_of(LINE);
        // A ring for each lane and each ordered pair.
        let ring = |lane: usize, from: usize, to: usize| {
            meeting_bytes + ((lane * near.len() + from) * near.len() + to) * shape.ring()
        };
        let bytes = ring(2, 0, 0);
        let mut sorted: Vec<u32> = near.iter().map(|position| ranks[*position]).collect();
        sorted.sort_unstable();
        let segment = Arc::new(share(&self.mesh, &sorted, topic, c"eirene-train-group", bytes, deadline)?);
        let seat = near.iter().position(|position| *position == me).unwrap_or(0);
        let mut lanes: [Vec<Option<Link>>; 2] = std::array::from_fn(|_| (0..ranks.len()).map(|_| None).collect());
        for (other, position) in near.iter().enumerate().filter(|(other, _)| *other != seat) {
            let bell = self.bell_of(ranks[*position]);
            for (lane, links) in lanes.iter_mut().enumerate() {
                let (out, into) = (ring(lane, seat, other), ring(lane, other, seat));
                let memory = Memory::new(Arc::clone(&segment), out, into, shape, bell.clone());
                links[*position] = Some(Link::Memory(memory));
            }
        }
        // Both sides of a connection come to it in the same order as everybody does: by the pair's lower rank, then the higher.
        let mut far: Vec<usize> = (0..ranks.len()).filter(|position| node(ranks[*position]) != mine).collect();
        far.sort_unstable_by_key(|position| {
            let other = ranks[*position];
            (other.min(ranks[me]), other.max(ranks[me]))
        });
        for position in far {
            self.is_far.store(true, Ordering::Relaxed);
            for (lane, links) in lanes.iter_mut().enumerate() {
                let rank = ranks[position];
                let socket = self.mesh.connect(rank, topic + lane as u64, deadline)?;
                links[position] = Some(Link::Stream(Stream::new(rank, socket)?));
            }
        }
        let meeting = all_near.then(|| Meeting::new(Arc::clone(&segment), 0, seat, near.len()));
        let nodes: Vec<u32> = ranks.iter().map(|rank| node(*rank)).collect();
        let [collectives, transfers] = lanes;
        let (ranks, topology) = (ranks.to_vec(), Topology::new(&nodes));
        Ok(Foundation { topic, ranks, me: me as u32, topology, collectives, transfers, meeting })
    }

    /// A number for a group's messages, the same on all its members and, as good as certainly, no other group's. Even.
    fn topic(&self, ranks: &[u32], key: &str) -> u64 {
        let name = format!("{key} {ranks:?}");
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let times = built.entry(name.clone()).or_default();
        *times += 1;
        // FNV-1a.
        let hash = format!("{name} {times}")
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (hash | FIRST_GROUP_TOPIC) & !1
    }

    fn bell_of(&self, rank: u32) -> BellAt {
        let index = self.local.iter().position(|local| *local == rank).unwrap_or(0);
        self.bells[index].clone()
    }

    /// Wakes the ranks of this node that are among some.
    pub(crate) fn ring_others(&self, ranks: &[u32]) {
        for (index, rank) in self.local.iter().enumerate() {
            if *rank != self.mesh.rank() && ranks.contains(rank) {
                self.bells[index].bell().ring();
            }
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        self.bell.bell()
    }

    pub(crate) fn patience(&self) -> Patience {
        if self.is_far.load(Ordering::Relaxed) { self.patience.with_far_ranks() } else { self.patience }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Where another rank's place is in this process.
    pub(crate) fn find(&self, rank: u32, place: Place, bytes: usize) -> Result<*mut u8, Error> {
        self.arena.find(rank, place, bytes, |number| {
            let (says, mut descriptors) = self.mesh.receive(rank, TOPIC_ARENA, now() + EXPLANATION)?;
            let word =
                |at: usize| says.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
            let descriptor = descriptors.pop().ok_or_else(|| Error::Meeting(format!("rank {rank} sent no memory")))?;
            *number = word(0);
            Segment::theirs(descriptor, usize::try_from(word(8)).unwrap_or(usize::MAX))
        })
    }

    /// Adds a group to those that are worked for.
    pub(crate) fn enter(&self, group: &Arc<Shared>) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(group));
    }

    /// Nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) == 0
    }

    pub(crate) fn began(&self) {
        self.outstanding.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn ended(&self, count: usize) {
        self.outstanding.fetch_sub(count, Ordering::AcqRel);
        // Whoever waits for what has ended may be asleep.
        self.bell().ring();
    }

    /// A caller has done its work itself; others may have begun something meanwhile that could not go on.
    pub(crate) fn done_here(&self) {
        if !self.is_idle() {
            self.bell().ring();
        }
    }

    /// An error once the world has failed or was left.
    pub(crate) fn well(&self) -> Result<(), Error> {
        if self.failed.load(Ordering::Acquire) {
            return Err(self.failure());
        }
        if self.forks != forks::count() {
            return Err(Error::Ended { reason: "this process was forked from the one that joined it".to_owned() });
        }
        match self.mesh.trouble() {
            None => Ok(()),
            Some(trouble) => Err(self.fail(told(trouble, "nothing was going on"))),
        }
    }

    /// Ends the world for everybody. Returns the error that explains it best: a rank that has died is the reason for a broken connection,
    /// and what another rank has said comes before what follows from it.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let error = self.explained(error);
        let first = self.failure.set(error).is_ok();
        self.failed.store(true, Ordering::Release);
        let error = self.failure();
        if first && !matches!(error, Error::PeerDied { .. } | Error::Aborted { .. }) {
            self.mesh.abort(&error.to_string());
        }
        for group in self.working() {
            group.fail(&error, self);
        }
        self.bell().ring();
        error
    }

    /// Why the world has ended.
    fn failure(&self) -> Error {
        self.failure.get().cloned().unwrap_or(Error::Ended { reason: "it was left".to_owned() })
    }

    /// Why a rank is not to be talked to any more: if others know a reason, it is on its way.
    fn explained(&self, error: Error) -> Error {
        let deadline = now() + EXPLANATION;
        let rank = match &error {
            Error::Connection { rank, .. } | Error::Left { rank, .. } => *rank,
            _ => return error,
        };
        let mut left_until = None;
        while now() < deadline {
            if let Some(trouble) = self.mesh.trouble() {
                return told(trouble, "a message was under way");
            }
            if left_until.is_none() && self.mesh.left(rank) {
                left_until = Some(now() + RUMOUR);
            }
            if left_until.is_some_and(|until| until < now()) {
                return match error {
                    Error::Left { .. } => error,
                    _ => Error::Left { rank, what: "it was still talked to".to_owned() },
                };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        error
    }

    /// Looks whether all ranks are well.
    pub(crate) fn look_around(&self, doing: impl Fn() -> String) -> Result<(), Error> {
        if let Some(trouble) = self.mesh.trouble() {
            return Err(told(trouble, &doing()));
        }
        if self.failed.load(Ordering::Acquire) {
            return self.well();
        }
        if self.is_far.load(Ordering::Relaxed) {
            let mut listened = self.listened.lock().unwrap_or_else(PoisonError::into_inner);
            if listened.elapsed() >= LISTEN {
                self.listen(|_, _| {});
                *listened = now();
            }
        }
        Ok(())
    }

    /// Who of a group has not come to a call, as far as they say themselves. Whoever waits for anything answers; a rank that is busy with
    /// something else does not.
    pub(crate) fn ask_around(&self, group: u64, ranks: &[u32], call: u64) -> Vec<u32> {
        let mut missing: Vec<u32> = ranks.iter().copied().filter(|rank| *rank != self.mesh.rank()).collect();
        for rank in &missing {
            // Who cannot be asked is missing.
            let _ = self.mesh.send(*rank, TOPIC_STATUS, &status(QUESTION, group, call), &[]);
        }
        let deadline = now() + ANSWER;
        while now() < deadline && !missing.is_empty() {
            self.listen(|rank, says| {
                if says.1 == group && says.2 >= call {
                    missing.retain(|other| *other != rank);
                }
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        missing
    }

    /// Answers who asks where we are, and takes the answers to our own questions.
    fn listen(&self, mut take: impl FnMut(u32, (u8, u64, u64))) {
        for rank in (0..self.mesh.size()).filter(|rank| *rank != self.mesh.rank()) {
            while let Ok((says, _)) = self.mesh.receive(rank, TOPIC_STATUS, now()) {
                let word = |at: usize| {
                    says.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
                };
                let (kind, group, call) = (says.first().copied().unwrap_or(ANSWERED), word(1), word(9));
                // A question says where its asker is, too.
                take(rank, (kind, group, call));
                if kind == QUESTION
                    && let Some(known) = self.working().iter().find(|known| known.topic() == group)
                {
                    let _ = self.mesh.send(rank, TOPIC_STATUS, &status(ANSWERED, group, known.begun()), &[]);
                }
            }
        }
    }

    /// Those of some ranks that have left, and whose last messages are all here: ranks of this node. What one of another node has sent may be
    /// on its way; there the end of the connection says it.
    pub(crate) fn gone(&self, ranks: &[u32]) -> Vec<u32> {
        let is_gone = |rank: &u32| *rank != self.mesh.rank() && self.local.contains(rank) && self.mesh.left(*rank);
        ranks.iter().copied().filter(is_gone).collect()
    }

    /// The groups that have something under way.
    fn working(&self) -> Vec<Arc<Shared>> {
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.iter().filter_map(Weak::upgrade).collect()
    }

    /// Does what can be done for all groups; says whether that was anything.
    fn poll(self: &Arc<Self>) -> bool {
        if self.failed.load(Ordering::Acquire) {
            let error = self.failure();
            self.working().iter().for_each(|group| group.fail(&error, self));
            return false;
        }
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let mut failure = None;
        let mut moved = false;
        for group in groups.iter().filter_map(Weak::upgrade) {
            match group.poll(self) {
                Ok(some) => moved |= some,
                Err(error) => failure = Some(error),
            }
        }
        drop(groups);
        if let Some(error) = failure {
            self.fail(error);
            return true;
        }
        moved
    }

    /// What is looked at only now and then: time limits, and whether all are well.
    fn look_at_all(self: &Arc<Self>) {
        for group in self.working() {
            if let Some(error) = group.overdue(self) {
                self.fail(error);
                return;
            }
            let Some(doing) = group.doing() else { continue };
            let outcome = self.look_around(|| doing.clone()).and_then(|()| group.look_for_gone(self));
            if let Err(error) = outcome {
                self.fail(error);
                return;
            }
        }
    }

    /// Works until something is done; false if that takes too long.
    pub(crate) fn help_until(self: &Arc<Self>, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        if done() {
            return true;
        }
        self.helpers.fetch_add(1, Ordering::AcqRel);
        let mut waiting = Waiting::new(self.bell(), self.patience(), deadline);
        let outcome = loop {
            if done() {
                break true;
            }
            if self.poll() {
                waiting.progressed();
                continue;
            }
            match waiting.turn(|| done() || self.poll()) {
                Turn::Again => {}
                Turn::Slept => self.look_at_all(),
                Turn::TooLong => break done(),
            }
        };
        self.helpers.fetch_sub(1, Ordering::AcqRel);
        if !self.is_idle() {
            self.bell().ring();
        }
        outcome
    }

    /// Sees to it that somebody works on what was begun.
    pub(crate) fn wake_progress(self: &Arc<Self>) -> Result<(), Error> {
        if !self.has_progress.load(Ordering::Relaxed) && !self.has_progress.swap(true, Ordering::AcqRel) {
            let world = Arc::downgrade(self);
            std::thread::Builder::new().name("eirene-progress".to_owned()).spawn(move || progress(&world)).map_err(
                |error| Error::Memory { bytes: 0, what: "start a thread in".to_owned(), reason: error.to_string() },
            )?;
        }
        self.bell().ring();
        Ok(())
    }

    fn leave(&self) {
        self.stop.store(true, Ordering::Release);
        self.failed.store(true, Ordering::Release);
        self.bell().ring();
        if self.forks == forks::count() {
            self.mesh.leave();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}

const QUESTION: u8 = 0;
const ANSWERED: u8 = 1;

/// A message about how far a rank is in a group: which call it has begun.
fn status(kind: u8, group: u64, call: u64) -> Vec<u8> {
    [&[kind][..], &group.to_le_bytes(), &call.to_le_bytes()].concat()
}

fn told(trouble: Trouble, doing: &str) -> Error {
    match trouble {
        Trouble::Died { rank } => Error::PeerDied { rank, what: doing.to_owned() },
        Trouble::Aborted { rank, reason } => Error::Aborted { rank, reason },
        Trouble::Corrupt { rank } => {
            Error::Connection { rank, reason: "somebody has tampered with what it sends".to_owned() }
        }
    }
}

/// The progress thread: works on what is under way while nobody waits for it.
fn progress(world: &Weak<Inner>) {
    loop {
        // It does not keep the world: between two looks the last user may let go of it.
        let Some(world) = world.upgrade() else { return };
        if world.stop.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = Waiting::new(world.bell(), world.patience().modest(), Some(now() + IDLE));
        loop {
            if world.stop.load(Ordering::Acquire) {
                return;
            }
            let is_mine = !world.is_idle() && world.helpers.load(Ordering::Acquire) == 0;
            if is_mine && world.poll() {
                waiting.progressed();
                continue;
            }
            let ready = || {
                let is_mine = !world.is_idle() && world.helpers.load(Ordering::Acquire) == 0;
                is_mine && world.poll()
            };
            let turn = if is_mine { waiting.turn(ready) } else { waiting.rest(ready) };
            match turn {
                Turn::Again => {}
                Turn::Slept => {
                    if is_mine {
                        world.look_at_all();
                    }
                }
                Turn::TooLong => break,
            }
        }
    }
}

/// After so long without work the progress thread looks whether the world is still wanted.
const IDLE: Duration = Duration::from_millis(200);
