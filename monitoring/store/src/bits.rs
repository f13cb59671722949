//! Bits, and the codes of times and values in them.
//!
//! Times are deltas of deltas, values the XOR with the value before: T. Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series
//! Database", VLDB 2015, sections 4.1.1 and 4.1.2. Times here are milliseconds, so the classes of deltas are wider than the paper's. What
//! the bits belong to is for the callers to know.

/// Bits, the highest of each byte first.
#[derive(Debug, Clone, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that are not in `bytes` yet, in the lowest places.
    rest: u64,
    count: u32,
}

impl BitWriter {
    /// Adds the lowest `count` bits of `bits`, at most 64.
    pub(crate) fn push(&mut self, bits: u64, count: u32) {
        if count > 32 {
            self.push_some(bits >> 32, count - 32);
            self.push_some(bits, 32);
        } else {
            self.push_some(bits, count);
        }
    }

    fn push_some(&mut self, bits: u64, count: u32) {
        let mask = (1_u64 << count) - 1;
        self.rest = (self.rest << count) | (bits & mask);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            // There are very many of these, and half of each would be empty if they doubled.
            if self.bytes.len() == self.bytes.capacity() {
                self.bytes.reserve_exact((self.bytes.len() / 4).max(16));
            }
            self.bytes.push((self.rest >> self.count) as u8);
        }
    }

    /// Bytes that this holds in memory.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// All bits, with zeros behind them up to a whole byte.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            let last = (self.rest << (8 - self.count)) as u8;
            self.bytes.reserve_exact(1);
            self.bytes.push(last);
        }
        self.bytes
    }
}

/// Reads what [`BitWriter`] wrote.
#[derive(Debug, Clone)]
pub(crate) struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    rest: u64,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), rest: 0, count: 0 }
    }

    /// The next `count` bits, at most 64; none where there are not as many.
    pub(crate) fn take(&mut self, count: u32) -> Option<u64> {
        if count > 32 {
            let high = self.take_some(count - 32)?;
            return Some((high << 32) | self.take_some(32)?);
        }
        self.take_some(count)
    }

    fn take_some(&mut self, count: u32) -> Option<u64> {
        while self.count < count {
            self.rest = (self.rest << 8) | u64::from(*self.bytes.next()?);
            self.count += 8;
        }
        self.count -= count;
        Some((self.rest >> self.count) & ((1_u64 << count) - 1))
    }
}

/// A signed number with its sign in the lowest bit, so that small ones have few bits.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The other way.
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Bits of a delta of deltas by how many ones begin its code.
const CLASSES: [u32; 6] = [0, 7, 10, 14, 32, 64];

/// Times, one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    last: i64,
    delta: i64,
}

impl Times {
    pub(crate) fn write(&mut self, out: &mut BitWriter, at: i64) {
        let delta = at.wrapping_sub(self.last);
        let code = zigzag(delta.wrapping_sub(self.delta));
        (self.last, self.delta) = (at, delta);
        let needed = 64 - code.leading_zeros();
        for (ones, bits) in (0_u32..).zip(CLASSES) {
            if needed > bits {
                continue;
            }
            // The longest class needs no zero to end its ones.
            if ones == 5 {
                out.push(0b1_1111, 5);
            } else {
                out.push((1 << (ones + 1)) - 2, ones + 1);
            }
            out.push(code, bits);
            return;
        }
    }

    pub(crate) fn read(&mut self, bits: &mut BitReader<'_>) -> Option<i64> {
        let mut class = CLASSES.iter();
        let mut width = *class.next()?;
        for next in class {
            if bits.take(1)? == 0 {
                break;
            }
            width = *next;
        }
        self.delta = self.delta.wrapping_add(unzigzag(bits.take(width)?));
        self.last = self.last.wrapping_add(self.delta);
        Some(self.last)
    }
}

/// Values, one after the other; any bits of an `f64` come back as they were.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    last: u64,
    /// Zeros before and behind the bits that were written last; 64 before: none were.
    leading: u32,
    trailing: u32,
}

