//! The parent's side of a child: starts it, feeds it, listens within bounds and ends it in time.
//!
//! A child whose file system hangs cannot be ended; it is left to a thread that waits for it, and after a few of those nothing more
//! is started for that person, so one hung home never blocks the others.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use eirene_core::launcher::LauncherAnswer;
use eirene_core::text::one_line;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;

use crate::Refusal;
use crate::as_person::{NOT_DONE, Task};
use crate::as_root::{Order, Outcome};
use crate::people::Person;
use crate::places::{Place, Places};

const MOST_STDOUT_BYTES: usize = 16 * 1024 * 1024;
const MOST_STDERR_BYTES: usize = 64 * 1024;
const MOST_LINE_CHARS: usize = 300;
/// Children of one person at the same time.
pub const MOST_CHILDREN: usize = 8;
const EXIT_POLL: Duration = Duration::from_millis(2);

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit status; -1 when ended by a signal.
    pub status: i32,
    /// Standard output, cut.
    pub stdout: Vec<u8>,
    /// Standard error, cut.
    pub stderr: Vec<u8>,
}

impl From<Ended> for LauncherAnswer {
    fn from(ended: Ended) -> Self {
        Self::Ran {
            status: ended.status,
            stdout: String::from_utf8_lossy(&ended.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        }
    }
}

/// How a new process becomes the person; what it reads and writes is the caller's to say.
pub fn as_person(person: &Person) -> Command {
    let mut command = of_this_program();
    command
        .arg("as-person")
        .arg(format!("--name={}", person.name))
        .arg(format!("--uid={}", person.uid))
        .arg(format!("--gid={}", person.gid))
        .arg(format!("--launcher={}", std::process::id()));
    command
}

/// This program once more, with nothing of this process's surroundings and a group of its own.
fn of_this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env_clear().current_dir("/").process_group(0);
    command
}

/// A place for one more child of the person's.
pub fn take(places: &Places, person: &Person) -> Result<Place, Refusal> {
    let place = places.take(person.uid);
    place.ok_or_else(|| Refusal::away(format!("earlier calls for `{}` have not ended yet", person.name)))
}

/// Does a task as the person. `input` goes to the program behind the task.
pub fn run(places: &Places, person: &Person, task: &Task, input: &str, limit: Duration) -> Result<Ended, Refusal> {
    carry_out(as_person(person), take(places, person)?, person.name.as_str(), task, input, limit)
}

/// Does what is ordered in a root of spaces, as root.
pub fn as_root(place: Place, order: &Order, limit: Duration) -> Result<Outcome, Refusal> {
    let mut command = of_this_program();
    command.arg("as-root").arg(format!("--launcher={}", std::process::id()));
    let ended = carry_out(command, place, "root", order, "", limit)?;
    serde_json::from_slice(&ended.stdout).map_err(|_| Refusal::away("what was done in a root was cut short"))
}

fn carry_out(
    mut command: Command,
    place: Place,
    who: &str,
    task: &impl Serialize,
    input: &str,
    limit: Duration,
) -> Result<Ended, Refusal> {
    let failed = |error: io::Error| Refusal::away(format!("could not act as `{who}`: {error}"));
    let task = serde_json::to_vec(task).map_err(|error| failed(error.into()))?;
    let message = [(task.len() as u64).to_be_bytes().as_slice(), &task, input.as_bytes()].concat();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    match converse(&mut child, &message, Instant::now() + limit) {
        Ok(ended) if ended.status == i32::from(NOT_DONE) => Err(Refusal::failed(reason(&ended.stderr))),
        Ok(ended) => Ok(ended),
        Err(error) => {
            end(child, place);
            if error.kind() == io::ErrorKind::TimedOut {
                Err(Refusal::away(format!("acting as `{who}` took longer than {} s", limit.as_secs())))
            } else {
                Err(failed(error))
            }
        }
    }
}

fn reason(stderr: &[u8]) -> String {
    stderr
        .split(|byte| *byte == b'\n')
        .next()
        .filter(|line| !line.is_empty())
        .map_or("no reason given".into(), printable)
}

/// A line that somebody else wrote, fit for a log or an answer.
pub fn printable(line: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(line), MOST_LINE_CHARS)
}

/// Kills the child with all it started; a thread waits for it and gives back its place.
fn end(mut child: Child, place: Place) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have ended by itself in the meantime.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    std::thread::spawn(move || {
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "could not wait for a child");
        }
        drop(place);
    });
}

