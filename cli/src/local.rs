//! Writing on this machine beneath a directory that the person chose, and nowhere else: by descriptors, a name at a time, following no link. What
//! a listing says is hostile until it is a [`Name`]. A file gets its name when it is whole, and until then lies beside it as `.NAME.eirene-part`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use data_encoding::HEXLOWER;
use eirene_core::OperationId;
use eirene_core::file_work::OnConflict;
use jiff::Timestamp;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, flock, fstat,
    futimens, linkat, mkdirat, open, openat, renameat, renameat_with, statat, syncfs, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::output;

/// Most bytes of a name, here and there.
const MOST_BYTES: usize = 255;
/// Names tried for a copy beside what is there.
const MOST_COPIES: u32 = 100;
/// How often a part is opened that another `eirene` gives its name at the same time.
const TRIES: u32 = 8;
/// Bytes of a part that are written at once.
const WRITTEN_AT_ONCE: usize = 256 * 1024;
/// What the names of probes end with.
const PROBE: &[u8] = b".eirene-probe";

/// A name of one thing in one directory, and of nothing elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(Vec<u8>);

/// A name that leads elsewhere, or is none.
#[derive(Debug, thiserror::Error)]
#[error("it has a name that is none here")]
pub(crate) struct NoName;

/// There is something of this name already.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is there already")]
pub(crate) struct Exists(pub(crate) String);

impl Name {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NoName> {
        let elsewhere = bytes.contains(&b'/') || bytes.contains(&0) || matches!(bytes, b"" | b"." | b"..");
        if elsewhere || bytes.len() > MOST_BYTES { Err(NoName) } else { Ok(Self(bytes.to_vec())) }
    }

    /// What is called so while it is not whole. Long names are told apart by their sum.
    fn part(&self) -> Vec<u8> {
        let part = [b".", &self.0[..], b".eirene-part"].concat();
        if part.len() <= MOST_BYTES {
            return part;
        }
        format!(".{}.eirene-part", HEXLOWER.encode(&Sha256::digest(&self.0))).into_bytes()
    }

    /// `name (2).ext`, cut where it would be too long.
    fn numbered(&self, number: u32) -> Self {
        let dot = self.0.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0).unwrap_or(self.0.len());
        let (stem, end) = self.0.split_at(dot);
        let number = format!(" ({number})");
        let end = if end.len() + number.len() < MOST_BYTES { end } else { b"" };
        let room = MOST_BYTES - number.len() - end.len();
        let mut cut = stem.len().min(room);
        // Not in the middle of a character.
        while cut > 1 && cut < stem.len() && stem[cut] & 0xc0 == 0x80 {
            cut -= 1;
        }
        Self([&stem[..cut], number.as_bytes(), end].concat())
    }
}

