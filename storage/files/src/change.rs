//! The only file that changes anything by name: always a single name, in a directory that `beneath.rs` found and holds.
//!
//! A single name leads nowhere: none of these calls follows a link in it, and there is nothing on the way. What is changed without a name,
//! permissions and times, is changed by descriptor.

use std::os::fd::{AsFd as _, OwnedFd};

use eirene_files_protocol::{Code, EntryKind, Moment, Name, RelativePath, UPLOAD_PREFIX};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Statx, Timespec, Timestamps, XattrFlags, chmodat, getxattr, linkat, mkdirat,
    openat, removexattr, renameat, renameat_with, setxattr, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::acl;
use crate::beneath::{Last, Place, Space, look_at_entry};
use crate::errno::{code, renaming};

/// What anybody but the owner gets is the umask's and the directory's to say.
const FILE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// A name in a directory of a space, where something may be changed.
#[derive(Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) space: &'a Space,
    pub(crate) directory: Place,
    pub(crate) name: Name,
    /// Path of the directory.
    pub(crate) above: RelativePath,
}

impl Space {
    /// Nothing is changed where the portal, or whoever made the space, does not want it.
    pub(crate) fn check_writable(&self) -> Result<(), Code> {
        if self.writable { Ok(()) } else { Err(Code::ReadOnly) }
    }

    /// The place of a change: never the space itself, never what is the platform's.
    pub(crate) fn spot(&self, path: &RelativePath) -> Result<Spot<'_>, Code> {
        self.check_writable()?;
        self.locate(path)
    }

    /// What is only read, but by the same rules: the directory is found first, so that nothing is said of names in what is reserved.
    pub(crate) fn source(&self, path: &RelativePath) -> Result<Place, Code> {
        if path.is_space() { self.find(path, Last::Itself) } else { self.locate(path)?.found() }
    }

    /// A directory in which something may be changed.
    pub(crate) fn directory_to_change(&self, path: &RelativePath) -> Result<Place, Code> {
        self.check_writable()?;
        self.directory(path)
    }

    fn locate(&self, path: &RelativePath) -> Result<Spot<'_>, Code> {
        let (above, name) = path.split_last().ok_or(Code::Reserved)?;
        Spot::new(self, self.directory(&above)?, above, name)
    }

    fn directory(&self, path: &RelativePath) -> Result<Place, Code> {
        let directory = self.find(path, Last::Followed)?;
        if directory.look()?.0 == EntryKind::Directory { Ok(directory) } else { Err(Code::NotADirectory) }
    }
}

impl<'a> Spot<'a> {
    /// A name in a directory that was found at `above`; not one of the platform's.
    pub(crate) fn new(space: &'a Space, directory: Place, above: RelativePath, name: Name) -> Result<Self, Code> {
        let reserved = directory.is_root() && space.reserves(name.as_bytes());
        if reserved || name.as_bytes().starts_with(UPLOAD_PREFIX) {
            return Err(Code::Reserved);
        }
        Ok(Self { space, directory, name, above })
    }

    /// What lies there, a link as itself.
    pub(crate) fn found(&self) -> Result<Place, Code> {
        self.directory.child(&self.name)
    }

    /// The path of a name in this directory.
    pub(crate) fn path_of(&self, name: &Name) -> Result<RelativePath, Code> {
        self.above.join(name).map_err(|_| Code::TooDeep)
    }
}

impl Place {
    /// A new directory in this one.
    pub(crate) fn make_directory(&self, name: &Name) -> Result<(), Code> {
        self.make_directory_with(name, DIRECTORY)
    }

    /// A new directory that is its owner's alone.
    pub(crate) fn make_private_directory(&self, name: &Name) -> Result<(), Code> {
        self.make_directory_with(name, Mode::RWXU)
    }

    fn make_directory_with(&self, name: &Name, mode: Mode) -> Result<(), Code> {
        mkdirat(self.as_fd(), name.as_bytes(), mode).map_err(code)
    }

    /// A new file in this directory, opened for reading and writing.
    pub(crate) fn create(&self, name: &Name) -> Result<OwnedFd, Code> {
        self.create_with(name, FILE)
    }

