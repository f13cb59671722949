//! What was done to files as the API shows it: moves, the trash, permissions, operations.

use eirene_core::file_work::{Operation, OperationKind, OperationState};
use eirene_files_protocol::{Accounts, AclEntry, Moved, Permissions, RelativePath, Share, Trashed, Who};
use eirene_services::error::files::FilesTrouble;
use eirene_services::files::path::shown;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::file::{KindView, called, mode};

/// Where something lies now.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = MovedFile)]
pub struct MovedView {
    /// Its path.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// What had to give way, by its id in the trash.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trashed: Option<String>,
}

/// What was not done, and why.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = RefusedFile)]
pub struct RefusedView {
    /// With which path.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Stable code.
    #[schema(example = "exists")]
    code: &'static str,
    /// One sentence.
    text: String,
}

/// Something in the trash.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = TrashedFile)]
pub struct TrashedView {
    /// Its id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// Where it was; absent where that is not known any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path: Option<String>,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// What it is.
    kind: KindView,
    /// Size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size_bytes: Option<u64>,
    /// When it was put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    deleted_at: Option<Timestamp>,
}

/// A line of an access control list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AclLine)]
pub struct AclLine {
    /// `owner`, `owning_group`, `other`, `mask`, or `user:` or `group:` and a number.
    #[schema(example = "group:5000", pattern = "^(owner|owning_group|other|mask|(user|group):[0-9]{1,10})$")]
    pub who: String,
    /// `rwx`, with `-` for what not.
    #[schema(example = "r-x", pattern = "^[r-][w-][x-]$")]
    pub may: String,
    /// What they are called, where it is known. Sent back, it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FilePermissions)]
pub struct PermissionsView {
    /// Whose: the path.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Owner's number.
    uid: u32,
    /// Group's number.
    gid: u32,
    /// Owner's name on the cluster, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// Group's name, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group: Option<String>,
    /// Whether it is yours: nobody else may change them.
    mine: bool,
    /// Whether the file system keeps lists.
    lists: bool,
    /// As letters.
    #[schema(example = "rwxr-x---")]
    mode: String,
    /// As digits.
    #[schema(example = "0750")]
    mode_digits: String,
    /// In a word, where there is one: `private`, `group_reads`, `group_writes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    share: Option<&'static str>,
    /// As a list, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    acl: Option<Vec<AclLine>>,
    /// A directory's list for what is made in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    default_acl: Option<Vec<AclLine>>,
}

/// Work on files that outlives its request.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Operation)]
pub struct OperationView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// The space's id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    space_id: String,
    /// What it does.
    kind: OperationKind,
    /// Where it is on its way.
    state: OperationState,
    /// What was asked for.
    #[schema(value_type = Object)]
    request: Value,
    /// How far it is: `entries` and `bytes`, and once it is over what it left alone (`skipped`, `skipped_in_all`, `refused`); of a
    /// move, where each lies now (`items`).
    #[schema(value_type = Object)]
    progress: Value,
    /// Why it failed, or was interrupted where that is known: a code and a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, nullable = false, required = false)]
    problem: Option<Value>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    ended_at: Option<Timestamp>,
}

impl From<&Moved> for MovedView {
    fn from(moved: &Moved) -> Self {
        let (path, raw_path) = shown(moved.path.as_bytes());
        Self { path, raw_path, trashed: moved.trashed.map(|id| id.to_string()) }
    }
}

impl RefusedView {
    /// What was refused for a path.
    pub fn new(path: &RelativePath, trouble: FilesTrouble) -> Self {
        let (path, raw_path) = shown(path.as_bytes());
        Self { path, raw_path, code: trouble.code, text: trouble.text.into() }
    }
}

impl From<Trashed> for TrashedView {
    fn from(trashed: Trashed) -> Self {
        let (path, raw_path) = trashed.origin.map(|origin| shown(origin.as_bytes())).unzip();
        let milliseconds = i64::try_from(trashed.id.milliseconds()).ok();
        Self {
            id: trashed.id.to_string(),
            path,
            raw_path: raw_path.flatten(),
            kind: trashed.kind.into(),
            size_bytes: trashed.bytes,
            deleted_at: milliseconds.and_then(|at| Timestamp::from_millisecond(at).ok()),
        }
    }
}

