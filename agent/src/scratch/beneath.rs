//! Opening and removing by descriptor, always beneath a directory: what a link or a name with `..` leads to elsewhere is not found.
//!
//! All of it is done as the person, so the kernel already keeps others' files safe. This keeps a copy within what it was asked for, whatever a
//! program put there, and whatever is renamed meanwhile (openat2(2)).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often an open is tried that the kernel could not decide because something was renamed meanwhile.
const TRIES: u32 = 32;
/// How a directory is made before the umask and the default ACL of where it is made have their say.
const DIRECTORY_MODE: u32 = 0o777;

/// A directory beneath which everything stays.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

impl Root {
    /// Opens it. Links on the way to it are the administrator's, or those of the person's home.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens what a path leads to, through links as far as they stay beneath. A pipe does not make it wait.
    pub(super) fn find(&self, path: &str) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        open(self.0.as_fd(), &CString::new(path)?, OFlags::RDONLY | OFlags::NONBLOCK, resolve)
    }

    /// Opens a directory, and makes what is missing on the way to it.
    pub(super) fn make<'a>(&self, components: impl Iterator<Item = &'a str>) -> io::Result<OwnedFd> {
        let (mut path, mut here) = (String::new(), self.find("")?);
        for name in components {
            path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            here = match self.find(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_directory(here.as_fd(), &CString::new(name)?, DIRECTORY_MODE)?;
                    self.find(&path)?
                }
                found => found?,
            };
        }
        if kind(here.as_fd())? == FileType::Directory { Ok(here) } else { Err(Errno::NOTDIR.into()) }
    }
}

/// Opens an entry of a directory, which must be no link and no other file system.
pub(super) fn step(directory: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    open(directory, name, flags | OFlags::NOFOLLOW, resolve)
}

fn open(directory: BorrowedFd<'_>, path: &CStr, flags: OFlags, resolve: ResolveFlags) -> io::Result<OwnedFd> {
    for _ in 0..TRIES {
        match rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Makes a directory, if it is not there.
pub(super) fn make_directory(parent: BorrowedFd<'_>, name: &CStr, mode: u32) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What a descriptor is of.
pub(super) fn kind(descriptor: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode))
}

/// The names in a directory, in order: what is done twice is done in the same way.
pub(super) fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut all = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            all.push(entry.file_name().to_owned());
        }
    }
    all.sort();
    Ok(all)
}

/// A directory on the way down, and what in it is still to be removed.
struct Level {
    name: CString,
    device: u64,
    inode: u64,
    left: Vec<CString>,
}

/// Removes an entry of a directory with all that is below it, also where a program took away its own right to do so. What is not there is removed.
///
/// The way back up is `..`, believed only where it is the directory that was come from, so that depth costs no descriptors: how deep a tree is a
/// program decides.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let Some((mut here, first)) = unlink(parent, name)? else { return Ok(()) };
    let mut way = vec![first];
    while let Some(level) = way.last_mut() {
        if let Some(entry) = level.left.pop() {
            if let Some((deeper, below)) = unlink(here.as_fd(), &entry)? {
                here = deeper;
                way.push(below);
            }
            continue;
        }
        let Some(emptied) = way.pop() else { break };
        let Some(above) = way.last() else { return Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let up = rustix::fs::openat(&here, c"..", flags, Mode::empty())?;
        let found = rustix::fs::fstat(&up)?;
        if (found.st_dev, found.st_ino) != (above.device, above.inode) {
            return Err(Errno::STALE.into());
        }
        rustix::fs::unlinkat(&up, &emptied.name, AtFlags::REMOVEDIR)?;
        here = up;
    }
    Ok(())
}

