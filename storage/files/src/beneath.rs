//! The only file that finds anything by path, always beneath a space's root. What is changed by name is `change.rs`'s.
//!
//! Every path is resolved by openat2(2) from the root's descriptor: links are followed as far as they stay beneath it, magic links and mounts
//! never. What comes out is a [`Place`], a descriptor that can be looked at but not read (`O_PATH`), so that pipes and devices are told by
//! their kind before anything is opened, and what was looked at is what is opened then: by its descriptor, whatever lies under the name now.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use eirene_files_protocol::{
    Code, EntryKind, HostileText, Moment, Name, OpenSpace, RelativePath, SpaceNumber, TRASH, Version,
};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Statx, StatxAttributes, StatxFlags,
    accessat, fstatfs, openat2, readlinkat, statx,
};
use rustix::io::Errno;

use crate::errno::code;

/// How often an open is tried that the kernel could not decide because something was renamed meanwhile.
const TRIES: u32 = 32;
/// How far up is looked for the top of a file system.
const MOST_UP: u32 = 128;
/// The administrator's marker in a root of spaces, and the most of it that is read, bytes.
const ROOT_MARKER: &str = ".eirene-root";
const LONGEST_MARKER: u64 = 64;

fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

/// This process's own descriptors, as the kernel shows them: the one way to open what an `O_PATH` descriptor stands for.
#[derive(Debug)]
pub(crate) struct Descriptors(OwnedFd);

impl Descriptors {
    /// # Errors
    /// None where `/proc` is something else.
    pub(crate) fn open() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open("/proc/self/fd", flags, Mode::empty())?;
        if fstatfs(&directory)?.f_type == PROC_SUPER_MAGIC { Ok(Self(directory)) } else { Err(Errno::NODEV) }
    }

    /// Where it lies now, for comparison with other such paths only.
    fn path(&self, descriptor: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
        let path = readlinkat(&self.0, descriptor.as_raw_fd().to_string(), Vec::with_capacity(256))?;
        Ok(path.into_bytes())
    }

    fn reopen(&self, descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.0, descriptor.as_raw_fd().to_string(), flags | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Whether a link in the last place is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// To what it leads to.
    Followed,
    /// The link itself.
    Itself,
}

/// An opened space.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) number: SpaceNumber,
    pub(crate) writable: bool,
    root: OwnedFd,
    reserved: Vec<Name>,
    descriptors: Arc<Descriptors>,
}

