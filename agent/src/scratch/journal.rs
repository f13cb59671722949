//! What is owed to a scratch: written beside its content, replaced by rename, read by whoever finishes what another process began.
//!
//! It lies on the node's disk and not in the home: it is of use only where the content is, goes with it, and a full home does not stop it.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use eirene_core::SpaceName;
use eirene_core::scratch::{StageIn, StageOut};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::beneath::step;

/// Its name in a scratch's directory.
const FILE: &CStr = c"journal.json";
const FRESH: &CStr = c"journal.new";
/// Longest one, bytes: all entries with the longest paths.
const MOST_BYTES: u64 = 4 << 20;

/// How far a scratch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Its content is being brought in: nothing in it is anybody's work.
    In,
    /// The program has it.
    Used,
    /// The program has ended, and what was asked for is being brought out.
    Out,
    /// Nothing is owed any more.
    Done,
}

/// How far an entry of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    /// Not begun.
    Waiting,
    /// Begun; unfinished files may lie about in its target.
    Copying,
    /// All there.
    Copied,
    /// Not to be copied after the end that there was.
    NotWanted,
    /// The program made no such thing.
    NotThere,
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    /// The session.
    pub(super) session: String,
    /// Which of several nodes this is, where each has a scratch of its own.
    pub(super) node: Option<u32>,
    /// Where the spaces lie.
    pub(super) spaces: BTreeMap<SpaceName, PathBuf>,
    /// What is brought in, with how far that is.
    pub(super) stage_in: Vec<(StageIn, Progress)>,
    /// What is brought out, with how far that is.
    pub(super) stage_out: Vec<(StageOut, Progress)>,
    /// How far all of it is.
    pub(super) phase: Phase,
    /// Whether the program ended well, once it has ended.
    pub(super) succeeded: bool,
}

impl Journal {
    /// Whether something in the scratch is still to be brought out.
    pub(super) fn owes(&self) -> bool {
        let open = |progress: &Progress| matches!(progress, Progress::Waiting | Progress::Copying);
        matches!(self.phase, Phase::Used | Phase::Out) && self.stage_out.iter().any(|(_, progress)| open(progress))
    }

    /// What unfinished files of this scratch are called.
    pub(super) fn mark(&self) -> String {
        self.node.map_or_else(|| self.session.clone(), |node| format!("{}-{node}", self.session))
    }

    /// Reads the journal of a scratch; none if there is none (yet). One that others could have written is an error.
    pub(super) fn read(directory: BorrowedFd<'_>, uid: u32) -> io::Result<Option<Self>> {
        let mut file = match step(directory, FILE, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => File::from(opened?),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.uid() != uid || metadata.mode() & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut text = String::new();
        Read::by_ref(&mut file).take(MOST_BYTES).read_to_string(&mut text)?;
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Puts it in place of the one before; when this returns it is on the disk.
    pub(super) fn write(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(directory, FRESH, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        rustix::fs::renameat(directory, FRESH, directory, FILE)?;
        rustix::fs::fsync(directory)?;
        Ok(())
    }

    /// Removes it, last of all that a scratch holds.
    pub(super) fn remove(directory: BorrowedFd<'_>) -> io::Result<()> {
        super::beneath::remove(directory, FRESH)?;
        super::beneath::remove(directory, FILE)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::beneath::Root;
    use super::*;

    pub(crate) fn journal() -> Journal {
        Journal {
            session: "s".into(),
            node: None,
            spaces: BTreeMap::new(),
            stage_in: Vec::new(),
            stage_out: vec![(
                StageOut {
                    from: "out".parse().unwrap(),
                    to: "home:out".parse().unwrap(),
                    on: eirene_core::scratch::StageOn::Always,
                },
                Progress::Waiting,
            )],
            phase: Phase::Used,
            succeeded: false,
        }
    }

    #[test]
    fn it_is_read_as_it_was_written_and_not_if_others_could_have_written_it() {
        let directory = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let opened = Root::open(directory.path()).unwrap().find("").unwrap();
        assert_eq!(Journal::read(opened.as_fd(), uid).unwrap(), None);
        let mut written = journal();
        written.write(opened.as_fd()).unwrap();
        written.node = Some(3);
        written.write(opened.as_fd()).unwrap();
        assert_eq!(Journal::read(opened.as_fd(), uid).unwrap().as_ref(), Some(&written));
        assert_eq!((written.mark(), journal().mark()), ("s-3".into(), "s".into()));
        assert!(Journal::read(opened.as_fd(), uid + 1).is_err(), "another person's");
        let path = directory.path().join("journal.json");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Journal::read(opened.as_fd(), uid).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere.json", &path).unwrap();
        assert!(Journal::read(opened.as_fd(), uid).is_err());
        Journal::remove(opened.as_fd()).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn something_is_owed_from_the_programs_start_until_all_is_out() {
        let mut one = journal();
        assert!(one.owes());
        one.phase = Phase::In;
        assert!(!one.owes(), "what was brought in is elsewhere too");
        one.phase = Phase::Out;
        for (progress, owes) in [
            (Progress::Copying, true),
            (Progress::Copied, false),
            (Progress::NotWanted, false),
            (Progress::NotThere, false),
        ] {
            one.stage_out[0].1 = progress;
            assert_eq!(one.owes(), owes, "{progress:?}");
        }
    }
}
