//! Starting and ending MPI in this process.
//!
//! MPI_Init runs on a thread of its own, MPI's home, so that a start that hangs becomes an error of the
//! caller; the same thread ends MPI. Where another part of the process (mpi4py) started MPI, it also ends it,
//! and this crate only takes part.
#![expect(unsafe_code, reason = "calls into MPI")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::c_int;

use crate::abi::Constants;
use crate::communicator::{Communicator, integer};
use crate::environment::{Launcher, Surroundings};
use crate::error::Error;
use crate::ffi::{Api, Handle};
use crate::library::{Identity, Library};
use crate::mismatch::{self, Mismatch};
use crate::number::{Number, Op, Probe, probes};
use crate::watch::Watch;

/// How a start is guarded.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long MPI_Init may take where launcher and library are too far apart to be sure to meet: PMIx versions whose majors are no
    /// neighbours. What there is to say then is said within three seconds, opening the library included.
    pub patience: Duration,
    /// How long MPI_Init may take at all. It returns when the last rank has come, and ranks start as late as their nodes let them, so no
    /// short time tells a hang from a late rank. It holds as well between neighbouring majors of PMIx: those talk to each other, and one
    /// that waits mostly waits for a rank. Both versions are named when it ends.
    pub limit: Duration,
    /// The number of ranks, where the caller knows it better than the environment.
    pub expected: Option<u32>,
    /// How long MPI_Finalize may take before it is left alone.
    pub farewell: Duration,
    /// What to ask of MPI; it may grant less, and some MPIs are faster when asked for less.
    pub threads: ThreadLevel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_millis(2300),
            limit: Duration::from_mins(1),
            expected: None,
            farewell: Duration::from_secs(5),
            threads: ThreadLevel::Multiple,
        }
    }
}

/// What MPI allows threads to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// There is one thread only.
    Single,
    /// One thread calls MPI.
    Funneled,
    /// One thread at a time calls MPI.
    Serialized,
    /// All at once.
    Multiple,
}

/// MPI, started. It ends when this and all communicators and requests are dropped.
#[derive(Debug)]
pub struct Mpi(Arc<Session>);

/// The started library, held by everything that may call it.
pub(crate) struct Session {
    pub(crate) library: Arc<Library>,
    /// Taken around every call where MPI is not safe for threads.
    lock: Option<Mutex<()>>,
    /// The thread that started MPI and will end it; none where somebody else started it.
    home: Option<Mutex<Sender<Sender<c_int>>>>,
    forsaken: AtomicBool,
    level: ThreadLevel,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) tag_limit: u32,
    /// Reductions that this library gets wrong.
    pub(crate) wrong: Vec<(Number, Op)>,
    farewell: Duration,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "rank {} of {} in {:?}", self.rank, self.size, self.library)
    }
}

impl Mpi {
    /// Starts MPI, or takes part where it is started already.
    pub fn start(library: Library, around: &Surroundings, options: &Options) -> Result<Self, Error> {
        if library.is_over() {
            return Err(Error::Finalized);
        }
        library.keep()?;
        let library = Arc::new(library);
        let home = if library.is_running() {
            None
        } else {
            mismatch::check(around, library.identity())?;
            Some(Mutex::new(initialise(&library, around, options)?))
        };
        let mut session = Session {
            lock: None,
            home,
            forsaken: AtomicBool::new(false),
            level: ThreadLevel::Single,
            rank: 0,
            size: 0,
            tag_limit: 32767,
            wrong: Vec::new(),
            farewell: options.farewell,
            library,
        };
        session.look()?;
        session.wrong = session.try_reductions()?;
        let promise = around.environment.promise();
        let held = mismatch::check_size(options.expected, &promise, session.size, session.library.identity());
        if let Err(mismatch) = held {
            // A world of one can be ended by itself; any other would wait for ranks that are not coming.
            session.forsaken.store(session.size > 1, Ordering::Relaxed);
            return Err(mismatch.into());
        }
        Ok(Self(Arc::new(session)))
    }

    /// This rank in the world.
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Ranks in the world.
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// What MPI granted. Below [`ThreadLevel::Multiple`] all calls of this crate go through one lock.
    pub fn thread_level(&self) -> ThreadLevel {
        self.0.level
    }

    /// Whether MPI was started here, and will be ended here.
    pub fn is_own(&self) -> bool {
        self.0.home.is_some()
    }

    /// The library.
    pub fn identity(&self) -> &Identity {
        self.0.library.identity()
    }

