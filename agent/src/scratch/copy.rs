//! Copying a file or a tree between a space and a scratch so that it can be broken off anywhere and done again.
//!
//! A file is written under a hidden name beside its place, synced, given its source's time and only then renamed: what has the right name is
//! whole. What is there with the source's size and time counts as copied; so a second time does only what the first one did not. Links are copied
//! as links, never followed; pipes, sockets and devices are left out and counted.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use eirene_core::scratch::StagePath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::beneath::{Root, kind, make_directory, names, step};
use super::standing::Meter;

/// How the names of unfinished files begin; what has such a name is nobody's content.
pub(super) const UNFINISHED: &[u8] = b".eirene-stage-";
/// Bytes between two looks whether to go on.
const PIECE: u64 = 64 << 20;
/// How often a file is copied anew that changes meanwhile.
const TRIES: u32 = 3;
/// Most directories within each other: each holds descriptors open.
pub(super) const DEEPEST: usize = 200;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// Files and links that are in their place now.
    pub(super) files: u64,
    /// Bytes that were copied for that.
    pub(super) bytes: u64,
    /// What is neither file nor link nor directory.
    pub(super) left_out: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.files == 1 { "" } else { "s" };
        write!(f, "{} file{s}, {} MiB", self.files, self.bytes >> 20)?;
        if self.left_out > 0 {
            write!(f, ", without {} pipes, sockets or devices", self.left_out)?;
        }
        Ok(())
    }
}

/// Why a copy was not finished.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// The source is not there.
    #[error("it is not there")]
    NoSource,
    /// Whoever asked does not want it any more.
    #[error("it was broken off")]
    BrokenOff,
    /// A path leads out of its space, or onto another file system.
    #[error("`{0}` leads out of the space")]
    LeadsOut(String),
    /// No room, by file system or quota.
    #[error("there is no room left for `{0}`")]
    NoRoom(String),
    /// Nothing can be written there.
    #[error("the file system there is mounted read-only")]
    ReadOnly,
    /// A directory is in the place of a file, or the other way round.
    #[error("`{0}` is there already, and of another kind")]
    OtherKind(String),
    /// The space itself is not where it was, or was no space of this person's when the job began.
    #[error("the space `{0}` is not there")]
    NoSpace(String),
    /// It never stood still.
    #[error("`{0}` is being written to")]
    Changing(String),
    /// Directories within directories without end.
    #[error("`{0}` lies too deep")]
    TooDeep(String),
    /// Something that has no content to copy.
    #[error("it is neither a file nor a directory")]
    NotCopied,
    /// Whatever else the kernel said.
    #[error("`{0}`: {1}")]
    Other(String, #[source] io::Error),
}

/// The name for sentences: whatever bytes it has.
fn shown(name: &CStr) -> String {
    String::from_utf8_lossy(name.to_bytes()).escape_debug().take(200).collect()
}

fn because(name: &CStr) -> impl Fn(io::Error) -> CopyError {
    let name = shown(name);
    move |error| match Errno::from_io_error(&error) {
        Some(Errno::NOSPC | Errno::DQUOT) => CopyError::NoRoom(name.clone()),
        Some(Errno::ROFS) => CopyError::ReadOnly,
        Some(Errno::XDEV | Errno::LOOP) => CopyError::LeadsOut(name.clone()),
        Some(Errno::NOTDIR | Errno::ISDIR | Errno::EXIST) => CopyError::OtherKind(name.clone()),
        _ => CopyError::Other(name.clone(), error),
    }
}

fn because_errno(name: &CStr) -> impl Fn(Errno) -> CopyError {
    let why = because(name);
    move |errno| why(errno.into())
}

/// One copier; knows how its unfinished files are called.
#[derive(Debug)]
pub(super) struct Copier<'a> {
    unfinished: CString,
    broken_off: &'a AtomicBool,
    meter: &'a Meter,
    counts: Counts,
}

