//! What file systems count for users and groups, as one answer of the port. Roots that lie on the same one have the same numbers, which are told once.

use eirene_core::name::RootName;
use eirene_core::storage::{
    Bytes, Counted, Files, KernelQuota, KernelQuotas, Known, Limit, Partial, PoolId, Quota, QuotaId, QuotaRange,
    StorageError, Why,
};

use crate::beegfs::said;
use crate::doubts::Doubts;

/// What there is none of where nobody counts.
pub(super) const WHAT: &str = "quotas of users and groups";

/// The quotas of every number of the range on every file system that counts. Where several do, each has a number in a pool's place.
pub(super) fn quotas(
    answers: Vec<(RootName, Result<KernelQuotas, StorageError>)>,
    range: QuotaRange,
) -> Result<Partial<Vec<Quota>>, StorageError> {
    let mut doubts = Doubts::default();
    let mut told: Vec<(RootName, KernelQuotas)> = Vec::new();
    let mut failure = None;
    for (root, answer) in answers {
        match answer {
            Ok(quotas) if told.iter().any(|(_, other)| other.device == quotas.device) => {}
            Ok(quotas) => told.push((root, quotas)),
            // Nobody counts there, as on a network file system: nothing is missing.
            Err(StorageError::Unsupported(_)) => {}
            Err(error) => {
                doubts.whole(&format!("of `{root}` nothing is told: {}", said(&error)));
                failure.get_or_insert(error);
            }
        }
    }
    if told.is_empty() {
        return Err(failure.unwrap_or(StorageError::Unsupported(WHAT)));
    }
    let several = told.len() > 1;
    let mut all = Vec::new();
    for (number, (root, quotas)) in (1..).zip(told) {
        if several {
            doubts.whole(&format!("{number} stands for the file system of `{root}`, which counts for itself"));
        }
        all.extend(of_range(&quotas, several.then_some(PoolId(number)), range, &mut doubts));
    }
    Ok(doubts.with(all))
}

fn of_range(quotas: &KernelQuotas, pool: Option<PoolId>, range: QuotaRange, doubts: &mut Doubts) -> Vec<Quota> {
    let mut all: Vec<Quota> = (range.first..=range.last).map(|id| nothing(range.of.id(id), pool)).collect();
    for row in &quotas.rows {
        let at = row.id.checked_sub(range.first).map(|at| at as usize);
        match at.and_then(|at| all.get_mut(at)) {
            Some(quota) => *quota = counted(row, quota.id, pool),
            None => doubts.whole(&format!("{} was not asked for, and is told all the same", row.id)),
        }
    }
    all
}

/// Whoever is not in the kernel's list has nothing there. What limits them once they have is the file system's default, which it tells of nobody.
fn nothing(id: QuotaId, pool: Option<PoolId>) -> Quota {
    Quota {
        id,
        pool,
        used: Known::Known(Bytes(0)),
        limit: Known::Missing(Why::NeverMeasured),
        files_used: Known::Known(Files(0)),
        files_limit: Known::Missing(Why::NeverMeasured),
        counted: Counted::Inodes,
        files_at_least: false,
        measured_every_s: Known::Missing(Why::NotSupported),
    }
}

fn counted(row: &KernelQuota, id: QuotaId, pool: Option<PoolId>) -> Quota {
    Quota {
        used: Known::Known(Bytes(row.used)),
        limit: limit(row.id, row.limit, Bytes),
        files_used: Known::Known(Files(row.files)),
        files_limit: limit(row.id, row.files_limit, Files),
        ..nothing(id, pool)
    }
}

