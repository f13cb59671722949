//! One of each request that changes something, and of its answers, for the tests of frames.

use crate::{
    AccountName, Accounts, AclEntry, Answer, CellKind, Checksum, Code, Compare, Copied, CopyFiles, CreateUpload,
    Delete, Digest, EmptyTrash, Encoding, EntryKind, Extract, Extracted, Found, HostileText, KnownDirectory, ListOld,
    ListTrash, ListedOld, LookAtPermissions, MakeDirectory, Measured, Moment, Move, Moved, Name, OldFile, OldOfOther,
    OnConflict, Part, PartId, PartSpot, PermissionChange, Permissions, Piece, Preview, Previewed, PutInTrash, Refused,
    RelativePath, RemoveOld, RemovedOld, Restore, Rights, Scan, Scanned, Search, Searched, SetPermissions, Share,
    Shown, Skipped, SpaceNumber, Spot, SumUp, TrashId, Trashed, UploadState, Verb, Version, Walked, Which, Who,
    WriteUpload,
};

const SPACE: SpaceNumber = SpaceNumber(3);
const TRASH_ID: TrashId = TrashId([7; 16]);

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn spot(text: &str) -> Spot {
    Spot { space: SPACE, path: path(text) }
}

fn part() -> PartSpot {
    PartSpot { space: SPACE, directory: path("d"), id: PartId([0xcd; 16]) }
}

fn accounts() -> Accounts {
    let name = |text: &str| AccountName::try_from(text.to_owned()).unwrap();
    Accounts { users: [(0, name("root")), (u32::MAX, name("\u{e9}\\"))].into(), groups: [(7, name("physics"))].into() }
}

fn acl() -> Vec<AclEntry> {
    let line = |(who, bits)| AclEntry { who, may: Rights::from_bits(bits) };
    [(Who::Owner, 7), (Who::User(1000), 5), (Who::OwningGroup, 0), (Who::Group(7), 6), (Who::Mask, 7), (Who::Other, 1)]
        .map(line)
        .into()
}

fn permissions(change: PermissionChange) -> Verb {
    Verb::SetPermissions(SetPermissions { space: SPACE, path: path("a"), change, recursive: true })
}

fn known() -> KnownDirectory {
    KnownDirectory { path: path("a/b"), device: u64::MAX, inode: 5 }
}

pub(crate) fn verbs() -> Vec<Verb> {
    let on_conflict = OnConflict::KeepBoth;
    vec![
        Verb::SumUp(SumUp { space: SPACE, path: path("a") }),
        Verb::MakeDirectory(MakeDirectory { space: SPACE, path: path("a/b"), parents: true }),
        Verb::Move(Move { from: spot("a"), to: spot("b/\u{202e}"), on_conflict: OnConflict::Refuse }),
        Verb::Copy(CopyFiles {
            id: PartId([0xab; 16]),
            earlier: vec![PartId([0xcd; 16])],
            same_is_done: true,
            from: spot("a"),
            to: spot("b"),
            on_conflict,
        }),
        Verb::Compare(Compare { from: spot("a"), to: spot("b") }),
        Verb::FindUnfinished(spot("a")),
        Verb::Extract(Extract { id: PartId([0xab; 16]), from: spot("a.tar"), to: spot("b"), on_conflict }),
        Verb::PutInTrash(PutInTrash { space: SPACE, path: path("a") }),
        Verb::ListTrash(ListTrash { space: SPACE, after: Some(TRASH_ID), limit: 5 }),
        Verb::Restore(Restore { space: SPACE, id: TRASH_ID, to: Some(path("c")), on_conflict: OnConflict::Replace }),
        Verb::EmptyTrash(EmptyTrash { space: SPACE, which: Which::One(TRASH_ID) }),
        Verb::EmptyTrash(EmptyTrash { space: SPACE, which: Which::Before(u64::MAX) }),
        Verb::Delete(Delete { space: SPACE, path: path("a") }),
        Verb::CreateUpload(CreateUpload {
            part: part(),
            name: Name::parse(b"caf\xe9").unwrap(),
            length: Some(u64::MAX),
            sha256: Some(Digest([9; 32])),
            modified: Some(Moment { seconds: -5, nanoseconds: 1 }),
            on_conflict,
            parents: true,
        }),
        Verb::LookAtUpload(part()),
        Verb::WriteUpload(WriteUpload {
            part: part(),
            offset: 1,
            bytes: Some(2),
            length: None,
            checksum: Some(Checksum::Crc32(Digest([1, 2, 3, 4]))),
        }),
        Verb::FinishUpload(part()),
        Verb::RemovePart(part()),
        Verb::LookAtPermissions(LookAtPermissions { space: SPACE, path: path("a") }),
        permissions(PermissionChange::Share(Share::GroupReads)),
        permissions(PermissionChange::Mode(0o640)),
        permissions(PermissionChange::Acl { access: acl(), default: Vec::new() }),
        Verb::Search(Search {
            space: SPACE,
            path: path(""),
            name: "*.é".into(),
            kind: Some(EntryKind::File),
            least_bytes: Some(1),
            most_bytes: None,
            since: Some(-1),
            limit: 10,
        }),
        Verb::Scan(Scan { space: SPACE, path: path("a"), known: vec![known()], budget_ms: 60_000 }),
        Verb::Preview(Preview { space: SPACE, path: path("a"), page: 1 }),
        Verb::ListOld(ListOld { space: SPACE, path: path("a"), before: -1, now: i64::MAX }),
        Verb::RemoveOld(RemoveOld { space: SPACE, before: -1, now: i64::MAX, files: vec![old_file()] }),
    ]
}