/// Writes and reads until the child has closed its output and ended.
fn converse(child: &mut Child, message: &[u8], deadline: Instant) -> io::Result<Ended> {
    let mut stdin = child.stdin.take().map(|pipe| nonblocking(pipe.into())).transpose()?;
    let mut outputs = [
        (child.stdout.take().map(|pipe| nonblocking(pipe.into())).transpose()?, Vec::new(), MOST_STDOUT_BYTES),
        (child.stderr.take().map(|pipe| nonblocking(pipe.into())).transpose()?, Vec::new(), MOST_STDERR_BYTES),
    ];
    let mut unsent = message;
    while outputs.iter().any(|(pipe, ..)| pipe.is_some()) {
        wait_for_any(stdin.as_ref(), outputs.iter().filter_map(|(pipe, ..)| pipe.as_ref()), deadline)?;
        if let Some(pipe) = &mut stdin
            && !write_some(pipe, &mut unsent)?
        {
            stdin = None;
        }
        for (pipe, text, limit) in &mut outputs {
            if let Some(open) = pipe
                && !read_some(open, text, *limit)?
            {
                *pipe = None;
            }
        }
    }
    drop(stdin);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        left(deadline)?;
        std::thread::sleep(EXIT_POLL);
    };
    let status = if status.signal().is_some() { -1 } else { status.code().unwrap_or(-1) };
    let [(_, stdout, _), (_, stderr, _)] = outputs;
    Ok(Ended { status, stdout, stderr })
}

pub(crate) fn nonblocking(pipe: OwnedFd) -> io::Result<File> {
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(File::from(pipe))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or_else(|| io::ErrorKind::TimedOut.into())
}

fn wait_for_any<'a>(
    stdin: Option<&File>,
    outputs: impl Iterator<Item = &'a File>,
    deadline: Instant,
) -> io::Result<()> {
    let mut pipes: Vec<PollFd<'_>> = outputs.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
    pipes.extend(stdin.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
    let left = left(deadline)?.as_millis().saturating_add(1);
    match poll(&mut pipes, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes what the pipe takes now; false when all is written or nobody reads.
fn write_some(pipe: &mut File, unsent: &mut &[u8]) -> io::Result<bool> {
    match pipe.write(unsent) {
        Ok(written) => {
            *unsent = &unsent[written..];
            Ok(!unsent.is_empty())
        }
        Err(error) if would_wait(&error) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads what the pipe holds now, keeping no more than `limit` bytes; false at its end.
fn read_some(pipe: &mut File, text: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    match pipe.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(read) => {
            let kept = read.min(limit - text.len());
            text.extend_from_slice(&buffer[..kept]);
            Ok(true)
        }
        Err(error) if would_wait(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

pub(crate) fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str) -> Child {
        Command::new("/bin/sh")
            .args(["-c", script])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn more_than_a_pipe_holds_goes_through_both_ways() {
        let message = vec![b'x'; 1_000_000];
        let ended = converse(&mut start("cat; echo oops >&2; exit 3"), &message, soon()).unwrap();
        assert_eq!((ended.status, ended.stdout.len(), ended.stderr.as_slice()), (3, 1_000_000, b"oops\n".as_slice()));
    }

    #[test]
    fn output_is_cut_and_a_program_that_reads_nothing_is_no_error() {
        let script = "exec <&-; head -c 20000000 /dev/zero; head -c 200000 /dev/zero >&2";
        let ended = converse(&mut start(script), &vec![b'x'; 200_000], soon()).unwrap();
        assert_eq!((ended.status, ended.stdout.len(), ended.stderr.len()), (0, MOST_STDOUT_BYTES, MOST_STDERR_BYTES));
    }

    #[test]
    fn a_signal_is_a_status_of_its_own() {
        assert_eq!(converse(&mut start("kill -9 $$"), b"", soon()).unwrap().status, -1);
    }

    #[test]
    fn a_child_that_hangs_is_ended_with_its_own_children() {
        let places = Places::new(MOST_CHILDREN, usize::MAX);
        let mut child = start("sleep 1000 & echo $!; wait");
        let place = places.take(2001).unwrap();
        let mut grandchild = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut grandchild).unwrap();
        let error = converse(&mut child, b"", Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        end(child, place);
        let until = soon();
        let gone = || {
            std::fs::read_to_string(format!("/proc/{}/stat", grandchild.trim()))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !(gone() && places.are_free()) {
            assert!(Instant::now() < until);
            std::thread::sleep(EXIT_POLL);
        }
    }
}