    /// A communicator of all ranks, apart from everybody else's messages. All ranks must call this.
    pub fn world(&self) -> Result<Communicator, Error> {
        let world = self.0.constants().world;
        let mut new = self.0.constants().no_communicator;
        // SAFETY: the world is a good communicator while MPI is on, and `new` a good place.
        self.0.call("MPI_Comm_dup", |api, _| unsafe { api.comm_dup(world, &raw mut new) })?;
        Communicator::adopt(&self.0, new)
    }

    /// A communicator of some ranks of the world, in this order. Those ranks alone call this, with the same tag, and wait here for each
    /// other.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rank or a tag that cannot be; [`Error::Call`] when MPI has no room for another communicator.
    pub fn group(&self, ranks: &[u32], tag: u32) -> Result<Communicator, Error> {
        if let Some(rank) = ranks.iter().find(|rank| **rank >= self.size()) {
            return Err(Error::invalid(format!("rank {rank} is not among the {} of this world", self.size())));
        }
        if tag > self.0.tag_limit {
            return Err(Error::invalid(format!("tag {tag} is over this MPI's greatest, {}", self.0.tag_limit)));
        }
        let tag = integer(tag as usize, "the tag")?;
        let members = ranks.iter().map(|rank| integer(*rank as usize, "a rank")).collect::<Result<Vec<c_int>, _>>()?;
        let count = integer(members.len(), "the group")?;
        let Constants { world, no_communicator, .. } = *self.0.constants();
        let (mut all, mut some, mut new) = (Handle(0), Handle(0), no_communicator);
        // SAFETY: the world is a good communicator while MPI is on, and `all` a good place.
        self.0.call("MPI_Comm_group", |api, _| unsafe { api.comm_group(world, &raw mut all) })?;
        // SAFETY: the list is as long as said, and `some` a good place.
        let chosen = self
            .0
            .call("MPI_Group_incl", |api, _| unsafe { api.group_incl(all, count, members.as_ptr(), &raw mut some) });
        let created = chosen.and_then(|()| {
            // SAFETY: both handles are good, and `new` a good place.
            let created = self.0.call("MPI_Comm_create_group", |api, _| unsafe {
                api.comm_create_group(world, some, tag, &raw mut new)
            });
            // SAFETY: the group is ours, and is not used behind this. An error has nobody to hear it.
            self.0.call("MPI_Group_free", |api, _| unsafe { api.group_free(&raw mut some) }).ok();
            created
        });
        // SAFETY: as above.
        self.0.call("MPI_Group_free", |api, _| unsafe { api.group_free(&raw mut all) }).ok();
        created?;
        Communicator::adopt(&self.0, new)
    }

    /// Whether this MPI reduces these numbers rightly; see [`Communicator::can_reduce`].
    pub fn can_reduce(&self, number: Number, op: Op) -> bool {
        !self.0.wrong.contains(&(number, op))
    }

    /// The greatest tag that a message may carry.
    pub fn greatest_tag(&self) -> u32 {
        self.0.tag_limit
    }

    /// Ends the whole world at once, this process included.
    pub fn abort(&self, code: i32) -> ! {
        let world = self.0.constants().world;
        self.forsake();
        // SAFETY: as for every call on the world. No lock: a thread may hold it and hang.
        unsafe { self.0.library.api.abort(world, code) };
        // MPICH comes back from there and is killed by its launcher a little later: no step further.
        // SAFETY: ends the process without running anything of it.
        unsafe { libc::_exit(code) }
    }

    /// Gives MPI up: after a peer's death nothing here may wait for MPI any more, not even at the end.
    pub fn forsake(&self) {
        self.0.forsaken.store(true, Ordering::Relaxed);
    }

    /// Ends MPI. All ranks must call this, after all their communicators and requests are gone; dropping does
    /// the same and keeps the error to itself.
    pub fn finalize(self) -> Result<(), Error> {
        Arc::into_inner(self.0).ok_or(Error::InUse)?.end()
    }
}

