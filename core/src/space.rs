//! Spaces: directories that people's sessions see, each with an owner, a limit and a policy. What is wanted and what was seen are kept apart,
//! as for sessions. Plain data; who may use a space, when it is full and what a policy does are rules of the services.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::{SpaceId, UserId};
use crate::name::{GroupName, RootName, SpaceName, SpaceTitle, Username};
use crate::session::Reason;
use crate::storage::{Bytes, Files, Identity, Limit, PoolId, QuotaId, Why};

word_enum! {
    /// What a space is for.
    SpaceKind {
        /// A person's home directory, made by the site and not by us.
        Home = "home",
        /// A group's.
        Project = "project",
        /// A person's or a group's, for what is large and can be made again.
        Scratch = "scratch",
        /// Data sets for a group or for everybody, read-only.
        Shared = "shared",
    }
}

word_enum! {
    /// What was last seen of a space.
    SpaceState {
        /// Not made yet.
        Wanted = "wanted",
        /// There.
        Present = "present",
        /// Taken away and kept for a while: nobody reaches it, and it can be brought back.
        Retired = "retired",
        /// Removed. The row stays, so that its number is not used again.
        Gone = "gone",
    }
}

word_enum! {
    /// What is wanted of a space.
    SpaceDesired {
        /// It should be there.
        Present = "present",
        /// It should be taken away, restorably.
        Retired = "retired",
        /// It should be removed.
        Gone = "gone",
    }
}

word_enum! {
    /// What becomes of the limit that the platform sets for a space.
    LimitState {
        /// The platform sets none; what the storage has is the site's own.
        Unset = "none",
        /// It is to be set.
        Wanted = "wanted",
        /// The storage holds it.
        Held = "held",
        /// The storage does not hold it: it is shown, and warned of once it is known what the space uses, from the storage or measured.
        NotHeld = "not_held",
    }
}

word_enum! {
    /// What a space is mostly filled with, for storage that spreads files over targets.
    StripeHint {
        /// Nothing in particular: as the file system does by itself.
        Usual = "usual",
        /// Many small files.
        SmallFiles = "small_files",
        /// Large files, read and written from end to end.
        LargeSequential = "large_sequential",
    }
}

word_enum! {
    /// What becomes of a space's hint.
    HintState {
        /// There is nothing to apply: nothing in particular was said, or where the space lies files are not spread.
        Unset = "none",
        /// It is to be applied.
        Wanted = "wanted",
        /// Files that are made are spread so.
        Applied = "applied",
        /// They are not: the storage would not. It is tried again.
        NotApplied = "not_applied",
    }
}

word_enum! {
    /// How full a space is; later words are fuller.
    Level {
        /// Nobody can tell.
        Unknown = "unknown",
        /// Enough room.
        Ok = "ok",
        /// Above the first threshold.
        Warning = "warning",
        /// Above the second threshold.
        Critical = "critical",
        /// Nothing more can be written.
        Full = "full",
    }
}

word_enum! {
    /// Where the numbers of a space come from, the narrowest first.
    UsageSource {
        /// The quota of the directory itself.
        ProjectQuota = "project_quota",
        /// The owner's quota on the file system, wherever on it the owner's files lie.
        UserQuota = "user_quota",
        /// The owner's quota on BeeGFS, wherever the owner's files lie.
        BeegfsUser = "beegfs_user",
        /// The group's quota on BeeGFS, wherever the group's files lie.
        BeegfsGroup = "beegfs_group",
        /// What one of the space's people had measured of all in it, where the storage counts nothing: as old as it says.
        Measured = "measured",
        /// The whole file system: what is free for everybody, never what this space uses.
        FileSystem = "file_system",
        /// Nothing was said.
        Nothing = "none",
    }
}

/// Whose a space is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpaceOwner {
    /// One person's.
    Person {
        /// Id.
        id: UserId,
        /// Name.
        name: Username,
    },
    /// A POSIX group's.
    Group(GroupName),
    /// Everybody's, to read.
    Everybody,
}

