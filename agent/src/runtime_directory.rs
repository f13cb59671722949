//! A private directory on the node's own disk: the app's socket, its kernels' sockets, its temporary files.
//!
//! It is in this user's [own directory](crate::own_directory) in one that everybody may write to. Paths stay short, because a unix socket's path
//! may be 107 bytes long at most (unix(7)).

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::job::write_private;
use crate::log::Log;
use crate::own_directory::{all, lock, open_directory, own};

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
    /// Makes `<base>/eirene-<uid>/<name>`, or `<base>/eirene-<uid>.<random>/<name>` where the first cannot be trusted. What agents left behind
    /// that were killed is removed.
    pub(crate) fn make(base: &Path, uid: u32, name: &str, log: &Log) -> io::Result<Self> {
        let own_name = format!("eirene-{uid}");
        let (own, parent) = own(base, &own_name, uid, log)?;
        let path = own.join(name);
        // One agent at a time: a directory must not be taken for a left one before it is locked.
        for (place, held) in all(base, &own_name, uid) {
            let _one = lock(held, FlockArg::LockExclusive)?;
            remove_left(&place, &path);
        }
        let _one = lock(parent, FlockArg::LockExclusive)?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn uid() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn make(base: &Path, name: &str) -> io::Result<RuntimeDirectory> {
        RuntimeDirectory::make(base, uid(), name, &Log::new(io::sink()))
    }

    #[test]
    fn it_is_private_holds_files_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let directory = make(base.path(), "s.0").unwrap();
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
        let used = make(base.path(), "used.0").unwrap();
        let left = used.path().with_file_name("left.0");
        std::fs::create_dir_all(left.join("tmp/deep")).unwrap();
        let _next = make(base.path(), "next.0").unwrap();
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
        let directory = make(base.path(), "s.0").unwrap();
        assert!(directory.path().starts_with(base.path()) && !directory.path().starts_with(&trap));
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        drop(directory);

        std::fs::remove_file(&trap).unwrap();
        std::fs::create_dir(&trap).unwrap();
        std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o777)).unwrap();
        let directory = make(base.path(), "s.0").unwrap();
        assert!(!directory.path().starts_with(&trap), "a directory others may write to");
    }
}
