//! The app's guard: the container's first program. It starts the app, and ends it and everything below it when the agent is gone.
//!
//! Whatever kills the agent cannot ask first. But the guard's standard input is a pipe whose other end the agent alone holds: its end
//! is the agent's end. The container's PID namespace ends with the guard, and Apptainer, which lives on, then unmounts the image. (A
//! parent-death signal, prctl(2), would kill Apptainer too, and leave the process that serves the image behind for good.)
//!
//! It also starts what is asked for from other nodes ([`programs`](crate::programs)), and buries what was left to it.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::RUNTIME;
use crate::container::{GUARD_SOCKET, WARNING};
use crate::launchers;
use crate::log::Log;
use crate::processes;
use crate::programs::{self, Children};

/// Where it is said why the app was not started, in the runtime directory.
const NOT_STARTED: &str = "not-started";
/// Longest sentence there, bytes.
const MOST_REASON: u64 = 1024;
/// Exit status when the app could not be started, as shells say it.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;
/// Exit status when the agent went away.
const EXIT_ALONE: u8 = 128 + Signal::SIGKILL as u8;

/// Runs the app until it ends or the agent does; gives the exit status to pass on. Without an app it holds the container ready.
pub async fn guard(command: &[OsString], log: &Log) -> u8 {
    let children = Children::default();
    // Outside of a container there is no such directory, and nobody asks.
    let served = children.reap_others().and_then(|()| programs::serve(Path::new(RUNTIME), &children));
    if let Err(error) = served.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }) {
        log.say(&format!("no program can be started here from other nodes: {error}"));
    }
    // Whoever started the container learns by this where its ranks may enter it. The app does not need that.
    let _shown = UnixStream::connect(Path::new(RUNTIME).join(GUARD_SOCKET)).await;
    let outcome = match command.split_first() {
        Some((program, arguments)) => run(program, arguments, &children).await,
        None => hold().await,
    };
    outcome.unwrap_or_else(|error| {
        let text = not_started(command.first().map(|program| program.to_string_lossy()).as_deref(), &error);
        // Whoever started the container tells it on; outside of one there is no such directory, and nobody asks.
        let _ = std::fs::write(Path::new(RUNTIME).join(NOT_STARTED), &text);
        log.say(&text);
        EXIT_NOT_FOUND
    })
}

/// Why a program was not started, in one sentence.
fn not_started(program: Option<&str>, error: &std::io::Error) -> String {
    match program {
        Some(program) if error.kind() == ErrorKind::NotFound && !program.contains('/') => {
            format!("the image has no `{program}`: take one that has it")
        }
        Some(program) if error.kind() == ErrorKind::NotFound => {
            format!(
                "`{program}` could not be started: it, or the interpreter that its first line names, is not in the image"
            )
        }
        Some(program) => format!("`{program}` could not be started: {error}"),
        None => format!("the container could not be held ready: {error}"),
    }
}

/// The sentence that a guard has left here about a program that was not started.
pub(crate) fn reason(runtime: &Path) -> Option<String> {
    // Programs in the container can write there: it is a file, or nothing, and as long as a sentence is.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(runtime.join(NOT_STARTED)).ok()?;
    file.metadata().ok()?.is_file().then_some(())?;
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, MOST_REASON), &mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The pipe whose other end the agent alone holds.
fn agent() -> std::io::Result<Receiver> {
    Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)
}

/// Until the agent ends, or asks.
async fn hold() -> std::io::Result<u8> {
    processes::adopt_orphans()?;
    let mut agent = agent()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut nothing = [0; 64];
    let asked = loop {
        tokio::select! {
            _ = terminate.recv() => break true,
            read = agent.read(&mut nothing) => if !matches!(read, Ok(1..)) { break false },
        }
    };
    // What ranks have left behind was adopted here.
    processes::sweep().await;
    Ok(if asked { 0 } else { EXIT_ALONE })
}

async fn run(program: &OsString, arguments: &[OsString], children: &Children) -> std::io::Result<u8> {
    processes::adopt_orphans()?;
    let mut agent = agent()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut command = Command::new(program);
    command.args(arguments).envs(launchers::path(std::env::var_os("PATH")).map(|path| ("PATH", path)));
    let mut app = children.spawn(command.stdin(Stdio::null()).process_group(0))?;
    let pid = app.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let mut asked = false;
    let mut words = [0; 64];
    loop {
        tokio::select! {
            ended = children.wait(&mut app) => return ended,
            // Apptainer passes on a signal that its whole group has got already; the app is told once.
            _ = terminate.recv(), if !asked => asked = tell(pid, Signal::SIGTERM),
            _ = interrupt.recv(), if !asked => asked = tell(pid, Signal::SIGINT),
            read = agent.read(&mut words) => {
                let Ok(count @ 1..) = read else {
                    processes::sweep().await;
                    return Ok(EXIT_ALONE);
                };
                if words[..count].contains(&WARNING) {
                    warn(pid);
                }
            }
        }
    }
}

fn warn(pid: Option<Pid>) {
    // The signal's default is to end what has no use for it.
    if let Some(pid) = pid.filter(|pid| processes::handles(*pid, Signal::SIGUSR1)) {
        // It may have ended in between.
        let _ = kill(pid, Signal::SIGUSR1);
    }
}

fn tell(pid: Option<Pid>, what: Signal) -> bool {
    // It may have ended in between.
    pid.is_some_and(|pid| kill(pid, what).is_ok())
}

/// The status, or 128 and the signal's number.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_has_not_is_said_as_such() {
        let gone = std::io::Error::from(ErrorKind::NotFound);
        assert_eq!(not_started(Some("python3"), &gone), "the image has no `python3`: take one that has it");
        assert!(not_started(Some("/home/ada/run"), &gone).starts_with("`/home/ada/run` could not be started: it, or"));
        let denied = std::io::Error::from(ErrorKind::PermissionDenied);
        assert_eq!(not_started(Some("x"), &denied), "`x` could not be started: permission denied");
    }

    #[test]
    fn a_reason_is_no_longer_than_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(reason(directory.path()), None);
        std::fs::write(directory.path().join(NOT_STARTED), "why\u{fffd}".repeat(1000)).unwrap();
        let text = reason(directory.path()).unwrap();
        assert!(text.starts_with("why") && text.len() <= 1030, "{}", text.len());
        // Nobody waits for what somebody may never say.
        std::fs::remove_file(directory.path().join(NOT_STARTED)).unwrap();
        nix::unistd::mkfifo(&directory.path().join(NOT_STARTED), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(reason(directory.path()), None);
    }
}
