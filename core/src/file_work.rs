//! Work on files that outlives a request: uploads that go on after a break, and copies, deletions and searches that take a while. These are
//! the words its rows are written in.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::{OperationId, SpaceId, UploadId, UserId};

word_enum! {
    /// What happens where there is something of the same name.
    OnConflict {
        /// Nothing: it is refused.
        Refuse = "refuse",
        /// The new one gets another name.
        KeepBoth = "keep_both",
        /// The old one goes to the trash.
        Replace = "replace",
    }
}

word_enum! {
    /// Where an upload is on its way.
    UploadState {
        /// More may come.
        Open = "open",
        /// All is there, under its final name.
        Finished = "finished",
    }
}

/// An upload: where it goes. How far it has come is known by the file beside its data and by nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Id.
    pub id: UploadId,
    /// Whose.
    pub user: UserId,
    /// Into which space.
    pub space: SpaceId,
    /// The directory below the space's root; bytes, as names are.
    pub directory: Vec<u8>,
    /// The name it shall have.
    pub file_name: Vec<u8>,
    /// Its length, bytes; none until it is said.
    pub length: Option<u64>,
    /// SHA-256 of the whole, 64 hexadecimal digits, where it was said.
    pub checksum: Option<String>,
    /// What happens where there is a file of that name.
    pub on_conflict: OnConflict,
    /// Where it is.
    pub state: UploadState,
    /// The name it got.
    pub final_name: Option<Vec<u8>>,
    /// When it began.
    pub created_at: Timestamp,
    /// When the last of it came.
    pub last_seen_at: Timestamp,
    /// When what is there of it is removed, or, once finished, its row.
    pub expires_at: Timestamp,
}

word_enum! {
    /// What an operation does.
    OperationKind {
        /// Copies.
        Copy = "copy",
        /// Moves from one file system to another.
        Move = "move",
        /// Deletes for good.
        Delete = "delete",
        /// Unpacks an archive.
        Extract = "extract",
        /// Looks for names.
        Search = "search",
        /// Adds up sizes.
        Scan = "scan",
        /// Changes permissions of all that is in a directory.
        Permissions = "permissions",
        /// Looks for old files, or removes what was listed of them.
        OldFiles = "old_files",
    }
}

impl OperationKind {
    /// Whether it only looks, and keeps what it finds.
    pub fn finds(self) -> bool {
        matches!(self, Self::Search | Self::Scan)
    }
}

word_enum! {
    /// Where an operation is on its way.
    OperationState {
        /// Waits for its turn.
        Waiting = "waiting",
        /// Under way.
        Running = "running",
        /// Done.
        Done = "done",
        /// Not done; the problem says why.
        Failed = "failed",
        /// Ended by its owner.
        Cancelled = "cancelled",
        /// The portal ended while it ran, or what it has left could not be cleared away. What it had done is done.
        Interrupted = "interrupted",
    }
}

impl OperationState {
    /// Whether nothing will happen to it any more.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Id.
    pub id: OperationId,
    /// Whose.
    pub user: UserId,
    /// In which space.
    pub space: SpaceId,
    /// What it does.
    pub kind: OperationKind,
    /// Where it is.
    pub state: OperationState,
    /// What was asked for.
    pub request: serde_json::Value,
    /// How far it has come.
    pub progress: serde_json::Value,
    /// Why it failed: a code and a sentence.
    pub problem: Option<serde_json::Value>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}
