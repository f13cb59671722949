//! The asker's side: one connection, one request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::wire::{Receiver, WireError, frame, parse, send};
use crate::{Answer, Request, Word};

/// A request under way. Its descriptor can be read when the agent has said something.
#[derive(Debug)]
pub struct Asker {
    socket: UnixStream,
    receiver: Receiver,
}

impl Asker {
    /// Asks the agent that listens at `socket`; the descriptors become the step's standard input, output and error.
    ///
    /// # Errors
    /// [`WireError::Broken`] where nobody listens, [`WireError::TooLong`].
    pub fn ask(socket: &Path, request: &Request, standard: &[BorrowedFd<'_>; 3]) -> Result<Self, WireError> {
        let bytes = frame(request)?;
        let socket = UnixStream::connect(socket)?;
        let numbers = standard.each_ref().map(std::os::fd::AsRawFd::as_raw_fd);
        send(&socket, &bytes, &numbers)?;
        Ok(Self { socket, receiver: Receiver::default() })
    }

    /// Says something more.
    ///
    /// # Errors
    /// [`WireError::Broken`].
    pub fn say(&mut self, word: Word) -> Result<(), WireError> {
        Ok(send(&self.socket, &frame(&word)?, &[])?)
    }

    /// Waits until the agent has said more, and gives it.
    ///
    /// # Errors
    /// [`WireError::Broken`], also when the agent is gone; [`WireError::NotUnderstood`].
    pub fn hear(&mut self) -> Result<Answer, WireError> {
        loop {
            if let Some(answer) = parse(&mut self.receiver.bytes)? {
                return Ok(answer);
            }
            match self.receiver.receive(&self.socket) {
                Ok(true) => {}
                Ok(false) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether [`Self::hear`] has an answer that has already come, beside what the descriptor says.
    pub fn has_more(&self) -> bool {
        crate::wire::is_whole(&self.receiver.bytes)
    }
}

impl AsFd for Asker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
