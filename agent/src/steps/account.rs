//! Who failed first in a step, from what ranks have said of their ends: its status is the step's.

use crate::ends::{Asked, KILLED, RankEnd, how};
use crate::ranks::{BECAUSE_OF_ANOTHER, BEGINNING};

/// What is known of the ranks that have not ended well, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Account {
    step: u32,
    ends: Vec<Known>,
    /// Whether all nodes have said what they know.
    gathered: bool,
    /// The status of the rank of which it was said that it failed first.
    said: Option<u8>,
}

#[derive(Debug)]
struct Known {
    node: String,
    rank: u32,
    /// None as long as it is only known that its end has begun.
    status: Option<u8>,
    /// Whether nobody had asked it to end.
    sure: bool,
    at: i64,
}

impl Account {
    /// Of the step of this number.
    pub(super) fn of(step: u32) -> Self {
        Self { step, ..Self::default() }
    }

    /// Takes note of what a rank on this node has said.
    pub(super) fn note(&mut self, node: String, end: &RankEnd) {
        if end.step != self.step {
            return;
        }
        let known = self.ends.iter().position(|known| known.rank == end.rank);
        if let Some(known) = known.map(|at| &mut self.ends[at])
            && known.status.is_none()
        {
            known.status = end.status;
        }
        match (known, end.asked) {
            // It has ended well.
            (Some(at), _) if end.status == Some(0) => drop(self.ends.remove(at)),
            (None, _) if end.status == Some(0) => {}
            (Some(at), Asked::Yes) if !self.ends[at].sure => drop(self.ends.remove(at)),
            (Some(at), Asked::No) => self.ends[at].sure = true,
            (None, Asked::No | Asked::Perhaps) => {
                let sure = end.asked == Asked::No;
                let place = self.ends.partition_point(|known| known.at <= end.at);
                self.ends.insert(place, Known { node, rank: end.rank, status: end.status, sure, at: end.at });
            }
            _ => {}
        }
    }

    /// All nodes have said what they know: nobody who failed earlier is still to come.
    pub(super) fn gathered(&mut self) {
        self.gathered = true;
    }

    /// Whether they have.
    pub(super) fn is_gathered(&self) -> bool {
        self.gathered
    }

    /// Whether a rank has failed for reasons of its own: the first may be another one, whose word is on its way.
    pub(super) fn is_failed(&self) -> bool {
        self.ends.iter().any(|known| known.sure && known.blames_nobody())
    }

    /// Whether the first is one of which it is not known yet how it ends.
    pub(super) fn is_awaited(&self) -> bool {
        self.first().is_some_and(|first| first.status.is_none())
    }

    /// Whether it is certain who failed first, and for reasons of its own.
    fn is_settled(&self) -> bool {
        self.gathered && self.first().is_some_and(|first| first.sure && first.blames_nobody())
    }

    /// The rank that failed first and a sentence on it: once, when it is certain, or with what there is at the `end`.
    pub(super) fn sentence(&mut self, end: bool) -> Option<(u32, String)> {
        if self.said.is_some() || !(end || self.is_settled()) {
            return None;
        }
        let first = self.first()?;
        let how =
            first.status.map_or("was the first to be lost, and ended before it could be told how".to_owned(), how);
        let said = (first.rank, format!("rank {} on {} {how}", first.rank, first.node));
        self.said = Some(first.status.unwrap_or(KILLED));
        Some(said)
    }

    /// The status of the rank that failed first.
    pub(super) fn status(&self) -> Option<u8> {
        self.said.or(self.first().map(|first| first.status.unwrap_or(KILLED)))
    }

    /// Who blames another is to blame only where there is no other.
    fn first(&self) -> Option<&Known> {
        let failed_at = self.ends.iter().find(|known| known.status.is_some())?.at;
        // One whose end has only begun counts where it can have been the cause of another's.
        let counts = |known: &&Known| known.status.is_some() || (0..BEGINNING).contains(&(failed_at - known.at));
        self.ends.iter().filter(counts).find(|known| known.blames_nobody()).or(self.ends.iter().find(counts))
    }
}

