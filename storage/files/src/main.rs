//! `eirene-files`: reads no settings. Without arguments it is a person's file process: descriptor 0 is the portal's socket, and its end is the end
//! of everything. `eirene-files purge` empties the directory it is started in; see `purge.rs`.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use eirene_files::purge::{self, Purged};
use eirene_files::{Settings, serve};
use eirene_files_protocol::Channel;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Exit status of a purge whose time was over.
const MORE: u8 = 3;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "purge") {
        return match purge::run() {
            Ok(Purged::All) => ExitCode::SUCCESS,
            Ok(Purged::Some) => ExitCode::from(MORE),
            Err(error) => failed(&error),
        };
    }
    match run() {
        // Threads that a file system holds up are not waited for.
        Ok(()) => std::process::exit(0),
        Err(error) => failed(error.as_ref()),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    // Nobody listens when this fails, too.
    let _ = writeln!(io::stderr(), "eirene-files: {error}");
    ExitCode::FAILURE
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
