//! What the tests share: a clock's begin, a session, and a store that is only a list.

use std::collections::BTreeMap;
use std::path::Path;

use eirene_monitoring_store::{Answer, Options, Point, Query, Sample, SessionId, Store};

/// 2026-01-01, a begin of an hour.
pub(crate) const BEGIN: i64 = 1_767_225_600_000;
pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
pub(crate) const SESSION: SessionId = SessionId([7; 16]);

pub(crate) fn sample(name: &str, at_ms: i64, value: f64) -> Sample<'_> {
    Sample { name, at_ms, value }
}

/// Bytes of all files.
pub(crate) fn bytes_in(path: &Path) -> u64 {
    std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// All samples of a session, as they are.
pub(crate) fn everything(store: &Store, session: SessionId) -> BTreeMap<String, Vec<(i64, f64)>> {
    let list = store.series(session).unwrap();
    let first = list.iter().map(|series| series.first_ms).min().unwrap_or(0);
    let last = list.iter().map(|series| series.last_ms).max().unwrap_or(0);
    let span = u32::try_from(last + 1 - first).unwrap();
    let query = Query { session, prefix: "", from_ms: first, to_ms: last + 1, points: span };
    let answer = store.query(&query).unwrap();
    assert_eq!((answer.step_ms, answer.broken), (1, 0));
    let samples = |points: &[Point]| {
        points.iter().inspect(|point| assert_eq!(point.count, 1)).map(|point| (point.at_ms, point.mean)).collect()
    };
    answer.lines.iter().map(|line| (line.name.clone(), samples(&line.points))).collect()
}

/// What an answer of these spans has to be.
pub(crate) fn naive(samples: &[(i64, f64)], from: i64, to: i64, step: i64) -> Vec<Point> {
    let mut spans: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for &(at, value) in samples.iter().filter(|(at, _)| (from..to).contains(at)) {
        spans.entry(at.div_euclid(step) * step).or_default().push(value);
    }
    let point = |(at_ms, values): (i64, Vec<f64>)| Point {
        at_ms,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        mean: values.iter().sum::<f64>() / values.len() as f64,
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        count: u32::try_from(values.len()).unwrap(),
    };
    spans.into_iter().map(point).collect()
}

/// Compares with means as exact as they are stored.
#[track_caller]
pub(crate) fn same(answer: &Answer, name: &str, expected: &[Point]) {
    let found = answer.lines.iter().find(|line| line.name == name).map_or(&[][..], |line| &line.points);
    assert_eq!(found.len(), expected.len(), "{name}: {found:?} {expected:?}");
    for (found, expected) in found.iter().zip(expected) {
        let exact = |point: &Point| (point.at_ms, point.min, point.max, point.count);
        assert_eq!(exact(found), exact(expected), "{name}");
        let scale = expected.min.abs().max(expected.max.abs()).max(1e-30);
        assert!((found.mean - expected.mean).abs() <= scale * 1e-6, "{name}: {found:?} {expected:?}");
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, &Options::default()).unwrap()
}

/// Numbers that look like chance and are the same in every run (Marsaglia, Xorshift RNGs, 2003).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
