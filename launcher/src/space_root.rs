//! A root of spaces: opened component by component without following a link, believed only where nobody but root could have changed it and
//! its marker is there, and changed one name at a time by descriptor.
//!
//! Nothing in here opens what is *in* a space, but for the trash that was made with it; before a space gets a limit it is seen whether anything
//! is there at all. Whoever changes a root comes alone: the launcher starts one child for a root at a time.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use eirene_core::storage::{KernelQuotas, QuotaRange};
use eirene_core::{SpaceId, SpaceName};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, open, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fsync, unlinkat};
use serde::{Deserialize, Serialize};

use crate::project::{self, Project};
use crate::{Refusal, acl, kernel_quotas};

/// Tells a root's file system from the empty directory it is mounted on.
const MARKER: &str = ".eirene-root";
const MARKER_BYTES: usize = 16;
/// Where spaces lie that were taken away; root's alone.
const RETIRED: &str = ".retired";
/// Touched to see what time the storage takes it for.
const CLOCK: &str = ".eirene-clock";
/// Where people's trashes lie in a group's space. Each person makes their own.
const TRASH: &str = ".eirene-trash";
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Whose a space's directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// A person's.
    Person {
        /// User id.
        uid: u32,
        /// Primary group.
        gid: u32,
    },
    /// A group's.
    Group {
        /// Its number.
        gid: u32,
        /// Whether it may write.
        writable: bool,
    },
    /// Everybody's to read.
    Everybody,
}

impl Whose {
    fn ids(self) -> (u32, u32) {
        match self {
            Self::Person { uid, gid } => (uid, gid),
            Self::Group { gid, .. } => (0, gid),
            Self::Everybody => (0, 0),
        }
    }

    /// With the group's bit, so that what is made in it is the group's.
    fn mode(self) -> u32 {
        match self {
            Self::Person { .. } => 0o700,
            Self::Group { writable: true, .. } => 0o2770,
            Self::Group { writable: false, .. } => 0o2750,
            Self::Everybody => 0o755,
        }
    }
}

/// How much a space may hold; none is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Most {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Files and directories.
    pub files: Option<u64>,
}

/// A space's directory that is where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Whether it was made just now.
    pub made: bool,
    /// Its inode.
    pub inode: u64,
    /// Whether it is a group's to write and has no default access list.
    pub unshared: bool,
}

/// A root that may be changed.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    device: u64,
    path: PathBuf,
}

/// Opens every directory on the way, none of them a link, all of them root's and nobody else's to change.
fn walk(path: &Path) -> Result<OwnedFd, Refusal> {
    let failed = |at: &Path, why: &str| Refusal::failed(format!("`{}` {why}", at.display()));
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = PathBuf::from("/");
    let mut directory = open(&at, flags | OFlag::O_PATH, Mode::empty()).map_err(|error| said(&at, error))?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => {
                return Err(failed(path, "is no plain path"));
            }
        };
        at.push(name);
        let last = parts.peek().is_none();
        let how = if last { OFlag::O_RDONLY } else { OFlag::O_PATH };
        directory = openat(&directory, name, flags | how, Mode::empty()).map_err(|error| match error {
            Errno::ELOOP | Errno::ENOTDIR => failed(&at, "is no directory, or a link"),
            error => said(&at, error),
        })?;
        let found = fstat(&directory).map_err(|error| said(&at, error))?;
        // In a directory with the sticky bit nobody renames what is root's.
        let closed = found.st_mode & OTHERS_WRITE == 0 || !last && found.st_mode & STICKY != 0;
        if found.st_uid != 0 || !closed {
            return Err(failed(&at, "must belong to root and be writable by nobody else"));
        }
    }
    Ok(directory)
}

/// What the kernel said: what passes may be tried again.
fn said(path: &Path, error: Errno) -> Refusal {
    let text = format!("`{}`: {}", path.display(), error.desc());
    match error {
        Errno::EIO | Errno::ESTALE | Errno::ENOTCONN | Errno::ETIMEDOUT | Errno::EHOSTDOWN | Errno::ESHUTDOWN => {
            Refusal::away(text)
        }
        _ => Refusal::failed(text),
    }
}

