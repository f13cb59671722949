//! Files as the API shows them. Names are bytes: what is not UTF-8 is shown with U+FFFD in its place, and its bytes beside it.

use data_encoding::HEXLOWER;
use eirene_core::storage::{Entry as StorageEntry, Pattern, Stripe};
use eirene_files_protocol::{AccountName, Accounts, Entry, EntryKind, Moment, RelativePath};
use eirene_services::files::path::{last_name, shown};
use eirene_services::files::reading::{Listing, Looked};
use eirene_services::storage::judge::server_name;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::range;

/// What something in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = FileKind)]
pub(super) enum KindView {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// Another file system is mounted here; it is not entered.
    Mount,
    /// A pipe, a socket, a device, or what could not be looked at.
    Other,
}

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileList)]
pub struct ListingView {
    /// The directory.
    directory: DirectoryView,
    /// The page.
    items: Vec<EntryView>,
    /// Give this as `cursor` for the next page; null after the last.
    next: Option<String>,
}

/// A directory that is listed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ListedDirectory)]
pub(super) struct DirectoryView {
    /// Its path below the space; empty for the space itself.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Whether you may change anything in this space, as far as the file system lets you.
    writable: bool,
    /// How many entries there are, by the filter.
    entries: u64,
    /// Whether there are more than were counted.
    entries_at_least: bool,
}

/// Something in a directory. What is not known of it is absent.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileEntry)]
pub(super) struct EntryView {
    /// Its name; empty for the space itself.
    name: String,
    /// Its path below the space.
    path: String,
    /// The path's bytes as base64url, where they are no text: give them as `raw_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// What it is.
    kind: KindView,
    /// Size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size_bytes: Option<u64>,
    /// Last change of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    modified_at: Option<Timestamp>,
    /// Permissions, as `rwxr-x---`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "rw-r-----")]
    mode: Option<String>,
    /// Owner's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    uid: Option<u32>,
    /// Group's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    gid: Option<u32>,
    /// Owner's name on the cluster, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// Group's name, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group: Option<String>,
    /// Whether it is yours.
    mine: bool,
    /// Whether another name on the page looks like this one; absent where none does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    same_looking: bool,
}

/// One entry, closely.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileDetails)]
pub struct DetailsView {
    /// What is in a list, too.
    #[serde(flatten)]
    entry: EntryView,
    /// Room it takes on the storage.
    on_disk_bytes: u64,
    /// Hard links.
    links: u32,
    /// A file's entity tag, as `content` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    etag: Option<String>,
    /// SHA-256 of all its bytes, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[0-9a-f]{64}$")]
    sha256: Option<String>,
    /// Where a link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    link: Option<LinkView>,
    /// How new files of a directory are spread over targets; absent where the storage has no such thing or did not tell it soon.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    stripe: Option<StripeView>,
    /// What the storage knows of a directory; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    storage_entry: Option<StorageEntryView>,
}

/// What the storage knows of a directory.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileStorageEntry)]
pub(super) struct StorageEntryView {
    /// The storage's own id of it.
    id: String,
    /// The server that holds its metadata, by role and number; with mirroring the one that answers now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "metadata:1")]
    metadata_server: Option<String>,
    /// What the administrator of the storage calls that server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    metadata_server_alias: Option<String>,
    /// Whether its metadata is mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    metadata_mirrored: Option<bool>,
}

/// How new files of a directory are spread over targets.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileStripe)]
pub(super) struct StripeView {
    /// `raid0` over targets, `raid10` over targets twice, `mirrored` over pairs of targets, or `other`.
    #[schema(value_type = String)]
    pattern: &'static str,
    /// Bytes before the next target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    chunk_bytes: Option<u64>,
    /// Targets a new file gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    targets: Option<u32>,
    /// Number of the pool they are taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool: Option<u16>,
    /// The pool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool_name: Option<String>,
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = FileLink)]
pub(super) struct LinkView {
    /// What is written in it.
    target: String,
    /// Its bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_target: Option<String>,
    /// Whether it leads to something in this space.
    inside: bool,
    /// What that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    leads_to: Option<KindView>,
}

impl From<EntryKind> for KindView {
    fn from(kind: EntryKind) -> Self {
        match kind {
            EntryKind::Directory => Self::Directory,
            EntryKind::File => Self::File,
            EntryKind::Link => Self::Link,
            EntryKind::Mount => Self::Mount,
            EntryKind::Special | EntryKind::Unknown => Self::Other,
        }
    }
}

/// A time that can be written; files may have others.
pub(super) fn time(moment: Moment) -> Option<Timestamp> {
    let nanoseconds = i32::try_from(moment.nanoseconds).ok()?;
    Timestamp::new(moment.seconds, nanoseconds).ok()
}

/// What somebody is called.
pub(super) fn called(name: Option<&AccountName>) -> Option<String> {
    name.map(AccountName::to_string)
}

