//! Whether a file system that takes no more is full, or only the directory's own limit is reached: XFS has one errno for both, and who is told
//! that the storage is full does not look for what to delete.
//!
//! A directory with a project that has a limit answers statvfs(3) with the limit as its size; the file system around it does not.

use eirene_files_protocol::{Code, RelativePath, SpaceNumber, Verb};
use rustix::fs::{StatVfs, fstatvfs};

use crate::beneath::{Last, Place};
use crate::server::Job;

/// So few bytes left of a limit are none: a file takes some for itself, and what is written comes in pieces.
const NONE_LEFT: u64 = 1024 * 1024;

impl Place {
    /// What it means that so many more bytes did not fit into this directory: [`Code::OverQuota`] for [`Code::NoSpace`] where it is the
    /// directory's own limit. Asked before anything is cleared away. Other codes stay.
    pub(crate) fn why_full(&self, why: Code, wanted: u64) -> Code {
        if why != Code::NoSpace {
            return why;
        }
        let (Ok(here), Ok(top)) = (fstatvfs(self.as_fd()), self.top_of_file_system()) else { return why };
        let Ok(whole) = fstatvfs(&top) else { return why };
        if is_limit(&here, &whole, wanted) { Code::OverQuota } else { why }
    }
}

fn is_limit(here: &StatVfs, whole: &StatVfs, wanted: u64) -> bool {
    let bytes = |blocks: u64, room: &StatVfs| blocks.saturating_mul(room.f_frsize);
    let limited = bytes(here.f_blocks, here) != bytes(whole.f_blocks, whole);
    let (left, left_of_all) = (bytes(here.f_bavail, here), bytes(whole.f_bavail, whole));
    // What is left of a limit is no more than what is left of the disk, as XFS tells it: where the disk is full nothing else is known.
    let no_bytes = limited && left < wanted.max(NONE_LEFT) && left_of_all.saturating_sub(left) >= NONE_LEFT;
    // The number of all inodes moves on XFS, that of the free ones of a limit does not.
    let no_files = here.f_ffree == 0 && whole.f_ffree > 0;
    no_bytes || no_files
}

/// What it means that a request ended so.
pub(crate) fn why_ended(job: &Job, why: Code) -> Code {
    if why != Code::NoSpace {
        return why;
    }
    let Some((space, mut path)) = target(&job.verb) else { return why };
    let Ok(space) = job.space(space) else { return why };
    // The nearest directory that is there: what was to be made may be missing.
    loop {
        if let Ok(place) = space.find(&path, Last::Followed) {
            return place.why_full(why, 0);
        }
        let Some((above, _)) = path.split_last() else { return why };
        path = above;
    }
}

/// The directory into which a request puts something.
fn target(verb: &Verb) -> Option<(SpaceNumber, RelativePath)> {
    let above = |path: &RelativePath| path.split_last().map(|(above, _)| above).unwrap_or_default();
    Some(match verb {
        Verb::MakeDirectory(wanted) => (wanted.space, above(&wanted.path)),
        Verb::Move(wanted) => (wanted.to.space, above(&wanted.to.path)),
        Verb::Copy(wanted) => (wanted.to.space, above(&wanted.to.path)),
        Verb::CreateUpload(wanted) => (wanted.part.space, wanted.part.directory.clone()),
        Verb::WriteUpload(wanted) => (wanted.part.space, wanted.part.directory.clone()),
        Verb::FinishUpload(part) => (part.space, part.directory.clone()),
        Verb::SetPermissions(wanted) => (wanted.space, wanted.path.clone()),
        Verb::Restore(wanted) => (wanted.space, wanted.to.as_ref().map(above).unwrap_or_default()),
        // The trash lies in the space's root.
        Verb::PutInTrash(wanted) => (wanted.space, RelativePath::default()),
        // What is removed is looked at once more in the trash.
        Verb::RemoveOld(wanted) => (wanted.space, RelativePath::default()),
        // The others put nothing anywhere.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::StatVfsMountFlags;

    use super::*;

    fn room(blocks: u64, left: u64, files_left: u64) -> StatVfs {
        StatVfs {
            f_bsize: 4096,
            f_frsize: 4096,
            f_blocks: blocks,
            f_bfree: left,
            f_bavail: left,
            f_files: 1000,
            f_ffree: files_left,
            f_favail: files_left,
            f_fsid: 1,
            f_flag: StatVfsMountFlags::empty(),
            f_namemax: 255,
        }
    }

    #[test]
    fn a_limit_is_told_by_what_the_directory_says_that_the_whole_does_not() {
        let whole = room(100_000, 50_000, 900);
        assert!(is_limit(&room(5000, 200, 900), &whole, 0), "less than a mebibyte of it is left");
        assert!(!is_limit(&room(5000, 300, 900), &whole, 0));
        assert!(is_limit(&room(5000, 300, 900), &whole, 300 * 4096 + 1), "and not enough for what is wanted");
        assert!(is_limit(&room(100_000, 50_000, 0), &whole, 0), "no file more");
        let full = room(100_000, 0, 0);
        assert!(!is_limit(&full, &full, 1 << 30), "all of it is full");
        assert!(!is_limit(&room(5000, 0, 0), &full, 0), "and what is left of a limit then says nothing");
        assert!(
            !is_limit(&room(90_000, 20, 900), &room(100_000, 200, 900), 0),
            "nor where next to nothing is left of it"
        );
    }

    #[test]
    fn the_top_of_a_file_system_is_where_it_is_mounted() {
        use std::os::unix::ffi::OsStrExt as _;

        use eirene_files_protocol::{HostileText, OpenSpace};

        use crate::beneath::{Descriptors, Space};

        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("a/b")).unwrap();
        let root = HostileText(base.path().as_os_str().as_bytes().to_vec());
        let space = OpenSpace { number: SpaceNumber(1), root, writable: true, reserved: Vec::new(), made: None };
        let space = Space::open(&space, std::sync::Arc::new(Descriptors::open().unwrap())).unwrap();
        let place = space.find(&RelativePath::parse(b"a/b").unwrap(), Last::Followed).unwrap();
        let top = place.top_of_file_system().unwrap();
        let (top, place_itself) = (rustix::fs::fstat(&top).unwrap(), place.look().unwrap().1);
        let device = rustix::fs::makedev(place_itself.stx_dev_major, place_itself.stx_dev_minor);
        assert_eq!(top.st_dev, device);
        let highest = base.path().ancestors().map(|path| rustix::fs::stat(path).unwrap());
        let highest = highest.take_while(|found| found.st_dev == device).last().unwrap();
        assert_eq!(top.st_ino, highest.st_ino);
        // Here is no limit, whatever is said.
        assert_eq!(place.why_full(Code::NoSpace, 0), Code::NoSpace);
        assert_eq!(place.why_full(Code::Forbidden, 0), Code::Forbidden);
    }
}
