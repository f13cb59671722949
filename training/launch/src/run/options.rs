//! What a run is asked to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::environment::Environment;

/// On which hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Hosts {
    /// On this one.
    #[default]
    Here,
    /// On those of a host list like `c[1-4]`, or on `all` of SLURM's allocation.
    List(String),
    /// On those of a host file: `host slots=4`, `host:4` or `host` on each line.
    File(PathBuf),
}

/// Whether a rank is kept on processors of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bind {
    /// No: the system moves it as it likes.
    #[default]
    None,
    /// Yes: the node's processors are dealt out among its ranks.
    Core,
}

/// What a run is asked to do. [`Options::new`] gives what holds unless said otherwise.
#[derive(Debug, Clone)]
pub struct Options {
    /// Ranks in the world; where hosts are named, as many as they have slots for unless said.
    pub ranks: Option<u32>,
    /// On which hosts.
    pub hosts: Hosts,
    /// Ranks on each host.
    pub ranks_per_node: Option<u32>,
    /// How long hosts may take to answer.
    pub timeout: Duration,
    /// How long ranks may take to end when asked.
    pub grace: Duration,
    /// How long ranks may run at all; then they are ended as if SIGALRM had been sent to the run.
    pub limit: Option<Duration>,
    /// Whether every line is labelled with its rank.
    pub labels: bool,
    /// Whether labels are coloured.
    pub color: bool,
    /// A directory for one file a rank, instead of output here.
    pub output: Option<PathBuf>,
    /// Whether ranks are kept on processors of their own.
    pub bind: Bind,
    /// Whether rank 0 has this process's standard input; otherwise no rank has any.
    pub stdin: bool,
    /// Variables for the ranks, before ours.
    pub environment: Vec<(OsString, OsString)>,
    /// How other hosts reach rank 0's host, where its name in the list is not the way.
    pub address: Option<String>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// The command that serves as node on other hosts: this program, there.
    pub node_command: Vec<OsString>,
    /// The launcher's own environment: SLURM's allocation, the remote shell.
    pub launcher: Environment,
}

impl Options {
    /// One rank of a program on this host.
    pub fn new(program: Vec<OsString>, node_command: Vec<OsString>, launcher: Environment) -> Self {
        Self {
            ranks: None,
            hosts: Hosts::Here,
            ranks_per_node: None,
            timeout: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            limit: None,
            labels: true,
            color: false,
            output: None,
            bind: Bind::None,
            stdin: false,
            environment: Vec::new(),
            address: None,
            program,
            node_command,
            launcher,
        }
    }

    /// Whether progress bars are shown as lines: where lines are labelled. Files and unlabelled output get every byte.
    pub(crate) fn shows_bars(&self) -> bool {
        self.labels && self.output.is_none()
    }
}
