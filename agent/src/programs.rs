//! Programs that the container's first program starts when it is asked: those of other nodes' launchers, which come as tasks of SLURM's.
//!
//! They are the container's: they have its environment, and what they leave running is adopted by its first program, lives as long as the session
//! does and is seen, limited and counted with it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eirene_steps::{Answer, Descriptors, Program, Request};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::guard::code;
use crate::launchers;
use crate::processes;
use crate::steps::{Asker, listen};

/// Name of the socket in the runtime directory.
pub(crate) const PROGRAMS_SOCKET: &str = "programs.sock";

/// Time between hanging a program up and killing it.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two looks whether all of it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The children that are waited for; every other child was adopted. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children(Arc<Mutex<BTreeSet<i32>>>);

impl Children {
    /// Starts one. It is to be [waited for](Self::wait).
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut own = self.own();
        let child = command.spawn()?;
        own.extend(number(&child));
        Ok(child)
    }

    /// Waits for one's end, and gives how it ended. Can be cancelled.
    pub(crate) async fn wait(&self, child: &mut Child) -> io::Result<u8> {
        let number = number(child);
        let ended = child.wait().await;
        if let Some(number) = number {
            self.own().remove(&number);
        }
        ended.map(code)
    }

    /// From now on adopted children that have ended are taken leave of: a session lasts, and their numbers are limited.
    pub(crate) fn reap_others(&self) -> io::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        let children = self.clone();
        tokio::spawn(async move {
            while ended.recv().await.is_some() {
                let own = children.own();
                for pid in processes::ended_children().into_iter().filter(|pid| !own.contains(pid)) {
                    // Whoever was faster has done it.
                    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
                }
            }
        });
        Ok(())
    }

    fn own(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(child: &Child) -> Option<i32> {
    child.id().and_then(|id| i32::try_from(id).ok())
}

/// Serves whoever asks for programs at the socket in this directory.
pub(crate) fn serve(directory: &Path, children: &Children) -> io::Result<()> {
    let path = directory.join(PROGRAMS_SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let children = children.clone();
    listen(&path, nix::unistd::geteuid().as_raw(), move |asker, request, standard| {
        one(children.clone(), asker, request, standard)
    })
}

async fn one(children: Children, mut asker: Asker, request: Request, standard: Descriptors) {
    let refused = |code: &str, text: String| Answer::Refused { code: code.to_owned(), text };
    let last = match request {
        Request::Remote(request) => run(&children, &mut asker, request.program, standard)
            .await
            .unwrap_or_else(|error| refused("not_started", format!("the shell could not be started: {error}"))),
        Request::Step(_) => refused("not_here", "steps are started at the session's step socket".to_owned()),
    };
    // Who has gone needs no answer.
    let _ = asker.say(&last).await;
}

async fn run(children: &Children, asker: &mut Asker, program: Program, standard: Descriptors) -> io::Result<Answer> {
    let Descriptors([input, output, errors]) = standard;
    let mut command = Command::new(shell());
    // One argument, whatever is in it; without any, the shell reads what it is given.
    if !program.command.is_empty() {
        command.arg("-c").arg(program.command.join(" "));
    }
    command.envs(launchers::path(std::env::var_os("PATH")).map(|path| ("PATH", path))).envs(program.environment);
    if !program.directory.is_empty() {
        command.current_dir(program.directory);
    }
    // A group of its own, so that what it starts is hung up with it.
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors)).process_group(0);
    let mut child = children.spawn(&mut command)?;
    // The descriptors are the program's alone now.
    drop(command);
    let group = number(&child).map(Pid::from_raw);
    let status = tokio::select! {
        status = children.wait(&mut child) => status?,
        () = asker.gone() => hang_up(children, &mut child, group).await?,
    };
    Ok(Answer::Ended { status })
}

