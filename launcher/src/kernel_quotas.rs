//! What a file system counts for users and groups (quotactl(2)). The kernel tells people about themselves and their groups, and root about everybody.
//!
//! The storage crate asks for a person's own, too; this process shares no code with it, so that what is privileged stays small.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use eirene_core::storage::{KernelQuota, QuotaOf};
use nix::errno::Errno;

/// `Q_GETNEXTQUOTA`, `USRQUOTA` and `GRPQUOTA` of `linux/quota.h`, in which `QCMD` shifts the command by 8.
const NEXT_OF_USERS: u32 = 0x0080_0009 << 8;
const NEXT_OF_GROUPS: u32 = NEXT_OF_USERS | 1;
/// Units in which limits of bytes count (`QIF_DQBLKSIZE`); what is used is told in bytes.
const BLOCK: u64 = 1024;

/// `struct if_nextdqblk` of `linux/quota.h`.
#[repr(C)]
#[derive(Default)]
struct Next {
    bytes_hard: u64,
    bytes_soft: u64,
    bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    bytes_until: u64,
    files_until: u64,
    valid: u32,
    id: u32,
}

/// What the file system of a directory counts for those of a range who have anything there, in ascending order.
///
/// # Errors
/// What the kernel says: `EPERM` without `CAP_SYS_ADMIN`, `ESRCH` where it is not switched on, `ENOSYS` and others where there is no such thing.
pub(crate) fn read(directory: impl AsFd, of: QuotaOf, first: u32, last: u32) -> Result<Vec<KernelQuota>, Errno> {
    let directory = directory.as_fd();
    let mut rows = Vec::new();
    let mut from = Some(first);
    while let Some(at) = from.filter(|from| *from <= last) {
        let found = match next(directory, of, at) {
            Ok(found) if found.id > last => break,
            // That would go round in a circle.
            Ok(found) if found.id < at => return Err(Errno::EIO),
            Ok(found) => found,
            Err(Errno::ENOENT) => break,
            Err(error) => return Err(error),
        };
        from = found.id.checked_add(1);
        rows.push(row(&found));
    }
    Ok(rows)
}

fn row(told: &Next) -> KernelQuota {
    // 0 is no limit.
    let lower = |soft: u64, hard: u64| [soft, hard].into_iter().filter(|limit| *limit > 0).min();
    KernelQuota {
        id: told.id,
        used: told.bytes,
        limit: lower(told.bytes_soft, told.bytes_hard).map(|blocks| blocks.saturating_mul(BLOCK)),
        files: told.files,
        files_limit: lower(told.files_soft, told.files_hard),
    }
}

/// The first one from `id` on who has anything there.
#[expect(unsafe_code, reason = "nix knows no quotactl_fd(2)")]
fn next(directory: BorrowedFd<'_>, of: QuotaOf, id: u32) -> Result<Next, Errno> {
    let command = match of {
        QuotaOf::User => NEXT_OF_USERS,
        QuotaOf::Group => NEXT_OF_GROUPS,
    };
    let mut told = Next::default();
    let directory = directory.as_raw_fd();
    // SAFETY: the descriptor is open for the whole call, and the kernel writes one `if_nextdqblk`, which holds plain numbers.
    let status = unsafe { libc::syscall(libc::SYS_quotactl_fd, directory, command, id, std::ptr::from_mut(&mut told)) };
    Errno::result(status).map(|_| told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_with_its_units() {
        assert_eq!(size_of::<Next>(), 72, "`struct if_nextdqblk` of `linux/quota.h`");
        let mut told = Next { bytes: 5000, files: 3, id: 7, ..Next::default() };
        let free = KernelQuota { id: 7, used: 5000, limit: None, files: 3, files_limit: None };
        assert_eq!(row(&told), free);
        (told.bytes_hard, told.files_hard, told.files_soft) = (20, 50, 60);
        assert_eq!(row(&told), KernelQuota { limit: Some(20 << 10), files_limit: Some(50), ..free });
        told.bytes_soft = 10;
        assert_eq!(row(&told).limit, Some(10 << 10), "the lower one");
    }

    #[test]
    fn a_file_system_that_counts_for_nobody_says_so() {
        let proc = std::fs::File::open("/proc/self").unwrap();
        for of in [QuotaOf::User, QuotaOf::Group] {
            assert!(read(&proc, of, 0, 10).is_err());
        }
    }
}
