//! How much there is to copy, looked at before, so that people see how far it is. A guess that is given up where it would take long.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eirene_core::scratch::StagePath;
use eirene_tunnel::message::Amount;
use rustix::fs::{AtFlags, FileType, OFlags, Stat};

use super::beneath::{Root, names, step};
use super::copy::{DEEPEST, UNFINISHED};

/// Most entries that are looked at, and the longest time that takes, for all that a node copies at once.
const MOST: u32 = 200_000;
const WITHIN: Duration = Duration::from_secs(10);

/// One look at several trees.
pub(super) struct Measure<'a> {
    broken_off: &'a AtomicBool,
    until: Instant,
    left: u32,
    sum: Amount,
}

impl<'a> Measure<'a> {
    /// Looks until `broken_off` is set.
    pub(super) fn new(broken_off: &'a AtomicBool) -> Self {
        Self { broken_off, until: Instant::now() + WITHIN, left: MOST, sum: Amount::default() }
    }

    /// What has been found, with what is beneath this path; none: there is too much of it, or it is not to be seen.
    pub(super) fn add(&mut self, root: &Root, path: &StagePath) -> Option<Amount> {
        let found = match root.find(path.as_str()) {
            // What a program did not make is nothing to copy.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(self.sum),
            found => found.ok()?,
        };
        let status = rustix::fs::fstat(&found).ok()?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => self.below(found.as_fd(), 0)?,
            FileType::RegularFile => self.file(&status),
            _ => {}
        }
        Some(self.sum)
    }

    fn below(&mut self, directory: BorrowedFd<'_>, depth: usize) -> Option<()> {
        for name in names(directory).ok()? {
            self.left = self.left.checked_sub(1)?;
            if self.broken_off.load(Ordering::Relaxed) || Instant::now() > self.until {
                return None;
            }
            if !name.to_bytes().starts_with(UNFINISHED) {
                self.entry(directory, &name, depth)?;
            }
        }
        Some(())
    }

    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, depth: usize) -> Option<()> {
        let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(status.st_mode) {
            // What a copy refuses is not measured either.
            FileType::Directory if depth >= DEEPEST => return None,
            FileType::Directory => {
                let below = step(directory, name, OFlags::RDONLY | OFlags::DIRECTORY).ok()?;
                self.below(below.as_fd(), depth + 1)?;
            }
            FileType::RegularFile => self.file(&status),
            FileType::Symlink => self.sum = self.sum.plus(Amount { bytes: 0, files: 1 }),
            _ => {}
        }
        Some(())
    }

    fn file(&mut self, status: &Stat) {
        self.sum = self.sum.plus(Amount { bytes: u64::try_from(status.st_size).unwrap_or(0), files: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_would_bring_is_counted_and_what_is_too_much_is_not() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(inside.path().join("a/b")).unwrap();
        std::fs::write(inside.path().join("a/b/file"), "12345").unwrap();
        std::fs::write(inside.path().join("a/other"), "123").unwrap();
        std::fs::write(inside.path().join("a/.eirene-stage-x"), "half").unwrap();
        std::fs::write(outside.path().join("large"), "1".repeat(1000)).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("a/link")).unwrap();
        let (root, wanted) = (Root::open(inside.path()).unwrap(), AtomicBool::new(false));
        let path = |text: &str| -> StagePath { text.parse().unwrap() };
        let mut measure = Measure::new(&wanted);
        assert_eq!(measure.add(&root, &path("a")), Some(Amount { bytes: 8, files: 3 }), "a link is not followed");
        assert_eq!(
            measure.add(&root, &path("a/other")),
            Some(Amount { bytes: 11, files: 4 }),
            "and all of it together"
        );
        assert_eq!(measure.add(&root, &path("gone")).map(|all| all.files), Some(4));
        assert_eq!(measure.add(&root, &path("a/link")), None, "it leads out");
        std::fs::create_dir_all(inside.path().join("d/".repeat(DEEPEST + 2))).unwrap();
        assert_eq!(Measure::new(&wanted).add(&root, &path("d")), None, "a tree without an end");
        let mut short = Measure { left: 2, ..Measure::new(&wanted) };
        assert_eq!(short.add(&root, &path("a")), None);
        wanted.store(true, Ordering::Relaxed);
        assert_eq!(Measure::new(&wanted).add(&root, &path("a")), None);
    }
}