impl AclLine {
    /// The line as it is shown.
    fn new(entry: &AclEntry, accounts: &Accounts) -> Self {
        let name = match entry.who {
            Who::User(number) => called(accounts.users.get(&number)),
            Who::Group(number) => called(accounts.groups.get(&number)),
            Who::Owner | Who::OwningGroup | Who::Mask | Who::Other => None,
        };
        let who = match entry.who {
            Who::Owner => "owner".to_owned(),
            Who::User(number) => format!("user:{number}"),
            Who::OwningGroup => "owning_group".to_owned(),
            Who::Group(number) => format!("group:{number}"),
            Who::Mask => "mask".to_owned(),
            Who::Other => "other".to_owned(),
        };
        Self { who, may: entry.may.to_string(), name }
    }

    /// The line, if it is one.
    pub fn entry(&self) -> Option<AclEntry> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let who = match self.who.split_once(':') {
            None => match self.who.as_str() {
                "owner" => Who::Owner,
                "owning_group" => Who::OwningGroup,
                "mask" => Who::Mask,
                "other" => Who::Other,
                _ => return None,
            },
            Some(("user", id)) => Who::User(number(id)?),
            Some(("group", id)) => Who::Group(number(id)?),
            Some(_) => return None,
        };
        Some(AclEntry { who, may: self.may.clone().try_into().ok()? })
    }
}

impl PermissionsView {
    /// Of what lies at this path.
    pub fn new(path: &RelativePath, permissions: &Permissions) -> Self {
        let (path, raw_path) = shown(path.as_bytes());
        let accounts = &permissions.accounts;
        let lines = |list: &Option<Vec<AclEntry>>| {
            list.as_ref().map(|list| list.iter().map(|entry| AclLine::new(entry, accounts)).collect())
        };
        Self {
            path,
            raw_path,
            uid: permissions.owner,
            gid: permissions.group,
            owner: called(accounts.users.get(&permissions.owner)),
            group: called(accounts.groups.get(&permissions.group)),
            mine: permissions.mine,
            lists: permissions.lists,
            mode: mode(permissions.mode),
            mode_digits: format!("{:04o}", permissions.mode & 0o7777),
            share: permissions.share.map(|share| match share {
                Share::Private => "private",
                Share::GroupReads => "group_reads",
                Share::GroupWrites => "group_writes",
            }),
            acl: lines(&permissions.access),
            default_acl: lines(&permissions.default),
        }
    }
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        Self {
            id: operation.id.to_string(),
            space_id: operation.space.to_string(),
            kind: operation.kind,
            state: operation.state,
            request: operation.request,
            progress: operation.progress,
            problem: operation.problem,
            created_at: operation.created_at,
            ended_at: operation.ended_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_line_of_a_list_is_none() {
        for (who, may) in [
            ("owner:1", "rwx"),
            ("user", "rwx"),
            ("user:", "rwx"),
            ("user:+1", "rwx"),
            ("user:-1", "rwx"),
            ("user:4294967296", "rwx"),
            ("group:x", "rwx"),
            ("Owner", "rwx"),
            ("", "rwx"),
            ("owner", "xwr"),
            ("owner", ""),
            ("owner", "rwxr"),
        ] {
            let line = AclLine { who: who.to_owned(), may: may.to_owned(), name: None };
            assert_eq!(line.entry(), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_that_is_shown_can_be_sent_back(kind in 0_usize..6, number in any::<u32>(), bits in 0_u16..8) {
            let who = [Who::Owner, Who::User(number), Who::OwningGroup, Who::Group(number), Who::Mask, Who::Other][kind];
            let entry = AclEntry { who, may: eirene_files_protocol::Rights::from_bits(bits) };
            prop_assert_eq!(AclLine::new(&entry, &Accounts::default()).entry(), Some(entry));
        }
    }
}
