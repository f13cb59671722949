//! Sets of ranks: one word up to 64 ranks, shared words beyond.

use std::rc::Rc;

use crate::ir::Rank;

/// A set of ranks of one schedule.
pub(super) trait RankSet: Clone + PartialEq {
    /// The set of one rank.
    fn one(rank: Rank, ranks: u32) -> Self;
    /// Both together.
    fn union(&self, other: &Self) -> Self;
    /// The lowest rank in both.
    fn common(&self, other: &Self) -> Option<Rank>;
    /// The lowest rank that is not in it.
    fn missing(&self, ranks: u32) -> Option<Rank>;
}

impl RankSet for u64 {
    fn one(rank: Rank, _ranks: u32) -> Self {
        1 << rank
    }

    fn union(&self, other: &Self) -> Self {
        self | other
    }

    fn common(&self, other: &Self) -> Option<Rank> {
        let both = self & other;
        (both != 0).then(|| both.trailing_zeros())
    }

    fn missing(&self, ranks: u32) -> Option<Rank> {
        let first = self.trailing_ones();
        (first < ranks).then_some(first)
    }
}

impl RankSet for Rc<[u64]> {
    fn one(rank: Rank, ranks: u32) -> Self {
        let word = rank / u64::BITS;
        (0..ranks.div_ceil(u64::BITS)).map(|w| if w == word { 1 << (rank % u64::BITS) } else { 0 }).collect()
    }

    fn union(&self, other: &Self) -> Self {
        self.iter().zip(other.iter()).map(|(a, b)| a | b).collect()
    }

    fn common(&self, other: &Self) -> Option<Rank> {
        (0..).zip(self.iter().zip(other.iter())).find_map(|(word, (a, b))| Some(word * u64::BITS + a.common(b)?))
    }

    fn missing(&self, ranks: u32) -> Option<Rank> {
        let first = (0..).zip(self.iter()).find_map(|(word, set)| Some(word * u64::BITS + set.missing(u64::BITS)?));
        first.filter(|first| *first < ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sets_agree() {
        let ranks = 64;
        let build = |members: &[u32]| {
            let small = members.iter().fold(0, |set, rank| set | u64::one(*rank, ranks));
            let large = members
                .iter()
                .map(|rank| Rc::<[u64]>::one(*rank, ranks))
                .reduce(|a, b| a.union(&b))
                .unwrap_or_else(|| Rc::from([0]));
            (small, large)
        };
        let (a, large_a) = build(&[0, 1, 2, 40, 63]);
        let (b, large_b) = build(&[3, 40]);
        assert_eq!(a.common(&b), Some(40));
        assert_eq!(large_a.common(&large_b), Some(40));
        assert_eq!((a.missing(ranks), large_a.missing(ranks)), (Some(3), Some(3)));
        assert_eq!(a.union(&b).missing(ranks), large_a.union(&large_b).missing(ranks));
    }

    #[test]
    fn sets_beyond_a_word_find_what_is_missing_and_what_is_common() {
        let ranks = 130;
        let all = (0..ranks).map(|rank| Rc::<[u64]>::one(rank, ranks)).reduce(|a, b| a.union(&b)).unwrap();
        assert_eq!(all.missing(ranks), None);
        let most = (0..ranks - 1).map(|rank| Rc::<[u64]>::one(rank, ranks)).reduce(|a, b| a.union(&b)).unwrap();
        assert_eq!(most.missing(ranks), Some(129));
        assert_eq!(Rc::<[u64]>::one(100, ranks).common(&all), Some(100));
        assert_eq!(Rc::<[u64]>::one(129, ranks).common(&most), None);
    }
}
