//! What both generations of BeeGFS have in common: how questions are checked before they are asked, how answers of several questions become
//! one, and whether what was set is what is there.

use std::sync::Arc;

use eirene_core::storage::{
    Ability, BeegfsTool, Bytes, DefaultQuota, Doubt, Entry, Files, Known, Limit, NodeId, Partial, Pattern, PoolId,
    Quota, QuotaId, QuotaOf, QuotaRange, Ran, Role, SetStripe, StorageError, Why,
};

use crate::answer::{self, Empty};
use crate::doubts::Doubts;
use crate::noise;
use crate::posix::Look;

/// A generation's tool, whose answers are judged.
pub(crate) struct Tool(pub(crate) Arc<dyn BeegfsTool>);

impl Tool {
    /// What it said, as it is.
    pub(crate) async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError> {
        self.0.run(arguments).await
    }

    /// The rows of its answer.
    pub(crate) async fn ask<T>(
        &self,
        arguments: Vec<String>,
        empty: Empty,
        parse: impl FnOnce(&str) -> Partial<Vec<T>>,
    ) -> Result<Partial<Vec<T>>, StorageError> {
        answer::rows(&self.run(&arguments).await?, empty, parse)
    }

    /// Has it change something.
    pub(crate) async fn change(&self, arguments: Vec<String>) -> Result<(), StorageError> {
        answer::done(&self.run(&arguments).await?)
    }
}

/// What a call that changes nothing says of the ability it tried.
pub(crate) fn ability<T>(answer: &Result<T, StorageError>) -> Ability {
    match answer {
        Ok(_) => Ability::Yes,
        Err(StorageError::Unsupported(_)) => Ability::No(Why::NotSupported),
        Err(StorageError::Refused { why, .. }) => Ability::No(*why),
        Err(_) => Ability::Unknown,
    }
}

/// Users and groups have quotas in BeeGFS; projects are what file systems on one disk have.
pub(crate) fn of(id: QuotaId) -> Result<(QuotaOf, u32), StorageError> {
    match id {
        QuotaId::User(number) => Ok((QuotaOf::User, number)),
        QuotaId::Group(number) => Ok((QuotaOf::Group, number)),
        QuotaId::Project(_) => Err(StorageError::Unsupported("quotas of projects")),
    }
}

/// Refuses ranges that are empty or too large.
pub(crate) fn check_range(range: QuotaRange) -> Result<(), StorageError> {
    match range.last.checked_sub(range.first) {
        Some(more) if more < QuotaRange::MOST => Ok(()),
        _ => Err(StorageError::Invalid(format!("a range of ids has 1 to {} of them", QuotaRange::MOST))),
    }
}

/// Only these servers do work for people.
pub(crate) fn has_work(role: Role) -> Result<(), StorageError> {
    match role {
        Role::Metadata | Role::Storage => Ok(()),
        Role::Management => Err(StorageError::Unsupported("statistics of management servers")),
    }
}

/// That an answer lacks the figures of a server.
pub(crate) fn without_figures(node: &NodeId, why: &str) -> String {
    format!("The figures of {} are missing: {why}", server(node))
}

/// A server as sentences name it.
pub(crate) fn server(node: &NodeId) -> String {
    let role = match node.role {
        Role::Management => "management",
        Role::Metadata => "metadata",
        Role::Storage => "storage",
    };
    format!("{role} server {}", node.number)
}

/// The path of a place within BeeGFS, as its tools take it without a mount. They resolve no links, so only a path that was looked at will do.
pub(crate) fn below_mount(look: &Look) -> Result<String, StorageError> {
    if look.identity.kind != "beegfs" {
        return Err(StorageError::Invalid(format!("`{}` is on {}, not on BeeGFS", look.path, look.identity.kind)));
    }
    let outside = || StorageError::Malformed { what: format!("`{}` is not below `{}`", look.path, look.mount_point) };
    let point = look.mount_point.trim_end_matches('/');
    let rest = look.path.strip_prefix(point).ok_or_else(outside)?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(outside());
    }
    let path = format!("{}{rest}", look.mounted.trim_end_matches('/'));
    let path = if path.is_empty() { "/".to_owned() } else { path };
    if path.len() > 1024 || path.chars().any(char::is_control) || path.contains('\u{fffd}') {
        return Err(StorageError::Invalid(
            "BeeGFS is not asked for a path of more than 1024 bytes or of odd ones".into(),
        ));
    }
    Ok(path)
}

/// Refuses what the servers would refuse, before anything is changed.
pub(crate) fn check_stripe(wanted: &SetStripe) -> Result<(), StorageError> {
    let chunk =
        wanted.chunk.is_none_or(|Bytes(chunk)| chunk.is_power_of_two() && (64 << 10..=1 << 31).contains(&chunk));
    if !chunk {
        return Err(StorageError::Invalid("a chunk is a power of two from 64 KiB to 2 GiB".into()));
    }
    if wanted.targets == Some(0) || *wanted == SetStripe::default() {
        return Err(StorageError::Invalid(
            "a stripe pattern has at least one target, and something is to be changed".into(),
        ));
    }
    Ok(())
}

