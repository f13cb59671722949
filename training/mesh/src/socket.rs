//! Sockets as the mesh uses them: always closed on exec, never blocking, with descriptors beside the bytes inside a node.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    self as sys, AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
    SockaddrIn6, SockaddrLike, SockaddrStorage, UnixAddr, sockopt,
};

/// Which kind of connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A unix socket inside the node.
    Unix,
    /// The network.
    Tcp,
}

const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

fn storage(address: SocketAddr) -> Box<dyn SockaddrLike> {
    match address {
        SocketAddr::V4(address) => Box::new(SockaddrIn::from(address)),
        SocketAddr::V6(address) => Box::new(SockaddrIn6::from(address)),
    }
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Starts to listen on one address.
pub(crate) fn listen_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = sys::socket(family(address), SockType::Stream, FLAGS, None)?;
    sys::setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        sys::setsockopt(&fd, sockopt::Ipv6V6Only, &!address.ip().is_unspecified())?;
    }
    sys::bind(fd.as_raw_fd(), &*storage(address))?;
    sys::listen(&fd, Backlog::MAXCONN)?;
    Ok(fd)
}

/// Starts to listen on every address of the machine, of both families where it has both.
pub(crate) fn listen_everywhere(port: u16) -> io::Result<OwnedFd> {
    listen_tcp(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)).or_else(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE | libc::EACCES) => Err(error),
        _ => listen_tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
    })
}

/// Starts to listen on a unix socket.
pub(crate) fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let fd = sys::socket(AddressFamily::Unix, SockType::Stream, FLAGS, None)?;
    sys::bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    sys::listen(&fd, Backlog::MAXCONN)?;
    Ok(fd)
}

fn begin(result: nix::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Begins a connection over the network; it is there when the socket can be written.
pub(crate) fn call_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = sys::socket(family(address), SockType::Stream, FLAGS, None)?;
    begin(sys::connect(fd.as_raw_fd(), &*storage(address)))?;
    Ok(fd)
}

/// A connection to a unix socket; `WouldBlock` if the listener is too busy.
pub(crate) fn call_unix(path: &Path) -> io::Result<OwnedFd> {
    let fd = sys::socket(AddressFamily::Unix, SockType::Stream, FLAGS, None)?;
    sys::connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(fd)
}

/// What became of a connection that was begun.
pub(crate) fn outcome(fd: &OwnedFd) -> io::Result<()> {
    match sys::getsockopt(fd, sockopt::SocketError)? {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The next connection of a listener, if there is one.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let fd = sys::accept4(listener.as_raw_fd(), FLAGS)?;
    Ok(own(fd))
}

#[expect(unsafe_code, reason = "the system gives descriptors as numbers")]
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the number came from the system in the call before, and nobody else has seen it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// True if the process at the other end of a unix socket runs as the same user.
pub(crate) fn same_user(fd: &OwnedFd) -> bool {
    sys::getsockopt(fd, sockopt::PeerCredentials).is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

fn to_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let address = if let Some(v4) = address.as_sockaddr_in() {
        SocketAddr::new(IpAddr::V4(v4.ip()), v4.port())
    } else {
        let v6 = address.as_sockaddr_in6()?;
        SocketAddr::new(IpAddr::V6(v6.ip()), v6.port())
    };
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// The local address of a socket, if it has one on the network.
pub(crate) fn local(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    to_address(&sys::getsockname(fd.as_raw_fd()).ok()?)
}

/// The address of the other end, if it has one on the network.
pub(crate) fn remote(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    to_address(&sys::getpeername(fd.as_raw_fd()).ok()?)
}

/// Small messages leave at once, and an idle connection to a machine that is gone breaks within four seconds. A machine
/// that answers is not gone, however long the process on it is stopped.
pub(crate) fn enliven(fd: &OwnedFd) -> io::Result<()> {
    sys::setsockopt(fd, sockopt::TcpNoDelay, &true)?;
    sys::setsockopt(fd, sockopt::KeepAlive, &true)?;
    sys::setsockopt(fd, sockopt::TcpKeepIdle, &1)?;
    sys::setsockopt(fd, sockopt::TcpKeepInterval, &1)?;
    sys::setsockopt(fd, sockopt::TcpKeepCount, &3)?;
    Ok(())
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// That many bytes.
    Some(usize),
    /// Nothing yet.
    Nothing,
    /// The other end has closed.
    End,
}

/// Reads what is there. Descriptors that came along are added to `files`; `None` there: they are not wanted.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8], files: Option<&mut Vec<OwnedFd>>) -> io::Result<Flow> {
    let mut space = files.is_some().then(|| cmsg_space!([RawFd; 64]));
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match sys::recvmsg::<()>(fd.as_raw_fd(), &mut parts, space.as_deref_mut(), flags) {
        Ok(message) => message,
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Flow::Nothing),
        Err(error) => return Err(error.into()),
    };
    let mut lost = message.flags.contains(MsgFlags::MSG_CTRUNC);
    if let Some(files) = files {
        match message.cmsgs() {
            Ok(parts) => {
                for part in parts {
                    if let ControlMessageOwned::ScmRights(numbers) = part {
                        files.extend(numbers.into_iter().map(own));
                    }
                }
            }
            Err(_) => lost = true,
        }
    }
    if lost {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors were lost on the way"));
    }
    Ok(if message.bytes == 0 { Flow::End } else { Flow::Some(message.bytes) })
}

