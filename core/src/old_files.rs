//! Old files in spaces: what a root says of them, and what is known of them in one space. Plain data; when something is listed, told or removed
//! is for the services to decide.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::{SpaceId, UserId};
use crate::name::Username;

/// What becomes of files in the spaces of a root that nobody changes or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldFilesRule {
    /// Days after which a file that was neither changed nor read is old.
    pub days: u32,
    /// Days from telling the owner of it to its removal.
    pub warn_days: u32,
    /// Only say what would be removed.
    pub dry_run: bool,
}

/// Whose old files in which space: in a space of a group each member's are looked at apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OldFilesOf {
    /// Which space.
    pub space: SpaceId,
    /// Which member of its group; none is the owner of a person's space, and in a group's what holds for all members.
    pub member: Option<UserId>,
}

impl From<SpaceId> for OldFilesOf {
    fn from(space: SpaceId) -> Self {
        Self { space, member: None }
    }
}

word_enum! {
    /// Why it cannot be known what is right. Then nothing is listed, and nothing removed.
    OldFilesDoubt {
        /// The storage did not answer.
        StorageAway = "storage_away",
        /// It was never noted where the space was made.
        PlaceUnknown = "place_unknown",
        /// Another file system lies there, or one without the root's marker: the mount may be missing.
        OtherFileSystem = "other_file_system",
        /// Another directory lies there.
        OtherDirectory = "other_directory",
        /// It was not looked at for a while, or a clock has jumped ahead: which of the two nobody can tell.
        NotWatched = "not_watched",
        /// A clock went back, or the storage's is another.
        Clock = "clock",
        /// The user database does not answer, or does not know those it should.
        People = "people",
        /// The user database does not know the owner.
        OwnerUnknown = "owner_unknown",
        /// The owner may not sign in.
        OwnerDisabled = "owner_disabled",
        /// They are no member of the space's group any more.
        NoMember = "no_member",
        /// The owner's process, as which files are looked at, did not answer or could not go on.
        Files = "files",
        /// What was listed cannot be read any more.
        ListLost = "list_lost",
        /// The owner could not be told.
        NotTold = "not_told",
    }
}

/// An old file, to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFileExample {
    /// Its path below the space.
    pub path: String,
    /// The same as base64url of its bytes, where it is not UTF-8.
    pub raw_path: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// Last change of content.
    pub modified_at: Option<Timestamp>,
    /// Last change of anything.
    pub changed_at: Option<Timestamp>,
}

/// Old files of somebody else, whom the process that looked is not: counted, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesOfOther {
    /// Whose they are.
    pub uid: u32,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Old files in a space of a group that belong to nobody who is a member and known here. Nobody lists or removes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesOfStranger {
    /// Whose they are.
    pub uid: u32,
    /// Who that was, where the platform knows it.
    pub name: Option<Username>,
    /// Files, as the member's process has seen them that saw the most.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// When that was; none where it was written down before that was noted.
    pub seen_at: Option<Timestamp>,
}

/// What one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesFound {
    /// Files that are old.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files with a time that cannot be, in the future among them: none is taken for old.
    pub saved: u64,
    /// What could not be looked at.
    pub skipped: u64,
    /// Whether there may be more than were listed.
    pub more: bool,
    /// The largest.
    pub examples: Vec<OldFileExample>,
    /// What others have there that is old.
    #[serde(default)]
    pub others: Vec<OldFilesOfOther>,
}

/// A look that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesLook {
    /// When it began.
    pub at: Timestamp,
    /// Days after which a file was taken for old.
    pub days: u32,
    /// What was found.
    pub found: OldFilesFound,
}

/// Files that were listed, by which they are removed and by nothing else. The list itself lies in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesList {
    /// When it was begun; the file says the same.
    pub at: Timestamp,
    /// What changed before this is on it.
    pub before: Timestamp,
    /// Days after which a file was taken for old.
    pub days: u32,
    /// Days that the owner was promised.
    pub warn_days: u32,
    /// Whether it was made on trial: nothing is removed by it.
    pub dry_run: bool,
    /// When the owner was told.
    pub told_at: Option<Timestamp>,
    /// Seconds since then, or since it was made, in which the portal watched its clock go on as clocks do.
    pub waited_s: u64,
    /// What is on it.
    pub found: OldFilesFound,
}

/// What was removed by one list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldFilesRemoval {
    /// Files.
    pub files: u64,
    /// Bytes that became free.
    pub bytes: u64,
    /// Files that stayed because somebody had changed, read or replaced them.
    pub kept: u64,
    /// Files that were not there any more.
    pub gone: u64,
    /// Files that could not be removed.
    pub failed: u64,
}

/// What is known of old files in a space, or of one member's in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldFilesState {
    /// Whose files in which space.
    pub of: OldFilesOf,
    /// Whether an admin has exempted it: nothing of it is listed or removed.
    pub exempt: bool,
    /// Days after which a file is old here, where that is not what its root says.
    pub days: Option<u32>,
    /// The last look at the clock.
    pub seen_at: Option<Timestamp>,
    /// Seconds for which looks have followed each other as they should.
    pub steady_s: u64,
    /// Why nothing can be done now.
    pub doubt: Option<OldFilesDoubt>,
    /// What waits to be removed, or would.
    pub list: Option<OldFilesList>,
    /// The last look that somebody asked for.
    pub look: Option<OldFilesLook>,
    /// What was removed last, and when.
    pub removed: Option<(Timestamp, OldFilesRemoval)>,
    /// In a space of a group, what belongs to nobody who is a member; in what is known of one member, nothing.
    pub strangers: Vec<OldFilesOfStranger>,
    /// Grows with every change of the row; 0 before the first.
    pub version: i64,
}

impl OldFilesState {
    /// Of files of which nothing is known.
    pub fn new(of: impl Into<OldFilesOf>) -> Self {
        Self {
            of: of.into(),
            exempt: false,
            days: None,
            seen_at: None,
            steady_s: 0,
            doubt: None,
            list: None,
            look: None,
            removed: None,
            strangers: vec![],
            version: 0,
        }
    }
}