/// What lies under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) is_file: bool,
    pub(crate) bytes: u64,
    pub(crate) modified_s: i64,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// The directory that the person chose; they may have said it by a link.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let said = || format!("cannot write to `{}`", output::name(path.as_os_str().as_bytes()));
        let path = path.canonicalize().with_context(said)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let descriptor = open(path.as_path(), flags, Mode::empty()).map_err(io::Error::from).with_context(said)?;
        Ok(Self { descriptor, path })
    }

    /// The directory of this name in it, made where there is none. A link is not followed, wherever it leads.
    pub(crate) fn enter(&self, name: &Name) -> anyhow::Result<Self> {
        let said = || format!("`{}` is no directory that may be written to", self.shown(name));
        match mkdirat(&self.descriptor, &name.0[..], Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io::Error::from(error)).with_context(said),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let opened = openat(&self.descriptor, &name.0[..], flags, Mode::empty());
        let descriptor = opened.map_err(io::Error::from).with_context(said)?;
        Ok(Self { descriptor, path: self.path_of(name) })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From each directory that it is in down to it, beginning with itself: from there it is at nothing.
    pub(crate) fn ways(&self) -> impl Iterator<Item = &[u8]> {
        let below = move |above: &Path| self.path.strip_prefix(above).ok();
        self.path.ancestors().filter_map(below).map(|way| way.as_os_str().as_bytes())
    }

    /// Whose it is, and when something in it was made, renamed or removed.
    pub(crate) fn owner_and_time(&self) -> anyhow::Result<(u32, Timestamp)> {
        let found = fstat(&self.descriptor).map_err(io::Error::from)?;
        Ok((found.st_uid, Timestamp::new(found.st_mtime, i32::try_from(found.st_mtime_nsec)?)?))
    }

    /// Where something of this name lies.
    pub(crate) fn path_of(&self, name: &Name) -> PathBuf {
        self.path.join(OsStr::from_bytes(&name.0))
    }

    /// The same, of what lies deeper.
    pub(crate) fn path_of_way(&self, way: &[Name]) -> PathBuf {
        way.iter().fold(self.path.clone(), |path, name| path.join(OsStr::from_bytes(&name.0)))
    }

    fn shown(&self, name: &Name) -> String {
        output::name(self.path_of(name).as_os_str().as_bytes())
    }

    /// What lies there under this name; of a link, the link.
    pub(crate) fn look(&self, name: &Name) -> anyhow::Result<Option<Found>> {
        match statat(&self.descriptor, &name.0[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(Found {
                is_file: FileType::from_raw_mode(found.st_mode) == FileType::RegularFile,
                bytes: u64::try_from(found.st_size)?,
                modified_s: found.st_mtime,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(io::Error::from(error)).with_context(|| format!("cannot look at `{}`", self.shown(name))),
        }
    }

    /// SHA-256 of the file of this name; no link is followed.
    pub(crate) fn sum(&self, name: &Name) -> anyhow::Result<[u8; 32]> {
        let said = || format!("cannot read `{}`", self.shown(name));
        // A pipe without a writer would be waited for.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&self.descriptor, &name.0[..], flags, Mode::empty());
        sum_of(&File::from(opened.map_err(io::Error::from).with_context(said)?)).with_context(said)
    }

    /// Puts an empty file into it, under a name that nothing else has anywhere.
    pub(crate) fn probe(&self) -> anyhow::Result<Probe<'_>> {
        let said = || format!("cannot write to `{}`", output::name(self.path.as_os_str().as_bytes()));
        let name = [b".", OperationId::generate().to_string().as_bytes(), PROBE].concat();
        let before = self.owner_and_time().ok();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.descriptor, &name[..], flags, Mode::from_raw_mode(0o600));
        // Closed at once: one that is open leaves a file behind on NFS when it is removed.
        drop(opened.map_err(io::Error::from).with_context(said)?);
        let times = before.zip(self.owner_and_time().ok()).map(|((_, before), (_, then))| (before, then));
        Ok(Probe { directory: self, name, times })
    }

    /// Has all that was written to its file system outlive a power cut.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.descriptor)?)
    }

    /// The part of a file that shall have this name: what is there of it, or an empty one. It is this program's alone until it is dropped.
    pub(crate) fn part(&self, name: &Name, executable: bool) -> anyhow::Result<Part<'_>> {
        let said = || format!("cannot write beside `{}`", self.shown(name));
        let part = name.part();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if executable { 0o777 } else { 0o666 });
        for _ in 0..TRIES {
            let opened = openat(&self.descriptor, &part[..], flags, mode);
            let file = File::from(opened.map_err(io::Error::from).with_context(said)?);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Some file systems have no locks, and then nobody is told from anybody.
                Ok(()) | Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(Errno::WOULDBLOCK) => bail!("another `eirene` copies it to `{}` now", self.shown(name)),
                Err(error) => return Err(io::Error::from(error)).with_context(said),
            }
            let found = file.metadata().with_context(said)?;
            if !found.is_file() {
                bail!("what lies beside `{}` as its part is no file", self.shown(name));
            }
            // Whoever had it before may just have given it its name.
            let now = statat(&self.descriptor, &part[..], AtFlags::SYMLINK_NOFOLLOW);
            if now.is_ok_and(|now| (now.st_dev, now.st_ino) == (found.dev(), found.ino())) {
                return Ok(Part { directory: self, name: name.clone(), hidden_name: part, file });
            }
        }
        bail!("another `eirene` copies it to `{}` now", self.shown(name))
    }
}

