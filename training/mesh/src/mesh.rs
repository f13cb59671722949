//! The mesh as its users see it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::{Error, Trouble};
use crate::inbox::Letter;
use crate::join::{Joined, join};
use crate::link::{Link, Unsent};
use crate::plan::Plan;
use crate::proof::Prover;
use crate::seal::{Kind, MOST_BYTES, MOST_FILES};
use crate::socket::Way;
use crate::watch::{Watcher, write_trouble};
use crate::wire::Entry;

/// How long an abort or a goodbye may wait for ranks that do not read.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long the watcher may take to find out why a connection broke.
const INQUEST: Duration = Duration::from_secs(1);

type Callback = Arc<dyn Fn() + Send + Sync>;

/// What the threads of a rank share.
pub(crate) struct Shared {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// By rank; none for this one.
    pub(crate) links: Vec<Option<Link>>,
    pub(crate) table: Vec<Entry>,
    pub(crate) interfaces: Vec<String>,
    /// None in a world of one.
    pub(crate) prover: Option<Prover>,
    nodes: Vec<u32>,
    troubled: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    callbacks: Mutex<Vec<Callback>>,
    wake: EventFd,
    /// Goodbye has been said.
    parted: AtomicBool,
    leaving: AtomicBool,
    process: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The watcher has been woken.
    pub(crate) fn awake(&self) {
        let _ = self.wake.read();
    }

    fn wake(&self) {
        let _ = self.wake.write(1);
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if self.troubled.load(Ordering::Acquire) { lock(&self.trouble).clone() } else { None }
    }

    /// Remembers the first trouble and tells everybody in this process.
    pub(crate) fn raise(&self, trouble: Trouble) {
        {
            let mut first = lock(&self.trouble);
            if first.is_some() {
                return;
            }
            *first = Some(trouble);
            self.troubled.store(true, Ordering::Release);
        }
        self.links.iter().flatten().for_each(Link::ring);
        let callbacks = lock(&self.callbacks).clone();
        for callback in callbacks {
            callback();
        }
    }

    /// Fails in a fork of the process that joined, and after leaving.
    pub(crate) fn present(&self) -> Result<(), Error> {
        if self.process != std::process::id() {
            return Err(Error::Forked);
        }
        if self.is_leaving() { Err(Error::Left { rank: self.rank }) } else { Ok(()) }
    }

    pub(crate) fn link(&self, rank: u32) -> Result<&Link, Error> {
        self.present()?;
        self.links
            .get(rank as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::invalid(format!("rank {} has no connection to rank {rank}", self.rank)))
    }

    pub(crate) fn send(
        &self,
        link: &Link,
        kind: Kind,
        topic: u64,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        self.send_unless(link, kind, topic, bytes, files, || false)
    }

    fn send_unless(
        &self,
        link: &Link,
        kind: Kind,
        topic: u64,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
        mut give_up: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        if let Some(trouble) = self.trouble() {
            return Err(trouble.into());
        }
        let began = Instant::now();
        let mut too_long = false;
        let given_up = || {
            let in_vain = self.troubled.load(Ordering::Acquire) || self.is_leaving() || link.inbox().left;
            too_long = !in_vain && give_up();
            in_vain || too_long
        };
        match link.send(kind, topic, bytes, files, given_up) {
            Ok(()) => Ok(()),
            Err(Unsent::GivenUp) if too_long => {
                Err(Error::Timeout { waited: began.elapsed(), missing: vec![link.rank], strangers: 0 })
            }
            Err(Unsent::GivenUp | Unsent::Broken) => Err(self.inquest(link)),
        }
    }

    /// Why a connection does not work, once the watcher knows.
    fn inquest(&self, link: &Link) -> Error {
        let until = Instant::now() + INQUEST;
        let mut inbox = link.inbox();
        loop {
            if let Some(trouble) = self.trouble() {
                return trouble.into();
            }
            if inbox.left {
                return Error::Left { rank: link.rank };
            }
            if self.is_leaving() {
                return Error::Left { rank: self.rank };
            }
            if inbox.gone || Instant::now() >= until {
                return Error::Died { rank: link.rank };
            }
            inbox = link.wait(inbox, until);
        }
    }

