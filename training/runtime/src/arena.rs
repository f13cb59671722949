//! Memory that the ranks of a node can reach into: what lies there is reduced where it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::extent::Extent;
use crate::memory::meeting::Place;
use crate::memory::segment::Segment;

/// Memory of this rank's that the other ranks of its node can map. It is given back when the last user lets go of it.
#[derive(Debug, Clone)]
pub struct Region {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    segment: Segment,
    arena: Arc<Arena>,
}

impl Region {
    /// Address of its first byte, at the beginning of a page.
    pub fn address(&self) -> usize {
        self.kept.segment.address() as usize
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.segment.bytes()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut own = self.arena.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|region| region.number != self.number);
        self.arena.given_back.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// A region of ours, to find addresses in.
#[derive(Debug, Clone, Copy)]
struct Own {
    number: u64,
    begin: usize,
    end: usize,
}

/// All regions of a rank, and those of others that it has mapped.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    own: Mutex<Vec<Own>>,
    next: std::sync::atomic::AtomicU64,
    /// Regions of ours that are gone, and of which the others have not been told.
    given_back: Mutex<Vec<u64>>,
    theirs: Mutex<HashMap<(u32, u64), Segment>>,
}

/// What a rank says of a new region.
pub(crate) struct Announced {
    pub(crate) number: u64,
    pub(crate) segment: Segment,
    /// Its earlier regions that it has given back since it last spoke.
    pub(crate) given_back: Vec<u64>,
}

impl Arena {
    /// A new region, and its number.
    pub(crate) fn region(self: &Arc<Self>, bytes: usize) -> Result<(Region, u64), Error> {
        let segment = Segment::committed(c"eirene-train-arena", bytes.max(1).next_multiple_of(4096))?;
        segment.prefer_large_pages();
        let number = 1 + self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let begin = segment.address() as usize;
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.push(Own { number, begin, end: begin + segment.bytes() });
        drop(own);
        Ok((Region { kept: Arc::new(Kept { number, segment, arena: Arc::clone(self) }) }, number))
    }

    /// The regions that are gone and of which the others have not been told; they are told with the next region.
    pub(crate) fn given_back(&self) -> Vec<u64> {
        std::mem::take(&mut self.given_back.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What to hand to the others.
    pub(crate) fn descriptor(region: &Region) -> std::os::fd::BorrowedFd<'_> {
        region.kept.segment.descriptor()
    }

    /// Where a buffer lies, if it lies in one of our regions whole.
    pub(crate) fn place(&self, buffer: Extent) -> Place {
        let begin = buffer.address as usize;
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter()
            .find(|region| region.begin <= begin && begin + buffer.bytes <= region.end)
            .map_or(Place::default(), |region| Place { region: region.number, offset: (begin - region.begin) as u64 })
    }

    /// Where another rank's place is in this process. Regions are announced in the order they were made; `next` takes the next announcement.
    /// What a rank has given back is unmapped then: all collectives on it have ended there, so nobody touches it here any more.
    pub(crate) fn find(
        &self,
        rank: u32,
        place: Place,
        bytes: usize,
        mut next: impl FnMut() -> Result<Announced, Error>,
    ) -> Result<*mut u8, Error> {
        let mut theirs = self.theirs.lock().unwrap_or_else(PoisonError::into_inner);
        while !theirs.contains_key(&(rank, place.region)) {
            let Announced { number, segment, given_back } = next()?;
            for gone in given_back {
                theirs.remove(&(rank, gone));
            }
            theirs.insert((rank, number), segment);
        }
        let segment = &theirs[&(rank, place.region)];
        let offset = usize::try_from(place.offset).unwrap_or(usize::MAX);
        if offset.checked_add(bytes).is_none_or(|end| end > segment.bytes()) {
            return Err(Error::Invalid { message: format!("rank {rank} names memory beyond its arena") });
        }
        Ok(segment.address().wrapping_add(offset))
    }
}
