//! Any mounted file system: how full it is, whether it is the one that was there before, and the quota of a directory where the kernel
//! tells it to everybody.
//!
//! This only judges. Looking is a [`Probe`]'s, because a mount that hangs hangs whoever looks at it, and because homes are hidden from the
//! portal. Of users' quotas a person's own is told, of a home that its person looks at: the kernel tells people nobody else's. Everybody's are told
//! by a probe that has root ask, and of network file systems none.

mod counted;
mod local;
mod mounts;
mod patience;

use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::name::RootName;
use eirene_core::storage::{
    Ability, Bytes, Capabilities, Counted, FileSystem, Files, Identity, KernelQuotas, Known, Limit, Partial, Place,
    Quota, QuotaId, QuotaOf, QuotaRange, SharedStorage, StorageError, Why,
};
use serde::{Deserialize, Serialize};

use crate::beegfs::{ability, check_range, of};

pub use local::{LocalProbe, look_at, look_at_own};

/// What a look at a directory saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The directory with all links resolved.
    pub path: String,
    /// statvfs(3) of the directory.
    pub directory: Room,
    /// statvfs(3) of its mount point; `None` where something else is mounted over that.
    pub mount: Option<Room>,
    /// The mount point counted the same inodes before and after the directory was asked: XFS makes them as needed, so their number moves.
    pub steady: bool,
    /// Project id and whether what is made below gets it, where the file system has project ids.
    pub project: Option<Project>,
    /// Mount point.
    pub mount_point: String,
    /// The directory of the file system that is mounted there, `/` for all of it.
    pub mounted: String,
    /// Version of the kernel module that mounted it, where that is not the kernel's own: of BeeGFS alone it is looked for.
    #[serde(default)]
    pub client_version: Option<String>,
    /// What the file system counts for whoever looked; only asked of a home, by the person whose it is.
    #[serde(default)]
    pub own: Option<Own>,
    /// Which file system.
    pub identity: Identity,
}

/// What statvfs(3) says, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Room {
    /// Size.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Free for who is not root.
    pub available: u64,
    /// Inodes; 0 where the file system does not count them.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Mounted read-only.
    pub read_only: bool,
}

/// `FS_IOC_FSGETXATTR`: the project of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// Number; 0 is none.
    pub id: u32,
    /// What is made in the directory belongs to the project.
    pub inherited: bool,
}

/// quotactl(2) of whoever looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Own {
    /// It was told.
    Told(OwnQuota),
    /// It was not.
    Missing(Why),
}

/// What a file system counts for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnQuota {
    /// Whose.
    pub uid: u32,
    /// Used, bytes.
    pub used: u64,
    /// The soft limit of bytes where there is one, else the hard one; `None` for none.
    pub limit: Option<u64>,
    /// Inodes used.
    pub files: u64,
    /// As `limit`, of inodes.
    pub files_limit: Option<u64>,
}

/// What came of a look, as the program `eirene-look` writes it for whoever started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Seen {
    /// It was seen.
    Look(Box<Look>),
    /// Nothing is there.
    NoSuchPlace {
        /// What was looked for.
        path: String,
    },
    /// Whoever looked may not.
    Refused {
        /// Why.
        text: String,
    },
    /// It does not answer.
    Away {
        /// What it said.
        text: String,
    },
}

impl From<Result<Look, StorageError>> for Seen {
    fn from(looked: Result<Look, StorageError>) -> Self {
        match looked {
            Ok(look) => Self::Look(Box::new(look)),
            Err(StorageError::NoSuchPlace { path }) => Self::NoSuchPlace { path },
            Err(StorageError::Refused { text, .. }) => Self::Refused { text },
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                Self::Away { text: cause.unwrap_or_else(|| error.to_string()) }
            }
        }
    }
}

