//! Memory that the ranks of a node can reach into: what lies there is reduced where it is.
//!
//! Small regions are cut from large chunks whose pages come and go with the regions, so that a rank with thousands of them has few descriptors
//! and few mappings; a large region has a chunk of its own. The others hear of a chunk when something in it is first to be reduced, and not before.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::extent::Extent;
use crate::forks;
use crate::memory::meeting::Place;
use crate::memory::segment::Segment;

/// Addresses that a chunk takes; memory it takes only where regions are.
const CHUNK: usize = 1 << 30;
/// What is as large has a chunk of its own, as long as there are descriptors for that. Measured: an allreduce in place of 1 MiB takes 19 µs in
/// memory of its own and 40 µs in a part of a large chunk, one of 64 MiB 5 ms and 9 ms.
const LARGE: usize = 256 << 10;
const PAGE: usize = 4096;
/// Regions of this size and more begin where large pages do.
const LARGE_PAGE: usize = 2 << 20;

/// Memory of this rank's that the other ranks of its node can map. It is given back when the last user lets go of it.
#[derive(Debug, Clone)]
pub struct Region {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    chunk: u64,
    segment: Arc<Segment>,
    begin: usize,
    bytes: usize,
    arena: Arc<Arena>,
    forks: u32,
}

impl Region {
    /// Address of its first byte, at the beginning of a page.
    pub fn address(&self) -> usize {
        self.kept.segment.address() as usize + self.kept.begin
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.bytes
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A fork that lets go of it must not take the pages from its parent.
        if self.forks == forks::count() {
            // Before its place can be taken again.
            self.segment.give_back(self.begin, self.bytes);
            self.arena.own().free(self.chunk, self.begin);
        }
    }
}

/// Memory of ours that regions are cut from.
#[derive(Debug)]
struct Chunk {
    number: u64,
    segment: Arc<Segment>,
    /// Where regions begin, and their ends.
    taken: BTreeMap<usize, usize>,
    /// Who has heard of it.
    told: HashSet<u32>,
}

impl Chunk {
    /// Takes the first place that is large enough.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let step = if bytes >= LARGE_PAGE { LARGE_PAGE } else { PAGE };
        let mut at = 0_usize;
        for (begin, end) in &self.taken {
            if at.checked_add(bytes)? <= *begin {
                break;
            }
            at = end.next_multiple_of(step);
        }
        if at.checked_add(bytes)? > self.segment.bytes() {
            return None;
        }
        self.taken.insert(at, at + bytes);
        Some(at)
    }
}

/// The chunks of a rank.
#[derive(Debug, Default)]
struct Own {
    chunks: Vec<Chunk>,
    next: u64,
    /// Chunks that are gone, by the ranks that know them and have not been told that.
    gone: HashMap<u32, Vec<u64>>,
}

impl Own {
    /// A place for a region: the chunk's number, its memory, and where in it.
    fn take(&mut self, bytes: usize) -> Result<(u64, Arc<Segment>, usize), Error> {
        let make = |bytes| Segment::new(c"eirene-train-arena", bytes);
        // Without a descriptor left it may still have a place among others.
        let alone = if bytes >= LARGE { make(bytes).ok() } else { None };
        let segment = if let Some(segment) = alone {
            segment
        } else {
            for chunk in &mut self.chunks {
                if let Some(begin) = chunk.take(bytes) {
                    return Ok((chunk.number, Arc::clone(&chunk.segment), begin));
                }
            }
            // Where a limit forbids so many addresses, or so long a file, the region itself may still be possible.
            if bytes > CHUNK || !Segment::may_be(CHUNK) {
                make(bytes)?
            } else {
                make(CHUNK).or_else(|_| make(bytes))?
            }
        };
        segment.prefer_large_pages();
        self.next += 1;
        let segment = Arc::new(segment);
        self.chunks.push(Chunk {
            number: self.next,
            segment: Arc::clone(&segment),
            taken: BTreeMap::from([(0, bytes)]),
            told: HashSet::new(),
        });
        Ok((self.next, segment, 0))
    }

