//! The person's end of a stream: bytes go out as fast as the reader takes them and come in as fast as they are written, and not longer than
//! somebody wants them.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use eirene_files_protocol::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl, sendfile};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType, recv, send, sockopt};

use crate::errno::code;
use crate::server::Cancelled;

/// Most bytes handed to the kernel at once.
const CHUNK: usize = 1024 * 1024;
/// Bytes of the buffer where a file system cannot send by itself.
const BUFFER: usize = 256 * 1024;
/// How long to wait for the other side before looking whether anybody still wants this.
const LOOK_UP: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// What has come waits for more for about so long.
const MOST_HELD: Duration = Duration::from_secs(1);
/// So often is that before a stream that brings nothing is said to pause.
const IDLE: u32 = 5;

/// A stream to the portal.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    cancelled: Cancelled,
    written: u64,
}

impl Stream {
    /// Takes the descriptor that came with a request: a stream socket, or nothing is written.
    pub(crate) fn new(socket: OwnedFd, cancelled: Cancelled) -> Result<Self, Code> {
        if sockopt::socket_type(&socket) != Ok(SocketType::STREAM) {
            return Err(Code::Invalid);
        }
        fcntl_setfl(&socket, OFlags::NONBLOCK).map_err(code)?;
        Ok(Self { socket, cancelled, written: 0 })
    }

    /// Bytes so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Code> {
        while !bytes.is_empty() {
            self.cancelled.check()?;
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    self.written += sent as u64;
                }
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(code(errno)),
            }
        }
        Ok(())
    }

    /// Sends a part of a file; where it ends before `to`, that is how far it went.
    pub(crate) fn send_file(&mut self, file: &OwnedFd, from: u64, to: u64) -> Result<u64, Code> {
        let mut at = from;
        while at < to {
            self.cancelled.check()?;
            let count = usize::try_from(to - at).map_or(CHUNK, |left| left.min(CHUNK));
            match sendfile(&self.socket, file, Some(&mut at), count) {
                Ok(0) => break,
                Ok(sent) => self.written += sent as u64,
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::NOSYS) => return self.copy_file(file, at, to),
                Err(errno) => return Err(code(errno)),
            }
        }
        Ok(at)
    }

    fn copy_file(&mut self, file: &OwnedFd, mut at: u64, to: u64) -> Result<u64, Code> {
        let mut buffer = vec![0; BUFFER];
        while at < to {
            let count = usize::try_from(to - at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buffer[..count], at)).map_err(code)?;
            if read == 0 {
                break;
            }
            self.write(&buffer[..read])?;
            at += read as u64;
        }
        Ok(at)
    }

    /// Fills the buffer, as far as bytes come: 0 at the end of the stream, none where nothing came for a while. What came before an end, a pause or
    /// an error is given first; that is met again by whoever asks for more.
    ///
    /// Bytes are not given as soon as some are there: a file system takes whole pages at their places in much less time than it takes parts of them.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Code> {
        let first = match self.read(buffer, IDLE)? {
            Some(first) if first > 0 => first,
            nothing => return Ok(nothing),
        };
        let (mut filled, begun) = (first, Instant::now());
        while filled < buffer.len() && begun.elapsed() < MOST_HELD {
            match self.read(&mut buffer[filled..], 1) {
                Ok(Some(read)) if read > 0 => filled += read,
                _ => break,
            }
        }
        Ok(Some(filled))
    }

    /// Takes what has come, and waits for it: so often as long as nobody has to look up.
    fn read(&mut self, buffer: &mut [u8], waits: u32) -> Result<Option<usize>, Code> {
        let mut waited = 0;
        while waited < waits {
            self.cancelled.check()?;
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((read, _)) => return Ok(Some(read)),
                Err(Errno::AGAIN) if self.poll(PollFlags::IN)? => {}
                Err(Errno::AGAIN) => waited += 1,
                Err(Errno::INTR) => {}
                // Whoever dies with bytes of ours unread ends the stream no less.
                Err(Errno::CONNRESET) => return Ok(Some(0)),
                Err(errno) => return Err(code(errno)),
            }
        }
        Ok(None)
    }

    fn wait(&self) -> Result<(), Code> {
        while !self.poll(PollFlags::OUT)? {}
        Ok(())
    }

    /// Waits as long as nobody has to look up. Whether the other side is ready.
    fn poll(&self, what: PollFlags) -> Result<bool, Code> {
        self.cancelled.check()?;
        match poll(&mut [PollFd::new(&self.socket, what)], Some(&LOOK_UP)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(errno) => Err(code(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_buffer_is_filled_from_what_comes_in_parts_and_an_end_is_met_after_what_came_before() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut stream = Stream::new(far.into(), Cancelled::default()).unwrap();
        let sender = std::thread::spawn(move || {
            for part in [&b"abc"[..], b"defgh", b"ij"] {
                near.write_all(part).unwrap();
                std::thread::yield_now();
            }
        });
        let mut buffer = [0; 8];
        assert_eq!(stream.fill(&mut buffer), Ok(Some(8)));
        assert_eq!(&buffer, b"abcdefgh");
        assert_eq!((stream.fill(&mut buffer), &buffer[..2]), (Ok(Some(2)), &b"ij"[..]));
        assert_eq!(stream.fill(&mut buffer), Ok(Some(0)));
        sender.join().unwrap();
    }

    #[test]
    fn what_came_is_given_when_no_more_comes_for_a_moment_and_nothing_is_once_it_is_cancelled() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let cancelled = Cancelled::default();
        let mut stream = Stream::new(far.into(), cancelled.clone()).unwrap();
        near.write_all(b"abc").unwrap();
        assert_eq!(stream.fill(&mut [0; 8]), Ok(Some(3)));
        near.write_all(b"d").unwrap();
        cancelled.cancel();
        assert_eq!(stream.fill(&mut [0; 8]), Err(Code::Cancelled));
    }
}
