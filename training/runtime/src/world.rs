//! All ranks, and what they have in common: who is where, who is well, whose turn it is to work.

mod announcing;
mod building;
mod failing;
mod inquiry;
mod options;
mod parting;
mod progress;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use eirene_train_launch::Launch;
use eirene_train_mesh::Mesh;

use crate::arena::{Arena, Region};
use crate::choice::Topology;
use crate::error::Error;
use crate::forks;
use crate::group::{Group, Shared};
use crate::interrupted::{Asking, Interrupted};
use crate::link::BellAt;
use crate::memory::bell::{Bell, Patience, Turn, Waiting, now};
use crate::memory::segment::LINE;
use crate::mpi::Engine;
use crate::tuning::policy::Policy;
use crate::tuning::table::Table;

use failing::{EXPLANATION, not_made, told};

pub use options::{Encryption, Options};

/// What messages over the mesh are about, beside those of groups, whose numbers are larger.
const TOPIC_BELLS: u64 = 1;
const TOPIC_ARENA: u64 = 2;
const TOPIC_STATUS: u64 = 3;
const TOPIC_POLICY: u64 = 4;
const TOPIC_PARTED: u64 = 0x4d50_4901;
const FIRST_GROUP_TOPIC: u64 = 1 << 32;

/// How often those who wait look for such questions.
const LISTEN: Duration = Duration::from_millis(20);

/// All ranks that were started together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct World {
    inner: Arc<Inner>,
}

/// What groups, works and the progress thread share.
pub(crate) struct Inner {
    mesh: Mesh,
    /// Where this world uses MPI.
    mpi: Option<Arc<Engine>>,
    /// How far ranks that have left had come, by rank and group.
    parted: Mutex<HashMap<(u32, u64), u64>>,
    /// The groups that were built in a world that uses MPI, also those that are gone, and how far they had come.
    built_with_mpi: Mutex<Vec<parting::Past>>,
    /// What other ranks have said of how far they are.
    heard: Mutex<inquiry::Heard>,
    /// The ranks of this node, ascending.
    local: Vec<u32>,
    bells: Vec<BellAt>,
    bell: BellAt,
    patience: Patience,
    policy: Policy,
    interrupted: Option<Interrupted>,
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
    /// When calls were last compared with other ranks'.
    compared: Mutex<Instant>,
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
    /// [`Error::Meeting`] when the ranks do not find or trust each other in time; it names those that are missing. [`Error::Mpi`] when the
    /// launcher and the MPI that is to be used cannot meet, or a rank has none; it names both sides and the cure.
    pub fn join(launch: &Launch, options: &Options) -> Result<Self, Error> {
        let mut plan = launch.plan(options.timeout).map_err(|error| Error::Meeting(error.to_string()))?;
        plan.node.clone_from(&options.node);
        let mesh = Mesh::join(plan);
        launch.tidy();
        let mesh = mesh.map_err(|error| advised(error, launch))?;
        let mpi = crate::mpi::open(&mesh, launch, options)?;
        Self::with(mesh, mpi, options)
    }

    /// The world of a mesh.
    ///
    /// # Errors
    /// When memory cannot be shared within the node; [`Error::Invalid`] for algorithms that do not exist.
    pub fn over(mesh: Mesh, options: &Options) -> Result<Self, Error> {
        Self::with(mesh, None, options)
    }

    fn with(mesh: Mesh, mpi: Option<Arc<Engine>>, options: &Options) -> Result<Self, Error> {
        let deadline = now() + options.timeout;
        let node = mesh.node_of(mesh.rank());
        let local: Vec<u32> = (0..mesh.size()).filter(|rank| mesh.node_of(*rank) == node).collect();
        let bytes = local.len() * LINE;
        let segment = building::share(&mesh, &local, TOPIC_BELLS, c"eirene-train-bells", bytes, deadline);
        let segment = Arc::new(segment.map_err(|error| not_made(&mesh, error))?);
        let bells: Vec<BellAt> =
            (0..local.len()).map(|index| BellAt::new(Arc::clone(&segment), index * LINE)).collect();
        let me = local.iter().position(|rank| *rank == mesh.rank()).unwrap_or(0);
        let cores = options.cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let nodes: Vec<u32> = (0..mesh.size()).map(|rank| mesh.node_of(rank)).collect();
        let library = mpi.as_deref().map(Engine::library);
        let policy = Policy::agree(&mesh, TOPIC_POLICY, &Topology::new(&nodes), library, options, cores, deadline)
            .map_err(|error| not_made(&mesh, error))?;
        let bell = bells[me].clone();
        let rung = bell.clone();
        mesh.on_trouble(Box::new(move || rung.bell().ring()));
        let inner = Inner {
            patience: Patience::new(local.len(), cores),
            policy,
            interrupted: options.interrupted.clone(),
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
            compared: Mutex::new(now()),
            has_progress: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            forks: forks::count(),
            mpi,
            parted: Mutex::default(),
            built_with_mpi: Mutex::default(),
            heard: Mutex::default(),
            mesh,
        };
        let inner = Arc::new(inner);
        if inner.mpi.is_some() {
            inquiry::begin_to_answer(&inner)?;
        }
        Ok(Self { inner })
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

    /// What people may want to know of how this world came about: variables that are not the same on all ranks, files that are ignored.
    pub fn remarks(&self) -> &[String] {
        self.inner.policy.remarks()
    }

    /// The group of all ranks. Every call builds another one, on all ranks.
    ///
    /// # Errors
    /// As [`Self::group`].
    pub fn everybody(&self, allowed: Duration) -> Result<Group, Error> {
        self.group(&(0..self.size()).collect::<Vec<_>>(), "everybody", allowed)
    }

    /// Builds a group of some ranks, given in the order of their ranks in the group. Its members alone call this, with the same ranks and
    /// the same key. In a world that uses MPI, threads that build groups at the same time do so in the same order on all ranks.
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
        self.inner.arena.region(bytes)
    }