/// Ends a program whose connection is gone, with all that has not left its group.
async fn hang_up(children: &Children, child: &mut Child, group: Option<Pid>) -> io::Result<u8> {
    let tell = |signal| {
        // It may have ended in between.
        let _ = group.map(|group| killpg(group, signal));
    };
    tell(Signal::SIGHUP);
    let limit = Instant::now() + GRACE;
    let ended = tokio::time::timeout_at(limit, children.wait(child)).await.ok();
    // What the shell has started may take its time as well. A group's number is nobody else's as long as one of it is there.
    while ended.is_some() && group.is_some_and(|group| killpg(group, None).is_ok()) && Instant::now() < limit {
        tokio::time::sleep(LOOK).await;
    }
    if ended.is_none() || group.is_some_and(|group| killpg(group, None).is_ok()) {
        tell(Signal::SIGKILL);
    }
    match ended {
        Some(status) => status,
        None => children.wait(child).await,
    }
}

/// The person's shell where the container has it, as sshd starts it.
fn shell() -> OsString {
    let own = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute() && Path::new(shell).is_file());
    own.unwrap_or_else(|| "/bin/sh".into())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _};
    use std::os::fd::AsFd as _;
    use std::path::PathBuf;

    use eirene_steps::RemoteRequest;

    use super::*;

    const WITHIN: Duration = Duration::from_mins(2);

    /// A connection, and what its program writes.
    struct Asked(eirene_steps::Asker, PipeReader);

    impl Asked {
        fn new(directory: &Path, line: &str) -> Self {
            let (reader, writer) = std::io::pipe().unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            let program = Program { command: vec![line.to_owned()], ..Program::default() };
            let request = Request::Remote(RemoteRequest { node: "c2".into(), program });
            let standard = [null.as_fd(), writer.as_fd(), writer.as_fd()];
            let asker = eirene_steps::Asker::ask(&directory.join(PROGRAMS_SOCKET), &request, &standard).unwrap();
            Self(asker, reader)
        }

        fn line(&mut self) -> String {
            let mut line = Vec::new();
            let mut byte = [0];
            while self.1.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
                line.push(byte[0]);
            }
            String::from_utf8(line).unwrap()
        }
    }

    async fn gone(pid: &str) {
        let process = PathBuf::from(format!("/proc/{pid}/root"));
        tokio::time::timeout(WITHIN, async {
            // A process that has ended has no root any more, whoever has yet to wait for it.
            while std::fs::read_link(&process).is_ok() {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await
        .unwrap();
    }

    fn serving() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        serve(directory.path(), &Children::default()).unwrap();
        directory
    }

    #[tokio::test]
    async fn a_program_has_its_own_status_and_its_line_is_one_argument() {
        let directory = serving();
        let path = directory.path().to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let mut asked = Asked::new(&path, "printf '%s|' \"a  b\" '*' \"$((6 * 7))\"; echo; exit 7");
            (asked.line(), asked.0.hear().unwrap())
        });
        let (line, last) = tokio::time::timeout(WITHIN, asked).await.unwrap().unwrap();
        assert_eq!((line.as_str(), last), ("a  b|*|42|", Answer::Ended { status: 7 }));
    }

    #[tokio::test]
    async fn with_its_connection_a_program_ends_and_what_has_made_itself_independent_stays() {
        let directory = serving();
        let path = directory.path().to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let line = "trap '' HUP; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; echo $$; wait";
            let mut asked = Asked::new(&path, line);
            let pids = [asked.line(), asked.line(), asked.line()];
            (asked, pids)
        });
        let (asked, [child, daemon, shell]) = tokio::time::timeout(WITHIN, asked).await.unwrap().unwrap();
        drop(asked);
        gone(&shell).await;
        gone(&child).await;
        assert!(std::fs::read_link(format!("/proc/{daemon}/root")).is_ok(), "a daemon was ended with the connection");
        nix::sys::signal::kill(Pid::from_raw(daemon.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
}
