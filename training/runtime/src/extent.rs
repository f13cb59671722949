//! Runs of memory, and buffers cut into the chunks that schedules speak of.

use std::ops::Range;

/// Some bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Where they begin.
    pub(crate) address: *mut u8,
    /// How many.
    pub(crate) bytes: usize,
}

// SAFETY: an address; who reads or writes there answers for it.
#[expect(unsafe_code, reason = "buffers are handed from the caller to the progress thread")]
unsafe impl Send for Extent {}

impl Extent {
    /// The bytes behind the first `offset`.
    fn behind(self, offset: usize) -> Self {
        Self { address: self.address.wrapping_add(offset), bytes: self.bytes - offset }
    }

    /// Whether they have a byte in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        let end = |extent: Self| extent.address as usize + extent.bytes;
        self.bytes > 0
            && other.bytes > 0
            && (self.address as usize) < end(other)
            && (other.address as usize) < end(self)
    }
}

/// Extents one after the other, seen as one. Neighbours are joined; nearly always there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extents {
    first: Extent,
    more: Vec<Extent>,
    bytes: usize,
}

impl Extents {
    /// Nothing.
    pub(crate) fn empty() -> Self {
        Self { first: Extent { address: std::ptr::null_mut(), bytes: 0 }, more: Vec::new(), bytes: 0 }
    }

    /// Adds at the end.
    pub(crate) fn push(&mut self, extent: Extent) {
        if extent.bytes == 0 {
            return;
        }
        if self.bytes == 0 {
            self.first = extent;
        } else {
            let last = self.more.last_mut().unwrap_or(&mut self.first);
            if last.address.wrapping_add(last.bytes) == extent.address {
                last.bytes += extent.bytes;
            } else {
                self.more.push(extent);
            }
        }
        self.bytes += extent.bytes;
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What lies behind the first `offset` bytes in one piece.
    pub(crate) fn at(&self, offset: usize) -> Extent {
        let mut offset = offset;
        for extent in std::iter::once(&self.first).chain(&self.more) {
            if offset < extent.bytes {
                return extent.behind(offset);
            }
            offset -= extent.bytes;
        }
        Extent { address: std::ptr::null_mut(), bytes: 0 }
    }

    /// Whether they have a byte in common with others.
    pub(crate) fn meet(&self, other: &Self) -> bool {
        let all =
            |extents: &Self| std::iter::once(extents.first).chain(extents.more.iter().copied()).collect::<Vec<_>>();
        if self.more.is_empty() && other.more.is_empty() {
            return self.first.meets(other.first);
        }
        all(self).iter().any(|mine| all(other).iter().any(|theirs| mine.meets(*theirs)))
    }
}

/// A buffer, cut into chunks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    chunks: Vec<Extent>,
}

/// Boundaries between chunks lie at whole cache lines where there is enough to share out, so that no two ranks write to one line.
const GRAIN: usize = 128;

impl Table {
    /// One buffer of some elements of `size` bytes, cut evenly into `chunks`.
    pub(crate) fn even(buffer: Extent, size: usize, chunks: u32) -> Self {
        let mut table = Self { chunks: Vec::with_capacity(chunks as usize) };
        table.add_even(buffer, size, chunks);
        table
    }

    /// Blocks, each cut evenly into the same number of chunks.
    pub(crate) fn blocks(blocks: impl Iterator<Item = Extent>, size: usize, chunks_each: u32) -> Self {
        let mut table = Self::default();
        for block in blocks {
            table.add_even(block, size, chunks_each);
        }
        table
    }

    fn add_even(&mut self, buffer: Extent, size: usize, chunks: u32) {
        let cut = |number: u32| cut(buffer.bytes / size, size, chunks, number);
        for number in 0..chunks {
            let (begin, end) = (cut(number), cut(number + 1));
            self.chunks.push(Extent { address: buffer.address.wrapping_add(begin), bytes: end - begin });
        }
    }

    /// Where a chunk begins.
    pub(crate) fn begin(&self, chunk: u32) -> *mut u8 {
        self.chunks[chunk as usize].address
    }

    /// Chunks one after the other.
    pub(crate) fn span(&self, chunks: &Range<u32>) -> Extents {
        let mut extents = Extents::empty();
        for chunk in &self.chunks[chunks.start as usize..chunks.end as usize] {
            extents.push(*chunk);
        }
        extents
    }
}

/// Where chunk `number` of `chunks` begins in a buffer of `elements`, in bytes.
pub(crate) fn cut(elements: usize, size: usize, chunks: u32, number: u32) -> usize {
    let chunks = chunks as usize;
    let even = (elements as u128 * u128::from(number) / chunks.max(1) as u128) as usize;
    let grain = GRAIN / size;
    if elements >= chunks * grain * 8 && (number as usize) < chunks { even / grain * grain * size } else { even * size }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(address: usize, bytes: usize) -> Extent {
        Extent { address: address as *mut u8, bytes }
    }

    #[test]
    fn neighbours_are_joined_and_gaps_are_kept() {
        let mut extents = Extents::empty();
        for (address, bytes) in [(1000, 10), (1010, 5), (1020, 0), (2000, 4)] {
            extents.push(extent(address, bytes));
        }
        assert_eq!(extents.bytes(), 19);
        assert_eq!(
            (extents.at(0), extents.at(12), extents.at(15)),
            (extent(1000, 15), extent(1012, 3), extent(2000, 4))
        );
        assert_eq!(extents.at(19).bytes, 0);
    }

    #[test]
    fn whoever_shares_a_byte_meets() {
        let of = |list: &[(usize, usize)]| {
            let mut extents = Extents::empty();
            for (address, bytes) in list {
                extents.push(extent(*address, *bytes));
            }
            extents
        };
        assert!(of(&[(100, 10)]).meet(&of(&[(109, 1)])) && of(&[(0, 1), (100, 10)]).meet(&of(&[(50, 1), (105, 1)])));
        assert!(!of(&[(100, 10)]).meet(&of(&[(110, 1)])) && !of(&[]).meet(&of(&[(0, 100)])));
    }

    proptest! {
        #[test]
        fn chunks_cover_a_buffer_without_gap_or_overlap(elements in 0_usize..100_000, chunks in 1_u32..300, size in prop::sample::select(vec![1_usize, 2, 4, 8])) {
            let table = Table::even(extent(4096, elements * size), size, chunks);
            let mut end = 4096;
            for chunk in &table.chunks {
                prop_assert_eq!(chunk.address as usize, end);
                prop_assert_eq!(chunk.bytes % size, 0);
                end += chunk.bytes;
            }
            prop_assert_eq!(end, 4096 + elements * size);
        }
    }
}