/// Where a space was made: what has to be found there again before anything is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeAt {
    /// Inode of its directory.
    pub inode: u64,
    /// The file system.
    pub identity: Identity,
}

/// Who is limited for the sake of their spaces, where storage counts by person and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitedOwner {
    /// A person.
    Person(UserId),
    /// A POSIX group.
    Group(GroupName),
}

/// What an owner is limited to in a pool for the sake of their spaces there. Nothing that is not written down so is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLimit {
    /// Whose spaces.
    pub owner: LimitedOwner,
    /// Whose quota.
    pub id: QuotaId,
    /// In which pool.
    pub pool: PoolId,
    /// How much.
    pub bytes: Bytes,
    /// By what it was judged, to see whether that is still so; while it is being set instead what else may be set until then, if anything.
    pub judged_by: String,
}

/// A warning that reached the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warned {
    /// Days before the end that it was for.
    pub days: u32,
    /// When it was delivered.
    pub at: Timestamp,
    /// Seconds since then that were counted.
    #[serde(default)]
    pub waited_s: u64,
}

/// A space as the platform knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Id.
    pub id: SpaceId,
    /// A small number that no other space ever has or had: storage that counts by project numbers gets it.
    pub serial: u32,
    /// Name of its directory and in addresses; unique among the spaces that are not gone.
    pub name: SpaceName,
    /// What it is for.
    pub kind: SpaceKind,
    /// What people read.
    pub title: SpaceTitle,
    /// The root it lies in; a home's is [`Space::HOME_ROOT`].
    pub root: RootName,
    /// Whose.
    pub owner: SpaceOwner,
    /// Whether its people may write.
    pub writable: bool,
    /// What it is filled with.
    pub hint: StripeHint,
    /// What becomes of that.
    pub hint_state: HintState,
    /// Why the storage does not spread files so.
    pub hint_said: Option<String>,
    /// What is wanted.
    pub desired: SpaceDesired,
    /// What was last seen.
    pub state: SpaceState,
    /// Whether the storage could not be asked when it was last looked at: `state` is then what was seen before.
    pub undetermined: bool,
    /// Why it is not as wanted.
    pub reason: Option<Reason>,
    /// Where it was made; none for homes and for what is not made yet.
    pub made_at: Option<MadeAt>,
    /// Limit of bytes that the platform sets.
    pub limit_bytes: Limit<Bytes>,
    /// Limit of files that the platform sets.
    pub limit_files: Limit<Files>,
    /// What becomes of that limit.
    pub limit_state: LimitState,
    /// Why the storage does not hold it.
    pub limit_said: Option<String>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Warnings of its end that were delivered.
    pub warned: Vec<Warned>,
    /// When it was retired.
    pub retired_at: Option<Timestamp>,
    /// Before this time a retired space is not removed.
    pub remove_after: Option<Timestamp>,
    /// Seconds that were counted while it is retired.
    pub kept_s: u64,
    /// Until when time was counted: of a space that is retired, or was warned of.
    pub watched_at: Option<Timestamp>,
    /// When its row was made.
    pub created_at: Timestamp,
    /// Grows with every change of the row.
    pub version: i64,
}

impl Space {
    /// The root of homes, which no configured root may be called.
    pub const HOME_ROOT: &str = "home";

    /// The person it belongs to, if it is one person's.
    pub fn owner_id(&self) -> Option<UserId> {
        match &self.owner {
            SpaceOwner::Person { id, .. } => Some(*id),
            SpaceOwner::Group(_) | SpaceOwner::Everybody => None,
        }
    }

    /// Until when it is kept at least if it is retired, by what was counted of that time: where the clock has jumped, or nobody looked, that is later
    /// than it was to be.
    pub fn kept_until(&self) -> Option<Timestamp> {
        let (retired_at, remove_after) = (self.retired_at?, self.remove_after?);
        let kept = SignedDuration::from_secs(i64::try_from(self.kept_s).unwrap_or(i64::MAX));
        let left = remove_after.duration_since(retired_at).saturating_sub(kept);
        let counted = self.watched_at.unwrap_or(retired_at).checked_add(left).unwrap_or(Timestamp::MAX);
        Some(counted.max(remove_after))
    }
}

