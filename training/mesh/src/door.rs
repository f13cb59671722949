//! The listening side of a meeting: true ranks come in, strangers learn nothing and wear nobody out.
//!
//! A connection that has not proven itself costs a descriptor and some two hundred bytes for at most three seconds. There
//! are never more than [`MOST_UNPROVEN`] of them: when one more comes, the oldest is dropped, so silent ones cannot keep
//! true ranks out, and a true rank that was dropped calls again.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::resource::{Resource, getrlimit};

use crate::channel::Channel;
use crate::error::Error;
use crate::proof::{Doorkeeper, HELLO, Prover, Verdict, Wish};
use crate::socket::{self, Flow, Way};

/// The most connections that have not proven themselves yet.
pub(crate) const MOST_UNPROVEN: usize = 256;
/// How long they have for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// The most connections taken from one listener before others are served.
const AT_ONCE: usize = 64;

struct Knock {
    fd: OwnedFd,
    way: Way,
    keeper: Doorkeeper,
    hello: [u8; HELLO],
    filled: usize,
    until: Instant,
}

/// A caller that has proven itself and waits for the verdict.
pub(crate) struct Guest {
    knock: Knock,
    prover: Prover,
    pub(crate) wish: Wish,
}

impl Guest {
    /// Lets the caller in; `None` if it is gone already.
    pub(crate) fn welcome(self) -> Option<Channel> {
        let (answer, keys) = self.knock.keeper.answer(&self.prover, &self.knock.hello, Verdict::Welcome);
        let sent = socket::write(self.knock.fd.as_fd(), &answer, &[]);
        sent.is_ok_and(|sent| sent == answer.len()).then_some(())?;
        Channel::new(self.knock.fd, self.knock.way, &keys).ok()
    }

    /// Tells the caller why it may not come in.
    pub(crate) fn refuse(self, verdict: Verdict) {
        let (answer, _) = self.knock.keeper.answer(&self.prover, &self.knock.hello, verdict);
        // Whoever does not hear it meets a closed door.
        let _ = socket::write(self.knock.fd.as_fd(), &answer, &[]);
    }
}

/// What a place in the poll list stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DoorToken {
    Listener(usize),
    Knock(usize),
}

/// Listeners, and those who have called and not yet proven themselves.
pub(crate) struct Door {
    prover: Prover,
    listeners: Vec<(OwnedFd, Way)>,
    /// In the order in which they came; emptied places are closed up between rounds.
    knocks: Vec<Option<Knock>>,
    /// How many were sent away because their proof was wrong.
    pub(crate) strangers: u32,
}

impl Door {
    pub(crate) fn new(prover: Prover) -> Self {
        Self { prover, listeners: Vec::new(), knocks: Vec::new(), strangers: 0 }
    }

    pub(crate) fn add(&mut self, listener: OwnedFd, way: Way) {
        self.listeners.push((listener, way));
    }

    /// Closes everything.
    pub(crate) fn close(&mut self) {
        self.listeners.clear();
        self.knocks.clear();
    }

    /// When the next caller's patience ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.knocks.iter().flatten().map(|knock| knock.until).min()
    }

    /// Drops those whose time is up. To be called before each round.
    pub(crate) fn tidy(&mut self, now: Instant) {
        self.knocks.retain(|knock| knock.as_ref().is_some_and(|knock| knock.until > now));
    }

    /// Adds what is to be watched.
    pub(crate) fn watch<'a>(&'a self, mut add: impl FnMut(DoorToken, PollFd<'a>)) {
        // Those who speak already come before those who are not in yet.
        for (at, knock) in self.knocks.iter().enumerate() {
            if let Some(knock) = knock {
                add(DoorToken::Knock(at), PollFd::new(knock.fd.as_fd(), PollFlags::POLLIN));
            }
        }
        for (at, (listener, _)) in self.listeners.iter().enumerate() {
            add(DoorToken::Listener(at), PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
    }

    /// Serves what a poll found; gives a caller that has proven itself.
    pub(crate) fn serve(&mut self, token: DoorToken, now: Instant) -> Result<Option<Guest>, Error> {
        match token {
            DoorToken::Listener(at) => self.open(at, now).map(|()| None),
            DoorToken::Knock(at) => Ok(self.hear(at)),
        }
    }

    fn open(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        let most = most_unproven();
        for _ in 0..AT_ONCE {
            let (listener, way) = &self.listeners[at];
            let way = *way;
            let fd = match socket::accept(listener.as_fd()) {
                Ok(fd) => fd,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) if self.evict() => continue,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EBADF | libc::EINVAL) => {
                        return Err(Error::System { what: "accept a connection", source: error });
                    }
                    // Nobody is there (any more).
                    _ => return Ok(()),
                },
            };
            if way == Way::Unix && !socket::same_user(&fd) {
                self.strangers = self.strangers.saturating_add(1);
                continue;
            }
            if self.knocks.iter().flatten().count() >= most {
                self.evict();
            }
            let keeper = Doorkeeper::new()?;
            if socket::write(fd.as_fd(), keeper.challenge(), &[]).is_ok_and(|sent| sent == keeper.challenge().len()) {
                let until = now + PATIENCE;
                self.knocks.push(Some(Knock { fd, way, keeper, hello: [0; HELLO], filled: 0, until }));
            }
        }
        Ok(())
    }

    /// Drops the oldest that has not proven itself; false if there is none.
    fn evict(&mut self) -> bool {
        let oldest = self.knocks.iter_mut().find(|knock| knock.is_some());
        oldest.is_some_and(|oldest| oldest.take().is_some())
    }

    fn hear(&mut self, at: usize) -> Option<Guest> {
        let place = self.knocks.get_mut(at)?;
        let knock = place.as_mut()?;
        match socket::read(knock.fd.as_fd(), &mut knock.hello[knock.filled..], None) {
            Ok(Flow::Some(length)) => knock.filled += length,
            Ok(Flow::Nothing) => return None,
            Ok(Flow::End) | Err(_) => {
                *place = None;
                return None;
            }
        }
        if knock.filled < HELLO {
            return None;
        }
        let knock = place.take()?;
        let Some(wish) = knock.keeper.check(&self.prover, &knock.hello) else {
            self.strangers = self.strangers.saturating_add(1);
            return None;
        };
        Some(Guest { knock, prover: self.prover.clone(), wish })
    }
}

/// So many unproven connections are held; fewer where the process may open few files, of which the ranks need most.
fn most_unproven() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(limit / 4).unwrap_or(MOST_UNPROVEN).clamp(8, MOST_UNPROVEN)
}

/// Makes sure that an inherited descriptor is a listening socket, and says of which kind.
pub(crate) fn inherited(fd: &OwnedFd) -> Result<Way, Error> {
    let listens = nix::sys::socket::getsockopt(fd, nix::sys::socket::sockopt::AcceptConn);
    if !listens.is_ok_and(|listens| listens) {
        return Err(Error::invalid("the inherited descriptor is not a socket that listens"));
    }
    let set = |fd: BorrowedFd<'_>| -> io::Result<()> {
        use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
        let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        Ok(())
    };
    set(fd.as_fd()).map_err(Error::system("set up the inherited socket"))?;
    Ok(if socket::local(fd.as_fd()).is_some() { Way::Tcp } else { Way::Unix })
}
