//! Keeps a container's image mounted until its programs have ended.
//!
//! Where Apptainer runs without privileges, a process of the person's serves the image (FUSE): `squashfuse_ll`. SLURM sends SIGTERM to every
//! process of a job when it is cancelled, preempted or at its time limit, and with that process the files go from under programs that are
//! just writing their last checkpoint: the kernel kills them (SIGBUS). libfuse(3) leaves a signal alone that is ignored when it starts, so the
//! agent puts itself before that program in Apptainer's PATH, ignores the signal and becomes the program. It ends when Apptainer unmounts.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::execv;

/// Programs that serve images, as Apptainer looks for them.
const SERVERS: [&str; 2] = ["squashfuse_ll", "squashfuse"];
/// Where in the agent's own runtime directory they stand.
const DIRECTORY: &str = "mount";

/// What the link to the program itself has behind its name.
const PROGRAM: &str = ".program";

/// Whether this process was started under the name of such a program.
pub fn is_server(own: &OsStr) -> bool {
    Path::new(own).file_name().is_some_and(|own| SERVERS.iter().any(|name| own == OsStr::new(name)))
}

/// Makes the stand-ins in a runtime directory; gives the PATH with which Apptainer finds them first.
pub(crate) fn prepare(directory: &Path, path: &str) -> io::Result<String> {
    let own = directory.join(DIRECTORY);
    std::fs::create_dir_all(&own)?;
    let agent = std::env::current_exe()?;
    for name in SERVERS {
        // Without the program there is nothing to stand in for, and Apptainer has another way.
        if let Some(program) = find(name, path, &agent) {
            // Apptainer gives its programs no PATH.
            link(&program, &own.join(format!("{name}{PROGRAM}")))?;
            link(&agent, &own.join(name))?;
        }
    }
    Ok(format!("{}:{path}", own.display()))
}

fn link(to: &Path, at: &Path) -> io::Result<()> {
    match std::os::unix::fs::symlink(to, at) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Becomes the program for which this process stands in, without a use for SIGTERM: `words` are its own name and its arguments. Returns only if
/// that fails.
pub fn serve_image(words: &[OsString]) -> io::Result<Infallible> {
    let (own, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut program = own.clone();
    program.push(PROGRAM);
    let program = std::fs::read_link(program)?;
    ignore(Signal::SIGTERM)?;
    let text = |word: &OsStr| CString::new(word.as_bytes()).map_err(io::Error::from);
    let mut arguments = vec![text(program.as_os_str())?];
    for word in rest {
        arguments.push(text(word)?);
    }
    // Not std's, which sets signals back.
    execv(&CString::new(program.into_os_string().into_vec())?, &arguments).map_err(io::Error::from)
}

/// The program of this name in PATH that is not the agent itself.
fn find(name: &str, path: &str, agent: &Path) -> Option<PathBuf> {
    let candidates = path.split(':').filter(|directory| !directory.is_empty()).map(|place| Path::new(place).join(name));
    candidates.into_iter().find(|candidate| {
        candidate.is_file() && candidate.canonicalize().is_ok_and(|real| Some(real) != agent.canonicalize().ok())
    })
}

#[expect(unsafe_code, reason = "sigaction(2): there is no handler that could run")]
fn ignore(what: Signal) -> io::Result<()> {
    // SAFETY: ignoring a signal runs none of our code.
    unsafe { signal(what, SigHandler::SigIgn) }.map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_are_there_get_a_stand_in_and_it_is_not_taken_for_the_program() {
        let (runtime, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = bin.path().join("squashfuse_ll");
        std::fs::write(&program, "").unwrap();
        let before = format!("/nowhere::{}", bin.path().display());
        let path = prepare(runtime.path(), &before).unwrap();
        assert_eq!(prepare(runtime.path(), &before).unwrap(), path, "again");
        let own = runtime.path().join(DIRECTORY);
        assert_eq!(path, format!("{}:{before}", own.display()));
        let agent = std::env::current_exe().unwrap();
        assert_eq!(own.join("squashfuse_ll").canonicalize().unwrap(), agent.canonicalize().unwrap());
        assert!(!own.join("squashfuse").exists());
        assert_eq!(find("squashfuse_ll", &path, &agent).as_ref(), Some(&program));
        assert_eq!(std::fs::read_link(own.join("squashfuse_ll.program")).unwrap(), program);
        assert_eq!(find("squashfuse", &path, &agent), None);
        assert!(is_server(OsStr::new("/x/squashfuse_ll")) && !is_server(OsStr::new("/x/eirene-agent")));
    }
}
