//! The store as its caller sees it: what is taken, what is refused, what goes and when.

use crate::common::{BEGIN, DAY, HOUR, MINUTE, SESSION, bytes_in, everything, naive, open, same, sample};
use eirene_monitoring_store::{MOST_NAME_BYTES, Options, Query, Refusal, Resolution, SessionId, Store, StoreError};

fn refused(store: &Store, refusal: Refusal) -> u64 {
    store.stats().refused.into_iter().find(|(reason, _)| *reason == refusal).unwrap().1
}

#[test]
fn samples_come_back_open_closed_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut expected = Vec::new();
    for i in 0..3000_i64 {
        let (at, value) = (BEGIN + i * 5000, (i % 50) as f64 / 10.0);
        assert_eq!(store.append(at, SESSION, &[sample("c1/cpu", at, value)]), 1);
        expected.push((at, value));
        if i % 700 == 0 {
            store.maintain(at).unwrap();
            assert_eq!(everything(&store, SESSION)["c1/cpu"], expected);
        }
        if i % 1100 == 0 {
            store.flush().unwrap();
            drop(store);
            store = open(dir.path());
            assert_eq!(everything(&store, SESSION)["c1/cpu"], expected);
        }
    }
    store.close_chunks(BEGIN + 5 * HOUR).unwrap();
    assert!(store.stats().segments > 0);
    assert_eq!(store.stats().samples, 0);
    assert_eq!(everything(&store, SESSION)["c1/cpu"], expected);
    assert_eq!(store.stats().disk_bytes, bytes_in(dir.path()));
}

#[test]
fn each_reason_refuses_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { sessions: 2, series_per_session: 2, ..Options::default() };
    let store = Store::open(dir.path(), &options).unwrap();
    let now = BEGIN;
    let refuse = |name: &str, at: i64, value: f64, refusal| {
        let before = refused(&store, refusal);
        assert_eq!(store.append(now, SESSION, &[sample(name, at, value)]), 0, "{refusal:?}");
        assert_eq!(refused(&store, refusal), before + 1, "{refusal:?}");
    };
    refuse("", now, 1.0, Refusal::Name);
    refuse(&"x".repeat(MOST_NAME_BYTES + 1), now, 1.0, Refusal::Name);
    refuse("a b", now, 1.0, Refusal::Name);
    refuse("a\u{e4}", now, 1.0, Refusal::Name);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refuse("a", now, value, Refusal::NotFinite);
    }
    refuse("a", now, -1e31, Refusal::Huge);
    refuse("a", now + 6 * MINUTE, 1.0, Refusal::Future);
    refuse("a", i64::MAX, 1.0, Refusal::Future);
    refuse("a", now - 61 * MINUTE, 1.0, Refusal::Past);
    refuse("a", i64::MIN, 1.0, Refusal::Past);
    assert_eq!(store.append(now, SESSION, &[sample("a", now, 1.0), sample("b", now, 1.0)]), 2);
    refuse("a", now, 2.0, Refusal::Duplicate);
    refuse("a", now - 11 * MINUTE, 1.0, Refusal::Late);
    refuse("c", now, 1.0, Refusal::TooManySeries);
    assert_eq!(store.append(now, SessionId([8; 16]), &[sample("a", now, 1.0)]), 1);
    assert_eq!(store.append(now, SessionId([9; 16]), &[sample("a", now, 1.0)]), 0);
    assert_eq!(refused(&store, Refusal::TooManySessions), 1);
    assert_eq!(everything(&store, SESSION)["a"], [(now, 1.0)]);
}

#[test]
fn memory_for_open_chunks_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &Options { memory_bytes: 20_000, ..Options::default() }).unwrap();
    let names: Vec<String> = (0..100).map(|i| format!("series/{i}")).collect();
    for name in &names {
        store.append(BEGIN, SESSION, &[sample(name, BEGIN, 1.0)]);
    }
    assert!(refused(&store, Refusal::TooManySeries) > 0);
    assert_eq!(refused(&store, Refusal::Busy), 0);
    // Samples of the series that there are have the rest, until that is used up too.
    for i in 1..1000 {
        store.append(BEGIN, SESSION, &[sample(&names[0], BEGIN + i, (i as f64).sqrt())]);
        store.append(BEGIN, SESSION, &[sample(&names[1], BEGIN + i, (i as f64).sqrt())]);
    }
    assert!(refused(&store, Refusal::Busy) > 0);
    // A chunk grows by a quarter at a time.
    assert!(store.stats().memory_bytes < 24_000, "{:?}", store.stats());
    // Closing makes room again.
    store.flush().unwrap();
    store.maintain(BEGIN).unwrap();
    store.maintain(BEGIN + 2 * HOUR).unwrap();
    assert_eq!(store.append(BEGIN + 2 * HOUR, SESSION, &[sample("late", BEGIN + 2 * HOUR, 1.0)]), 1);
}