/// Permission bits as words have them.
pub(super) fn mode(bits: u16) -> String {
    let letters = "rwxrwxrwx".chars().enumerate();
    letters.map(|(at, letter)| if bits & (0o400 >> at) == 0 { '-' } else { letter }).collect()
}

impl EntryView {
    fn new(directory: &RelativePath, entry: &Entry, uid: u32, accounts: &Accounts, same_looking: bool) -> Self {
        // A path that is too long for the platform is shown as what it ends in, and cannot be asked for.
        let path =
            directory.join(&entry.name).map_or_else(|_| entry.name.as_bytes().to_vec(), |p| p.as_bytes().to_vec());
        let (path, raw_path) = shown(&path);
        Self {
            name: shown(entry.name.as_bytes()).0,
            path,
            raw_path,
            kind: entry.kind.into(),
            size_bytes: entry.bytes,
            modified_at: entry.modified.and_then(time),
            mode: entry.mode.map(mode),
            uid: entry.owner,
            gid: entry.group,
            owner: entry.owner.and_then(|id| called(accounts.users.get(&id))),
            group: entry.group.and_then(|id| called(accounts.groups.get(&id))),
            mine: entry.owner == Some(uid),
            same_looking,
        }
    }
}

impl From<Listing> for ListingView {
    fn from(listing: Listing) -> Self {
        let Listing { path, writable, uid, items, alike, listed } = listing;
        let items = items.iter().zip(alike);
        let items = items.map(|(entry, alike)| EntryView::new(&path, entry, uid, &listed.accounts, alike)).collect();
        let (text, raw_path) = shown(path.as_bytes());
        let directory = DirectoryView {
            path: text,
            raw_path,
            writable,
            entries: listed.entries,
            entries_at_least: listed.at_least,
        };
        Self { directory, items, next: listed.next.map(|cursor| cursor.to_string()) }
    }
}

impl From<&StorageEntry> for StorageEntryView {
    fn from(entry: &StorageEntry) -> Self {
        let node = entry.metadata_node.value();
        Self {
            id: entry.entry_id.clone(),
            metadata_server: node.map(server_name),
            metadata_server_alias: node.and_then(|node| node.alias.clone()),
            metadata_mirrored: entry.metadata_mirrored.value().copied(),
        }
    }
}

impl From<&Stripe> for StripeView {
    fn from(stripe: &Stripe) -> Self {
        let (pool, pool_name) = stripe.pool.value().cloned().unzip();
        Self {
            pattern: match stripe.pattern {
                Pattern::Raid0 => "raid0",
                Pattern::Raid10 => "raid10",
                Pattern::BuddyMirror => "mirrored",
                Pattern::Other(_) => "other",
            },
            chunk_bytes: stripe.chunk.value().map(|chunk| chunk.0),
            targets: stripe.targets_wanted.value().copied(),
            pool: pool.map(|pool| pool.0),
            pool_name,
        }
    }
}

impl DetailsView {
    /// One entry, and what the storage knows of it where it is a directory and that was told.
    pub fn new(looked: Looked, known: Option<&StorageEntry>) -> Self {
        let Looked { path, uid, stated, .. } = looked;
        let name = last_name(&path).map(|name| shown(name.as_bytes()).0).unwrap_or_default();
        let (text, raw_path) = shown(path.as_bytes());
        let entry = EntryView {
            name,
            path: text,
            raw_path,
            kind: stated.kind.into(),
            size_bytes: (stated.kind == EntryKind::File).then_some(stated.version.bytes),
            modified_at: time(stated.version.modified),
            mode: Some(mode(stated.mode)),
            uid: Some(stated.owner),
            gid: Some(stated.group),
            owner: called(stated.accounts.users.get(&stated.owner)),
            group: called(stated.accounts.groups.get(&stated.group)),
            mine: stated.owner == uid,
            same_looking: false,
        };
        let link = stated.link.map(|link| {
            let (target, raw_target) = shown(&link.target.0);
            let leads_to = link.leads_to.map(KindView::from);
            LinkView { target, raw_target, inside: leads_to.is_some(), leads_to }
        });
        Self {
            entry,
            on_disk_bytes: stated.on_disk,
            links: stated.links,
            etag: (stated.kind == EntryKind::File).then(|| range::etag(&stated.version)),
            sha256: None,
            link,
            stripe: known.and_then(|known| known.stripe.value()).map(StripeView::from),
            storage_entry: known.map(StorageEntryView::from),
        }
    }

    /// The same with the SHA-256 of all its bytes.
    pub fn with_sum(self, sha256: [u8; 32]) -> Self {
        Self { sha256: Some(HEXLOWER.encode(&sha256)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_nine_letters() {
        for (bits, text) in [(0o640, "rw-r-----"), (0o7777, "rwxrwxrwx"), (0, "---------"), (0o701, "rwx-----x")] {
            assert_eq!(mode(bits), text);
        }
    }
}
