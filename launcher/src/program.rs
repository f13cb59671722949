//! Programs that nobody but root can have written, by descriptor: what was looked at is what runs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};

/// Opens a program; it is closed again when something is executed.
///
/// # Errors
/// Where it is not there, no plain file, not root's, or others can write it.
pub fn open_trusted(path: &Path) -> io::Result<OwnedFd> {
    let about = |text: &str| io::Error::other(format!("`{}` {text}", path.display()));
    let program = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|error| about(&format!("cannot be opened: {}", error.desc())))?;
    let found = fstat(&program)?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG || found.st_mode & 0o111 == 0 {
        return Err(about("is no program"));
    }
    if found.st_uid != 0 || found.st_mode & 0o022 != 0 {
        return Err(about("must belong to root and be writable by nobody else"));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn only_what_root_alone_can_write_is_a_program() {
        assert!(open_trusted(Path::new("/bin/sh")).is_ok());
        assert!(open_trusted(Path::new("/bin")).is_err(), "a directory");
        assert!(open_trusted(Path::new("/etc/passwd")).is_err(), "not executable");
        assert!(open_trusted(Path::new("/nonexistent")).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "").unwrap();
        let trusted_with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            open_trusted(&path).is_ok()
        };
        assert_eq!([0o775, 0o757, 0o777].map(trusted_with), [false; 3]);
        assert_eq!(trusted_with(0o755), nix::unistd::geteuid().is_root());
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        if nix::unistd::geteuid().is_root() {
            assert!(open_trusted(&link).is_ok());
            chown(&path, Some(1), None).unwrap();
        }
        assert!(open_trusted(&link).is_err(), "what a link leads to is looked at");
    }
}
