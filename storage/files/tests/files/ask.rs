//! Requests that change something, as the tests ask them.

use eirene_files_protocol::{
    Answer, Code, Compare, CopyFiles, CreateUpload, Delete, EmptyTrash, Extract, ListTrash, LookAtPermissions,
    MakeDirectory, Move, Moved, OnConflict, Outcome, Part, PartId, PartSpot, PermissionChange, Problem, PutInTrash,
    Restore, Scan, Search, SetPermissions, Spot, TrashId, Trashed, UploadState, Verb, Walked, Which, WriteUpload,
};

use crate::bench::{Heard, Portal, SPACE, relative};

/// What is not whole yet, in these tests.
pub(crate) const PART: PartId = PartId([0x5e; 16]);
/// How that is called.
pub(crate) const PART_NAME: &str = ".eirene-upload-5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

pub(crate) fn spot(path: &[u8]) -> Spot {
    Spot { space: SPACE, path: relative(path) }
}

pub(crate) fn make(path: &[u8], parents: bool) -> Verb {
    Verb::MakeDirectory(MakeDirectory { space: SPACE, path: relative(path), parents })
}

pub(crate) fn move_to(from: &[u8], to: &[u8], on_conflict: OnConflict) -> Verb {
    Verb::Move(Move { from: spot(from), to: spot(to), on_conflict })
}

pub(crate) fn copy(from: &[u8], to: &[u8], on_conflict: OnConflict) -> Verb {
    Verb::Copy(copy_files(from, to, on_conflict))
}

pub(crate) fn copy_files(from: &[u8], to: &[u8], on_conflict: OnConflict) -> CopyFiles {
    CopyFiles { id: PART, earlier: Vec::new(), same_is_done: false, from: spot(from), to: spot(to), on_conflict }
}

pub(crate) fn compare(from: &[u8], to: &[u8]) -> Verb {
    Verb::Compare(Compare { from: spot(from), to: spot(to) })
}

pub(crate) fn find_unfinished(path: &[u8]) -> Verb {
    Verb::FindUnfinished(spot(path))
}

pub(crate) fn extract(from: &[u8], to: &[u8], on_conflict: OnConflict) -> Verb {
    Verb::Extract(Extract { id: PART, from: spot(from), to: spot(to), on_conflict })
}

pub(crate) fn put_in_trash(path: &[u8]) -> Verb {
    Verb::PutInTrash(PutInTrash { space: SPACE, path: relative(path) })
}

pub(crate) fn list_trash() -> Verb {
    Verb::ListTrash(ListTrash { space: SPACE, after: None, limit: 1000 })
}

pub(crate) fn restore(id: TrashId, to: Option<&[u8]>, on_conflict: OnConflict) -> Verb {
    Verb::Restore(Restore { space: SPACE, id, to: to.map(relative), on_conflict })
}

pub(crate) fn empty_trash(which: Which) -> Verb {
    Verb::EmptyTrash(EmptyTrash { space: SPACE, which })
}

pub(crate) fn delete(path: &[u8]) -> Verb {
    Verb::Delete(Delete { space: SPACE, path: relative(path) })
}

pub(crate) fn part(directory: &[u8]) -> PartSpot {
    PartSpot { space: SPACE, directory: relative(directory), id: PART }
}

/// An upload to this path.
pub(crate) fn upload(path: &[u8], length: Option<u64>, on_conflict: OnConflict) -> CreateUpload {
    let (directory, name) = relative(path).split_last().unwrap();
    let part = part(directory.as_bytes());
    CreateUpload { part, name, length, sha256: None, modified: None, on_conflict, parents: false }
}

pub(crate) fn write_upload(directory: &[u8], offset: u64) -> WriteUpload {
    WriteUpload { part: part(directory), offset, bytes: None, length: None, checksum: None }
}

pub(crate) fn permissions(path: &[u8], change: PermissionChange, recursive: bool) -> Verb {
    Verb::SetPermissions(SetPermissions { space: SPACE, path: relative(path), change, recursive })
}

pub(crate) fn look_at_permissions(path: &[u8]) -> Verb {
    Verb::LookAtPermissions(LookAtPermissions { space: SPACE, path: relative(path) })
}

pub(crate) fn search(path: &[u8], name: &str) -> Search {
    Search {
        space: SPACE,
        path: relative(path),
        name: name.into(),
        kind: None,
        least_bytes: None,
        most_bytes: None,
        since: None,
        limit: 1000,
    }
}

pub(crate) fn scan(path: &[u8]) -> Scan {
    Scan { space: SPACE, path: relative(path), known: Vec::new(), budget_ms: 60_000 }
}

impl Heard {
    pub(crate) fn upload(self) -> UploadState {
        match self.done() {
            Answer::Upload(state) => state,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn problem(self) -> Problem {
        match self.outcome {
            Outcome::Problem(problem) => problem,
            Outcome::Done(answer) => panic!("{answer:?}"),
        }
    }

    pub(crate) fn done(self) -> Answer {
        match self.outcome {
            Outcome::Done(answer) => answer,
            Outcome::Problem(problem) => panic!("{problem:?}"),
        }
    }

    pub(crate) fn moved(self) -> Moved {
        match self.done() {
            Answer::Moved(moved) => moved,
            Answer::Copied(copied) => copied.moved,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn walked(self) -> Walked {
        match self.done() {
            Answer::Removed(walked) | Answer::PermissionsSet(walked) | Answer::Compared(walked) => walked,
            Answer::Copied(copied) => copied.walked,
            Answer::Searched(searched) => searched.walked,
            Answer::Scanned(scanned) => scanned.walked,
            other => panic!("{other:?}"),
        }
    }
}

impl Portal {
    /// The code a request ends with; none where it is done.
    pub(crate) fn code(&mut self, verb: Verb) -> Option<Code> {
        self.ask(verb).code()
    }

    pub(crate) fn trash(&mut self, path: &[u8]) -> TrashId {
        match self.ask(put_in_trash(path)).done() {
            Answer::PutInTrash { id } => id,
            other => panic!("{other:?}"),
        }
    }

    /// Writes to an upload, until it takes no more.
    pub(crate) fn send(&mut self, verb: WriteUpload, bytes: &[u8]) -> Heard {
        let (number, stream) = self.begin(Verb::WriteUpload(verb));
        let mut stream = stream.unwrap();
        std::thread::scope(|scope| {
            let writer = stream.try_clone().unwrap();
            scope.spawn(move || {
                // The other end may take no more.
                let _ = std::io::Write::write_all(&mut &writer, bytes);
                let _ = writer.shutdown(std::net::Shutdown::Write);
            });
            let heard = self.finish(number, None);
            // Whatever is still being written is not waited for.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            let _ = std::io::Read::read(&mut stream, &mut [0]);
            heard
        })
    }

    /// All that lies in the trash.
    pub(crate) fn trashed(&mut self) -> Vec<Trashed> {
        let heard = self.ask(list_trash());
        assert_eq!(heard.code(), None);
        let parts = heard.parts.into_iter().map(|part| match part {
            Part::Trashed(trashed) => trashed,
            other => panic!("{other:?}"),
        });
        parts.flatten().collect()
    }
}
