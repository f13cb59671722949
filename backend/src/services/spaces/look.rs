//! A look at one space: what it uses and may use, from the narrowest source that tells.
//!
//! The directory's own quota counts the space and nothing else. Where there is none, what a home's file system counts for its person does for what
//! the person has anywhere on it; and where the space lies on BeeGFS, BeeGFS's quota of its owner or group: of a space elsewhere it says nothing.
//! Where there is none either, only the file system is left: what is free for everybody, which is never called what the space uses.

use eirene_core::space::{Usage, UsageSource};
use eirene_core::storage::{FileSystem, Known, Partial, Place, Quota, QuotaId, SharedStorage, StorageError, Why};
use eirene_core::{Space, SpaceKind, SpaceOwner};

use super::quotas::{Answer, QuotaRound};
use crate::services::storage::snapshot::Trouble;

/// What the kernel calls BeeGFS.
const BEEGFS: &str = "beegfs";

/// Where a space lies.
pub(crate) fn place_of(space: &Space) -> Place {
    match &space.owner {
        SpaceOwner::Person { name, .. } if space.kind == SpaceKind::Home => Place::Home(name.clone()),
        _ => Place::Space { root: space.root.clone(), name: space.name.clone(), below: None },
    }
}

/// Looks at `place`; `of` is whose quota may be asked for where the directory has none. An error is a look that saw nothing: whoever gets it
/// keeps what was seen before.
pub(super) async fn look(
    storage: &dyn SharedStorage,
    place: &Place,
    of: Option<QuotaId>,
    round: &mut QuotaRound,
) -> Result<Usage, Trouble> {
    let file_system = storage.file_system(place).await.map_err(|error| Trouble::from(&error))?;
    let none = of_file_system(&file_system);
    let why = match storage.directory_quota(place).await {
        Ok(Known::Known(quota)) => return Ok(with_quota(none, UsageSource::ProjectQuota, &quota)),
        Ok(Known::Missing(why)) => why,
        Err(error) => return Err(Trouble::from(&error)),
    };
    let on_beegfs = file_system.identity.kind == BEEGFS;
    if matches!(place, Place::Home(_)) && !on_beegfs {
        match storage.person_quota(place).await {
            Ok(Known::Known(quota)) => return Ok(with_quota(none, UsageSource::UserQuota, &quota)),
            // What is told of the directory says more of it.
            Ok(Known::Missing(_)) => {}
            // The file system and the directory have just been seen.
            Err(error) => return Ok(Usage { missing: Some(Trouble::from(&error).kind.why()), ..none }),
        }
    }
    let Some(of) = of.filter(|_| on_beegfs) else { return Ok(Usage { missing: Some(why), ..none }) };
    let source = match of {
        QuotaId::User(_) => UsageSource::BeegfsUser,
        QuotaId::Group(_) | QuotaId::Project(_) => UsageSource::BeegfsGroup,
    };
    match round.quotas(storage, of).await {
        Answer::Quotas(quotas) => Ok(match in_pool(storage, place, &quotas).await {
            Ok(quota) => with_quota(none, source, quota),
            Err(why) => Usage { missing: Some(why), ..none },
        }),
        Answer::None(said) => Ok(Usage { missing: Some(said.unwrap_or(why)), ..none }),
        Answer::Failed(trouble) => Err(trouble),
    }
}

/// The quota of the pool in which new files of the place lie. With several pools and no word which, none is the right one.
async fn in_pool<'a>(
    storage: &dyn SharedStorage,
    place: &Place,
    quotas: &'a Partial<Vec<Quota>>,
) -> Result<&'a Quota, Why> {
    if let [quota] = &quotas.value[..] {
        return Ok(quota);
    }
    let entry = storage.entry(place).await.map_err(|error| match error {
        StorageError::Unsupported(_) | StorageError::Invalid(_) => Why::NotSupported,
        StorageError::Refused { why, .. } => why,
        other => Trouble::from(&other).kind.why(),
    })?;
    let (pool, _) = told(&told(&entry.stripe)?.pool)?;
    quotas.value.iter().find(|quota| quota.pool == Some(*pool)).ok_or(Why::NotUnderstood)
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
