//! What is asked where names, places and copies change.
//!
//! A link in the last place of a path is always what is meant itself; links on the way are followed as far as they stay in the space.

use serde::{Deserialize, Serialize};

use super::{PartId, Skipped, SpaceNumber, TrashId};
use crate::RelativePath;

/// A place in one of the spaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// In which space.
    pub space: SpaceNumber,
    /// Where.
    pub path: RelativePath,
}

/// What to do where something lies already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// [`super::Code::Exists`].
    Refuse,
    /// The new one is called `name (2).ext`, or the next number that is free.
    KeepBoth,
    /// The old one goes to the trash.
    Replace,
}

/// A new directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    /// In which space.
    pub space: SpaceNumber,
    /// Which.
    pub path: RelativePath,
    /// Whether those on the way are made too, and one that is there is as good as a new one.
    pub parents: bool,
}

/// Another name or another place on the same file system: what lies elsewhere is [`super::Code::OtherFileSystem`], to be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// What.
    pub from: Spot,
    /// Its new path.
    pub to: Spot,
    /// Where that is taken.
    pub on_conflict: OnConflict,
}

/// A copy. It gets its name when it is whole; until then it lies hidden beside it as [`PartId::file_name`], and is removed if it cannot be. One
/// of a directory that is cut off by the end of the channel stays, with [`PartId::note_name`] beside it, for the next one to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyFiles {
    /// Names what is not whole yet.
    pub id: PartId,
    /// What earlier ones of the same were called that were cut off, the newest first: the first of them that can be gone on with is.
    pub earlier: Vec<PartId>,
    /// Whether what lies at `to` already is taken for the copy, if it is the same; not where both are to be kept.
    pub same_is_done: bool,
    /// What.
    pub from: Spot,
    /// The path of the copy.
    pub to: Spot,
    /// Where that is taken.
    pub on_conflict: OnConflict,
}

/// A look whether a copy is what lies where it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The original.
    pub from: Spot,
    /// The copy.
    pub to: Spot,
}

/// Where something lies now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Its path.
    pub path: RelativePath,
    /// What had to give way, if anything.
    pub trashed: Option<TrashId>,
}

/// How far a walk through directories came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walked {
    /// Entries done with.
    pub entries: u64,
    /// Bytes done with.
    pub bytes: u64,
    /// What was left alone, the first [`crate::MOST_SKIPPED`], by its path below what was asked for.
    pub skipped: Vec<Skipped>,
    /// How many were.
    pub skipped_in_all: u64,
}

/// What came of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copied {
    /// Where it lies.
    pub moved: Moved,
    /// What is in it. A file with several names was copied once.
    pub walked: Walked,
}
