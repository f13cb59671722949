//! A private directory for the sockets of one meeting, and their removal.
//!
//! The directory is opened once, and what was checked is what is used: sockets are bound and called through the open
//! directory, which also frees them from the short limit on socket paths. A rank tells its directory's name before it
//! makes it, so that the others on its node can clear away what a killed rank leaves; what nobody was left to clear
//! away, a later meeting sweeps.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, getpid, unlinkat};

use crate::error::Error;
use crate::secret::{random_u64, to_hex};
use crate::socket;
use crate::wire::Entry;

const PREFIX: &str = "eirene-mesh-";
/// Directories of dead meetings are swept when they are older than any meeting lasts.
const OLD: Duration = Duration::from_mins(10);

/// A private directory, open; what was put into it goes when this is dropped, the directory too if it was made here.
#[derive(Debug)]
pub(crate) struct Room {
    fd: OwnedFd,
    path: PathBuf,
    made: bool,
    sockets: Vec<String>,
    process: nix::unistd::Pid,
}

impl Room {
    /// Opens a directory that is ours and closed to everybody else.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let fd = open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(Error::system("open the private directory"))?;
        let stat = fstat(&fd).map_err(Error::system("look at the private directory"))?;
        let why = if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR {
            "is not a directory"
        } else if stat.st_uid != geteuid().as_raw() {
            "belongs to somebody else"
        } else if stat.st_mode & 0o077 != 0 {
            "can be entered by others: it should have mode 0700"
        } else {
            return Ok(Self { fd, path: path.into(), made: false, sockets: Vec::new(), process: getpid() });
        };
        Err(Error::Directory { path: path.into(), why })
    }

    /// Makes a directory that was thought of by [`fresh`].
    pub(crate) fn make(path: &Path) -> Result<Self, Error> {
        DirBuilder::new().mode(0o700).create(path).map_err(Error::system("make a private directory"))?;
        match Self::open(path) {
            Ok(mut room) => {
                room.made = true;
                Ok(room)
            }
            Err(error) => {
                let _ = fs::remove_dir(path);
                Err(error)
            }
        }
    }

    /// A path to `name` by way of the open directory.
    fn within(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// Listens on a socket here; a dead one of the same name is replaced.
    pub(crate) fn listen(&mut self, name: &str) -> io::Result<OwnedFd> {
        // Between its birth and its first ear a socket looks dead to others; so they wait.
        let lock = fs::File::open(self.within(".")).map(|file| Flock::lock(file, FlockArg::LockExclusive));
        let path = self.within(name);
        let listener = match socket::listen_unix(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let called = socket::call_unix(&path);
                if !called.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                    return Err(error);
                }
                self.remove(name);
                socket::listen_unix(&path)
            }
            other => other,
        }?;
        drop(lock);
        self.sockets.push(name.into());
        // The mode of a new socket follows the umask; the directory keeps others out, and so does this.
        let _ = nix::sys::stat::fchmodat(
            &self.fd,
            name,
            Mode::S_IRUSR | Mode::S_IWUSR,
            nix::sys::stat::FchmodatFlags::FollowSymlink,
        );
        Ok(listener)
    }

    /// Calls a socket here; only one that a process of the same user listens on is a connection.
    pub(crate) fn call(&self, name: &str) -> io::Result<OwnedFd> {
        let fd = socket::call_unix(&self.within(name))?;
        if socket::same_user(&fd) { Ok(fd) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.process != getpid() {
            return;
        }
        for name in &self.sockets {
            self.remove(name);
        }
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The directory in which private ones are made when the plan names none.
fn base() -> PathBuf {
    let usable = |path: &PathBuf| {
        let access = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
        path.is_absolute() && path.is_dir() && nix::unistd::eaccess(path, access).is_ok()
    };
    let named = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    named.into_iter().find(usable).unwrap_or_else(|| PathBuf::from("/tmp"))
}

/// Thinks of a private directory that nobody has; it is not made yet.
pub(crate) fn fresh() -> Result<PathBuf, Error> {
    Ok(base().join(format!("{PREFIX}{}", to_hex(&random_u64()?.to_le_bytes()))))
}

/// Thinks of a name for a socket.
pub(crate) fn fresh_name(rank: u32) -> Result<String, Error> {
    Ok(format!("rank{rank}-{}", to_hex(&random_u64()?.to_le_bytes()[..4])))
}

/// Clears away what a rank on this node, now dead or failing, may have left of the meeting.
pub(crate) fn clear(entry: &Entry) {
    if entry.directory.is_empty() || entry.name.contains('/') || entry.name.is_empty() {
        return;
    }
    let path = Path::new(OsStr::from_bytes(&entry.directory));
    let Ok(room) = Room::open(path) else { return };
    room.remove(&entry.name);
    if path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes())) {
        let _ = fs::remove_dir(path);
    }
}

