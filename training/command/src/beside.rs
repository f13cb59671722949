//! Small files beside a session's step socket: what one command of a session leaves for its next.
//!
//! The directory can be entered by this person and this session alone, and goes with the session. Whoever could change what lies there could as well
//! give the command other options. What cannot be read or kept is only not known: it is found out again.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a file is believed. What it was found from may change in a way that nobody sees.
const GOOD_FOR: Duration = Duration::from_mins(15);
/// More than what is kept of any session takes.
const MOST_BYTES: u64 = 1 << 20;

/// One file.
#[derive(Debug)]
pub(crate) struct Beside {
    path: PathBuf,
}

impl Beside {
    /// The file of this name beside a session's socket.
    pub(crate) fn new(socket: &Path, name: &str) -> Self {
        Self { path: socket.with_file_name(name) }
    }

    /// What it holds, where it was kept not long ago.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let about =
            fs::symlink_metadata(&self.path).ok().filter(|about| about.is_file() && about.len() <= MOST_BYTES)?;
        // A time to come is a clock's that was set.
        let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
        if age >= GOOD_FOR {
            return None;
        }
        serde_json::from_slice(&fs::read(&self.path).ok()?).ok()
    }

    /// Keeps this, in place of what was there; whole or not at all.
    pub(crate) fn keep<T: Serialize>(&self, found: &T) {
        let beside = self.path.with_extension(format!("{}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&serde_json::to_vec(found)?)?;
            fs::rename(&beside, &self.path)
        };
        if write().is_err() {
            let _ = fs::remove_file(&beside);
        }
    }

    /// Forgets it.
    pub(crate) fn forget(&self) {
        // Mostly it is not there.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file() -> (tempfile::TempDir, Beside) {
        let directory = tempfile::tempdir().unwrap();
        let file = Beside::new(&directory.path().join("steps.sock"), "numbers.json");
        (directory, file)
    }

    fn read(file: &Beside) -> Option<Vec<u32>> {
        file.read()
    }

    #[test]
    fn what_is_kept_is_known_for_a_while() {
        let (directory, beside) = file();
        assert_eq!(read(&beside), None);
        beside.keep(&[1]);
        beside.keep(&[1, 2]);
        assert_eq!(read(&beside), Some(vec![1, 2]));
        assert_eq!(fs::metadata(&beside.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let file = File::options().write(true).open(&beside.path).unwrap();
        for (age, is_known) in [(GOOD_FOR / 2, true), (GOOD_FOR + Duration::from_secs(1), false)] {
            file.set_modified(SystemTime::now() - age).unwrap();
            assert_eq!(read(&beside).is_some(), is_known, "{age:?}");
        }
        file.set_modified(SystemTime::now() + Duration::from_hours(1)).unwrap();
        assert_eq!(read(&beside), None, "a clock was set");
    }

    #[test]
    fn what_is_forgotten_or_no_file_of_ours_is_not_known() {
        let (directory, beside) = file();
        beside.forget();
        beside.keep(&[1]);
        beside.forget();
        assert_eq!(read(&beside), None);
        for text in ["", "{}", "[1"] {
            fs::write(&beside.path, text).unwrap();
            assert_eq!(read(&beside), None, "{text}");
        }
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&beside.path, &elsewhere).unwrap();
        fs::write(&elsewhere, "[1]").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &beside.path).unwrap();
        assert_eq!(read(&beside), None, "links are not followed");
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_left() {
        let (directory, beside) = file();
        fs::create_dir(&beside.path).unwrap();
        beside.keep(&[1]);
        assert_eq!(read(&beside), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
