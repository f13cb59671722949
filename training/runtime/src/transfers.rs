//! Point to point: tagged messages between two ranks of a group, in a lane of their own, so that they and the collectives never wait for
//! each other.
//!
//! Messages between two ranks that carry the same tag arrive in order. A receive takes the oldest message with its tag; a message that nobody
//! has asked for yet stays where it is until somebody waits for one behind it, and only then is kept aside.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Part;
use crate::error::Error;
use crate::extent::{Extent, Extents};
use crate::link::Outgoing;
use crate::message::Head;
use crate::task::{Links, link};
use crate::work::Ticket;

/// A message that is sent.
pub(crate) struct Sending {
    /// To which rank of the group.
    pub(crate) to: u32,
    /// What.
    pub(crate) message: Outgoing,
    /// Since when.
    pub(crate) began: Instant,
    /// How long it may take.
    pub(crate) allowed: Duration,
    /// Who is told.
    pub(crate) ticket: Arc<Ticket>,
}

/// A message that is waited for.
pub(crate) struct Receiving {
    /// From which rank of the group; from any, if none.
    pub(crate) from: Option<u32>,
    /// What it says of itself: tag and type.
    pub(crate) head: Head,
    /// Where it goes.
    pub(crate) into: Extent,
    /// Since when.
    pub(crate) began: Instant,
    /// How long it may take.
    pub(crate) allowed: Duration,
    /// Who is told.
    pub(crate) ticket: Arc<Ticket>,
}

/// A message that came before anybody asked for it.
pub(crate) struct Kept {
    pub(crate) head: Head,
    pub(crate) content: Vec<u8>,
}

impl Kept {
    /// A copy of a message that is sent.
    #[expect(unsafe_code, reason = "copies the caller's memory")]
    pub(crate) fn copy_of(message: &Outgoing) -> Self {
        let run = message.what.at(0);
        let content = match run.bytes {
            0 => Vec::new(),
            // SAFETY: the caller's memory stays until the ticket is finished.
            bytes => unsafe { std::slice::from_raw_parts(run.address, bytes) }.to_vec(),
        };
        Self { head: message.head, content }
    }
}

/// What is coming in from one rank.
#[derive(Default)]
struct Incoming {
    kept: VecDeque<Kept>,
    current: Option<Current>,
}

impl Incoming {
    fn is_for_somebody(&self) -> bool {
        matches!(&self.current, Some(Current { into: Into::Place(_), .. }))
    }
}

/// The message that is being taken in.
struct Current {
    head: Head,
    got: usize,
    into: Into,
}

enum Into {
    /// Where somebody waits for it.
    Place(Receiving),
    /// Aside.
    Aside(Vec<u8>),
}

/// All transfers of a group.
pub(crate) struct Transfers {
    sends: Vec<Sending>,
    receives: VecDeque<Receiving>,
    incoming: Vec<Incoming>,
    /// Messages to oneself.
    own: VecDeque<Kept>,
    me: u32,
}

impl Transfers {
    /// None yet, in a group of `size`.
    pub(crate) fn new(me: u32, size: u32) -> Self {
        let incoming = (0..size).map(|_| Incoming::default()).collect();
        Self { sends: Vec::new(), receives: VecDeque::new(), incoming, own: VecDeque::new(), me }
    }

    /// How many are not done.
    pub(crate) fn left(&self) -> usize {
        let coming = self.incoming.iter().filter(|incoming| incoming.is_for_somebody()).count();
        self.sends.len() + self.receives.len() + coming
    }

    /// Sends.
    pub(crate) fn send(&mut self, sending: Sending) {
        if sending.to != self.me {
            self.sends.push(sending);
            return;
        }
        self.own.push_back(Kept::copy_of(&sending.message));
        sending.ticket.finish(Ok(()));
    }

    /// Receives.
    pub(crate) fn receive(&mut self, receiving: Receiving) {
        self.receives.push_back(receiving);
    }