    /// Waits for the next message of a kind and topic.
    pub(crate) fn receive(&self, link: &Link, kind: Kind, topic: u64, deadline: Instant) -> Result<Letter, Error> {
        let began = Instant::now();
        let mut inbox = link.inbox();
        loop {
            if let Some(letter) = inbox.take(kind, topic) {
                let resume = inbox.paused && !inbox.is_full();
                if resume {
                    inbox.paused = false;
                    drop(inbox);
                    self.wake();
                }
                return Ok(letter);
            }
            if let Some(trouble) = self.trouble() {
                return Err(trouble.into());
            }
            if inbox.left {
                return Err(Error::Left { rank: link.rank });
            }
            if self.is_leaving() {
                return Err(Error::Left { rank: self.rank });
            }
            if inbox.paused {
                return Err(Error::Full { rank: link.rank });
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout { waited: began.elapsed(), missing: vec![link.rank], strangers: 0 });
            }
            inbox = link.wait(inbox, deadline);
        }
    }
}

/// A rank's connections to all others.
///
/// Any thread may use it. In a fork of the process it does nothing: every call fails with [`Error::Forked`], and
/// dropping it there tells the others nothing.
pub struct Mesh {
    shared: Arc<Shared>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Mesh(rank {} of {})", self.shared.rank, self.shared.size)
    }
}

impl Mesh {
    /// Meets the other ranks. When it returns, there is a proven connection to each of them, and no listener, file or
    /// directory of the meeting is left; also when it fails.
    pub fn join(mut plan: Plan) -> Result<Self, Error> {
        plan.check()?;
        let joined = if plan.size == 1 { None } else { Some(join(&mut plan)?) };
        let (prover, channels, nodes, table) = match joined {
            Some(Joined { prover, links, nodes, table }) => (Some(prover), links, nodes, table),
            None => (None, vec![None], vec![0], Vec::new()),
        };
        let (links, ears) =
            (0..).zip(channels).map(|(rank, channel)| channel.map(|channel| Link::new(rank, channel)).unzip()).unzip();
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(Error::system("make the watcher's wake-up"))?;
        let shared = Arc::new(Shared {
            rank: plan.rank,
            size: plan.size,
            links,
            table,
            interfaces: plan.interfaces,
            prover,
            nodes,
            troubled: AtomicBool::new(false),
            trouble: Mutex::new(None),
            callbacks: Mutex::new(Vec::new()),
            wake,
            parted: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            process: std::process::id(),
        });
        let watcher = (plan.size > 1).then(|| {
            let watcher = Watcher::new(Arc::clone(&shared), ears);
            std::thread::Builder::new().name("eirene-watcher".into()).spawn(move || watcher.run())
        });
        let watcher = watcher.transpose().map_err(Error::system("start the watcher"))?;
        Ok(Self { shared, watcher: Mutex::new(watcher) })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Who we are.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    /// The node a rank is on. Nodes are numbered by their lowest ranks, beginning with 0.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        self.shared.nodes[rank as usize]
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.shared.nodes.iter().max().map_or(1, |last| last + 1)
    }

    /// Sends a message of at most 1 MiB, with descriptors if the rank is on the same node. Messages of one topic arrive
    /// in their order. Returns when the system has taken it, which may be before it is received.
    pub fn send(&self, to: u32, topic: u64, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.send_unless(to, topic, bytes, fds, || false)
    }

