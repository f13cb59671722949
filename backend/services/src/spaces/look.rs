//! A look at one space: what it uses and may use, from the narrowest source that tells.
//!
//! The directory's own quota counts the space and nothing else. Where there is none, what the file system of a person's home or space counts for
//! them does for what they have anywhere on it; and where the space lies on BeeGFS, BeeGFS's quota of its owner or group: of a space elsewhere it
//! says nothing.
//! Where there is none either, only the file system is left: what is free for everybody, which is never called what the space uses. Where nobody
//! counts there, what the space's people had measured of all in it does instead, as old as it is.

use eirene_core::space::{Measurement, Usage, UsageSource};
use eirene_core::storage::{
    FileSystem, Known, Partial, Place, PoolId, Quota, QuotaId, SharedStorage, StorageError, Why,
};
use eirene_core::{Space, SpaceKind, SpaceOwner};

use super::quotas::{Answer, QuotaRound};
use crate::storage::snapshot::{Trouble, TroubleKind, why_missing};

/// What the kernel calls BeeGFS.
pub(super) const BEEGFS: &str = "beegfs";

/// Where a space lies.
pub(crate) fn place_of(space: &Space) -> Place {
    match &space.owner {
        SpaceOwner::Person { name, .. } if space.kind == SpaceKind::Home => Place::Home(name.clone()),
        _ => Place::Space { root: space.root.clone(), name: space.name.clone(), below: None },
    }
}

/// Where the file system can be asked what it counts for the person a space is of; none for a space that is no person's.
fn own_place_of(space: &Space) -> Option<Place> {
    let SpaceOwner::Person { name, .. } = &space.owner else { return None };
    if space.kind == SpaceKind::Home {
        return Some(Place::Home(name.clone()));
    }
    Some(Place::OwnSpace { root: space.root.clone(), name: space.name.clone(), person: name.clone() })
}

/// Looks at a space; `of` is whose quota may be asked for where the directory has none. An error is a look that saw nothing: whoever gets it
/// keeps what was seen before.
pub(super) async fn look(
    storage: &dyn SharedStorage,
    space: &Space,
    of: Option<QuotaId>,
    round: &mut QuotaRound,
) -> Result<Usage, Trouble> {
    let place = &place_of(space);
    let file_system = storage.file_system(place).await.map_err(|error| Trouble::from(&error))?;
    let none = of_file_system(&file_system);
    let why = match storage.directory_quota(place).await {
        Ok(Known::Known(quota)) => return Ok(with_quota(none, UsageSource::ProjectQuota, &quota)),
        Ok(Known::Missing(why)) => why,
        Err(error) => return Err(Trouble::from(&error)),
    };
    let on_beegfs = file_system.identity.kind == BEEGFS;
    if let Some(own) = own_place_of(space).filter(|_| !on_beegfs) {
        match storage.person_quota(&own).await {
            Ok(Known::Known(quota)) => return Ok(with_quota(none, UsageSource::UserQuota, &quota)),
            // What is told of the directory says more of it.
            Ok(Known::Missing(_)) => {}
            // The file system and the directory have just been seen.
            Err(error) => return Ok(Usage { missing: Some(why_missing(&error)), ..none }),
        }
    }
    let Some(of) = of.filter(|_| on_beegfs) else { return Ok(Usage { missing: Some(why), ..none }) };
    let source = match of {
        QuotaId::User(_) => UsageSource::BeegfsUser,
        QuotaId::Group(_) | QuotaId::Project(_) => UsageSource::BeegfsGroup,
    };
    match round.quotas(storage, of).await {
        Answer::Quotas(quotas) => Ok(match in_pool(storage, place, &quotas, round).await? {
            Ok(quota) => with_quota(none, source, quota),
            Err(why) => Usage { missing: Some(why), ..none },
        }),
        Answer::None(said) => Ok(Usage { missing: Some(said.unwrap_or(why)), ..none }),
        Answer::Failed(trouble) => Err(trouble),
    }
}

