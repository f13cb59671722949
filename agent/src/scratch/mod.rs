//! Fast scratch on the node for as long as a job lasts: made privately, filled, given to the container as `/local`, emptied, removed.
//!
//! It is in the person's [own directory](crate::own_directory) in one that everybody may write to, as the
//! [runtime directory](crate::runtime_directory) is, and a lock says that somebody lives. It differs in one thing: what a killed agent left is not
//! removed as long as the program's results in it are owed. The person's next agent on this node brings them out, or `eirene-agent rescue` does.
//! Each node finds its scratch by its name, as it may be in another directory on each.
//!
//! - [`beneath`]: opening and removing by descriptor;
//! - [`copy`]: copies that can be broken off;
//! - [`journal`]: what is owed;
//! - [`stage`]: filling and emptying by the journal;
//! - [`measure`] and [`standing`]: how much there is to copy, how far that is, and what the portal is told of it;
//! - [`beeond`]: the file system over the job's nodes, where the scratch is that.

mod beeond;
mod beneath;
mod copy;
mod journal;
mod measure;
mod stage;
mod standing;

use std::ffi::{CString, OsStr};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use eirene_core::scratch::own_name;
use nix::fcntl::{Flock, FlockArg};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::log::Log;
use crate::own_directory::{all, lock, open_directory, others, own};
use journal::Journal;

pub use stage::rescue;
pub(crate) use stage::{Assignment, Code, Held, Trouble, prepare};
pub(crate) use standing::{Amounts, Meter, Standing, Teller};

/// The part that the container sees.
const DATA: &str = "data";
/// What is written by others into a directory stays there only with this bit (chmod(2)).
const STICKY: u32 = 0o1000;

/// Why there is no scratch.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScratchError {
    /// The administrator's directory is missing.
    #[error("node {node} has no directory `{base}` for fast scratch: the administrator makes it there")]
    NoBase {
        /// The node.
        node: String,
        /// The directory.
        base: String,
    },
    /// Others could put something else in its place.
    #[error(
        "`{base}` on node {node} is not safe for fast scratch: it has to be root's, with the sticky bit where others may write to it, as `/tmp` has"
    )]
    NotSafe {
        /// The node.
        node: String,
        /// The directory.
        base: String,
    },
    /// Less room than was asked for.
    #[error("node {node} has {free_mib} MiB free for fast scratch, and {wanted_mib} MiB were asked for")]
    NoRoom {
        /// The node.
        node: String,
        /// What there is.
        free_mib: u64,
        /// What was asked for.
        wanted_mib: u64,
    },
    /// Another agent of the session still has it.
    #[error("the scratch of this session on node {0} is still in use")]
    InUse(String),
    /// Whatever else went wrong.
    #[error("fast scratch could not be made on node {0}")]
    Io(String, #[source] io::Error),
}

/// A scratch's own directory, held by this process.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    held: Flock<File>,
    /// Whether it was there already, left by an earlier helper of the same start.
    found: bool,
}

impl Scratch {
    /// Makes `<base>/eirene-scratch-<uid>/<name>`, or takes over what an earlier agent or helper of this name left.
    fn make(spot: &Spot, uid: u32, node: &str, size_mib: Option<u64>, log: &Log) -> Result<Self, ScratchError> {
        let io = |error| ScratchError::Io(node.to_owned(), error);
        let Spot { base, name } = spot;
        check(base, uid, node, size_mib)?;
        let (own, parent) = match spot.own(uid) {
            Some(earlier) => earlier,
            None => own(base, &own_name(uid), uid, log).map_err(io)?,
        };
        // One at a time: a directory must not be taken for a left one before it is locked.
        let _one = lock(parent, FlockArg::LockExclusive).map_err(io)?;
        let path = own.join(name);
        let found = match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            made => made.map(|()| false).map_err(io)?,
        };
        let held = lock(open_directory(&path).map_err(io)?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| ScratchError::InUse(node.to_owned()))?;
        beneath::make_directory(held.as_fd(), c"data", 0o700).map_err(io)?;
        Ok(Self { path, held, found })
    }

    /// Takes one that nobody holds, whatever is in it.
    fn take(own: &Path, name: &OsStr, uid: u32) -> io::Result<Self> {
        let parent = open_directory(own)?;
        if parent.metadata()?.uid() != uid {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = File::from(beneath::step(parent.as_fd(), &CString::new(name.as_bytes())?, flags)?);
        let metadata = directory.metadata()?;
        if metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let held = lock(directory, FlockArg::LockExclusiveNonblock)?;
        Ok(Self { path: own.join(name), held, found: true })
    }

    /// The same of one that is where its path says, or under its name in another of the person's own directories there.
    fn find(path: &Path, uid: u32) -> io::Result<Self> {
        let (Some(own), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let given = Self::take(own, name, uid);
        if !given.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock) {
            return given;
        }
        let others = match others(own) {
            // Where names cannot be listed, only the first is ever used.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            others => others?,
        };
        for other in others {
            match Self::take(&other, name, uid) {
                Err(error) if is_not_theirs(&error) => {}
                found => return found,
            }
        }
        match std::fs::symlink_metadata(own) {
            // In what took this person's name there is nothing of theirs.
            Ok(found) if own.ends_with(own_name(uid)) && (!found.is_dir() || found.uid() != uid) => {
                Err(io::ErrorKind::NotFound.into())
            }
            _ => given,
        }
    }

    /// What names this start on nodes.
    fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// What the container sees.
    fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }

    fn journal(&self, uid: u32) -> io::Result<Option<Journal>> {
        Journal::read(self.directory(), uid)
    }

    /// Removes all of it: the content first, then what says that nothing is owed, then the directory. Broken off anywhere, it can be done again.
    fn remove(self) -> io::Result<()> {
        beneath::remove(self.directory(), c"data")?;
        Journal::remove(self.directory())?;
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(()) };
        let parent = OwnedFd::from(open_directory(parent)?);
        beneath::remove(parent.as_fd(), &CString::new(name.as_bytes())?)
    }
}

