//! The socket: who may connect, how much may be said, and how it ends.
//!
//! One thread a connection, a bounded number of them; a client may keep its connection. A request that was begun must be complete
//! within seconds and within its size, or the connection is closed.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use eirene_core::launcher::MAX_REQUEST_BYTES;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use nix::unistd::User;

use crate::Refusal;
use crate::audit::Peer;
use crate::verbs::{Answered, Verbs};

const MOST_CONNECTIONS: usize = 64;
/// How long a request may take to arrive, and an answer to be taken.
const LINE_LIMIT: Duration = Duration::from_secs(10);
/// How long calls may go on after the end was asked for, longer than any of them takes; whatever they started ends with the launcher.
const END_LIMIT: Duration = Duration::from_secs(17);
/// Pause after an accept that failed: without descriptors the connection stays in the queue, and the next one fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What is going on.
#[derive(Default)]
struct Load {
    connections: AtomicUsize,
    calls: AtomicUsize,
}

/// Counts one while it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Serves until SIGTERM or SIGINT; then takes no more, lets running calls end and removes the socket.
pub fn serve(path: &Path, peer: &User, verbs: &Arc<Verbs>) -> io::Result<()> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    // Before any thread is started, so that all of them inherit it; children unblock everything when they begin.
    ends.thread_block()?;
    let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC)?;
    let listener = listen(path, peer)?;
    let load = Arc::new(Load::default());
    tracing::info!(path = %path.display(), "listening");
    while accept_or_end(&listener, &signals)? {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, peer.uid.as_raw(), verbs, &load),
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
    std::fs::remove_file(path)?;
    drop(listener);
    let deadline = Instant::now() + END_LIMIT;
    while load.calls.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    tracing::info!("ended");
    Ok(())
}

/// Makes the socket, for root and the peer's group; removes one that nobody listens on any more.
fn listen(path: &Path, peer: &User) -> io::Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::other(format!("`{}` is there and is no socket", path.display())));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::other(format!("another launcher listens on `{}`", path.display())));
        }
        std::fs::remove_file(path)?;
    }
    // Closed to everybody until it belongs to the right group.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    chown(path, None, Some(peer.gid.as_raw()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Waits; false when the end was asked for.
fn accept_or_end(listener: &UnixListener, signals: &SignalFd) -> io::Result<bool> {
    loop {
        let mut waited =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        if waited[0].any() == Some(true) {
            return Ok(false);
        }
        if waited[1].any() == Some(true) {
            return Ok(true);
        }
    }
}

/// Checks who connected, and serves the connection in a thread of its own.
fn admit(stream: UnixStream, allowed_uid: u32, verbs: &Arc<Verbs>, load: &Arc<Load>) {
    let peer = match getsockopt(&stream, PeerCredentials) {
        Ok(credentials) => Peer { uid: credentials.uid(), pid: credentials.pid() },
        Err(error) => return tracing::warn!(%error, "could not ask who connected"),
    };
    let refusal = if peer.uid != allowed_uid {
        Some("only the portal's own user may connect")
    } else if load.connections.load(Ordering::SeqCst) >= MOST_CONNECTIONS {
        Some("too many connections")
    } else {
        None
    };
    if let Some(text) = refusal {
        // Whoever it is gets the connection closed and no answer; the audit log has it.
        verbs.refuse(peer, "connect", Refusal::bad_request(text));
        return;
    }
    let (verbs, load) = (Arc::clone(verbs), Arc::clone(load));
    let started = std::thread::Builder::new().name("connection".to_owned()).spawn(move || {
        let _connection = Counted::new(&load.connections);
        if let Err(error) = converse(&stream, peer, &verbs, &load) {
            tracing::warn!(%error, "a connection broke");
        }
    });
    if let Err(error) = started {
        tracing::error!(%error, "could not start a thread");
    }
}

