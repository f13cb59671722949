//! Forecasts for those who see a part of the cluster: worked out once a look, too, for all whom the same part concerns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::concern::Concern;
use super::forecast::Forecast;

/// Most parts of one look that are remembered. A site has as many as its partitions are closed to different groups, and a few of people whose sessions
/// run where they may not start any more; what comes beyond that is worked out each time.
const MOST_PARTS: usize = 256;

type Forecasts = Arc<BTreeMap<String, Forecast>>;

/// What has been worked out of one look. A copy of that look begins anew, because something else may be put into it.
#[derive(Debug, Default)]
pub struct AheadOfParts {
    known: Mutex<BTreeMap<Concern, Arc<OnceLock<Forecasts>>>>,
}

impl Clone for AheadOfParts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl AheadOfParts {
    /// The forecasts for this concern, by `work_out` where nobody else has asked for them. Who comes meanwhile waits for the one who works.
    pub(super) fn of(&self, concern: Concern, work_out: impl FnOnce() -> BTreeMap<String, Forecast>) -> Forecasts {
        let place = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() < MOST_PARTS {
                Some(Arc::clone(known.entry(concern).or_default()))
            } else {
                known.get(&concern).cloned()
            }
        };
        match place {
            Some(place) => Arc::clone(place.get_or_init(|| Arc::new(work_out()))),
            None => Arc::new(work_out()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cluster::Snapshot;
    use crate::testing;

    /// One who may use the partition of this name alone.
    fn concern(name: &str) -> Concern {
        let mut cluster = testing::snapshot(vec![]);
        let mut partition = cluster.partitions[0].clone();
        partition.name = name.parse().unwrap();
        cluster.partitions = Arc::new(vec![partition]);
        Concern::of(&cluster, None, &[])
    }

    #[test]
    fn what_is_remembered_is_bounded_and_never_another_ones() {
        let (ahead, worked) = (AheadOfParts::default(), Cell::new(0_usize));
        let waited_for = |ahead: &AheadOfParts, number: u32| {
            let forecasts = ahead.of(concern(&format!("p{number}")), || {
                worked.set(worked.get() + 1);
                BTreeMap::from([("a100".to_owned(), Forecast { steps: vec![], waiting: number })])
            });
            forecasts["a100"].waiting
        };
        let many = u32::try_from(MOST_PARTS).unwrap() + 10;
        for _ in 0..2 {
            for number in 0..many {
                assert_eq!(waited_for(&ahead, number), number);
            }
        }
        assert_eq!(worked.get(), MOST_PARTS + 20, "the last ten have no place");
        assert_eq!(ahead.known.lock().unwrap().len(), MOST_PARTS);
    }

    #[test]
    fn a_copy_of_a_look_knows_nothing_of_what_was_worked_out() {
        let whole = testing::snapshot(vec![]);
        whole.ahead_of_parts.of(concern("p"), BTreeMap::new);
        let copy = Snapshot { reachable: false, ..whole.clone() };
        assert_eq!(whole.ahead_of_parts.known.lock().unwrap().len(), 1);
        assert!(copy.ahead_of_parts.known.lock().unwrap().is_empty());
    }
}
