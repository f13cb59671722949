//! Very many series: what they take of memory, whose fault it is when that runs short, and what becomes of those that end.

use crate::common::{BEGIN, HOUR, MINUTE, SESSION, sample};
use eirene_monitoring_store::{Options, Refusal, Sample, SessionId, Store};

/// Milliseconds between two samples of a series.
const EVERY: i64 = 5000;

fn refused(store: &Store, refusal: Refusal) -> u64 {
    store.stats().refused.into_iter().find(|(reason, _)| *reason == refusal).unwrap().1
}

/// Has the store do what it does every few seconds.
fn round(store: &Store, now: i64) {
    store.flush().unwrap();
    store.maintain(now).unwrap();
}

fn session(number: usize) -> SessionId {
    SessionId(u128::try_from(number).unwrap().to_be_bytes())
}

/// Sessions that all sample at the same moments, but for one they all say ten minutes later, when chunks have been closed.
fn window_holds(sessions: usize, series: usize, memory_bytes: usize) {
    const LEFT_OUT: i64 = 60;
    const TICKS: i64 = 175;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &Options { memory_bytes, disk_bytes: 4 << 30, ..Options::default() }).unwrap();
    let names: Vec<String> = (0..series).map(|i| format!("cpu/cpu_seconds/c1/{i}")).collect();
    let append = |now: i64, at_ms: i64, number: usize| {
        // Fractions, as most of what is sampled is: they take three times what whole numbers do.
        let value = |place: usize| ((i64::try_from(place).unwrap() * 31 + at_ms / EVERY * 17) % 101) as f64 / 10.0;
        let batch: Vec<Sample<'_>> =
            names.iter().enumerate().map(|(place, name)| Sample { name, at_ms, value: value(place) }).collect();
        assert_eq!(store.append(now, session(number), &batch), series, "{:?}", store.stats());
    };
    for tick in (0..TICKS).filter(|tick| *tick != LEFT_OUT) {
        let now = BEGIN + tick * EVERY;
        for number in 0..sessions {
            append(now, now, number);
            // The disk takes what comes in the meantime, as it does every few seconds.
            if tick == 0 && number % 50 == 49 {
                store.flush().unwrap();
            }
        }
        round(&store, now);
        assert!(store.stats().memory_bytes < memory_bytes, "{:?}", store.stats());
    }
    let stats = store.stats();
    assert_eq!(stats.series, sessions * series);
    assert!(stats.segments > 0, "nothing was closed: {stats:?}");
    assert!(stats.segments < 20, "closed again and again: {stats:?}");
    let late = BEGIN + LEFT_OUT * EVERY;
    let now = BEGIN + TICKS * EVERY;
    assert!(now - late < 10 * MINUTE);
    for number in 0..sessions {
        append(now, late, number);
    }
    assert!(store.stats().refused.iter().all(|(_, count)| *count == 0), "{:?}", store.stats());
}

#[test]
fn late_samples_are_taken_where_there_is_little_more_memory_than_their_window_takes() {
    window_holds(15, 90, 5 << 19);
}

#[test]
#[ignore = "minutes: 42 million samples"]
fn late_samples_are_taken_of_250_000_series_that_sample_every_five_seconds() {
    window_holds(250, 1000, 512 << 20);
}

#[test]
fn series_that_end_leave_memory_and_what_is_late_for_them_is_still_known() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), &Options { memory_bytes: 256 << 10, ..Options::default() }).unwrap();
    // A process a tick, each of which has one sample, beside one that stays.
    let mut most = 0;
    let ticks = 3 * HOUR / EVERY;
    for tick in 0..ticks {
        let now = BEGIN + tick * EVERY;
        let name = format!("processes/cpu_process/c1/{tick}:python3");
        let batch = [sample("cpu/cpu_seconds/c1", now, tick as f64), sample(&name, now, 1.0)];
        assert_eq!(store.append(now, SESSION, &batch), 2, "{tick}: {:?}", store.stats());
        if tick % 12 == 0 {
            round(&store, now);
        }
        most = most.max(store.stats().series);
    }
    assert!(most < 500, "{most} series are open");
    let now = BEGIN + (ticks - 1) * EVERY;
    let ended = ticks - HOUR / 2 / EVERY;
    let name = format!("processes/cpu_process/c1/{ended}:python3");
    let at = BEGIN + ended * EVERY;
    for at in [at, at - 1] {
        assert_eq!(store.append(now, SESSION, &[sample(&name, at, 2.0)]), 0);
    }
    assert_eq!(refused(&store, Refusal::Late), 2);
    // What it says later is taken, and so is as old a sample of a series that never was.
    assert_eq!(store.append(now, SESSION, &[sample(&name, at + 1, 2.0), sample("new", at, 3.0)]), 2);
    // Once everything is over nothing is left.
    round(&store, now + 3 * HOUR);
    round(&store, now + 6 * HOUR);
    let stats = store.stats();
    assert_eq!((stats.sessions, stats.series, stats.samples, stats.memory_bytes), (0, 0, 0, 0));
}

#[test]
fn who_makes_too_many_series_is_refused_before_everybody_else() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { memory_bytes: 1 << 20, ..Options::default() };
    let store = Store::open(dir.path(), &options).unwrap();
    let names: Vec<String> = (0..options.series_per_session).map(|i| format!("processes/{i}")).collect();
    let batch = |at_ms: i64, many: usize| -> Vec<Sample<'_>> {
        names.iter().take(many).map(|name| Sample { name, at_ms, value: 1.0 }).collect()
    };
    let taken = store.append(BEGIN, session(0), &batch(BEGIN, names.len()));
    assert!(taken > 1000 && taken < names.len(), "{taken}");
    assert_eq!(refused(&store, Refusal::TooManySeries), (names.len() - taken) as u64);
    // The others have what was left, and what it has goes on.
    for number in 1..4 {
        assert_eq!(store.append(BEGIN, session(number), &batch(BEGIN, 100)), 100, "{:?}", store.stats());
    }
    assert_eq!(store.append(BEGIN + EVERY, session(0), &batch(BEGIN + EVERY, taken)), taken);
    assert_eq!(refused(&store, Refusal::Busy), 0);
    // And the last one that comes, too, has to leave something.
    assert!(store.append(BEGIN, session(4), &batch(BEGIN, names.len())) < 150);
}