impl Space {
    /// Opens the root, which must be a directory and no link, and the one that was made, where that is known.
    pub(crate) fn open(space: &OpenSpace, descriptors: Arc<Descriptors>) -> Result<Self, Code> {
        let HostileText(path) = &space.root;
        if !path.starts_with(b"/") {
            return Err(Code::Invalid);
        }
        let root = CString::new(path.as_slice()).map_err(|_| Code::Invalid)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(code)?;
        if let Some(made) = &space.made {
            let found = look(root.as_fd(), AtFlags::empty()).map_err(code)?;
            // Where its file system is not mounted, what is written here would not be in the space.
            if found.stx_ino != made.inode && !is_marked(path, made.marker.as_deref()) {
                return Err(Code::NoSuchSpace);
            }
        }
        let reserved = space.reserved.iter().cloned().chain(Name::parse(TRASH)).collect();
        Ok(Self { number: space.number, writable: space.writable, root, reserved, descriptors })
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Whether a directory directly below the root is the platform's.
    pub(crate) fn reserves(&self, name: &[u8]) -> bool {
        self.reserved.iter().any(|reserved| reserved.as_bytes() == name)
    }

    /// Whether a directory that was found in the space, or in its trash, is still there, as far as anybody can say while others rename.
    pub(crate) fn holds(&self, place: &Place) -> bool {
        matches!(self.check_landing(place.as_fd()), Ok(_) | Err(Code::Reserved))
    }

    /// Finds what `path` leads to, and says where that is not in the space, or the platform's.
    pub(crate) fn find(&self, path: &RelativePath, last: Last) -> Result<Place, Code> {
        let found = self.find_as_it_is(path, last);
        // Nothing is said of what is in a reserved directory, not even that it is not there.
        if found.is_err() && self.leads_through_reserved(path) { Err(Code::Reserved) } else { found }
    }

    /// Whether a directory on the way is the platform's, by whatever way it is found.
    fn leads_through_reserved(&self, path: &RelativePath) -> bool {
        let ways = path.as_bytes().iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        ways.filter_map(|end| RelativePath::parse(&path.as_bytes()[..end]).ok())
            .any(|way| matches!(self.find_as_it_is(&way, Last::Followed), Err(Code::Reserved)))
    }

    fn find_as_it_is(&self, path: &RelativePath, last: Last) -> Result<Place, Code> {
        if path.is_reserved(&self.reserved) {
            return Err(Code::Reserved);
        }
        let nofollow = if last == Last::Itself { OFlags::NOFOLLOW } else { OFlags::empty() };
        let text: &[u8] = if path.is_space() { b"." } else { path.as_bytes() };
        let found = open_beneath(self.root(), text, nofollow, resolve()).map_err(|errno| match errno {
            Errno::XDEV => self.why_not_beneath(path),
            other => code(other),
        })?;
        let is_root = self.check_landing(found.as_fd())?;
        Ok(Place { descriptor: found, is_root, descriptors: self.descriptors.clone() })
    }

    /// Links may lead where the path does not say: into what is reserved, or, renamed meanwhile, out of the space. Whether it is the root.
    fn check_landing(&self, found: BorrowedFd<'_>) -> Result<bool, Code> {
        let root = self.descriptors.path(self.root()).map_err(code)?;
        let path = self.descriptors.path(found).map_err(code)?;
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        match path.strip_prefix(root) {
            Some(b"" | b"/") => Ok(true),
            Some([b'/', below @ ..]) => {
                let first = below.split(|byte| *byte == b'/').next().unwrap_or_default();
                if self.reserves(first) { Err(Code::Reserved) } else { Ok(false) }
            }
            _ => Err(Code::LeadsOut),
        }
    }

    /// openat2 has one word for both; a mount is told by going there a step at a time, without ever crossing it.
    fn why_not_beneath(&self, path: &RelativePath) -> Code {
        let mut here = None::<OwnedFd>;
        for name in path.components() {
            let from = here.as_ref().map_or(self.root(), AsFd::as_fd);
            match open_beneath(from, name.as_bytes(), OFlags::NOFOLLOW, resolve()) {
                Ok(next) => match kind_of(&look(next.as_fd(), AtFlags::STATX_DONT_SYNC)) {
                    EntryKind::Directory => here = Some(next),
                    _ => return Code::LeadsOut,
                },
                Err(Errno::XDEV) => return Code::CrossesAMount,
                Err(other) => return code(other),
            }
        }
        // What is there now is beneath: it changed meanwhile.
        Code::Busy
    }
}

/// Whether the directory above `space` holds this marker.
fn is_marked(space: &[u8], marker: Option<&str>) -> bool {
    let (Some(marker), Some(above)) = (marker, Path::new(OsStr::from_bytes(space)).parent()) else { return false };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(above) = rustix::fs::open(above, directory, Mode::empty()) else { return false };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(&above, ROOT_MARKER, flags, Mode::empty()) else { return false };
    if !matches!(kind_of(&look(file.as_fd(), AtFlags::empty())), EntryKind::File) {
        return false;
    }
    let mut text = String::new();
    File::from(file).take(LONGEST_MARKER).read_to_string(&mut text).is_ok() && text.trim() == marker
}

/// Finds without opening: nothing waits for a pipe, nothing wakes a device.
fn open_beneath(from: BorrowedFd<'_>, path: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let mut tries = 0;
    loop {
        let opened = openat2(from, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty(), resolve);
        match opened {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            other => return other,
        }
    }
}

/// Whether this kernel resolves beneath a descriptor at all (Linux 5.6, or where it was ported back).
pub(crate) fn can_resolve_beneath(descriptors: &Descriptors) -> bool {
    open_beneath(descriptors.0.as_fd(), b".", OFlags::empty(), resolve()).is_ok()
}

fn look(descriptor: BorrowedFd<'_>, sync: AtFlags) -> Result<Statx, Errno> {
    statx(descriptor, c"", AtFlags::EMPTY_PATH | sync, StatxFlags::BASIC_STATS)
}

/// Looks at what lies in a directory under a name, whatever it is, without going there.
pub(crate) fn look_at_entry(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(directory, name, flags, StatxFlags::BASIC_STATS)
}

/// As [`look_at_entry`], but only for what it is and what it takes of the disk: of a million entries nothing else is asked.
pub(crate) fn measure_entry(directory: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    statx(directory, name, flags, StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS)
}

/// What an entry is, as it lies in its directory: a mount is one wherever something is mounted.
pub(crate) fn kind_of_entry(looked: &Result<Statx, Errno>) -> EntryKind {
    match looked {
        Ok(found) if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) => EntryKind::Mount,
        other => kind_of(other),
    }
}

