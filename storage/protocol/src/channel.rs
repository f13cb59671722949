//! The socket between the two: packets, each whole, with at most one descriptor.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

use crate::MOST_BYTES;

/// Why the channel cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The kernel said no.
    #[error("the channel broke")]
    Broken(#[from] Errno),
    /// The descriptor is something else.
    #[error("not a packet socket between processes")]
    NotAChannel,
    /// A packet that was longer than any frame.
    #[error("a packet is over {MOST_BYTES} bytes")]
    TooLong,
    /// More than one descriptor came with a packet; all of them were closed.
    #[error("more than one descriptor came with a packet")]
    Descriptors,
}

/// One end of a `SOCK_SEQPACKET` pair. It may be used by several threads: a packet is sent and received whole.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A packet, in the buffer it was received into.
#[derive(Debug)]
pub struct Packet<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What came with it.
    pub descriptor: Option<OwnedFd>,
}

impl Channel {
    /// Both ends; neither outlives an exec unless it is made to.
    ///
    /// # Errors
    /// [`ChannelError::Broken`].
    pub fn pair() -> Result<(Self, Self), ChannelError> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: near }, Self { socket: far }))
    }

    /// Takes over a socket that somebody else made.
    ///
    /// # Errors
    /// [`ChannelError::NotAChannel`] for everything but a packet socket between processes.
    pub fn from_descriptor(socket: OwnedFd) -> Result<Self, ChannelError> {
        let is_channel = sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET)
            && sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX);
        if is_channel { Ok(Self { socket }) } else { Err(ChannelError::NotAChannel) }
    }

    /// Gives the socket away, as to a child.
    pub fn into_descriptor(self) -> OwnedFd {
        self.socket
    }

    /// Sends one packet, and waits while the other side's queue is full where the socket blocks.
    ///
    /// # Errors
    /// [`ChannelError::TooLong`]; [`ChannelError::Broken`], with `PIPE` or `CONNRESET` where the other side has gone.
    pub fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), ChannelError> {
        if bytes.len() > MOST_BYTES {
            return Err(ChannelError::TooLong);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
        }
        rustix::io::retry_on_intr(|| sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives one packet into `buffer`; none at the end of the channel. An empty packet, which is no frame either, ends it too: the kernel
    /// does not tell one from the other. Where the socket does not block, `Broken(AGAIN)` says that nothing is there.
    ///
    /// # Errors
    /// As [`ChannelError`] says; descriptors that came with what is refused are closed.
    pub fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> Result<Option<Packet<'a>>, ChannelError> {
        let received = self.receive_into(buffer)?;
        Ok(received.map(|(length, descriptor)| Packet { bytes: &buffer[..length], descriptor }))
    }

    /// As [`Self::receive`]: the length of what is in the buffer.
    pub(crate) fn receive_into(&self, buffer: &mut Vec<u8>) -> Result<Option<(usize, Option<OwnedFd>)>, ChannelError> {
        buffer.resize(MOST_BYTES, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = rustix::io::retry_on_intr(|| {
            recvmsg(&self.socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(ChannelError::TooLong);
        }
        if message.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > 1 {
            return Err(ChannelError::Descriptors);
        }
        if message.bytes == 0 {
            return Ok(None);
        }
        Ok(Some((message.bytes, descriptors.pop())))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends packets that [`Channel::send`] does not send.
    fn send_raw(channel: &Channel, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
        sendmsg(channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    #[test]
    fn packets_arrive_whole_in_order_and_with_their_descriptor() {
        let (portal, files) = Channel::pair().unwrap();
        let (mut far, near) = UnixStream::pair().unwrap();
        let large = vec![7; MOST_BYTES];
        portal.send(&large, Some(near.as_fd())).unwrap();
        portal.send(b"second", None).unwrap();
        drop(near);
        let mut buffer = Vec::new();
        let packet = files.receive(&mut buffer).unwrap().unwrap();
        assert_eq!(packet.bytes, large);
        File::from(packet.descriptor.unwrap()).write_all(b"hello").unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello", "and nobody else has it open");
        let packet = files.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((packet.bytes, packet.descriptor.is_none()), (b"second".as_slice(), true));
        drop(portal);
        assert!(files.receive(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn what_is_too_long_is_neither_sent_nor_cut() {
        let (portal, files) = Channel::pair().unwrap();
        assert!(matches!(portal.send(&vec![0; MOST_BYTES + 1], None), Err(ChannelError::TooLong)));
        send_raw(&portal, &vec![0; MOST_BYTES + 1], &[]);
        assert!(matches!(files.receive(&mut Vec::new()), Err(ChannelError::TooLong)));
    }

    #[test]
    fn a_flood_of_descriptors_is_closed() {
        for many in [2, 3, 64] {
            let (portal, files) = Channel::pair().unwrap();
            let (mut far, near) = UnixStream::pair().unwrap();
            send_raw(&portal, b"x", &vec![near.as_fd(); many]);
            drop(near);
            assert!(matches!(files.receive(&mut Vec::new()), Err(ChannelError::Descriptors)), "{many}");
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "{many}: all were closed");
        }
    }

    #[test]
    fn only_a_packet_socket_is_a_channel() {
        let (stream, _far) = UnixStream::pair().unwrap();
        assert!(matches!(Channel::from_descriptor(stream.into()), Err(ChannelError::NotAChannel)));
        assert!(matches!(
            Channel::from_descriptor(File::open("/dev/null").unwrap().into()),
            Err(ChannelError::NotAChannel)
        ));
        let (portal, _files) = Channel::pair().unwrap();
        assert!(Channel::from_descriptor(portal.into_descriptor()).is_ok());
    }
}
