//! What happens to ranks, wherever they run.

use std::fmt;

/// One of a rank's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// What a rank exits with when it ends only because another one failed: a run goes on looking for that other one, for it may take
/// longer to end than those that notice.
pub const BECAUSE_OF_ANOTHER: u8 = 113;

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(u8),
    Signal(i32),
}

impl End {
    pub(crate) fn is_well(self) -> bool {
        self == Self::Code(0)
    }

    /// Whether another rank is to blame.
    pub(crate) fn is_consequence(self) -> bool {
        self == Self::Code(BECAUSE_OF_ANOTHER)
    }

    /// What a shell would say of it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exited with code {code}"),
            Self::Signal(signal) => {
                write!(formatter, "was killed by signal {signal}")?;
                if let Ok(name) = nix::sys::signal::Signal::try_from(*signal) {
                    write!(formatter, " ({name})")?;
                }
                formatter.write_str(match *signal {
                    libc::SIGKILL => ": out of memory?",
                    libc::SIGSEGV => ": a fault in native code",
                    libc::SIGBUS => ": is the disk or the shared memory full?",
                    libc::SIGILL => ": built for another processor?",
                    libc::SIGABRT => ": it gave up itself",
                    _ => "",
                })
            }
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A rank runs.
    Started { rank: u32, pid: u32 },
    /// A rank wrote: whole lines, each with its end.
    Lines { rank: u32, stream: Stream, lines: Vec<u8> },
    /// A rank ended.
    Ended { rank: u32, end: End },
    /// A host's remote shell wrote something that is no rank's: whole lines.
    Noise { host: usize, lines: Vec<u8> },
    /// A host is gone, or could not start its ranks.
    Lost { host: usize, problem: String, code: u8 },
}
