//! The control connection to one rank, as all threads of this process share it: everybody may send, the watcher alone
//! reads.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::socket::Shutdown;

use crate::channel::{Channel, Ear};
use crate::fork::KeepFromForks;
use crate::inbox::Inbox;
use crate::seal::{Kind, Sealer};
use crate::socket::{self, Way};

/// How often a sender who waits for room looks whether it still should.
const LOOK: Duration = Duration::from_millis(20);

/// How often a sender looks whether the one before it is done; that one may be waiting for room.
const TURN: Duration = Duration::from_micros(100);

struct Mouth {
    sealer: Sealer,
    /// Part of a message was sent and the rest cannot be: nothing more can.
    broken: bool,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The sender gave up.
    GivenUp,
    /// The connection is broken.
    Broken,
}

pub(crate) struct Link {
    // First, so that it is gone before the descriptor is closed.
    _keep: KeepFromForks,
    fd: OwnedFd,
    pub(crate) rank: u32,
    pub(crate) way: Way,
    mouth: Mutex<Mouth>,
    inbox: Mutex<Inbox>,
    bell: Condvar,
}

impl Link {
    /// Parts a connection into what is shared and what the watcher alone has.
    pub(crate) fn new(rank: u32, channel: Channel) -> (Self, Ear) {
        let Channel { fd, way, ear, sealer, .. } = channel;
        let link = Self {
            _keep: KeepFromForks::new(fd.as_fd()),
            fd,
            rank,
            way,
            mouth: Mutex::new(Mouth { sealer, broken: false }),
            inbox: Mutex::new(Inbox::default()),
            bell: Condvar::new(),
        };
        (link, ear)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait for something in the inbox; call it with the inbox changed and let go.
    pub(crate) fn ring(&self) {
        // Whoever looked before the change now waits; whoever looks after it sees it.
        drop(self.inbox());
        self.bell.notify_all();
    }

    /// Waits for the bell, or until `until`.
    pub(crate) fn wait<'a>(&self, inbox: MutexGuard<'a, Inbox>, until: Instant) -> MutexGuard<'a, Inbox> {
        let left = until.saturating_duration_since(Instant::now());
        self.bell.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends one message; while there is no room, waits until `give_up` says so.
    pub(crate) fn send(
        &self,
        kind: Kind,
        topic: u64,
        bytes: &[u8],
        files: &[BorrowedFd<'_>],
        mut give_up: impl FnMut() -> bool,
    ) -> Result<(), Unsent> {
        let mut mouth = loop {
            match self.mouth.try_lock() {
                Ok(mouth) => break mouth,
                Err(std::sync::TryLockError::Poisoned(mouth)) => break mouth.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) if give_up() => return Err(Unsent::GivenUp),
                Err(std::sync::TryLockError::WouldBlock) => std::thread::park_timeout(TURN),
            }
        };
        if mouth.broken {
            return Err(Unsent::Broken);
        }
        let sealed = mouth.sealer.seal(kind, topic, bytes, files.len());
        let mut sent = 0;
        while sent < sealed.len() {
            let files = if sent == 0 { files } else { &[] };
            match socket::write(self.fd(), &sealed[sent..], files) {
                Ok(0) if give_up() => {
                    if sent == 0 {
                        mouth.sealer.take_back();
                    } else {
                        mouth.broken = true;
                    }
                    return Err(Unsent::GivenUp);
                }
                Ok(0) => {
                    let _ = socket::wait_one(&self.fd, PollFlags::POLLOUT, Instant::now() + LOOK);
                }
                Ok(more) => sent += more,
                Err(_) => {
                    mouth.broken = true;
                    return Err(Unsent::Broken);
                }
            }
        }
        Ok(())
    }

    /// Nothing more will be sent.
    pub(crate) fn finish(&self) {
        let _ = nix::sys::socket::shutdown(self.fd.as_raw_fd(), Shutdown::Write);
    }
}
