//! Which nodes of a session were well, so that the next step need not try them again.
//!
//! It lies beside the session's step socket, in a directory that only this person and this session can enter, and goes with the session. Whoever
//! could change it could as well say `--no-preflight`.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

const NAME: &str = "preflight.json";
/// How long nodes that were well are taken for it.
const GOOD_FOR: Duration = Duration::from_mins(15);
/// More than any session's nodes and warnings take.
const MOST_BYTES: u64 = 1 << 20;

/// What was found, and when is the file's own time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    /// Nodes that were tried together.
    nodes: Vec<String>,
    /// What is slow about them.
    warnings: Vec<String>,
}

/// The file.
pub(super) struct Memory {
    path: PathBuf,
}

impl Memory {
    /// Beside a session's socket.
    pub(super) fn beside(socket: &Path) -> Self {
        Self { path: socket.with_file_name(NAME) }
    }

    /// What is to be said of these nodes, where they were well together not long ago.
    pub(super) fn of(&self, nodes: &[String]) -> Option<Vec<String>> {
        let about =
            fs::symlink_metadata(&self.path).ok().filter(|about| about.is_file() && about.len() <= MOST_BYTES)?;
        // A time to come is a clock's that was set.
        let age = SystemTime::now().duration_since(about.modified().ok()?).ok()?;
        let found: Found = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        (age < GOOD_FOR && nodes.iter().all(|node| found.nodes.contains(node))).then_some(found.warnings)
    }

    /// Keeps that these were well. Where it cannot be kept, they are tried again.
    pub(super) fn keep(&self, nodes: &[String], warnings: &[String]) {
        let found = Found { nodes: nodes.to_vec(), warnings: warnings.to_vec() };
        let beside = self.path.with_extension(format!("{}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&serde_json::to_vec(&found)?)?;
            fs::rename(&beside, &self.path)
        };
        if write().is_err() {
            let _ = fs::remove_file(&beside);
        }
    }

    /// Forgets it.
    pub(super) fn forget(&self) {
        // Mostly it is not there.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn memory() -> (tempfile::TempDir, Memory) {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::beside(&directory.path().join("steps.sock"));
        (directory, memory)
    }

    #[test]
    fn nodes_that_were_well_together_are_known_for_a_while() {
        let (directory, memory) = memory();
        assert_eq!(memory.of(&names(&["c1", "c2"])), None);
        memory.keep(&names(&["c1", "c2", "c3"]), &names(&["c3 is slow"]));
        assert_eq!(memory.of(&names(&["c1", "c2"])), Some(names(&["c3 is slow"])));
        assert_eq!(memory.of(&names(&["c1", "c4"])), None, "c4 was never tried");
        assert_eq!(fs::metadata(&memory.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let file = File::options().write(true).open(&memory.path).unwrap();
        for (age, is_known) in [(GOOD_FOR / 2, true), (GOOD_FOR + Duration::from_secs(1), false)] {
            file.set_modified(SystemTime::now() - age).unwrap();
            assert_eq!(memory.of(&names(&["c1", "c2"])).is_some(), is_known, "{age:?}");
        }
        file.set_modified(SystemTime::now() + Duration::from_hours(1)).unwrap();
        assert_eq!(memory.of(&names(&["c1", "c2"])), None, "a clock was set");
    }

    #[test]
    fn what_is_forgotten_or_no_file_of_ours_is_not_known() {
        let (directory, memory) = memory();
        memory.forget();
        memory.keep(&names(&["c1"]), &[]);
        memory.forget();
        assert_eq!(memory.of(&names(&["c1"])), None);
        for text in ["", "{}", "{\"nodes\":[\"c1\"],\"warnings\":[],\"more\":1}"] {
            fs::write(&memory.path, text).unwrap();
            assert_eq!(memory.of(&names(&["c1"])), None, "{text}");
        }
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&memory.path, &elsewhere).unwrap();
        fs::write(&elsewhere, r#"{"nodes":["c1"],"warnings":[]}"#).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &memory.path).unwrap();
        assert_eq!(memory.of(&names(&["c1"])), None, "links are not followed");
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_left() {
        let (directory, memory) = memory();
        fs::create_dir(&memory.path).unwrap();
        memory.keep(&names(&["c1"]), &[]);
        assert_eq!(memory.of(&names(&["c1"])), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
