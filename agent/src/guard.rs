//! The app's guard: the container's first program. It starts the app, and ends it and everything below it when the agent is gone.
//!
//! Whatever kills the agent cannot ask first. But the guard's standard input is a pipe whose other end the agent alone holds: its end
//! is the agent's end. The container's PID namespace ends with the guard, and Apptainer, which lives on, then unmounts the image. (A
//! parent-death signal, prctl(2), would kill Apptainer too, and leave the process that serves the image behind for good.)
//!
//! It also starts what is asked for from other nodes ([`programs`](crate::programs)), and buries what was left to it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

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

/// Exit status when the app could not be started, as shells say it.
const EXIT_NOT_FOUND: u8 = 127;
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
        let what = command.first().map_or("the container".into(), |program| program.to_string_lossy());
        log.say(&format!("the app could not be started: {what}: {error}"));
        EXIT_NOT_FOUND
    })
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
