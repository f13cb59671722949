//! Messages over a unix socket, and the descriptors that come with the first one.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::MOST_BYTES;

/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// What was received is no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection broke.
    #[error("the connection to the session's agent broke")]
    Broken(#[from] io::Error),
    /// Longer than [`MOST_BYTES`].
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// Something else.
    #[error("a message was not understood: {0}")]
    NotUnderstood(#[from] serde_json::Error),
    /// Not three descriptors with the request.
    #[error("the request came without standard input, output and error")]
    Descriptors,
}

/// The asker's standard input, output and error.
#[derive(Debug)]
pub struct Descriptors(pub [OwnedFd; 3]);

/// A message's bytes.
///
/// # Errors
/// [`WireError::TooLong`].
pub fn frame<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MOST_BYTES);
    let length = length.ok_or(WireError::TooLong(body.len()))?;
    Ok([&length.to_le_bytes()[..], &body].concat())
}

/// Takes the first whole message from the beginning of `bytes`, if it is there.
///
/// # Errors
/// [`WireError::TooLong`], [`WireError::NotUnderstood`].
pub fn parse<T: DeserializeOwned>(bytes: &mut Vec<u8>) -> Result<Option<T>, WireError> {
    let Some(length) = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else { return Ok(None) };
    if length > MOST_BYTES {
        return Err(WireError::TooLong(length));
    }
    let Some(body) = bytes.get(4..4 + length) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    bytes.drain(..4 + length);
    Ok(Some(message))
}

/// Whether there is one to take.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|length| bytes.len() - 4 >= u32::from_le_bytes(*length) as usize)
}

/// Sends all bytes; the descriptors go with the first of them. The socket blocks.
pub(crate) fn send(socket: impl AsFd, mut bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut rights: &[RawFd] = descriptors;
    while !bytes.is_empty() {
        let with = [ControlMessage::ScmRights(rights)];
        let control = if rights.is_empty() { &with[..0] } else { &with[..] };
        let socket = socket.as_fd().as_raw_fd();
        match sendmsg::<()>(socket, &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                rights = &[];
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What has come so far.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Bytes that are no whole message yet.
    pub bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Receiver {
    /// Reads once; false at the end of the connection. Where the socket does not block and nothing is there, that is
    /// [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK];
        let mut space = nix::cmsg_space!([RawFd; 3]);
        let socket = socket.as_fd().as_raw_fd();
        let read = {
            let mut parts = [IoSliceMut::new(&mut chunk)];
            let message = recvmsg::<()>(socket, &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = control {
                    self.descriptors.extend(numbers.into_iter().map(owned));
                }
            }
            message.bytes
        };
        self.bytes.extend_from_slice(&chunk[..read]);
        Ok(read > 0)
    }

    /// The three descriptors that came.
    ///
    /// # Errors
    /// [`WireError::Descriptors`] if there were fewer or more.
    pub fn descriptors(&mut self) -> Result<Descriptors, WireError> {
        let three = std::mem::take(&mut self.descriptors).try_into().map_err(|_| WireError::Descriptors)?;
        Ok(Descriptors(three))
    }
}

#[expect(unsafe_code, reason = "takes over what the kernel has just made for this process")]
fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: recvmsg has opened it for us, and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(number) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;
    use crate::{Program, Request, StepRequest};

    fn request(words: &[String]) -> Request {
        let program = Program { command: words.to_vec(), directory: "/home/ada".into(), environment: Vec::new() };
        Request::Step(StepRequest { ranks: Some(4), program, ..StepRequest::default() })
    }

    #[test]
    fn a_request_arrives_in_pieces_with_its_descriptors() {
        let (asker, agent) = UnixStream::pair().unwrap();
        let (mut far, near) = UnixStream::pair().unwrap();
        let sent = request(&["x".repeat(300_000)]);
        let bytes = frame(&sent).unwrap();
        let sender = std::thread::spawn(move || {
            let number = near.as_raw_fd();
            send(&asker, &bytes, &[number, number, number]).unwrap();
        });
        let mut receiver = Receiver::default();
        let received: Request = loop {
            assert!(receiver.receive(&agent).unwrap());
            if let Some(request) = parse(&mut receiver.bytes).unwrap() {
                break request;
            }
        };
        sender.join().unwrap();
        assert_eq!(received, sent);
        let Descriptors([_, output, _]) = receiver.descriptors().unwrap();
        std::fs::File::from(output).write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        assert!(receiver.descriptors().is_err());
        assert!(!receiver.receive(&agent).unwrap());
    }

    #[test]
    fn what_is_too_long_or_no_request_is_refused() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        assert!(matches!(parse::<Request>(&mut bytes), Err(WireError::TooLong(_))));
        assert!(matches!(frame(&request(&["x".repeat(MOST_BYTES)])), Err(WireError::TooLong(_))));
        let mut bytes = frame(&serde_json::json!({"kind": "shell", "line": "id"})).unwrap();
        assert!(matches!(parse::<Request>(&mut bytes), Err(WireError::NotUnderstood(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse::<Request>(&mut bytes);
        }
    }
}
