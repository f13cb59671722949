//! Whose the state directory is: what a command of another user makes in it, the portal cannot open.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

/// The embedded database's file; those beside it begin alike.
const DATABASE: &str = "eirene.db";

/// What is wrong with who owns what.
#[derive(Debug, thiserror::Error)]
pub(super) enum OwnerError {
    /// The directory is somebody else's.
    #[error("`{}` belongs to `{owner}`, not to you: run this as that user (sudo -u {owner} …)", directory.display())]
    Directory { directory: PathBuf, owner: String },
    /// Something in it is not its owner's.
    #[error("`{0}` belongs to `{found}`, its directory to `{owner}`: chown {owner} {0}", file.display())]
    File { file: PathBuf, found: String, owner: String },
    /// Root would make it, for root.
    #[error(
        "`{0}` does not exist yet. Start eirened first, or make it for the user that eirened runs as: install -d -m 0700 -o eirene {0}",
        directory.display()
    )]
    Missing { directory: PathBuf },
}

/// Checks that a command of `user` that opens the database leaves nothing that the portal cannot open. Root may open one that is there: SQLite gives
/// the files beside it to its owner.
pub(super) fn check(directory: &Path, user: Uid) -> Result<(), OwnerError> {
    if user.is_root() && directory.join(DATABASE).exists() {
        check_files(directory)
    } else {
        check_maker(directory, user)
    }
}

/// The same for one that makes a database.
pub(super) fn check_maker(directory: &Path, user: Uid) -> Result<(), OwnerError> {
    match std::fs::metadata(directory) {
        Ok(found) if found.uid() != user.as_raw() => {
            Err(OwnerError::Directory { directory: directory.to_owned(), owner: name(found.uid()) })
        }
        Ok(_) => check_files(directory),
        Err(error) if error.kind() == ErrorKind::NotFound && user.is_root() => {
            Err(OwnerError::Missing { directory: directory.to_owned() })
        }
        // Whatever else is wrong is said when it is opened.
        Err(_) => Ok(()),
    }
}

/// Checks that the embedded database in the state directory is the directory's owner's; what else is there, `lost+found` for example, may be anybody's.
pub(super) fn check_files(directory: &Path) -> Result<(), OwnerError> {
    let (Ok(own), Ok(files)) = (std::fs::metadata(directory), std::fs::read_dir(directory)) else { return Ok(()) };
    for file in files.flatten().filter(|file| file.file_name().as_encoded_bytes().starts_with(DATABASE.as_bytes())) {
        if let Ok(found) = file.metadata()
            && found.uid() != own.uid()
        {
            return Err(OwnerError::File { file: file.path(), found: name(found.uid()), owner: name(own.uid()) });
        }
    }
    Ok(())
}

fn name(uid: u32) -> String {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_the_state_directory_runs_commands_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (nix::unistd::geteuid(), Uid::from_raw(54_321));
        std::fs::write(dir.path().join("eirene.db"), "").unwrap();
        check(dir.path(), own).unwrap();
        check(dir.path(), Uid::from_raw(0)).unwrap();
        let refused = check(dir.path(), other).unwrap_err().to_string();
        assert!(refused.contains(&format!("belongs to `{}`", name(own.as_raw()))), "{refused}");
        let none = dir.path().join("none");
        check(&none, other).unwrap();
        let missing = check(&none, Uid::from_raw(0)).unwrap_err().to_string();
        assert!(missing.contains("Start eirened first"), "{missing}");
        assert!(!none.exists());
    }

    #[test]
    fn a_file_of_somebody_else_is_named_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("eirene.db");
        std::fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(54_321), None).is_err() {
            return; // Only root gives files away; the gate runs as root.
        }
        let wrong = check_files(dir.path()).unwrap_err().to_string();
        assert!(wrong.contains("belongs to `54321`") && wrong.contains("chown "), "{wrong}");
    }
}