/// Removes an entry of a directory. One that is a directory itself is opened instead, and unlocked.
fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<(OwnedFd, Level)>> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = match step(parent, name, flags) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // What is held, and not its name: a link may have come into its place, and what that leads to keeps its mode.
            let locked = step(parent, name, OFlags::PATH | OFlags::DIRECTORY)?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", locked.as_raw_fd()), Mode::RWXU)?;
            step(locked.as_fd(), c".", flags)?
        }
        opened => opened?,
    };
    let found = rustix::fs::fstat(&directory)?;
    if found.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&directory, Mode::RWXU)?;
    }
    let left = names(directory.as_fd())?;
    Ok(Some((directory, Level { name: name.to_owned(), device: found.st_dev, inode: found.st_ino, left })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::sys::resource::{Resource, getrlimit};
    use proptest::prelude::*;
    use proptest::sample::Index;
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    fn code(error: &io::Error) -> Errno {
        Errno::from_io_error(error).unwrap()
    }

    #[test]
    fn nothing_is_found_or_made_outside() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let at = |name: &str| inside.path().join(name);
        symlink(outside.path(), at("out")).unwrap();
        symlink("../", at("up")).unwrap();
        symlink("/proc/self/fd", at("magic")).unwrap();
        std::fs::create_dir(at("real")).unwrap();
        symlink("real", at("link")).unwrap();
        let root = Root::open(inside.path()).unwrap();
        for bad in ["out/secret", "out", "up", "magic/0"] {
            let error = root.find(bad).unwrap_err();
            assert_eq!(code(&error), Errno::XDEV, "{bad}");
        }
        assert_eq!(code(&root.make(["out", "new"].into_iter()).unwrap_err()), Errno::XDEV);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        // A link that stays inside is followed.
        root.make(["link", "deep", "er"].into_iter()).unwrap();
        assert!(at("real/deep/er").is_dir());
        std::fs::write(at("file"), "").unwrap();
        assert!(root.make(["file"].into_iter()).is_err() && root.make(["file", "x"].into_iter()).is_err());
        let real = root.find("").unwrap();
        assert!(step(real.as_fd(), c"link", OFlags::RDONLY).is_err(), "a step follows no link at all");
    }

    #[test]
    fn what_a_program_locked_up_is_removed_and_what_its_links_lead_to_stays() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let at = |name: &str| inside.path().join(name);
        std::fs::create_dir_all(at("tree/a/b")).unwrap();
        std::fs::write(at("tree/a/b/file"), "").unwrap();
        symlink(outside.path(), at("tree/a/link")).unwrap();
        std::fs::hard_link(outside.path().join("kept"), at("tree/hard")).unwrap();
        for (name, mode) in [("tree/a/b", 0o555), ("tree/a", 0o000)] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let parent = Root::open(inside.path()).unwrap().find("").unwrap();
        remove(parent.as_fd(), c"tree").unwrap();
        remove(parent.as_fd(), c"tree").unwrap();
        assert_eq!(std::fs::read_dir(inside.path()).unwrap().count(), 0);
        assert!(outside.path().join("kept").is_file());
    }

    /// Run again with few descriptors: that is nothing other tests should have to live with.
    #[test]
    fn a_tree_that_is_deeper_than_there_are_descriptors_is_removed() {
        const FEW: u64 = 64;
        if getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 > FEW {
            let (_, module) = module_path!().split_once("::").unwrap();
            let test = format!("{module}::a_tree_that_is_deeper_than_there_are_descriptors_is_removed");
            let mut again = std::process::Command::new("sh");
            again.arg("-c").arg(format!("ulimit -n {FEW} && exec \"$@\"")).arg("sh");
            let done = again.arg(std::env::current_exe().unwrap()).args([test.as_str(), "--exact"]).output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let world = tempfile::tempdir().unwrap();
        let parent = Root::open(world.path()).unwrap().find("").unwrap();
        let mut at = parent.try_clone().unwrap();
        for _ in 0..3000 {
            make_directory(at.as_fd(), c"d", 0o700).unwrap();
            let below = step(at.as_fd(), c"d", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
            rustix::fs::openat(&below, c"file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
            at = below;
        }
        drop(at);
        remove(parent.as_fd(), c"d").unwrap();
        assert_eq!(std::fs::read_dir(world.path()).unwrap().count(), 0);
    }

    /// What a tree is made of; each lies in a directory that was made before.
    #[derive(Debug, Clone)]
    enum Made {
        /// With this mode, in the end.
        Directory(u32),
        File,
        /// Another name of a file that lies outside.
        NameOfOutside,
        Pipe,
        LinkOut(usize),
        LinkIn(Index),
    }

    fn made() -> impl Strategy<Value = Made> {
        let mode = prop::sample::select(vec![0o700_u32, 0o755, 0o555, 0o300, 0o000]);
        prop_oneof![
            6 => mode.prop_map(Made::Directory),
            3 => Just(Made::File),
            1 => Just(Made::NameOfOutside),
            1 => Just(Made::Pipe),
            3 => (0..5_usize).prop_map(Made::LinkOut),
            2 => any::<Index>().prop_map(Made::LinkIn),
        ]
    }

    fn tree() -> impl Strategy<Value = Vec<(Index, Made)>> {
        prop::collection::vec((any::<Index>(), made()), 1..40)
    }

    /// A tree, `scratch/tree`, and what it must not lead to, `outside`.
    struct Planted {
        world: tempfile::TempDir,
        directories: Vec<PathBuf>,
    }

    impl Planted {
        fn new(made: &[(Index, Made)]) -> Self {
            let world = tempfile::tempdir().unwrap();
            let (outside, tree) = (world.path().join("outside"), world.path().join("scratch/tree"));
            std::fs::create_dir_all(outside.join("deep")).unwrap();
            std::fs::create_dir_all(&tree).unwrap();
            for name in ["kept", "deep/file"] {
                std::fs::write(outside.join(name), "kept").unwrap();
            }
            let targets = [
                outside.clone(),
                outside.join("kept"),
                PathBuf::from("../../outside"),
                PathBuf::from("../../../outside/deep"),
                Path::new("/proc/self/root").join(outside.strip_prefix("/").unwrap()),
            ];
            let (mut directories, mut modes) = (vec![tree], Vec::new());
            for (number, (place, made)) in made.iter().enumerate() {
                let path = place.get(&directories).join(format!("n{number}"));
                match made {
                    Made::Directory(mode) => {
                        std::fs::create_dir(&path).unwrap();
                        modes.push((path.clone(), *mode));
                        directories.push(path);
                    }
                    Made::File => std::fs::write(&path, "x").unwrap(),
                    Made::NameOfOutside => std::fs::hard_link(outside.join("kept"), &path).unwrap(),
                    Made::Pipe => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                    Made::LinkOut(target) => symlink(&targets[*target], &path).unwrap(),
                    Made::LinkIn(target) => symlink(target.get(&directories), &path).unwrap(),
                }
            }
            for (path, mode) in modes.iter().rev() {
                lock(path, *mode);
            }
            Self { world, directories }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.world.path().join(name)
        }

        fn opened(&self, name: &str) -> OwnedFd {
            Root::open(&self.path(name)).unwrap().find("").unwrap()
        }

        /// All that lies outside: names, modes and content.
        fn outside(&self) -> Vec<(PathBuf, u32, String)> {
            let (mut seen, mut open) = (Vec::new(), vec![self.path("outside")]);
            while let Some(path) = open.pop() {
                let metadata = std::fs::symlink_metadata(&path).unwrap();
                let mut text = String::new();
                if metadata.is_dir() {
                    open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                } else {
                    text = std::fs::read_to_string(&path).unwrap();
                }
                seen.push((path, metadata.mode(), text));
            }
            seen.sort();
            seen
        }

        fn is_gone(&self) -> bool {
            std::fs::read_dir(self.path("scratch")).unwrap().count() == 0
        }
    }

    fn lock(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn whatever_a_program_leaves_all_of_it_goes_and_nothing_outside_is_touched(made in tree()) {
            let planted = Planted::new(&made);
            let before = planted.outside();
            remove(planted.opened("scratch").as_fd(), c"tree").unwrap();
            prop_assert!(planted.is_gone());
            prop_assert_eq!(planted.outside(), before);
        }
    }

    proptest! {
        // Each of them is a race of some length.
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn nothing_outside_is_touched_while_directories_are_carried_away_for_links(made in tree()) {
            let planted = Planted::new(&made);
            let many = (0..40).map(|number| planted.path("scratch/tree").join(format!("s{number}")));
            let swapped: Vec<PathBuf> = many.chain(planted.directories.iter().skip(1).cloned()).collect();
            for (number, path) in swapped[..40].iter().enumerate() {
                std::fs::create_dir_all(path.join("deep")).unwrap();
                for file in 0..10 {
                    std::fs::write(path.join(format!("deep/{file}")), "x").unwrap();
                }
                // Every other one has to be unlocked first; none can be carried away that may not be written to.
                lock(path, if number % 2 == 0 { 0o300 } else { 0o755 });
            }
            let link = planted.path("link");
            let plant = || symlink(planted.path("outside"), &link);
            plant().unwrap();
            let before = planted.outside();
            let (scratch, world) = (planted.opened("scratch"), planted.opened(""));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for directory in &swapped {
                            // A link to the outside where the directory was, and back.
                            for _ in 0..2 {
                                let _ = renameat_with(CWD, directory, CWD, &link, RenameFlags::EXCHANGE);
                            }
                            if !link.is_symlink() {
                                // The link was removed while it was in the tree: a new one, for the next.
                                let _ = remove(world.as_fd(), c"link");
                                let _ = plant();
                            }
                        }
                    }
                });
                // It may well end at what was exchanged under its hands; whoever comes after begins anew.
                for _ in 0..10 {
                    let _ = remove(scratch.as_fd(), c"tree");
                }
                over.store(true, Ordering::Relaxed);
            });
            prop_assert_eq!(&planted.outside(), &before);
            remove(scratch.as_fd(), c"tree").unwrap();
            prop_assert!(planted.is_gone());
            prop_assert_eq!(planted.outside(), before);
        }
    }
}