/// Runs MPI_Init_thread on a thread of its own and waits for it; gives the way to that thread.
fn initialise(
    library: &Arc<Library>,
    around: &Surroundings,
    options: &Options,
) -> Result<Sender<Sender<c_int>>, Error> {
    let (ready, started) = channel();
    let (orders, inbox) = channel();
    let watch = Watch::new(note(library.identity(), around));
    let own = Arc::clone(library);
    let wanted = library.constants.whole.threads[options.threads as usize];
    std::thread::Builder::new()
        .name("eirene-mpi".to_owned())
        .spawn(move || live(&own, wanted, &ready, &inbox))
        .map_err(|cause| Error::System { what: "the thread for MPI does not start", cause })?;
    let doubt = mismatch::doubt(&around.environment, library.identity());
    let grave = doubt.as_ref().is_some_and(|doubt| doubt.grave);
    let wait = if grave { options.patience.min(options.limit) } else { options.limit };
    match started.recv_timeout(wait) {
        Ok(0) => {
            drop(watch);
            Ok(orders)
        }
        Ok(code) => Err(error(library, "MPI_Init_thread", code)),
        Err(RecvTimeoutError::Disconnected) => Err(error(library, "MPI_Init_thread", -1)),
        Err(RecvTimeoutError::Timeout) => {
            let name = library.identity().to_string();
            Err(match doubt {
                Some(doubt) => Mismatch::Stuck { library: name, waited: wait, doubt: doubt.text }.into(),
                None => Error::StartTimeout { library: name, waited: wait },
            })
        }
    }
}

/// MPI's home: starts it, waits for the order to end it, ends it.
fn live(library: &Library, wanted: c_int, ready: &Sender<c_int>, inbox: &Receiver<Sender<c_int>>) {
    let mut granted: c_int = 0;
    // SAFETY: MPI is not initialised; null arguments are allowed since MPI 2; `granted` is a good place.
    let code = unsafe { library.api.init_thread(std::ptr::null_mut(), std::ptr::null_mut(), wanted, &raw mut granted) };
    if ready.send(code).is_err() || code != 0 {
        return;
    }
    let Ok(reply) = inbox.recv() else { return };
    // SAFETY: the order comes when the last user of MPI is gone.
    let code = unsafe { library.api.finalize() };
    // Whoever gave the order may have stopped waiting.
    reply.send(code).ok();
}

/// What is said if MPI_Init ends the process.
fn note(library: &Identity, around: &Surroundings) -> String {
    let environment = &around.environment;
    let launcher = match environment.promise().launcher {
        Launcher::Pmix => {
            format!("a launcher with PMIx {}", environment.get("PMIX_VERSION").unwrap_or("of unknown version"))
        }
        Launcher::Pmi => "a launcher with PMI (Hydra or SLURM)".to_owned(),
        Launcher::OpenMpi => "Open MPI's mpirun, whose PMIx is hidden".to_owned(),
        Launcher::Slurm => "SLURM without PMIx or PMI".to_owned(),
        Launcher::Torchrun => "torchrun".to_owned(),
        Launcher::Nobody => "no launcher".to_owned(),
    };
    format!(
        "eirene-train: MPI_Init ended this process: {library} (its PMIx: {}) was started by {launcher}. If the two do not belong together, start with this library's own mpirun, choose the launcher's library by EIRENE_TRAIN_MPI=PATH, or set EIRENE_TRAIN_MPI=none to do without MPI.\n",
        library.pmix
    )
}

fn error(library: &Library, call: &'static str, code: c_int) -> Error {
    let mut text = vec![0_u8; library.constants.whole.error_text + 1];
    let mut length: c_int = 0;
    // SAFETY: the buffer is as long as this library's longest error text.
    let known = unsafe { library.api.error_string(code, text.as_mut_ptr().cast(), &raw mut length) } == 0;
    text.truncate(usize::try_from(length).unwrap_or(0));
    let message = if known { String::from_utf8_lossy(&text).trim().to_owned() } else { "unknown error".to_owned() };
    let mut class: c_int = 0;
    // SAFETY: the class is a good place.
    let is_known = unsafe { library.api.error_class(code, &raw mut class) } == 0;
    if is_known && class == library.constants.whole.truncated {
        return Error::Truncated { call, message };
    }
    Error::Call { call, code, message }
}

impl Session {
    pub(crate) fn constants(&self) -> &Constants {
        &self.library.constants
    }

    pub(crate) fn error(&self, call: &'static str, code: c_int) -> Error {
        error(&self.library, call, code)
    }

