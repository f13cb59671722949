//! What is asked of all that lies below a directory: where something is, and what takes the room.

use serde::{Deserialize, Serialize};

use super::{EntryKind, Moment, SpaceNumber, Version, Walked};
use crate::RelativePath;

/// Searches by name below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// In which space.
    pub space: SpaceNumber,
    /// Below which directory.
    pub path: RelativePath,
    /// What the name has in it, whatever the case and whether its letters are composed (NFC) or not; with `*` for any text or `?` for any
    /// character in it, what the whole name is like.
    pub name: String,
    /// Only of this kind.
    pub kind: Option<EntryKind>,
    /// At least so large.
    pub least_bytes: Option<u64>,
    /// At most so large.
    pub most_bytes: Option<u64>,
    /// Changed then or later, in seconds since 1970.
    pub since: Option<i64>,
    /// How many are looked for, 1 to [`crate::MOST_FOUND`].
    pub limit: u32,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Where, below the directory that was searched.
    pub path: RelativePath,
    /// What it is.
    pub kind: EntryKind,
    /// Size, where it has one.
    pub bytes: Option<u64>,
    /// Last change of content.
    pub modified: Option<Moment>,
}

/// The end of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Searched {
    /// How many were found.
    pub found: u64,
    /// Whether it stopped because there were as many as were looked for.
    pub more: bool,
    /// What was walked through; its bytes are none.
    pub walked: Walked,
}

/// Measures what lies below a directory, a part of it at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// In which space.
    pub space: SpaceNumber,
    /// Below which directory.
    pub path: RelativePath,
    /// Directories that were measured already, at most [`crate::MOST_KNOWN`]: not gone into if they are still the same, and what is
    /// in them is in no sum. Whoever knows it adds it, for those that [`Scanned::met`] names.
    pub known: Vec<KnownDirectory>,
    /// After so many milliseconds no further directory is begun.
    pub budget_ms: u64,
}

/// A directory that was measured already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDirectory {
    /// Its path below the scanned one.
    pub path: RelativePath,
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// A directory that was measured to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Which.
    pub directory: KnownDirectory,
    /// Bytes on disk of all in it, without what is in those that were known.
    pub bytes: u64,
    /// Entries in it, without what is in those that were known.
    pub entries: u64,
    /// Bytes on disk of what lies directly in it.
    pub own_bytes: u64,
    /// Entries directly in it.
    pub own_entries: u64,
}

/// The end of a scan, or of a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scanned {
    /// Whether everything was measured; if not, it goes on with what is known now.
    pub complete: bool,
    /// Which of the known were met as they were, by their places in the request.
    pub met: Vec<u32>,
    /// Whether files with several names may have been counted twice, because there are too many to remember.
    pub approximate: bool,
    /// What was measured, with what could not be.
    pub walked: Walked,
}

/// Lists the files that nobody changed or read for long. Nothing is done to them.
///
/// Old is a plain file that is the person's, where its content, its attributes and its last reading are all older; a time that cannot be,
/// before 2000 or after `now`, saves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListOld {
    /// In which space.
    pub space: SpaceNumber,
    /// Below which directory.
    pub path: RelativePath,
    /// Older than this, in seconds since 1970.
    pub before: i64,
    /// The time, as the portal and the file system agree on it.
    pub now: i64,
}

/// A file that is old, and what it was when it was listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldFile {
    /// Its path below the space.
    pub path: RelativePath,
    /// Which file with which content.
    pub version: Version,
}

/// All that is old has been said, at most [`crate::MOST_OLD`] files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedOld {
    /// Files that are old, with their bytes; and what could not be looked at.
    pub walked: Walked,
    /// Files that were saved by a time that cannot be.
    pub saved: u64,
    /// Whether there may be more than were said.
    pub more: bool,
    /// What others have there that is old, at most [`crate::MOST_OTHERS`] of them: counted and not said.
    pub others: Vec<OldOfOther>,
}

/// Old files that are somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldOfOther {
    /// Whose, as the file system says it.
    pub uid: u32,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Removes files for good that were listed as old, at most [`crate::MOST_REMOVED_OLD`].
///
/// Each goes only if it is still what was listed, by its inode, its size and the times of its last changes, and still old. What has other names
/// loses this one. Directories stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveOld {
    /// In which space.
    pub space: SpaceNumber,
    /// Older than this, in seconds since 1970.
    pub before: i64,
    /// The time, as the portal and the file system agree on it.
    pub now: i64,
    /// What was listed.
    pub files: Vec<OldFile>,
}

/// What became of files that were listed as old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedOld {
    /// Files that went, with their bytes; and those that could not go.
    pub walked: Walked,
    /// Files that stayed because somebody changed, read or replaced them since.
    pub kept: u64,
    /// Files that were not there any more.
    pub gone: u64,
}
