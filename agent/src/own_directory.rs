//! A person's own directory in one that everybody may write to, as `/tmp`.
//!
//! Nothing there is trusted: it must be a directory (no link) of this user with mode 0700. Its name can be guessed, so another user can take it
//! first. Then a directory with a random suffix takes its place. It is found again by its owner: no other user can make a directory that is this
//! user's, or move one there, because that needs the right to write to it (rename(2)).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::log::Log;

/// Opens `<base>/<name>`, or one with a random suffix where that is not this user's alone; makes it if it is not there. The log says why the name
/// could not be used, and whose it is.
pub(crate) fn own(base: &Path, name: &str, uid: u32, log: &Log) -> io::Result<(PathBuf, File)> {
    let path = base.join(name);
    let at_path = |error: io::Error| io::Error::new(error.kind(), format!("`{}`: {error}", path.display()));
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at_path(error)),
        _ => {}
    }
    let error = match private(&path, uid) {
        Ok(directory) => return Ok((path, directory)),
        Err(error) => error,
    };
    let Some(why) = unfit(&path, uid) else { return Err(at_path(error)) };
    let why = format!("`{}` {why}", path.display());
    let other = others(&path).and_then(|others| {
        let mut earlier =
            others.into_iter().filter_map(|path| private(&path, uid).ok().map(|directory| (path, directory)));
        earlier.next().map_or_else(|| fresh(&path, uid), Ok)
    });
    let other = other
        .map_err(|error| io::Error::new(error.kind(), format!("{why}, and no other can be made beside it: {error}")))?;
    log.say(&format!("{why}. Using `{}` instead; ask the administrators to remove the former", other.0.display()));
    Ok(other)
}

/// All of a user's directories of this name, first the one without a suffix.
pub(crate) fn all(base: &Path, name: &str, uid: u32) -> impl Iterator<Item = (PathBuf, File)> + use<> {
    let path = base.join(name);
    let first = std::iter::once(path.clone());
    let others = std::iter::once_with(move || others(&path).unwrap_or_default()).flatten();
    first.chain(others).filter_map(move |path| private(&path, uid).ok().map(|directory| (path, directory)))
}

/// What is called as a directory and a suffix, in order, whatever it is.
pub(crate) fn others(own: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(base), Some(name)) = (own.parent(), own.file_name()) else { return Ok(Vec::new()) };
    let prefix = [name.as_bytes(), b"."].concat();
    let mut all = Vec::new();
    for entry in std::fs::read_dir(base)? {
        let entry = entry?;
        if entry.file_name().as_bytes().starts_with(&prefix) {
            all.push(entry.path());
        }
    }
    all.sort();
    Ok(all)
}

/// Opens a directory of this user's alone.
fn private(path: &Path, uid: u32) -> io::Result<File> {
    let directory = open_directory(path)?;
    let metadata = directory.metadata()?;
    if metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(directory)
}

