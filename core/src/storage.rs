//! The port to shared storage: what a mounted file system, or a parallel one behind its own tool, can say of itself.
//!
//! Two rules hold everywhere. A number is a number or it is not there ([`Known`]): nothing answers `0` for "did not answer". And an answer
//! may be doubtful ([`Partial`]): what came is shown with its doubts, and what removes or refuses something needs an answer without any.
//! The adapters in `storage/` implement [`SharedStorage`]; what judges health, levels and policies are the services.

mod values;

use crate::name::{RootName, SpaceName, Username};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use values::{
    Ability, Bytes, Capabilities, Consistency, Counted, DefaultQuota, Doubt, DoubtAbout, Entry, EntryKind, FileSystem,
    Files, Identity, KernelQuota, KernelQuotas, Known, Limit, NodeId, OperationCounts, OperationsKind, OperationsOf,
    Partial, Pattern, Pool, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, Reach, Role, Room, ServerNode, ServerSample,
    SetStripe, Stripe, Target, TargetId, Why,
};

/// A cause of any kind, for the log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no answer; variants are what the caller decides on.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// This storage has no such thing: do not show it.
    #[error("this storage has no {0}")]
    Unsupported(&'static str),
    /// The place is not there.
    #[error("`{path}` is not there")]
    NoSuchPlace {
        /// What was looked for.
        path: String,
    },
    /// There is no such storage pool.
    #[error("there is no storage pool {}", .0.0)]
    NoSuchPool(PoolId),
    /// Rights, a licence, a feature that is off: tell the administrator.
    #[error("the storage refuses: {text}")]
    Refused {
        /// [`Why::Refused`], [`Why::NotEnabled`] or [`Why::Unlicensed`].
        why: Why,
        /// What it said.
        text: String,
    },
    /// Nothing is known; keep the last value and ask again.
    #[error("the storage does not answer; ask again in {retry_after_s} s")]
    Away {
        /// The cause.
        #[source]
        source: Option<BoxError>,
        /// Seconds to wait.
        retry_after_s: u64,
    },
    /// Nothing is known, also not whether what was to be changed was: an answer came that cannot be read, or what was set is not what is there.
    #[error("an answer of the storage was not understood: {what}")]
    Malformed {
        /// What.
        what: String,
    },
    /// It was carried out, and nobody tells what is there now. Only what sets something answers this, and only where nothing else was read back.
    #[error("it was carried out and cannot be read back: {what}")]
    NotReadBack {
        /// What is not told.
        what: String,
    },
    /// The caller's mistake.
    #[error("{0}")]
    Invalid(String),
}

/// A path below a space or a home: relative, not empty, without `.` and `..`, control characters or doubled slashes; at most 1024 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Below(String);