    /// Whether calls must not overlap: then nothing may wait inside MPI.
    pub(crate) fn one_at_a_time(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether MPI may still be called.
    pub(crate) fn is_usable(&self) -> bool {
        !self.forsaken.load(Ordering::Relaxed) && (self.home.is_some() || !self.library.is_over())
    }

    fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        // The lock guards no data: a panic elsewhere leaves nothing half done.
        self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes one call, alone where it must be, and turns its code into a result.
    pub(crate) fn call(
        &self,
        name: &'static str,
        function: impl FnOnce(&dyn Api, &Constants) -> c_int,
    ) -> Result<(), Error> {
        let guard = self.enter();
        if self.home.is_none() && self.library.is_over() {
            return Err(Error::Finalized);
        }
        let code = function(&*self.library.api, &self.library.constants);
        drop(guard);
        if code == 0 { Ok(()) } else { Err(self.error(name, code)) }
    }

    /// Reads level, rank, size and tags; makes errors of the world come back as codes.
    fn look(&mut self) -> Result<(), Error> {
        let Constants { world, errors_return, .. } = *self.constants();
        let whole = self.constants().whole;
        if self.home.is_some() {
            // SAFETY: MPI is on, and both handles are its own.
            self.call("MPI_Comm_set_errhandler", |api, _| unsafe { api.comm_set_errhandler(world, errors_return) })?;
        }
        let (mut granted, mut rank, mut size): (c_int, c_int, c_int) = (0, 0, 0);
        // SAFETY: MPI is on; the place is good for a C int.
        self.call("MPI_Query_thread", |api, _| unsafe { api.query_thread(&raw mut granted) })?;
        // SAFETY: as above.
        self.call("MPI_Comm_rank", |api, _| unsafe { api.comm_rank(world, &raw mut rank) })?;
        // SAFETY: as above.
        self.call("MPI_Comm_size", |api, _| unsafe { api.comm_size(world, &raw mut size) })?;
        let mut limit: *const c_int = std::ptr::null();
        let mut found: c_int = 0;
        // SAFETY: the attribute's value is a pointer to a C int, for which `limit` is a good place.
        self.call("MPI_Comm_get_attr", |api, _| unsafe {
            api.comm_get_attr(world, whole.tag_limit, (&raw mut limit).cast(), &raw mut found)
        })?;
        if found != 0 && !limit.is_null() {
            // SAFETY: MPI keeps the value as long as the world.
            self.tag_limit = unsafe { *limit }.unsigned_abs();
        }
        self.rank = rank.unsigned_abs();
        self.size = size.unsigned_abs();
        self.level = match whole.threads.iter().position(|level| *level == granted) {
            Some(3) => ThreadLevel::Multiple,
            Some(2) => ThreadLevel::Serialized,
            Some(1) => ThreadLevel::Funneled,
            _ => ThreadLevel::Single,
        };
        if self.level < ThreadLevel::Multiple {
            self.lock = Some(Mutex::new(()));
        }
        Ok(())
    }

    fn try_reductions(&self) -> Result<Vec<(Number, Op)>, Error> {
        let mut wrong = Vec::new();
        for Probe { number, op, left, right, joined } in probes() {
            let (left, mut right) = (u64::from_ne_bytes(left), u64::from_ne_bytes(right));
            let (from, to) = (&raw const left, &raw mut right);
            // SAFETY: both words hold one number each.
            self.call("MPI_Reduce_local", |api, constants| unsafe {
                api.reduce_local(from.cast(), to.cast(), 1, constants.number(number), constants.op(op))
            })?;
            if right.to_ne_bytes() != joined {
                wrong.push((number, op));
            }
        }
        Ok(wrong)
    }

    pub(crate) fn free(&self, mut communicator: Handle) {
        if self.is_usable() {
            // SAFETY: the communicator is ours, and its owner is being dropped. An error has nobody to hear it.
            self.call("MPI_Comm_free", |api, _| unsafe { api.comm_free(&raw mut communicator) }).ok();
        }
    }

    fn end(&self) -> Result<(), Error> {
        let Some(home) = &self.home else { return Ok(()) };
        if self.forsaken.swap(true, Ordering::Relaxed) || self.library.is_over() {
            return Ok(());
        }
        let (reply, answer) = channel();
        if home.lock().unwrap_or_else(PoisonError::into_inner).send(reply).is_err() {
            return Ok(());
        }
        match answer.recv_timeout(self.farewell) {
            Ok(0) => Ok(()),
            Ok(code) => Err(self.error("MPI_Finalize", code)),
            Err(_) => Err(Error::TimedOut { what: "MPI_Finalize", waited: self.farewell }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An error at the end has nobody to hear it; `Mpi::finalize` is for those who want it.
        self.end().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_patience_leaves_time_to_say_so_within_three_seconds_and_stays_below_the_limit() {
        let Options { patience, limit, .. } = Options::default();
        assert!(patience + Duration::from_millis(500) <= Duration::from_secs(3), "{patience:?}");
        assert!(patience >= Duration::from_secs(2), "a loaded machine starts MPI in less: {patience:?}");
        assert!(limit >= 10 * patience, "tests tell the one from the other: {limit:?}");
    }
}