fn converse(stream: &UnixStream, peer: Peer, verbs: &Verbs, load: &Load) -> io::Result<()> {
    stream.set_write_timeout(Some(LINE_LIMIT))?;
    let mut unread = Vec::new();
    loop {
        let answer = match read_line(stream, &mut unread, LINE_LIMIT)? {
            Line::End => return Ok(()),
            Line::Whole(line) => {
                let _call = Counted::new(&load.calls);
                let answer = verbs.answer(peer, &line);
                // Counted until the answer is out.
                send(stream, &answer)?;
                continue;
            }
            Line::Bad(text) => verbs.refuse(peer, "unknown", Refusal::bad_request(text)),
        };
        return send(stream, &answer);
    }
}

fn send(mut stream: &UnixStream, answered: &Answered) -> io::Result<()> {
    let mut line = serde_json::to_vec(&answered.answer)?;
    line.push(b'\n');
    let mut sent = 0;
    if let Some(descriptor) = &answered.descriptor {
        // It goes with the first byte; the copy that stays here is closed with the answer.
        let rights = [descriptor.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&rights)];
        sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&line)], &with, MsgFlags::MSG_NOSIGNAL, None)?;
    }
    stream.write_all(&line[sent..])
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole(Vec<u8>),
    Bad(&'static str),
    End,
}

/// Reads one line; waits for its first byte as long as it takes, for the rest no longer than `limit`.
fn read_line(mut stream: &UnixStream, unread: &mut Vec<u8>, limit: Duration) -> io::Result<Line> {
    let mut deadline = (!unread.is_empty()).then(|| Instant::now() + limit);
    let mut searched = 0;
    loop {
        if let Some(end) = unread[searched..].iter().position(|byte| *byte == b'\n').map(|at| at + searched) {
            if end >= MAX_REQUEST_BYTES {
                return Ok(Line::Bad("the request is too long"));
            }
            let rest = unread.split_off(end + 1);
            let mut line = std::mem::replace(unread, rest);
            line.pop();
            return Ok(Line::Whole(line));
        }
        if unread.len() >= MAX_REQUEST_BYTES {
            return Ok(Line::Bad("the request is too long"));
        }
        searched = unread.len();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Line::Bad("the request took too long"));
        }
        stream.set_read_timeout(left)?;
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer) {
            Ok(0) if unread.is_empty() => return Ok(Line::End),
            Ok(0) => return Ok(Line::Bad("the request was cut off")),
            Ok(read) => {
                deadline.get_or_insert_with(|| Instant::now() + limit);
                unread.extend_from_slice(&buffer[..read]);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn lines_are_split_however_they_arrive() {
        let (ours, mut theirs) = pair();
        let mut unread = Vec::new();
        theirs.write_all(b"one\ntwo\nthr").unwrap();
        let next = |unread: &mut Vec<u8>| read_line(&ours, unread, Duration::from_mins(1)).unwrap();
        assert_eq!(next(&mut unread), Line::Whole(b"one".to_vec()));
        assert_eq!(next(&mut unread), Line::Whole(b"two".to_vec()));
        theirs.write_all(b"ee\n").unwrap();
        assert_eq!(next(&mut unread), Line::Whole(b"three".to_vec()));
        theirs.write_all(b"half").unwrap();
        drop(theirs);
        assert_eq!(next(&mut unread), Line::Bad("the request was cut off"));
    }

    #[test]
    fn a_closed_connection_is_an_end() {
        let (ours, theirs) = pair();
        drop(theirs);
        assert_eq!(read_line(&ours, &mut Vec::new(), LINE_LIMIT).unwrap(), Line::End);
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        let (ours, mut theirs) = pair();
        let writer = std::thread::spawn(move || theirs.write_all(&vec![b'x'; 2 * MAX_REQUEST_BYTES]));
        assert_eq!(read_line(&ours, &mut Vec::new(), LINE_LIMIT).unwrap(), Line::Bad("the request is too long"));
        drop(ours);
        assert!(writer.join().unwrap().is_err());
    }

    #[test]
    fn a_line_that_never_ends_is_refused_in_time() {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"slow").unwrap();
        let line = read_line(&ours, &mut Vec::new(), Duration::from_millis(50)).unwrap();
        assert_eq!(line, Line::Bad("the request took too long"));
    }
}