    /// The same, but while the rank takes no more messages `give_up` is asked now and then; once it says yes, that is
    /// [`Error::Timeout`].
    pub fn send_unless(
        &self,
        to: u32,
        topic: u64,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        give_up: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let link = self.shared.link(to)?;
        if bytes.len() > MOST_BYTES {
            return Err(Error::invalid(format!(
                "a message of {} bytes is too long; at most {MOST_BYTES}",
                bytes.len()
            )));
        }
        if fds.len() > MOST_FILES {
            return Err(Error::invalid(format!(
                "{} descriptors are too many for a message; at most {MOST_FILES}",
                fds.len()
            )));
        }
        if !fds.is_empty() && (self.node_of(to) != self.node_of(self.rank()) || link.way != Way::Unix) {
            return Err(Error::OtherNode { rank: to });
        }
        self.shared.send_unless(link, Kind::User, topic, bytes, fds, give_up)
    }

    /// Waits for a rank's next message of a topic. Messages of other topics are kept for who asks for them. Fails early
    /// when there is [trouble](Self::trouble), whichever rank it concerns, or when the rank has left; what came before
    /// that is still given.
    pub fn receive(&self, from: u32, topic: u64, deadline: Instant) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
        self.shared.receive(self.shared.link(from)?, Kind::User, topic, deadline)
    }

    /// The first bad thing that happened to the world. Costs one load while there is none.
    pub fn trouble(&self) -> Option<Trouble> {
        self.shared.trouble()
    }

    /// Has `callback` called, from whichever thread learns of it, when there is trouble; at once if there is already.
    pub fn on_trouble(&self, callback: Box<dyn Fn() + Send + Sync>) {
        let callback: Callback = callback.into();
        lock(&self.shared.callbacks).push(Arc::clone(&callback));
        if self.trouble().is_some() {
            callback();
        }
    }

    /// True if the rank has said goodbye. That is no trouble until somebody needs it.
    pub fn left(&self, rank: u32) -> bool {
        self.shared.link(rank).is_ok_and(|link| link.inbox().left)
    }

    /// True if nothing more is to be expected of the rank: it has said goodbye, has ended the work for everybody, or is gone.
    pub fn is_over(&self, rank: u32) -> bool {
        self.shared.link(rank).is_ok_and(|link| {
            let inbox = link.inbox();
            inbox.left || inbox.gone
        })
    }

    /// Ends the work for everybody. Who is in trouble already passes that on instead of its own reason, so that all see
    /// the first cause.
    pub fn abort(&self, reason: &str) {
        if self.shared.present().is_err() {
            return;
        }
        let own = Trouble::Aborted { rank: self.shared.rank, reason: reason.into() };
        let trouble = self.trouble().unwrap_or(own);
        self.last_words(Kind::Abort, &write_trouble(&trouble));
        self.shared.raise(trouble);
    }

    fn last_words(&self, kind: Kind, bytes: &[u8]) {
        let until = Instant::now() + LAST_WORDS;
        for link in self.shared.links.iter().flatten() {
            let _ = link.send(kind, 0, bytes, &[], || Instant::now() >= until);
        }
    }

    /// Says goodbye to everybody, but goes on listening until [`Self::leave`]: for who has to know meanwhile how the others are.
    pub fn part(&self) {
        if self.shared.present().is_ok() && !self.shared.parted.swap(true, Ordering::AcqRel) {
            self.last_words(Kind::Goodbye, &[]);
        }
    }

    /// Says goodbye to everybody. Later calls fail. Dropping the mesh does the same.
    pub fn leave(&self) {
        if self.shared.present().is_err() {
            return;
        }
        let watcher = lock(&self.watcher).take();
        self.part();
        self.shared.leaving.store(true, Ordering::Release);
        self.shared.links.iter().flatten().for_each(Link::finish);
        self.shared.wake();
        self.shared.links.iter().flatten().for_each(Link::ring);
        // A callback may be what lets go of the mesh.
        if let Some(watcher) = watcher.filter(|watcher| watcher.thread().id() != std::thread::current().id()) {
            let _ = watcher.join();
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if self.shared.process == std::process::id() {
            self.leave();
            return;
        }
        // The connections, the thread and the locks are the parent's.
        let watcher = self.watcher.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        std::mem::forget(watcher);
        std::mem::forget(Arc::clone(&self.shared));
    }
}
