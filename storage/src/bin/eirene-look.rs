//! `eirene-look home DIRECTORY [BENEATH]`, `eirene-look own DIRECTORY BENEATH` or `eirene-look root DIRECTORY [BENEATH [PROJECT]]`: looks at a
//! directory's file system and writes what it saw, as JSON; of a home itself and of one's own space also what the file system counts for its person,
//! who is whoever runs this. PROJECT is the number of the project that the directory
//! has, with `+` behind it where what is made there gets it, too: whoever may open the directory sees it, others are told it by who may.
//!
//! The launcher starts it as whoever may look, so that a mount that hangs hangs a process that can be given up, and so that looking needs no
//! privilege and no code in the privileged process. Directories are the launcher's own configuration's.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use eirene_storage::posix::{Look, Project, Seen, look_at, look_at_own};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(std::ffi::OsString::as_os_str).collect();
    let seen = match words[..] {
        [kind, base] if kind == "home" => look_at_own(Path::new(base), Path::new("")),
        [kind, base, beneath] if kind == "own" => look_at_own(Path::new(base), Path::new(beneath)),
        [kind, base, beneath] if kind == "home" => look_at(Path::new(base), Path::new(beneath), false),
        [kind, base] if kind == "root" => look_at(Path::new(base), Path::new(""), true),
        [kind, base, beneath] if kind == "root" => look_at(Path::new(base), Path::new(beneath), true),
        [kind, base, beneath, told] if kind == "root" => {
            let Some(told) = project(told) else { return usage() };
            let seen = look_at(Path::new(base), Path::new(beneath), true);
            seen.map(|look| Look { project: look.project.or(Some(told)), ..look })
        }
        _ => return usage(),
    };
    let written = serde_json::to_vec(&Seen::from(seen)).map_err(std::io::Error::from);
    match written.and_then(|line| std::io::stdout().write_all(&line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    let _ = writeln!(
        std::io::stderr(),
        "eirene-look home DIRECTORY [BENEATH] | own DIRECTORY BENEATH | root DIRECTORY [BENEATH [PROJECT]]"
    );
    ExitCode::FAILURE
}

fn project(told: &OsStr) -> Option<Project> {
    let told = told.to_str()?;
    let (id, inherited) = told.strip_suffix('+').map_or((told, false), |id| (id, true));
    let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
    Some(Project { id: id.parse().ok().filter(|_| is_number)?, inherited })
}