    /// Does what can be done now; says whether that was anything.
    pub(crate) fn poll(&mut self, links: &mut Links) -> Result<bool, Error> {
        let mut moved = self.push(links)?;
        moved |= self.take_kept()?;
        for rank in 0..self.incoming.len() as u32 {
            if rank != self.me {
                while self.pull(rank, links)? {
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    fn push(&mut self, links: &mut Links) -> Result<bool, Error> {
        let (mut moved, mut stuck, mut error) = (false, Vec::new(), None);
        self.sends.retain_mut(|sending| {
            if error.is_some() || stuck.contains(&sending.to) {
                return true;
            }
            let before = sending.message.sent;
            match link(links, sending.to).push(&mut sending.message) {
                Ok(true) => {
                    sending.ticket.finish(Ok(()));
                    moved = true;
                    return false;
                }
                Ok(false) => moved |= sending.message.sent > before,
                Err(failed) => error = Some(failed),
            }
            stuck.push(sending.to);
            true
        });
        error.map_or(Ok(moved), Err)
    }

    /// Gives what was kept to those who ask for it by now.
    #[expect(unsafe_code, reason = "copies into the caller's memory")]
    fn take_kept(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        let mut at = 0;
        while let Some(receiving) = self.receives.get(at) {
            let wanted = receiving.head.call;
            let ranks = match receiving.from {
                Some(rank) => rank..rank + 1,
                None => 0..self.incoming.len() as u32,
            };
            let found = ranks.clone().find_map(|rank| {
                let kept = if rank == self.me { &mut self.own } else { &mut self.incoming[rank as usize].kept };
                let position = kept.iter().position(|kept| kept.head.call == wanted)?;
                kept.remove(position).map(|kept| (rank, kept))
            });
            let Some((rank, kept)) = found else {
                at += 1;
                continue;
            };
            if let Some(receiving) = self.receives.remove(at) {
                if let Err(error) = fits(rank, &kept.head, &receiving) {
                    receiving.ticket.finish(Err(error.clone()));
                    return Err(error);
                }
                // SAFETY: the caller's memory has room for what was asked for, which is as long, and is nobody else's until the ticket is
                // finished.
                unsafe { receiving.into.address.copy_from_nonoverlapping(kept.content.as_ptr(), kept.content.len()) };
                receiving.ticket.came_from(rank);
                receiving.ticket.finish(Ok(()));
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Takes in from one rank; says whether anything came.
    fn pull(&mut self, rank: u32, links: &mut Links) -> Result<bool, Error> {
        let link = link(links, rank);
        let incoming = &mut self.incoming[rank as usize];
        if incoming.current.is_none() {
            let wants = |receiving: &Receiving| receiving.from.is_none_or(|from| from == rank);
            if !self.receives.iter().any(wants) {
                return Ok(false);
            }
            let Some(head) = link.next()? else { return Ok(false) };
            let position =
                self.receives.iter().position(|receiving| wants(receiving) && receiving.head.call == head.call);
            let into = match position.and_then(|position| self.receives.remove(position)) {
                Some(receiving) => {
                    if let Err(error) = fits(rank, &head, &receiving) {
                        receiving.ticket.finish(Err(error.clone()));
                        return Err(error);
                    }
                    Into::Place(receiving)
                }
                None => Into::Aside(vec![0; usize::try_from(head.bytes).unwrap_or(usize::MAX)]),
            };
            incoming.current = Some(Current { head, got: 0, into });
        }
        let Some(current) = &mut incoming.current else { return Ok(false) };
        let (address, total) = match &mut current.into {
            Into::Place(receiving) => (receiving.into.address, receiving.into.bytes),
            Into::Aside(content) => (content.as_mut_ptr(), content.len()),
        };
        let bytes = link.store(address.wrapping_add(current.got), total - current.got)?;
        current.got += bytes;
        if current.got < total {
            return Ok(bytes > 0);
        }
        if let Some(Current { head, into, .. }) = incoming.current.take() {
            match into {
                Into::Place(receiving) => {
                    receiving.ticket.came_from(rank);
                    receiving.ticket.finish(Ok(()));
                }
                Into::Aside(content) => {
                    incoming.kept.push_back(Kept { head, content });
                    self.take_kept()?;
                }
            }
        }
        Ok(true)
    }

    /// The ranks that must do something before all can be done.
    pub(crate) fn waits_for(&self, links: &mut Links) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.sends.iter().map(|sending| sending.to).collect();
        for receiving in &self.receives {
            if let Some(from) = receiving.from.filter(|from| *from != self.me)
                && !matches!(link(links, from).next(), Ok(Some(_)))
            {
                ranks.push(from);
            }
        }
        let coming = self.incoming.iter().enumerate().filter(|(_, incoming)| incoming.is_for_somebody());
        ranks.extend(coming.map(|(rank, _)| rank as u32));
        ranks
    }

    /// The transfers that have taken too long: with whom, in words.
    pub(crate) fn overdue(&self, now: Instant) -> Option<(Option<u32>, String, Duration)> {
        let is_late = |began: Instant, allowed: Duration| now.saturating_duration_since(began) >= allowed;
        if let Some(sending) = self.sends.iter().find(|sending| is_late(sending.began, sending.allowed)) {
            return Some((Some(sending.to), format!("a send with tag {}", sending.message.head.call), sending.allowed));
        }
        let coming = self.incoming.iter().filter_map(|incoming| match &incoming.current {
            Some(Current { into: Into::Place(receiving), .. }) => Some(receiving),
            _ => None,
        });
        let late = |receiving: &&Receiving| is_late(receiving.began, receiving.allowed);
        let receiving = self.receives.iter().chain(coming).find(late)?;
        Some((receiving.from, format!("a receive with tag {}", receiving.head.call), receiving.allowed))
    }

    /// Ends everything with an error.
    pub(crate) fn fail(&mut self, error: &Error) {
        for sending in self.sends.drain(..) {
            sending.ticket.finish(Err(error.clone()));
        }
        for receiving in self.receives.drain(..) {
            receiving.ticket.finish(Err(error.clone()));
        }
        for incoming in &mut self.incoming {
            if let Some(Current { into: Into::Place(receiving), .. }) = incoming.current.take() {
                receiving.ticket.finish(Err(error.clone()));
            }
        }
    }
}

/// What a message with a tag says of itself.
pub(crate) fn head(tag: u32, dtype: eirene_train_reduce::DType) -> Head {
    Head { call: u64::from(tag), kind: [0, dtype as u8, 0, 0], ..Head::default() }
}

/// A part as what is sent.
pub(crate) fn content(part: Part, dtype: eirene_train_reduce::DType) -> Extents {
    let mut what = Extents::empty();
    what.push(part.extent(dtype));
    what
}

/// An error if a message is not as long as what is received.
pub(crate) fn fits(rank: u32, head: &Head, receiving: &Receiving) -> Result<(), Error> {
    if head.bytes == receiving.into.bytes as u64 {
        return Ok(());
    }
    Err(Error::Mismatch {
        message: format!(
            "rank {rank} of the group sends {} bytes with tag {} where {} are received",
            head.bytes, head.call, receiving.into.bytes
        ),
    })
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use eirene_train_reduce::DType;

    use super::*;
    use crate::link::{BellAt, Link, Memory};
    use crate::memory::lane::Shape;
    use crate::memory::segment::{LINE, Segment};

    /// Both ends of a link through shared memory.
    fn pair(shape: Shape) -> [Link; 2] {
        let ring = shape.ring();
        let segment = Arc::new(Segment::new(c"test", LINE + 2 * ring).unwrap());
        let end = |out, into| {
            let bell = BellAt::new(Arc::clone(&segment), 0);
            Link::Memory(Memory::new(Arc::clone(&segment), LINE + out * ring, LINE + into * ring, shape, bell))
        };
        [end(0, 1), end(1, 0)]
    }

    fn receiving(tag: u32, memory: &mut [u8]) -> (Receiving, Arc<Ticket>) {
        let into = Extent { address: memory.as_mut_ptr(), bytes: memory.len() };
        let (began, allowed, ticket) = (Instant::now(), Duration::MAX, Ticket::new());
        let (from, head) = (Some(1), head(tag, DType::U8));
        (Receiving { from, head, into, began, allowed, ticket: Arc::clone(&ticket) }, ticket)
    }

    #[test]
    fn who_asks_for_another_length_while_the_message_is_put_aside_is_told() {
        let [near, mut far] = pair(Shape { slot: 256 });
        let mut links = [None, Some(near)];
        let mut transfers = Transfers::new(0, 2);
        let mut long = vec![0; 10_000];
        let part = Part { address: long.as_mut_ptr() as usize, elements: long.len() };
        let mut message = Outgoing::new(head(1, DType::U8), content(part, DType::U8));
        assert!(!far.push(&mut message).unwrap(), "it does not fit the ring");
        let (mut other, mut shorter) = ([0; 3], [0; 9_999]);
        let (awaited, _) = receiving(2, &mut other);
        transfers.receive(awaited);
        assert!(transfers.poll(&mut links).unwrap());
        let (late, ticket) = receiving(1, &mut shorter);
        transfers.receive(late);
        let error = loop {
            let is_sent = far.push(&mut message).unwrap();
            match transfers.poll(&mut links) {
                Ok(_) => assert!(!is_sent, "it was not noticed"),
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, Error::Mismatch { message } if message.contains("10000") && message.contains("9999")));
        assert!(ticket.is_done());
    }
}
