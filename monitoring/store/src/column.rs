//! Columns of closed chunks: all times of a series, or all of one of its figures.
//!
//! Open chunks have to take one sample after the other; here the whole column is known, so the cheapest of several codes is taken:
//!
//! - one value for all;
//! - decimal numbers, which most of what is sampled is (per cent with one digit, bytes, watts), as integers times a power of ten: in blocks of
//!   64, each with the smallest of them and as many bits as the rest needs, of the numbers or of their differences. The test for
//!   decimals is that of A. Afroozeh et al., "ALP: Adaptive Lossless floating-Point Compression", SIGMOD 2023, without its exceptions;
//! - XOR, as in open chunks.
//!
//! All of them give back the very bits. What a column means is the segment's to know.

use crate::bits::{BitReader, BitWriter, Times, Values};
use crate::wire::{Reader, put_signed};

/// Most rows of a column, so that a broken one cannot ask for any amount of memory.
pub(crate) const MOST_ROWS: usize = 1 << 20;
/// Numbers that share a width.
const BLOCK: usize = 64;
/// Decimal digits behind the point that are looked for.
const MOST_DIGITS: u8 = 4;
/// Integers that an `f64` holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

const SAME: u8 = 0;
const XOR: u8 = 1;
/// And as many digits.
const NUMBERS: u8 = 16;
const DIFFERENCES: u8 = 32;

/// Times as bytes.
pub(crate) fn write_times(times: impl Iterator<Item = i64>) -> Vec<u8> {
    let (mut out, mut state) = (BitWriter::default(), Times::default());
    times.for_each(|at| state.write(&mut out, at));
    out.finish()
}

/// `rows` times.
pub(crate) fn read_times(bytes: &[u8], rows: usize) -> Option<Vec<i64>> {
    let (mut bits, mut state) = (BitReader::new(bytes), Times::default());
    // A row takes a bit at least.
    if rows > MOST_ROWS || rows > bytes.len() * 8 {
        return None;
    }
    (0..rows).map(|_| state.read(&mut bits)).collect()
}

/// Values as bytes.
pub(crate) fn write_values(values: &[f64]) -> Vec<u8> {
    let Some(&first) = values.first() else { return Vec::new() };
    if values.iter().all(|value| value.to_bits() == first.to_bits()) {
        let mut out = vec![SAME];
        out.extend_from_slice(&first.to_le_bytes());
        return out;
    }
    let xor = write_xor(values);
    match write_decimals(values) {
        Some(decimals) if decimals.len() < xor.len() => decimals,
        _ => xor,
    }
}