/// A file by which a directory is known again where it is seen by another way. It is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    directory: &'a Directory,
    name: Vec<u8>,
    /// When something in the directory was made or removed last, before this was made and then.
    times: Option<(Timestamp, Timestamp)>,
}

/// Whether this is the name of a probe, which may be another `eirene`'s, or left behind: nothing of anybody's.
pub(crate) fn is_probe(name: &[u8]) -> bool {
    let id = name.strip_prefix(b".").and_then(|name| name.strip_suffix(PROBE));
    id.and_then(|id| std::str::from_utf8(id).ok()).is_some_and(|id| id.parse::<OperationId>().is_ok())
}

impl Probe<'_> {
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let now = self.directory.owner_and_time().ok().map(|(_, now)| now);
        // Where it cannot be removed, an empty hidden file stays.
        let removed = unlinkat(&self.directory.descriptor, &self.name[..], AtFlags::empty());
        // A directory that was only looked at is as old as before. Where anything else came or went meanwhile, that is told by its time.
        if let Some((before, then)) = self.times
            && removed.is_ok()
            && now == Some(then)
        {
            let _ = futimens(&self.directory.descriptor, &dated(before));
        }
    }
}

/// A file that is not whole.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    directory: &'a Directory,
    name: Name,
    hidden_name: Vec<u8>,
    file: File,
}

impl Part<'_> {
    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(crate) fn cut(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> anyhow::Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| {
            let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            let path = self.directory.shown(&self.name);
            let what = if full {
                format!("there is no room for `{path}` on this machine: make some, then give the same command again")
            } else {
                format!("cannot write `{path}`")
            };
            anyhow::Error::from(error).context(what)
        })
    }

    /// SHA-256 of what lies there.
    pub(crate) fn sum(&self) -> io::Result<[u8; 32]> {
        sum_of(&self.file)
    }

    /// Gives it its name; which one it got.
    pub(crate) fn finish(self, modified: Option<Timestamp>, on_conflict: OnConflict) -> anyhow::Result<PathBuf> {
        let path = self.directory.shown(&self.name);
        if let Some(at) = modified {
            futimens(&self.file, &dated(at))
                .map_err(io::Error::from)
                .with_context(|| format!("cannot date `{path}`"))?;
        }
        let said = || format!("cannot give `{path}` its name");
        let at = &self.directory.descriptor;
        let names: Vec<Name> = match on_conflict {
            OnConflict::Replace => {
                renameat(at, &self.hidden_name[..], at, &self.name.0[..])
                    .map_err(io::Error::from)
                    .with_context(said)?;
                return Ok(self.directory.path_of(&self.name));
            }
            OnConflict::Refuse => vec![self.name.clone()],
            OnConflict::KeepBoth => {
                let others = (2..=MOST_COPIES).map(|number| self.name.numbered(number));
                std::iter::once(self.name.clone()).chain(others).collect()
            }
        };
        for name in names {
            match self.rename_new(&name) {
                Ok(()) => return Ok(self.directory.path_of(&name)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(io::Error::from(error)).with_context(said),
            }
        }
        Err(Exists(path).into())
    }

    /// Under a name that nothing has. Where the file system cannot say so, a second name does, because it is never put over another.
    fn rename_new(&self, name: &Name) -> Result<(), Errno> {
        let at = &self.directory.descriptor;
        match renameat_with(at, &self.hidden_name[..], at, &name.0[..], RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                linkat(at, &self.hidden_name[..], at, &name.0[..], AtFlags::empty())?;
                unlinkat(at, &self.hidden_name[..], AtFlags::empty())
            }
            renamed => renamed,
        }
    }

    /// Removes it: nothing goes on here.
    pub(crate) fn remove(self) -> io::Result<()> {
        Ok(unlinkat(&self.directory.descriptor, &self.hidden_name[..], AtFlags::empty())?)
    }
}

