//! A year of sessions on a disk that is too small for their samples: the bound holds at every moment, and what is kept is right.

use crate::common::{BEGIN, DAY, HOUR, MINUTE, Noise, bytes_in, naive, same};
use eirene_monitoring_store::{Options, Query, Resolution, Sample, SessionId, Store};

/// Length of a session.
const HOURS: i64 = 8;

/// A session's samples by series, with noise that nothing compresses.
fn session(number: u64, series: usize, begin: i64, every: i64) -> Vec<Vec<(i64, f64)>> {
    let mut noise = Noise(number + 1);
    let mut one = || -> Vec<(i64, f64)> {
        (0..HOURS * HOUR / every).map(|i| (begin + i * every, (noise.next() >> 12) as f64)).collect()
    };
    (0..series).map(|_| one()).collect()
}

fn year(sessions: u64, series: usize, every: i64, disk_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_bytes, ..Options::default() };
    let mut store = Store::open(dir.path(), &options).unwrap();
    let names: Vec<String> = (0..series).map(|i| format!("c1/series/{i}")).collect();
    let spread = 360 * DAY / i64::try_from(sessions).unwrap();
    for number in 0..sessions {
        let id = SessionId(u128::from(number).to_be_bytes());
        let begin = BEGIN + i64::try_from(number).unwrap() * spread;
        let all = session(number, series, begin, every);
        for i in 0..all[0].len() {
            let at = begin + i64::try_from(i).unwrap() * every;
            let batch: Vec<Sample<'_>> = names
                .iter()
                .zip(&all)
                .map(|(name, samples)| Sample { name, at_ms: samples[i].0, value: samples[i].1 })
                .collect();
            assert_eq!(store.append(at, id, &batch), series);
            if at % HOUR == 0 {
                store.flush().unwrap();
                store.maintain(at).unwrap();
                assert!(bytes_in(dir.path()) <= disk_bytes);
            }
        }
        store.maintain(begin + 12 * HOUR).unwrap();
        if number % 50 == 49 {
            store.flush().unwrap();
            drop(store);
            store = Store::open(dir.path(), &options).unwrap();
        }
    }
    assert_eq!(store.stats().disk_bytes, bytes_in(dir.path()));
    assert!(store.stats().disk_bytes > disk_bytes / 2, "the disk was never full");
    let ask = |number: u64, span: i64| {
        let begin = BEGIN + i64::try_from(number).unwrap() * spread;
        let session = SessionId(u128::from(number).to_be_bytes());
        let query = Query { session, prefix: "", from_ms: begin, to_ms: begin + span, points: 1000 };
        (store.query(&query).unwrap(), begin)
    };
    // The newest is there, as minutes where those alone fill the disk, an old one too; the oldest went when it was full of others.
    let (last, begin) = ask(sessions - 1, HOUR);
    let all = session(sessions - 1, series, begin, every);
    names
        .iter()
        .zip(&all)
        .for_each(|(name, samples)| same(&last, name, &naive(samples, begin, begin + HOUR, last.step_ms)));
    let kept = (0..sessions).find(|number| !ask(*number, HOURS * HOUR).0.lines.is_empty()).unwrap();
    assert!(kept < sessions / 2, "minutes of less than half a year: from {kept} on");
    for number in [kept + 1, sessions / 2] {
        let (answer, begin) = ask(number, HOURS * HOUR);
        assert_eq!((answer.resolution, answer.step_ms), (Resolution::Minute, MINUTE));
        let all = session(number, series, begin, every);
        for (name, samples) in names.iter().zip(&all) {
            same(&answer, name, &naive(samples, begin, begin + HOURS * HOUR, MINUTE));
        }
    }
}

#[test]
fn a_sampled_year_of_sessions_keeps_the_bound() {
    year(60, 2, 15_000, 1 << 20);
}

#[test]
#[ignore = "minutes: all 200 sessions at five seconds"]
fn a_whole_year_of_sessions_keeps_the_bound() {
    year(200, 8, 5_000, 12 << 20);
}
