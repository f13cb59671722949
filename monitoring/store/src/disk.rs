//! The directory: names of files, how much of the disk they take, and writes that are either whole or not there.
//!
//! Every byte is asked for before it is written ([`Disk::fits`]); who has to go when it does not fit is decided by the store.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// What is behind a name while it is written.
const NEW: &str = ".new";
/// What is behind the name of a file that could not be read.
pub(crate) const BROKEN: &str = ".broken";

/// A kind of segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Raw,
    Minutes,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Minutes => "minutes",
        }
    }
}

/// What a segment's file is called: kind, first and last journal whose samples it holds, and how often it was rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    pub(crate) kind: Kind,
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
    pub(crate) version: u64,
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, lowest, highest, version } = self;
        write!(f, "{}-{lowest:016x}-{highest:016x}-{version:x}", kind.word())
    }
}

/// What lies in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    Journal(u64),
    Segment(SegmentName),
}

impl FileName {
    /// The name's meaning, if it is one of ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut parts = name.split('-');
        let parsed = match parts.next()? {
            "journal" => Self::Journal(number(parts.next()?)?),
            word => {
                let kind = [Kind::Raw, Kind::Minutes].into_iter().find(|kind| kind.word() == word)?;
                let (lowest, highest) = (number(parts.next()?)?, number(parts.next()?)?);
                Self::Segment(SegmentName { kind, lowest, highest, version: number(parts.next()?)? })
            }
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Journal(number) => write!(f, "journal-{number:016x}"),
            Self::Segment(name) => name.fmt(f),
        }
    }
}

/// The store's directory.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
    bound: u64,
    used: u64,
}

impl Disk {
    /// Makes the directory if need be, closed to others, and takes its lock.
    pub(crate) fn open(path: &Path, bound: u64) -> Result<(Self, File), StoreError> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at(path))?;
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(io_at(path))?;
        let disk = Self { path: path.to_owned(), bound, used: 0 };
        let lock = disk.path("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .map_err(io_at(&lock))?;
        match file.try_lock() {
            Ok(()) => Ok((disk, file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::Locked { path: path.to_owned() }),
            Err(std::fs::TryLockError::Error(source)) => Err(StoreError::Io { path: lock, source }),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn bound(&self) -> u64 {
        self.bound
    }

    /// Whether `bytes` more are within the bound.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.used.saturating_add(bytes) <= self.bound
    }

    /// Counts bytes that are there now.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Counts bytes that are not there any more.
    pub(crate) fn subtract(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Names and sizes of all files. What was not finished is removed.
    pub(crate) fn files(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(io_at(&self.path))? {
            let entry = entry.map_err(io_at(&self.path))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.ends_with(NEW) {
                std::fs::remove_file(entry.path()).map_err(io_at(&entry.path()))?;
                continue;
            }
            files.push((name, entry.metadata().map_err(io_at(&entry.path()))?.len()));
        }
        files.sort();
        Ok(files)
    }

    /// Creates `name`, empty and for nobody else.
    pub(crate) fn create(&self, name: &str) -> Result<File, StoreError> {
        let path = self.path(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.map_err(io_at(&path))
    }

    /// Creates what [`Disk::finish`] gives its name.
    pub(crate) fn begin(&self, name: &str) -> Result<File, StoreError> {
        self.create(&format!("{name}{NEW}"))
    }

    /// Gives a file that was begun its name, once all of it is on the disk. The name is there for good after [`Disk::sync`].
    pub(crate) fn finish(&self, name: &str, file: &File) -> Result<(), StoreError> {
        let (new, path) = (self.path(&format!("{name}{NEW}")), self.path(name));
        file.sync_all().map_err(io_at(&new))?;
        std::fs::rename(&new, &path).map_err(io_at(&path))
    }

    /// Removes what was begun and not finished.
    pub(crate) fn abandon(&self, name: &str) {
        // It has no name that means anything, and is removed at the next start at the latest.
        let _ = std::fs::remove_file(self.path(&format!("{name}{NEW}")));
    }

    /// Removes a file; one that is not there is fine.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::Io { path, source: error }),
            _ => Ok(()),
        }
    }

    /// Puts a file that cannot be read aside, for somebody to look at.
    pub(crate) fn set_aside(&self, name: &str) -> Result<String, StoreError> {
        let (from, aside) = (self.path(name), format!("{name}{BROKEN}"));
        std::fs::rename(&from, self.path(&aside)).map_err(io_at(&from))?;
        Ok(aside)
    }

    /// Has the disk hold the names as they are.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(io_at(&self.path))
    }

    /// Writes a small file whole.
    pub(crate) fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name);
        let before = std::fs::metadata(&path).map_or(0, |data| data.len());
        let file = self.begin(name)?;
        file.write_all_at(bytes, 0).map_err(io_at(&path))?;
        self.finish(name, &file)?;
        self.subtract(before);
        self.add(bytes.len() as u64);
        self.sync()
    }
}

/// An error of the operating system, with the file it was about.
pub(crate) fn io_at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    move |source| StoreError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_not_otherwise() {
        let segment = SegmentName { kind: Kind::Minutes, lowest: 3, highest: 0xff, version: 2 };
        for name in [FileName::Journal(7), FileName::Segment(segment)] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for name in
            ["", "lock", "journal-", "journal-7", "raw-1-2", "minutes-0-0-0-0", "../raw", "journal-+000000000000007"]
        {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn others_can_see_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let (disk, _lock) = Disk::open(&path, 100).unwrap();
        disk.create("x").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("x")), mode(&path.join("lock"))), (0o700, 0o600, 0o600));
        assert!(matches!(Disk::open(&path, 100), Err(StoreError::Locked { .. })));
    }
}