impl Seen {
    /// The look, or the error it was.
    ///
    /// # Errors
    /// As [`Probe::look`].
    pub fn into_look(self) -> Result<Look, StorageError> {
        Err(match self {
            Self::Look(look) => return Ok(*look),
            Self::NoSuchPlace { path } => StorageError::NoSuchPlace { path },
            Self::Refused { text } => StorageError::Refused { why: Why::Refused, text },
            Self::Away { text } => StorageError::Away { source: Some(text.into()), retry_after_s: 10 },
        })
    }
}

/// Looks at places. [`LocalProbe`] looks from this process, and sees what that may see; the launcher looks as the person.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// One look. Without an answer in time it is [`StorageError::Away`].
    async fn look(&self, place: &Place) -> Result<Look, StorageError>;

    /// The roots of spaces that it knows.
    fn roots(&self) -> Vec<RootName> {
        Vec::new()
    }

    /// What the file system of a root counts for users or groups. [`StorageError::Unsupported`] where it counts for nobody, or nobody is there who may
    /// ask.
    async fn counted(&self, root: &RootName, range: QuotaRange) -> Result<KernelQuotas, StorageError> {
        let _ = (root, range);
        Err(StorageError::Unsupported(counted::WHAT))
    }
}

/// The port over a mounted file system.
pub struct Posix {
    probe: Arc<dyn Probe>,
}

impl Posix {
    /// Judges what `probe` sees.
    pub fn new(probe: Arc<dyn Probe>) -> Self {
        Self { probe }
    }

    /// One look, for adapters that need the path of a place.
    pub(crate) async fn look(&self, place: &Place) -> Result<Look, StorageError> {
        self.probe.look(place).await
    }
}

#[async_trait]
impl SharedStorage for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    async fn capabilities(&self) -> Capabilities {
        let root = QuotaRange { of: QuotaOf::User, first: 0, last: 0 };
        let quota_read = ability(&self.quotas(root).await);
        // Whether a directory has a quota is each directory's own affair.
        Capabilities { quota_read, project_quota: Ability::Unknown, ..Capabilities::none("posix") }
    }

    async fn file_system(&self, place: &Place) -> Result<FileSystem, StorageError> {
        Ok(file_system(self.look(place).await?))
    }

    async fn directory_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        Ok(directory_quota(&self.look(place).await?))
    }

    async fn person_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        Ok(person_quota(&self.look(place).await?))
    }

    async fn quota(&self, id: QuotaId) -> Result<Partial<Vec<Quota>>, StorageError> {
        let (of, number) = of(id)?;
        self.quotas(QuotaRange { of, first: number, last: number }).await
    }

    async fn quotas(&self, range: QuotaRange) -> Result<Partial<Vec<Quota>>, StorageError> {
        check_range(range)?;
        let mut answers = Vec::new();
        for root in self.probe.roots() {
            let answer = self.probe.counted(&root, range).await;
            answers.push((root, answer));
        }
        counted::quotas(answers, range)
    }
}

/// The file system of a look. In a directory with a project quota the kernel gives the project's numbers for the directory, so the mount
/// point's are taken.
fn file_system(look: Look) -> FileSystem {
    let room = look.mount.unwrap_or(look.directory);
    let counted = |files| if room.files == 0 { Known::Missing(Why::NotSupported) } else { Known::Known(Files(files)) };
    FileSystem {
        total: Bytes(room.total),
        available: Bytes(room.available),
        inodes_total: counted(room.files),
        inodes_available: counted(room.files_free),
        read_only: look.directory.read_only,
        client_version: look.client_version,
        identity: look.identity,
    }
}

/// File systems whose statvfs(3) of a directory with a project answers for the project.
const WITH_PROJECTS: [&str; 2] = ["xfs", "ext4"];