impl Known {
    /// Whether it has ended for reasons of its own, as far as is known.
    fn blames_nobody(&self) -> bool {
        self.status != Some(BECAUSE_OF_ANOTHER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: u32, status: u8, asked: Asked, at: i64) -> RankEnd {
        RankEnd { step: 7, rank, status: Some(status), asked, at }
    }

    fn beginning(rank: u32, at: i64) -> RankEnd {
        RankEnd { step: 7, rank, status: None, asked: Asked::Perhaps, at }
    }

    #[test]
    fn whose_end_began_first_is_the_first_though_it_ended_later_or_was_not_heard_of_again() {
        for is_heard in [true, false] {
            let mut account = Account::of(7);
            account.note("c2".to_owned(), &beginning(3, 1_000));
            assert!(!account.is_failed() && account.status().is_none(), "nobody has failed");
            account.note("c1".to_owned(), &end(1, 14, Asked::No, 2_000));
            account.gathered();
            assert!(account.is_awaited() && account.sentence(false).is_none());
            let said = if is_heard {
                account.note("c2".to_owned(), &end(3, 139, Asked::No, 1_000));
                account.sentence(false)
            } else {
                account.sentence(true)
            };
            let (rank, said) = said.unwrap();
            assert_eq!((rank, account.status()), (3, Some(if is_heard { 139 } else { 137 })));
            assert_eq!(said.starts_with("rank 3 on c2 was killed by signal SIGSEGV"), is_heard, "{said}");
        }
    }

    #[test]
    fn who_ends_well_or_has_long_closed_what_it_had_is_not_to_blame() {
        let mut account = Account::of(7);
        account.note("c1".to_owned(), &beginning(0, 1_000));
        account.note("c1".to_owned(), &beginning(1, 2_000));
        account.note("c1".to_owned(), &end(1, 0, Asked::No, 2_000));
        account.note("c2".to_owned(), &end(2, 0, Asked::No, 2_500));
        account.note("c2".to_owned(), &end(3, 1, Asked::No, 1_500_000));
        account.gathered();
        assert_eq!(account.sentence(false), Some((3, "rank 3 on c2 ended with status 1".to_owned())));
    }

    fn account(ends: &[(u32, u8, Asked)]) -> Account {
        let mut account = Account::of(7);
        for ((rank, status, asked), at) in ends.iter().zip(1..) {
            account.note(format!("c{}", rank / 2 + 1), &end(*rank, *status, *asked, at));
        }
        account.gathered();
        account
    }

    #[test]
    fn the_first_is_who_ended_first_though_its_node_s_word_came_later() {
        let mut account = Account::of(7);
        account.note("c1".to_owned(), &end(0, 14, Asked::No, 2_000));
        assert!(account.is_failed() && !account.is_settled() && account.sentence(false).is_none());
        account.note("c2".to_owned(), &end(3, 137, Asked::No, 1_000));
        account.note("c2".to_owned(), &end(3, 137, Asked::No, 3_000));
        account.gathered();
        assert_eq!(account.sentence(false), Some((3, "rank 3 on c2 was killed by signal SIGKILL".to_owned())));
        assert_eq!(account.status(), Some(137));
    }

    #[test]
    fn the_rank_that_failed_first_is_said_once_and_its_status_is_the_step_s() {
        let mut account = account(&[(3, 137, Asked::No), (3, 137, Asked::No), (1, 14, Asked::No), (0, 137, Asked::No)]);
        assert_eq!(account.sentence(false), Some((3, "rank 3 on c2 was killed by signal SIGKILL".to_owned())));
        assert_eq!((account.sentence(false), account.sentence(true), account.status()), (None, None, Some(137)));
    }

    #[test]
    fn who_ends_because_of_another_is_blamed_only_when_there_is_no_other() {
        let mut alone = account(&[(0, BECAUSE_OF_ANOTHER, Asked::No), (1, BECAUSE_OF_ANOTHER, Asked::No)]);
        assert!(!alone.is_settled() && alone.sentence(false).is_none());
        assert_eq!(alone.status(), Some(BECAUSE_OF_ANOTHER));
        assert!(alone.sentence(true).unwrap().1.starts_with("rank 0 on c1 ended with status 113"));
        let with_other = account(&[(0, BECAUSE_OF_ANOTHER, Asked::No), (2, 7, Asked::No)]);
        assert!(with_other.is_settled());
        assert_eq!(with_other.status(), Some(7));
    }

    #[test]
    fn a_rank_that_was_asked_to_end_has_not_failed() {
        // The whole step was: each says so a moment later.
        let asked =
            account(&[(0, 143, Asked::Perhaps), (1, 143, Asked::Perhaps), (0, 143, Asked::Yes), (1, 143, Asked::Yes)]);
        assert_eq!(asked.status(), None);
        // Somebody ended this one, and SLURM the others before it was certain.
        let mut killed = account(&[(3, 143, Asked::Perhaps), (1, 14, Asked::No)]);
        assert!(!killed.is_settled() && killed.sentence(false).is_none());
        assert_eq!(killed.sentence(true), Some((3, "rank 3 on c2 was killed by signal SIGTERM".to_owned())));
        killed.note("c2".to_owned(), &end(3, 143, Asked::No, 9));
        assert!(killed.is_settled());
    }

    #[test]
    fn ends_of_other_steps_are_nothing_to_this_one() {
        let mut account = account(&[]);
        account.note("c1".to_owned(), &RankEnd { step: 6, ..end(0, 1, Asked::No, 1) });
        assert_eq!((account.status(), account.sentence(true)), (None, None));
    }
}
