//! Where ranks meet: everything that can happen to one rank's sockets during a meeting, one round at a time.

use std::os::fd::AsFd as _;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};

use crate::call::Dial;
use crate::channel::{CHUNK, Channel, Hearing};
use crate::door::{Door, DoorToken, Guest};
use crate::error::Error;
use crate::notice::Posted;
use crate::proof::{Prover, Purpose, Verdict};
use crate::room::Room;
use crate::seal::{Kind, Message};
use crate::socket;

/// What a round brought that somebody must decide on.
pub(crate) enum Event {
    /// A rank comes to rank 0.
    Guest(Guest),
    /// A message on a connection with (or from) rank 0.
    Said(u32, Message),
    /// Such a connection is gone.
    Gone(u32),
    /// Such a connection carried foreign bytes.
    Corrupt(u32),
}

#[derive(Clone, Copy)]
enum Token {
    Door(DoorToken),
    Dial(usize),
    Link(usize),
    Talk(usize),
}

/// One rank's sockets during a meeting.
pub(crate) struct Floor {
    prover: Prover,
    rank: u32,
    size: u32,
    pub(crate) door: Door,
    dials: Vec<Option<Dial>>,
    /// The control connections, by rank; those of higher ranks count once they have said that they use it.
    links: Vec<Option<Channel>>,
    up: Vec<bool>,
    /// Ranks of this node that could not be reached inside it.
    pub(crate) unix_failed: Vec<u32>,
    /// The connections with rank 0: all ranks' at rank 0, the one to rank 0 at the others.
    pub(crate) talks: Vec<Option<Channel>>,
    /// Directories with sockets of the meeting.
    pub(crate) rooms: Vec<Room>,
    /// The meeting file, at rank 0.
    pub(crate) posted: Option<Posted>,
    chunk: Vec<u8>,
}

impl Floor {
    pub(crate) fn new(prover: Prover, rank: u32, size: u32) -> Self {
        let none = || (0..size).map(|_| None).collect();
        Self {
            door: Door::new(prover.clone()),
            prover,
            rank,
            size,
            dials: Vec::new(),
            links: none(),
            up: vec![false; size as usize],
            unix_failed: Vec::new(),
            talks: none(),
            rooms: Vec::new(),
            posted: None,
            chunk: vec![0; CHUNK],
        }
    }

    pub(crate) fn dial(&mut self, dial: Dial) {
        self.dials.push(Some(dial));
    }

    /// Ranks to which there is no connection yet.
    pub(crate) fn missing(&self) -> Vec<u32> {
        (0..self.size).filter(|&other| other != self.rank && !self.up[other as usize]).collect()
    }

    /// Clears away all that served the meeting: listeners, sockets, directories, the meeting file.
    pub(crate) fn shut(&mut self) {
        self.door.close();
        self.rooms.clear();
        self.posted = None;
    }

    /// The control connections, when the meeting is over.
    pub(crate) fn into_links(self) -> Vec<Option<Channel>> {
        self.links
    }

    /// Tells all that rank 0 talks with, and waits for a moment until it has left.
    pub(crate) fn tell_all(&mut self, kind: Kind, bytes: &[u8], until: Instant) {
        for talk in self.talks.iter_mut().flatten() {
            talk.say(kind, bytes);
        }
        while Instant::now() < until {
            let waiting = self.talks.iter().flatten().filter(|talk| talk.wants_to_write());
            let mut fds: Vec<PollFd> = waiting.map(|talk| PollFd::new(talk.fd.as_fd(), PollFlags::POLLOUT)).collect();
            if fds.is_empty() || socket::wait(&mut fds, Some(until)).is_err() {
                return;
            }
            drop(fds);
            self.talks.iter_mut().flatten().for_each(Channel::flush);
        }
    }

    /// Waits until something happens, or until `until`, and does what needs no decision.
    pub(crate) fn round(&mut self, until: Instant) -> Result<Vec<Event>, Error> {
        let now = Instant::now();
        self.door.tidy(now);
        self.dials.retain(Option::is_some);
        self.dials.iter_mut().flatten().for_each(|dial| dial.tend(now));

        let dials = self.dials.iter().flatten().filter_map(Dial::deadline);
        let until = dials.chain(self.door.deadline()).fold(until, Instant::min);
        let ready = self.poll(until)?;

        let now = Instant::now();
        let mut events = Vec::new();
        for token in ready {
            match token {
                Token::Door(token) => {
                    if let Some(guest) = self.door.serve(token, now)? {
                        events.extend(self.receive(guest));
                    }
                }
                Token::Dial(at) => self.call(at, now),
                Token::Link(at) => self.hear_link(at),
                Token::Talk(at) => self.hear_talk(at, &mut events),
            }
        }
        let late = |dial: &Option<Dial>| dial.as_ref().and_then(Dial::deadline).is_some_and(|deadline| deadline <= now);
        let late: Vec<usize> = (0..self.dials.len()).filter(|&at| late(&self.dials[at])).collect();
        for at in late {
            self.call(at, now);
        }
        Ok(events)
    }