/// What a look at a space gave. What nobody said is `None`, and is never taken for nothing used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Where the numbers come from.
    pub source: UsageSource,
    /// Used.
    pub used_bytes: Option<Bytes>,
    /// Limit.
    pub limit_bytes: Option<Limit<Bytes>>,
    /// Files used, as the source counts files.
    pub used_files: Option<Files>,
    /// Limit of files.
    pub limit_files: Option<Limit<Files>>,
    /// Size of the whole file system.
    pub total_bytes: Option<Bytes>,
    /// Files that the whole file system takes.
    pub total_files: Option<Files>,
    /// Free on the whole file system, for whoever may write there.
    pub free_bytes: Option<Bytes>,
    /// Files that the whole file system can still take.
    pub free_files: Option<Files>,
    /// Why it is not known what the space uses; of what was measured, why the storage does not tell it.
    pub missing: Option<Why>,
    /// How it was measured, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// Who had a space measured, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Who.
    pub by: UserId,
    /// When that was over.
    pub at: Timestamp,
    /// Whether files with several names may have been counted more than once.
    pub approximate: bool,
}

/// What measuring a whole space to its end came to, when all in it could be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// Bytes on disk of all in it.
    pub used_bytes: Bytes,
    /// Files and directories in it.
    pub used_files: Files,
    /// By whom, and when.
    pub measured: Measured,
}

/// The last look at a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenUsage {
    /// What was seen.
    pub usage: Usage,
    /// How full that is.
    pub level: Level,
    /// The level its owner was last told of, so that nobody is told twice.
    pub told: Level,
    /// When it was seen.
    pub seen_at: Timestamp,
}

/// One point of a space's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSample {
    /// When.
    pub at: Timestamp,
    /// Used.
    pub used_bytes: Bytes,
    /// Files used, where they were counted.
    pub used_files: Option<Files>,
    /// Limit, where there was one.
    pub limit_bytes: Option<Bytes>,
}

word_enum! {
    /// What was seen of a space that may lead to its end.
    EvidenceKind {
        /// Its owner is not in the user database.
        PersonAbsent = "person_absent",
    }
}

/// How often something was seen, and since when. Nothing is removed without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// What.
    pub what: EvidenceKind,
    /// First seen.
    pub first_at: Timestamp,
    /// Last counted.
    pub last_at: Timestamp,
    /// How often it was counted.
    pub times: u32,
}

word_enum! {
    /// What a look of a policy at a space came to.
    PolicyOutcome {
        /// There was nothing to do.
        Nothing = "nothing",
        /// The owner was warned.
        Warned = "warned",
        /// It was only said what would be done.
        WouldDo = "would_do",
        /// It was done.
        Did = "did",
        /// It cannot be known what is right, so nothing was done.
        Undetermined = "undetermined",
    }
}

word_enum! {
    /// What a policy does to a space, one step after the other.
    PolicyStep {
        /// Tell its owner of the end.
        Warn = "warn",
        /// Take it away, restorably.
        Retire = "retire",
        /// Remove it for good.
        Remove = "remove",
    }
}

/// A look of a policy at a space, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRun {
    /// The step that was looked at; none where nothing was due.
    pub step: Option<PolicyStep>,
    /// What it came to.
    pub outcome: PolicyOutcome,
    /// One sentence, for admins.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// What happens to the spaces of a root in time. No field makes anything happen on the age of files alone, and none looks at access times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Days before the end on which its owner is warned, the largest first.
    pub warn_days: Vec<u32>,
    /// Days a retired space is kept.
    pub grace_days: u32,
    /// Only say what would be done.
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuller_level_comes_later_and_not_knowing_is_no_level_at_all() {
        assert!(Level::Unknown < Level::Ok && Level::Ok < Level::Warning);
        assert!(Level::Warning < Level::Critical && Level::Critical < Level::Full);
    }

    #[test]
    fn the_root_of_homes_is_a_name() {
        assert_eq!(Space::HOME_ROOT.parse::<RootName>().unwrap().as_str(), "home");
    }
}
