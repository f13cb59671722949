//! What rank 0 reads on its standard input, on the last part of its way: from its node into a pipe.
//!
//! A node must not wait for a rank that does not read, for then it would hear no signal either. What is not read yet is kept in memory.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::error::Error;

/// The pipe's end that is written to.
pub(crate) struct Feed {
    /// None once nothing more is to come, or nobody reads.
    pipe: Option<io::PipeWriter>,
    waiting: Vec<u8>,
    has_ended: bool,
}

impl Feed {
    /// With the end that rank 0 reads from.
    pub(crate) fn new() -> Result<(Self, OwnedFd), Error> {
        let failed = "cannot make a pipe";
        let (reader, pipe) = io::pipe().map_err(Error::system(failed))?;
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| Error::system(failed)(errno.into()))?;
        Ok((Self { pipe: Some(pipe), waiting: Vec::new(), has_ended: false }, reader.into()))
    }

    /// Takes what comes next; nothing at all is the end.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.has_ended |= bytes.is_empty();
        self.pass_on();
    }

    /// Writes what the pipe takes.
    pub(crate) fn pass_on(&mut self) {
        while let Some(pipe) = self.pipe.as_mut().filter(|_| !self.waiting.is_empty()) {
            match pipe.write(&self.waiting) {
                Ok(written) => {
                    self.waiting.drain(..written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody reads any more.
                Err(_) => self.pipe = None,
            }
        }
        if self.has_ended || self.pipe.is_none() {
            self.pipe = None;
            self.waiting = Vec::new();
        }
    }

    /// What has room again when there was none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn more_than_a_pipe_takes_waits_and_the_end_comes_last() {
        let (mut feed, reader) = Feed::new().unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        feed.take(&sent);
        feed.take(&[]);
        assert!(feed.descriptor().is_some());
        let mut reader = std::fs::File::from(reader);
        let mut got = Vec::new();
        let mut piece = [0; 10_000];
        loop {
            feed.pass_on();
            match reader.read(&mut piece).unwrap() {
                0 => break,
                count => got.extend_from_slice(&piece[..count]),
            }
        }
        assert_eq!(got, sent);
        assert!(feed.descriptor().is_none());
    }

    #[test]
    fn what_nobody_reads_is_dropped() {
        let (mut feed, reader) = Feed::new().unwrap();
        drop(reader);
        feed.take(b"words");
        assert!(feed.descriptor().is_none() && feed.waiting.is_empty());
    }
}
