//! Messages between two ranks that MPI carries as they are: out of the sender's memory into the receiver's, each by a send and a receive of
//! MPI's own. That is what `p2p=mpi` asks for, and how the benchmark measures what an MPI does.
//!
//! Otherwise messages that go over MPI are copied into frames ([`crate::link`]). Here MPI has the caller's memory, as in its collectives: it
//! is given up before anybody is told that a failed world's memory is theirs again, and is not called any more.
//!
//! MPI finds a message's receive by rank and tag, in their order, which is what is wanted. A receive from anybody is given to it when there is
//! a message for it, and holds later ones of its tag back until then: a message of this rank's to itself does not go through MPI.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_train_mpi::{Done, Error as MpiError, Request};

use super::Room;
use crate::error::Error;
use crate::extent::Extent;
use crate::memory::bell::now;
use crate::message::Head;
use crate::transfers::{Kept, Receiving, Sending, fits};

/// The tag of what a rank says last. The links of collectives use the one below.
const GOODBYE: u32 = 1;

/// What the callers' tags begin with.
const FIRST_TAG: u32 = 2;

/// Bytes that one message of MPI's surely takes; what is longer goes in several.
const PIECE: usize = 1 << 30;

/// How long MPI may take to take something back, or to be done with it.
const TAKE_BACK: Duration = Duration::from_secs(1);

/// A message that MPI has, or is to have.
struct Passing<T> {
    what: T,
    /// The other rank in the group; none before it is known.
    peer: Option<u32>,
    /// Its pieces that are not done; none before it was begun.
    requests: Option<VecDeque<Request>>,
    /// Bytes that have come.
    bytes: usize,
}

impl<T> Passing<T> {
    fn new(what: T, peer: Option<u32>) -> Self {
        Self { what, peer, requests: None, bytes: 0 }
    }

    /// Whether MPI is done with it.
    fn is_done(&mut self) -> Result<bool, MpiError> {
        let Some(requests) = &mut self.requests else { return Ok(false) };
        while let Some(request) = requests.front_mut() {
            let Some(Done { bytes, .. }) = request.test()? else { return Ok(false) };
            self.bytes += bytes;
            requests.pop_front();
        }
        Ok(true)
    }
}

/// All messages of a group that are under way.
pub(crate) struct Messages {
    room: Arc<Room>,
    /// The group's ranks, by their rank in the world.
    ranks: Vec<u32>,
    sends: Vec<Passing<Sending>>,
    receives: Vec<Passing<Receiving>>,
    /// Messages to oneself.
    own: VecDeque<Kept>,
    /// Whose messages, by rank and tag, are not done; those behind them need not be looked at.
    stuck: Vec<(Option<u32>, u64)>,
    closed: bool,
}

/// Where the pieces of a message begin, and how long they are. One without content has one.
fn pieces(whole: Extent) -> impl Iterator<Item = (*mut u8, usize)> {
    let starts = (0..whole.bytes.max(1)).step_by(PIECE);
    starts.map(move |start| (whole.address.wrapping_add(start), PIECE.min(whole.bytes - start)))
}

impl Messages {
    /// None yet, in a group of these ranks of the world.
    pub(crate) fn new(room: Arc<Room>, ranks: Vec<u32>) -> Self {
        let (sends, receives, own, stuck) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        Self { room, ranks, sends, receives, own, stuck, closed: false }
    }

    fn me(&self) -> u32 {
        self.room.communicator.rank()
    }

    /// The tag that MPI is given. The greatest one is left to whoever uses ours.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that is too great for this MPI.
    pub(crate) fn tag(&self, tag: u32) -> Result<u32, Error> {
        let greatest = self.room.communicator.greatest_tag();
        match tag.checked_add(FIRST_TAG) {
            Some(mapped) if mapped < greatest => Ok(mapped),
            _ if tag == u32::MAX => Ok(greatest),
            _ => {
                let most = greatest - FIRST_TAG - 1;
                Err(Error::Invalid { message: format!("tag {tag} is more than the {most} that this MPI takes") })
            }
        }
    }

    /// How many are not done.
    pub(crate) fn left(&self) -> usize {
        self.sends.len() + self.receives.len()
    }

    /// Sends.
    pub(crate) fn send(&mut self, sending: Sending) {
        if sending.to == self.me() {
            self.own.push_back(Kept::copy_of(&sending.message));
            sending.ticket.finish(Ok(()));
        } else {
            let to = sending.to;
            self.sends.push(Passing::new(sending, Some(to)));
        }
    }

    /// Receives.
    pub(crate) fn receive(&mut self, receiving: Receiving) {
        let from = receiving.from;
        self.receives.push(Passing::new(receiving, from));
    }

