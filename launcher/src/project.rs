//! Project quotas of a directory, on file systems that have them (XFS, ext4): what is made below gets the directory's project id, and the kernel
//! holds the limit.
//!
//! The storage crate reads project ids, too; this process shares no code with it, so that what is privileged stays small.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_on_write_extent_size: u32,
    padding: [u8; 8],
}

/// `_IOR('X', 31, struct fsxattr)`, `_IOW('X', 32, struct fsxattr)`, and the flag that what is made below gets the project, of `linux/fs.h`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_XFLAG_PROJINHERIT: u32 = 0x0000_0200;
/// `PRJQUOTA` of `linux/quota.h`, in which `QCMD` shifts the command by 8.
const SET_PROJECT_QUOTA: u32 = (libc::Q_SETQUOTA as u32) << 8 | 2;
/// Units in which a quota counts, bytes (`QIF_DQBLKSIZE`).
const BLOCK: u64 = 1024;

/// The project of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Number; 0 is none.
    pub id: u32,
    /// What is made in the directory belongs to the project.
    pub inherited: bool,
}

/// As `eirene-look` takes it: the number, and `+` where it is handed on.
impl fmt::Display for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.id, if self.inherited { "+" } else { "" })
    }
}

/// The project of a directory.
///
/// # Errors
/// `ENOTTY` and others where the file system has none.
pub(crate) fn of(directory: impl AsFd) -> Result<Project, Errno> {
    let found = attributes(directory.as_fd())?;
    Ok(Project { id: found.project, inherited: found.flags & FS_XFLAG_PROJINHERIT != 0 })
}

/// Gives a directory a project, which what is made in it from now on gets, too.
///
/// # Errors
/// As [`of`].
pub(crate) fn give(directory: impl AsFd, id: u32) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let mut wanted = attributes(directory)?;
    (wanted.project, wanted.flags) = (id, wanted.flags | FS_XFLAG_PROJINHERIT);
    attributes_by(directory, FS_IOC_FSSETXATTR, &mut wanted)
}

fn attributes(directory: BorrowedFd<'_>) -> Result<Attributes, Errno> {
    let mut found = Attributes::default();
    attributes_by(directory, FS_IOC_FSGETXATTR, &mut found)?;
    Ok(found)
}

#[expect(unsafe_code, reason = "nix knows no ioctl for project ids")]
fn attributes_by(directory: BorrowedFd<'_>, request: u32, attributes: &mut Attributes) -> Result<(), Errno> {
    // SAFETY: the kernel reads or writes at most the 28 bytes of `Attributes`, which are all plain numbers.
    let status = unsafe { libc::ioctl(directory.as_raw_fd(), request.into(), std::ptr::from_mut(attributes)) };
    Errno::result(status).map(drop)
}

/// Sets the hard limits of a project on the file system of a directory (quotactl(2)); none is no limit.
///
/// # Errors
/// What the kernel says: `ESRCH` where no project quotas are switched on, `ENOSYS` before Linux 5.14.
#[expect(unsafe_code, reason = "nix knows no quotactl_fd(2)")]
pub(crate) fn limit(directory: impl AsFd, id: u32, bytes: Option<u64>, files: Option<u64>) -> Result<(), Errno> {
    // SAFETY: all its fields are numbers, which may be 0.
    let mut wanted: libc::dqblk = unsafe { std::mem::zeroed() };
    // 0 is no limit; so the least one is one block, or one file.
    wanted.dqb_bhardlimit = bytes.map_or(0, |bytes| bytes.div_ceil(BLOCK).max(1));
    wanted.dqb_ihardlimit = files.map_or(0, |files| files.max(1));
    wanted.dqb_valid = libc::QIF_LIMITS;
    let directory = directory.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one `dqblk`.
    let status =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, directory, SET_PROJECT_QUOTA, id, std::ptr::from_ref(&wanted)) };
    Errno::result(status).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_given_what_fits() {
        assert_eq!(size_of::<Attributes>(), 28);
        for request in [FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR] {
            assert_eq!(request >> 16 & 0x3fff, 28);
        }
    }

    #[test]
    fn a_file_system_without_projects_says_so() {
        let proc = std::fs::File::open("/proc/self").unwrap();
        assert!(of(&proc).is_err() && give(&proc, 7).is_err() && limit(&proc, 7, Some(1), None).is_err());
    }
}