/// Whether what was asked for is there now.
pub(crate) fn same_stripe(wanted: &SetStripe, entry: &Entry) -> Result<(), StorageError> {
    let same = entry.stripe.value().is_some_and(|stripe| {
        let chunk = wanted.chunk.is_none_or(|chunk| stripe.chunk == Known::Known(chunk));
        let targets = wanted.targets.is_none_or(|targets| stripe.targets_wanted == Known::Known(targets));
        let pool = wanted.pool.is_none_or(|pool| stripe.pool.value().is_some_and(|(id, _)| *id == pool));
        let mirrored = wanted.mirrored.is_none_or(|yes| yes == (stripe.pattern == Pattern::BuddyMirror));
        chunk && targets && pool && mirrored
    });
    if same { Ok(()) } else { Err(not_as_set()) }
}

/// Limits of users or groups out of the default ones.
pub(crate) fn defaults_of(quota: DefaultQuota, of: QuotaOf) -> (Known<Limit<Bytes>>, Known<Limit<Files>>) {
    match of {
        QuotaOf::User => (quota.user_size, quota.user_files),
        QuotaOf::Group => (quota.group_size, quota.group_files),
    }
}

/// Whether the limits that were set are the ones that are there; what was not set is taken as it is.
///
/// # Errors
/// [`StorageError::Malformed`] for another limit, [`StorageError::NotReadBack`] where one is not told and none is another.
pub(crate) fn agree(
    set: (Option<Limit<Bytes>>, Option<Limit<Files>>),
    now: (Known<Limit<Bytes>>, Known<Limit<Files>>),
) -> Result<(), StorageError> {
    match (is_there(set.0, now.0), is_there(set.1, now.1)) {
        (Some(true), Some(true)) => Ok(()),
        (Some(false), _) | (_, Some(false)) => Err(not_as_set()),
        (None, _) | (_, None) => Err(StorageError::NotReadBack { what: "the storage does not tell the limit".into() }),
    }
}

/// Whether a limit that was set is the one that is there; nobody knows of one that is not told.
fn is_there<T: PartialEq>(set: Option<Limit<T>>, now: Known<Limit<T>>) -> Option<bool> {
    match (set, now) {
        (None, _) => Some(true),
        (Some(set), Known::Known(now)) => Some(set == now),
        (Some(_), Known::Missing(_)) => None,
    }
}

fn not_as_set() -> StorageError {
    StorageError::Malformed { what: "what was set is not what is there now".into() }
}

/// The quota of one pool.
pub(crate) fn in_pool(quotas: Partial<Vec<Quota>>, pool: PoolId) -> Result<Quota, StorageError> {
    let found = quotas.value.into_iter().find(|quota| quota.pool == Some(pool));
    found.ok_or_else(|| no_pool(pool, &quotas.doubts))
}

/// That a pool is not in an answer. It is not there where the answer is whole; in half of one it may be in the other half.
pub(crate) fn no_pool(pool: PoolId, doubts: &[Doubt]) -> StorageError {
    match doubts.first() {
        None => StorageError::NoSuchPool(pool),
        Some(doubt) => {
            noise::Trouble::Away.error(&format!("half an answer, without storage pool {}: {}", pool.0, doubt.text))
        }
    }
}

/// The one row of an answer that has one.
pub(crate) fn only<T>(rows: Vec<T>) -> Result<T, StorageError> {
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        _ => Err(StorageError::Malformed { what: "one row was asked for, and not one came".into() }),
    }
}

