//! Descriptors that a launcher left open for us.

#![expect(unsafe_code, reason = "an inherited descriptor is only a number")]

use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{getsockopt, sockopt};

use crate::error::Error;
use crate::variables;

/// Takes over an inherited socket that listens; anything else under its number is left alone.
pub(crate) fn take_listener(number: RawFd) -> Result<OwnedFd, Error> {
    let wrong = |expected| Error::Malformed {
        variable: variables::MEETING.to_owned(),
        value: format!("descriptor:{number}"),
        expected,
    };
    // SAFETY: borrowed for the two calls below, which fail on a number that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !getsockopt(&borrowed, sockopt::AcceptConn).unwrap_or(false) {
        return Err(wrong("that is no open socket that listens (was this process joined before?)"));
    }
    fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|_| wrong("that socket cannot be taken over"))?;
    // SAFETY: the launcher opened it for this process, which takes it here and nowhere else; it is open and a listening socket.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