/// Whether there is nothing of this person's in a place, as far as the kernel says.
fn is_not_theirs(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory)
}

/// By what each node finds a session's scratch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spot {
    /// Directory of the node in which people's own directories are.
    base: PathBuf,
    /// What names this start of the session on nodes.
    name: String,
}

impl Spot {
    /// Which of a person's directories has it on this node.
    fn own(&self, uid: u32) -> Option<(PathBuf, File)> {
        all(&self.base, &own_name(uid), uid).find(|(own, _)| own.join(&self.name).is_dir())
    }

    /// What the container sees of it on this node, once there is one.
    pub(crate) fn data(&self) -> Option<PathBuf> {
        let (own, _) = self.own(nix::unistd::geteuid().as_raw())?;
        Some(own.join(&self.name).join(DATA))
    }
}

/// Whether scratches can be made there.
fn check(base: &Path, uid: u32, node: &str, size_mib: Option<u64>) -> Result<(), ScratchError> {
    let (shown, node) = (base.display().to_string(), node.to_owned());
    let no_base = |_| ScratchError::NoBase { node: node.clone(), base: shown.clone() };
    // Links on the way are the administrator's.
    let metadata = std::fs::metadata(base).map_err(no_base)?;
    if !metadata.is_dir() {
        return Err(no_base(io::ErrorKind::NotADirectory.into()));
    }
    if !is_safe(metadata.uid(), metadata.mode(), uid) {
        return Err(ScratchError::NotSafe { node, base: shown });
    }
    if let Some(wanted_mib) = size_mib {
        let room = rustix::fs::statvfs(base).map_err(|error| ScratchError::Io(node.clone(), error.into()))?;
        let free_mib = room.f_bavail.saturating_mul(room.f_frsize) >> 20;
        if free_mib < wanted_mib {
            return Err(ScratchError::NoRoom { node, free_mib, wanted_mib });
        }
    }
    Ok(())
}

/// Whether nobody but root and this person can put something else in the place of what lies in such a directory.
fn is_safe(owner: u32, mode: u32, uid: u32) -> bool {
    (owner == 0 || owner == uid) && (mode & 0o022 == 0 || mode & STICKY != 0)
}

/// Deals with what killed agents of this person left: removes where nothing is owed, brings out what is. Takes as long as that takes, so it is for
/// a thread of its own.
fn heal_left(base: &Path, uid: u32, except: &OsStr, log: &Log) {
    let places = all(base, &own_name(uid), uid);
    for scratch in places.flat_map(|(own, parent)| left(&own, parent, uid, except).unwrap_or_default()) {
        let path = scratch.path.clone();
        if let Err(trouble) = stage::settle(scratch, uid, log) {
            log.say(&format!("{trouble}; `eirene-agent rescue {}` tries again", path.display()));
        }
    }
}

/// The scratches that nobody holds, held now. Where somebody lives, or what is no scratch at all, is not among them.
fn left(own: &Path, parent: File, uid: u32, except: &OsStr) -> io::Result<Vec<Scratch>> {
    // What has just been made is not yet locked.
    let _one = lock(parent, FlockArg::LockExclusive)?;
    let entries = std::fs::read_dir(own)?.flatten().filter(|entry| entry.file_name() != except);
    Ok(entries.filter_map(|entry| Scratch::take(own, &entry.file_name(), uid).ok()).collect())
}

#[cfg(test)]
mod tests;
