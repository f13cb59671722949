//! What Zabbix has not taken yet: in order, and no more than is worth keeping.

use std::collections::{BTreeMap, VecDeque};

use eirene_zabbix::{Value, batches};
use jiff::{SignedDuration, Timestamp};

use super::items::Round;

/// Values that are kept while Zabbix is away; the oldest go first. A site with 2,000 sessions has 15,000 a round.
pub(super) const MOST_WAITING: usize = 50_000;

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Value>,
    /// What each discovery rule was last told, and when.
    told: BTreeMap<&'static str, (String, Timestamp)>,
}

impl Outbox {
    /// Adds what was seen; says how many older values had to go. What a discovery rule was told within `again` is not told again.
    pub(super) fn push(&mut self, round: Round, host: &str, at: Timestamp, again: SignedDuration) -> u64 {
        let ns = u32::try_from(at.subsec_nanosecond()).unwrap_or_default();
        let value = |key: String, value: String| Value { host: host.to_owned(), key, value, clock: at.as_second(), ns };
        for (key, rows) in round.discoveries {
            let is_known = |(last, then): &(String, Timestamp)| *last == rows && at.duration_since(*then).abs() < again;
            if !self.told.get(key).is_some_and(is_known) {
                self.waiting.push_back(value(key.to_owned(), rows.clone()));
                self.told.insert(key, (rows, at));
            }
        }
        self.waiting.extend(round.values.into_iter().map(|(key, text)| value(key, text)));
        let over = self.waiting.len().saturating_sub(MOST_WAITING);
        self.waiting.drain(..over);
        over as u64
    }

    /// What goes next.
    pub(super) fn batch(&mut self) -> Vec<Value> {
        batches(self.waiting.make_contiguous()).next().unwrap_or_default().to_vec()
    }

    /// The first `count` have arrived.
    pub(super) fn was_taken(&mut self, count: usize) {
        self.waiting.drain(..count.min(self.waiting.len()));
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> u32 {
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start_time;

    const AGAIN: SignedDuration = SignedDuration::from_secs(600);

    fn round(values: usize, rows: &str) -> Round {
        Round {
            values: (0..values).map(|number| (format!("k{number}"), "1".into())).collect(),
            discoveries: vec![("eirene.nodes", rows.into())],
        }
    }

    #[test]
    fn what_waits_is_bounded_and_the_oldest_goes_first() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.push(round(MOST_WAITING - 1, "[]"), "e", start_time(), AGAIN), 0);
        assert_eq!(outbox.push(round(2, "[]"), "e", start_time(), AGAIN), 2);
        assert_eq!(outbox.waiting(), u32::try_from(MOST_WAITING).unwrap());
        assert_eq!(outbox.batch()[0].key, "k1", "the discovery and `k0` were the oldest");
    }

    #[test]
    fn what_was_not_taken_goes_again_and_what_was_does_not() {
        let mut outbox = Outbox::default();
        outbox.push(round(300, "[]"), "e", start_time(), AGAIN);
        let first = outbox.batch();
        assert_eq!((first.len(), &first), (250, &outbox.batch()));
        outbox.was_taken(250);
        assert_eq!(outbox.batch().len(), 51);
        outbox.was_taken(9999);
        assert!(outbox.batch().is_empty());
    }

    #[test]
    fn a_discovery_rule_is_told_what_is_new_and_now_and_then_the_same() {
        let mut outbox = Outbox::default();
        let mut told = |rows: &str, seconds| {
            outbox.push(round(0, rows), "e", start_time() + SignedDuration::from_secs(seconds), AGAIN);
            let many = outbox.waiting();
            outbox.was_taken(usize::try_from(many).unwrap());
            many
        };
        assert_eq!(
            [told("[1]", 0), told("[1]", 60), told("[2]", 120), told("[2]", 719), told("[2]", 720)],
            [1, 0, 1, 0, 1]
        );
    }
}
