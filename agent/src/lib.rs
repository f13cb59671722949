//! The job's side of a session. It runs as the person, inside the allocation, needs no inbound port, no root and no Python.
//!
//! - [`job`]: who this job is, from SLURM's variables and the job file;
//! - [`app`]: what can be started, one file an app;
//! - [`container`]: the app's process in its container, and that nothing of it is left;
//! - [`guard`] and [`processes`]: the container's first program, which ends with the agent, and the processes below one;
//! - [`dial`] and [`link`]: the connection to the portal, and what runs over it;
//! - [`log`]: what the app wrote, in the job's own log and on its way to the portal;
//! - [`supervise`]: the order of things from start to exit.

mod app;
mod container;
mod dial;
mod guard;
mod job;
mod link;
mod log;
mod processes;
mod runtime_directory;
mod supervise;

pub use guard::guard;
pub use job::Environment;
pub use log::Log;
pub use supervise::{EXIT_NOT_STARTED, run};
