//! What the targets of a pool have together. A sum with a hole in it is no sum: it is said to be at least so much.

use eirene_core::storage::{Pool, Role, Target};

/// What the targets of a pool have of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// In all; none where no target tells.
    pub total: Option<u64>,
    /// Free; none where no target tells.
    pub free: Option<u64>,
    /// Not every target of the pool tells both, so that there may be more.
    pub at_least: bool,
    /// What the numbers are rounded to.
    pub precision: u64,
}

impl Sum {
    /// What there is in all and what is free, where every target tells.
    pub fn whole(&self) -> Option<(u64, u64)> {
        self.total.zip(self.free).filter(|_| !self.at_least)
    }
}

/// What a pool has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolRoom {
    /// Bytes.
    pub bytes: Sum,
    /// Files, as the targets count them.
    pub files: Sum,
}

impl PoolRoom {
    /// What those of `targets` have together that are in `pool`. One that is not among them does not tell.
    pub fn of(pool: &Pool, targets: &[Target]) -> Self {
        let storage = targets.iter().filter(|target| target.id.role == Role::Storage);
        let told: Vec<&Target> = storage.filter(|target| pool.targets.contains(&target.id.number)).collect();
        let some_are_silent = told.len() != pool.targets.len();
        let bytes = told.iter().map(|target| {
            let (total, free) = (target.total.value(), target.free.value());
            (total.map(|bytes| bytes.0), free.map(|bytes| bytes.0), target.precision.0)
        });
        let files = told.iter().map(|target| {
            let (total, free) = (target.inodes_total.value(), target.inodes_free.value());
            (total.map(|files| files.0), free.map(|files| files.0), target.inodes_precision.0)
        });
        Self { bytes: sum(some_are_silent, bytes), files: sum(some_are_silent, files) }
    }
}

/// Adds up what each target tells: in all, free, and what that is rounded to.
fn sum(some_are_silent: bool, told: impl Iterator<Item = (Option<u64>, Option<u64>, u64)>) -> Sum {
    let mut sum = Sum { at_least: some_are_silent, ..Sum::default() };
    for (total, free, precision) in told {
        sum.at_least |= total.is_none() || free.is_none();
        sum.total = plus(sum.total, total);
        sum.free = plus(sum.free, free);
        sum.precision = sum.precision.saturating_add(precision);
    }
    sum
}

fn plus(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
        (sum, more) => sum.or(more),
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::{Bytes, Consistency, Files, Known, PoolId, Reach, Room, TargetId, Why};

    use super::*;

    fn target(role: Role, number: u32) -> Target {
        Target {
            id: TargetId { role, number },
            node: Known::Missing(Why::NotSupported),
            alias: None,
            pool: Some(PoolId(1)),
            reach: Reach::Online,
            consistency: Consistency::Good,
            room: Room::Normal,
            total: Known::Known(Bytes(100)),
            free: Known::Known(Bytes(40)),
            inodes_total: Known::Known(Files(10)),
            inodes_free: Known::Known(Files(4)),
            precision: Bytes(2),
            inodes_precision: Files(1),
            last_contact_s: Known::Missing(Why::NotSupported),
        }
    }

    fn pool(targets: &[u32]) -> Pool {
        Pool { id: PoolId(1), name: "Default".into(), targets: targets.to_vec(), mirrors: vec![] }
    }

    #[test]
    fn what_all_tell_is_added_up_and_what_is_not_of_the_pool_is_not() {
        let of_others = [target(Role::Metadata, 1), target(Role::Storage, 3)];
        let targets = [&[target(Role::Storage, 1), target(Role::Storage, 2)][..], &of_others].concat();
        let room = PoolRoom::of(&pool(&[1, 2]), &targets);
        assert_eq!(room.bytes, Sum { total: Some(200), free: Some(80), at_least: false, precision: 4 });
        assert_eq!(room.files, Sum { total: Some(20), free: Some(8), at_least: false, precision: 2 });
        assert_eq!((room.bytes.whole(), room.files.whole()), (Some((200, 80)), Some((20, 8))));
    }

    #[test]
    fn a_pool_of_which_one_target_does_not_tell_has_at_least_what_the_others_have() {
        let silent = Target { inodes_free: Known::Missing(Why::DidNotAnswer), ..target(Role::Storage, 2) };
        let room = PoolRoom::of(&pool(&[1, 2]), &[target(Role::Storage, 1), silent]);
        assert_eq!(room.bytes.whole(), Some((200, 80)), "what it does tell counts");
        assert_eq!((room.files.total, room.files.free, room.files.at_least), (Some(20), Some(4), true));
        assert_eq!(room.files.whole(), None);
        let one_is_not_listed = PoolRoom::of(&pool(&[1, 2]), &[target(Role::Storage, 1)]);
        assert_eq!((one_is_not_listed.bytes.free, one_is_not_listed.bytes.whole()), (Some(40), None));
        assert!(one_is_not_listed.bytes.at_least && one_is_not_listed.files.at_least);
    }

    #[test]
    fn of_a_pool_of_which_nothing_is_told_nothing_is_known() {
        for targets in [&[1][..], &[]] {
            let room = PoolRoom::of(&pool(targets), &[]);
            assert_eq!((room.bytes.total, room.bytes.free, room.bytes.whole()), (None, None, None), "{targets:?}");
            assert_eq!((room.files.total, room.files.free), (None, None));
        }
        let huge = Target { total: Known::Known(Bytes(u64::MAX)), ..target(Role::Storage, 1) };
        let room = PoolRoom::of(&pool(&[1, 2]), &[huge, target(Role::Storage, 2)]);
        assert_eq!(room.bytes.total, Some(u64::MAX), "nothing overflows");
    }
}
