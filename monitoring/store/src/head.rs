//! An open chunk and what becomes of it: samples of one series as they came, in few bits.
//!
//! A late sample (a node's clock differs, a tunnel was away) is put behind the others and sorted when it is read. How many chunks there are, and
//! whose, is for [`crate::open`].

use crate::bits::{BitReader, BitWriter, Times, Values};
use crate::refusal::Refusal;

/// Samples of one open chunk.
const MOST_OPEN_SAMPLES: u32 = 1 << 16;
/// What an open chunk takes in memory beside its bits and its name: itself and where its name lies are 128 bytes, in a table of which between
/// 7/16 and 7/8 are used, and its bits and its name are two allocations.
pub(crate) const HEAD_BYTES: usize = 256;

/// An open chunk.
#[derive(Debug)]
pub(crate) struct Head {
    /// What the journal calls the series.
    pub(crate) reference: u32,
    /// The last time that is closed.
    pub(crate) floor: i64,
    /// No sample is earlier.
    first: i64,
    last: i64,
    pub(crate) count: u32,
    ordered: bool,
    bits: BitWriter,
    times: Times,
    values: Values,
}

impl Head {
    pub(crate) fn new(reference: u32, floor: i64) -> Self {
        Self {
            reference,
            floor,
            first: i64::MAX,
            last: i64::MIN,
            count: 0,
            ordered: true,
            bits: BitWriter::default(),
            times: Times::default(),
            values: Values::default(),
        }
    }

    pub(crate) fn push(&mut self, at: i64, value: f64, window_ms: i64) -> Result<(), Refusal> {
        if at <= self.floor {
            return Err(Refusal::Late);
        }
        if self.count >= MOST_OPEN_SAMPLES {
            return Err(Refusal::TooOften);
        }
        if self.count > 0 && at <= self.last {
            if at < self.last.saturating_sub(window_ms) {
                return Err(Refusal::Late);
            }
            if at == self.last || self.chunk().samples().iter().any(|sample| sample.0 == at) {
                return Err(Refusal::Duplicate);
            }
            self.ordered = false;
        }
        self.times.write(&mut self.bits, at);
        self.values.write(&mut self.bits, value);
        self.count += 1;
        self.first = self.first.min(at);
        self.last = self.last.max(at);
        Ok(())
    }

    /// Memory of its bits.
    pub(crate) fn bytes(&self) -> usize {
        self.bits.capacity()
    }

    /// A copy of the chunk as it is.
    pub(crate) fn chunk(&self) -> Chunk {
        Chunk { bits: self.bits.clone().finish(), count: self.count, ordered: self.ordered, last: self.last }
    }

    /// Leaves what is later than `cut`, and gives the rest.
    pub(crate) fn close(&mut self, cut: i64, window_ms: i64) -> Option<Chunk> {
        // Appends wait meanwhile, so nothing is read for nothing.
        if self.count == 0 || self.first > cut {
            return None;
        }
        let whole = self.chunk();
        if self.last <= cut {
            *self = Self::new(self.reference, self.last);
            return Some(whole);
        }
        let samples = whole.samples();
        let (closed, kept) = samples.split_at(samples.partition_point(|sample| sample.0 <= cut));
        let &(floor, _) = closed.last()?;
        *self = Self::new(self.reference, floor);
        for &(at, value) in kept {
            // They are in order and were taken before.
            let _ = self.push(at, value, window_ms);
        }
        Some(Chunk::of(closed))
    }

    /// Takes what a journal says stayed open; gives how many samples it did not have. Two journals have the same one after a crash.
    pub(crate) fn take(&mut self, chunk: &Chunk, window_ms: i64) -> u64 {
        let had = self.chunk().samples();
        let mut taken = 0;
        for (at, value) in chunk.samples() {
            let is_new = had.binary_search_by_key(&at, |sample| sample.0).is_err();
            if is_new && self.push(at, value, window_ms).is_ok() {
                taken += 1;
            }
        }
        taken
    }

    /// The latest time.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }
}

/// A chunk that nothing is added to.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bits: Vec<u8>,
    pub(crate) count: u32,
    ordered: bool,
    /// No sample is later.
    pub(crate) last: i64,
}

impl Chunk {
    /// Of samples in order.
    fn of(samples: &[(i64, f64)]) -> Self {
        let (mut bits, mut times, mut values) = (BitWriter::default(), Times::default(), Values::default());
        for &(at, value) in samples {
            times.write(&mut bits, at);
            values.write(&mut bits, value);
        }
        let mut bits = bits.finish();
        bits.shrink_to_fit();
        let last = samples.last().map_or(i64::MIN, |sample| sample.0);
        Self { bits, count: samples.len() as u32, ordered: true, last }
    }

    /// As a journal has it.
    pub(crate) fn read(bits: &[u8], count: u32) -> Self {
        Self { bits: bits.to_vec(), count, ordered: false, last: i64::MAX }
    }

    /// Its samples by time.
    pub(crate) fn samples(&self) -> Vec<(i64, f64)> {
        let (mut bits, mut times, mut values) = (BitReader::new(&self.bits), Times::default(), Values::default());
        let read = |_| Some((times.read(&mut bits)?, values.read(&mut bits)?));
        let mut samples: Vec<(i64, f64)> = (0..self.count).map_while(read).collect();
        if !self.ordered {
            samples.sort_by_key(|sample| sample.0);
        }
        samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closed_and_what_is_kept_are_all_samples() {
        let times = [10, 30, 20, 50, 40, 60];
        for cut in [0, 10, 25, 40, 59, 60, i64::MAX] {
            let mut head = Head::new(3, 5);
            for at in times {
                head.push(at, at as f64, 100).unwrap();
            }
            let closed = head.close(cut, 100);
            let samples = |chunk: &Chunk| chunk.samples().iter().map(|sample| sample.0).collect::<Vec<_>>();
            let (closed, kept) = (closed.as_ref().map(samples).unwrap_or_default(), samples(&head.chunk()));
            assert!(
                closed.iter().all(|at| *at <= cut) && kept.iter().all(|at| *at > cut),
                "{cut}: {closed:?} {kept:?}"
            );
            assert_eq!([closed.clone(), kept].concat(), [10, 20, 30, 40, 50, 60]);
            assert_eq!((head.reference, head.floor), (3, closed.last().copied().unwrap_or(5)));
        }
    }

    #[test]
    fn a_chunk_that_is_told_twice_is_taken_once() {
        let mut told = Head::new(0, 0);
        for at in [20, 10, 30] {
            told.push(at, 1.0, 100).unwrap();
        }
        let told = told.chunk();
        let told = Chunk::read(&told.bits, told.count);
        let mut head = Head::new(0, 0);
        head.push(10, 1.0, 100).unwrap();
        assert_eq!((head.take(&told, 100), head.take(&told, 100)), (2, 0));
        assert_eq!(head.chunk().samples(), [(10, 1.0), (20, 1.0), (30, 1.0)]);
        assert_eq!(head.last(), 30);
    }
}
