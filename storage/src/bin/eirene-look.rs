//! `eirene-look home DIRECTORY` or `eirene-look root DIRECTORY [BENEATH]`: looks at a directory's file system and writes what it saw, as JSON; of a
//! home also what the file system counts for its person, who is whoever runs this.
//!
//! The launcher starts it as whoever may look, so that a mount that hangs hangs a process that can be given up, and so that looking needs no
//! privilege and no code in the privileged process. Directories are the launcher's own configuration's.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use eirene_storage::posix::{Seen, look_at, look_at_home};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(std::ffi::OsString::as_os_str).collect();
    let seen = match words[..] {
        [kind, base] if kind == "home" => look_at_home(Path::new(base)),
        [kind, base] if kind == "root" => look_at(Path::new(base), Path::new(""), true),
        [kind, base, beneath] if kind == "root" => look_at(Path::new(base), Path::new(beneath), true),
        _ => {
            let _ = writeln!(std::io::stderr(), "eirene-look home DIRECTORY | root DIRECTORY [BENEATH]");
            return ExitCode::FAILURE;
        }
    };
    let written = serde_json::to_vec(&Seen::from(seen)).map_err(std::io::Error::from);
    match written.and_then(|line| std::io::stdout().write_all(&line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
