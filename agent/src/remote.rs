//! The task of a program on one node, as SLURM starts it: hands what it was given for standard input, output and error to the first program of
//! the container there, and stays as long as the program does. With the task the connection goes, and the program is hung up.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use eirene_steps::{Answer, Asker, Program, RemoteRequest, Request, WireError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};

use crate::job::{JobError, read_exactly, read_private};
use crate::log::Log;
use crate::programs::PROGRAMS_SOCKET;
use crate::rsh::EXIT_FAILED;
use crate::runtime_directory::inside;

/// Longest file, bytes: a request and a little more.
const MOST_BYTES: u64 = 2 << 20;

/// What the task is told, in a private file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteFile {
    /// The node.
    pub(crate) node: String,
    /// Its runtime directory.
    pub(crate) directory: PathBuf,
    /// What is run there.
    pub(crate) program: Program,
}

/// The signal by which a task is told that its caller has gone.
pub(crate) const HANG_UP: Signal = Signal::SIGUSR1;

/// Listens for [`HANG_UP`].
struct HangUp(SignalFd);

impl HangUp {
    fn expect() -> std::io::Result<Self> {
        let signals = SigSet::from(HANG_UP);
        signals.thread_block()?;
        Ok(Self(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits for it, or for something that is said.
    fn comes_before(&self, asker: &Asker) -> std::io::Result<bool> {
        let mut both = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN), PollFd::new(asker.as_fd(), PollFlags::POLLIN)];
        while let Err(error) = poll(&mut both, PollTimeout::NONE) {
            if error != nix::errno::Errno::EINTR {
                return Err(error.into());
            }
        }
        Ok(both[0].any() == Some(true))
    }
}

/// How a program ended, in place of what the task was told: an exit status of the task's own would be an error to SLURM, which says so to the
/// caller, and could not be told from SLURM's own failures.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteEnded {
    /// The exit status.
    pub(crate) status: u8,
}

/// How the program of this file ended, once its task has.
pub(crate) fn ended(file: &Path, uid: u32) -> Option<u8> {
    let text = read_private(file, uid, MOST_BYTES).ok()?;
    Some(serde_json::from_str::<RemoteEnded>(&text).ok()?.status)
}

fn leave(file: &Path, status: u8) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(file)?;
    file.write_all(&serde_json::to_vec(&RemoteEnded { status })?)?;
    // The caller's node reads it next.
    file.sync_all()
}

/// Has the program of this file run in the container of this node, and leaves its exit status there; gives 0 if all of that was done.
pub fn remote(file: &Path, digest: &str, log: &Log) -> u8 {
    let uid = nix::unistd::geteuid().as_raw();
    let text = read_exactly(file, uid, MOST_BYTES, digest);
    let asked = text.and_then(|text| serde_json::from_str::<RemoteFile>(&text).map_err(JobError::Damaged));
    let RemoteFile { node, directory, program } = match asked {
        Ok(asked) => asked,
        Err(error) => {
            log.say(&format!("what is to run cannot be read from the home directory: {error}"));
            return EXIT_FAILED;
        }
    };
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let standard = [input.as_fd(), output.as_fd(), errors.as_fd()];
    let request = Request::Remote(RemoteRequest { node: node.clone(), program });
    let outcome = HangUp::expect().map_err(WireError::from).and_then(|hang_up| {
        let mut asker = Asker::ask(&inside(&directory).join(PROGRAMS_SOCKET), &request, &standard)?;
        loop {
            if !asker.has_more() && hang_up.comes_before(&asker)? {
                return Ok(None);
            }
            match asker.hear()? {
                Answer::Starting { .. } => {}
                last => return Ok(Some(last)),
            }
        }
    });
    match outcome.map(|last| last.unwrap_or(Answer::Ended { status: EXIT_FAILED })) {
        Ok(Answer::Ended { status }) => match leave(file, status) {
            Ok(()) => return 0,
            Err(error) => log.say(&format!("how the program ended cannot be written to the home directory: {error}")),
        },
        Ok(Answer::Refused { text, .. }) => log.say(&text),
        Ok(Answer::Starting { .. }) | Err(_) => log.say(&format!("the session's container on {node} is gone")),
    }
    EXIT_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::write_private;

    #[test]
    fn a_status_takes_the_place_of_what_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let (path, uid) = (directory.path().join("file"), nix::unistd::geteuid().as_raw());
        let asked = RemoteFile { node: "c2".into(), directory: "/tmp/x".into(), program: Program::default() };
        write_private(&path, &serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!(ended(&path, uid), None, "what was asked for is no status");
        leave(&path, 7).unwrap();
        assert_eq!(ended(&path, uid), Some(7));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ended(&path, uid), None);
        assert!(leave(&path, 7).is_err(), "nobody waits for it any more");
    }
}
