//! Signals as bytes in a pipe: the run waits for them together with everything else.

#![expect(unsafe_code, reason = "signal handlers")]

use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::error::Error;

/// Where the handler writes; -1 while nobody listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// What is listened to: children's ends, everybody who wants the run to end, and what is the ranks' to take (schedulers warn by it).
const HEARD: [Signal; 6] =
    [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that came, as long as it lives; the former handlers are put back then.
pub(crate) struct Signals {
    reader: std::io::PipeReader,
    writer: i32,
    former: Vec<(Signal, SigAction)>,
}

impl Signals {
    /// Begins to listen. One run at a time in a process.
    pub(crate) fn listen() -> Result<Self, Error> {
        let failed = "cannot listen for signals";
        let (reader, writer) = std::io::pipe().map_err(Error::system(failed))?;
        for end in [reader.as_fd(), writer.as_fd()] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| Error::system(failed)(errno.into()))?;
        }
        let writer = OwnedFd::from(writer).into_raw_fd();
        let mut signals = Self { reader, writer, former: Vec::new() };
        if PIPE.compare_exchange(-1, writer, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Err(Error::Usage("this process already has a run".to_owned()));
        }
        let action = SigAction::new(SigHandler::Handler(heard), SaFlags::SA_RESTART, SigSet::empty());
        for signal in HEARD {
            // SAFETY: the handler only writes to a descriptor, which is async-signal-safe.
            let former = unsafe { sigaction(signal, &action) }.map_err(|errno| Error::system(failed)(errno.into()))?;
            let is_ignored = matches!(former.handler(), SigHandler::SigIgn) && signal != Signal::SIGCHLD;
            if is_ignored {
                // `nohup` and shells that start something in the background mean it.
                // SAFETY: puts back what was there.
                let _ = unsafe { sigaction(signal, &former) };
            } else {
                signals.former.push((signal, former));
            }
        }
        Ok(signals)
    }

    /// Everything that came since the last time.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        let mut buffer = [0; 256];
        let mut came = Vec::new();
        while let Ok(count @ 1..) = self.reader.read(&mut buffer) {
            came.extend(buffer[..count].iter().filter_map(|number| Signal::try_from(i32::from(*number)).ok()));
        }
        came
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, former) in &self.former {
            // SAFETY: puts back what was there.
            let _ = unsafe { sigaction(*signal, former) };
        }
        let _ = PIPE.compare_exchange(self.writer, -1, Ordering::SeqCst, Ordering::SeqCst);
        let _ = nix::unistd::close(self.writer);
    }
}

extern "C" fn heard(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: write(2) is async-signal-safe; the byte lives on this stack; errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(PIPE.load(Ordering::SeqCst), (&raw const byte).cast(), 1);
        *libc::__errno_location() = errno;
    }
}
