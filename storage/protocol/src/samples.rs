//! One of each request that changes something, and of its answers, for the tests of frames.

use crate::{
    Answer, Checksum, Code, Copied, CopyFiles, CreateUpload, Delete, Digest, EmptyTrash, EntryKind, ListTrash,
    MakeDirectory, Moment, Move, Moved, Name, OnConflict, Part, PartId, PartSpot, PutInTrash, RelativePath, Restore,
    Skipped, SpaceNumber, Spot, TrashId, Trashed, UploadState, Verb, Walked, Which, WriteUpload,
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

pub(crate) fn verbs() -> Vec<Verb> {
    let on_conflict = OnConflict::KeepBoth;
    vec![
        Verb::MakeDirectory(MakeDirectory { space: SPACE, path: path("a/b"), parents: true }),
        Verb::Move(Move { from: spot("a"), to: spot("b/\u{202e}"), on_conflict: OnConflict::Refuse }),
        Verb::Copy(CopyFiles { id: PartId([0xab; 16]), from: spot("a"), to: spot("b"), on_conflict }),
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
    ]
}

pub(crate) fn parts() -> Vec<Part> {
    let trashed = |origin, bytes| Trashed { id: TRASH_ID, origin, kind: EntryKind::File, bytes };
    vec![Part::Trashed(vec![trashed(Some(path("a")), Some(1)), trashed(None, None)])]
}

pub(crate) fn answers() -> Vec<Answer> {
    let moved = Moved { path: path("a/b (2)"), trashed: Some(TRASH_ID) };
    let skipped = vec![Skipped { path: path("x"), why: Code::Forbidden }];
    let walked = Walked { entries: 1, bytes: 2, skipped, skipped_in_all: 3 };
    vec![
        Answer::Made { made: true },
        Answer::Moved(moved.clone()),
        Answer::Copied(Copied { moved, walked: walked.clone() }),
        Answer::PutInTrash { id: TRASH_ID },
        Answer::TrashListed { entries: 9, next: None },
        Answer::Removed(walked),
        Answer::Upload(UploadState { offset: 1, length: Some(2), created: 3, finished: None }),
    ]
}
