//! The MPI that a world uses, where it uses one: what carries messages between nodes ([`crate::link`]), and does collectives and messages in its
//! own way ([`running`], [`messages`]).
//!
//! One engine for the world, one room (a communicator) for each group. All calls go through the engine, one at a time, so that MPI can be
//! given up at once: a world that has failed calls nothing of it again, for a peer that is dead would be waited for without end, and what is
//! under way in memory of the caller's must not go on when the caller has been told that it is over.
//!
//! Left to others: which library, and everything about how it is spoken to (`eirene-train-mpi`); whether a rank is alive (the mesh).

mod messages;
mod opening;
mod running;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use eirene_train_mesh::Mesh;
use eirene_train_mpi::{Communicator, Mpi, Number, Op};

pub(crate) use messages::Messages;
pub(crate) use opening::open;
pub(crate) use running::Running;

use crate::error::Error;
use crate::forks;
use crate::memory::bell::now;

/// How long a call that is under way elsewhere is waited for when MPI is given up.
const LAST_CALL: Duration = Duration::from_millis(500);

/// How long nothing must have come before MPI is ended.
const QUIET: Duration = Duration::from_millis(10);

/// How long MPI may take to end once all ranks have said goodbye.
const FAREWELL: Duration = Duration::from_secs(5);

/// How often whoever waits for MPI looks whether that is in vain.
const LOOK: Duration = Duration::from_millis(5);

/// Where a rank's communicators of dropped groups, and all others, wait for the end: to free one is a matter of all its ranks, which let go
/// of a group whenever they like.
type Rooms = Mutex<Vec<Arc<Room>>>;

/// MPI, started, and the way to it.
pub(crate) struct Engine {
    mpi: Mutex<Option<Arc<Mpi>>>,
    library: String,
    /// Reductions that this library gets wrong.
    wrong: Vec<(Number, Op)>,
    calls: Mutex<()>,
    given_up: AtomicBool,
    rooms: Rooms,
    /// Groups are built one after the other.
    building: Mutex<()>,
    forks: u32,
}

/// A group's communicator; ranks in it are those of the group.
pub(crate) struct Room {
    pub(crate) engine: Arc<Engine>,
    pub(crate) communicator: Communicator,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MPI's words as an error of the runtime.
pub(crate) fn failed(error: &eirene_train_mpi::Error) -> Error {
    Error::Mpi(error.to_string())
}

impl Engine {
    fn new(mpi: Mpi) -> Arc<Self> {
        let ops = [Op::Sum, Op::Min, Op::Max, Op::Prod];
        let all = Number::ALL.into_iter().flat_map(|number| ops.map(|op| (number, op)));
        Arc::new(Self {
            wrong: all.filter(|(number, op)| !mpi.can_reduce(*number, *op)).collect(),
            library: format!("{}, spoken to in {}", mpi.identity(), mpi.identity().abi),
            mpi: Mutex::new(Some(Arc::new(mpi))),
            calls: Mutex::new(()),
            given_up: AtomicBool::new(false),
            rooms: Mutex::default(),
            building: Mutex::new(()),
            forks: forks::count(),
        })
    }

    /// Name, version, file and interface of the library.
    pub(crate) fn library(&self) -> &str {
        &self.library
    }

    /// Whether MPI may still be called: it was not given up, and this is no fork.
    pub(crate) fn is_usable(&self) -> bool {
        !self.given_up.load(Ordering::Acquire) && self.forks == forks::count()
    }

    /// The turn to call MPI, which ends when it is dropped.
    pub(crate) fn enter(&self) -> Result<MutexGuard<'_, ()>, Error> {
        // In a fork the lock may be held by a thread that is not there.
        if self.is_usable() {
            let turn = lock(&self.calls);
            if self.is_usable() {
                return Ok(turn);
            }
        }
        Err(Error::Mpi("it was given up when this world ended".to_owned()))
    }