/// What the file system of a root counts for users or groups. One that is `marked` is believed only where its marker is, which it is not while
/// something else lies there than its file system.
///
/// # Errors
/// As [`Root::open`]; `not_enabled` and `not_supported` where nobody is counted for, and `not_configured` without the capability to ask.
pub fn quotas(path: &Path, marked: bool, range: QuotaRange) -> Result<KernelQuotas, Refusal> {
    let directory = if marked { Root::open(path)?.directory } else { walk(path)? };
    let device = fstat(&directory).map_err(|error| said(path, error))?.st_dev;
    let rows = kernel_quotas::read(&directory, range.of, range.first, range.last);
    Ok(KernelQuotas { device, rows: rows.map_err(|error| untold(path, error))? })
}

/// What the kernel said to a question for quotas.
fn untold(path: &Path, error: Errno) -> Refusal {
    let at = path.display();
    match error {
        Errno::ESRCH => Refusal::not_enabled(format!(
            "the file system of `{at}` does not count for these (mount options `usrquota` for users, `grpquota` for groups)"
        )),
        Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENODEV | Errno::ENOTBLK | Errno::ENOTTY => {
            Refusal::not_supported(format!(
                "the file system of `{at}` tells nobody here what it counts for users and groups"
            ))
        }
        Errno::EPERM => Refusal::not_configured(format!(
            "the launcher may not ask what `{at}` counts for others: that needs CAP_SYS_ADMIN, which its unit does not give it"
        )),
        error => said(path, error),
    }
}

/// Marks a directory as a root of spaces. One that is marked already stays as it is.
///
/// # Errors
/// Where it is not root's alone, or cannot be written.
pub fn init(path: &Path) -> Result<(), Refusal> {
    let directory = walk(path)?;
    if marker(&directory).is_some() {
        return Ok(());
    }
    let failed = |error: std::io::Error| Refusal::failed(format!("`{}`: {error}", path.display()));
    let mut random = [0; MARKER_BYTES];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random)).map_err(failed)?;
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let readable = Mode::from_bits_truncate(0o444);
    let file = openat(&directory, MARKER, flags, readable).map_err(|error| match error {
        Errno::EEXIST => Refusal::failed(format!("`{}/{MARKER}` is there and is no marker", path.display())),
        error => said(path, error),
    })?;
    // The umask may have taken something from it.
    fchmod(&file, readable).map_err(|error| said(path, error))?;
    let mut file = File::from(file);
    let text = format!("{}\n", data_encoding::HEXLOWER.encode(&random));
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // An unfinished marker is none; the next try begins anew.
        let _ = unlinkat(&directory, MARKER, UnlinkatFlags::NoRemoveDir);
    }
    written.and_then(|()| Ok(fsync(&directory)?)).map_err(failed)
}

/// The marker, if it is a small plain file of root's that nobody else writes.
fn marker(directory: &OwnedFd) -> Option<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(directory, MARKER, flags, Mode::empty()).ok()?;
    let found = fstat(&file).ok()?;
    if kind(&found) != SFlag::S_IFREG || found.st_uid != 0 || found.st_mode & OTHERS_WRITE != 0 {
        return None;
    }
    let mut text = String::new();
    File::from(file).take(4 * MARKER_BYTES as u64).read_to_string(&mut text).ok()?;
    let word = text.trim();
    (word.len() == 2 * MARKER_BYTES && word.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| word.to_owned())
}

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

impl Root {
    /// Opens a root.
    ///
    /// # Errors
    /// Where a directory on the way is a link or somebody else's to change, or the marker is missing.
    pub fn open(path: &Path) -> Result<Self, Refusal> {
        let directory = walk(path)?;
        if marker(&directory).is_none() {
            let text = format!("`{}` has no marker: `eirene-launcher init-root` makes it, once", path.display());
            return Err(Refusal::failed(text));
        }
        let device = fstat(&directory).map_err(|error| said(path, error))?.st_dev;
        Ok(Self { directory, device, path: path.to_owned() })
    }

    fn said(&self, error: Errno) -> Refusal {
        said(&self.path, error)
    }

