//! What a segment holds of one session: an index of its series, and their columns.
//!
//! Series that were sampled together have the same times; such a column is stored once. The layout is in the crate's documentation.

use std::collections::HashMap;
use std::sync::Arc;

use crate::column::{MOST_ROWS, read_counts, read_times, read_values, write_counts, write_times, write_values};
use crate::disk::Kind;
use crate::rollup::{MINUTE_MS, Point};
use crate::wire::{Reader, put, put_signed};

/// Bytes of a checksum.
const SUM_BYTES: usize = 4;

/// Where the columns of a series lie, counted from the first column of the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) name: Box<str>,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rows: usize,
    times: (usize, usize),
    figures: (usize, usize),
}

/// A block that is put together.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    index: Vec<u8>,
    columns: Vec<u8>,
    series: u64,
    times: HashMap<Vec<u8>, usize>,
    span: Option<(i64, i64)>,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.series == 0
    }

    /// Bytes of the finished block, at most.
    pub(crate) fn bytes(&self) -> usize {
        // The number of series takes ten bytes at most.
        self.index.len() + self.columns.len() + 2 * SUM_BYTES + 10
    }

    /// First and last time.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        self.span
    }

    /// Adds a series of samples; names come in order. False: they are none, or too many for a column.
    pub(crate) fn raw(&mut self, name: &str, samples: &[(i64, f64)]) -> bool {
        let values: Vec<f64> = samples.iter().map(|sample| sample.1).collect();
        self.series(name, samples.iter().map(|sample| sample.0), &write_values(&values))
    }

    /// Adds a series of minutes.
    pub(crate) fn minutes(&mut self, name: &str, points: &[Point]) -> bool {
        let mut figures = Vec::new();
        for figure in [|point: &Point| point.min, |point: &Point| point.max, |point: &Point| point.mean] {
            let values: Vec<f64> = points.iter().map(figure).collect();
            put_column(&mut figures, &write_values(&values));
        }
        put_column(&mut figures, &write_counts(points.iter().map(|point| point.count)));
        // In minutes, so that differences are small.
        self.series(name, points.iter().map(|point| point.at_ms.div_euclid(MINUTE_MS)), &figures)
    }

    fn series(&mut self, name: &str, times: impl Iterator<Item = i64> + Clone, figures: &[u8]) -> bool {
        let rows = times.clone().count();
        let (Some(first), Some(last)) = (times.clone().next(), times.clone().last()) else { return false };
        if rows > MOST_ROWS {
            return false;
        }
        let column = write_times(times);
        let length = column.len();
        let columns = &mut self.columns;
        let at = *self.times.entry(column).or_insert_with_key(|column| {
            columns.extend_from_slice(column);
            columns.len() - column.len()
        });
        self.index.push(name.len() as u8);
        self.index.extend_from_slice(name.as_bytes());
        put_signed(&mut self.index, first);
        put(&mut self.index, last.wrapping_sub(first) as u64);
        for number in [rows, at, length, columns.len(), figures.len()] {
            put(&mut self.index, number as u64);
        }
        columns.extend_from_slice(figures);
        self.series += 1;
        let (begin, end) = self.span.unwrap_or((first, last));
        self.span = Some((begin.min(first), end.max(last)));
        true
    }

    /// The block's bytes, and how many of them are the index.
    pub(crate) fn finish(self) -> (Vec<u8>, usize) {
        let mut block = Vec::with_capacity(self.index.len() + self.columns.len() + 16);
        put(&mut block, self.series);
        block.extend_from_slice(&self.index);
        sum(&mut block, 0);
        let index = block.len();
        block.extend_from_slice(&self.columns);
        sum(&mut block, index);
        (block, index)
    }
}

fn put_column(out: &mut Vec<u8>, column: &[u8]) {
    put(out, column.len() as u64);
    out.extend_from_slice(column);
}

/// Adds the checksum of what is behind `from`.
fn sum(bytes: &mut Vec<u8>, from: usize) {
    let sum = crc32fast::hash(bytes.get(from..).unwrap_or_default());
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// What is before a right checksum.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    (crc32fast::hash(body) == u32::from_le_bytes(*sum)).then_some(body)
}

/// The series of a block's index.
pub(crate) fn read_index(bytes: &[u8]) -> Option<Vec<Placed>> {
    let mut reader = Reader(checked(bytes)?);
    let count = reader.size()?;
    if count > reader.0.len() {
        return None;
    }
    (0..count).map(|_| placed(&mut reader)).collect()
}

fn placed(reader: &mut Reader<'_>) -> Option<Placed> {
    let length = usize::from(reader.byte()?);
    let name = std::str::from_utf8(reader.bytes(length)?).ok()?.into();
    let first = reader.signed()?;
    let last = first.wrapping_add(reader.number()?.cast_signed());
    let rows = reader.size()?;
    let times = (reader.size()?, reader.size()?);
    Some(Placed { name, first, last, rows, times, figures: (reader.size()?, reader.size()?) })
}