/// `rows` values.
pub(crate) fn read_values(bytes: &[u8], rows: usize) -> Option<Vec<f64>> {
    if rows > MOST_ROWS {
        return None;
    }
    let mut reader = Reader(bytes);
    match reader.byte()? {
        SAME => Some(vec![f64::from_le_bytes(reader.array()?); rows]),
        XOR => {
            let (mut bits, mut state) = (BitReader::new(reader.0), Values::default());
            (0..rows).map(|_| state.read(&mut bits)).collect()
        }
        tag if tag & 0xf <= MOST_DIGITS => {
            let scale = power(tag & 0xf);
            let integers = read_blocks(&mut reader, rows)?;
            let value = |integer: i64| integer as f64 / scale;
            match tag & 0xf0 {
                NUMBERS => Some(integers.into_iter().map(value).collect()),
                DIFFERENCES => {
                    let mut last = 0_i64;
                    let summed = integers.into_iter().map(|difference| {
                        last = last.wrapping_add(difference);
                        value(last)
                    });
                    Some(summed.collect())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn write_xor(values: &[f64]) -> Vec<u8> {
    let (mut out, mut state) = (BitWriter::default(), Values::default());
    out.push(u64::from(XOR), 8);
    for value in values {
        state.write(&mut out, *value);
    }
    out.finish()
}

fn power(digits: u8) -> f64 {
    10_f64.powi(i32::from(digits))
}

/// The values as integers of `digits` decimal places, if that gives back every bit of all of them.
fn integers(values: &[f64], digits: u8) -> Option<Vec<i64>> {
    let scale = power(digits);
    let integer = |value: &f64| {
        let scaled = (value * scale).round();
        // Comparing bits leaves out -0.0 and NaN.
        (scaled.abs() < EXACT && ((scaled as i64) as f64 / scale).to_bits() == value.to_bits()).then_some(scaled as i64)
    };
    values.iter().map(integer).collect()
}

fn write_decimals(values: &[f64]) -> Option<Vec<u8>> {
    let (digits, numbers) = (0..=MOST_DIGITS).find_map(|digits| Some((digits, integers(values, digits)?)))?;
    let before = std::iter::once(&0).chain(&numbers);
    let differences: Vec<i64> = numbers.iter().zip(before).map(|(number, before)| number - before).collect();
    let (numbers, differences) =
        (write_blocks(NUMBERS | digits, &numbers), write_blocks(DIFFERENCES | digits, &differences));
    Some(if numbers.len() <= differences.len() { numbers } else { differences })
}

fn write_blocks(tag: u8, numbers: &[i64]) -> Vec<u8> {
    let mut out = vec![tag];
    for block in numbers.chunks(BLOCK) {
        let smallest = block.iter().copied().min().unwrap_or(0);
        let above = |number: &i64| number.wrapping_sub(smallest) as u64;
        let largest = block.iter().map(above).max().unwrap_or(0);
        let width = 64 - largest.leading_zeros();
        put_signed(&mut out, smallest);
        out.push(width as u8);
        let mut bits = BitWriter::default();
        for number in block {
            bits.push(above(number), width);
        }
        out.extend_from_slice(&bits.finish());
    }
    out
}

fn read_blocks(reader: &mut Reader<'_>, rows: usize) -> Option<Vec<i64>> {
    // A block of 64 takes two bytes at least.
    if rows.div_ceil(BLOCK) * 2 > reader.0.len() {
        return None;
    }
    let mut numbers = Vec::with_capacity(rows);
    while numbers.len() < rows {
        let count = BLOCK.min(rows - numbers.len());
        let smallest = reader.signed()?;
        let width = u32::from(reader.byte()?);
        if width > 64 {
            return None;
        }
        let mut bits = BitReader::new(reader.bytes((count * width as usize).div_ceil(8))?);
        for _ in 0..count {
            numbers.push(smallest.wrapping_add(bits.take(width)?.cast_signed()));
        }
    }
    Some(numbers)
}

/// Whole numbers, such as how many samples are in a minute.
pub(crate) fn write_counts(counts: impl Iterator<Item = u32>) -> Vec<u8> {
    let values: Vec<f64> = counts.map(f64::from).collect();
    write_values(&values)
}

/// The other way; what is no such number is refused.
pub(crate) fn read_counts(bytes: &[u8], rows: usize) -> Option<Vec<u32>> {
    let count = |value: f64| (0.0..=f64::from(u32::MAX)).contains(&value).then_some(value as u32);
    read_values(bytes, rows)?.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[track_caller]
    fn comes_back(values: &[f64]) -> usize {
        let bytes = write_values(values);
        assert_eq!(bits(&read_values(&bytes, values.len()).unwrap()), bits(values));
        bytes.len()
    }

    #[test]
    fn one_value_costs_nine_bytes() {
        assert_eq!(comes_back(&[3.7; 1000]), 9);
    }

    #[test]
    fn per_cent_with_one_digit_costs_little_more_than_its_noise() {
        // 0 to 12.7 above 50: seven bits each.
        let values: Vec<f64> = (0..6400_u32).map(|i| (500.0 + f64::from(i * 37 % 128)) / 10.0).collect();
        assert!(comes_back(&values) < 6400 * 7 / 8 + 6400 / 64 * 4);
    }

    #[test]
    fn a_counter_costs_its_differences() {
        let values: Vec<f64> = (0..6400_u32).map(|i| 4e12 + f64::from(i) * 1e6 + f64::from(i % 2)).collect();
        assert!(comes_back(&values) < 6400);
    }

    #[test]
    fn what_is_no_decimal_comes_back_too() {
        comes_back(&[-0.0, 0.0, 1.5]);
        comes_back(&[f64::NAN, 1.0, f64::INFINITY]);
        comes_back(&[EXACT, -EXACT, EXACT - 1.0]);
        comes_back(&[std::f64::consts::PI, std::f64::consts::E]);
        assert_eq!(read_values(&[], 3), None);
        assert!(write_values(&[]).is_empty());
    }

    #[test]
    fn more_rows_than_are_there_are_not_made_up() {
        let bytes = write_times([1, 2, 3].into_iter());
        assert_eq!(read_times(&bytes, 3), Some(vec![1, 2, 3]));
        assert_eq!(read_times(&bytes, 1 << 19), None);
        assert_eq!(read_values(&write_values(&[1.0; 3]), MOST_ROWS + 1), None);
    }

    proptest! {
        #[test]
        fn any_values_come_back(values in prop::collection::vec(any::<f64>(), 1..300)) {
            comes_back(&values);
        }

        #[test]
        fn any_decimals_come_back(
            values in prop::collection::vec(any::<i32>(), 1..300), digits in 0_u8..6,
        ) {
            let values: Vec<f64> = values.iter().map(|value| f64::from(*value) / power(digits)).collect();
            comes_back(&values);
        }

        #[test]
        fn any_times_come_back(times in prop::collection::vec(any::<i64>(), 0..300)) {
            prop_assert_eq!(read_times(&write_times(times.iter().copied()), times.len()), Some(times));
        }

        #[test]
        fn garbage_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200), rows in 0_usize..3000) {
            let _ = read_values(&bytes, rows);
            let _ = read_counts(&bytes, rows);
            let _ = read_times(&bytes, rows);
        }
    }
}
