//! The file browser: directories, one thing, the trash, and what goes wrong.

use eirene_api::view::ListingView;
use eirene_core::account::Role;
use eirene_core::storage;
use eirene_files_protocol::{
    AccountName, Accounts, AclEntry, Entry, EntryKind, HostileText, Link, Listed, Moment, Name, Permissions,
    RelativePath, Rights, Share, Sort, Stated, TrashId, Trashed, Version, Who,
};
use eirene_services::files::lists::Danger;
use eirene_services::files::reading::Listing;
use eirene_words::words;
use serde_json::json;

use super::{HOSTILE, Result, Samples};
use crate::views::files::{EntryPage, FilesPage, FilesTroublePage, Ground, Look, Row, TrashPage, Undo, raw, state};
use crate::views::layout::{Notice, Place, Tone};
use crate::views::permissions::{PermissionsPage, Typed};
use crate::views::stripe;
use crate::views::{Choice, FormError};

fn entry(name: &[u8], kind: EntryKind, bytes: Option<u64>, mode: u16) -> Result<Entry> {
    Ok(Entry {
        name: Name::parse(name)?,
        kind,
        bytes,
        modified: Some(Moment { seconds: 1_795_000_000, nanoseconds: 0 }),
        mode: Some(mode),
        owner: Some(2001),
        group: Some(5000),
        links: Some(1),
    })
}

/// What a directory of somebody who has seen much holds.
fn entries() -> Result<Vec<Entry>> {
    let long = "a-very-long-name-that-goes-on-".repeat(8);
    let file = EntryKind::File;
    Ok(vec![
        entry(b"data", EntryKind::Directory, None, 0o2770)?,
        entry(HOSTILE.replace('/', "\u{2215}").as_bytes(), file, Some(17), 0o644)?,
        entry(b"two\nlines\r", file, Some(0), 0o600)?,
        entry("\u{202e}gpj.exe".as_bytes(), file, Some(5_242_880), 0o666)?,
        entry(b"caf\xe9", file, Some(1536), 0o640)?,
        entry("שלום.txt".as_bytes(), file, Some(2_000_000_000_000), 0o600)?,
        entry(long.as_bytes(), file, Some(1), 0o600)?,
        entry(b"latest", EntryKind::Link, None, 0o777)?,
        Entry { bytes: None, modified: None, mode: None, ..entry(b"other-storage", EntryKind::Mount, None, 0)? },
    ])
}

/// Where somebody with more than a home can move things to; what they may only read is not among it.
fn targets(here: &str) -> Vec<Choice> {
    let all = [("home", "Home"), ("scratch-ada", "Scratch"), ("stars", HOSTILE)];
    all.map(|(name, title)| Choice::new(name, title, here)).into()
}

impl Samples {
    pub(super) fn files(&mut self) -> Result<()> {
        let some = entries()?;
        self.directory("files", b"", &some, true)?;
        self.directory("files-deeper", b"data/<b>bold/caf\xe9\n", &some, true)?;
        self.directory("files-read-only", b"data", &some, false)?;
        self.directory("files-empty", b"data", &[], true)?;
        self.one("file", EntryKind::File)?;
        self.one("file-directory", EntryKind::Directory)?;
        self.one("file-link", EntryKind::Link)?;
        self.one("file-archive", EntryKind::File)?;
        self.one("file-one-space", EntryKind::File)?;
        self.one("file-read-only", EntryKind::File)?;
        self.permissions()?;
        self.trash()?;
        let words = words();
        for (name, key, advice) in [
            ("files-away", "problem.storage_away", "browser.advice_away"),
            ("files-gone", "problem.no_such_path", "browser.advice_not_there"),
        ] {
            let title = words.get(key);
            let page = FilesTroublePage {
                layout: self.layout(Place::Spaces, &title, Role::Researcher)?,
                title,
                advice: words.get(advice),
                back_href: "/spaces/home/files".to_owned(),
                again_href: if name == "files-away" { "/spaces/home/files?path=a".to_owned() } else { String::new() },
            };
            self.add(name, &page)?;
        }
        Ok(())
    }