    /// What lies under a name of a directory; no link is followed.
    fn look(&self, directory: impl AsFd, name: &str) -> Result<Option<FileStat>, Refusal> {
        match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(self.said(error)),
        }
    }

    /// The inode of a space's directory; none where there is none.
    fn space(&self, directory: impl AsFd, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(found) = self.look(directory, name)? else { return Ok(None) };
        if kind(&found) != SFlag::S_IFDIR || found.st_dev != self.device {
            return Err(Refusal::conflict(format!("`{name}` is no directory of this file system")));
        }
        Ok(Some(found.st_ino))
    }

    /// Makes a space's directory, or finds it made.
    ///
    /// # Errors
    /// `conflict` where something else has the name.
    pub fn make(&self, name: &SpaceName, whose: Whose) -> Result<Made, Refusal> {
        if let Some(inode) = self.space(&self.directory, name.as_str())? {
            let found = self.look(&self.directory, name.as_str())?.map(|found| (found.st_uid, found.st_gid));
            let theirs = match whose {
                // Their primary group may have changed since.
                Whose::Person { uid, .. } => found.is_some_and(|(owner, _)| owner == uid),
                Whose::Group { .. } | Whose::Everybody => found == Some(whose.ids()),
            };
            return if theirs {
                Ok(Made { made: false, inode, unshared: self.is_unshared(name, whose)? })
            } else {
                Err(Refusal::conflict(format!("`{name}` is there and somebody else's")))
            };
        }
        // Of a name that no space has, so that what a killed child left is found again.
        let fresh = format!(".new-{name}");
        self.clear(&fresh)?;
        let made = self.prepare(&fresh, whose).and_then(|inode| {
            self.rename(&self.directory, &fresh, &self.directory, name.as_str())?;
            Ok(Made { made: true, inode, unshared: self.is_unshared(name, whose)? })
        });
        if made.is_err() {
            self.clear(&fresh)?;
        }
        made
    }

    /// Whether a space is a group's to write and has no default access list: its file system did not keep the one that it was given.
    fn is_unshared(&self, name: &SpaceName, whose: Whose) -> Result<bool, Refusal> {
        let Whose::Group { writable: true, .. } = whose else { return Ok(false) };
        let set = open_directory(&self.directory, name.as_str()).and_then(|directory| acl::is_set(&directory));
        set.map(|set| !set).map_err(|error| self.said(error))
    }

    /// Makes the directory under a name that nobody knows and in which nobody can do anything, until all of it is as it should be.
    fn prepare(&self, fresh: &str, whose: Whose) -> Result<u64, Refusal> {
        let prepare = || -> Result<u64, Errno> {
            let directory = make_directory(&self.directory, fresh)?;
            if let Whose::Group { gid, writable: true } = whose {
                let trash = make_directory(&directory, TRASH)?;
                give(&trash, (0, gid), 0o1770)?;
                acl::share_with(&directory, gid).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
            }
            give(&directory, whose.ids(), whose.mode())?;
            fsync(&directory)?;
            let found = fstat(&directory)?;
            // What does not stay as it was set would be open to others, or closed to its own people.
            let stays = (found.st_uid, found.st_gid) == whose.ids() && found.st_mode & 0o7777 == whose.mode();
            if stays { Ok(found.st_ino) } else { Err(Errno::EPERM) }
        };
        prepare().map_err(|error| self.said(error))
    }

    /// Removes what was prepared and not finished: it is empty but for an empty trash.
    fn clear(&self, fresh: &str) -> Result<(), Refusal> {
        let removed = |directory: &OwnedFd, name: &str| match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(self.said(error)),
        };
        match open_directory(&self.directory, fresh) {
            Ok(left) => removed(&left, TRASH)?,
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(self.said(error)),
        }
        removed(&self.directory, fresh)
    }

    /// Sets how much a space may hold, by a project of its own; none is no limit. What lies in it already would not count: it must be empty, or
    /// have the project.
    ///
    /// # Errors
    /// `missing` and `conflict` as [`Self::retire`]; `conflict` also where it has another project, or has things in it and none;
    /// `not_supported` where the file system does not count by directory.
    pub fn limit(&self, name: &SpaceName, inode: u64, id: u32, most: Most) -> Result<(), Refusal> {
        match self.space(&self.directory, name.as_str())? {
            None => return Err(Refusal::missing(format!("there is no space `{name}`"))),
            Some(there) if there == inode => {}
            Some(_) => return Err(Refusal::conflict(format!("`{name}` is not the directory that was made"))),
        }
        let directory = open_directory(&self.directory, name.as_str()).map_err(|error| self.said(error))?;
        let found = fstat(&directory).map_err(|error| self.said(error))?;
        if (found.st_ino, found.st_dev) != (inode, self.device) {
            return Err(Refusal::conflict(format!("`{name}` is not the directory that was made")));
        }
        let found = project::of(&directory).map_err(|error| self.uncounted(error))?;
        if found.id != 0 && found.id != id {
            return Err(Refusal::conflict(format!(
                "`{name}` has the project {} already, which is not Eirene's",
                found.id
            )));
        }
        if (found.id, found.inherited) != (id, true) {
            let trash = match open_directory(&directory, TRASH) {
                Ok(trash) => Some(trash),
                Err(Errno::ENOENT) => None,
                Err(error) => return Err(self.said(error)),
            };
            let holds = |directory: &OwnedFd| holds_anything(directory).map_err(|error| self.said(error));
            if holds(&directory)? || trash.as_ref().map(holds).transpose()?.unwrap_or(false) {
                return Err(Refusal::conflict(format!(
                    "`{name}` holds things that would not count: root gives them the project once, by `xfs_quota -x -c 'project -s -p {} {id}'`",
                    self.path.join(name.as_str()).display()
                )));
            }
            // The trash first: the directory's own project says that all is done.
            for directory in trash.iter().chain([&directory]) {
                project::give(directory, id).map_err(|error| self.uncounted(error))?;
            }
        }
        project::limit(&directory, id, most.bytes, most.files).map_err(|error| self.uncounted(error))
    }

    /// The project of a space, where there is such a space and its file system knows projects.
    pub(crate) fn project(&self, name: &SpaceName) -> Option<Project> {
        project::of(open_directory(&self.directory, name.as_str()).ok()?).ok()
    }

    /// Takes back what a space might hold that is about to go: the kernel keeps the limit of a project that has no directory any more. The number
    /// is the portal's and not the directory's, whose owner may give it another one.
    ///
    /// # Errors
    /// What the kernel said, but that nothing is limited there, or not by this launcher: then there is nothing to take back.
    pub fn take_back(&self, directory: &OwnedFd, id: u32) -> Result<(), Refusal> {
        let has_project = project::of(directory).is_ok_and(|found| found.id != 0);
        if !has_project {
            return Ok(());
        }
        match project::limit(directory, id, None, None).map_err(|error| self.uncounted(error)) {
            Err(Refusal { code: "not_supported" | "not_configured", .. }) => Ok(()),
            taken => taken,
        }
    }

    /// What the kernel said to something about projects.
    fn uncounted(&self, error: Errno) -> Refusal {
        let at = self.path.display();
        match error {
            Errno::ESRCH | Errno::ENOTTY | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::ENODEV => {
                Refusal::not_supported(format!(
                    "the file system of `{at}` counts nothing by directory (mount option `prjquota`)"
                ))
            }
            Errno::EPERM => Refusal::not_configured(format!(
                "the launcher may not set limits on `{at}`: that needs CAP_SYS_ADMIN, which its unit does not give it"
            )),
            error => self.said(error),
        }
    }

    /// Takes a space away, or finds it taken; gives its inode.
    ///
    /// # Errors
    /// `conflict` where another directory has the name, `missing` where there is none.
    pub fn retire(&self, name: &SpaceName, inode: u64, id: SpaceId) -> Result<(), Refusal> {
        let retired = self.retired(true)?.ok_or_else(|| self.said(Errno::ENOENT))?;
        let id = id.to_string();
        match (self.space(&self.directory, name.as_str())?, self.space(&retired, &id)?) {
            (_, Some(there)) if there == inode => Ok(()),
            (Some(here), None) if here == inode => self.rename(&self.directory, name.as_str(), &retired, &id),
            (None, None) => Err(Refusal::missing(format!("there is no space `{name}`"))),
            _ => Err(Refusal::conflict(format!("`{name}` is not the directory that was made"))),
        }
    }

    /// Brings a space back, or finds it back.
    ///
    /// # Errors
    /// As [`Self::retire`].
    pub fn restore(&self, name: &SpaceName, inode: u64, id: SpaceId) -> Result<(), Refusal> {
        let id = id.to_string();
        let here = self.space(&self.directory, name.as_str())?;
        if here == Some(inode) {
            return Ok(());
        }
        let missing = || Refusal::missing(format!("the space `{name}` is not kept any more"));
        let retired = self.retired(false)?.ok_or_else(missing)?;
        match (here, self.space(&retired, &id)?) {
            (None, Some(there)) if there == inode => self.rename(&retired, &id, &self.directory, name.as_str()),
            (None, None) => Err(missing()),
            (Some(_), _) => Err(Refusal::conflict(format!("`{name}` is there and another directory"))),
            (None, Some(_)) => Err(Refusal::conflict(format!("what is kept of `{name}` is another directory"))),
        }
    }

    /// Opens a space that was taken away; none where nothing of it is left.
    ///
    /// # Errors
    /// `conflict` where it is another directory.
    pub fn open_retired(&self, inode: u64, id: SpaceId) -> Result<Option<OwnedFd>, Refusal> {
        let Some(retired) = self.retired(false)? else { return Ok(None) };
        let id = id.to_string();
        match self.space(&retired, &id)? {
            None => Ok(None),
            Some(there) if there == inode => {
                let directory = open_directory(&retired, &id).map_err(|error| self.said(error))?;
                Ok(Some(directory))
            }
            Some(_) => Err(Refusal::conflict("what is kept under this id is another directory")),
        }
    }

    /// Removes a space that was taken away and is empty; gives whether it is gone.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn remove_retired(&self, id: SpaceId) -> Result<bool, Refusal> {
        let Some(retired) = self.retired(false)? else { return Ok(true) };
        match unlinkat(&retired, id.to_string().as_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) => fsync(&retired).map(|()| true).map_err(|error| self.said(error)),
            Err(Errno::ENOENT) => Ok(true),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
            Err(error) => Err(self.said(error)),
        }
    }

    /// The inode of a space that should be there, or be kept.
    ///
    /// # Errors
    /// As [`Self::retire`].
    pub fn find(&self, at: &eirene_core::launcher::SpaceAt) -> Result<Option<u64>, Refusal> {
        match at {
            eirene_core::launcher::SpaceAt::Present(name) => self.space(&self.directory, name.as_str()),
            eirene_core::launcher::SpaceAt::Retired(id) => match self.retired(false)? {
                Some(retired) => self.space(&retired, &id.to_string()),
                None => Ok(None),
            },
        }
    }

    /// What the storage takes for the time, seconds since 1970: of a file that is made for it, because that is the storage's own doing.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn time(&self) -> Result<i64, Refusal> {
        let time = || -> Result<i64, Errno> {
            match unlinkat(&self.directory, CLOCK, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let file = openat(&self.directory, CLOCK, flags, Mode::from_bits_truncate(0o600))?;
            Ok(fstat(&file)?.st_mtime)
        };
        time().map_err(|error| self.said(error))
    }

    /// Where spaces lie that were taken away.
    fn retired(&self, make: bool) -> Result<Option<OwnedFd>, Refusal> {
        if make {
            match mkdirat(&self.directory, RETIRED, Mode::from_bits_truncate(0o700)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(self.said(error)),
            }
        }
        let directory = match open_directory(&self.directory, RETIRED) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(self.said(error)),
        };
        let found = fstat(&directory).map_err(|error| self.said(error))?;
        if found.st_uid != 0 || found.st_mode & 0o077 != 0 || found.st_dev != self.device {
            return Err(Refusal::failed(format!("`{}/{RETIRED}` must be root's alone", self.path.display())));
        }
        Ok(Some(directory))
    }

    /// Gives a directory another name that nothing has, and has both written down.
    fn rename(&self, from: &OwnedFd, old: &str, to: &OwnedFd, new: &str) -> Result<(), Refusal> {
        let renamed = match renameat2(from, old, to, new, RenameFlags::RENAME_NOREPLACE) {
            // Not every network file system knows it. Nobody but root, who comes alone, can lay something there in between.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => match self.look(to, new)? {
                None => renameat(from, old, to, new),
                Some(_) => Err(Errno::EEXIST),
            },
            other => other,
        };
        match renamed {
            Ok(()) => fsync(from).and_then(|()| fsync(to)).map_err(|error| self.said(error)),
            Err(Errno::EEXIST | Errno::ENOTEMPTY) => Err(Refusal::conflict(format!("`{new}` is there already"))),
            Err(error) => Err(self.said(error)),
        }
    }
}

fn open_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Whether there is anything in a directory but the trash that was made with it.
fn holds_anything(directory: &OwnedFd) -> Result<bool, Errno> {
    let mut entries = Dir::from_fd(open_directory(directory, ".")?)?;
    for entry in entries.iter() {
        let name = entry?.file_name().to_owned();
        if ![&b"."[..], b"..", TRASH.as_bytes()].contains(&name.to_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, Mode::from_bits_truncate(0o700))?;
    open_directory(parent, name)
}

/// The mode first: whoever has given a directory away may not change it any more.
fn give(directory: &OwnedFd, (uid, gid): (u32, u32), mode: u32) -> Result<(), Errno> {
    fchmod(directory, Mode::from_bits_truncate(mode))?;
    fchown(directory, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}