/// The quota of the pool in which new files of the place lie, or why it is not told. With several pools and no word which, none is the right
/// one; and one that came alone is the only one where the storage has no other, not where the rest of an answer is missing.
///
/// # Errors
/// The pool is in the half of an answer that is missing: nothing was seen.
async fn in_pool<'a>(
    storage: &dyn SharedStorage,
    place: &Place,
    quotas: &'a Partial<Vec<Quota>>,
    round: &mut QuotaRound,
) -> Result<Result<&'a Quota, Why>, Trouble> {
    if let [quota] = &quotas.value[..]
        && (quota.pool.is_none() || quota.pool == round.only_pool(storage).await)
    {
        return Ok(Ok(quota));
    }
    let pool = match pool_of(storage, place).await {
        Ok(pool) => pool,
        Err(why) => return Ok(Err(why)),
    };
    match quotas.value.iter().find(|quota| quota.pool == Some(pool)) {
        Some(quota) => Ok(Ok(quota)),
        None if quotas.doubts.is_empty() && !round.has_pool(storage, pool).await => Ok(Err(Why::NotUnderstood)),
        None => {
            let said = quotas.doubts.first().map_or("nothing of it came", |doubt| doubt.text.as_str());
            Err(Trouble { kind: TroubleKind::Half, text: format!("without storage pool {}: {said}", pool.0) })
        }
    }
}

/// The pool in which new files of a place lie.
async fn pool_of(storage: &dyn SharedStorage, place: &Place) -> Result<PoolId, Why> {
    let entry = storage.entry(place).await.map_err(|error| match error {
        StorageError::Unsupported(_) | StorageError::Invalid(_) => Why::NotSupported,
        StorageError::Refused { why, .. } => why,
        other => why_missing(&other),
    })?;
    let (pool, _) = told(&told(&entry.stripe)?.pool)?;
    Ok(*pool)
}

fn told<T>(value: &Known<T>) -> Result<&T, Why> {
    match value {
        Known::Known(value) => Ok(value),
        Known::Missing(why) => Err(*why),
    }
}

fn of_file_system(seen: &FileSystem) -> Usage {
    Usage {
        source: UsageSource::FileSystem,
        used_bytes: None,
        limit_bytes: None,
        used_files: None,
        limit_files: None,
        total_bytes: Some(seen.total),
        total_files: seen.inodes_total.value().copied(),
        free_bytes: Some(seen.available),
        free_files: seen.inodes_available.value().copied(),
        missing: None,
        measured: None,
    }
}

/// Whether a look saw that nobody counts what the space uses; a storage that only did not answer now counts it all the same.
pub fn nobody_counts(seen: &Usage) -> bool {
    seen.source == UsageSource::FileSystem
        && matches!(seen.missing, Some(Why::NotSupported | Why::NotEnabled | Why::Unlicensed | Why::Refused))
}

/// What was seen, with what was measured where nobody counts. More than the whole file system holds was never measured in earnest.
pub(super) fn with_measured(seen: Usage, measurement: Option<Measurement>) -> Usage {
    let most = seen.total_bytes;
    let believed = measurement.filter(|found| most.is_none_or(|most| found.used_bytes <= most));
    match believed {
        Some(Measurement { used_bytes, used_files, measured }) if nobody_counts(&seen) => Usage {
            source: UsageSource::Measured,
            used_bytes: Some(used_bytes),
            used_files: Some(used_files),
            measured: Some(measured),
            ..seen
        },
        Some(_) | None => seen,
    }
}

fn with_quota(file_system: Usage, source: UsageSource, quota: &Quota) -> Usage {
    let missing = match (quota.used, quota.limit) {
        (Known::Missing(why), _) | (_, Known::Missing(why)) => Some(why),
        (Known::Known(_), Known::Known(_)) => None,
    };
    Usage {
        source,
        used_bytes: quota.used.value().copied(),
        limit_bytes: quota.limit.value().copied(),
        used_files: quota.files_used.value().copied(),
        limit_files: quota.files_limit.value().copied(),
        missing,
        ..file_system
    }
}