    fn directory(&mut self, name: &str, path: &[u8], entries: &[Entry], writable: bool) -> Result<()> {
        let words = words();
        let path = RelativePath::parse(path)?;
        let ground = Ground::new(&"home".parse()?, "Home", writable);
        let look = Look { sort: Sort::Name, descending: false, hidden: false, filter: "" };
        let listed =
            Listed { entries: entries.len() as u64, at_least: false, next: None, accounts: Accounts::default() };
        let listing = Listing {
            path: path.clone(),
            writable,
            uid: 2001,
            items: entries.to_vec(),
            alike: vec![false; entries.len()],
            listed,
        };
        let crumbs = ground.crumbs(&path);
        let title = crumbs.last().map(|crumb| crumb.name.clone()).unwrap_or_default();
        let told = json!({
            "space": "home", "title": "Home", "writable": writable, "targets": targets(if writable { "home" } else { "" }),
            "sort": "name", "order": "asc", "hidden": false, "filter": "", "list": ListingView::from(listing),
        });
        let undo = Undo { action: "/spaces/home/trash/0198f3a2b4c67d1e8f90a1b2c3d4e5f6/restore".to_owned() };
        let trashed = Notice { tone: Tone::Good, text: words.get("notice.trashed") };
        let page = FilesPage {
            layout: self
                .layout(Place::Spaces, &title, Role::Researcher)?
                .with_notice((name == "files-deeper").then_some(trashed)),
            crumbs,
            entry_href: if path.is_space() { String::new() } else { ground.entry_href(path.as_bytes()) },
            raw: raw(path.as_bytes()),
            sort: "name",
            order: "asc",
            filter: String::new(),
            hidden: false,
            heads: look.heads(words, &ground, &path),
            rows: entries.iter().map(|entry| ground.row(words, &path, entry)).collect(),
            count: words.count("browser.count", entries.len() as u64),
            empty: entries.is_empty(),
            next_href: if name == "files" { "/spaces/home/files?cursor=9.0".to_owned() } else { String::new() },
            first_href: if name == "files-deeper" { "/spaces/home/files".to_owned() } else { String::new() },
            undo: (name == "files-deeper").then_some(undo),
            blank: Row { icon: "file", ..Row::default() },
            state: state(&told),
            ground,
        };
        Ok(self.add(name, &page)?)
    }

    fn one(&mut self, name: &str, kind: EntryKind) -> Result<()> {
        let is_link = kind == EntryKind::Link;
        let called = if name == "file-archive" { "results.tar.gz".to_owned() } else { HOSTILE.replace('/', "\n") };
        let path = RelativePath::parse(format!("data/{called}").as_bytes())?;
        let stated = Stated {
            kind,
            version: Version {
                device: 1,
                inode: 1,
                bytes: 5_000_000,
                modified: Moment { seconds: 1_795_000_000, nanoseconds: 0 },
                changed: Moment::default(),
            },
            mode: 0o640,
            owner: 2001,
            group: 5000,
            links: 1,
            on_disk: 5_242_880,
            accounts: Accounts::default(),
            link: is_link.then(|| Link { target: HostileText(b"/etc/<b>passwd".to_vec()), leads_to: None }),
        };
        let line = |who, bits| AclEntry { who, may: Rights::from_bits(bits) };
        let list = vec![line(Who::Owner, 7), line(Who::User(2002), 5), line(Who::Mask, 5), line(Who::Other, 0)];
        let may = Permissions {
            owner: 2001,
            group: 5000,
            mode: 0o640,
            mine: !is_link,
            lists: true,
            share: Some(Share::GroupReads),
            access: (kind == EntryKind::Directory).then_some(list),
            default: None,
            accounts: Accounts::default(),
        };
        let layout = self.layout(Place::Spaces, name, Role::Researcher)?;
        let ground = Ground::new(&"home".parse()?, "Home", !is_link && name != "file-read-only");
        let targets = match name {
            "file-one-space" | "file-link" => Vec::new(),
            "file-read-only" => targets(""),
            _ => targets("home"),
        };
        let mut page = EntryPage::new(words(), layout, (ground, targets), (&path, &stated), &may);
        if kind == EntryKind::Directory {
            page.storage = stripe::facts(words(), &Self::known());
        }
        Ok(self.add(name, &page)?)
    }

