//! What is asked to have an archive's members as files.

use serde::{Deserialize, Serialize};

use super::{Code, Moved, OnConflict, PartId, Spot};
use crate::HostileText;

/// Makes a new directory of what is in a tar, a compressed tar (gzip) or a zip, told apart by their content. It gets its name when all is
/// written; until then it lies hidden beside it as [`PartId::file_name`], and is removed if it cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extract {
    /// Names what is not whole yet.
    pub id: PartId,
    /// The archive; links that stay in the space are followed.
    pub from: Spot,
    /// The path of the new directory.
    pub to: Spot,
    /// Where that is taken.
    pub on_conflict: OnConflict,
}

/// A member that was not made into anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Its name as the archive has it, at most the first [`crate::MOST_MEMBER_NAME`] bytes: no path, and nothing to look anything up by.
    pub name: HostileText,
    /// Why.
    pub why: Code,
}

/// What came of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extracted {
    /// Where the directory lies.
    pub moved: Moved,
    /// Members that are in it.
    pub entries: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Members that are not, the first [`crate::MOST_SKIPPED`].
    pub refused: Vec<Refused>,
    /// How many are not.
    pub refused_in_all: u64,
}