fn kind_of(looked: &Result<Statx, Errno>) -> EntryKind {
    let Ok(found) = looked else { return EntryKind::Unknown };
    match FileType::from_raw_mode(u32::from(found.stx_mode)) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => EntryKind::Special,
        FileType::Unknown => EntryKind::Unknown,
    }
}

/// Time of the last change of content.
pub(crate) fn modified(found: &Statx) -> Moment {
    Moment { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec }
}

/// Which content it was.
pub(crate) fn version(found: &Statx) -> Version {
    Version {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        bytes: found.stx_size,
        modified: modified(found),
        changed: Moment { seconds: found.stx_ctime.tv_sec, nanoseconds: found.stx_ctime.tv_nsec },
    }
}

/// Something in a space, found and held, but not opened.
#[derive(Debug)]
pub(crate) struct Place {
    descriptor: OwnedFd,
    is_root: bool,
    descriptors: Arc<Descriptors>,
}

impl Place {
    /// Whether this is the space's root, by whatever way it was found.
    pub(crate) fn is_root(&self) -> bool {
        self.is_root
    }

    /// What it is.
    pub(crate) fn look(&self) -> Result<(EntryKind, Statx), Code> {
        let looked = look(self.descriptor.as_fd(), AtFlags::empty());
        let kind = kind_of(&looked);
        looked.map(|found| (kind, found)).map_err(code)
    }

    /// As [`Self::look`], asking whoever keeps the file: what a network file system remembers of it may be a minute old.
    pub(crate) fn look_anew(&self) -> Result<(EntryKind, Statx), Code> {
        let looked = look(self.descriptor.as_fd(), AtFlags::STATX_FORCE_SYNC);
        let kind = kind_of(&looked);
        looked.map(|found| (kind, found)).map_err(code)
    }

    /// Whether names may be taken out of this directory, as far as its own permissions say, or why not.
    pub(crate) fn may_lose_names(&self) -> Result<(), Code> {
        accessat(self.as_fd(), c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).map_err(code)
    }

    /// What lies in this directory under `name`, a link as itself. None is followed, no mount entered.
    pub(crate) fn child(&self, name: &Name) -> Result<Self, Code> {
        let resolve = resolve() | ResolveFlags::NO_SYMLINKS;
        let descriptor = open_beneath(self.descriptor.as_fd(), name.as_bytes(), OFlags::NOFOLLOW, resolve);
        let descriptor =
            descriptor.map_err(|errno| if errno == Errno::XDEV { Code::CrossesAMount } else { code(errno) })?;
        Ok(Self { descriptor, is_root: false, descriptors: self.descriptors.clone() })
    }