/// Bytes of a part as they come. They are written so many at a time, at places that are multiples of that: a file system takes whole pages at their
/// places in much less time than it takes parts of them.
pub(crate) struct Filling<'a> {
    part: &'a Part<'a>,
    at: u64,
    waiting: Vec<u8>,
}

impl<'a> Filling<'a> {
    /// Bytes of `part` from `at` on.
    pub(crate) fn new(part: &'a Part<'a>, at: u64) -> Self {
        Self { part, at, waiting: Vec::with_capacity(WRITTEN_AT_ONCE) }
    }

    /// Where the next byte belongs.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.waiting.len() as u64
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let over = usize::try_from(self.end() % WRITTEN_AT_ONCE as u64)?;
            let room = WRITTEN_AT_ONCE - over;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.waiting.extend_from_slice(now);
            if now.len() == room {
                self.write()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Writes what waits for more.
    pub(crate) fn write(&mut self) -> anyhow::Result<()> {
        self.part.write(&self.waiting, self.at)?;
        self.at = self.end();
        self.waiting.clear();
        Ok(())
    }
}

impl Drop for Filling<'_> {
    /// Where nobody waits for more, as after Ctrl-C, what came is there all the same.
    fn drop(&mut self) {
        // What cannot be written comes once more.
        let _ = self.write();
    }
}

/// The time of the last change, and none of when it was read.
fn dated(at: Timestamp) -> Timestamps {
    let at = Timespec { tv_sec: at.as_second(), tv_nsec: at.subsec_nanosecond().into() };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: at }
}

