//! The portal's end of a channel, on its runtime: the same packets, without a thread that waits for them.

use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::{Channel, ChannelError, Packet};

/// A channel that waits with the runtime. Both calls may be cancelled: a packet is sent or received whole, or not at all.
#[derive(Debug)]
pub struct AsyncChannel {
    channel: AsyncFd<Channel>,
}

impl AsyncChannel {
    /// Takes the channel over; within a runtime.
    ///
    /// # Errors
    /// [`ChannelError::Broken`] where the runtime cannot watch it.
    #[expect(unsafe_code, reason = "the runtime watches a descriptor by its number")]
    pub fn new(channel: Channel) -> Result<Self, ChannelError> {
        fcntl_setfl(&channel, fcntl_getfl(&channel)? | OFlags::NONBLOCK)?;
        // SAFETY: a channel owns its socket and keeps it, under the same number, until it is dropped.
        let watched = unsafe { AsyncFd::register(channel) };
        watched.map(|channel| Self { channel }).map_err(|error| broken(&error.into()))
    }

    /// Sends one packet, as [`Channel::send`].
    ///
    /// # Errors
    /// As there.
    pub async fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), ChannelError> {
        loop {
            let mut ready = self.channel.writable().await.map_err(|error| broken(&error))?;
            match self.channel.get_ref().send(bytes, descriptor) {
                Err(ChannelError::Broken(Errno::AGAIN)) => ready.clear_ready(),
                other => return other,
            }
        }
    }

    /// Receives one packet, as [`Channel::receive`].
    ///
    /// # Errors
    /// As there.
    pub async fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<Packet<'a>>, ChannelError> {
        let received = loop {
            let mut ready = self.channel.readable().await.map_err(|error| broken(&error))?;
            match self.channel.get_ref().receive_into(buffer) {
                Err(ChannelError::Broken(Errno::AGAIN)) => ready.clear_ready(),
                other => break other?,
            }
        };
        Ok(received.map(|(length, descriptor)| Packet { bytes: &buffer[..length], descriptor }))
    }
}

fn broken(error: &std::io::Error) -> ChannelError {
    ChannelError::Broken(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::MOST_BYTES;

    /// More packets than the socket holds: the portal has to wait for the reader, and the reader for the portal.
    const MANY: usize = 50;

    #[tokio::test]
    async fn packets_are_waited_for_in_both_directions() {
        let (portal, files) = Channel::pair().unwrap();
        let portal = AsyncChannel::new(portal).unwrap();
        let (_far, near) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut buffer = Vec::new();
            let mut with_descriptor = 0;
            for _ in 0..MANY {
                let packet = files.receive(&mut buffer).unwrap().unwrap();
                assert_eq!(packet.bytes.len(), MOST_BYTES);
                with_descriptor += usize::from(packet.descriptor.is_some());
            }
            files.send(b"done", None).unwrap();
            with_descriptor
        });
        for _ in 0..MANY {
            portal.send(&vec![1; MOST_BYTES], Some(near.as_fd())).await.unwrap();
        }
        let mut buffer = Vec::new();
        assert_eq!(portal.receive(&mut buffer).await.unwrap().unwrap().bytes, b"done");
        assert_eq!(reader.join().unwrap(), MANY);
        assert!(portal.receive(&mut buffer).await.unwrap().is_none(), "the other side has gone");
        assert!(matches!(portal.send(b"x", None).await, Err(ChannelError::Broken(Errno::PIPE))));
    }
}