/// A block that is read.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) series: Vec<Placed>,
    bytes: Vec<u8>,
    /// Where columns begin in `bytes`.
    index: usize,
    times: HashMap<(usize, usize), Arc<Vec<i64>>>,
}

impl Block {
    /// Of all bytes of a block, the first `index` of which are the index.
    pub(crate) fn read(mut bytes: Vec<u8>, index: usize) -> Option<Self> {
        let (head, columns) = bytes.split_at_checked(index)?;
        let series = read_index(head)?;
        checked(columns)?;
        bytes.truncate(bytes.len() - SUM_BYTES);
        Some(Self { series, bytes, index, times: HashMap::new() })
    }

    /// Where a series lies.
    pub(crate) fn find(&self, name: &str) -> Option<Placed> {
        let place = self.series.binary_search_by(|placed| (*placed.name).cmp(name)).ok()?;
        self.series.get(place).cloned()
    }

    fn column(&self, (at, length): (usize, usize)) -> Option<&[u8]> {
        self.bytes.get(self.index..)?.get(at..)?.get(..length)
    }

    fn times(&mut self, placed: &Placed) -> Option<Arc<Vec<i64>>> {
        if let Some(times) = self.times.get(&placed.times)
            && times.len() == placed.rows
        {
            return Some(Arc::clone(times));
        }
        let times = Arc::new(read_times(self.column(placed.times)?, placed.rows)?);
        self.times.insert(placed.times, Arc::clone(&times));
        Some(times)
    }

    /// The samples of a series.
    pub(crate) fn raw(&mut self, placed: &Placed) -> Option<Vec<(i64, f64)>> {
        let times = self.times(placed)?;
        let values = read_values(self.column(placed.figures)?, placed.rows)?;
        Some(times.iter().copied().zip(values).collect())
    }

    /// The minutes of a series.
    pub(crate) fn minutes(&mut self, placed: &Placed) -> Option<Vec<Point>> {
        let times = self.times(placed)?;
        let mut reader = Reader(self.column(placed.figures)?);
        let mut next = || {
            let length = reader.size()?;
            reader.bytes(length)
        };
        let min = read_values(next()?, placed.rows)?;
        let max = read_values(next()?, placed.rows)?;
        let mean = read_values(next()?, placed.rows)?;
        let counts = read_counts(next()?, placed.rows)?;
        let figures = min.into_iter().zip(max).zip(mean).zip(counts);
        let points = times.iter().zip(figures).map(|(at, (((min, max), mean), count))| Point {
            at_ms: at.saturating_mul(MINUTE_MS),
            min,
            mean,
            max,
            count,
        });
        Some(points.collect())
    }
}

/// The time of a row, which minutes count in minutes.
pub(crate) fn milliseconds(kind: Kind, at: i64) -> i64 {
    match kind {
        Kind::Raw => at,
        Kind::Minutes => at.saturating_mul(MINUTE_MS),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rollup::minutes;

    fn block(series: &[(&str, Vec<(i64, f64)>)]) -> (Vec<u8>, usize) {
        let mut builder = BlockBuilder::default();
        for (name, samples) in series {
            assert!(builder.raw(name, samples));
        }
        builder.finish()
    }

    #[test]
    fn series_that_were_sampled_together_share_their_times() {
        let samples: Vec<(i64, f64)> = (0..700_i64).map(|i| (i * 5000 + i * i % 97, 1.0)).collect();
        let one = block(&[("a", samples.clone())]).0.len();
        let two = block(&[("a", samples.clone()), ("b", samples)]).0.len();
        assert!(two - one < 40, "{one} {two}");
    }

    #[test]
    fn a_wrong_or_missing_byte_is_found() {
        let (bytes, index) = block(&[("a", vec![(5, 1.0), (9, 2.5)]), ("b", vec![(7, 1.0)])]);
        assert_eq!(Block::read(bytes.clone(), index).unwrap().series.len(), 2);
        for place in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[place] ^= 1;
            assert!(Block::read(wrong, index).is_none(), "{place}");
            assert!(Block::read(bytes[..place].to_vec(), index).is_none());
        }
    }

    proptest! {
        #[test]
        fn samples_and_minutes_come_back(
            values in prop::collection::vec((0_i64..400_000, -1e30_f64..1e30), 1..200),
        ) {
            let mut samples = values;
            samples.sort_by_key(|sample| sample.0);
            samples.dedup_by_key(|sample| sample.0);
            let points = minutes(&samples);
            let mut builder = BlockBuilder::default();
            prop_assert!(builder.raw("a", &samples));
            prop_assert!(builder.minutes("b", &points));
            let (bytes, index) = builder.finish();
            let mut block = Block::read(bytes, index).unwrap();
            let placed = block.series.clone();
            prop_assert_eq!(block.raw(&placed[0]).unwrap(), samples);
            prop_assert_eq!(block.minutes(&placed[1]).unwrap(), points);
        }
    }
}
