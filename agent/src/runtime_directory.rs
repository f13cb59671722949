//! A private directory on the node's own disk: the app's socket, its kernels' sockets, its temporary files.
//!
//! It lies in a directory everybody may write to, so nothing there is believed: the parent must be a directory (no link) of this
//! user with mode 0700, or a fresh one with an unguessable name is made instead. Paths stay short, because a unix socket's path may
//! be 107 bytes long at most (unix(7)).

use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::job::write_private;

/// Where the ranks of this node leave word of themselves.
pub(crate) const RANKS: &str = "ranks";
/// What of the directory the container sees. What lies beside it is for the agent, its helpers and ranks: programs in the container must not
/// put something else in its place.
const INSIDE: &str = "inside";

/// The directory; removed with all its contents when dropped.
#[derive(Debug)]
pub(crate) struct RuntimeDirectory {
    path: PathBuf,
    /// Held as long as the agent lives, so that another one knows which directories nobody needs any more.
    _lock: Flock<File>,
}

impl RuntimeDirectory {
    /// Makes `<base>/eirene-<uid>/<name>`, or `<base>/eirene-<random>` where the first cannot be trusted. What agents left behind that
    /// were killed is removed.
    pub(crate) fn make(base: &Path, uid: u32, name: &str) -> io::Result<Self> {
        let own = base.join(format!("eirene-{uid}"));
        let Ok(parent) = private(&own, uid) else { return fresh(base) };
        // One agent at a time: a directory must not be taken for a left one before it is locked.
        let _one = lock(parent, FlockArg::LockExclusive)?;
        let path = own.join(name);
        remove_left(&own, &path);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        Self::with_parts(path)
    }

    fn with_parts(path: PathBuf) -> io::Result<Self> {
        let held = lock(open_directory(&path)?, FlockArg::LockExclusive)?;
        for part in [RANKS, INSIDE, "inside/tmp", "inside/jupyter"] {
            DirBuilder::new().mode(0o700).create(path.join(part))?;
        }
        Ok(Self { path, _lock: held })
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The part that is bound into the container.
    pub(crate) fn inside(&self) -> PathBuf {
        inside(&self.path)
    }

    /// Writes a private file into it.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        write_private(&path, text)?;
        Ok(path)
    }
}

/// The part of a runtime directory that is bound into the container.
pub(crate) fn inside(directory: &Path) -> PathBuf {
    directory.join(INSIDE)
}

impl Drop for RuntimeDirectory {
    fn drop(&mut self) {
        // What cannot be removed is the node's clean-up's to remove; the session is over either way.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Opens a directory that is no link.
pub(crate) fn open_directory(directory: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(directory)
}

/// Locks a file for as long as this process lives, or the lock does.
pub(crate) fn lock(file: File, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, error)| error.into())
}

/// Opens a directory of this person's alone, which is made if it is not there. What others prepared is an error.
pub(crate) fn private(path: &Path, uid: u32) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let directory = open_directory(path)?;
    let metadata = directory.metadata()?;
    if metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(directory)
}

/// Removes the directories in `parent` that no agent holds, in the background: a start does not wait for it.
fn remove_left(parent: &Path, except: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let left: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let held = (path != except).then(|| open_directory(&path).ok())??;
            Some((path, lock(held, FlockArg::LockExclusiveNonblock).ok()?))
        })
        .collect();
    if !left.is_empty() {
        std::thread::spawn(move || {
            for (path, _held) in left {
                // What cannot be removed is tried again by the next agent.
                let _ = std::fs::remove_dir_all(path);
            }
        });
    }
}

fn fresh(base: &Path) -> io::Result<RuntimeDirectory> {
    let template = CString::new(base.join("eirene-XXXXXX").into_os_string().into_encoded_bytes())?;
    let template = PathBuf::from(std::ffi::OsString::from(template.into_string().map_err(io::Error::other)?));
    let made = nix::unistd::mkdtemp(&template).map_err(io::Error::from)?;
    RuntimeDirectory::with_parts(made)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn uid() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn it_is_private_holds_files_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let directory = RuntimeDirectory::make(base.path(), uid(), "s.0").unwrap();
        let path = directory.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let file = directory.write("environment", "A='b'\n").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn what_killed_agents_left_is_removed_and_what_is_in_use_stays() {
        let base = tempfile::tempdir().unwrap();
        let used = RuntimeDirectory::make(base.path(), uid(), "used.0").unwrap();
        let left = used.path().with_file_name("left.0");
        std::fs::create_dir_all(left.join("tmp/deep")).unwrap();
        let _next = RuntimeDirectory::make(base.path(), uid(), "next.0").unwrap();
        let begun = std::time::Instant::now();
        while left.exists() {
            assert!(begun.elapsed().as_secs() < 120, "what was left is still there");
            std::thread::yield_now();
        }
        assert!(used.inside().join("tmp").is_dir());
    }

    #[test]
    fn what_others_prepared_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let trap = base.path().join(format!("eirene-{}", uid()));
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), &trap).unwrap();
        let directory = RuntimeDirectory::make(base.path(), uid(), "s.0").unwrap();
        assert!(directory.path().starts_with(base.path()) && !directory.path().starts_with(&trap));
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        drop(directory);

        std::fs::remove_file(&trap).unwrap();
        std::fs::create_dir(&trap).unwrap();
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o777)).unwrap();
        let directory = RuntimeDirectory::make(base.path(), uid(), "s.0").unwrap();
        assert!(!directory.path().starts_with(&trap), "a directory others may write to");
    }
}
