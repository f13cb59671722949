//! `eirene-files`: takes no arguments and reads no settings. Descriptor 0 is the portal's socket, and its end is the end of everything.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use eirene_files::{Settings, serve};
use eirene_files_protocol::Channel;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

fn main() -> ExitCode {
    match run() {
        // Threads that a file system holds up are not waited for.
        Ok(()) => std::process::exit(0),
        Err(error) => {
            // Nobody listens when this fails, too.
            let _ = writeln!(io::stderr(), "eirene-files: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args_os().len() > 1 {
        return Err("takes no arguments; the launcher starts it".into());
    }
    // The person's other programs are not to reach into this one, which holds what the portal sent.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    let channel = Channel::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?)?;
    serve(channel, &Settings::default())?;
    Ok(())
}