impl<'a> Copier<'a> {
    /// `name` tells this session and node from others that may write into the same directory. It copies until `broken_off` is set, and counts
    /// what is there on `meter`.
    pub(super) fn new(name: &str, broken_off: &'a AtomicBool, meter: &'a Meter) -> io::Result<Self> {
        let unfinished = CString::new([UNFINISHED, name.as_bytes()].concat())?;
        Ok(Self { unfinished, broken_off, meter, counts: Counts::default() })
    }

    /// Copies a file, or what is in a directory, from beneath one place to beneath another, under `into` there if that is given.
    pub(super) fn copy(
        mut self,
        from: (&Root, &StagePath),
        to: (&Root, &StagePath),
        into: Option<&str>,
    ) -> Result<Counts, CopyError> {
        let source_name = CString::new(from.1.as_str()).unwrap_or_default();
        let source = from.0.find(from.1.as_str()).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CopyError::NoSource,
            _ => because(&source_name)(error),
        })?;
        let mut components: Vec<&str> = to.1.components().chain(into).collect();
        let target_name = CString::new(components.join("/")).unwrap_or_default();
        let target_error = because(&target_name);
        match kind(source.as_fd()).map_err(because(&source_name))? {
            FileType::Directory => {
                let target = to.0.make(components.into_iter()).map_err(target_error)?;
                self.directory(source.as_fd(), target.as_fd(), 0)?;
            }
            FileType::RegularFile => {
                let name = components.pop().ok_or_else(|| CopyError::OtherKind(".".to_owned()))?;
                let name = CString::new(name).unwrap_or_default();
                let target = to.0.make(components.into_iter()).map_err(target_error)?;
                self.tidy(target.as_fd())?;
                self.file(source, target.as_fd(), &name)?;
                sync(target.as_fd(), &target_name)?;
            }
            _ => return Err(CopyError::NotCopied),
        }
        Ok(self.counts)
    }

    fn directory(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, depth: usize) -> Result<(), CopyError> {
        self.tidy(to)?;
        for name in names(from).map_err(because(c"."))? {
            if self.broken_off.load(Ordering::Relaxed) {
                return Err(CopyError::BrokenOff);
            }
            // What another copy has not finished is not content.
            if name.to_bytes().starts_with(UNFINISHED) {
                continue;
            }
            let status = rustix::fs::statat(from, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(because_errno(&name))?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory if depth >= DEEPEST => return Err(CopyError::TooDeep(shown(&name))),
                FileType::Directory => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    let source = step(from, &name, flags).map_err(because(&name))?;
                    make_directory(to, &name, status.st_mode & 0o777 | 0o700).map_err(because(&name))?;
                    let target = step(to, &name, flags).map_err(because(&name))?;
                    self.directory(source.as_fd(), target.as_fd(), depth + 1)?;
                }
                FileType::RegularFile => {
                    let source = step(from, &name, OFlags::RDONLY | OFlags::NONBLOCK).map_err(because(&name))?;
                    self.file(source, to, &name)?;
                }
                FileType::Symlink => self.link(from, to, &name).map_err(because(&name))?,
                _ => self.counts.left_out += 1,
            }
        }
        sync(to, c".")
    }

    /// Removes what an earlier try of this copier has left in a directory.
    fn tidy(&self, directory: BorrowedFd<'_>) -> Result<(), CopyError> {
        match rustix::fs::unlinkat(directory, &self.unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(because_errno(&self.unfinished)(error)),
        }
    }

    fn file(&mut self, source: OwnedFd, to: BorrowedFd<'_>, name: &CStr) -> Result<(), CopyError> {
        let mut source = File::from(source);
        for _ in 0..TRIES {
            let before = rustix::fs::fstat(&source).map_err(because_errno(name))?;
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                return Err(CopyError::Changing(shown(name)));
            }
            if is_there(to, name, &before).map_err(because(name))? {
                self.counts.files += 1;
                self.meter.add(u64::try_from(before.st_size).unwrap_or(0), 1);
                return Ok(());
            }
            match self.attempt(&mut source, &before, to, name) {
                Ok(true) => {
                    self.counts.files += 1;
                    self.meter.add(0, 1);
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) => {
                    // A full disk must not stay full of what is of no use.
                    self.tidy(to)?;
                    return Err(error);
                }
            }
            io::Seek::rewind(&mut source).map_err(because(name))?;
        }
        self.tidy(to)?;
        Err(CopyError::Changing(shown(name)))
    }

    /// Whether the file is in its place; false: it changed meanwhile.
    fn attempt(
        &mut self,
        source: &mut File,
        before: &Stat,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<bool, CopyError> {
        self.tidy(to)?;
        let mode = Mode::from_raw_mode(before.st_mode & 0o777);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, &self.unfinished, flags, mode).map_err(because_errno(name))?;
        let mut target = File::from(target);
        loop {
            if self.broken_off.load(Ordering::Relaxed) {
                return Err(CopyError::BrokenOff);
            }
            let copied = io::copy(&mut source.by_ref().take(PIECE), &mut target).map_err(because(name))?;
            self.counts.bytes += copied;
            self.meter.add(copied, 0);
            if copied == 0 {
                break;
            }
        }
        let after = rustix::fs::fstat(&*source).map_err(because_errno(name))?;
        let written = rustix::fs::fstat(&target).map_err(because_errno(name))?;
        if written.st_size != before.st_size || (after.st_size, time(&after)) != (before.st_size, time(before)) {
            return Ok(false);
        }
        let (tv_sec, tv_nsec) = time(before);
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&target, &times).map_err(because_errno(name))?;
        target.sync_all().map_err(because(name))?;
        rustix::fs::renameat(to, &self.unfinished, to, name).map_err(because_errno(name))?;
        Ok(true)
    }

    fn link(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let text = rustix::fs::readlinkat(from, name, Vec::new())?;
        self.counts.files += 1;
        self.meter.add(0, 1);
        if rustix::fs::readlinkat(to, name, Vec::new()).is_ok_and(|there| there == text) {
            return Ok(());
        }
        rustix::fs::symlinkat(&text, to, &self.unfinished)?;
        if let Err(error) = rustix::fs::renameat(to, &self.unfinished, to, name) {
            rustix::fs::unlinkat(to, &self.unfinished, AtFlags::empty())?;
            return Err(error.into());
        }
        Ok(())
    }
}

