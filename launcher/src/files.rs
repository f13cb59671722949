//! A person's file process: started as the person, its channel handed to the portal, waited for to the end.
//!
//! The process lives for minutes to hours, so it is no child of the connection that asked for it. Each has a thread of its own here, because
//! the kernel takes the end of the *thread* that started a process for the parent's: a process whose starter ends is killed. The launcher
//! knows nothing of what is said on the channel; it writes the task into it, before the portal has it, and keeps no copy.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use eirene_core::Username;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tracing::Span;

use crate::Refusal;
use crate::as_person::Task;
use crate::child::{self, printable};
use crate::people::Person;
use crate::places::Places;
use crate::program;

/// Of one person: the one in use, and one that is ending.
pub const MOST_EACH: usize = 2;
/// How long starting may take, which is no more than a fork and two packets.
const START_LIMIT: Duration = Duration::from_secs(10);
/// When memory is short, a file process goes before the portal and before a launcher.
const OOM_SCORE_ADJ: &str = "500";
/// What a process may say on its standard error in a minute before nobody listens any more. Healthy ones say nothing but why they end.
const MOST_LINES: usize = 64;
const MOST_BYTES: usize = 64 * 1024;
const MINUTE: Duration = Duration::from_mins(1);

/// Starts the file process of `person`; gives the portal's end of its channel. `ended` is told its status and how long it lived.
pub fn open(
    places: &Places,
    person: &Person,
    program: &Path,
    ended: impl FnOnce(i32, Duration) + Send + 'static,
) -> Result<OwnedFd, Refusal> {
    let failed = |error: io::Error| Refusal::away(format!("could not act as `{}`: {error}", person.name));
    // Said here, where somebody hears it. The child looks again, at what it then executes.
    program::open_trusted(program).map_err(|error| Refusal::failed(error.to_string()))?;
    let place = places.take(person.uid).ok_or_else(|| {
        Refusal::away(format!(
            "earlier file processes for `{}`, or those of all people, have not ended yet",
            person.name
        ))
    })?;
    let task = task(person, program).map_err(failed)?;
    let (sender, receiver) = sync_channel(1);
    let (somebody, begun, span) = (person.clone(), Instant::now(), Span::current());
    let attend = move || {
        // What is logged of it until it ends says for what it was started.
        let _within = span.entered();
        match start(&somebody, &task) {
            Err(error) => drop(sender.send(Err(error))),
            Ok((child, channel)) => {
                // Where nobody waits any more the channel is closed here, and the process ends.
                drop(sender.send(Ok(channel)));
                let status = attend(child, &somebody.name);
                ended(status, begun.elapsed());
                drop(place);
            }
        }
    };
    std::thread::Builder::new().name("files".to_owned()).spawn(attend).map_err(failed)?;
    let started = receiver.recv_timeout(START_LIMIT);
    started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)
}

fn task(person: &Person, program: &Path) -> io::Result<Vec<u8>> {
    let (name, home) = (person.name.to_string(), person.home.display().to_string());
    let environment = [("HOME", home.as_str()), ("USER", &name), ("LOGNAME", &name), ("LANG", "C.UTF-8")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Ok(serde_json::to_vec(&Task::Become { program: program.to_owned(), environment })?)
}

fn start(person: &Person, task: &[u8]) -> io::Result<(Child, OwnedFd)> {
    let (theirs, portals) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    // In one statement: the command holds the child's end, and a channel ends only when nobody holds it.
    let mut child = child::as_person(person).stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // The child waits for its task as long as we write here, and as a person it could not do this itself.
    if let Err(error) = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), OOM_SCORE_ADJ) {
        tracing::warn!(%error, "could not have a file process go first when memory is short");
    }
    // A packet is read whole, so what is read in two steps goes in two packets.
    let sent = [(task.len() as u64).to_be_bytes().as_slice(), task]
        .into_iter()
        .try_for_each(|packet| send(portals.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL).map(drop));
    if let Err(error) = sent {
        let _ = child.kill();
        child.wait()?;
        return Err(error.into());
    }
    Ok((child, portals))
}

/// Waits until the process has ended, and gives its status; -1 when it was ended by a signal.
fn attend(mut child: Child, name: &Username) -> i32 {
    let stderr = child.stderr.take();
    let Ok((ended, alive)) = io::pipe() else { return finish(&mut child) };
    std::thread::scope(|threads| {
        if let Some(stderr) = stderr {
            let (listening, span) = (std::thread::Builder::new().name("files-log".to_owned()), Span::current());
            if let Err(error) = listening.spawn_scoped(threads, move || span.in_scope(|| listen(stderr, &ended, name)))
            {
                tracing::warn!(%error, "nobody listens to a file process");
            }
        }
        let status = finish(&mut child);
        // Whoever else still has its standard error is not waited for.
        drop(alive);
        status
    })
}

