//! `eirene-files purge`: empties the directory it is started in, for a while. The launcher starts it in a space that was taken away and whose time
//! is over, as an account of its own that may remove what is anybody's and may nothing else.
//!
//! No file is opened. Names are removed by descriptor, no link is followed, and what is another file system ends the work. Landlock holds this
//! process to the directory, also where somebody who still has it open carries a part of it elsewhere; a kernel without Landlock removes nothing.
//! The way back up is `..`, believed only where it is the directory that was come from, so that depth costs no descriptors.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// How long one purge works.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes of names that are looked at together.
const BUFFER: usize = 32 * 1024;
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How far a purge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    /// The directory is empty.
    All,
    /// Its time was over.
    Some,
}

/// A directory on the way, and how it is called in the one above.
struct Level {
    name: CString,
    device: u64,
    inode: u64,
}

/// Empties the current directory, confined to it.
///
/// # Errors
/// The first thing that does not let itself be removed, without its name; and where the kernel has no Landlock.
pub fn run() -> io::Result<Purged> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let directory = rustix::fs::open(c".", DIRECTORY, Mode::empty())?;
    confine(&directory).map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    Ok(empty(directory, Instant::now() + LONGEST)?)
}

/// Takes everything from this process but to list and remove beneath the directory.
fn confine(directory: &OwnedFd) -> Result<(), landlock::RulesetError> {
    let rights = AccessFs::ReadDir | AccessFs::RemoveDir | AccessFs::RemoveFile;
    Ruleset::default()
        // The first version knows all that matters here, and without it nothing is done.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessNet::from_all(ABI::V4))?
        .create()?
        .add_rule(PathBeneath::new(directory, rights))?
        .restrict_self()?;
    Ok(())
}

fn empty(mut here: OwnedFd, until: Instant) -> Result<Purged, Errno> {
    let top = rustix::fs::fstat(&here)?;
    let mut above: Vec<Level> = Vec::new();
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        if Instant::now() >= until {
            return Ok(Purged::Some);
        }
        // From the beginning each time: what was listed before is gone.
        rustix::fs::seek(&here, rustix::fs::SeekFrom::Start(0))?;
        let names = some_names(&here, &mut buffer)?;
        if names.is_empty() {
            let Some(level) = above.pop() else { return Ok(Purged::All) };
            let up = rustix::fs::openat(&here, c"..", DIRECTORY, Mode::empty())?;
            if !is(&rustix::fs::fstat(&up)?, above.last().map_or((top.st_dev, top.st_ino), |up| (up.device, up.inode)))
            {
                return Err(Errno::STALE);
            }
            gone(rustix::fs::unlinkat(&up, &level.name, AtFlags::REMOVEDIR))?;
            here = up;
            continue;
        }
        for name in names {
            if let Some(level) = remove(&here, name, &top)? {
                here = level.0;
                above.push(level.1);
                break;
            }
        }
    }
}

/// Removes a name; a directory that is not empty is opened instead.
fn remove(here: &OwnedFd, name: CString, top: &Stat) -> Result<Option<(OwnedFd, Level)>, Errno> {
    match rustix::fs::unlinkat(here, &name, AtFlags::empty()) {
        // Which of the two a directory gives is the file system's choice.
        Err(refused @ (Errno::ISDIR | Errno::PERM)) => {
            match rustix::fs::unlinkat(here, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(None),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(Errno::NOTDIR) => return Err(refused),
                Err(error) => return Err(error),
            }
            let directory = rustix::fs::openat(here, &name, DIRECTORY, Mode::empty())?;
            let found = rustix::fs::fstat(&directory)?;
            if found.st_dev != top.st_dev {
                return Err(Errno::XDEV);
            }
            Ok(Some((directory, Level { name, device: found.st_dev, inode: found.st_ino })))
        }
        other => gone(other).map(|()| None),
    }
}

fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is(found: &Stat, (device, inode): (u64, u64)) -> bool {
    (found.st_dev, found.st_ino) == (device, inode)
}