/// The quota of the directory of a look.
///
/// XFS and ext4 answer statvfs(3) of a directory that hands its project on with the project's limit as size and what is left of it as free
/// (the soft limit where there is one); so everybody may read it. Without a limit they answer as for the mount point, which is how one knows.
/// What is used is then not told.
fn directory_quota(look: &Look) -> Known<Quota> {
    let (Some(project), Some(mount)) = (look.project, look.mount) else { return Known::Missing(Why::NotSupported) };
    if !WITH_PROJECTS.contains(&look.identity.kind.as_str()) {
        return Known::Missing(Why::NotSupported);
    }
    if project.id == 0 || !project.inherited {
        return Known::Missing(Why::NotEnabled);
    }
    let directory = look.directory;
    let (sized, other) = (directory.total != mount.total, directory.files != mount.files && directory.files != 0);
    let counted = other && look.steady;
    if !sized && !counted {
        return Known::Missing(if other { Why::DidNotAnswer } else { Why::NotEnabled });
    }
    let no_limit = Known::Missing(Why::NotEnabled);
    let used = |total: u64, free: u64| total.checked_sub(free).ok_or(Why::NotUnderstood);
    Known::Known(Quota {
        id: QuotaId::Project(project.id),
        pool: None,
        used: if sized { known(used(directory.total, directory.free).map(Bytes)) } else { no_limit },
        limit: Known::Known(if sized { Limit::At(Bytes(directory.total)) } else { Limit::Unlimited }),
        files_used: if counted { known(used(directory.files, directory.files_free).map(Files)) } else { no_files() },
        files_limit: match (counted, other) {
            (true, _) => Known::Known(Limit::At(Files(directory.files))),
            (false, false) => Known::Known(Limit::Unlimited),
            // Whether it is a limit or the file system's own number that moved, nobody can tell now.
            (false, true) => Known::Missing(Why::DidNotAnswer),
        },
        counted: Counted::Inodes,
        files_at_least: false,
        measured_every_s: Known::Missing(Why::NotSupported),
    })
}

/// The quota of the person of a look.
fn person_quota(look: &Look) -> Known<Quota> {
    let own = match look.own {
        Some(Own::Told(own)) => own,
        Some(Own::Missing(why)) => return Known::Missing(why),
        None => return Known::Missing(Why::NotSupported),
    };
    let limit = |most: Option<u64>| most.map_or(Limit::Unlimited, Limit::At);
    Known::Known(Quota {
        id: QuotaId::User(own.uid),
        pool: None,
        used: Known::Known(Bytes(own.used)),
        limit: Known::Known(limit(own.limit).map(Bytes)),
        files_used: Known::Known(Files(own.files)),
        files_limit: Known::Known(limit(own.files_limit).map(Files)),
        counted: Counted::Inodes,
        files_at_least: false,
        measured_every_s: Known::Missing(Why::NotSupported),
    })
}

fn known<T>(value: Result<T, Why>) -> Known<T> {
    value.map_or_else(Known::Missing, Known::Known)
}