#[test]
fn late_samples_find_their_place_and_a_clock_that_was_set_back_waits() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let put = |at: i64, value: f64| store.append(BEGIN, SESSION, &[sample("a", at, value)]);
    assert_eq!(put(BEGIN, 1.0) + put(BEGIN - 5000, 2.0) + put(BEGIN - 2500, 3.0) + put(BEGIN + 5000, 4.0), 4);
    // The second of each time is refused, in order or not.
    assert_eq!(put(BEGIN - 5000, 9.0) + put(BEGIN + 5000, 9.0) + put(BEGIN - 2500, 9.0), 0);
    assert_eq!(put(BEGIN - HOUR, 9.0), 0);
    let expected = [(BEGIN - 5000, 2.0), (BEGIN - 2500, 3.0), (BEGIN, 1.0), (BEGIN + 5000, 4.0)];
    assert_eq!(everything(&store, SESSION)["a"], expected);
    store.close_chunks(BEGIN).unwrap();
    // What is closed is closed, also for duplicates.
    assert_eq!(put(BEGIN - 2500, 9.0) + put(BEGIN, 9.0) + put(BEGIN - 1, 9.0), 0);
    assert_eq!(put(BEGIN + 5001, 5.0), 1);
    assert_eq!(refused(&store, Refusal::Late), 4);
    assert_eq!(everything(&store, SESSION)["a"][..4], expected);
}

#[test]
fn spans_answer_samples_or_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut samples = Vec::new();
    for i in 0..(DAY / 5000) {
        let (at, value) = (BEGIN + i * 5000, (i * 31 % 1000) as f64 / 8.0);
        store.append(at, SESSION, &[sample("gpu/0/util", at, value), sample("cpu", at, 1.0)]);
        samples.push((at, value));
        if i % 360 == 0 {
            store.flush().unwrap();
            store.maintain(at).unwrap();
        }
    }
    let ask = |from_ms, to_ms, points| {
        store.query(&Query { session: SESSION, prefix: "gpu/", from_ms, to_ms, points }).unwrap()
    };
    let day = ask(BEGIN, BEGIN + DAY, 1000);
    assert_eq!((day.resolution, day.step_ms, day.lines.len()), (Resolution::Minute, 2 * MINUTE, 1));
    same(&day, "gpu/0/util", &naive(&samples, BEGIN, BEGIN + DAY, day.step_ms));
    let hour = ask(BEGIN + 7 * HOUR + 13, BEGIN + 8 * HOUR + 17, 300);
    assert_eq!((hour.resolution, hour.step_ms), (Resolution::Raw, 12_001));
    same(&hour, "gpu/0/util", &naive(&samples, BEGIN + 7 * HOUR + 13, BEGIN + 8 * HOUR + 17, hour.step_ms));
    let last = ask(BEGIN + 23 * HOUR, BEGIN + DAY, u32::MAX);
    same(&last, "gpu/0/util", &naive(&samples, BEGIN + 23 * HOUR, BEGIN + DAY, 1));
    assert!(ask(BEGIN - DAY, BEGIN, 10).lines.is_empty());
    let empty = store.query(&Query { session: SESSION, prefix: "", from_ms: BEGIN, to_ms: BEGIN, points: 5 });
    assert!(matches!(empty, Err(StoreError::Span)));
    let whole = Query { session: SESSION, prefix: "", from_ms: i64::MIN, to_ms: i64::MAX, points: 5 };
    assert!(matches!(store.query(&whole), Err(StoreError::Span)));
}

#[test]
fn a_fine_chart_of_a_long_time_is_of_minutes_where_there_are_many_samples() {
    const SERIES: usize = 32;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let names: Vec<String> = (0..SERIES).map(|i| format!("{}/{i}", if i == 0 { "one" } else { "many" })).collect();
    let mut samples = Vec::new();
    for i in 0..(DAY / 5000) {
        let (at, value) = (BEGIN + i * 5000, (i / 720) as f64);
        let batch: Vec<_> = names.iter().map(|name| sample(name, at, value)).collect();
        assert_eq!(store.append(at, SESSION, &batch), SERIES);
        samples.push((at, value));
        if i % 360 == 0 {
            store.flush().unwrap();
            store.maintain(at).unwrap();
        }
    }
    store.close_chunks(BEGIN + DAY).unwrap();
    let ask = |prefix, from_ms, to_ms| {
        let answer = store.query(&Query { session: SESSION, prefix, from_ms, to_ms, points: 2000 }).unwrap();
        let (name, lines) = (answer.lines[0].name.clone(), answer.lines.len());
        same(&answer, &name, &naive(&samples, from_ms, to_ms, answer.step_ms));
        (lines, answer.resolution, answer.step_ms)
    };
    assert_eq!(ask("", BEGIN, BEGIN + DAY), (SERIES, Resolution::Minute, MINUTE));
    // One series alone is quick to read, and so is an hour of all.
    assert_eq!(ask("one/", BEGIN, BEGIN + DAY), (1, Resolution::Raw, 43_200));
    assert_eq!(ask("", BEGIN + 8 * HOUR, BEGIN + 9 * HOUR), (SERIES, Resolution::Raw, 1800));
}