    fn poll(&self, until: Instant) -> Result<Vec<Token>, Error> {
        let (mut tokens, mut fds) = (Vec::new(), Vec::new());
        let mut add = |token, fd| {
            tokens.push(token);
            fds.push(fd);
        };
        self.door.watch(|token, fd| add(Token::Door(token), fd));
        for (at, dial) in self.dials.iter().enumerate() {
            if let Some(fd) = dial.as_ref().and_then(Dial::watch) {
                add(Token::Dial(at), fd);
            }
        }
        for (at, link) in self.links.iter().enumerate() {
            if let (Some(link), false) = (link, self.up[at]) {
                add(Token::Link(at), PollFd::new(link.fd.as_fd(), PollFlags::POLLIN));
            }
        }
        for (at, talk) in self.talks.iter().enumerate() {
            if let Some(talk) = talk {
                let write = if talk.wants_to_write() { PollFlags::POLLOUT } else { PollFlags::empty() };
                add(Token::Talk(at), PollFd::new(talk.fd.as_fd(), PollFlags::POLLIN | write));
            }
        }
        socket::wait(&mut fds, Some(until)).map_err(Error::system("wait for the other ranks"))?;
        let ready = tokens.into_iter().zip(&fds).filter(|(_, fd)| !socket::found(fd).is_empty());
        Ok(ready.map(|(token, _)| token).collect())
    }

    /// Lets in a higher rank that comes for its control connection; leaves others to be decided on.
    fn receive(&mut self, guest: Guest) -> Option<Event> {
        let wish = guest.wish;
        let at = wish.from as usize;
        match wish.purpose {
            Purpose::Meet => return Some(Event::Guest(guest)),
            Purpose::Data | Purpose::Clear => guest.refuse(Verdict::Unwanted),
            Purpose::Link if wish.to != self.rank || wish.from <= self.rank || wish.from >= self.size => {
                guest.refuse(Verdict::Unwanted);
            }
            Purpose::Link if self.up[at] => guest.refuse(Verdict::Taken),
            // One that came before and was not used was given up by its caller.
            Purpose::Link => self.links[at] = guest.welcome(),
        }
        None
    }

    fn call(&mut self, at: usize, now: Instant) {
        let Some(dial) = &mut self.dials[at] else { return };
        let Some(mut channel) = dial.step(&self.prover, now) else { return };
        channel.say(Kind::Ready, &[]);
        let to = dial.wish.to;
        if dial.unix_failed {
            self.unix_failed.push(to);
        }
        self.links[to as usize] = Some(channel);
        self.up[to as usize] = true;
        self.dials[at] = None;
    }

    fn hear_link(&mut self, at: usize) {
        let Some(link) = &mut self.links[at] else { return };
        let heard = link.ear.listen(link.fd.as_fd(), &mut self.chunk);
        match (link.ear.heard.pop_front(), heard) {
            // What comes after it belongs to the mesh's users.
            (Some(Message { kind: Kind::Ready, .. }), _) => self.up[at] = true,
            (None, Ok((Hearing::Open, _))) => {}
            (Some(_), _) | (None, Ok((Hearing::Gone, _)) | Err(_)) => self.links[at] = None,
        }
    }

    fn hear_talk(&mut self, at: usize, events: &mut Vec<Event>) {
        let Some(talk) = &mut self.talks[at] else { return };
        talk.flush();
        let heard = talk.ear.listen(talk.fd.as_fd(), &mut self.chunk);
        let rank = at as u32;
        events.extend(talk.ear.heard.drain(..).map(|message| Event::Said(rank, message)));
        match heard {
            Ok((Hearing::Open, _)) => {}
            Ok((Hearing::Gone, _)) => {
                self.talks[at] = None;
                events.push(Event::Gone(rank));
            }
            Err(_) => {
                self.talks[at] = None;
                events.push(Event::Corrupt(rank));
            }
        }
    }
}