/// Several answers as one. What fails is a doubt as long as something came; when nothing did, the first failure is the answer.
pub(crate) fn merge<T>(answers: Vec<Result<Partial<Vec<T>>, StorageError>>) -> Result<Partial<Vec<T>>, StorageError> {
    let mut rows = Vec::new();
    let mut doubts = Doubts::default();
    let mut failure = None;
    let mut came = false;
    for answer in answers {
        match answer {
            Ok(part) => {
                came = true;
                rows.extend(part.value);
                doubts.add(part.doubts);
            }
            Err(error) => {
                doubts.whole(&said(&error));
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(error) if !came => Err(error),
        _ => Ok(doubts.with(rows)),
    }
}

/// An error with its cause.
pub(crate) fn said(error: &StorageError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Limits and uses that are not known, for an id that was asked for and did not come.
pub(crate) fn missing_quota(id: QuotaId, pool: Option<PoolId>, why: Why) -> Quota {
    Quota {
        id,
        pool,
        used: Known::Missing(why),
        limit: Known::Missing(why),
        files_used: Known::Missing(why),
        files_limit: Known::Missing(why),
        counted: eirene_core::storage::Counted::ChunkFiles,
        files_at_least: false,
        measured_every_s: Known::Missing(why),
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::storage::Identity;

    use super::*;
    use crate::posix::Room;

    fn look(kind: &str, path: &str, point: &str, mounted: &str) -> Look {
        let room = Room { total: 1, free: 1, available: 1, files: 1, files_free: 1, read_only: false };
        Look {
            path: path.into(),
            directory: room,
            mount: Some(room),
            steady: true,
            project: None,
            mount_point: point.into(),
            mounted: mounted.into(),
            client_version: None,
            own: None,
            identity: Identity {
                kind: kind.into(),
                source: "s".into(),
                root_inode: None,
                marker: None,
                fs_id: 1,
                mount_id: 1,
            },
        }
    }

    #[test]
    fn a_path_is_asked_for_as_beegfs_knows_it() {
        for (path, point, mounted, asked) in [
            ("/beegfs/home/ada", "/beegfs", "/", "/home/ada"),
            ("/beegfs", "/beegfs", "/", "/"),
            ("/home/ada", "/home", "/people", "/people/ada"),
            ("/x", "/", "/", "/x"),
        ] {
            assert_eq!(below_mount(&look("beegfs", path, point, mounted)).unwrap(), asked);
        }
        assert!(below_mount(&look("xfs", "/beegfs/a", "/beegfs", "/")).is_err());
        assert!(below_mount(&look("beegfs", "/beegfs2/a", "/beegfs", "/")).is_err());
        assert!(below_mount(&look("beegfs", "/beegfs/a\nb", "/beegfs", "/")).is_err());
    }

    #[test]
    fn ranges_and_stripes_are_checked_before_anybody_is_asked() {
        let range = |first, last| check_range(QuotaRange { of: QuotaOf::User, first, last });
        assert!(range(0, 65_535).is_ok() && range(5, 5).is_ok());
        assert!(range(0, 65_536).is_err() && range(6, 5).is_err());
        let stripe = |chunk: u64| check_stripe(&SetStripe { chunk: Some(Bytes(chunk)), ..SetStripe::default() });
        assert!(stripe(1 << 20).is_ok());
        assert!(stripe(1 << 15).is_err() && stripe(100_000).is_err() && stripe(1 << 32).is_err());
        assert!(check_stripe(&SetStripe::default()).is_err());
    }

    #[test]
    fn a_pool_that_is_not_in_half_an_answer_may_be_there_all_the_same() {
        let quotas = |doubtful: bool| {
            let mut doubts = Doubts::default();
            if doubtful {
                doubts.whole("a server did not answer");
            }
            doubts.with(vec![missing_quota(QuotaId::User(5), Some(PoolId(1)), Why::NeverMeasured)])
        };
        assert!(in_pool(quotas(true), PoolId(1)).is_ok());
        assert!(matches!(in_pool(quotas(false), PoolId(2)), Err(StorageError::NoSuchPool(PoolId(2)))));
        assert!(matches!(in_pool(quotas(true), PoolId(2)), Err(StorageError::Away { .. })));
    }

    #[test]
    fn a_limit_that_is_another_did_not_stick_and_one_that_is_not_told_was_carried_out() {
        let (ten, seven) = (Limit::At(Bytes(10)), Limit::At(Files(7)));
        let missing = (Known::Missing(Why::NeverMeasured), Known::Missing(Why::NeverMeasured));
        assert!(agree((Some(ten), Some(seven)), (Known::Known(ten), Known::Known(seven))).is_ok());
        assert!(agree((Some(ten), None), (Known::Known(ten), missing.1)).is_ok(), "what was not set stays");
        for (set, now) in [
            ((Some(ten), None), (Known::Known(Limit::Unlimited), missing.1)),
            ((Some(ten), Some(seven)), (missing.0, Known::Known(Limit::Unlimited))),
            ((Some(ten), Some(seven)), (Known::Known(Limit::Unlimited), missing.1)),
        ] {
            assert!(matches!(agree(set, now), Err(StorageError::Malformed { .. })), "{set:?} {now:?}");
        }
        for (set, now) in [
            ((Some(ten), None), missing),
            ((None, Some(seven)), missing),
            ((Some(ten), Some(seven)), (Known::Known(ten), missing.1)),
        ] {
            assert!(matches!(agree(set, now), Err(StorageError::NotReadBack { .. })), "{set:?} {now:?}");
        }
    }

    #[test]
    fn half_answers_are_shown_with_a_doubt_and_none_is_a_failure() {
        let away = || Err(StorageError::Away { source: None, retry_after_s: 1 });
        let merged = merge(vec![away(), Ok(Partial { value: vec![1], doubts: vec![] })]).unwrap();
        assert_eq!((merged.value, merged.doubts.len()), (vec![1], 1));
        assert!(matches!(merge::<u8>(vec![away(), away()]), Err(StorageError::Away { .. })));
    }
}