impl Below {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Below {
    type Err = StorageError;
    fn from_str(text: &str) -> Result<Self, StorageError> {
        let climbs = text.split('/').any(|part| matches!(part, "" | "." | ".."));
        if climbs || text.len() > 1024 || text.chars().any(char::is_control) {
            return Err(StorageError::Invalid(
                "a path below a space has names between single slashes, none of them `.` or `..`".into(),
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Below {
    type Error = StorageError;
    fn try_from(text: String) -> Result<Self, StorageError> {
        text.parse()
    }
}

impl From<Below> for String {
    fn from(below: Below) -> Self {
        below.0
    }
}

/// Where: a kind of place, never a path from a request. Whoever looks knows the directories from root's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Place {
    /// A person's home.
    Home(Username),
    /// A directory in a person's home.
    InHome {
        /// Whose home.
        person: Username,
        /// The directory.
        below: Below,
    },
    /// A directory in which spaces are made.
    Root(RootName),
    /// A space, or a directory in it.
    Space {
        /// The root it lies in.
        root: RootName,
        /// Its name.
        name: SpaceName,
        /// The directory, if it is not the space's own.
        below: Option<Below>,
    },
    /// A space as the person sees it whose it is.
    OwnSpace {
        /// The root it lies in.
        root: RootName,
        /// Its name.
        name: SpaceName,
        /// Whose it is.
        person: Username,
    },
}

/// What a program printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Exit status; -1 when ended by a signal.
    pub status: i32,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs the storage's own tool. The program, its configuration and its secrets are the implementor's; the arguments are the adapter's.
#[async_trait]
pub trait BeegfsTool: Send + Sync + 'static {
    /// Runs it once. A program that ended with an error has an answer; [`StorageError::Away`] is for one that could not be run or did not end.
    async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError>;
}

/// Shared storage. Methods for what a storage does not have answer [`StorageError::Unsupported`], which is what they do here.
#[async_trait]
pub trait SharedStorage: Send + Sync + 'static {
    /// The adapter's name: `posix`, `beegfs7` or `beegfs8`.
    fn name(&self) -> &'static str;

    /// What it can, asked now.
    async fn capabilities(&self) -> Capabilities;

    /// The mounted file system a place lies on.
    async fn file_system(&self, place: &Place) -> Result<FileSystem, StorageError>;

    /// The quota of a directory itself. `Missing` where it has none or nobody can tell.
    async fn directory_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError>;

    /// What the file system of a home, or of a space as its person sees it, counts for that person, wherever on it the person's files lie.
    /// `Missing` where it counts nobody's, where nobody could ask, and for any other place.
    async fn person_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        let _ = place;
        Ok(Known::Missing(Why::NotSupported))
    }

    /// All servers.
    async fn nodes(&self) -> Result<Partial<Vec<ServerNode>>, StorageError> {
        Err(StorageError::Unsupported("servers"))
    }

    /// All targets of metadata and storage servers.
    async fn targets(&self) -> Result<Partial<Vec<Target>>, StorageError> {
        Err(StorageError::Unsupported("targets"))
    }

    /// All pools.
    async fn pools(&self) -> Result<Partial<Vec<Pool>>, StorageError> {
        Err(StorageError::Unsupported("pools"))
    }

    /// One user's or group's quota, once for each pool. Mounted file systems have no pools: where several of them count, each has a number in its
    /// place, and the doubts say whose it is.
    async fn quota(&self, id: QuotaId) -> Result<Partial<Vec<Quota>>, StorageError> {
        let _ = id;
        Err(StorageError::Unsupported("quotas of users and groups"))
    }

    /// The quotas of a range, once for each id and pool.
    async fn quotas(&self, range: QuotaRange) -> Result<Partial<Vec<Quota>>, StorageError> {
        let _ = range;
        Err(StorageError::Unsupported("quotas of users and groups"))
    }

    /// The limits of who has none of their own.
    async fn default_quota(&self, pool: PoolId) -> Result<DefaultQuota, StorageError> {
        let _ = pool;
        Err(StorageError::Unsupported("default quotas"))
    }

    /// Sets limits, then reads them back; what is `None` stays, and no pool is the storage's default one. [`StorageError::NotReadBack`] where that was
    /// done and the limits are not told then, as those of who uses nothing; [`StorageError::Malformed`] does not say whether it was.
    async fn set_quota(
        &self,
        id: QuotaId,
        pool: Option<PoolId>,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let _ = (id, pool, size, files);
        Err(StorageError::Unsupported("quotas of users and groups"))
    }

    /// Sets the limits of who has none of their own, then reads them back; what is `None` stays.
    async fn set_default_quota(
        &self,
        pool: PoolId,
        of: QuotaOf,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let _ = (pool, of, size, files);
        Err(StorageError::Unsupported("default quotas"))
    }

    /// What the storage knows of a directory.
    async fn entry(&self, place: &Place) -> Result<Entry, StorageError> {
        let _ = place;
        Err(StorageError::Unsupported("stripe patterns"))
    }

    /// Changes how new files of a directory are spread, then reads it back.
    async fn set_stripe(&self, place: &Place, wanted: &SetStripe) -> Result<(), StorageError> {
        let _ = (place, wanted);
        Err(StorageError::Unsupported("stripe patterns"))
    }

    /// The last `seconds` of the servers of a role; with `0`, each server's last second.
    async fn server_stats(&self, role: Role, seconds: u32) -> Result<Partial<Vec<ServerSample>>, StorageError> {
        let _ = (role, seconds);
        Err(StorageError::Unsupported("statistics of servers"))
    }

    /// Operations by user or client since the servers of a role were started.
    async fn operations(&self, role: Role, of: OperationsKind) -> Result<Partial<Vec<OperationCounts>>, StorageError> {
        let _ = (role, of);
        Err(StorageError::Unsupported("statistics of users"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_space_does_not_leave_it() {
        for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\n", "a\0b", &"a".repeat(1025)] {
            assert!(bad.parse::<Below>().is_err(), "{bad:?}");
        }
        for good in ["a", "a/b c", "...", "ü/<b>"] {
            assert_eq!(good.parse::<Below>().unwrap().as_str(), good);
        }
    }
}
