//! BeeGFS's quotas of users and groups, asked for once in a round of looks and shared by its spaces: a question for everybody in a range costs the
//! servers about as much as one for somebody alone. They are asked for where the first space needs them, which none does whose directory has a
//! quota of its own.

use std::collections::BTreeSet;

use eirene_core::storage::{Partial, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, SharedStorage, StorageError, Why};

use crate::storage::snapshot::Trouble;

/// Numbers that nobody has are asked for too where fewer than these lie between two that somebody has.
const GAP: u32 = 1000;

/// What became of a question.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// It was answered: the quotas of whom it was about, once for each pool.
    Quotas(Partial<Vec<Quota>>),
    /// There are none; where the storage said why, this is it.
    None(Option<Why>),
    /// Nothing is known.
    Failed(Trouble),
}

/// What is known of the storage's pools.
#[derive(Debug, Default)]
enum Pools {
    #[default]
    NotAsked,
    /// It does not tell all of them.
    Untold,
    All(Vec<PoolId>),
}

/// The questions of one round. An empty one asks for each space's alone.
#[derive(Debug, Default)]
pub struct QuotaRound {
    asked: Vec<(QuotaRange, Option<Answer>)>,
    pools: Pools,
}

impl QuotaRound {
    /// A round in which these are asked for.
    pub(super) fn of(ids: impl IntoIterator<Item = QuotaId>) -> Self {
        let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for id in ids {
            match id {
                QuotaId::User(number) => users.insert(number),
                QuotaId::Group(number) => groups.insert(number),
                QuotaId::Project(_) => false,
            };
        }
        let ranges = ranges(QuotaOf::User, &users).into_iter().chain(ranges(QuotaOf::Group, &groups));
        Self { asked: ranges.map(|range| (range, None)).collect(), pools: Pools::NotAsked }
    }

    /// The storage's pool, where it is certain that it has one and no other.
    pub(super) async fn only_pool(&mut self, storage: &dyn SharedStorage) -> Option<PoolId> {
        match self.pools(storage).await? {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// Whether the storage is known to have a pool.
    pub(super) async fn has_pool(&mut self, storage: &dyn SharedStorage, pool: PoolId) -> bool {
        self.pools(storage).await.is_some_and(|pools| pools.contains(&pool))
    }

    async fn pools(&mut self, storage: &dyn SharedStorage) -> Option<&[PoolId]> {
        if matches!(self.pools, Pools::NotAsked) {
            self.pools = match storage.pools().await {
                Ok(all) if all.doubts.is_empty() => Pools::All(all.value.iter().map(|pool| pool.id).collect()),
                Ok(_) | Err(_) => Pools::Untold,
            };
        }
        match &self.pools {
            Pools::All(pools) => Some(pools),
            Pools::NotAsked | Pools::Untold => None,
        }
    }

    /// The quotas of `id`: of what was answered before, or asked for now.
    pub(super) async fn quotas(&mut self, storage: &dyn SharedStorage, id: QuotaId) -> Answer {
        let (of, number) = match id {
            QuotaId::User(number) => (QuotaOf::User, number),
            QuotaId::Group(number) => (QuotaOf::Group, number),
            QuotaId::Project(_) => return Answer::None(None),
        };
        let includes = |range: &QuotaRange| range.of == of && (range.first..=range.last).contains(&number);
        let place = self.asked.iter().position(|(range, _)| includes(range)).unwrap_or_else(|| {
            // Somebody who came since the round began.
            self.asked.push((QuotaRange { of, first: number, last: number }, None));
            self.asked.len() - 1
        });
        let Some((range, answer)) = self.asked.get_mut(place) else { return Answer::None(None) };
        let answer = match answer {
            Some(answer) => answer,
            None => answer.insert(ask(storage, *range).await),
        };
        match answer {
            Answer::Quotas(all) => {
                let value = all.value.iter().filter(|quota| quota.id == id).cloned().collect();
                Answer::Quotas(Partial { value, doubts: all.doubts.clone() })
            }
            other => other.clone(),
        }
    }
}

async fn ask(storage: &dyn SharedStorage, range: QuotaRange) -> Answer {
    match storage.quotas(range).await {
        Ok(quotas) => Answer::Quotas(quotas),
        Err(StorageError::Unsupported(_)) => Answer::None(None),
        Err(StorageError::Refused { why, .. }) => Answer::None(Some(why)),
        Err(error) => Answer::Failed(Trouble::from(&error)),
    }
}

/// The fewest ranges that hold all of `numbers`, none of them too long or with a large gap in it.
fn ranges(of: QuotaOf, numbers: &BTreeSet<u32>) -> Vec<QuotaRange> {
    let mut ranges: Vec<QuotaRange> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some(range) if number - range.last <= GAP && number - range.first < QuotaRange::MOST => range.last = number,
            _ => ranges.push(QuotaRange { of, first: number, last: number }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
        let numbers = numbers.into_iter().collect();
        ranges(QuotaOf::User, &numbers).iter().map(|range| (range.first, range.last)).collect()
    }

    #[test]
    fn ranges_hold_everybody_and_no_large_gap() {
        assert_eq!(spans([]), []);
        assert_eq!(spans([1000, 3000, 1001, 2000]), [(1000, 3000)]);
        assert_eq!(spans([1000, 2001, u32::MAX]), [(1000, 1000), (2001, 2001), (u32::MAX, u32::MAX)]);
        let many = spans((0..200).map(|number| number * 1000));
        assert_eq!(many, [(0, 65_000), (66_000, 131_000), (132_000, 197_000), (198_000, 199_000)]);
        assert!(many.iter().all(|(first, last)| last - first < QuotaRange::MOST));
    }
}
