//! How ranks of a node come to reach into each other's arenas: whoever begins to reduce what lies in a chunk of its memory tells those who take
//! part, once; they take that in when all have come.

use std::time::{Duration, Instant};

use super::{EXPLANATION, Inner, TOPIC_ARENA};
use crate::arena::Announced;
use crate::error::Error;
use crate::extent::Extent;
use crate::memory::bell::now;
use crate::memory::meeting::Place;
use crate::memory::segment::Segment;

impl Inner {
    /// Where a buffer of ours lies in memory that some ranks of this node can reach; they have been told of it then.
    ///
    /// # Errors
    /// [`Error::Timeout`] when a rank reads nothing for so long, [`Error::Interrupted`] when the caller is to give up.
    pub(crate) fn place(&self, buffer: Extent, ranks: &[u32], allowed: Duration) -> Result<Place, Error> {
        let place = self.arena.place(buffer);
        if place.region > 0 {
            let others: Vec<u32> = ranks.iter().copied().filter(|rank| *rank != self.mesh.rank()).collect();
            let deadline = now() + allowed;
            self.arena.tell(&others, place.region, |rank, says, descriptors| {
                self.announce(rank, says, descriptors, deadline, allowed)
            })?;
        }
        Ok(place)
    }

    fn announce(
        &self,
        rank: u32,
        says: &[u8],
        descriptors: &[std::os::fd::BorrowedFd<'_>],
        deadline: Instant,
        allowed: Duration,
    ) -> Result<(), Error> {
        let what = || format!("telling rank {rank} of memory to share");
        let mut asking = self.asking();
        let mut refused = None;
        let give_up = || {
            // It may be waiting for us to take in what it says.
            let heard =
                self.local.iter().filter(|other| **other != self.mesh.rank()).try_for_each(|other| self.hear(*other));
            refused = if let Err(error) = heard {
                Some(error)
            } else if asking.says_stop() {
                Some(Error::Interrupted { what: what() })
            } else if now() >= deadline {
                Some(Error::Timeout { waited: allowed, what: what(), missing: vec![rank] })
            } else {
                None
            };
            refused.is_some()
        };
        let sent = self.mesh.send_unless(rank, TOPIC_ARENA, says, descriptors, give_up);
        sent.map_err(|error| refused.unwrap_or_else(|| error.into()))
    }

    /// Takes in what a rank has said of its memory.
    pub(crate) fn hear(&self, rank: u32) -> Result<(), Error> {
        self.arena.learn(rank, || Some(read(rank, self.mesh.receive(rank, TOPIC_ARENA, now()).ok()?)))
    }

    /// Where another rank's place is in this process.
    pub(crate) fn find(&self, rank: u32, place: Place, bytes: usize) -> Result<*mut u8, Error> {
        // It was told before the rank came to the call.
        self.arena.find(rank, place, bytes, || read(rank, self.mesh.receive(rank, TOPIC_ARENA, now() + EXPLANATION)?))
    }
}

/// Maps what a rank has told of.
fn read(rank: u32, (says, mut descriptors): (Vec<u8>, Vec<std::os::fd::OwnedFd>)) -> Result<Announced, Error> {
    let mut words = says.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let (number, bytes) = (words.next().unwrap_or(0), words.next().unwrap_or(u64::MAX));
    let descriptor = descriptors.pop().ok_or_else(|| Error::Meeting(format!("rank {rank} sent no memory")))?;
    let segment = Segment::theirs(&descriptor, usize::try_from(bytes).unwrap_or(usize::MAX))?;
    Ok(Announced { number, segment, gone: words.collect() })
}
