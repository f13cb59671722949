//! The child that stays root: it changes the names in one root of spaces, and nothing else.
//!
//! A process of its own because file systems hang, and a process can be given up. What a space holds is removed by another child, which is
//! nobody's account but for the right to remove and sees nothing but that space; this one sees at most whether a space is empty, before it gets a limit,
//! and opens nothing of anybody's.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use eirene_core::launcher::{LauncherAnswer, SpaceAt};
use eirene_core::{SpaceId, SpaceName};
use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::as_person::{self, NOT_DONE, Task};
use crate::child::{self, printable};
use crate::people::Person;
use crate::space_root::{Most, Root, Whose};

/// Exit status of a purge that ran out of its time: there is more to remove.
const MORE: i32 = 3;

/// What to do in a root.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Absolute path of the root, from the configuration.
    pub root: PathBuf,
    /// What.
    pub work: Work,
}

/// What to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Make a space.
    Make {
        /// Name.
        name: SpaceName,
        /// Whose.
        whose: Whose,
    },
    /// Set how much it may hold.
    Limit {
        /// Name.
        name: SpaceName,
        /// Inode.
        inode: u64,
        /// Its project.
        project: u32,
        /// How much.
        most: Most,
    },
    /// Take it away.
    Retire {
        /// Name.
        name: SpaceName,
        /// Inode.
        inode: u64,
        /// Name it then has.
        id: SpaceId,
    },
    /// Bring it back.
    Restore {
        /// Name.
        name: SpaceName,
        /// Inode.
        inode: u64,
        /// Name it has now.
        id: SpaceId,
    },
    /// Remove it.
    Remove {
        /// Inode.
        inode: u64,
        /// Name it has.
        id: SpaceId,
        /// As whom.
        account: Account,
        /// The program that removes; root's alone.
        program: PathBuf,
    },
    /// Look for it.
    Look {
        /// Where.
        at: SpaceAt,
    },
}

/// The account that removes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Account {
    name: eirene_core::Username,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl From<Person> for Account {
    fn from(Person { name, uid, gid, home }: Person) -> Self {
        Self { name, uid, gid, home }
    }
}

/// Runs the child's side; `launcher` is the process it ends with. The answer goes to standard output.
pub fn main(launcher: u32) -> ExitCode {
    let done = as_person::begin()
        .and_then(|()| as_person::end_with(launcher))
        .and_then(|()| as_person::read_task::<Order>())
        .and_then(|order| {
            let answer = perform(order)
                .unwrap_or_else(|Refusal { code, text }| LauncherAnswer::Refused { code: code.to_owned(), text });
            Ok(serde_json::to_writer(io::stdout(), &answer)?)
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody listens when this fails, too.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(NOT_DONE)
        }
    }
}

fn perform(order: Order) -> Result<LauncherAnswer, Refusal> {
    let root = Root::open(&order.root)?;
    match order.work {
        Work::Make { name, whose } => {
            let (made, inode) = root.make(&name, whose)?;
            Ok(LauncherAnswer::Space { made, inode })
        }
        Work::Limit { name, inode, project, most } => {
            root.limit(&name, inode, project, most).map(|()| LauncherAnswer::Done)
        }
        Work::Retire { name, inode, id } => {
            root.retire(&name, inode, id).map(|()| LauncherAnswer::Space { made: false, inode })
        }
        Work::Restore { name, inode, id } => {
            root.restore(&name, inode, id).map(|()| LauncherAnswer::Space { made: false, inode })
        }
        Work::Remove { inode, id, account, program } => {
            let done = match root.open_retired(inode, id)? {
                None => true,
                Some(directory) => empty(&directory, account, program)? && root.remove_retired(id)?,
            };
            Ok(LauncherAnswer::Removed { done })
        }
        Work::Look { at } => {
            let inode = root.find(&at)?;
            Ok(LauncherAnswer::SpaceSeen { inode, file_time_s: root.time()? })
        }
    }
}

/// Has a directory emptied for a while; gives whether it is empty.
fn empty(directory: &OwnedFd, account: Account, program: PathBuf) -> Result<bool, Refusal> {
    let failed = |error: io::Error| Refusal::failed(format!("could not remove: {error}"));
    let Account { name, uid, gid, home } = account;
    let task = serde_json::to_vec(&Task::Purge { program }).map_err(|error| failed(error.into()))?;
    let mut purge = child::as_person(&Person { name, uid, gid, home });
    // It works in the directory it is started in, and needs no path: there is none that it may go.
    let mut purge = purge
        .arg("--purge")
        .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
        .process_group(own_group())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = purge.stdin.take() {
        let message = [(task.len() as u64).to_be_bytes().as_slice(), &task].concat();
        stdin.write_all(&message).map_err(failed)?;
    }
    let ended = purge.wait_with_output().map_err(failed)?;
    match ended.status.code() {
        Some(0) => Ok(true),
        Some(MORE) => Ok(false),
        _ => Err(Refusal::failed(format!(
            "could not remove: {}",
            printable(ended.stderr.split(|byte| *byte == b'\n').next().unwrap_or_default())
        ))),
    }
}

/// This process's own group, so that whoever ends it ends what it started, too.
fn own_group() -> i32 {
    nix::unistd::getpgrp().as_raw()
}