    /// Gives MPI up. Behind this nobody calls it any more, unless a call of theirs does not come back.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        if let Some(mpi) = lock(&self.mpi).as_ref() {
            mpi.forsake();
        }
        let until = now() + LAST_CALL;
        while matches!(self.calls.try_lock(), Err(TryLockError::WouldBlock)) && now() < until {
            std::thread::yield_now();
        }
    }

    /// Makes a room for some ranks of the world, by their numbers there, in the order of their numbers in the group. All of them are at
    /// this by now, so that it takes no longer than MPI does.
    pub(crate) fn room(
        self: &Arc<Self>,
        mesh: &Mesh,
        ranks: &[u32],
        topic: u64,
        deadline: Instant,
    ) -> Result<Arc<Room>, Error> {
        let Some(mpi) = lock(&self.mpi).clone() else {
            return Err(Error::Ended { reason: "it was left".to_owned() });
        };
        // Ranks that make two rooms at once make them under different tags.
        let tag = u32::try_from((topic >> 1) % u64::from(mpi.greatest_tag())).unwrap_or_default();
        let members = ranks.to_vec();
        let (give, take) = channel();
        // MPI waits for the others without looking whether they live: that is done here.
        std::thread::Builder::new()
            .name("eirene-mpi-group".to_owned())
            .spawn(move || give.send(mpi.group(&members, tag)))
            .map_err(|error| Error::Mpi(format!("the thread that makes a group does not start: {error}")))?;
        loop {
            match take.recv_timeout(LOOK) {
                Ok(made) => {
                    let communicator = made.map_err(|error| failed(&error))?;
                    let room = Arc::new(Room { engine: Arc::clone(self), communicator });
                    lock(&self.rooms).push(Arc::clone(&room));
                    return Ok(room);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Mpi("the thread that makes a group has ended".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if mesh.trouble().is_some() || now() >= deadline {
                self.give_up();
                let why = format!("its communicator for the ranks {ranks:?} did not come about in time");
                return Err(mesh
                    .trouble()
                    .map_or(Error::Mpi(why), |trouble| eirene_train_mesh::Error::from(trouble).into()));
            }
        }
    }

    /// The turn to build a group.
    pub(crate) fn build(&self) -> MutexGuard<'_, ()> {
        lock(&self.building)
    }

    /// Ends MPI, for which all ranks have to come: as long as they are well they are waited for, and `meanwhile` is done. Who has given it up
    /// waits for nobody.
    pub(crate) fn end(&self, mesh: &Mesh, meanwhile: impl Fn()) {
        let mpi = lock(&self.mpi).take();
        let rooms = std::mem::take(&mut *lock(&self.rooms));
        if !self.is_usable() || mpi.is_none() {
            return;
        }
        let others = || (0..mesh.size()).filter(|rank| *rank != mesh.rank());
        let mut quiet_since = now();
        while !others().all(|rank| mesh.left(rank)) || quiet_since.elapsed() < QUIET {
            if mesh.trouble().is_some() {
                return mpi.iter().for_each(|mpi| mpi.forsake());
            }
            if rooms.iter().any(|room| room.is_cleared()) {
                quiet_since = now();
            }
            meanwhile();
            std::thread::sleep(LOOK);
        }
        // The same order on all ranks: that of their making.
        rooms.into_iter().for_each(drop);
        // Somebody may still wait within: then it would not end.
        let mpi = match mpi.map(Arc::try_unwrap) {
            Some(Ok(mpi)) => mpi,
            Some(Err(mpi)) => return mpi.forsake(),
            None => return,
        };
        let (done, ended) = channel();
        let spawned = std::thread::Builder::new().name("eirene-mpi-end".to_owned()).spawn(move || {
            // What MPI says at its end helps nobody; that it has ended counts.
            let _ = done.send(mpi.finalize().is_ok());
        });
        if spawned.is_ok() {
            // Whoever is not there by now does not come.
            let _ = ended.recv_timeout(FAREWELL);
        }
    }
}

impl Room {
    /// Takes goodbyes that nobody has waited for; some MPIs complain of what is left. Says whether there was one.
    fn is_cleared(&self) -> bool {
        let Ok(_turn) = self.engine.enter() else { return false };
        let Ok(Some(arrived)) = self.communicator.iprobe(None, None) else { return false };
        let mut into = vec![0; arrived.bytes];
        self.communicator.receive(&mut into, Some(arrived.source), Some(arrived.tag), Some(LAST_CALL)).is_ok()
    }
}
