//! What is set is read back. The answers of stand-ins do not change, so what is there already is well set, and everything else did not stick. Real
//! servers keep what they are told.

use std::sync::{Arc, Mutex};

use eirene_core::storage::{
    Bytes, Entry, Files, Known, Limit, PoolId, QuotaId, QuotaOf, SetStripe, SharedStorage, StorageError,
};

use crate::benches::{Bench, Trouble, bench, captured, seven};
use crate::contract;

contract! {
    a_limit_that_is_there_afterwards_is_set;
    another_limit_is_there_afterwards_or_it_is_said_that_it_did_not_stick;
    a_stripe_pattern_is_read_back;
    what_cannot_be_a_stripe_pattern_is_refused_before_anything_is_asked;
    [
        a_limit_that_is_not_the_one_wanted_did_not_stick;
    ]
}

/// Well, or a storage that has no such thing.
#[track_caller]
fn well(answer: &Result<(), StorageError>) {
    assert!(matches!(answer, Ok(()) | Err(StorageError::Unsupported(_))), "{answer:?}");
}

/// Well where it is kept, and else that it did not stick; or a storage that has no such thing.
#[track_caller]
fn kept_or_said(bench: &Bench, answer: &Result<(), StorageError>) {
    if bench.is_real() {
        assert!(answer.is_ok(), "{answer:?}");
    } else {
        assert!(matches!(answer, Err(StorageError::Malformed { .. } | StorageError::Unsupported(_))), "{answer:?}");
    }
}

/// The limits of user 1000 in the first pool, on a storage that has some and whose they are to set: what is only mounted tells them and no more.
async fn limits(storage: &Arc<dyn SharedStorage>) -> Option<(Known<Limit<Bytes>>, Known<Limit<Files>>)> {
    if storage.name() == "posix" {
        return None;
    }
    let quotas = match storage.quota(QuotaId::User(1000)).await {
        Err(StorageError::Unsupported(_)) => return None,
        other => other.unwrap().value,
    };
    let quota = quotas.into_iter().find(|quota| quota.pool == Some(PoolId(1))).unwrap();
    Some((quota.limit, quota.files_limit))
}

async fn a_limit_that_is_there_afterwards_is_set(bench: &Bench) {
    let storage = bench.storage();
    let (size, files) = (Limit::At(Bytes(10 << 30)), Limit::At(Files(100_000)));
    well(&storage.set_quota(QuotaId::User(1000), None, Some(size), Some(files)).await);
    well(&storage.set_quota(QuotaId::User(1000), Some(PoolId(1)), None, Some(files)).await);
    if let Some(told) = limits(&storage).await {
        assert_eq!(told, (Known::Known(size), Known::Known(files)));
    }
    well(&storage.set_default_quota(PoolId(1), QuotaOf::User, Some(Limit::At(Bytes(50 << 30))), None).await);
}

async fn another_limit_is_there_afterwards_or_it_is_said_that_it_did_not_stick(bench: &Bench) {
    let storage = bench.storage();
    let before = limits(&storage).await;
    kept_or_said(bench, &storage.set_quota(QuotaId::User(1000), None, Some(Limit::Unlimited), None).await);
    let expected =
        before.map(|(size, files)| (if bench.is_real() { Known::Known(Limit::Unlimited) } else { size }, files));
    assert_eq!(limits(&storage).await, expected, "what is not named stays");
    let seven = Some(Limit::At(Files(7)));
    kept_or_said(bench, &storage.set_default_quota(PoolId(1), QuotaOf::User, None, seven).await);
}

#[tokio::test]
async fn a_default_limit_of_beegfs_7_is_taken_from_root_again() {
    static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let bench = bench(Some("beegfs"), |probe, trouble| {
        let noted = |arguments: &[String], trouble| {
            ASKED.lock().unwrap().push(arguments.join(" "));
            captured(arguments, trouble)
        };
        seven(noted, trouble, probe)
    });
    let fifty = Some(Limit::At(Bytes(50 << 30)));
    bench.storage().set_default_quota(PoolId(1), QuotaOf::User, fifty, None).await.unwrap();
    let changes: Vec<_> = ASKED.lock().unwrap().iter().filter(|asked| asked.starts_with("--set")).cloned().collect();
    let expected = [
        "--setquota --default --uid --sizelimit=53687091200 --inodelimit=unlimited --storagepoolid=1",
        "--setquota --uid 0 --sizelimit=unlimited --inodelimit=unlimited --storagepoolid=1",
    ];
    assert_eq!(changes, expected);
}

async fn a_limit_that_is_not_the_one_wanted_did_not_stick(bench: &Bench) {
    let storage = bench.with(Trouble::QuotaUnknown);
    let answer = storage.set_quota(QuotaId::User(1000), None, Some(Limit::Unlimited), None).await;
    let expected = match storage.name() {
        "posix" => matches!(answer, Err(StorageError::Unsupported(_))),
        // 7 has to know the other limit before it changes one: nothing was carried out. 8 tells limits also of who uses nothing, and the
        // stand-in keeps none.
        _ => matches!(answer, Err(StorageError::Malformed { .. })),
    };
    assert!(expected, "{answer:?}");
}

async fn a_stripe_pattern_is_read_back(bench: &Bench) {
    let storage = bench.storage();
    let entry = async || -> Option<Entry> {
        match storage.entry(&Bench::home()).await {
            Err(StorageError::Unsupported(_)) => None,
            other => Some(other.unwrap()),
        }
    };
    let wanted =
        SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(2), pool: Some(PoolId(1)), mirrored: Some(false) };
    well(&storage.set_stripe(&Bench::home(), &wanted).await);
    let before = entry().await;
    let other = SetStripe { chunk: Some(Bytes(2 << 20)), targets: Some(4), ..wanted };
    kept_or_said(bench, &storage.set_stripe(&Bench::home(), &other).await);
    let there = if bench.is_real() { other } else { wanted };
    if let Some(now) = entry().await {
        let stripe = now.stripe.value().unwrap();
        assert_eq!(
            (stripe.chunk.value(), stripe.targets_wanted.value()),
            (there.chunk.as_ref(), there.targets.as_ref())
        );
    }
    well(&storage.set_stripe(&Bench::home(), &wanted).await);
    assert_eq!(entry().await, before, "it was put back");
}

async fn what_cannot_be_a_stripe_pattern_is_refused_before_anything_is_asked(bench: &Bench) {
    for wanted in [
        SetStripe::default(),
        SetStripe { chunk: Some(Bytes(1000)), ..SetStripe::default() },
        SetStripe { targets: Some(0), ..SetStripe::default() },
    ] {
        let answer = bench.storage().set_stripe(&Bench::home(), &wanted).await;
        assert!(matches!(answer, Err(StorageError::Invalid(_) | StorageError::Unsupported(_))), "{answer:?}");
    }
}
