//! What the command needs to know of the process it is in.

use std::ffi::OsString;
use std::path::PathBuf;

use eirene_train_launch::Environment;

/// The process the command is in: a program of its own, or Python.
#[derive(Debug, Clone)]
pub struct Context {
    /// The interpreter for programs that end in `.py`, and for `-m` and `-c`.
    pub python: OsString,
    /// The words by which this very program is started again, here or on other hosts: `[python, -m, eirene_train]`.
    pub program: Vec<OsString>,
    /// The environment.
    pub environment: Environment,
}

impl Context {
    /// For a program of its own, without an interpreter around it.
    pub fn of_this_program() -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("eirene-train"));
        Self {
            python: "python3".into(),
            program: vec![program.into_os_string()],
            environment: Environment::of_this_process(),
        }
    }

    /// The words by which other hosts start their part of a run.
    pub(crate) fn node_command(&self) -> Vec<OsString> {
        self.program.iter().cloned().chain(["node".into()]).collect()
    }
}