/// Whether a whole copy is in its place: nothing else has both its size and its time, to the second where the file system keeps no more.
fn is_there(directory: BorrowedFd<'_>, name: &CStr, source: &Stat) -> io::Result<bool> {
    let there = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        other => other?,
    };
    if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR.into());
    }
    let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
    let ((seconds, rest), (wanted_seconds, wanted_rest)) = (time(&there), time(source));
    Ok(is_file && there.st_size == source.st_size && seconds == wanted_seconds && (rest == wanted_rest || rest == 0))
}

/// When the content was last changed, seconds and nanoseconds.
fn time(status: &Stat) -> (i64, i64) {
    (status.st_mtime, i64::try_from(status.st_mtime_nsec).unwrap_or(0))
}

fn sync(directory: BorrowedFd<'_>, name: &CStr) -> Result<(), CopyError> {
    match rustix::fs::fsync(directory) {
        // Some file systems have nothing to sync in a directory.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(because_errno(name)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;

    fn copy(from: &Path, to: &Path) -> Result<Counts, CopyError> {
        let (root, broken_off) = (StagePath::try_from(String::new()).unwrap(), AtomicBool::new(false));
        let (from, to) = (Root::open(from).unwrap(), Root::open(to).unwrap());
        Copier::new("s", &broken_off, &Meter::default()).unwrap().copy((&from, &root), (&to, &root), None)
    }

    #[test]
    fn a_second_time_copies_only_what_has_changed() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| from.path().join(name);
        std::fs::create_dir(at("bin")).unwrap();
        std::fs::write(at("bin/tool"), "#!").unwrap();
        std::fs::set_permissions(at("bin/tool"), std::fs::Permissions::from_mode(0o750)).unwrap();
        std::fs::write(at("a\nb<i>"), "odd").unwrap();
        std::fs::set_permissions(at("bin"), std::fs::Permissions::from_mode(0o555)).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let first = copy(from.path(), to.path()).unwrap();
        assert_eq!(first, Counts { files: 2, bytes: 5, left_out: 1 });
        let (was, is) =
            (std::fs::metadata(at("bin/tool")).unwrap(), std::fs::metadata(to.path().join("bin/tool")).unwrap());
        assert_eq!((is.mode() & 0o111, is.mtime(), is.mtime_nsec()), (0o110, was.mtime(), was.mtime_nsec()));
        assert!(!to.path().join("pipe").exists());
        assert_eq!(copy(from.path(), to.path()).unwrap(), Counts { files: 2, bytes: 0, left_out: 1 });
        std::fs::write(at("a\nb<i>"), "new").unwrap();
        assert_eq!(copy(from.path(), to.path()).unwrap().bytes, 3, "of the same length");
    }

    #[test]
    fn what_was_not_finished_is_no_content_and_is_tidied_away() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(from.path().join("a"), "a").unwrap();
        std::fs::write(from.path().join(".eirene-stage-other"), "half").unwrap();
        std::fs::write(to.path().join(".eirene-stage-s"), "half").unwrap();
        std::fs::write(to.path().join(".eirene-stage-other"), "another session's").unwrap();
        assert_eq!(copy(from.path(), to.path()).unwrap().files, 1);
        let mut left: Vec<_> = std::fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".eirene-stage-other", "a"]);
    }

    #[test]
    fn kinds_do_not_replace_each_other_and_links_of_the_target_are_not_written_through() {
        let (from, to, outside) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("kept"), "kept").unwrap();
        std::fs::write(from.path().join("file"), "new").unwrap();
        std::os::unix::fs::symlink(outside.path().join("kept"), to.path().join("file")).unwrap();
        copy(from.path(), to.path()).unwrap();
        assert_eq!(std::fs::read_to_string(outside.path().join("kept")).unwrap(), "kept");
        assert_eq!(std::fs::read_to_string(to.path().join("file")).unwrap(), "new");
        std::fs::create_dir(from.path().join("tree")).unwrap();
        std::fs::write(from.path().join("tree/x"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), to.path().join("tree")).unwrap();
        assert!(matches!(copy(from.path(), to.path()), Err(CopyError::OtherKind(name)) if name == "tree"));
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        std::fs::remove_file(to.path().join("tree")).unwrap();
        std::fs::remove_file(to.path().join("file")).unwrap();
        std::fs::create_dir(to.path().join("file")).unwrap();
        assert!(matches!(copy(from.path(), to.path()), Err(CopyError::OtherKind(name)) if name == "file"));
    }

    #[test]
    fn what_the_kernel_says_becomes_a_sentence() {
        let said = |errno| because_errno(c"x\n<b>")(errno).to_string();
        assert_eq!(said(Errno::NOSPC), r"there is no room left for `x\n<b>`");
        assert_eq!(said(Errno::DQUOT), said(Errno::NOSPC));
        assert!(said(Errno::ROFS).contains("read-only"));
        assert!(said(Errno::XDEV).contains("leads out") && said(Errno::ISDIR).contains("another kind"));
        assert!(said(Errno::IO).starts_with(r"`x\n<b>`: "));
    }

    #[test]
    fn a_tree_without_an_end_is_refused() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = "d/".repeat(DEEPEST + 1);
        std::fs::create_dir_all(from.path().join(deep)).unwrap();
        assert!(matches!(copy(from.path(), to.path()), Err(CopyError::TooDeep(_))));
    }
}