    /// A new file that is its owner's alone.
    pub(crate) fn create_private(&self, name: &Name) -> Result<OwnedFd, Code> {
        self.create_with(name, Mode::RUSR | Mode::WUSR)
    }

    fn create_with(&self, name: &Name, mode: Mode) -> Result<OwnedFd, Code> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(self.as_fd(), name.as_bytes(), flags, mode).map_err(code)
    }

    /// A new link with this text, which nobody reads here.
    pub(crate) fn make_link(&self, name: &Name, text: &[u8]) -> Result<(), Code> {
        symlinkat(text, self.as_fd(), name.as_bytes()).map_err(code)
    }

    /// Another name for a file that is held.
    pub(crate) fn add_name(&self, name: &Name, file: &Self) -> Result<(), Code> {
        linkat(file.descriptors(), file.magic_name(), self.as_fd(), name.as_bytes(), AtFlags::SYMLINK_FOLLOW)
            .map_err(renaming)
    }

    /// Removes a name that is not a directory's.
    pub(crate) fn remove_file(&self, name: &Name) -> Result<(), Code> {
        unlinkat(self.as_fd(), name.as_bytes(), AtFlags::empty()).map_err(code)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &Name) -> Result<(), Code> {
        unlinkat(self.as_fd(), name.as_bytes(), AtFlags::REMOVEDIR).map_err(code)
    }

    /// Gives what lies in this directory another name, in another directory perhaps; what lies there already stays.
    pub(crate) fn rename_new(&self, name: &Name, to: &Self, new: &Name) -> Result<(), Code> {
        let (from, old, into) = (self.as_fd(), name.as_bytes(), to.as_fd());
        match renameat_with(from, old, into, new.as_bytes(), RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename_onto_own(name, to, new),
            other => other.map_err(renaming),
        }
    }

    /// As [`Self::rename_new`] where the file system has no such rename, as NFS and BeeGFS: the name is taken first by something empty of
    /// our own, which only one can do, and that is what the rename replaces.
    fn rename_onto_own(&self, name: &Name, to: &Self, new: &Name) -> Result<(), Code> {
        let is_directory = self.child(name)?.look()?.0 == EntryKind::Directory;
        if is_directory {
            to.make_private_directory(new)?;
        } else {
            drop(to.create_private(new)?);
        }
        let own = to.child(new)?.look()?.1;
        let renamed = renameat(self.as_fd(), name.as_bytes(), to.as_fd(), new.as_bytes());
        if renamed.is_err() && look_at_entry(to.as_fd(), new.as_bytes()).is_ok_and(|now| is_same(&now, &own)) {
            // It is ours and empty; where it cannot be removed, what is said of the rename is worth more.
            let _ = if is_directory { to.remove_directory(new) } else { to.remove_file(new) };
        }
        renamed.map_err(renaming)
    }

    /// Renames onto what lies there: only for another spelling of the same name.
    pub(crate) fn rename_over(&self, name: &Name, to: &Self, new: &Name) -> Result<(), Code> {
        renameat(self.as_fd(), name.as_bytes(), to.as_fd(), new.as_bytes()).map_err(renaming)
    }

    /// Has two names change places. `false` where the file system cannot.
    pub(crate) fn exchange(&self, name: &Name, to: &Self, other: &Name) -> Result<bool, Code> {
        match renameat_with(self.as_fd(), name.as_bytes(), to.as_fd(), other.as_bytes(), RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            // INVAL also where a directory would come to lie in itself: whatever is tried next says so again.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
            Err(errno) => Err(renaming(errno)),
        }
    }

    /// Sets permission bits of what is held, which is no link.
    pub(crate) fn set_mode(&self, mode: u16) -> Result<(), Code> {
        let mode = Mode::from_raw_mode(u32::from(mode));
        chmodat(self.descriptors(), self.magic_name(), mode, AtFlags::empty()).map_err(code)
    }

    /// An extended attribute of what is held, which is no link; none where there is none, or none can be.
    pub(crate) fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>, Code> {
        let mut bytes = vec![0; acl::MOST_BYTES];
        match getxattr(self.magic_path(), name, bytes.as_mut_slice()) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(Errno::RANGE) => Err(Code::TooMany),
            Err(errno) => Err(code(errno)),
        }
    }

    /// Whether the file system keeps access control lists. That something has none is no answer: that there can be none is.
    pub(crate) fn keeps_lists(&self) -> Result<bool, Code> {
        match getxattr(self.magic_path(), acl::ACCESS, &mut [0_u8; 0][..]) {
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(code(errno)),
        }
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &str, bytes: &[u8]) -> Result<(), Code> {
        setxattr(self.magic_path(), name, bytes, XattrFlags::empty()).map_err(code)
    }

    /// Removes an extended attribute; one that is not there is as good.
    pub(crate) fn remove_attribute(&self, name: &str) -> Result<(), Code> {
        match removexattr(self.magic_path(), name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(code(errno)),
        }
    }

    /// As [`Self::magic_name`], for calls that take no directory.
    fn magic_path(&self) -> String {
        format!("/proc/self/fd/{}", self.magic_name())
    }

    /// Sets the times of what is held, which is no link.
    pub(crate) fn set_times(&self, found: &Statx) -> Result<(), Code> {
        let (accessed, modified) = (found.stx_atime, found.stx_mtime);
        let times = Timestamps {
            last_access: Timespec { tv_sec: accessed.tv_sec, tv_nsec: accessed.tv_nsec.into() },
            last_modification: Timespec { tv_sec: modified.tv_sec, tv_nsec: modified.tv_nsec.into() },
        };
        rustix::fs::utimensat(self.descriptors(), self.magic_name(), &times, AtFlags::empty()).map_err(code)
    }
}

