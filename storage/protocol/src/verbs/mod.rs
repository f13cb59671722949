//! What can be asked of the file process, and what it answers.
//!
//! Requests name a space by the number the portal gave it in [`Open`] and a path below it. Problems are codes: the words for people are the
//! portal's.

mod accounts;
mod changing;
mod extracting;
mod ids;
mod looking;
mod permissions;
mod preview;
mod problem;
mod reading;
mod trash;
mod uploads;

use serde::{Deserialize, Serialize};

pub use accounts::{AccountName, AccountNameError, Accounts};
pub use changing::{Compare, Copied, CopyFiles, MakeDirectory, Move, Moved, OnConflict, Spot, Walked};
pub use extracting::{Extract, Extracted, Refused};
pub use ids::{IdError, PartId, TrashId};
pub use looking::{
    Found, KnownDirectory, ListOld, ListedOld, Measured, OldFile, OldOfOther, RemoveOld, RemovedOld, Scan, Scanned,
    Search, Searched,
};
pub use permissions::{
    AclEntry, LookAtPermissions, PermissionChange, Permissions, Rights, RightsError, SetPermissions, Share, Who,
};
pub use preview::{CellKind, Encoding, Piece, Preview, Previewed, Shown};
pub use problem::{Code, Problem};
pub use reading::{
    Archive, ArchiveFormat, Archived, Cursor, CursorError, Entry, EntryKind, Link, List, Listed, Moment, Read,
    ReadBegins, Skipped, Sort, Stat, Stated, SumUp, Version,
};
pub use trash::{Delete, EmptyTrash, ListTrash, PutInTrash, Restore, Trashed, Which};
pub use uploads::{Checksum, CreateUpload, Digest, PartSpot, UploadState, WriteUpload};

use crate::{HostileText, Name, RelativePath};

/// A space within one process, numbered by the portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpaceNumber(pub u32);

/// The first thing said: where the spaces lie. The process opens them and confines itself to them, so this cannot be said twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// At most [`crate::MOST_SPACES`].
    pub spaces: Vec<OpenSpace>,
}

/// One space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSpace {
    /// How requests name it.
    pub number: SpaceNumber,
    /// Absolute path of its directory.
    pub root: HostileText,
    /// Whether anything may be changed in it.
    pub writable: bool,
    /// Directories directly below the root that no verb reaches, as `.eirene` of a home; the trash is one without being named.
    pub reserved: Vec<Name>,
    /// Where it was made, if that is known: what lies at `root` and is another directory is no space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<MadeAt>,
}

/// What tells the directory of a space from another one of its name, as from what lies there while its file system is not mounted. Either will do:
/// on another disk that everything was moved to inodes are others, and the marker is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeAt {
    /// Inode of the directory.
    pub inode: u64,
    /// What the marker of its root holds, a file in the directory above, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
}

/// The answer to [`Open`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Who the process is.
    pub uid: u32,
    /// The version of Landlock that confines it; none where the kernel has none.
    pub landlock: Option<u32>,
    /// What became of each space, in the order of [`Open`].
    pub spaces: Vec<OpenedSpace>,
}

/// What became of a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedSpace {
    /// Which.
    pub number: SpaceNumber,
    /// Why it cannot be used; none: it can.
    pub problem: Option<Problem>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// A page of a directory; answers [`Part::Entries`] and [`Answer::Listed`].
    List(List),
    /// One entry; answers [`Answer::Stated`].
    Stat(Stat),
    /// Bytes of a file into the stream; answers [`Part::ReadBegins`] before the first byte and [`Answer::Written`].
    Read(Read),
    /// Files and directories with all in them, as one archive into the stream; answers [`Answer::Written`].
    Archive(Archive),
    /// The SHA-256 of a file; answers [`Progress`] and [`Answer::Summed`].
    SumUp(SumUp),
    /// A new directory; answers [`Answer::Made`].
    MakeDirectory(MakeDirectory),
    /// Another name or another place; answers [`Answer::Moved`].
    Move(Move),
    /// A copy of a file, or of a directory with all in it; answers [`Progress`] and [`Answer::Copied`].
    Copy(CopyFiles),
    /// Whether a copy is still the same as its original; answers [`Progress`] and [`Answer::Compared`].
    Compare(Compare),
    /// Whether an upload is not finished in what is to be moved by a copy; answers [`Progress`] and [`Answer::FoundUnfinished`].
    FindUnfinished(Spot),
    /// What is in an archive, as a new directory; answers [`Progress`] and [`Answer::Extracted`].
    Extract(Extract),
    /// Into the trash; answers [`Answer::PutInTrash`].
    PutInTrash(PutInTrash),
    /// A page of the trash; answers [`Part::Trashed`] and [`Answer::TrashListed`].
    ListTrash(ListTrash),
    /// Out of the trash; answers [`Answer::Moved`].
    Restore(Restore),
    /// Removes from the trash for good; answers [`Progress`] and [`Answer::Removed`].
    EmptyTrash(EmptyTrash),
    /// Removes for good; answers [`Progress`] and [`Answer::Removed`].
    Delete(Delete),
    /// A new upload; answers [`Answer::Upload`].
    CreateUpload(CreateUpload),
    /// How far an upload is; answers [`Answer::Upload`].
    LookAtUpload(PartSpot),
    /// Bytes from the stream into an upload; answers [`Answer::Upload`]. What came counts, also where the last word is a problem.
    WriteUpload(WriteUpload),
    /// Gives an upload that is whole its name; answers [`Answer::Moved`], also where it has it already.
    FinishUpload(PartSpot),
    /// Removes what is left of an upload or of a copy, and what is known of it; answers [`Answer::Removed`].
    RemovePart(PartSpot),
    /// Who may do what; answers [`Answer::Permissions`].
    LookAtPermissions(LookAtPermissions),
    /// Changes who may do what; answers [`Progress`] and [`Answer::PermissionsSet`].
    SetPermissions(SetPermissions),
    /// Searches by name; answers [`Progress`], [`Part::Found`] and [`Answer::Searched`].
    Search(Search),
    /// Measures what takes the room; answers [`Progress`], [`Part::Measured`] and [`Answer::Scanned`].
    Scan(Scan),
    /// Lists old files; answers [`Progress`], [`Part::Old`] and [`Answer::ListedOld`].
    ListOld(ListOld),
    /// Removes old files that were listed; answers [`Answer::RemovedOld`].
    RemoveOld(RemoveOld),
    /// A part of a file, to look at; answers [`Part::Preview`] and [`Answer::Previewed`].
    Preview(Preview),
}

