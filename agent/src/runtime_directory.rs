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

/// The directory; removed with all its contents when dropped.
#[derive(Debug)]
pub(crate) struct RuntimeDirectory(PathBuf);

impl RuntimeDirectory {
    /// Makes `<base>/eirene-<uid>/<name>`, or `<base>/eirene-<random>` where the first cannot be trusted.
    pub(crate) fn make(base: &Path, uid: u32, name: &str) -> io::Result<Self> {
        let own = base.join(format!("eirene-{uid}"));
        let directory = match private(&own, uid) {
            Ok(()) => {
                let directory = own.join(name);
                match std::fs::remove_dir_all(&directory) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => directory,
                }
            }
            Err(_) => return fresh(base),
        };
        DirBuilder::new().mode(0o700).create(&directory)?;
        Self(directory).with_parts()
    }

    fn with_parts(self) -> io::Result<Self> {
        for part in ["tmp", "jupyter"] {
            DirBuilder::new().mode(0o700).create(self.0.join(part))?;
        }
        Ok(self)
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a private file into it.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for RuntimeDirectory {
    fn drop(&mut self) {
        // What cannot be removed is the node's clean-up's to remove; the session is over either way.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn private(path: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_NOFOLLOW;
    let metadata =
        OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).and_then(|d: File| d.metadata())?;
    if metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

fn fresh(base: &Path) -> io::Result<RuntimeDirectory> {
    let template = CString::new(base.join("eirene-XXXXXX").into_os_string().into_encoded_bytes())?;
    let template = PathBuf::from(std::ffi::OsString::from(template.into_string().map_err(io::Error::other)?));
    let made = nix::unistd::mkdtemp(&template).map_err(io::Error::from)?;
    RuntimeDirectory(made).with_parts()
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