/// Why what has a name is not a directory of this user's alone; none where it is, or is not there.
fn unfit(path: &Path, uid: u32) -> Option<String> {
    let found = std::fs::symlink_metadata(path).ok()?;
    if found.uid() != uid {
        Some(format!("belongs to user {}", found.uid()))
    } else if !found.is_dir() {
        Some("is not a directory".to_owned())
    } else {
        (found.mode() & 0o077 != 0).then(|| "is open to other users".to_owned())
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

fn fresh(own: &Path, uid: u32) -> io::Result<(PathBuf, File)> {
    let mut template = own.as_os_str().to_owned();
    template.push(".XXXXXX");
    let path = nix::unistd::mkdtemp(Path::new(&template))?;
    let directory = private(&path, uid)?;
    Ok((path, directory))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    /// The user who takes the name first, where the tests run as root.
    const ANOTHER: u32 = 54_321;

    fn uid() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn make_directory(path: &Path, mode: u32) {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Ways to take a name, and what the log says of each.
    type Squat = (fn(&Path, &Path), &'static str);

    const OWN: [Squat; 4] = [
        (|name, elsewhere| symlink(elsewhere, name).unwrap(), "is not a directory"),
        (|name, _| std::fs::write(name, "").unwrap(), "is not a directory"),
        (|name, elsewhere| std::fs::hard_link(elsewhere.join("file"), name).unwrap(), "is not a directory"),
        (|name, _| make_directory(name, 0o777), "is open to other users"),
    ];
    const OF_OTHERS: [Squat; 4] = [
        (|name, _| make_directory(name, 0o700), "belongs to user 54321"),
        (|name, _| make_directory(name, 0o777), "belongs to user 54321"),
        (|name, _| std::fs::write(name, "").unwrap(), "belongs to user 54321"),
        (|name, elsewhere| symlink(elsewhere, name).unwrap(), "belongs to user 54321"),
    ];

    #[test]
    fn a_name_that_is_taken_is_replaced_by_one_that_is_found_again() {
        let of_others = if uid() == 0 { OF_OTHERS.as_slice() } else { &[] };
        let squats = OWN.iter().map(|squat| (squat, false)).chain(of_others.iter().map(|squat| (squat, true)));
        for ((squat, why), by_another) in squats {
            let (base, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            std::fs::write(elsewhere.path().join("file"), "").unwrap();
            let taken = base.path().join("x-7");
            squat(&taken, elsewhere.path());
            // Names like the ones that are used here, but not this user's alone.
            make_directory(&base.path().join("x-7.000000"), 0o777);
            symlink(elsewhere.path(), base.path().join("x-7.000001")).unwrap();
            make_directory(&base.path().join("x-70.00002"), 0o700);
            if by_another {
                std::os::unix::fs::lchown(&taken, Some(ANOTHER), Some(ANOTHER)).unwrap();
                make_directory(&base.path().join("x-7.000003"), 0o700);
                chown(base.path().join("x-7.000003"), Some(ANOTHER), Some(ANOTHER)).unwrap();
            }
            let log = Log::new(io::sink());
            let (used, directory) = own(base.path(), "x-7", uid(), &log).unwrap();
            let metadata = directory.metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.mode() & 0o7777, metadata.is_dir()), (uid(), 0o700, true));
            assert!(used.parent() == Some(base.path()) && used != taken, "{}", used.display());
            let (_, _, said) = log.piece(0).unwrap();
            assert_eq!(said.lines().count(), 1);
            for words in [*why, taken.to_str().unwrap(), used.to_str().unwrap()] {
                assert!(said.contains(words), "{words}: {said}");
            }
            let found = || all(base.path(), "x-7", uid()).map(|(path, _)| path).collect::<Vec<_>>();
            assert_eq!((own(base.path(), "x-7", uid(), &log).unwrap().0, found()), (used.clone(), vec![used.clone()]));
            // Once the administrator has removed what was in the way.
            if taken.is_symlink() || taken.is_file() {
                std::fs::remove_file(&taken)
            } else {
                std::fs::remove_dir(&taken)
            }
            .unwrap();
            assert_eq!(own(base.path(), "x-7", uid(), &log).unwrap().0, taken);
            assert_eq!(found(), [taken, used]);
            assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1, "nothing is made where a link leads");
        }
    }

    #[test]
    fn where_nothing_can_be_made_the_reason_is_given() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("file"), "").unwrap();
        let log = Log::new(io::sink());
        let text = own(&base.path().join("file"), "x-7", uid(), &log).unwrap_err().to_string();
        assert!(text.contains("/file/x-7`: Not a directory"), "{text}");
        // Too long for a suffix, and not for the name itself.
        let name = "x".repeat(255);
        std::fs::write(base.path().join(&name), "").unwrap();
        let text = own(base.path(), &name, uid(), &log).unwrap_err().to_string();
        for words in [&name, "is not a directory", "no other can be made beside it", "File name too long"] {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(log.piece(0), None);
    }
}
