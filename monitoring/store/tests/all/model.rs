//! Any sequence of what can be done with a store gives what a list would.

use std::collections::BTreeMap;

use crate::common::{BEGIN, HOUR, MINUTE, SESSION, naive, same, sample};
use eirene_monitoring_store::{Options, Query, Resolution, SessionId, Store};
use proptest::prelude::*;

const OTHER: SessionId = SessionId([1; 16]);

#[derive(Debug, Clone)]
enum Step {
    /// Samples of one series, each some milliseconds from now.
    Append {
        session: SessionId,
        series: u8,
        samples: Vec<(i64, f64)>,
    },
    Pass(i64),
    Flush,
    Maintain,
    Close,
    Restart,
    Drop(SessionId),
}

fn step() -> impl Strategy<Value = Step> {
    let session = prop_oneof![3 => Just(SESSION), 1 => Just(OTHER)];
    let value = prop_oneof![any::<f64>(), (0_i32..1000).prop_map(|value| f64::from(value) / 10.0)];
    let append = (session.clone(), 0_u8..3, prop::collection::vec((-700_000_i64..310_000, value), 1..20));
    prop_oneof![
        12 => append.prop_map(|(session, series, samples)| Step::Append { session, series, samples }),
        6 => (1_i64..40 * MINUTE).prop_map(Step::Pass),
        2 => Just(Step::Flush),
        4 => Just(Step::Maintain),
        1 => Just(Step::Close),
        2 => Just(Step::Restart),
        1 => session.prop_map(Step::Drop),
    ]
}

type Series = BTreeMap<i64, f64>;

fn check(store: &Store, model: &BTreeMap<(SessionId, String), Series>) {
    for session in [SESSION, OTHER] {
        let mine: Vec<_> = model.iter().filter(|((owner, _), _)| *owner == session).collect();
        assert_eq!(store.series(session).unwrap().len(), mine.len());
        for ((_, name), series) in mine {
            let samples: Vec<(i64, f64)> = series.iter().map(|(at, value)| (*at, *value)).collect();
            let (first, last) = (samples[0].0, samples[samples.len() - 1].0);
            for (from, to, points) in
                [(first, last + 1, u32::MAX), (first - 5, last - 100, 17), (first + 7, last, 1000)]
            {
                if to <= from {
                    continue;
                }
                let answer = store.query(&Query { session, prefix: name, from_ms: from, to_ms: to, points }).unwrap();
                let from = match answer.resolution {
                    Resolution::Raw => from,
                    Resolution::Minute => from.div_euclid(MINUTE) * MINUTE,
                };
                // A minute is either part of an answer or not.
                let to = match answer.resolution {
                    Resolution::Raw => to,
                    Resolution::Minute => (to + MINUTE - 1).div_euclid(MINUTE) * MINUTE,
                };
                same(&answer, name, &naive(&samples, from, to, answer.step_ms));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_a_list(steps in prop::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { seal_ms: HOUR, ..Options::default() };
        let mut store = Store::open(dir.path(), &options).unwrap();
        let mut model: BTreeMap<(SessionId, String), Series> = BTreeMap::new();
        let mut now = BEGIN;
        for step in steps {
            match step {
                Step::Append { session, series, samples } => {
                    let name = format!("c{series}/cpu");
                    for (offset, value) in samples {
                        let at = now + offset;
                        let held = model.get(&(session, name.clone())).and_then(|series| series.get(&at)).is_some();
                        if store.append(now, session, &[sample(&name, at, value)]) == 1 {
                            prop_assert!(!held, "a duplicate was taken");
                            model.entry((session, name.clone())).or_default().insert(at, value);
                        }
                    }
                }
                Step::Pass(time) => now += time,
                Step::Flush => store.flush().unwrap(),
                Step::Maintain => store.maintain(now).unwrap(),
                Step::Close => store.close_chunks(now).unwrap(),
                Step::Restart => {
                    store.flush().unwrap();
                    drop(store);
                    store = Store::open(dir.path(), &options).unwrap();
                }
                Step::Drop(session) => {
                    store.drop_session(session).unwrap();
                    model.retain(|(owner, _), _| *owner != session);
                }
            }
        }
        check(&store, &model);
        prop_assert_eq!(store.stats().damage, 0);
    }
}
