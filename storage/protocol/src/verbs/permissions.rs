//! What is asked of permissions: in words, as bits, and as access control lists.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Accounts, SpaceNumber};
use crate::RelativePath;

/// Who may do what with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookAtPermissions {
    /// In which space.
    pub space: SpaceNumber,
    /// Which; a link itself.
    pub path: RelativePath,
}

/// Changes who may do what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPermissions {
    /// In which space.
    pub space: SpaceNumber,
    /// With what; not with a link.
    pub path: RelativePath,
    /// How.
    pub change: PermissionChange,
    /// Whether with all in it too. A file below may be run only by those who may run it as its owner could before, and a directory that may
    /// be read may be gone into.
    pub recursive: bool,
}

/// How permissions change. None of it ever sets what gives a program its owner's rights; a directory keeps what hands its group on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PermissionChange {
    /// In a word, in the place of all that was set finer.
    Share(Share),
    /// As bits, 0 to 0o777.
    Mode(u16),
    /// As lists.
    Acl {
        /// For the entry itself: one each of [`Who::Owner`], [`Who::OwningGroup`] and [`Who::Other`], and any others.
        access: Vec<AclEntry>,
        /// For what is made in a directory; empty: nothing of its own.
        default: Vec<AclEntry>,
    },
}

/// Permissions in a word. The owner may always read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// The owner alone.
    Private,
    /// Everyone in the group may read.
    GroupReads,
    /// Everyone in the group may read and write.
    GroupWrites,
}

/// A line of an access control list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AclEntry {
    /// Whom it is about.
    pub who: Who,
    /// What they may.
    pub may: Rights,
}

/// Whom a line is about, in the order in which lists are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The owner.
    Owner,
    /// A user.
    User(u32),
    /// The group that the entry belongs to.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The most that users, groups and the owning group get, whatever their own line says.
    Mask,
    /// Everybody else.
    Other,
}

/// What somebody may, written `rwx` with `-` for what not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rights(u8);

/// Not rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rights are written `rwx`, with `-` for what is not given")]
pub struct RightsError;

impl Rights {
    /// From the three bits of a mode; others are left out.
    pub fn from_bits(bits: u16) -> Self {
        Self((bits & 7) as u8)
    }

    /// The three bits of a mode.
    pub fn bits(self) -> u16 {
        self.0.into()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |bit, letter| if self.0 & bit == 0 { '-' } else { letter };
        write!(f, "{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
    }
}

impl TryFrom<String> for Rights {
    type Error = RightsError;

    fn try_from(text: String) -> Result<Self, RightsError> {
        (0..8).map(Self).find(|rights| rights.to_string() == text).ok_or(RightsError)
    }
}

impl From<Rights> for String {
    fn from(rights: Rights) -> Self {
        rights.to_string()
    }
}

/// Who may do what with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    /// Owner's id.
    pub owner: u32,
    /// Group's id.
    pub group: u32,
    /// Permission bits.
    pub mode: u16,
    /// Whether it is the asking person's, who alone may change them.
    pub mine: bool,
    /// Whether the file system keeps lists; where it does not, there are bits and no more.
    pub lists: bool,
    /// The word for it, where there is one.
    pub share: Option<Share>,
    /// The list, where there is one; at most [`crate::MOST_ACL`] lines.
    pub access: Option<Vec<AclEntry>>,
    /// A directory's list for what is made in it.
    pub default: Option<Vec<AclEntry>>,
    /// What those are called whom it is about.
    #[serde(default, skip_serializing_if = "Accounts::is_empty")]
    pub accounts: Accounts,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rights_are_written_in_exactly_one_way(text in "[rwx-]{0,4}|\\PC{0,5}", bits in any::<u16>()) {
            if let Ok(rights) = Rights::try_from(text.clone()) {
                prop_assert_eq!(rights.to_string(), text);
            }
            let rights = Rights::from_bits(bits);
            prop_assert_eq!(rights.bits(), bits & 7);
            prop_assert_eq!(Rights::try_from(rights.to_string()).unwrap(), rights);
        }
    }
}