    /// A key that only the ranks of this world have, for a use of its own; the same on all of them. It never goes over the network.
    ///
    /// # Errors
    /// [`Error::Meeting`] in a world of one rank, which shares nothing with anybody.
    pub fn derive(&self, purpose: &str) -> Result<zeroize::Zeroizing<[u8; 32]>, Error> {
        Ok(self.inner.mesh.derive(purpose)?)
    }

    /// The MPI that this world uses: its name, version, file and binary interface.
    pub fn mpi(&self) -> Option<&str> {
        self.inner.mpi.as_deref().map(Engine::library)
    }

    /// Whether all ranks are well, for who waits for something that is none of the world's calls.
    ///
    /// # Errors
    /// Why the world has ended: a rank has died, another has given up, or it was left.
    pub fn well(&self) -> Result<(), Error> {
        self.inner.well()
    }

    /// Ends the world for everybody, because this rank could not do what all have to do together; the others hear the reason.
    pub fn abandon(&self, reason: &str) {
        self.inner.fail(Error::Ended { reason: reason.to_owned() });
    }

    /// Leaves the world in order. What is called later fails. A world that uses MPI is left by all ranks together: this waits for the
    /// others as long as they are well.
    pub fn leave(&self) {
        self.inner.leave();
    }
}

/// Ranks that did not meet in time are told where they waited, and what to do about it.
fn advised(error: eirene_train_mesh::Error, launch: &Launch) -> Error {
    match error {
        eirene_train_mesh::Error::Timeout { ref missing, .. } => {
            Error::Absent { message: format!("{error}; {}", launch.advice()), missing: missing.clone() }
        }
        other => other.into(),
    }
}

impl Inner {
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

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn patience(&self) -> Patience {
        match (&self.mpi, self.is_far.load(Ordering::Relaxed)) {
            (_, false) => self.patience,
            (None, true) => self.patience.with_far_ranks(),
            (Some(_), true) => self.patience.with_mpi(),
        }
    }

    /// For a wait of a blocking call.
    pub(crate) fn asking(&self) -> Asking<'_> {
        Asking::new(self.interrupted.as_ref())
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What `ranks` of the world have measured; later groups of all ranks go by it if those were all.
    pub(crate) fn adopt(&self, ranks: u32, table: &Arc<Table>) {
        if ranks == self.mesh.size() {
            self.policy.adopt(Arc::clone(table));
        }
    }

    /// Adds a group to those that are worked for.
    pub(crate) fn enter(&self, group: &Arc<Shared>) {
        self.remember(group);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group| group.strong_count() > 0);
        groups.push(Arc::downgrade(group));
    }

    /// MPI, where this world uses it.
    pub(crate) fn mpi(&self) -> Option<&Arc<Engine>> {
        self.mpi.as_ref()
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

    /// Looks whether all ranks are well.
    pub(crate) fn look_around(&self, doing: impl Fn() -> String) -> Result<(), Error> {
        if let Some(trouble) = self.mesh.trouble() {
            return Err(told(trouble, &doing()));
        }
        if self.failed.load(Ordering::Acquire) {
            return self.well();
        }
        if self.is_far.load(Ordering::Relaxed) {
            self.listen_now_and_then()?;
        }
        Ok(())
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
        let (mut failure, mut moved) = (None, false);
        // Not under the lock on the groups: whoever finds that calls do not fit asks for them again.
        for group in self.working() {
            match group.poll(self) {
                Ok(some) => moved |= some,
                Err(error) => failure = Some(error),
            }
        }
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
                Turn::Look => self.look_at_all(),
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
            std::thread::Builder::new()
                .name("eirene-progress".to_owned())
                .spawn(move || progress::progress(&world))
                .map_err(|error| Error::Memory {
                    bytes: 0,
                    what: "start a thread in".to_owned(),
                    reason: error.to_string(),
                })?;
        }
        self.bell().ring();
        Ok(())
    }

    fn leave(&self) {
        self.stop.store(true, Ordering::Release);
        self.failed.store(true, Ordering::Release);
        self.bell().ring();
        if self.forks == forks::count() {
            if let Some(mpi) = &self.mpi {
                self.part(mpi);
            }
            self.mesh.leave();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leave();
    }
}
