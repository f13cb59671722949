//! What is set is read back. The tools' answers do not change here, so what is there already is well set, and everything else did not stick.

use eirene_core::storage::{Bytes, Files, Limit, PoolId, QuotaId, QuotaOf, SetStripe, StorageError};

use crate::benches::{Bench, Trouble};
use crate::contract;

contract! {
    a_limit_that_is_there_afterwards_is_set;
    a_limit_that_did_not_stick_is_said;
    a_limit_that_was_set_and_is_not_told_is_no_other_than_the_one_wanted;
    a_stripe_pattern_is_read_back;
    what_cannot_be_a_stripe_pattern_is_refused_before_anything_is_asked;
}

/// Well, or a storage that has no such thing.
#[track_caller]
fn well(answer: &Result<(), StorageError>) {
    assert!(matches!(answer, Ok(()) | Err(StorageError::Unsupported(_))), "{answer:?}");
}

#[track_caller]
fn did_not_stick(answer: &Result<(), StorageError>) {
    assert!(matches!(answer, Err(StorageError::Malformed { .. } | StorageError::Unsupported(_))), "{answer:?}");
}

async fn a_limit_that_is_there_afterwards_is_set(bench: &Bench) {
    let storage = bench.storage();
    let (size, files) = (Limit::At(Bytes(10 << 30)), Limit::At(Files(100_000)));
    well(&storage.set_quota(QuotaId::User(1000), None, Some(size), Some(files)).await);
    well(&storage.set_quota(QuotaId::User(1000), Some(PoolId(1)), None, Some(files)).await);
    well(&storage.set_default_quota(PoolId(1), QuotaOf::User, Some(Limit::At(Bytes(50 << 30))), None).await);
}

async fn a_limit_that_did_not_stick_is_said(bench: &Bench) {
    let storage = bench.storage();
    did_not_stick(&storage.set_quota(QuotaId::User(1000), None, Some(Limit::Unlimited), None).await);
    did_not_stick(&storage.set_default_quota(PoolId(1), QuotaOf::User, None, Some(Limit::At(Files(7)))).await);
}

async fn a_limit_that_was_set_and_is_not_told_is_no_other_than_the_one_wanted(bench: &Bench) {
    let storage = bench.with(Trouble::QuotaUnknown);
    let answer = storage.set_quota(QuotaId::User(1000), None, Some(Limit::Unlimited), None).await;
    let expected = match storage.name() {
        "posix" => matches!(answer, Err(StorageError::Unsupported(_))),
        // 7 has to know the other limit before it changes one: nothing was carried out.
        "beegfs7" => matches!(answer, Err(StorageError::Malformed { .. })),
        _ => matches!(answer, Err(StorageError::NotReadBack { .. })),
    };
    assert!(expected, "{answer:?}");
}

async fn a_stripe_pattern_is_read_back(bench: &Bench) {
    let storage = bench.storage();
    let wanted =
        SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(2), pool: Some(PoolId(1)), mirrored: Some(false) };
    well(&storage.set_stripe(&Bench::home(), &wanted).await);
    let other = SetStripe { targets: Some(4), ..wanted };
    did_not_stick(&storage.set_stripe(&Bench::home(), &other).await);
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