fn sum_of(mut file: &File) -> io::Result<[u8; 32]> {
    file.rewind()?;
    let (mut sum, mut buffer) = (Sha256::new(), vec![0; 1024 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum.finalize().into()),
            read => sum.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn name(bytes: &[u8]) -> Name {
        Name::parse(bytes).unwrap()
    }

    #[test]
    fn what_leads_elsewhere_is_no_name() {
        for bad in [&b""[..], b".", b"..", b"/etc", b"a/b", b"../a", b"a/", b"a\0b", &[b'x'; 256]] {
            assert!(Name::parse(bad).is_err(), "{bad:?}");
        }
        for good in [&b"a"[..], b"...", b"a\nb", b"\xff", "ü".as_bytes(), &[b'x'; 255]] {
            assert!(Name::parse(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn no_link_is_followed_beneath_the_directory() {
        let (home, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("secret");
        fs::write(&secret, "old").unwrap();
        symlink(outside.path(), home.path().join("d")).unwrap();
        symlink(&secret, home.path().join(".f.eirene-part")).unwrap();
        symlink(&secret, home.path().join("g")).unwrap();
        let directory = Directory::open(home.path()).unwrap();
        assert!(directory.enter(&name(b"d")).is_err());
        assert!(directory.part(&name(b"f"), false).is_err());
        // Where a link has the name, the link gives way and not what it leads to.
        let part = directory.part(&name(b"g"), false).unwrap();
        part.write(b"new", 0).unwrap();
        part.finish(None, OnConflict::Replace).unwrap();
        assert_eq!(fs::read(home.path().join("g")).unwrap(), b"new");
        assert_eq!(fs::read(&secret).unwrap(), b"old");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_part_gets_its_name_when_it_is_whole_and_over_nothing() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        for (number, expected) in [(1, "a.tar"), (2, "a (2).tar"), (3, "a (3).tar")] {
            let part = directory.part(&name(b"a.tar"), number == 2).unwrap();
            part.write(b"xyz", 0).unwrap();
            assert!(home.path().join(".a.tar.eirene-part").exists());
            let at = Timestamp::new(1_000_000_000, 5).unwrap();
            let path = part.finish(Some(at), OnConflict::KeepBoth).unwrap();
            assert_eq!(path.file_name().unwrap(), expected);
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 5));
            assert_eq!(found.permissions().mode() & 0o100 != 0, number == 2);
        }
        let part = directory.part(&name(b"a.tar"), false).unwrap();
        assert!(part.finish(None, OnConflict::Refuse).unwrap_err().is::<Exists>());
        let again = directory.part(&name(b"a.tar"), false).unwrap();
        assert!(directory.part(&name(b"a.tar"), false).is_err(), "it is one program's alone");
        again.remove().unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3);
    }

    #[test]
    fn bytes_of_a_part_are_written_many_at_a_time_and_the_rest_when_that_is_said_or_no_more_come() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let part = directory.part(&name(b"a"), false).unwrap();
        let bytes: Vec<u8> = (0..3 * WRITTEN_AT_ONCE + 4).map(|at| (at % 251) as u8).collect();
        part.write(&bytes[..7], 0).unwrap();
        let mut filling = Filling::new(&part, 7);
        for some in bytes[7..bytes.len() - 9].chunks(99_991) {
            filling.add(some).unwrap();
            let whole = filling.end() / WRITTEN_AT_ONCE as u64 * WRITTEN_AT_ONCE as u64;
            assert_eq!(part.len().unwrap(), whole.max(7));
        }
        filling.write().unwrap();
        assert_eq!((filling.end(), part.len().unwrap()), (bytes.len() as u64 - 9, bytes.len() as u64 - 9));
        filling.add(&bytes[bytes.len() - 9..]).unwrap();
        assert_eq!(part.len().unwrap(), bytes.len() as u64 - 4);
        drop(filling);
        let path = part.finish(None, OnConflict::Refuse).unwrap();
        assert!(fs::read(path).unwrap() == bytes);
    }

    #[test]
    fn a_directory_that_is_probed_keeps_its_time_unless_it_was_changed_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        let date = |at: &str| {
            let at: Timestamp = at.parse().unwrap();
            fs::File::open(home.path()).unwrap().set_modified(at.into()).unwrap();
            at
        };
        let time = || directory.owner_and_time().unwrap().1;
        let before = date("2001-02-03T04:05:06.000000007Z");
        let probe = directory.probe().unwrap();
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.len() == 1 && is_probe(names[0].as_bytes()), "{names:?}");
        assert_ne!(time(), before);
        drop(probe);
        assert_eq!((time(), fs::read_dir(home.path()).unwrap().count()), (before, 0));
        let probe = directory.probe().unwrap();
        date("2002-02-03T04:05:06Z");
        drop(probe);
        assert_ne!(time(), before);
    }

    #[test]
    fn nothing_else_is_taken_for_a_probe() {
        let id = OperationId::generate();
        assert!(is_probe(format!(".{id}.eirene-probe").as_bytes()));
        for other in [".x.eirene-probe".to_owned(), format!("{id}.eirene-probe"), format!(".{id}.eirene-part")] {
            assert!(!is_probe(other.as_bytes()), "{other}");
        }
        assert!(!is_probe(b".\xff.eirene-probe"));
    }

    #[test]
    fn names_at_their_limit_stay_names() {
        let long = name(&[b'x'; 255]);
        assert!(long.part().len() <= MOST_BYTES);
        assert_ne!(long.part(), name(&[b'y'; 255]).part());
        for bytes in [&[b'x'; 255][..], "ü".repeat(127).as_bytes(), &[&b"x."[..], &[b'e'; 253]].concat(), b".rc", b"a"]
        {
            let numbered = name(bytes).numbered(100);
            assert!(Name::parse(&numbered.0).is_ok(), "{numbered:?}");
            assert!(std::str::from_utf8(&numbered.0).is_ok(), "{numbered:?}");
        }
        assert_eq!(name(b".rc").numbered(2).0, b".rc (2)");
    }
}
