//! Bytes on their way to the disk while more of them come.
//!
//! Left alone the kernel begins to write a file when somebody waits for it, and then all of it: whoever sends a large file would wait for the
//! storage first and for the disk afterwards. That makes nothing certain; fdatasync(2) does, which here is only asked where a file is closed for good.

use std::os::fd::{AsRawFd as _, OwnedFd};

use eirene_files_protocol::Code;
use rustix::fs::{FsWord, fdatasync, fstatfs};
use rustix::io::Errno;

use crate::errno::code;

/// So many bytes are begun at once.
const BEGUN: u64 = 8 * 1024 * 1024;

/// How far a file has begun to be written, for one writer that only adds.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    begun: u64,
}

impl WriteBehind {
    /// Bytes before `at` are no concern of this.
    pub(crate) fn new(at: u64) -> Self {
        Self { begun: at }
    }

    /// The file has all bytes up to `end` now.
    pub(crate) fn reached(&mut self, file: &OwnedFd, end: u64) {
        if end.saturating_sub(self.begun) >= BEGUN {
            begin(file, self.begun, end);
            self.begun = end;
        }
    }
}

/// File systems of this machine's own disks and memory, by what statfs(2) says of them: ext4, XFS, Btrfs, F2FS, tmpfs.
const LOCAL: [FsWord; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];

/// Whether a file lies on a file system of which it is known that it writes by itself what it was given, and says to whoever asks later, also through
/// another descriptor, what it could not write.
pub(crate) fn is_on_local_disk(file: &OwnedFd) -> bool {
    fstatfs(file).is_ok_and(|found| LOCAL.contains(&found.f_type))
}

/// Waits for a file that nobody looks at again before it counts as written, where what could not be written is said to nobody afterwards: a network
/// file system takes bytes for which there is no room, and the close that says so is not heard.
pub(crate) fn reach_storage(file: &OwnedFd) -> Result<(), Code> {
    reach(is_on_local_disk(file), || fdatasync(file))
}

fn reach(is_local: bool, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Code> {
    if is_local { Ok(()) } else { sync().map_err(code) }
}

/// Has the kernel begin to write a part of a file (sync_file_range(2)). Where a file system has no use for it nothing is lost.
#[expect(unsafe_code, reason = "rustix and nix know no sync_file_range")]
fn begin(file: &OwnedFd, from: u64, to: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(from), i64::try_from(to - from)) else { return };
    // SAFETY: the descriptor is open for the whole call, and everything else is numbers.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_begun_when_it_is_large_enough_and_only_once() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        rustix::io::pwrite(&file, &vec![7; 16 << 20], 100).unwrap();
        let mut behind = WriteBehind::new(100);
        behind.reached(&file, 99);
        behind.reached(&file, 99 + BEGUN);
        assert_eq!(behind.begun, 100, "too little");
        behind.reached(&file, 100 + BEGUN);
        assert_eq!(behind.begun, 100 + BEGUN);
        behind.reached(&file, 200 + BEGUN);
        assert_eq!(behind.begun, 100 + BEGUN);
    }

    #[test]
    fn what_is_not_known_to_be_a_local_disk_is_none() {
        let pipe = OwnedFd::from(std::io::pipe().unwrap().0);
        assert!(!is_on_local_disk(&pipe));
        assert!(!is_on_local_disk(&std::fs::File::open("/proc/self/stat").unwrap().into()));
        let memory = std::fs::File::open("/dev/shm").unwrap();
        assert!(is_on_local_disk(&memory.into()), "tmpfs");
    }

    #[test]
    fn what_a_network_file_system_could_not_write_is_heard_and_a_local_disk_is_not_waited_for() {
        for (errno, expected) in
            [(Errno::NOSPC, Code::NoSpace), (Errno::DQUOT, Code::OverQuota), (Errno::IO, Code::Away)]
        {
            assert_eq!(reach(false, || Err(errno)), Err(expected));
            assert_eq!(reach(true, || Err(errno)), Ok(()));
        }
        assert_eq!(reach(false, || Ok(())), Ok(()));
        let pipe = OwnedFd::from(std::io::pipe().unwrap().0);
        assert!(reach_storage(&pipe).is_err(), "no local disk, and nothing that could be waited for");
        let memory: OwnedFd = tempfile::tempfile_in("/dev/shm").unwrap().into();
        assert_eq!(reach_storage(&memory), Ok(()));
    }

    #[test]
    fn what_cannot_be_begun_is_no_error() {
        let (pipe, _other) = std::io::pipe().unwrap();
        let pipe = OwnedFd::from(pipe);
        begin(&pipe, 0, BEGUN);
        begin(&pipe, u64::MAX - 1, u64::MAX);
    }
}