fn limit<T>(id: u32, most: Option<u64>, of: impl FnOnce(u64) -> T) -> Known<Limit<T>> {
    match most {
        // Root is held by none; XFS keeps there what limits those who have no limits of their own.
        _ if id == 0 => Known::Missing(Why::NotSupported),
        Some(most) => Known::Known(Limit::At(of(most))),
        None => Known::Known(Limit::Unlimited),
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::QuotaOf;

    use super::*;

    const RANGE: QuotaRange = QuotaRange { of: QuotaOf::Group, first: 0, last: 9 };

    fn root(name: &str) -> RootName {
        name.parse().unwrap()
    }

    fn row(id: u32, used: u64, limit: Option<u64>) -> KernelQuota {
        KernelQuota { id, used, limit, files: 3, files_limit: None }
    }

    fn told(device: u64, rows: Vec<KernelQuota>) -> KernelQuotas {
        KernelQuotas { device, rows }
    }

    #[test]
    fn whoever_has_something_is_told_and_whoever_is_not_listed_has_nothing() {
        let rows = vec![row(0, 7, Some(5)), row(4, 4096, Some(8192)), row(9, 1, None)];
        let answer = quotas(vec![(root("a"), Ok(told(1, rows)))], RANGE).unwrap();
        assert_eq!((answer.value.len(), answer.doubts.len()), (10, 0));
        let quota = &answer.value[4];
        assert_eq!((quota.id, quota.pool, quota.counted), (QuotaId::Group(4), None, Counted::Inodes));
        assert_eq!((quota.used, quota.limit), (Known::Known(Bytes(4096)), Known::Known(Limit::At(Bytes(8192)))));
        assert_eq!((quota.files_used, quota.files_limit), (Known::Known(Files(3)), Known::Known(Limit::Unlimited)));
        assert_eq!(answer.value[9].limit, Known::Known(Limit::Unlimited));
        let root = &answer.value[0];
        assert_eq!((root.used, root.limit), (Known::Known(Bytes(7)), Known::Missing(Why::NotSupported)));
        let other = &answer.value[5];
        assert_eq!((other.used, other.limit), (Known::Known(Bytes(0)), Known::Missing(Why::NeverMeasured)));
    }

    #[test]
    fn roots_on_one_file_system_are_told_once_and_several_are_told_apart() {
        let answer = |second| {
            let first = told(1, vec![row(4, 10, None)]);
            let second = told(second, vec![row(4, 20, None)]);
            quotas(vec![(root("a"), Ok(first)), (root("b"), Ok(second))], RANGE).unwrap()
        };
        let same = answer(1);
        assert_eq!((same.value.len(), same.value[4].pool, same.doubts.len()), (10, None, 0));
        let apart = answer(2);
        let found: Vec<_> = apart.value.iter().filter(|quota| quota.id == QuotaId::Group(4)).collect();
        assert_eq!((found[0].pool, found[0].used), (Some(PoolId(1)), Known::Known(Bytes(10))));
        assert_eq!((found[1].pool, found[1].used), (Some(PoolId(2)), Known::Known(Bytes(20))), "never a sum");
        assert!(apart.doubts[1].text.contains("`b`"), "{:?}", apart.doubts);
    }

    #[test]
    fn what_tells_nothing_is_a_reason_and_no_number() {
        let unsupported = || Err(StorageError::Unsupported(WHAT));
        let refused = || Err(StorageError::Refused { why: Why::Refused, text: "no capability".into() });
        assert!(matches!(quotas(vec![], RANGE), Err(StorageError::Unsupported(_))));
        assert!(matches!(quotas(vec![(root("a"), unsupported())], RANGE), Err(StorageError::Unsupported(_))));
        let first = quotas(vec![(root("a"), unsupported()), (root("b"), refused())], RANGE);
        assert!(matches!(first, Err(StorageError::Refused { why: Why::Refused, .. })), "{first:?}");
        let half = quotas(vec![(root("a"), refused()), (root("b"), Ok(told(1, vec![])))], RANGE).unwrap();
        assert!(half.doubts[0].text.contains("no capability"), "{:?}", half.doubts);
        let none = quotas(vec![(root("a"), unsupported()), (root("b"), Ok(told(1, vec![])))], RANGE).unwrap();
        assert_eq!(none.doubts, [], "on a network file system there is nothing that would be missing");
        let strange = quotas(vec![(root("a"), Ok(told(1, vec![row(10, 1, None)])))], RANGE).unwrap();
        assert_eq!((strange.value.len(), strange.doubts.len()), (10, 1));
    }
}