fn no_files() -> Known<Files> {
    Known::Missing(Why::NotEnabled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn room(total: u64, free: u64) -> Room {
        Room { total, free, available: free, files: 1000, files_free: 900, read_only: false }
    }

    /// As measured on XFS: a file system of 336 MiB, in it a directory with a limit of 50 MiB of which 10 are used.
    fn limited() -> Look {
        Look {
            path: "/data/projects/a".into(),
            directory: room(50 * MIB, 40 * MIB),
            mount: Some(room(336 * MIB, 300 * MIB)),
            steady: true,
            project: Some(Project { id: 100_000, inherited: true }),
            mount_point: "/data".into(),
            mounted: "/".into(),
            client_version: None,
            own: None,
            identity: Identity {
                kind: "xfs".into(),
                source: "/dev/sdb1".into(),
                root_inode: Some(128),
                marker: None,
                fs_id: 1,
                mount_id: 2,
            },
        }
    }

    #[test]
    fn a_directory_with_a_project_quota_has_its_numbers_and_the_file_system_has_its_own() {
        let Known::Known(quota) = directory_quota(&limited()) else { panic!() };
        assert_eq!(quota.id, QuotaId::Project(100_000));
        assert_eq!(quota.used, Known::Known(Bytes(10 * MIB)));
        assert_eq!(quota.limit, Known::Known(Limit::At(Bytes(50 * MIB))));
        assert_eq!(quota.files_limit, Known::Known(Limit::Unlimited));
        assert_eq!(quota.files_used, Known::Missing(Why::NotEnabled));
        assert_eq!(file_system(limited()).total, Bytes(336 * MIB));
    }

    #[test]
    fn no_limit_no_project_and_other_file_systems_have_no_quota() {
        let mut look = limited();
        look.directory = look.mount.unwrap();
        assert_eq!(directory_quota(&look), Known::Missing(Why::NotEnabled));
        let mut look = limited();
        look.project = Some(Project { id: 0, inherited: false });
        assert_eq!(directory_quota(&look), Known::Missing(Why::NotEnabled));
        let mut look = limited();
        look.identity.kind = "nfs4".into();
        assert_eq!(directory_quota(&look), Known::Missing(Why::NotSupported));
        let mut look = limited();
        look.mount = None;
        assert_eq!(directory_quota(&look), Known::Missing(Why::NotSupported));
    }

    #[test]
    fn a_limit_of_files_is_believed_only_while_the_file_system_s_own_number_rests() {
        let mut look = limited();
        look.directory.files = 500;
        look.directory.files_free = 480;
        let Known::Known(quota) = directory_quota(&look) else { panic!() };
        assert_eq!(
            (quota.files_used, quota.files_limit),
            (Known::Known(Files(20)), Known::Known(Limit::At(Files(500))))
        );
        look.steady = false;
        let Known::Known(quota) = directory_quota(&look) else { panic!() };
        assert_eq!(quota.files_limit, Known::Missing(Why::DidNotAnswer));
        assert_eq!(quota.limit, Known::Known(Limit::At(Bytes(50 * MIB))));
        look.directory.total = look.mount.unwrap().total;
        assert_eq!(directory_quota(&look), Known::Missing(Why::DidNotAnswer));
    }

    #[test]
    fn what_is_counted_for_a_person_is_told_as_the_kernel_told_it() {
        let mut look = limited();
        assert_eq!(person_quota(&look), Known::Missing(Why::NotSupported));
        look.own = Some(Own::Missing(Why::NotEnabled));
        assert_eq!(person_quota(&look), Known::Missing(Why::NotEnabled));
        look.own = Some(Own::Told(OwnQuota { uid: 2001, used: 0, limit: Some(MIB), files: 7, files_limit: None }));
        let Known::Known(quota) = person_quota(&look) else { panic!() };
        assert_eq!((quota.id, quota.used), (QuotaId::User(2001), Known::Known(Bytes(0))));
        assert_eq!(quota.limit, Known::Known(Limit::At(Bytes(MIB))));
        assert_eq!((quota.files_used, quota.files_limit), (Known::Known(Files(7)), Known::Known(Limit::Unlimited)));
        // It comes from another process, as text; one from before said nothing of it.
        let said = serde_json::to_value(&look).unwrap();
        assert_eq!(serde_json::from_value::<Look>(said.clone()).unwrap(), look);
        let mut before = said;
        before.as_object_mut().unwrap().remove("own");
        assert_eq!(serde_json::from_value::<Look>(before).unwrap().own, None);
    }

    #[test]
    fn more_free_than_there_is_gives_no_usage() {
        let mut look = limited();
        look.directory.free = 51 * MIB;
        let Known::Known(quota) = directory_quota(&look) else { panic!() };
        assert_eq!(quota.used, Known::Missing(Why::NotUnderstood));
    }

    #[test]
    fn a_file_system_that_does_not_count_inodes_has_none_to_show() {
        let mut look = limited();
        look.mount = Some(Room { files: 0, files_free: 0, ..room(336 * MIB, 300 * MIB) });
        assert_eq!(file_system(look).inodes_total, Known::Missing(Why::NotSupported));
    }
}
