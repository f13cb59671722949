//! Submits that ended in an error without a cause of its own. A site's own submit rules answer so, and so does a lost connection, behind
//! which a job may be on its way. So the first such answer for a name leaves everything open, and the caller looks for the job; only
//! when the next submit of the same name ends alike it counts as a refusal.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use eirene_core::scheduler::{Scheduler, SchedulerError};
use jiff::{SignedDuration, Timestamp};

use crate::calls::unreachable;
use crate::refusals::site_rule;

/// How long a name is remembered: longer than any pause between two submits of it.
const HOLDS: SignedDuration = SignedDuration::from_hours(1);
/// Most names that are remembered.
const MOST: usize = 1024;

/// Names whose last submit ended so, and when.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<HashMap<String, Timestamp>>);

impl Doubts {
    /// What a submit of `name` that ended so means; `said` is what came back.
    pub(crate) async fn judge(
        &self,
        scheduler: &impl Scheduler,
        name: &str,
        now: Timestamp,
        what: &str,
        said: &str,
    ) -> SchedulerError {
        if !self.again(name, now) {
            return unreachable(what, said);
        }
        match scheduler.jobs().await {
            Ok(jobs) if !jobs.ours.iter().any(|job| job.name == name) => {
                SchedulerError::Refused { reason: site_rule() }
            }
            Ok(_) | Err(_) => unreachable(what, said),
        }
    }

    /// Notes the name; whether it was noted before.
    fn again(&self, name: &str, now: Timestamp) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, since| now < *since + HOLDS);
        if !names.contains_key(name) && names.len() >= MOST {
            let oldest = names.iter().min_by_key(|(_, since)| **since).map(|(name, _)| name.clone());
            oldest.and_then(|name| names.remove(&name));
        }
        names.insert(name.to_owned(), now).is_some()
    }

    /// A submit of the name went well.
    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_name_is_remembered_for_a_while_and_until_it_went_well() {
        let doubts = Doubts::default();
        assert!(!doubts.again("eirene-a", at(0)));
        assert!(!doubts.again("eirene-b", at(1)));
        assert!(doubts.again("eirene-a", at(60)));
        doubts.forget("eirene-a");
        assert!(!doubts.again("eirene-a", at(61)));
        assert!(!doubts.again("eirene-b", at(1 + 3600)), "too long ago");
    }

    #[test]
    fn the_oldest_name_makes_room() {
        let doubts = Doubts::default();
        for (name, second) in (0..=MOST).zip(0..) {
            doubts.again(&name.to_string(), at(second));
        }
        assert_eq!(doubts.0.lock().unwrap().len(), MOST);
        assert!(doubts.again("1", at(2000)));
        assert!(!doubts.again("0", at(2000)), "it made room");
    }
}
