//! What is asked and answered when all is well.

use eirene_core::storage::{
    Ability, Known, Limit, OperationsKind, Place, PoolId, QuotaId, QuotaOf, QuotaRange, Role, StorageError, Why,
};

use crate::benches::{Bench, Trouble};
use crate::contract;

contract! {
    what_it_can_is_what_its_methods_do;
    no_number_stands_for_none;
    unlimited_is_said_and_not_counted;
    the_file_system_of_a_place_is_told;
    what_is_not_there_is_said_by_name;
    a_link_out_of_a_root_is_not_followed;
    projects_are_nobody_s_users;
    what_counts_for_a_person_is_asked_of_homes;
    a_range_without_ids_is_the_caller_s_mistake;
}

/// Whether an answer is what the ability promises.
#[track_caller]
fn keeps<T: std::fmt::Debug>(ability: Ability, answer: &Result<T, StorageError>) {
    let kept = match ability {
        Ability::Yes => answer.is_ok(),
        Ability::No(Why::NotSupported) => matches!(answer, Err(StorageError::Unsupported(_))),
        Ability::No(why) => matches!(answer, Err(StorageError::Refused { why: said, .. }) if *said == why),
        Ability::Unknown => !matches!(answer, Err(StorageError::Unsupported(_))),
    };
    assert!(kept, "{ability:?}: {answer:?}");
}

async fn what_it_can_is_what_its_methods_do(bench: &Bench) {
    let every_trouble = [
        Trouble::TargetAway,
        Trouble::HalfAnswer,
        Trouble::QuotaRefused,
        Trouble::QuotaUnknown,
        Trouble::PoolLost,
        Trouble::Silence,
    ];
    let troubles = [Trouble::None].into_iter().chain(every_trouble);
    for trouble in troubles.filter(|trouble| bench.can_be_in(*trouble)) {
        let storage = bench.with(trouble);
        let can = storage.capabilities().await;
        assert_eq!(can.name, storage.name());
        keeps(can.targets, &storage.targets().await);
        keeps(can.targets, &storage.nodes().await);
        keeps(can.pools, &storage.pools().await);
        keeps(can.quota_read, &storage.quota(QuotaId::User(1000)).await);
        keeps(can.quota_read, &storage.quotas(QuotaRange { of: QuotaOf::User, first: 1000, last: 1000 }).await);
        keeps(can.default_quota, &storage.default_quota(PoolId(1)).await);
        keeps(can.stripe_read, &storage.entry(&Bench::home()).await);
        keeps(can.server_stats, &storage.server_stats(Role::Storage, 3).await);
        keeps(can.user_stats, &storage.operations(Role::Metadata, OperationsKind::Users).await);
        if can.project_quota == Ability::No(Why::NotSupported) && trouble != Trouble::Silence {
            let quota = storage.directory_quota(&Bench::home()).await.unwrap();
            assert_eq!(quota, Known::Missing(Why::NotSupported));
        }
    }
}

async fn no_number_stands_for_none(bench: &Bench) {
    let storage = bench.storage();
    let real = |number: u64| number < i64::MAX as u64;
    for target in storage.targets().await.map(|targets| targets.value).unwrap_or_default() {
        assert!(target.total.value().is_none_or(|total| total.0 > 0 && real(total.0)), "{target:?}");
        assert!(target.inodes_total.value().is_none_or(|total| total.0 > 0 && real(total.0)), "{target:?}");
    }
    for quota in storage.quota(QuotaId::User(1000)).await.map(|quotas| quotas.value).unwrap_or_default() {
        assert!(quota.used.value().is_none_or(|used| real(used.0)), "{quota:?}");
        assert!(!matches!(quota.limit, Known::Known(Limit::At(limit)) if !real(limit.0)), "{quota:?}");
        assert!(!matches!(quota.files_limit, Known::Known(Limit::At(limit)) if !real(limit.0)), "{quota:?}");
    }
}

async fn unlimited_is_said_and_not_counted(bench: &Bench) {
    match bench.storage().default_quota(PoolId(1)).await {
        Err(StorageError::Unsupported(_)) => {}
        other => {
            let quota = other.unwrap();
            assert_eq!(quota.group_size, Known::Known(Limit::Unlimited));
            assert!(matches!(quota.user_size, Known::Known(Limit::At(size)) if size.0 == 50 << 30), "{quota:?}");
        }
    }
}

async fn the_file_system_of_a_place_is_told(bench: &Bench) {
    let storage = bench.storage();
    for place in [Bench::home(), Place::Root("all".parse().unwrap())] {
        let system = storage.file_system(&place).await.unwrap();
        assert!(system.total.0 > 0 && system.available <= system.total, "{system:?}");
        assert!(!system.identity.kind.is_empty() && system.identity.mount_id > 0, "{system:?}");
        assert!(!system.read_only);
        assert_eq!(system.identity, storage.file_system(&place).await.unwrap().identity, "the same place twice");
    }
}

async fn what_is_not_there_is_said_by_name(bench: &Bench) {
    let storage = bench.storage();
    let nowhere = Place::Space { root: "all".parse().unwrap(), name: "nowhere".parse().unwrap(), below: None };
    for place in [nowhere, Place::Root("none".parse().unwrap())] {
        let answer = storage.file_system(&place).await;
        assert!(matches!(answer, Err(StorageError::NoSuchPlace { .. })), "{answer:?}");
    }
}

async fn a_link_out_of_a_root_is_not_followed(bench: &Bench) {
    let out = |below: Option<&str>| Place::Space {
        root: "all".parse().unwrap(),
        name: "out".parse().unwrap(),
        below: below.map(|below| below.parse().unwrap()),
    };
    for place in [out(None), out(Some("etc"))] {
        let answer = bench.storage().file_system(&place).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}

async fn what_counts_for_a_person_is_asked_of_homes(bench: &Bench) {
    for place in [Bench::home(), Place::Root("all".parse().unwrap())] {
        let quota = bench.storage().person_quota(&place).await.unwrap();
        assert_eq!(quota, Known::Missing(Why::NotSupported), "{place:?} is no person's home");
    }
}

async fn projects_are_nobody_s_users(bench: &Bench) {
    let answer = bench.storage().quota(QuotaId::Project(100_000)).await;
    assert!(matches!(answer, Err(StorageError::Unsupported(_))), "{answer:?}");
}

async fn a_range_without_ids_is_the_caller_s_mistake(bench: &Bench) {
    for (first, last) in [(2, 1), (0, QuotaRange::MOST)] {
        let answer = bench.storage().quotas(QuotaRange { of: QuotaOf::User, first, last }).await;
        assert!(matches!(answer, Err(StorageError::Invalid(_) | StorageError::Unsupported(_))), "{answer:?}");
    }
}
