//! `eirene-train doctor`: words on the command line and the terminal's looks, for `eirene-train-doctor`.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use clap::Args;
use eirene_train_doctor::{Look, Options, Patient};

use crate::context::Context;
use crate::run::wants_color;

/// The hidden verb of the doctor's children.
pub(crate) const LOOK: &str = "look";

/// Say what a run would find on this machine, and how to fix what is wrong.
///
/// Looks at who started this process, every MPI that is here and which one fits, processors, memory and limits, network, devices, Python and
/// torch; then really starts the MPI and a run of two ranks. Needs no privileges. To see what ranks see, start it as they are started:
/// `srun --mpi=pmix eirene-train doctor`.
///
/// Exits with 0 where there is no problem, with 1 where there is one, with 2 when it cannot say. Of several tasks rank 0 reports; the others
/// write their problems to stderr and exit with 0.
#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    /// Look only: start no MPI and no ranks, and do not import torch
    #[arg(long)]
    quick: bool,
    /// Write JSON: the fields only ever grow, and findings keep their ids
    #[arg(long)]
    json: bool,
}

/// Examines, and writes to stdout. Gives the exit code.
///
/// # Errors
/// When stdout takes nothing.
pub(crate) fn doctor(arguments: &Doctor, context: &Context) -> io::Result<u8> {
    let patient = Patient {
        program: context.program.clone(),
        look: vec![LOOK.into()],
        facts: context.facts_command.clone(),
        prefix: context.prefix.clone(),
        environment: context.environment.clone(),
    };
    let is_terminal = io::stdout().is_terminal();
    let look =
        Look { color: is_terminal && wants_color(&context.environment), columns: is_terminal.then(columns).flatten() };
    let options = Options { quick: arguments.quick, json: arguments.json, look };
    eirene_train_doctor::examine(&patient, options, &mut io::stdout().lock(), &mut io::stderr().lock())
}

/// What one of its children does. Gives the exit code.
pub(crate) fn look(words: &[OsString], context: &Context) -> u8 {
    eirene_train_doctor::look(words, &context.environment)
}

/// The terminal's width.
#[expect(unsafe_code, reason = "asks the terminal for its size")]
fn columns() -> Option<usize> {
    const LEAST: u16 = 60;
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the place is good for the answer.
    let code = unsafe { libc::ioctl(io::stdout().as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (code == 0 && size.ws_col >= LEAST).then(|| usize::from(size.ws_col))
}