/// Writes what fits now; `files` go with the first byte.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let numbers: Vec<RawFd> = files.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match sys::sendmsg::<()>(fd.as_raw_fd(), &[IoSlice::new(bytes)], rights, flags, None) {
        Ok(sent) => Ok(sent),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Asks to be told when the other end sends nothing more, even if what it has sent is not to be read now.
pub(crate) const CLOSING: PollFlags = PollFlags::from_bits_retain(libc::POLLRDHUP);

/// What a wait found. nix does not know the flag that it gives for [`CLOSING`].
pub(crate) fn found(fd: &PollFd<'_>) -> PollFlags {
    fd.revents().unwrap_or(PollFlags::POLLHUP)
}

/// Waits until one of the descriptors can do what is asked, or until `until`. What came is in the descriptors.
pub(crate) fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        // Up to the next millisecond, so that time is really up when the wait ends.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        PollTimeout::from(u16::try_from(left.as_millis()).unwrap_or(u16::MAX))
    });
    match nix::poll::poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits for one descriptor; true if it can now do what is asked.
pub(crate) fn wait_one(fd: &impl AsFd, flags: PollFlags, until: Instant) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), flags)];
    wait(&mut fds, Some(until))?;
    Ok(!found(&fds[0]).is_empty())
}

/// How long a TCP connection's other machine has been silent although it owes us an answer.
///
/// Keep-alive answers for idle connections only. With data on the way, this looks at what the system knows: it has sent
/// again, or asked for room several times, and nothing at all came back. (`TCP_USER_TIMEOUT` would also break the
/// connection to a machine that answers but whose process is stopped or slow to read.)
#[expect(unsafe_code, reason = "nix has no face for TCP_INFO")]
pub(crate) fn silence(fd: BorrowedFd<'_>) -> Option<Duration> {
    // The beginning of `struct tcp_info`, whose layout Linux keeps.
    let mut info = [0_u8; 60];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, `info` is writable for `length` bytes and any bytes are valid for it.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 || (length as usize) < info.len() {
        return None;
    }
    let word = |at: usize| info[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let (sent_again, asked, unanswered, since_answer) = (info[2], info[3], word(24), word(56));
    ((unanswered > 0 && sent_again > 0) || asked >= 3).then(|| Duration::from_millis(u64::from(since_answer)))
}