/// The first names of a directory; none where it is empty.
fn some_names(directory: &OwnedFd, buffer: &mut Vec<u8>) -> Result<Vec<CString>, Errno> {
    buffer.clear();
    let mut names = Vec::new();
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if entries.is_buffer_empty() && !names.is_empty() {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn purge(path: &Path, longest: Duration) -> Result<Purged, Errno> {
        let directory = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        empty(directory, Instant::now() + longest)
    }

    #[test]
    fn all_that_is_in_a_directory_goes_and_nothing_that_a_link_leads_to() {
        let base = tempfile::tempdir().unwrap();
        let (space, outside) = (base.path().join("space"), base.path().join("outside"));
        fs::create_dir(&space).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, space.join("link")).unwrap();
        fs::hard_link(outside.join("kept"), space.join("hard")).unwrap();
        fs::create_dir_all(space.join("a/b/c")).unwrap();
        for at in 0..3000 {
            fs::write(space.join(format!("a/b/{at}")), "").unwrap();
        }
        symlink("..", space.join("a/b/c/up")).unwrap();
        assert_eq!(purge(&space, LONGEST).unwrap(), Purged::All);
        assert_eq!(fs::read_dir(&space).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        // Without Landlock: what this wall keeps is not put down to the other.
        #[test]
        fn no_tree_leads_out_of_its_directory(made in proptest::collection::vec((any::<proptest::sample::Index>(), 0..8_u8), 0..60)) {
            let base = tempfile::tempdir().unwrap();
            let (space, outside) = (base.path().join("space"), base.path().join("outside"));
            fs::create_dir(&space).unwrap();
            fs::create_dir_all(outside.join("deep")).unwrap();
            for kept in ["kept", "deep/kept"] {
                fs::write(outside.join(kept), kept).unwrap();
            }
            let mut directories = vec![space.clone()];
            for (number, (place, kind)) in made.iter().enumerate() {
                let path = place.get(&directories).join(format!("n{number}"));
                match *kind {
                    0..=2 => {
                        fs::create_dir(&path).unwrap();
                        directories.push(path);
                    }
                    3 => fs::write(&path, "x").unwrap(),
                    4 => fs::hard_link(outside.join("kept"), &path).unwrap(),
                    5 => symlink(&outside, &path).unwrap(),
                    6 => symlink("../../outside/deep", &path).unwrap(),
                    _ => symlink(place.get(&directories), &path).unwrap(),
                }
            }
            prop_assert_eq!(purge(&space, LONGEST), Ok(Purged::All));
            prop_assert_eq!(fs::read_dir(&space).unwrap().count(), 0);
            for (directory, names) in [("", 2), ("deep", 1)] {
                prop_assert_eq!(fs::read_dir(outside.join(directory)).unwrap().count(), names);
            }
            for kept in ["kept", "deep/kept"] {
                prop_assert_eq!(fs::read_to_string(outside.join(kept)).unwrap(), kept);
            }
        }
    }

    #[test]
    fn a_tree_that_is_deeper_than_any_path_goes_too() {
        let base = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::open(base.path(), DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, c"d", DIRECTORY, Mode::empty()).unwrap();
        }
        assert_eq!(purge(base.path(), Duration::from_mins(1)).unwrap(), Purged::All);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_purge_without_time_removes_nothing_and_says_so() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("x"), "").unwrap();
        assert_eq!(purge(base.path(), Duration::ZERO).unwrap(), Purged::Some);
        assert!(base.path().join("x").exists());
    }

    #[test]
    fn what_is_carried_out_of_the_directory_is_out_of_reach() {
        let base = tempfile::tempdir().unwrap();
        let (space, outside) = (base.path().join("space"), base.path().join("outside"));
        fs::create_dir_all(space.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(space.join("a/x"), "").unwrap();
        // A thread of its own: what it loses it does not get back.
        let tried = std::thread::spawn(move || {
            let top = rustix::fs::open(&space, DIRECTORY, Mode::empty()).unwrap();
            let held = rustix::fs::openat(&top, c"a", DIRECTORY, Mode::empty()).unwrap();
            fs::rename(space.join("a"), outside.join("a")).unwrap();
            confine(&top).unwrap();
            (rustix::fs::unlinkat(&held, c"x", AtFlags::empty()), outside.join("a/x"))
        });
        let (removed, file) = tried.join().unwrap();
        assert_eq!(removed, Err(Errno::ACCESS));
        assert!(file.exists());
    }
}
