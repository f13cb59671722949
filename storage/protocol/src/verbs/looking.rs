//! What is asked of all that lies below a directory: where something is, and what takes the room.

use serde::{Deserialize, Serialize};

use super::{EntryKind, Moment, SpaceNumber, Walked};
use crate::RelativePath;

/// Searches by name below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// In which space.
    pub space: SpaceNumber,
    /// Below which directory.
    pub path: RelativePath,
    /// What the name has in it, whatever the case; with `*` for any text or `?` for any character in it, what the whole name is like.
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

/// Puts files into the trash that nobody changed or read for long.
///
/// Only a plain file with one name that is the person's goes, and only where its content, its attributes and its last reading are all older;
/// a time that cannot be, before 2000 or after `now`, saves it. A directory goes where that left it empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashOld {
    /// In which space.
    pub space: SpaceNumber,
    /// Below which directory.
    pub path: RelativePath,
    /// Older than this, in seconds since 1970.
    pub before: i64,
    /// The time, as the portal and the file system agree on it.
    pub now: i64,
    /// Whether anything is done; if not, it is only said, the first [`crate::MOST_FOUND`] by name.
    pub act: bool,
}

/// What was old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashedOld {
    /// Files that went, or would, with their bytes; and what was left alone though it is old.
    pub walked: Walked,
    /// Directories that went because they were left empty.
    pub directories: u64,
    /// Files that were saved by a time that cannot be.
    pub saved: u64,
}
