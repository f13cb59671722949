//! The task of a program on one node, as SLURM starts it: hands what it was given for standard input, output and error to the first program of
//! the container there, and stays as long as the program does. With the task the connection goes, and the program is hung up.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use eirene_steps::{Answer, Asker, Program, RemoteRequest, Request};
use serde::{Deserialize, Serialize};

use crate::job::{JobError, read_exactly};
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

/// Has the program of this file run in the container of this node; gives its exit status.
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
    let outcome = Asker::ask(&inside(&directory).join(PROGRAMS_SOCKET), &request, &standard).and_then(|mut asker| {
        loop {
            match asker.hear()? {
                Answer::Starting { .. } => {}
                last => return Ok(last),
            }
        }
    });
    match outcome {
        Ok(Answer::Ended { status }) => return status,
        Ok(Answer::Refused { text, .. }) => log.say(&text),
        Ok(Answer::Starting { .. }) | Err(_) => log.say(&format!("the session's container on {node} is gone")),
    }
    EXIT_FAILED
}
