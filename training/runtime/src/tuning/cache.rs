//! Where tables are kept: a file for each topology, in a directory that only its owner can write to.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::machine::Key;
use super::table::Table;

/// Tells apart what threads of this process are writing.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A file that is longer than this is none of ours.
const LONGEST: u64 = 1 << 20;

/// The table of a topology; none if nothing was measured yet.
///
/// # Errors
/// Why a file that is there is of no use, with its path.
pub(super) fn read(directory: &Path, key: &Key) -> Result<Option<Table>, String> {
    let path = directory.join(key.file_name());
    let because = |reason: String| format!("{} is ignored: {reason}", path.display());
    let mut options = OpenOptions::new();
    // A link, or something that is waited for, is nothing that was written here.
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(because(error.to_string())),
    };
    let text = content(file).map_err(because)?;
    let table = Table::read(&text).map_err(because)?;
    if table.key() == key { Ok(Some(table)) } else { Err(because("it is of another topology".to_owned())) }
}

fn content(file: File) -> Result<String, String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    let user = nix::unistd::geteuid().as_raw();
    if found.uid() != user {
        return Err(format!("it belongs to user {}, and this is user {user}", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err("others may write to it".to_owned());
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST { Err("it is too long".to_owned()) } else { Ok(text) }
}

/// Keeps a table; whoever reads meanwhile sees the old one or the new one. Gives the file's path.
///
/// # Errors
/// Why it could not be kept, with the path.
pub(super) fn write(directory: &Path, table: &Table) -> Result<PathBuf, String> {
    let path = directory.join(table.key().file_name());
    let because = |error: std::io::Error| format!("{}: {error}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(because)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = directory.join(format!(".{}.{}.{number}", table.key().file_name(), std::process::id()));
    let written = create(&new, table).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map_err(because)?;
    Ok(path)
}

fn create(path: &Path, table: &Table) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(table.write().as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::machine::Machine;
    use super::super::table::tests::sample;
    use super::*;

    #[test]
    fn a_table_is_kept_for_its_owner_only_and_read_again() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("new/cache");
        let table = sample();
        assert_eq!(read(&directory, table.key()), Ok(None));
        for _ in 0..2 {
            let path = write(&directory, &table).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o700);
            assert_eq!(read(&directory, table.key()), Ok(Some(table.clone())));
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_not_ours_is_ignored_with_the_reason() {
        let base = tempfile::tempdir().unwrap();
        let table = sample();
        let path = write(base.path(), &table).unwrap();
        let reason = || read(base.path(), table.key()).unwrap_err();

        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(reason().contains("others may write"), "{}", reason());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(reason().contains("belongs to user 65534"), "{}", reason());
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        fs::write(&path, "{").unwrap();
        assert!(reason().contains("EOF") && reason().contains(path.to_str().unwrap()), "{}", reason());
        fs::write(&path, " ".repeat(LONGEST as usize + 1)).unwrap();
        assert!(reason().contains("too long"), "{}", reason());
        let other = Key::of(
            &crate::choice::Topology::new(&[0, 0, 0]),
            &Machine { cores: 7, mpi: None, encryption: crate::world::Encryption::On },
        );
        fs::write(base.path().join(other.file_name()), table.write()).unwrap();
        assert!(read(base.path(), &other).unwrap_err().contains("another topology"));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(reason().contains("is ignored"), "{}", reason());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(reason().contains("no file"), "{}", reason());
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_is_said() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        let error = write(&base.path().join("file/cache"), &sample()).unwrap_err();
        assert!(error.contains("file/cache"), "{error}");
    }
}