impl Verb {
    /// Whether the request brings a stream.
    pub fn has_stream(&self) -> bool {
        match self {
            Self::Read(_) | Self::Archive(_) | Self::WriteUpload(_) => true,
            Self::List(_)
            | Self::Stat(_)
            | Self::SumUp(_)
            | Self::MakeDirectory(_)
            | Self::Move(_)
            | Self::Copy(_)
            | Self::Compare(_)
            | Self::FindUnfinished(_)
            | Self::Extract(_)
            | Self::PutInTrash(_)
            | Self::ListTrash(_)
            | Self::Restore(_)
            | Self::EmptyTrash(_)
            | Self::Delete(_)
            | Self::CreateUpload(_)
            | Self::LookAtUpload(_)
            | Self::FinishUpload(_)
            | Self::RemovePart(_)
            | Self::LookAtPermissions(_)
            | Self::SetPermissions(_)
            | Self::Search(_)
            | Self::Scan(_)
            | Self::ListOld(_)
            | Self::RemoveOld(_)
            | Self::Preview(_) => false,
        }
    }
}

/// What comes before an answer, any number of times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    /// Entries of the page, in order; as many as a frame takes.
    Entries(Vec<Entry>),
    /// Bytes begin to flow.
    ReadBegins(ReadBegins),
    /// What lies in the trash, in order; as many as a frame takes.
    Trashed(Vec<Trashed>),
    /// What was found.
    Found(Vec<Found>),
    /// Directories that were measured to their end, each after those in it.
    Measured(Vec<Measured>),
    /// Files that are old.
    Old(Vec<OldFile>),
    /// Pieces of what is shown, in order.
    Preview(Vec<Piece>),
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Entries done with.
    pub entries: u64,
    /// Bytes done with: written to the stream, copied.
    pub bytes: u64,
}

/// The last word on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// It was done.
    Done(Answer),
    /// It was not, or not to the end.
    Problem(Problem),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The page is complete.
    Listed(Listed),
    /// The entry.
    Stated(Stated),
    /// The whole file was read, and it was this content from the first byte to the last.
    Summed {
        /// Which content.
        version: Version,
        /// Its SHA-256.
        sha256: Digest<32>,
    },
    /// The stream has it all.
    Written {
        /// Bytes that were written to the stream.
        bytes: u64,
        /// Entries of an archive.
        entries: u64,
        /// What is not in the archive, the first [`crate::MOST_SKIPPED`].
        skipped: Vec<Skipped>,
        /// How many are not.
        skipped_in_all: u64,
    },
    /// The directory is there.
    Made {
        /// Whether it was not there before.
        made: bool,
    },
    /// It lies there now.
    Moved(Moved),
    /// The copy is whole, but for what was skipped.
    Copied(Copied),
    /// All of the original was looked for in the copy. What was skipped is not there, differs, or could not be looked at.
    Compared(Walked),
    /// It was looked for uploads that are not finished, until the first.
    FoundUnfinished {
        /// Into which directory it is, below what was asked for; none: there is none.
        directory: Option<RelativePath>,
    },
    /// What is in the archive lies there, but for what was refused.
    Extracted(Extracted),
    /// It lies in the trash.
    PutInTrash {
        /// By this it is found there.
        id: TrashId,
    },
    /// The page of the trash is complete.
    TrashListed {
        /// How many lie in the trash.
        entries: u64,
        /// Behind which the next page begins; none: this was the last.
        next: Option<TrashId>,
    },
    /// It is gone, but for what was skipped and the directories that is in.
    Removed(Walked),
    /// How far the upload is now.
    Upload(UploadState),
    /// Who may do what.
    Permissions(Permissions),
    /// Permissions are as asked, but for what was skipped.
    PermissionsSet(Walked),
    /// All that was found has been said.
    Searched(Searched),
    /// All that was measured has been said.
    Scanned(Scanned),
    /// All that is old has been said.
    ListedOld(ListedOld),
    /// What was listed and is still as it was is gone.
    RemovedOld(RemovedOld),
    /// What is to be shown has been said.
    Previewed(Previewed),
}