    /// A region is gone, and its chunk if it was the last there.
    fn free(&mut self, number: u64, begin: usize) {
        let Some(at) = self.chunks.iter().position(|chunk| chunk.number == number) else { return };
        self.chunks[at].taken.remove(&begin);
        if self.chunks[at].taken.is_empty() {
            for rank in self.chunks.swap_remove(at).told {
                self.gone.entry(rank).or_default().push(number);
            }
        }
    }
}

/// All regions of a rank, and the chunks of others that it has mapped.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    own: Mutex<Own>,
    theirs: Mutex<HashMap<(u32, u64), Segment>>,
    /// Whoever tells others of a chunk has it, so that nobody takes for told what is still being said.
    telling: Mutex<()>,
}

/// What a rank says of a chunk.
pub(crate) struct Announced {
    pub(crate) number: u64,
    pub(crate) segment: Segment,
    /// Its earlier chunks that it has given back since it last spoke to us.
    pub(crate) gone: Vec<u64>,
}

impl Arena {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new region of zeros.
    pub(crate) fn region(self: &Arc<Self>, bytes: usize) -> Result<Region, Error> {
        let too_many = || Error::memory(bytes, "size", nix::Error::EOVERFLOW);
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(too_many)?;
        let (chunk, segment, begin) = self.own().take(bytes)?;
        let forks = forks::count();
        let kept = Kept { chunk, segment, begin, bytes, arena: Arc::clone(self), forks };
        // If that fails, letting go of it frees its place.
        kept.segment.commit(begin, bytes)?;
        Ok(Region { kept: Arc::new(kept) })
    }

    /// Where a buffer lies, if it lies in one of our chunks whole.
    pub(crate) fn place(&self, buffer: Extent) -> Place {
        let begin = buffer.address as usize;
        let offset = |chunk: &Chunk| {
            let offset = begin.checked_sub(chunk.segment.address() as usize)?;
            (offset.checked_add(buffer.bytes)? <= chunk.segment.bytes()).then_some((chunk.number, offset as u64))
        };
        self.own().chunks.iter().find_map(offset).map_or(Place::default(), |(region, offset)| Place { region, offset })
    }

    /// Tells those of `ranks` of a chunk that have not heard of it, by `send`: to whom, the message, and the chunk's descriptor.
    pub(crate) fn tell(
        &self,
        ranks: &[u32],
        number: u64,
        mut send: impl FnMut(u32, &[u8], &[BorrowedFd<'_>]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let is_new =
            |own: &Own, rank: &u32| own.chunks.iter().any(|chunk| chunk.number == number && !chunk.told.contains(rank));
        let news: Vec<u32> = {
            let own = self.own();
            ranks.iter().copied().filter(|rank| is_new(&own, rank)).collect()
        };
        if news.is_empty() {
            return Ok(());
        }
        let _turn = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        for rank in news {
            let (segment, gone) = {
                let mut own = self.own();
                let gone = own.gone.remove(&rank).unwrap_or_default();
                let chunk = own.chunks.iter().find(|chunk| chunk.number == number && !chunk.told.contains(&rank));
                // Somebody else was quicker.
                let Some(segment) = chunk.map(|chunk| Arc::clone(&chunk.segment)) else {
                    own.gone.insert(rank, gone);
                    continue;
                };
                (segment, gone)
            };
            let words = [number, segment.bytes() as u64].into_iter().chain(gone);
            let says: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            send(rank, &says, segment.descriptor().as_slice())?;
            if let Some(chunk) = self.own().chunks.iter_mut().find(|chunk| chunk.number == number) {
                chunk.told.insert(rank);
            }
        }
        Ok(())
    }

    /// Maps the chunks that a rank has told of, as long as `next` gives any. What it has given back is unmapped then: all collectives on it
    /// have ended there, so nobody touches it here any more.
    pub(crate) fn learn(&self, rank: u32, next: impl FnMut() -> Option<Result<Announced, Error>>) -> Result<(), Error> {
        let mut theirs = self.theirs.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(next).try_for_each(|announced| {
            note(&mut theirs, rank, announced?);
            Ok(())
        })
    }

    /// Where another rank's place is in this process; `next` waits for its next announcement.
    pub(crate) fn find(
        &self,
        rank: u32,
        place: Place,
        bytes: usize,
        mut next: impl FnMut() -> Result<Announced, Error>,
    ) -> Result<*mut u8, Error> {
        let mut theirs = self.theirs.lock().unwrap_or_else(PoisonError::into_inner);
        while !theirs.contains_key(&(rank, place.region)) {
            note(&mut theirs, rank, next()?);
        }
        let segment = &theirs[&(rank, place.region)];
        let offset = usize::try_from(place.offset).unwrap_or(usize::MAX);
        if offset.checked_add(bytes).is_none_or(|end| end > segment.bytes()) {
            return Err(Error::Invalid { message: format!("rank {rank} names memory beyond its arena") });
        }
        Ok(segment.address().wrapping_add(offset))
    }
}

fn note(theirs: &mut HashMap<(u32, u64), Segment>, rank: u32, announced: Announced) {
    for gone in announced.gone {
        theirs.remove(&(rank, gone));
    }
    theirs.insert((rank, announced.number), announced.segment);
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "helpers of tests")]
mod tests {
    use super::*;

