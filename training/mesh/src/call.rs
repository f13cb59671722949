//! The calling side: one attempt at a proven connection, and the perseverance that reaches a rank by whichever of its
//! addresses works.

use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use crate::channel::Channel;
use crate::error::Error;
use crate::proof::{ANSWER, CHALLENGE, Caller, Prover, Verdict, Wish};
use crate::room::Room;
use crate::socket::{self, Flow, Way};

/// How long a machine has to answer at one of its addresses.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the other end has for its part of the proof.
const PROVE: Duration = Duration::from_secs(4);
/// How long to wait before all addresses are tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// Where somebody listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A socket in a private directory.
    Unix { directory: Vec<u8>, name: String },
    /// On the network.
    Tcp(SocketAddr),
}

enum Stage {
    Connecting,
    Challenge,
    Answer(Caller),
}

/// One attempt.
pub(crate) struct Call {
    fd: OwnedFd,
    way: Way,
    wish: Wish,
    stage: Stage,
    buffer: [u8; ANSWER],
    filled: usize,
    until: Instant,
}

/// What became of an attempt.
pub(crate) enum Outcome {
    /// It goes on.
    Pending,
    /// A proven connection.
    Connected(Box<Channel>),
    /// The other end is proven and does not want us.
    Denied(Verdict),
    /// The other end hung up after it had seen our proof.
    Refused,
    /// Nobody there, or nobody who speaks as we do.
    Nobody,
}

impl Call {
    pub(crate) fn start(endpoint: &Endpoint, wish: Wish, now: Instant) -> io::Result<Self> {
        let (fd, way) = match endpoint {
            Endpoint::Unix { directory, name } => {
                let room = Room::open(Path::new(OsStr::from_bytes(directory))).map_err(|error| match error {
                    Error::System { source, .. } => source,
                    other => io::Error::new(io::ErrorKind::PermissionDenied, other.to_string()),
                })?;
                (room.call(name)?, Way::Unix)
            }
            Endpoint::Tcp(address) => (socket::call_tcp(*address)?, Way::Tcp),
        };
        let (stage, until) = match way {
            Way::Unix => (Stage::Challenge, now + PROVE),
            Way::Tcp => (Stage::Connecting, now + CONNECT),
        };
        Ok(Self { fd, way, wish, stage, buffer: [0; ANSWER], filled: 0, until })
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    pub(crate) fn watch(&self) -> PollFd<'_> {
        let flags = if matches!(self.stage, Stage::Connecting) { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        PollFd::new(self.fd.as_fd(), flags)
    }

    /// Goes on as far as it can.
    pub(crate) fn step(self, prover: &Prover, now: Instant) -> (Option<Self>, Outcome) {
        let mut call = self;
        match call.advance(prover, now) {
            Ok(None) => (Some(call), Outcome::Pending),
            Ok(Some((Verdict::Welcome, keys))) => match Channel::new(call.fd, call.way, &keys) {
                Ok(channel) => (None, Outcome::Connected(Box::new(channel))),
                Err(_) => (None, Outcome::Nobody),
            },
            Ok(Some((denied, _))) => (None, Outcome::Denied(denied)),
            Err(()) if matches!(call.stage, Stage::Answer(_)) => (None, Outcome::Refused),
            Err(()) => (None, Outcome::Nobody),
        }
    }

    fn advance(&mut self, prover: &Prover, now: Instant) -> Result<Option<(Verdict, crate::proof::Keys)>, ()> {
        loop {
            let wanted = match &self.stage {
                Stage::Connecting => {
                    socket::outcome(&self.fd).map_err(|_| ())?;
                    if socket::remote(self.fd.as_fd()).is_none() {
                        return if now < self.until { Ok(None) } else { Err(()) };
                    }
                    self.stage = Stage::Challenge;
                    self.until = now + PROVE;
                    CHALLENGE
                }
                Stage::Challenge => CHALLENGE,
                Stage::Answer(_) => ANSWER,
            };
            match socket::read(self.fd.as_fd(), &mut self.buffer[self.filled..wanted], None).map_err(|_| ())? {
                Flow::Some(length) => self.filled += length,
                Flow::Nothing if now < self.until => return Ok(None),
                Flow::Nothing | Flow::End => return Err(()),
            }
            if self.filled < wanted {
                continue;
            }
            self.filled = 0;
            match &self.stage {
                Stage::Answer(caller) => return caller.check(prover, &self.buffer).map(Some).ok_or(()),
                Stage::Connecting | Stage::Challenge => {
                    let mut challenge = [0; CHALLENGE];
                    challenge.copy_from_slice(&self.buffer[..CHALLENGE]);
                    let caller = Caller::new(prover, self.wish, challenge).map_err(|_| ())?;
                    let sent = socket::write(self.fd.as_fd(), caller.hello(), &[]).map_err(|_| ())?;
                    if sent < caller.hello().len() {
                        return Err(());
                    }
                    self.stage = Stage::Answer(caller);
                }
            }
        }
    }
}

/// Reaches a rank: tries its addresses in turn, again and again, one at a time.
pub(crate) struct Dial {
    pub(crate) wish: Wish,
    endpoints: Vec<Endpoint>,
    at: usize,
    call: Option<Call>,
    again: Instant,
    /// True if the rank should have been reached inside the node and was not.
    pub(crate) unix_failed: bool,
}

impl Dial {
    pub(crate) fn new(wish: Wish, endpoints: Vec<Endpoint>, now: Instant) -> Self {
        Self { wish, endpoints, at: 0, call: None, again: now, unix_failed: false }
    }

    /// Starts an attempt if it is time for one.
    pub(crate) fn tend(&mut self, now: Instant) {
        while self.call.is_none() && self.again <= now && !self.endpoints.is_empty() {
            match Call::start(&self.endpoints[self.at], self.wish, now) {
                Ok(call) => self.call = Some(call),
                // A listener inside the node that is only busy.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.again = now + Duration::from_millis(2),
                Err(_) => self.next(now),
            }
        }
    }

    /// On to the next address. One inside the node either works or does not: it is given up for the network's.
    fn next(&mut self, now: Instant) {
        self.call = None;
        if matches!(self.endpoints[self.at], Endpoint::Unix { .. }) && self.endpoints.len() > 1 {
            self.unix_failed = true;
            self.endpoints.remove(self.at);
        } else {
            self.at += 1;
        }
        if self.at >= self.endpoints.len() {
            self.at = 0;
            self.again = now + AGAIN;
        }
    }

    /// When something is to be done even if nothing comes; never, if there is nothing to try.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let next = self.call.as_ref().map_or(self.again, Call::until);
        (!self.endpoints.is_empty()).then_some(next)
    }

    pub(crate) fn watch(&self) -> Option<PollFd<'_>> {
        self.call.as_ref().map(Call::watch)
    }

    /// Goes on with the attempt, and gives the connection once there is one. Whoever does not want us is not the rank we
    /// look for: the next address may lead to it.
    pub(crate) fn step(&mut self, prover: &Prover, now: Instant) -> Option<Channel> {
        let (call, outcome) = self.call.take()?.step(prover, now);
        self.call = call;
        match outcome {
            Outcome::Connected(channel) => return Some(*channel),
            Outcome::Denied(_) | Outcome::Refused | Outcome::Nobody => self.next(now),
            Outcome::Pending => {}
        }
        None
    }
}
