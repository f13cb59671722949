//! What did not come to be as it is wanted is tried again ever more rarely, and at once where something else is wanted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// The first wait after a failure, and the longest.
const FIRST: SignedDuration = SignedDuration::from_mins(1);
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// Who waits, by what `W` was wanted of them when it failed. They are in memory alone: after a restart everything is tried once.
pub struct Waits<K, W> {
    waits: Mutex<HashMap<K, Wait<W>>>,
}

struct Wait<W> {
    wanted: W,
    until: Timestamp,
    pause: SignedDuration,
}

// Not derived: neither keys nor wishes need a default.
impl<K, W> Default for Waits<K, W> {
    fn default() -> Self {
        Self { waits: Mutex::default() }
    }
}

impl<K: Eq + Hash, W: PartialEq> Waits<K, W> {
    /// Whether it is too early to try the same again.
    pub fn has(&self, who: &K, wanted: &W, now: Timestamp) -> bool {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.get(who).is_some_and(|wait| wait.wanted == *wanted && now < wait.until)
    }

    /// Has somebody wait with whom it failed: twice as long as before, where it was the same.
    pub fn add(&self, who: K, wanted: W, now: Timestamp) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waits.get(&who).filter(|before| before.wanted == wanted);
        let pause = before.map_or(FIRST, |before| (before.pause * 2).min(LONGEST));
        waits.insert(who, Wait { wanted, until: now + pause, pause });
    }

    /// Forgets somebody with whom it succeeded: the next failure is a first one.
    pub fn remove(&self, who: &K) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.remove(who);
    }

    /// Forgets all others.
    pub fn keep(&self, is_kept: impl Fn(&K) -> bool) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|who, _| is_kept(who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_waits_twice_as_long_and_nobody_waits_with_another_wish() {
        let waits = Waits::default();
        let mut now = Timestamp::UNIX_EPOCH;
        assert!(!waits.has(&"stars", &1, now));
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            waits.add("stars", 1, now);
            let end = now + SignedDuration::from_mins(minutes);
            assert!(waits.has(&"stars", &1, end - SignedDuration::from_secs(1)), "{minutes}");
            assert!(!waits.has(&"stars", &1, end), "{minutes}");
            assert!(!waits.has(&"stars", &2, now) && !waits.has(&"moons", &1, now));
            now = end;
        }
        waits.add("stars", 2, now);
        assert!(!waits.has(&"stars", &2, now + SignedDuration::from_mins(1)), "it begins anew");
        waits.remove(&"stars");
        assert!(!waits.has(&"stars", &2, now));
        waits.add("stars", 2, now);
        assert!(!waits.has(&"stars", &2, now + SignedDuration::from_mins(1)), "it begins anew after a success, too");
        waits.add("moons", 1, now);
        waits.keep(|who| *who == "moons");
        assert!(!waits.has(&"stars", &2, now) && waits.has(&"moons", &1, now));
    }
}
