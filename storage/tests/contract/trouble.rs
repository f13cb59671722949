//! Trouble is data: each kind of it is a clear state, and none is a number.

use eirene_core::storage::{Ability, Bytes, Known, Limit, OperationsKind, PoolId, QuotaId, Role, StorageError, Why};

use crate::benches::{Bench, Trouble};
use crate::contract;

contract! {
    a_target_whose_server_is_down_is_listed_without_numbers;
    silence_is_no_answer_and_nothing_else;
    [
        half_an_answer_is_shown_with_its_doubts;
        a_refused_quota_query_is_a_refusal;
        a_quota_of_which_nothing_is_known_is_not_zero;
        half_an_answer_is_not_one_of_the_only_pool;
    ]
}

async fn a_target_whose_server_is_down_is_listed_without_numbers(bench: &Bench) {
    if !bench.can_be_in(Trouble::TargetAway) {
        return;
    }
    let before = match bench.storage().targets().await {
        Err(StorageError::Unsupported(_)) => return,
        other => other.unwrap(),
    };
    let targets = bench.with(Trouble::TargetAway).targets().await.unwrap();
    let away: Vec<_> =
        targets.value.iter().filter(|target| target.total == Known::Missing(Why::DidNotAnswer)).collect();
    // All storage servers are stopped where they are real; a stand-in plays one target without its server.
    let storage_targets = before.value.iter().filter(|target| target.id.role == Role::Storage).count();
    assert_eq!(away.len(), if bench.is_real() { storage_targets } else { 1 }, "{targets:?}");
    for target in away {
        assert_eq!(target.id.role, Role::Storage);
        assert_eq!(target.free, Known::Missing(Why::DidNotAnswer));
        assert_eq!(target.inodes_free, Known::Missing(Why::DidNotAnswer));
    }
    assert!(targets.value.iter().all(|target| target.total != Known::Known(Bytes(0))));
    assert_eq!(targets.value.len(), before.value.len(), "the others are there");
    assert!(!targets.doubts.is_empty());
}

async fn half_an_answer_is_shown_with_its_doubts(bench: &Bench) {
    let nodes = match bench.with(Trouble::HalfAnswer).nodes().await {
        Err(StorageError::Unsupported(_)) => return,
        other => other.unwrap(),
    };
    assert!(!nodes.value.is_empty());
    assert!(!nodes.doubts.is_empty());
}

async fn a_refused_quota_query_is_a_refusal(bench: &Bench) {
    let storage = bench.with(Trouble::QuotaRefused);
    match storage.quota(QuotaId::User(1000)).await {
        Err(StorageError::Unsupported(_)) => return,
        Err(StorageError::Refused { why: Why::Refused, text }) => assert!(text.contains("root"), "{text}"),
        other => panic!("{other:?}"),
    }
    let can = storage.capabilities().await;
    assert_eq!(can.quota_read, Ability::No(Why::Refused));
    // What is only mounted has no limits to set from here, and no targets.
    if storage.name() != "posix" {
        assert_eq!(can.quota_write, Ability::No(Why::Refused));
        assert_eq!(can.targets, Ability::Yes, "the rest goes on");
    }
}

async fn a_quota_of_which_nothing_is_known_is_not_zero(bench: &Bench) {
    match bench.with(Trouble::QuotaUnknown).quota(QuotaId::User(1000)).await {
        Err(error) => {
            assert!(matches!(error, StorageError::Unsupported(_) | StorageError::Malformed { .. }), "{error:?}");
        }
        Ok(quotas) => {
            assert!(quotas.value.iter().all(|quota| quota.used.value().is_none()), "{quotas:?}");
            // Limits are known also of who uses nothing.
            let limits = quotas.value.iter().all(|quota| quota.limit.value().is_some());
            assert!(!quotas.value.is_empty() && (limits || !quotas.doubts.is_empty()), "{quotas:?}");
        }
    }
}

async fn half_an_answer_is_not_one_of_the_only_pool(bench: &Bench) {
    let storage = bench.with(Trouble::PoolLost);
    // What is only mounted has no pools to lose.
    if storage.name() == "posix" {
        return;
    }
    let quotas = match storage.quota(QuotaId::User(1000)).await {
        Err(StorageError::Unsupported(_)) => return,
        other => other.unwrap(),
    };
    assert!(!quotas.doubts.is_empty(), "{quotas:?}");
    let known = |pool: u16| {
        let of_pool = quotas.value.iter().find(|quota| quota.pool == Some(PoolId(pool)));
        of_pool.is_some_and(|quota| quota.used.value().is_some())
    };
    assert!(known(1) && !known(2), "{quotas:?}");
    // The pool is there, whatever half an answer says: nobody is told that it is not.
    let set = storage.set_quota(QuotaId::User(1000), Some(PoolId(2)), Some(Limit::Unlimited), None).await;
    assert!(matches!(set, Err(StorageError::Away { .. } | StorageError::Malformed { .. })), "{set:?}");
}

async fn silence_is_no_answer_and_nothing_else(bench: &Bench) {
    if !bench.can_be_in(Trouble::Silence) {
        return;
    }
    let storage = bench.with(Trouble::Silence);
    let nothing = |error: Option<StorageError>| {
        assert!(matches!(error, Some(StorageError::Away { .. } | StorageError::Unsupported(_))), "{error:?}");
    };
    nothing(storage.targets().await.err());
    nothing(storage.nodes().await.err());
    nothing(storage.pools().await.err());
    nothing(storage.quota(QuotaId::User(1000)).await.err());
    nothing(storage.entry(&Bench::home()).await.err());
    nothing(storage.server_stats(Role::Storage, 3).await.err());
    nothing(storage.operations(Role::Metadata, OperationsKind::Users).await.err());
    let error = storage.file_system(&Bench::home()).await.err();
    assert!(matches!(error, Some(StorageError::Away { .. })), "{error:?}");
    let can = storage.capabilities().await;
    assert!(matches!(can.targets, Ability::Unknown | Ability::No(Why::NotSupported)), "{can:?}");
}