/// Whether two looks met the same thing.
pub(crate) fn is_same(a: &Statx, b: &Statx) -> bool {
    (a.stx_ino, a.stx_dev_major, a.stx_dev_minor) == (b.stx_ino, b.stx_dev_major, b.stx_dev_minor)
}

/// Sets the time of the last change of content of an open file.
pub(crate) fn set_modified(file: &OwnedFd, modified: Moment) -> Result<(), Code> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() },
    };
    rustix::fs::futimens(file.as_fd(), &times).map_err(code)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, read_to_string, write};
    use std::os::unix::ffi::OsStrExt as _;
    use std::sync::Arc;

    use eirene_files_protocol::{HostileText, OpenSpace, SpaceNumber};

    use super::*;
    use crate::beneath::Descriptors;

    #[test]
    fn a_rename_without_flags_replaces_nothing_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let root = HostileText(base.path().as_os_str().as_bytes().to_vec());
        let space = OpenSpace { number: SpaceNumber(1), root, writable: true, reserved: Vec::new(), made: None };
        let space = Space::open(&space, Arc::new(Descriptors::open().unwrap())).unwrap();
        let root = space.find(&RelativePath::default(), Last::Followed).unwrap();
        let name = |text: &str| Name::parse(text.as_bytes()).unwrap();
        let rename = |from: &str, to: &str| root.rename_onto_own(&name(from), &root, &name(to));
        write(base.path().join("file"), "text").unwrap();
        write(base.path().join("taken"), "other").unwrap();
        create_dir(base.path().join("directory")).unwrap();
        write(base.path().join("directory/in"), "in").unwrap();

        assert_eq!(rename("file", "taken"), Err(Code::Exists));
        assert_eq!(rename("directory", "taken"), Err(Code::Exists));
        assert_eq!(rename("none", "new"), Err(Code::NotFound));
        rename("file", "new").unwrap();
        rename("directory", "moved").unwrap();
        assert_eq!(read_to_string(base.path().join("new")).unwrap(), "text");
        assert_eq!(read_to_string(base.path().join("taken")).unwrap(), "other");
        assert_eq!(read_to_string(base.path().join("moved/in")).unwrap(), "in");

        // Into itself: what was made to hold the name is gone again.
        let moved = root.child(&name("moved")).unwrap();
        assert_eq!(root.rename_onto_own(&name("moved"), &moved, &name("below")), Err(Code::IntoItself));
        let names: Vec<_> =
            std::fs::read_dir(base.path().join("moved")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["in"]);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 3);
    }
}