/// Clears away directories of meetings whose ranks were all killed at once, long ago.
pub(crate) fn sweep() {
    let Ok(entries) = fs::read_dir(base()) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
        let old = entry.metadata().is_ok_and(|meta| {
            meta.is_dir()
                && meta.uid() == geteuid().as_raw()
                && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD))
        });
        if old && let Ok(room) = Room::open(&entry.path()) {
            sweep_one(&room);
        }
    }
}

fn sweep_one(room: &Room) {
    for name in fs::read_dir(&room.path).into_iter().flatten().flatten().map(|entry| entry.file_name()) {
        let Some(name) = name.to_str() else { continue };
        if room.call(name).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            room.remove(name);
        }
    }
    let _ = fs::remove_dir(&room.path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn private() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn a_directory_others_can_enter_is_refused() {
        let directory = private();
        for mode in [0o710, 0o701, 0o720, 0o755, 0o777] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Room::open(directory.path()), Err(Error::Directory { .. })), "mode {mode:o}");
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Room::open(directory.path()).is_ok());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        assert!(Room::open(&link).is_err());
    }

    #[test]
    fn sockets_go_with_the_room_and_dead_ones_are_replaced() {
        let base = private();
        // Longer than a socket path may be.
        let path = base.path().join("x".repeat(200));
        let mut room = Room::make(&path).unwrap();
        let listener = room.listen("a").unwrap();
        assert!(room.call("a").is_ok());
        assert_eq!(fs::metadata(path.join("a")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Room::open(&path).unwrap().listen("a").unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let mut other = Room::open(&path).unwrap();
        let _again = other.listen("a").unwrap();
        drop(other);
        assert!(!path.join("a").exists());
        drop(room);
        assert!(!path.exists());
    }

    #[test]
    fn of_many_listeners_of_one_name_one_remains() {
        let base = private();
        for _ in 0..50 {
            let results: Vec<_> = std::thread::scope(|scope| {
                let listen = || {
                    let mut room = Room::open(base.path()).unwrap();
                    let listener = room.listen("a");
                    (room, listener)
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(listen)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(results.iter().filter(|(_, listener)| listener.is_ok()).count(), 1);
            assert!(Room::open(base.path()).unwrap().call("a").is_ok());
        }
    }

    /// As if the process had been killed: what it made stays.
    fn die(mut room: Room) {
        room.process = nix::unistd::Pid::from_raw(0);
    }

    #[test]
    fn what_a_dead_rank_left_is_cleared_but_nothing_else() {
        let base = private();
        let path = base.path().join(format!("{PREFIX}1"));
        let mut room = Room::make(&path).unwrap();
        room.listen("s").unwrap();
        die(room);
        let entry = Entry { directory: path.as_os_str().as_bytes().to_vec(), name: "s".into(), ..Entry::default() };
        clear(&entry);
        assert!(!path.exists());
        let kept = base.path().join("shared");
        die(Room::make(&kept).unwrap());
        fs::write(kept.join("s"), "").unwrap();
        fs::write(kept.join("other"), "").unwrap();
        clear(&Entry { directory: kept.as_os_str().as_bytes().to_vec(), ..entry });
        assert!(kept.join("other").exists() && !kept.join("s").exists());
    }

    #[test]
    fn a_room_whose_socket_lives_is_not_swept() {
        let base = private();
        let path = base.path().join("room");
        let mut room = Room::make(&path).unwrap();
        let listener = room.listen("s").unwrap();
        let other = Room::open(&path).unwrap();
        sweep_one(&other);
        assert!(path.join("s").exists());
        drop(listener);
        sweep_one(&other);
        assert!(!path.exists());
    }
}
