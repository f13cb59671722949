//! Where a container's processes live, as seen from outside, and how another process of the same person enters it.
//!
//! Ranks of a step are tasks of SLURM's, so that it limits, counts and ends them, but they live in the container that is already there: they
//! enter its namespaces (setns(2), namespaces(7)) instead of having the image mounted once more for each. The kernel lets a process do that whose
//! user made them. Where Apptainer was installed setuid, the namespaces are root's: there ranks get containers of their own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

use crate::processes::Process;

/// The socket in the runtime directory at which a container's first program shows itself.
pub(crate) const GUARD_SOCKET: &str = "guard.sock";
/// The file in the runtime directory that tells ranks where to.
const FILE: &str = "container.json";

/// The namespaces of a container, in the order in which one enters them.
const NAMESPACES: [(&str, CloneFlags); 4] = [
    ("user", CloneFlags::CLONE_NEWUSER),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mnt", CloneFlags::CLONE_NEWNS),
];

/// A container's first program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    process: Process,
    /// Whether it can be entered.
    pub(crate) open: bool,
}

/// Waits for a container's first program to show itself.
pub(crate) struct Announcement(UnixListener);

impl Announcement {
    /// Listens in the runtime directory, in place of who listened for an earlier container.
    pub(crate) fn expect(directory: &Path) -> io::Result<Self> {
        let path = directory.join(GUARD_SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self(UnixListener::bind(path)?))
    }

    /// The first program of this person's that shows itself. Its number comes from the kernel, which knows it by another one inside.
    pub(crate) async fn wait(self, uid: u32) -> io::Result<Place> {
        loop {
            let (peer, _) = self.0.accept().await?;
            let credentials = peer.peer_cred()?;
            if let Some(pid) = credentials.pid().filter(|_| credentials.uid() == uid) {
                return Place::of(pid);
            }
        }
    }
}

impl Place {
    fn of(pid: i32) -> io::Result<Self> {
        let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/user"));
        let open = namespace(&pid.to_string())? != namespace("self")?;
        Ok(Self { process: Process::of(pid)?, open })
    }

    /// Takes back what was left for ranks.
    pub(crate) fn forget(directory: &Path) {
        // What is not there is forgotten.
        let _ = std::fs::remove_file(directory.join(FILE));
    }

    /// Leaves word for ranks.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("container.new");
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(new, directory.join(FILE))
    }

    /// What the agent or helper of this node has left.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(directory.join(FILE))?)?)
    }

    /// Moves this process into the container: its files, users and shared memory at once, its processes for children. The process must have
    /// one thread. Rights are lost at the next exec, and programs that would give new ones do not.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let here = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}"));
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let process = open(format!("/proc/{}", self.process.pid).as_str(), flags, Mode::empty())?;
        let file = |name: &str, flags: OFlag| openat(&process, name, flags | OFlag::O_CLOEXEC, Mode::empty());
        let stat = io::read_to_string(std::fs::File::from(file("stat", OFlag::O_RDONLY)?))?;
        if !self.process.is(&stat) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut namespaces: Vec<(OwnedFd, CloneFlags)> = Vec::new();
        for (name, kind) in NAMESPACES {
            // One's own user namespace cannot be entered again.
            if nix::fcntl::readlinkat(&process, format!("ns/{name}").as_str())? != here(name)?.as_os_str() {
                namespaces.push((file(&format!("ns/{name}"), OFlag::O_RDONLY)?, kind));
            }
        }
        let root = file("root", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        for (namespace, kind) in namespaces {
            setns(namespace, kind)?;
        }
        nix::unistd::fchdir(&root)?;
        nix::unistd::chroot(".")?;
        nix::unistd::chdir("/")?;
        nix::sys::prctl::set_no_new_privs()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_for_ranks_is_read_again() {
        let place = Place::of(nix::unistd::getpid().as_raw()).unwrap();
        assert!(!place.open, "nobody enters a container that is none");
        let directory = tempfile::tempdir().unwrap();
        place.write(directory.path()).unwrap();
        assert_eq!(Place::read(directory.path()).unwrap(), place);
    }

    #[tokio::test]
    async fn the_kernel_says_who_shows_itself() {
        let directory = tempfile::tempdir().unwrap();
        let announcement = Announcement::expect(directory.path()).unwrap();
        let _shown = tokio::net::UnixStream::connect(directory.path().join(GUARD_SOCKET)).await.unwrap();
        let place = announcement.wait(nix::unistd::geteuid().as_raw()).await.unwrap();
        assert_eq!(place.process, Process::own().unwrap());
    }
}
