//! A sum over processes that come and go and that never falls.
//!
//! When a process ends and its parent has waited for it, the kernel adds what it used to the parent (`cutime` in proc_pid_stat(5); I/O in
//! kernel/exit.c, `wait_task_zombie`), so it is still in the sum. Where the parent ignores its children or has ended before them, it goes
//! to nobody of the job: then what was last seen of it is kept here.

use std::collections::HashMap;

/// What is known of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// When it began; with the number it is one process for ever.
    pub(crate) start: u64,
    pub(crate) parent: u32,
    /// Its own and what it has inherited from ended children.
    pub(crate) total: u64,
    /// What rises when a child is waited for: at least the inherited part.
    pub(crate) inherited: u64,
}

/// The sum.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    before: HashMap<u32, Account>,
    lost: u64,
    told: Option<u64>,
}

impl Tally {
    /// The sum now that these processes are there; none as long as there never was one.
    pub(crate) fn sum(&mut self, now: HashMap<u32, Account>) -> Option<u64> {
        self.lost = self.lost.saturating_add(lost(&self.before, &now));
        let living = now.values().fold(self.lost, |sum, account| sum.saturating_add(account.total));
        if !now.is_empty() || self.told.is_some() {
            self.told = Some(self.told.unwrap_or_default().max(living));
        }
        self.before = now;
        self.told
    }
}

/// What ended processes had used and nobody living has inherited.
fn lost(before: &HashMap<u32, Account>, now: &HashMap<u32, Account>) -> u64 {
    let living = |id: &u32| before.get(id).zip(now.get(id)).filter(|(old, new)| old.start == new.start);
    let (mut owed, mut lost) = (HashMap::<u32, u64>::new(), 0_u64);
    for (_, ended) in before.iter().filter(|(id, _)| living(id).is_none()) {
        let mut heir = ended.parent;
        // As long as the heir has ended too, it is that one's heir. The bound is for trees that are no trees.
        for _ in 0..64 {
            match before.get(&heir) {
                Some(account) if living(&heir).is_none() => heir = account.parent,
                _ => break,
            }
        }
        let account = if living(&heir).is_some() { owed.entry(heir).or_default() } else { &mut lost };
        *account = account.saturating_add(ended.total);
    }
    for (heir, owed) in owed {
        let rise = living(&heir).map_or(0, |(old, new)| new.inherited.saturating_sub(old.inherited));
        lost = lost.saturating_add(owed.saturating_sub(rise));
    }
    lost
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of<const N: usize>(accounts: [(u32, u32, u64, u64); N]) -> HashMap<u32, Account> {
        accounts
            .map(|(id, parent, own, inherited)| {
                (id, Account { start: u64::from(id), parent, total: own + inherited, inherited })
            })
            .into()
    }

    #[test]
    fn an_ended_child_is_counted_once_by_whoever_waited() {
        let mut tally = Tally::default();
        assert_eq!(tally.sum(of([])), None);
        assert_eq!(tally.sum(of([(1, 0, 10, 0), (2, 1, 50, 0)])), Some(60));
        // It used ten more before it ended, and its parent five.
        assert_eq!(tally.sum(of([(1, 0, 15, 60)])), Some(75));
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_not_lost() {
        let mut tally = Tally::default();
        assert_eq!(tally.sum(of([(1, 0, 10, 0), (2, 1, 50, 0)])), Some(60));
        assert_eq!(tally.sum(of([(1, 0, 11, 0)])), Some(61));
        assert_eq!(tally.sum(of([])), Some(61));
        assert_eq!(tally.sum(of([(9, 0, 4, 0)])), Some(65));
    }

    #[test]
    fn a_grandchild_that_ends_with_its_parent_is_the_grandparents() {
        let mut tally = Tally::default();
        tally.sum(of([(1, 0, 1, 0), (2, 1, 10, 0), (3, 2, 100, 0)]));
        assert_eq!(tally.sum(of([(1, 0, 1, 110)])), Some(111));
    }

    #[test]
    fn a_number_that_is_given_again_is_another_process() {
        let mut tally = Tally::default();
        tally.sum(of([(2, 1, 50, 0)]));
        let again = HashMap::from([(2, Account { start: 77, parent: 1, total: 3, inherited: 0 })]);
        assert_eq!(tally.sum(again), Some(53));
    }

    proptest! {
        #[test]
        fn the_sum_never_falls(looks in prop::collection::vec(
            prop::collection::hash_map(0u32..8, (0u64..3, 0u32..8, 0u64..100, 0u64..100), 0..8), 1..12,
        )) {
            let mut tally = Tally::default();
            let mut last = None;
            for look in looks {
                let now = look.into_iter().map(|(id, (start, parent, own, inherited))| {
                    (id, Account { start, parent, total: own + inherited, inherited })
                }).collect();
                let sum = tally.sum(now);
                prop_assert!(sum >= last);
                last = sum;
            }
        }
    }
}
