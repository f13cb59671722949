//! What is asked where nothing is changed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Accounts, Code, SpaceNumber};
use crate::{HostileText, Name, RelativePath};

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// In which space.
    pub space: SpaceNumber,
    /// The directory; links that stay in the space are followed.
    pub path: RelativePath,
    /// By what.
    pub sort: Sort,
    /// Largest first.
    pub descending: bool,
    /// Whether names that begin with a dot are wanted.
    pub hidden: bool,
    /// Only names that contain this, whatever the case.
    pub filter: Option<String>,
    /// Behind this, as the page before said.
    pub after: Option<Cursor>,
    /// How many, 1 to [`crate::MOST_ENTRIES`].
    pub limit: u32,
}

/// By what a directory is sorted; equal ones by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// By the bytes of the name: nothing needs to be known of an entry that is not on the page.
    Name,
    /// By size in bytes.
    Bytes,
    /// By time of the last change of content.
    Modified,
}

/// Where the next page begins: how many entries came before, and a mark of the last of them, by which it is found again where others
/// have come or gone. Written `OFFSET.16 hex digits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// Entries before.
    pub offset: u64,
    /// First eight bytes of the SHA-256 of the last name.
    pub mark: u64,
}

/// Not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such place in the list: begin it anew")]
pub struct CursorError;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.offset, self.mark)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (offset, mark) = text.split_once('.').ok_or(CursorError)?;
        let cursor = Self {
            offset: offset.parse().map_err(|_| CursorError)?,
            mark: u64::from_str_radix(mark, 16).map_err(|_| CursorError)?,
        };
        // One way to write it: no plus, no leading zeros, small digits.
        if cursor.to_string() == text { Ok(cursor) } else { Err(CursorError) }
    }
}

impl TryFrom<String> for Cursor {
    type Error = CursorError;

    fn try_from(text: String) -> Result<Self, CursorError> {
        text.parse()
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stat {
    /// In which space.
    pub space: SpaceNumber,
    /// Which; a link is not followed in the last place.
    pub path: RelativePath,
}

/// Bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// In which space.
    pub space: SpaceNumber,
    /// Which; links that stay in the space are followed.
    pub path: RelativePath,
    /// The first byte wanted.
    pub from: u64,
    /// The byte behind the last one wanted; none, or more than there are: to the end.
    pub to: Option<u64>,
}

/// The SHA-256 of a whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumUp {
    /// In which space.
    pub space: SpaceNumber,
    /// Which; links that stay in the space are followed.
    pub path: RelativePath,
}

/// Files, and directories with all in them. Of one that is alone, that it cannot be archived is the answer; of several, what cannot be is left
/// out, and its path is said from its name on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// In which space.
    pub space: SpaceNumber,
    /// Which, 1 to [`crate::MOST_ARCHIVED`].
    pub items: Vec<Archived>,
    /// How it is written.
    pub format: ArchiveFormat,
}

/// One thing in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Archived {
    /// Which; links that stay in the space are followed here, none below.
    pub path: RelativePath,
    /// What it is called in the archive; no two of it are called the same.
    pub top: Name,
}

/// How an archive is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveFormat {
    /// POSIX tar with extended headers where a name or a number needs one.
    Tar,
    /// Zip, not compressed. It has no links; a backslash or a control character in a name is written `_`.
    Zip,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Something else is mounted here: not entered, and nothing more is said of it.
    Mount,
    /// A named pipe, a socket or a device: never opened.
    Special,
    /// It went, or could not be looked at.
    Unknown,
}

/// A point in time, since 1970 in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

/// What is in a directory. Of a mount, and of what could not be looked at, there are no numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: EntryKind,
    /// Size, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Last change of content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Moment>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u16>,
    /// Owner's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// Group's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Hard links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
}

/// Which content this was: any change of it changes one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Version {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Size.
    pub bytes: u64,
    /// Last change of content.
    pub modified: Moment,
    /// Last change of anything.
    pub changed: Moment,
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its text.
    pub target: HostileText,
    /// What it leads to, followed to the end; none where that is not in the space, not there or reserved.
    pub leads_to: Option<EntryKind>,
}

/// What is about to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBegins {
    /// The content; its `bytes` is the whole file's size.
    pub version: Version,
    /// First byte that comes.
    pub from: u64,
    /// The byte behind the last one that comes.
    pub to: u64,
}

/// What belongs to a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Entries in all, by the request's filter.
    pub entries: u64,
    /// Whether there are more than were looked at, so that `entries` is only the least there are.
    pub at_least: bool,
    /// Where the next page begins; none: this was the last.
    pub next: Option<Cursor>,
    /// What the owners and groups on the page are called.
    #[serde(default, skip_serializing_if = "Accounts::is_empty")]
    pub accounts: Accounts,
}

/// One entry, closely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// What it is; its name is none for the space itself.
    pub kind: EntryKind,
    /// Which content.
    pub version: Version,
    /// Permission bits.
    pub mode: u16,
    /// Owner's id.
    pub owner: u32,
    /// Group's id.
    pub group: u32,
    /// Hard links.
    pub links: u32,
    /// Space it takes on disk, in bytes.
    pub on_disk: u64,
    /// Where it leads, if it is a link.
    pub link: Option<Link>,
    /// What its owner and its group are called.
    #[serde(default, skip_serializing_if = "Accounts::is_empty")]
    pub accounts: Accounts,
}

/// What is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Path below what was asked for.
    pub path: RelativePath,
    /// Why.
    pub why: Code,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_written_in_exactly_one_way() {
        let cursor = Cursor { offset: 500, mark: 0xab };
        assert_eq!(cursor.to_string(), "500.00000000000000ab");
        assert_eq!("500.00000000000000ab".parse(), Ok(cursor));
        for bad in [
            "",
            "500",
            "500.ab",
            "+5.00000000000000ab",
            "05.00000000000000ab",
            "5.00000000000000AB",
            "-1.0000000000000000",
            "5.+0000000000000ab",
        ] {
            assert_eq!(bad.parse::<Cursor>(), Err(CursorError), "{bad}");
        }
    }
}