#[test]
fn samples_go_after_days_and_minutes_stay_for_months() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { seal_ms: HOUR, ..Options::default() };
    let store = Store::open(dir.path(), &options).unwrap();
    let put = |at: i64| {
        store.append(at, SESSION, &[sample("a", at, 1.0), sample("a", at + 1, 3.0)]);
        store.close_chunks(at).unwrap();
        store.maintain(at).unwrap();
    };
    put(BEGIN);
    put(BEGIN + 6 * DAY);
    let ask = || {
        let query = Query { session: SESSION, prefix: "", from_ms: BEGIN, to_ms: BEGIN + 1000, points: 1000 };
        store.query(&query).unwrap()
    };
    assert_eq!(ask().resolution, Resolution::Raw);
    put(BEGIN + 8 * DAY);
    let answer = ask();
    assert_eq!(answer.resolution, Resolution::Minute);
    same(&answer, "a", &naive(&[(BEGIN, 1.0), (BEGIN + 1, 3.0)], BEGIN, BEGIN + 1000, MINUTE));
    assert_eq!(store.series(SESSION).unwrap()[0].first_ms, BEGIN);
    // A clock that leaps a century ahead takes nothing with it.
    store.maintain(BEGIN + 36_500 * DAY).unwrap();
    assert_eq!(ask().lines.len(), 1);
    put(BEGIN + 410 * DAY);
    assert!(ask().lines.is_empty());
}

#[test]
fn a_dropped_session_stays_away_and_its_bytes_go() {
    let dir = tempfile::tempdir().unwrap();
    let other = SessionId([8; 16]);
    let store = open(dir.path());
    for i in 0..1000_i64 {
        let at = BEGIN + i * 5000;
        for session in [SESSION, other] {
            store.append(at, session, &[sample("secret/name", at, i as f64)]);
        }
        if i == 500 {
            store.close_chunks(at).unwrap();
        }
    }
    store.flush().unwrap();
    let before = everything(&store, other);
    store.drop_session(SESSION).unwrap();
    let gone = |store: &Store| {
        assert!(store.series(SESSION).unwrap().is_empty());
        let query = Query { session: SESSION, prefix: "", from_ms: BEGIN, to_ms: BEGIN + DAY, points: 100 };
        assert!(store.query(&query).unwrap().lines.is_empty());
        assert_eq!(everything(store, other), before);
    };
    gone(&store);
    drop(store);
    let store = open(dir.path());
    gone(&store);
    // The session may come again.
    let at = BEGIN + 3 * HOUR;
    assert_eq!(store.append(at, SESSION, &[sample("new", at, 1.0)]), 1);
    for _ in 0..4 {
        store.close_chunks(at).unwrap();
        store.maintain(at).unwrap();
    }
    let holds = |what: &[u8]| {
        let mut files =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.any(|bytes| bytes.windows(what.len()).any(|window| window == what))
    };
    assert!(holds(&other.0), "segments say whose they are");
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.series(SESSION).unwrap().len(), 1);
    assert_eq!(everything(&store, other), before);
    store.drop_session(SESSION).unwrap();
    // The journal has it until chunks are closed.
    assert_eq!(store.append(at, other, &[sample("secret/name", at, 1.0)]), 1);
    store.close_chunks(at).unwrap();
    for _ in 0..4 {
        store.maintain(at).unwrap();
    }
    assert!(!holds(&SESSION.0));
}

#[test]
fn the_directory_is_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(matches!(Store::open(dir.path(), &Options::default()), Err(StoreError::Locked { .. })));
    drop(store);
    open(dir.path());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for options in [
        Options { disk_bytes: 1000, ..Options::default() },
        Options { minutes_ms: DAY, ..Options::default() },
        Options { late_ms: DAY, ..Options::default() },
        Options { sessions: 0, ..Options::default() },
    ] {
        assert!(matches!(Store::open(dir.path(), &options), Err(StoreError::Options { .. })), "{options:?}");
    }
}

#[test]
fn queries_see_whole_series_while_another_thread_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &Options { seal_ms: 20 * MINUTE, ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..6000_i64 {
                let at = BEGIN + i * 5000;
                assert_eq!(store.append(at, SESSION, &[sample("a", at, i as f64)]), 1);
                if i % 60 == 0 {
                    store.flush().unwrap();
                    store.maintain(at).unwrap();
                }
            }
        });
        let mut seen = 0;
        while !writer.is_finished() {
            let samples = everything(&store, SESSION).remove("a").unwrap_or_default();
            // None is missing or twice, whether it is open, on its way or closed, and none is ever lost.
            assert!(samples.iter().zip(0..).all(|(sample, i)| *sample == (BEGIN + i * 5000, i as f64)));
            assert!(samples.len() >= seen);
            seen = samples.len();
        }
    });
    assert_eq!(everything(&store, SESSION)["a"].len(), 6000);
}
