//! `eirene-train bench`: handed over to Python, where torch and what it is compared with are.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::context::Context;
use crate::error::Error;

/// Becomes the Python program, with these arguments unchanged.
///
/// # Errors
/// [`Error::NeedsPython`] where there is none, [`Error::NotStarted`] where it does not start.
pub(crate) fn bench(arguments: &[OsString], context: &Context) -> Result<Infallible, Error> {
    let words = context.bench_command.as_deref().unwrap_or_default();
    let (program, rest) = words.split_first().ok_or(Error::NeedsPython)?;
    let source = Command::new(program).args(rest).args(arguments).exec();
    Err(Error::NotStarted { program: program.display().to_string(), source })
}