    /// Does what can be done now; says whether that was anything.
    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        if self.closed || self.left() == 0 {
            return Ok(false);
        }
        let room = Arc::clone(&self.room);
        let _turn = room.engine.enter()?;
        let begun = self.begin_sends()? | self.begin_receives()?;
        Ok(begun | self.finish()?)
    }

    /// What MPI refuses is a matter of the connection to a rank.
    fn refused(&self, peer: Option<u32>, error: &MpiError) -> Error {
        match peer {
            Some(peer) => Error::Connection { rank: self.ranks[peer as usize], reason: error.to_string() },
            None => super::failed(error),
        }
    }

    #[expect(unsafe_code, reason = "MPI reads the caller's memory")]
    fn begin_sends(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for at in 0..self.sends.len() {
            let Passing { what: Sending { to, message, .. }, requests: None, .. } = &self.sends[at] else { continue };
            let (to, tag) = (*to, self.tag(message.head.call as u32)?);
            let mut requests = VecDeque::new();
            for (address, bytes) in pieces(message.what.at(0)) {
                // SAFETY: the caller's memory stays and is not written until the ticket is finished, before which this is over or MPI is
                // given up.
                let sent = unsafe { self.room.communicator.isend(address.cast_const(), bytes, to, tag) };
                requests.push_back(sent.map_err(|error| self.refused(Some(to), &error))?);
            }
            self.sends[at].requests = Some(requests);
            moved = true;
        }
        Ok(moved)
    }

    fn begin_receives(&mut self) -> Result<bool, Error> {
        let (mut moved, mut held) = (false, Vec::new());
        let mut at = 0;
        while let Some(passing) = self.receives.get(at) {
            let Receiving { from, head, .. } = passing.what;
            at += 1;
            if passing.requests.is_some() || held.contains(&head.call) {
                continue;
            }
            if from.is_none_or(|from| from == self.me())
                && let Some(kept) = self.own.iter().position(|kept| kept.head.call == head.call)
            {
                at -= 1;
                self.take_own(at, kept)?;
                moved = true;
                continue;
            }
            match from {
                Some(from) if from == self.me() => {}
                Some(from) => {
                    self.ask(at - 1, from)?;
                    moved = true;
                }
                None => {
                    let tag = self.tag(head.call as u32)?;
                    let found = self.room.communicator.iprobe(None, Some(tag));
                    match found.map_err(|error| self.refused(None, &error))? {
                        Some(arrived) => {
                            self.ask(at - 1, arrived.source)?;
                            moved = true;
                        }
                        None => held.push(head.call),
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Gives a message of this rank's to itself to a receive.
    #[expect(unsafe_code, reason = "copies into the caller's memory")]
    fn take_own(&mut self, at: usize, kept: usize) -> Result<(), Error> {
        let me = self.me();
        let Some(Kept { head, content }) = self.own.remove(kept) else { return Ok(()) };
        fits(me, &head, &self.receives[at].what)?;
        let Passing { what: receiving, .. } = self.receives.remove(at);
        // SAFETY: the caller's memory has room for what was asked for, which is as long, and is nobody else's until the ticket is finished.
        unsafe { receiving.into.address.copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        receiving.ticket.came_from(me);
        receiving.ticket.finish(Ok(()));
        Ok(())
    }

    /// Gives a receive to MPI.
    #[expect(unsafe_code, reason = "MPI writes to the caller's memory")]
    fn ask(&mut self, at: usize, from: u32) -> Result<(), Error> {
        let Receiving { head, into, .. } = self.receives[at].what;
        let tag = self.tag(head.call as u32)?;
        let mut requests = VecDeque::new();
        for (address, bytes) in pieces(into) {
            // SAFETY: the caller's memory is as long, and nobody else's until the ticket is finished, before which this is over, was taken
            // back, or MPI is given up.
            let asked = unsafe { self.room.communicator.irecv(address, bytes, Some(from), Some(tag)) };
            requests.push_back(asked.map_err(|error| self.refused(Some(from), &error))?);
        }
        let passing = &mut self.receives[at];
        (passing.peer, passing.requests) = (Some(from), Some(requests));
        Ok(())
    }

    /// Finishes what MPI is done with.
    fn finish(&mut self) -> Result<bool, Error> {
        let (mut moved, mut failure) = (false, None);
        let Self { sends, receives, stuck, .. } = self;
        stuck.clear();
        sends.retain_mut(|passing| {
            let key = (passing.peer, passing.what.message.head.call);
            if failure.is_some() || stuck.contains(&key) {
                return true;
            }
            match passing.is_done() {
                Ok(true) => {
                    passing.what.ticket.finish(Ok(()));
                    moved = true;
                    return false;
                }
                Ok(false) => stuck.push(key),
                Err(error) => failure = Some((passing.peer, error)),
            }
            true
        });
        if let Some((peer, error)) = failure {
            return Err(self.refused(peer, &error));
        }
        stuck.clear();
        let mut failure = None;
        receives.retain_mut(|passing| {
            let key = (passing.peer, passing.what.head.call);
            if failure.is_some() || stuck.contains(&key) {
                return true;
            }
            match (passing.is_done(), passing.peer) {
                (Ok(true), Some(from)) => {
                    let got = Head { bytes: passing.bytes as u64, ..passing.what.head };
                    if let Err(error) = fits(from, &got, &passing.what) {
                        failure = Some(error);
                        return true;
                    }
                    passing.what.ticket.came_from(from);
                    passing.what.ticket.finish(Ok(()));
                    moved = true;
                    return false;
                }
                (Ok(_), _) => stuck.push(key),
                (Err(error), peer) => failure = Some(unreceived(&passing.what, peer, &self.ranks, &error)),
            }
            true
        });
        failure.map_or(Ok(moved), Err)
    }

    /// An error if something waits for a rank that has closed this group.
    pub(crate) fn look_for_closed(&mut self) -> Result<(), Error> {
        let mut peers: Vec<u32> = self.waits().filter(|peer| *peer != self.me()).collect();
        peers.sort_unstable();
        peers.dedup();
        for peer in peers {
            let turn = self.room.engine.enter()?;
            let word = self.room.communicator.iprobe(Some(peer), Some(GOODBYE));
            drop(turn);
            let is_closed = word.map_err(|error| self.refused(Some(peer), &error))?.is_some();
            if !is_closed {
                continue;
            }
            // What it had sent before that is here.
            self.poll()?;
            if self.waits().any(|waits| waits == peer) {
                let rank = self.ranks[peer as usize];
                return Err(Error::Connection { rank, reason: "it was closed by the other side".to_owned() });
            }
        }
        Ok(())
    }

    /// The ranks that something is under way with.
    fn waits(&self) -> impl Iterator<Item = u32> {
        self.sends
            .iter()
            .filter_map(|passing| passing.peer)
            .chain(self.receives.iter().filter_map(|passing| passing.peer))
    }

    /// As [`crate::transfers::Transfers::overdue`].
    pub(crate) fn overdue(&self, now: Instant) -> Option<(Option<u32>, String, Duration)> {
        let is_late = |began: Instant, allowed: Duration| now.saturating_duration_since(began) >= allowed;
        let sends = self.sends.iter().map(|Passing { what, .. }| {
            (is_late(what.began, what.allowed), Some(what.to), "send", what.message.head.call, what.allowed)
        });
        let receives = self.receives.iter().map(|Passing { what, .. }| {
            (is_late(what.began, what.allowed), what.from, "receive", what.head.call, what.allowed)
        });
        let (_, rank, what, tag, allowed) = sends.chain(receives).find(|(late, ..)| *late)?;
        Some((rank, format!("a {what} with tag {tag}"), allowed))
    }

    /// Ends everything with an error.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.let_go();
        for passing in self.sends.drain(..) {
            passing.what.ticket.finish(Err(error.clone()));
        }
        for passing in self.receives.drain(..) {
            passing.what.ticket.finish(Err(error.clone()));
        }
    }

    /// Sees to it that MPI does not touch the callers' memory any more.
    fn let_go(&mut self) {
        let sends = self.sends.iter_mut().filter_map(|passing| passing.requests.take());
        let mut sends: Vec<Request> = sends.flatten().collect();
        let receives = self.receives.iter_mut().filter_map(|passing| passing.requests.take());
        let mut receives: Vec<Request> = receives.flatten().collect();
        if sends.is_empty() && receives.is_empty() {
            return;
        }
        let deadline = now() + TAKE_BACK;
        if let Ok(turn) = self.room.engine.enter() {
            receives.retain_mut(|request| {
                let left = deadline.saturating_duration_since(now());
                request.cancel().is_err() || request.wait(Some(left)).is_err()
            });
            sends.retain_mut(|request| request.wait(Some(deadline.saturating_duration_since(now()))).is_err());
            drop(turn);
            if !sends.is_empty() || !receives.is_empty() {
                self.room.engine.give_up();
            }
        }
        // MPI has them, and is not called any more.
        std::mem::forget((sends, receives));
    }

    /// Tells the other ranks that nothing comes any more from this one, and lets go of everything.
    pub(crate) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.let_go();
        let Ok(_turn) = self.room.engine.enter() else { return };
        for peer in (0..self.ranks.len() as u32).filter(|peer| *peer != self.me()) {
            #[expect(unsafe_code, reason = "MPI is given an address")]
            // SAFETY: there is nothing to read. An error has nobody to hear it.
            let _ = unsafe { self.room.communicator.isend(std::ptr::null(), 0, peer, GOODBYE) };
        }
    }
}

/// Why a receive has failed: a message that is too long is one that another rank should not have sent.
fn unreceived(receiving: &Receiving, from: Option<u32>, ranks: &[u32], error: &MpiError) -> Error {
    match (error, from) {
        (MpiError::Truncated { .. }, Some(from)) => Error::Mismatch {
            message: format!(
                "rank {from} of the group sends more than the {} bytes with tag {} that are received",
                receiving.into.bytes, receiving.head.call
            ),
        },
        (_, Some(from)) => Error::Connection { rank: ranks[from as usize], reason: error.to_string() },
        (_, None) => super::failed(error),
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_only_where_mpi_cannot_count_it() {
        let of = |bytes| -> Vec<(usize, usize)> {
            let whole = Extent { address: 4096 as *mut u8, bytes };
            pieces(whole).map(|(address, bytes)| (address as usize - 4096, bytes)).collect()
        };
        assert_eq!(of(0), [(0, 0)]);
        assert_eq!(of(PIECE), [(0, PIECE)]);
        assert_eq!(of(2 * PIECE + 5), [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 5)]);
    }
}