    /// What a storage tells of a directory: not over how many targets its files lie.
    fn known() -> storage::Entry {
        let stripe = storage::Stripe {
            pattern: storage::Pattern::Raid0,
            chunk: storage::Known::Known(storage::Bytes(1 << 20)),
            targets_wanted: storage::Known::Missing(storage::Why::NotUnderstood),
            targets: vec![],
            pool: storage::Known::Known((storage::PoolId(2), "<b>fast</b>".to_owned())),
        };
        storage::Entry {
            kind: storage::EntryKind::Directory,
            entry_id: "0-6AC3F2B1-1".to_owned(),
            metadata_node: storage::Known::Known(storage::NodeId {
                role: storage::Role::Metadata,
                number: 1,
                alias: None,
            }),
            metadata_mirrored: storage::Known::Known(true),
            stripe: storage::Known::Known(stripe),
        }
    }

    fn permissions(&mut self) -> Result<()> {
        let line = |who, bits| AclEntry { who, may: Rights::from_bits(bits) };
        let named = [line(Who::User(2002), 5), line(Who::Group(5001), 2), line(Who::Mask, 7)];
        let least = [line(Who::Owner, 7), line(Who::OwningGroup, 5), line(Who::Other, 0)];
        let name = |text: &str| AccountName::try_from(text.to_owned());
        let accounts =
            Accounts { users: [(2002, name("grace")?)].into(), groups: [(5000, name("<b>physics")?)].into() };
        let listed = Permissions {
            owner: 2001,
            group: 5000,
            mode: 0o770,
            mine: true,
            lists: true,
            share: None,
            access: Some([&least[..], &named].concat()),
            default: Some(least.into()),
            accounts,
        };
        let bare = Permissions { lists: false, access: None, default: None, mode: 0o640, ..listed.clone() };
        let anothers = Permissions { mine: false, owner: 2002, ..listed.clone() };
        let words = words();
        for (sample, now, is_directory) in [
            ("file-permissions", &listed, true),
            ("file-permissions-sure", &listed, true),
            ("file-permissions-wrong", &listed, false),
            ("file-permissions-bits", &bare, false),
            ("file-permissions-anothers", &anothers, true),
        ] {
            let path = RelativePath::parse(format!("data/{}", HOSTILE.replace('/', "\n")).as_bytes())?;
            let layout = self.layout(Place::Spaces, sample, Role::Researcher)?;
            let ground = Ground::new(&"home".parse()?, "Home", true);
            let mut typed = Typed::untouched(now, is_directory);
            HOSTILE.clone_into(&mut typed.new_name);
            let page = PermissionsPage::new(words, layout, ground, (&path, is_directory), (now, &typed));
            let wrong = words.fill("wrong.nobody_called", &[("name", HOSTILE)]);
            let page = match sample {
                "file-permissions-sure" => page.with_dangers(words, &[Danger::LocksOut, Danger::OpensToWrite]),
                "file-permissions-wrong" => page.with_errors(vec![FormError::new(words, "new_name", wrong)]),
                _ => page,
            };
            self.add(sample, &page)?;
        }
        Ok(())
    }

    fn trash(&mut self) -> Result<()> {
        let words = words();
        let trashed = |origin: Option<&[u8]>, kind| -> Result<Trashed> {
            let id: TrashId = "0198f3a2b4c67d1e8f90a1b2c3d4e5f6".parse()?;
            Ok(Trashed { id, origin: origin.map(RelativePath::parse).transpose()?, kind, bytes: Some(4096) })
        };
        let all = [
            trashed(Some(b"data/old\nname<b>"), EntryKind::File)?,
            trashed(Some(b"thesis"), EntryKind::Directory)?,
            trashed(None, EntryKind::File)?,
        ];
        for (name, items) in [("files-trash", &all[..]), ("files-trash-none", &[][..])] {
            let ground = Ground::new(&"home".parse()?, "Home", true);
            let page = TrashPage {
                layout: self.layout(Place::Spaces, &words.get("trash.title"), Role::Researcher)?,
                rows: items.iter().map(|trashed| ground.trash_row(words, trashed)).collect(),
                count: words.count("browser.count", items.len() as u64),
                empty_href: format!("{}/empty", ground.trash_href),
                next_href: if items.is_empty() { String::new() } else { "/spaces/home/trash?cursor=x".to_owned() },
                ground,
            };
            self.add(name, &page)?;
        }
        Ok(())
    }
}