pub(crate) fn parts() -> Vec<Part> {
    let trashed = |origin, bytes| Trashed { id: TRASH_ID, origin, kind: EntryKind::File, bytes };
    let found = Found { path: path("a"), kind: EntryKind::Link, bytes: None, modified: None };
    let measured = Measured { directory: known(), bytes: 1, entries: 2, own_bytes: 3, own_entries: 4 };
    vec![
        Part::Trashed(vec![trashed(Some(path("a")), Some(1)), trashed(None, None)]),
        Part::Found(vec![found]),
        Part::Measured(vec![measured]),
        Part::Old(vec![old_file()]),
        Part::Preview(vec![
            Piece::Cell(CellKind::Markdown),
            Piece::Number(u32::MAX),
            Piece::Text("<b>".into()),
            Piece::Output,
            Piece::Table(1),
            Piece::Row(vec![String::new(), "\u{202e}".into()]),
            Piece::Picture("image/png".into()),
            Piece::Omitted("text/html".into()),
        ]),
    ]
}

fn old_file() -> OldFile {
    let moment = Moment { seconds: -1, nanoseconds: 7 };
    OldFile {
        path: path("a/é"), version: Version { device: 1, inode: 2, bytes: 3, modified: moment, changed: moment }
    }
}

fn previewed(shown: Shown) -> Answer {
    let moment = Moment::default();
    let version = Version { device: 1, inode: 2, bytes: 3, modified: moment, changed: moment };
    Answer::Previewed(Previewed { version, shown })
}

pub(crate) fn answers() -> Vec<Answer> {
    let moved = Moved { path: path("a/b (2)"), trashed: Some(TRASH_ID) };
    let skipped = vec![Skipped { path: path("x"), why: Code::Forbidden }];
    let refused = vec![Refused { name: HostileText(b"../\xff".to_vec()), why: Code::Unsafe }];
    let walked = Walked { entries: 1, bytes: 2, skipped, skipped_in_all: 3 };
    let moment = Moment::default();
    let version = Version { device: 1, inode: 2, bytes: 3, modified: moment, changed: moment };
    vec![
        Answer::Summed { version, sha256: Digest([9; 32]) },
        Answer::Made { made: true },
        Answer::Moved(moved.clone()),
        Answer::Copied(Copied { moved: moved.clone(), walked: walked.clone() }),
        Answer::Compared(walked.clone()),
        Answer::FoundUnfinished { directory: Some(path("a/b")) },
        Answer::FoundUnfinished { directory: None },
        Answer::Extracted(Extracted { moved: moved.clone(), entries: 1, bytes: 2, refused, refused_in_all: 3 }),
        Answer::PutInTrash { id: TRASH_ID },
        Answer::TrashListed { entries: 9, next: None },
        Answer::Removed(walked.clone()),
        Answer::Permissions(Permissions {
            owner: 1,
            group: 2,
            mode: 0o2750,
            mine: true,
            lists: true,
            share: Some(Share::Private),
            access: Some(acl()),
            default: None,
            accounts: accounts(),
        }),
        Answer::PermissionsSet(walked.clone()),
        Answer::Searched(Searched { found: 1, more: true, walked: walked.clone() }),
        Answer::Scanned(Scanned { complete: false, met: vec![0, 7], approximate: true, walked: walked.clone() }),
        previewed(Shown::Text { encoding: Encoding::Latin1, cut: true }),
        previewed(Shown::Table { cut: false }),
        previewed(Shown::Notebook { cut: false }),
        previewed(Shown::Picture { media: "image/png".into(), size: Some((1, u32::MAX)) }),
        previewed(Shown::Bytes { head: "00ff".into() }),
        Answer::ListedOld(ListedOld {
            walked: walked.clone(),
            saved: 1,
            more: true,
            others: vec![OldOfOther { uid: 1, files: 2, bytes: u64::MAX }],
        }),
        Answer::RemovedOld(RemovedOld { walked, kept: 1, gone: 2 }),
        Answer::Upload(UploadState { offset: 1, length: Some(2), created: 3, finished: None }),
    ]
}
