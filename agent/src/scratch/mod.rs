//! Fast scratch on the node for as long as a job lasts: made privately, filled, given to the container as `/local`, emptied, removed.
//!
//! It lies in a directory everybody may write to, as the [runtime directory](crate::runtime_directory) does, and by the same rules: nothing there is
//! believed, a lock says that somebody lives. It differs in two things. Where its place is taken by somebody else's directory there is no other
//! place: the path must be the same on all nodes, and the person is told. And what a killed agent left is not removed as long as the program's
//! results in it are owed: the person's next agent on this node brings them out, or `eirene-agent rescue` does.
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

use nix::fcntl::{Flock, FlockArg};

use crate::log::Log;
use crate::runtime_directory::{lock, open_directory, private};
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
    /// The person's own directory there is somebody else's, or open to others.
    #[error("`{0}` on node {1} is not this person's alone: whoever made it, or the administrator, has to remove it")]
    NotPrivate(String, String),
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
    fn make(base: &Path, uid: u32, name: &str, node: &str, size_mib: Option<u64>) -> Result<Self, ScratchError> {
        let io = |error| ScratchError::Io(node.to_owned(), error);
        check(base, uid, node, size_mib)?;
        let own = parent(base, uid);
        let parent = private(&own, uid).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
                ScratchError::NotPrivate(own.display().to_string(), node.to_owned())
            }
            _ => io(error),
        })?;
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
    fn take(path: &Path, uid: u32) -> io::Result<Self> {
        let directory = open_directory(path)?;
        let metadata = directory.metadata()?;
        if metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let held = lock(directory, FlockArg::LockExclusiveNonblock)?;
        Ok(Self { path: path.to_owned(), held, found: true })
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

/// Where a person's scratches are.
fn parent(base: &Path, uid: u32) -> PathBuf {
    eirene_core::scratch::own_directory(base, uid)
}

/// What the container sees of the scratch of this name, once there is one.
pub(crate) fn data(base: &Path, uid: u32, name: &str) -> PathBuf {
    parent(base, uid).join(name).join(DATA)
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
    for scratch in left(&parent(base, uid), uid, except).unwrap_or_default() {
        let path = scratch.path.clone();
        if let Err(trouble) = stage::settle(scratch, uid, log) {
            log.say(&format!("{trouble}; `eirene-agent rescue {}` tries again", path.display()));
        }
    }
}

/// The scratches that nobody holds, held now. Where somebody lives, or what is no scratch at all, is not among them.
fn left(own: &Path, uid: u32, except: &OsStr) -> io::Result<Vec<Scratch>> {
    let parent = private(own, uid)?;
    // What has just been made is not yet locked.
    let _one = lock(parent, FlockArg::LockExclusive)?;
    let entries = std::fs::read_dir(own)?.flatten().filter(|entry| entry.file_name() != except);
    Ok(entries.filter_map(|entry| Scratch::take(&entry.path(), uid).ok()).collect())
}

#[cfg(test)]
mod tests;