    /// The chunks of which these ranks are told when something in a region is to be reduced.
    fn told(arena: &Arena, region: &Region, ranks: &[u32]) -> Vec<(u32, Vec<u64>)> {
        let place = arena.place(Extent { address: region.address() as *mut u8, bytes: region.bytes() });
        let mut told = Vec::new();
        let send = |rank: u32, says: &[u8], descriptors: &[BorrowedFd<'_>]| {
            assert_eq!(descriptors.len(), 1);
            told.push((rank, says.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()));
            Ok(())
        };
        arena.tell(ranks, place.region, send).unwrap();
        told
    }

    #[test]
    fn many_regions_share_a_chunk_and_their_places_are_used_again() {
        let arena: Arc<Arena> = Arc::default();
        let mut regions: Vec<Region> = (0..3000).map(|index| arena.region(1 + index % 9000).unwrap()).collect();
        assert_eq!(arena.own().chunks.len(), 1);
        let mut places: Vec<(usize, usize)> =
            regions.iter().map(|region| (region.address(), region.address() + region.bytes())).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        let gone = regions.remove(7);
        let (address, bytes) = (gone.address(), gone.bytes());
        drop(gone);
        assert_eq!(arena.region(bytes).unwrap().address(), address);
        drop(regions);
        assert!(arena.own().chunks.is_empty());
    }

    #[test]
    fn others_are_told_of_a_chunk_once_and_of_its_end_with_the_next() {
        let arena: Arc<Arena> = Arc::default();
        let (one, two) = (arena.region(100).unwrap(), arena.region(100).unwrap());
        let length = CHUNK as u64;
        assert_eq!(told(&arena, &one, &[1]), [(1, vec![1, length])]);
        assert_eq!(told(&arena, &two, &[1, 2]), [(2, vec![1, length])]);
        drop((one, two));
        let three = arena.region(100).unwrap();
        assert_eq!(told(&arena, &three, &[1, 3]), [(1, vec![2, length, 1]), (3, vec![2, length])]);
    }

    #[test]
    fn who_could_not_be_told_is_told_again() {
        let arena: Arc<Arena> = Arc::default();
        let region = arena.region(100).unwrap();
        let refused = || Error::Meeting("no".to_owned());
        assert!(arena.tell(&[1], 1, |_, _, _| Err(refused())).is_err());
        assert_eq!(told(&arena, &region, &[1]).len(), 1);
    }

    #[test]
    #[expect(unsafe_code, reason = "only a fork can let go of what its parent keeps")]
    fn a_fork_that_lets_go_of_a_region_does_not_take_it_from_its_parent() {
        let arena: Arc<Arena> = Arc::default();
        let region = arena.region(100).unwrap();
        let memory = region.address() as *mut u64;
        // SAFETY: the region is as long, and nobody else uses it.
        unsafe { memory.write_volatile(7) };
        // SAFETY: the child unmaps, which allocates nothing, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(region);
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.read_volatile() }, 7);
    }
}