impl Default for Values {
    fn default() -> Self {
        Self { last: 0, leading: 64, trailing: 0 }
    }
}

impl Values {
    pub(crate) fn write(&mut self, out: &mut BitWriter, value: f64) {
        let bits = value.to_bits();
        let xor = bits ^ self.last;
        self.last = bits;
        if xor == 0 {
            out.push(0, 1);
            return;
        }
        let leading = xor.leading_zeros().min(31);
        let trailing = xor.trailing_zeros();
        let fits = self.leading <= leading && self.trailing <= trailing;
        let window = 64_u32.saturating_sub(self.leading + self.trailing);
        // A window that has grown too wide costs more than a new one.
        if fits && window <= 64 - leading - trailing + 11 {
            out.push(0b10, 2);
            out.push(xor >> self.trailing, window);
            return;
        }
        let width = 64 - leading - trailing;
        out.push(0b11, 2);
        out.push(u64::from(leading), 5);
        out.push(u64::from(width - 1), 6);
        out.push(xor >> trailing, width);
        (self.leading, self.trailing) = (leading, trailing);
    }

    pub(crate) fn read(&mut self, bits: &mut BitReader<'_>) -> Option<f64> {
        if bits.take(1)? == 0 {
            return Some(f64::from_bits(self.last));
        }
        if bits.take(1)? == 1 {
            self.leading = bits.take(5)? as u32;
            let width = bits.take(6)? as u32 + 1;
            self.trailing = 64_u32.checked_sub(self.leading + width)?;
        }
        let width = 64_u32.checked_sub(self.leading + self.trailing)?;
        self.last ^= bits.take(width)? << self.trailing;
        Some(f64::from_bits(self.last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(samples: &[(i64, u64)]) -> Vec<(i64, u64)> {
        let (mut out, mut times, mut values) = (BitWriter::default(), Times::default(), Values::default());
        for &(at, value) in samples {
            times.write(&mut out, at);
            values.write(&mut out, f64::from_bits(value));
        }
        let bytes = out.finish();
        let (mut bits, mut times, mut values) = (BitReader::new(&bytes), Times::default(), Values::default());
        samples.iter().map(|_| (times.read(&mut bits).unwrap(), values.read(&mut bits).unwrap().to_bits())).collect()
    }

    #[test]
    fn regular_times_of_one_value_cost_two_bits() {
        let (mut out, mut times, mut values) = (BitWriter::default(), Times::default(), Values::default());
        for i in 0..8002 {
            times.write(&mut out, 1_700_000_000_000 + i * 5000);
            values.write(&mut out, 12.5);
        }
        assert!(out.finish().len() < 2000 + 30);
    }

    #[test]
    fn extreme_times_and_values_come_back() {
        let samples: Vec<_> = [i64::MIN, i64::MAX, 0, -1, i64::MIN, 5]
            .into_iter()
            .zip([f64::NAN, f64::INFINITY, -0.0, f64::MIN_POSITIVE, f64::MAX, 0.0].map(f64::to_bits))
            .collect();
        assert_eq!(round_trip(&samples), samples);
    }

    proptest! {
        #[test]
        fn any_sequence_comes_back(samples in prop::collection::vec((any::<i64>(), any::<u64>()), 0..300)) {
            prop_assert_eq!(round_trip(&samples), samples);
        }

        #[test]
        fn near_times_and_values_come_back(
            samples in prop::collection::vec((-100_000_i64..100_000, 0_u64..1000), 0..300),
        ) {
            let samples: Vec<_> = samples.iter().map(|&(at, value)| (at, (value as f64 / 10.0).to_bits())).collect();
            prop_assert_eq!(round_trip(&samples), samples);
        }

        #[test]
        fn garbage_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut bits, mut times, mut values) = (BitReader::new(&bytes), Times::default(), Values::default());
            for _ in 0..2000 {
                if times.read(&mut bits).is_none() || values.read(&mut bits).is_none() {
                    break;
                }
            }
        }
    }
}
