//! What is asked of a space's trash, where each person's deleted files lie until they are restored or removed for good.

use serde::{Deserialize, Serialize};

use super::{EntryKind, OnConflict, SpaceNumber, TrashId};
use crate::RelativePath;

/// Puts something into the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutInTrash {
    /// In which space.
    pub space: SpaceNumber,
    /// What; a link itself.
    pub path: RelativePath,
}

/// A page of the trash, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTrash {
    /// Of which space.
    pub space: SpaceNumber,
    /// Behind this one.
    pub after: Option<TrashId>,
    /// How many, 1 to [`crate::MOST_TRASHED`].
    pub limit: u32,
}

/// What lies in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trashed {
    /// Its id, with the time it was put there.
    pub id: TrashId,
    /// Where it was; none where that is not known any more.
    pub origin: Option<RelativePath>,
    /// What it is.
    pub kind: EntryKind,
    /// Size of a file.
    pub bytes: Option<u64>,
}

/// Puts something back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// In which space.
    pub space: SpaceNumber,
    /// What.
    pub id: TrashId,
    /// Where, if not where it was.
    pub to: Option<RelativePath>,
    /// Where that is taken.
    pub on_conflict: OnConflict,
}

/// Removes from the trash for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyTrash {
    /// Of which space.
    pub space: SpaceNumber,
    /// What.
    pub which: Which,
}

/// What is removed from the trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// One.
    One(TrashId),
    /// All that was put there before this, in milliseconds since 1970.
    Before(u64),
}

/// Removes for good, without the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// In which space.
    pub space: SpaceNumber,
    /// What; a link itself.
    pub path: RelativePath,
}
