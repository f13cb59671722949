//! iproute2.

use std::process::{Command, Stdio};

use crate::error::Error;

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) -> Result<(), Error> {
    run("ip", arguments)
}

/// Runs `tc`.
pub(crate) fn tc(arguments: &[&str]) -> Result<(), Error> {
    run("tc", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Error> {
    // On Debian it is not on everybody's path.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let failed = |said| Error::Tool { command: format!("{program} {}", arguments.join(" ")), said };
    let output = Command::new(program).args(arguments).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("{error}; it is in Debian's package iproute2")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