    /// What lies below this directory. No link is followed, no mount entered.
    pub(crate) fn below(&self, path: &RelativePath) -> Result<Self, Code> {
        let text: &[u8] = if path.is_space() { b"." } else { path.as_bytes() };
        let resolve = resolve() | ResolveFlags::NO_SYMLINKS;
        let descriptor = open_beneath(self.descriptor.as_fd(), text, OFlags::NOFOLLOW, resolve).map_err(code)?;
        Ok(Self { descriptor, is_root: false, descriptors: self.descriptors.clone() })
    }

    /// A file that was made in this directory, by the descriptor it was made with: whatever lies under its name by now.
    pub(crate) fn made(&self, file: OwnedFd) -> Self {
        Self { descriptor: file, is_root: false, descriptors: self.descriptors.clone() }
    }

    /// Whether this directory is `other`, or lies somewhere in it, as far as anybody can say while others rename.
    pub(crate) fn lies_in(&self, other: &Self) -> Result<bool, Code> {
        let here = self.descriptors.path(self.as_fd()).map_err(code)?;
        let there = self.descriptors.path(other.as_fd()).map_err(code)?;
        Ok(here.strip_prefix(there.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")))
    }

    /// The highest directory of this file system that can be reached from here: to ask how full the whole is, and for nothing else.
    pub(crate) fn top_of_file_system(&self) -> Result<OwnedFd, Code> {
        let up = |from: BorrowedFd<'_>, name: &[u8]| open_beneath(from, name, OFlags::DIRECTORY, ResolveFlags::NO_XDEV);
        let mut top = up(self.as_fd(), b".").map_err(code)?;
        for _ in 0..MOST_UP {
            // Where a mount begins it goes no further, and neither where the person may not go.
            let Ok(above) = up(top.as_fd(), b"..") else { break };
            top = above;
        }
        Ok(top)
    }

    /// Its descriptor: names below it can be looked up, and no more.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// How the system calls that take paths only name what this is, whatever lies under its name now.
    pub(crate) fn magic_name(&self) -> String {
        self.descriptor.as_raw_fd().to_string()
    }

    /// Where [`Self::magic_name`] is one.
    pub(crate) fn descriptors(&self) -> BorrowedFd<'_> {
        self.descriptors.0.as_fd()
    }

    /// The text of a link.
    pub(crate) fn link_text(&self) -> Result<Vec<u8>, Code> {
        readlinkat(&self.descriptor, c"", Vec::with_capacity(256)).map(CString::into_bytes).map_err(code)
    }

    /// Opens a regular file for reading, and says what it is then.
    pub(crate) fn read(&self) -> Result<(OwnedFd, Statx), Code> {
        match self.look()?.0 {
            EntryKind::File => {}
            EntryKind::Directory => return Err(Code::IsADirectory),
            EntryKind::Link | EntryKind::Mount | EntryKind::Special | EntryKind::Unknown => {
                return Err(Code::NotSupported);
            }
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.descriptors.reopen(self.descriptor.as_fd(), flags).map_err(code)?;
        let found = look(file.as_fd(), AtFlags::empty()).map_err(code)?;
        Ok((file, found))
    }

    /// Opens a regular file for reading and writing; the caller has looked at what it is.
    pub(crate) fn write(&self) -> Result<OwnedFd, Code> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.descriptors.reopen(self.descriptor.as_fd(), flags).map_err(code)
    }

    /// Opens a directory to list it.
    pub(crate) fn list(&self) -> Result<OwnedFd, Code> {
        self.descriptors.reopen(self.descriptor.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(code)
    }

    /// The same directory, opened to list it.
    pub(crate) fn listed(&self) -> Result<Self, Code> {
        Ok(Self { descriptor: self.list()?, is_root: self.is_root, descriptors: self.descriptors.clone() })
    }
}
