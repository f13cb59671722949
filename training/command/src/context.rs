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
    /// The words that `bench` hands its arguments to: `[python, -m, eirene_train.bench]`; none without the Python package.
    pub bench_command: Option<Vec<OsString>>,
    /// The words by which `doctor` asks Python about itself: `[python, -m, eirene_train.facts]`; none without the Python package.
    pub facts_command: Option<Vec<OsString>>,
    /// Python's `sys.prefix`, where wheels put the MPIs they bring.
    pub prefix: Option<PathBuf>,
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
            bench_command: None,
            facts_command: None,
            prefix: None,
            environment: Environment::of_this_process(),
        }
    }

    /// For the interpreter `python` with the package `eirene_train` in it.
    pub fn of_python(python: OsString, prefix: Option<PathBuf>) -> Self {
        let module = |name: &str| vec![python.clone(), "-m".into(), name.into()];
        Self {
            program: module("eirene_train"),
            bench_command: Some(module("eirene_train.bench")),
            facts_command: Some(module("eirene_train.facts")),
            prefix,
            environment: Environment::of_this_process(),
            python,
        }
    }

    /// The words by which other hosts start their part of a run.
    pub(crate) fn node_command(&self) -> Vec<OsString> {
        self.program.iter().cloned().chain(["node".into()]).collect()
    }
}