fn finish(child: &mut Child) -> i32 {
    let pid = Pid::from_raw(child.id().cast_signed());
    // Left unreaped for a moment, so that its group's number is still its own.
    while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
    let _ = killpg(pid, Signal::SIGKILL);
    match child.wait() {
        Ok(status) if status.signal().is_none() => status.code().unwrap_or(-1),
        Ok(_) => -1,
        Err(error) => {
            tracing::warn!(%error, "could not wait for a file process");
            -1
        }
    }
}

/// Logs what the process says on its standard error until it ends or says too much.
fn listen(stderr: ChildStderr, ended: &PipeReader, name: &Username) {
    let Ok(mut stderr) = child::nonblocking(stderr.into()) else { return };
    let mut said = Said::new(Instant::now());
    loop {
        let mut pipes = [PollFd::new(stderr.as_fd(), PollFlags::POLLIN), PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
        match poll(&mut pipes, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let has_ended = pipes[1].any() == Some(true);
        let mut buffer = [0; 4096];
        let read = match stderr.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if child::would_wait(&error) && !has_ended => continue,
            Err(_) => return,
        };
        let (lines, too_much) = said.hear(&buffer[..read], Instant::now());
        for line in lines {
            tracing::warn!(person = %name, "a file process says: {line}");
        }
        if too_much {
            // Closed: what it writes from now on is lost, and holds nobody up.
            return tracing::warn!(person = %name, "a file process says too much, and is not listened to any longer");
        }
    }
}

/// What a process said within a minute.
struct Said {
    since: Instant,
    lines: usize,
    bytes: usize,
    unfinished: Vec<u8>,
}

impl Said {
    fn new(now: Instant) -> Self {
        Self { since: now, lines: 0, bytes: 0, unfinished: Vec::new() }
    }

    /// The lines that these bytes complete, fit for a log, and whether that was too much.
    fn hear(&mut self, bytes: &[u8], now: Instant) -> (Vec<String>, bool) {
        if now.saturating_duration_since(self.since) >= MINUTE {
            (self.since, self.lines, self.bytes) = (now, 0, 0);
        }
        self.bytes += bytes.len();
        self.unfinished.extend_from_slice(bytes);
        let end = self.unfinished.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.unfinished.split_off(end);
        let whole = std::mem::replace(&mut self.unfinished, rest);
        let mut lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let heard: Vec<String> = lines.by_ref().take(MOST_LINES - self.lines).map(printable).collect();
        self.lines += heard.len();
        // What gets no end counts, too, and grows no further than a minute's bytes.
        let too_much = lines.next().is_some() || self.bytes > MOST_BYTES || self.unfinished.len() > MOST_BYTES;
        (heard, too_much)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cleaned_and_cut_however_they_arrive() {
        let begun = Instant::now();
        let mut said = Said::new(begun);
        assert_eq!(said.hear(b"one\ntw", begun), (vec!["one".to_owned()], false));
        assert_eq!(said.hear(b"o\x1b[2J\r\xff\n\n", begun), (vec!["two\u{fffd}[2J \u{fffd}".to_owned()], false));
        let long = [vec![b'x'; 5000], b"\n".to_vec()].concat();
        assert_eq!(said.hear(&long, begun).0[0].len(), 300);
    }

    #[test]
    fn so_much_in_a_minute_and_no_more() {
        let begun = Instant::now();
        let mut said = Said::new(begun);
        let heard = said.hear(&b"x\n".repeat(MOST_LINES), begun);
        assert_eq!((heard.0.len(), heard.1), (MOST_LINES, false));
        assert!(!said.hear(b"x\n", begun + MINUTE).1, "the next minute");
        let heard = said.hear(&b"x\n".repeat(10 * MOST_LINES), begun + MINUTE);
        assert_eq!((heard.0.len(), heard.1), (MOST_LINES - 1, true), "one was said before");
        let mut said = Said::new(begun);
        let enough = (0..17).position(|_| said.hear(&[b'x'; 4096], begun).1);
        assert_eq!(enough, Some(16), "a line without end is too much, too");
        let mut said = Said::new(begun);
        let enough = (0..17).position(|minute| said.hear(&[b'x'; 4096], begun + minute * MINUTE).1);
        assert_eq!(enough, Some(16), "however slowly it comes");
    }
}
