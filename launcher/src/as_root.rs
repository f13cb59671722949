//! The child that stays root: it changes the names in one root of spaces, and says which project a space has and what the root's file system counts
//! for users and groups; nothing else.
//!
//! A process of its own because file systems hang, and a process can be given up. What a space holds is removed by another child, which is
//! nobody's account but for the right to remove and sees nothing but that space; this one sees at most whether a space is empty, before it gets a limit,
//! and opens nothing of anybody's but, for the number of its project, a space itself. Looking at it is yet another child's, which is the service
//! account.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use eirene_core::launcher::{LauncherAnswer, SpaceAt};
use eirene_core::storage::{QuotaOf, QuotaRange};
use eirene_core::{SpaceId, SpaceName};
use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::as_person::{self, NOT_DONE, Task};
use crate::child::{self, printable};
use crate::people::Person;
use crate::project::Project;
use crate::space_root::{self, Made, Most, Root, Whose};

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
        /// The project it may have been limited by.
        project: Option<u32>,
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
    /// Say which project it has.
    Project {
        /// Name.
        name: SpaceName,
    },
    /// Say what the root's file system counts for users or groups.
    Quotas {
        /// Whether the root has a marker.
        marked: bool,
        /// Of what.
        of: QuotaOf,
        /// The first number.
        first: u32,
        /// The last one.
        last: u32,
    },
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What the portal is told.
    Answer(LauncherAnswer),
    /// The space's project; none where there is no such space, or its file system knows no projects.
    Project(Option<Project>),
}

impl From<LauncherAnswer> for Outcome {
    fn from(answer: LauncherAnswer) -> Self {
        Self::Answer(answer)
    }
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
            let answer = perform(order).unwrap_or_else(|Refusal { code, text }| {
                LauncherAnswer::Refused { code: code.to_owned(), text }.into()
            });
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

fn perform(order: Order) -> Result<Outcome, Refusal> {
    let root = || Root::open(&order.root);
    let answer = match order.work {
        Work::Make { name, whose } => {
            let Made { made, inode, unshared } = root()?.make(&name, whose)?;
            Ok(LauncherAnswer::Space { made, inode, unshared })
        }
        Work::Limit { name, inode, project, most } => {
            root()?.limit(&name, inode, project, most).map(|()| LauncherAnswer::Done)
        }
        Work::Retire { name, inode, id } => {
            root()?.retire(&name, inode, id).map(|()| LauncherAnswer::Space { made: false, inode, unshared: false })
        }
        Work::Restore { name, inode, id } => {
            root()?.restore(&name, inode, id).map(|()| LauncherAnswer::Space { made: false, inode, unshared: false })
        }
        Work::Remove { inode, id, project, account, program } => {
            let root = root()?;
            let done = match root.open_retired(inode, id)? {
                None => true,
                Some(directory) => {
                    let is_empty = empty(&directory, account, program)?;
                    // While there is something that says on which file system: it is found done the next time, like the rest.
                    if is_empty && let Some(project) = project {
                        root.take_back(&directory, project)?;
                    }
                    is_empty && root.remove_retired(id)?
                }
            };
            Ok(LauncherAnswer::Removed { done })
        }
        Work::Look { at } => {
            let root = root()?;
            let inode = root.find(&at)?;
            Ok(LauncherAnswer::SpaceSeen { inode, file_time_s: root.time()? })
        }
        Work::Quotas { marked, of, first, last } => {
            space_root::quotas(&order.root, marked, QuotaRange { of, first, last }).map(LauncherAnswer::Quotas)
        }
        // What is wrong with the root is the look's to say.
        Work::Project { name } => return Ok(Outcome::Project(root().ok().and_then(|root| root.project(&name)))),
    };
    answer.map(Outcome::from)
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
