//! The default access list of a group's space: what is made in it is the group's to write, whatever the umask of whoever makes it.
//!
//! acl(5) and the kernel's `posix_acl_xattr.h` say what the attribute looks like: a version, then tag, permissions and id of each entry.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

const ATTRIBUTE: &CStr = c"system.posix_acl_default";
const VERSION: u32 = 2;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const ALL: u16 = 7;

/// Owner and group may do everything, others nothing; the group is named, so that it may also where a file is given to another one.
fn for_group(gid: u32) -> Vec<u8> {
    let entries =
        [(USER_OBJ, ALL, NO_ID), (GROUP_OBJ, ALL, NO_ID), (GROUP, ALL, gid), (MASK, ALL, NO_ID), (OTHER, 0, NO_ID)];
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, may, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(may.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Gives a directory its default list, where the file system keeps such lists: [`is_set`] says whether it did.
#[expect(unsafe_code, reason = "nix has no extended attributes")]
pub(crate) fn share_with(directory: &OwnedFd, gid: u32) -> io::Result<()> {
    let list = for_group(gid);
    // SAFETY: the name ends with a zero, and the list is as long as is said; the kernel keeps neither.
    let set =
        unsafe { libc::fsetxattr(directory.as_raw_fd(), ATTRIBUTE.as_ptr(), list.as_ptr().cast(), list.len(), 0) };
    match (set, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        (_, error) => Err(error),
    }
}

/// Whether a directory has a default list; it has none where the file system keeps none.
#[expect(unsafe_code, reason = "nix has no extended attributes")]
pub(crate) fn is_set(directory: &OwnedFd) -> Result<bool, Errno> {
    // SAFETY: the name ends with a zero, and with no room for it the kernel says only how long the list is.
    let length = unsafe { libc::fgetxattr(directory.as_raw_fd(), ATTRIBUTE.as_ptr(), std::ptr::null_mut(), 0) };
    match (length, Errno::last()) {
        (0.., _) => Ok(length > 0),
        (_, Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(false),
        (_, error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_list_is_seen_where_it_was_set_and_missed_where_the_file_system_keeps_none() {
        let directory = tempfile::tempdir().unwrap();
        let opened = OwnedFd::from(File::open(directory.path()).unwrap());
        assert_eq!(is_set(&opened), Ok(false));
        share_with(&opened, 4711).unwrap();
        assert_eq!(is_set(&opened), Ok(true));
        let without = OwnedFd::from(File::open("/proc").unwrap());
        assert_eq!(is_set(&without), Ok(false));
    }
}
