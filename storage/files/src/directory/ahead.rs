//! Has a large directory of ext4 read from the disk in several places at once.
//!
//! ext4 gives names out in the order of their hashes, and the blocks in which they lie come in no order: whoever reads a directory that is not in
//! memory waits for each block, one after the other. Where that is so, others look at later parts of it meanwhile and throw away what they find; the
//! blocks are in memory then. Names come from one reader alone, so nothing depends on it that these find anything, or are started at all.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, fstat, fstatfs, openat, seek};
use rustix::io::Errno;

use crate::server::STACK_BYTES;

/// How many look, beside the one who reads.
const BESIDE: u64 = 5;
/// Bytes of a directory with which it is worth it.
const LARGE: i64 = 1 << 20;
/// Bytes asked for at once.
const BUFFER: usize = 64 * 1024;

/// Blocks that this thread has waited for (getrusage(2), `ru_inblock`).
pub(super) fn blocks_read() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.block_reads())
}

/// Begins to look at later parts of a directory, where that is worth it, until `is_over`.
pub(super) fn begin<'scope>(scope: &'scope Scope<'scope, '_>, directory: &'scope OwnedFd, is_over: &'scope AtomicBool) {
    if is_worth_it(directory) {
        for part in 1..=BESIDE {
            // One that cannot be started is one that does not help.
            drop(Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || look(directory, part, is_over)));
        }
    }
}

fn is_worth_it(directory: &OwnedFd) -> bool {
    fstatfs(directory).is_ok_and(|found| found.f_type == libc::EXT4_SUPER_MAGIC)
        && fstat(directory).is_ok_and(|found| found.st_size >= LARGE)
}

/// Where a part begins: a place in a directory of ext4 is a hash of 31 bits above 32 others.
fn begin_of(part: u64) -> u64 {
    ((part << 31) / (BESIDE + 1)) << 32
}

fn look(directory: &OwnedFd, part: u64, is_over: &AtomicBool) -> Result<(), Errno> {
    // Opened anew, for a place of its own in it.
    let beside = openat(directory, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    seek(&beside, SeekFrom::Start(begin_of(part)))?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = RawDir::new(&beside, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let is_beyond = entry?.next_entry_cookie() > begin_of(part + 1);
        if is_beyond || is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    #[test]
    fn its_parts_are_all_places_there_can_be() {
        let begins: Vec<u64> = (0..=BESIDE + 1).map(begin_of).collect();
        assert_eq!((begins[0], begins[begins.len() - 1]), (0, 1 << 63));
        assert!(begins.is_sorted_by(|one, next| one < next), "{begins:?}");
    }

    #[test]
    fn a_small_directory_and_one_elsewhere_are_read_as_they_are() {
        assert!(!is_worth_it(&open(tempfile::tempdir().unwrap().path())));
        assert!(!is_worth_it(&open(Path::new("/proc"))));
    }

    #[test]
    fn whoever_looks_ahead_ends_by_itself_and_moves_nobodys_place() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..6000 {
            std::fs::File::create(directory.path().join(format!("{number:0250}"))).unwrap();
        }
        let opened = open(directory.path());
        let is_ext4 = fstatfs(&opened).unwrap().f_type == libc::EXT4_SUPER_MAGIC;
        assert_eq!(is_worth_it(&opened), is_ext4);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| begin(scope, &opened, &is_over));
        if is_ext4 {
            for part in 1..=BESIDE {
                look(&opened, part, &is_over).unwrap();
            }
        }
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
        let mut names = 0;
        while let Some(entry) = entries.next() {
            names += usize::from(entry.unwrap().file_name().to_bytes().len() == 250);
        }
        assert_eq!(names, 6000);
    }
}
