//! The job's side of a session. It runs as the person, inside the allocation, needs no inbound port, no root and no Python.
//!
//! - [`job`]: who this job is, from SLURM's variables and the job file;
//! - [`app`]: what can be started, one file an app;
//! - [`allocation`] and [`names`]: the job's nodes, and what else they are called;
//! - [`container`]: the app's process in its container, that nothing of it is left, and how others enter it;
//! - [`helper`] and [`helpers`]: the container on the other nodes, and the agent's way to them;
//! - [`steps`], [`srun`] and [`ranks`]: programs in the container have ranks started on all nodes;
//! - [`rsh`], [`launchers`], [`remote`] and [`programs`]: launchers in the container start programs on the other nodes, as by ssh;
//! - [`guard`] and [`processes`]: the container's first program, which ends with the agent, and the processes below one;
//! - [`dial`] and [`link`]: the connection to the portal, and what runs over it;
//! - [`log`]: what the app wrote, in the job's own log and on its way to the portal;
//! - [`samples`]: what the job uses of each node, every few seconds;
//! - [`scratch`]: the node's own disk for as long as the job lasts, filled before the program starts and emptied when it has ended;
//! - [`supervise`]: the order of things from start to exit.

mod allocation;
mod app;
mod container;
mod dial;
mod ends;
mod guard;
mod helper;
mod helpers;
mod image_mount;
mod job;
mod launchers;
mod link;
mod log;
mod names;
mod own_directory;
mod processes;
mod programs;
mod ranks;
mod remote;
mod report;
mod rsh;
mod run;
mod runtime_directory;
mod samples;
mod scratch;
mod srun;
mod steps;
mod supervise;
mod traced;

pub use guard::guard;
pub use helper::helper;
pub use image_mount::{is_server, serve_image};
pub use job::Environment;
pub use log::Log;
pub use ranks::{inside, rank};
pub use remote::remote;
pub use rsh::{name, rsh};
pub use scratch::rescue;
pub use supervise::{EXIT_NOT_STARTED, run};
