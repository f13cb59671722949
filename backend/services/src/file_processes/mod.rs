//! The portal's side of people's file processes: one channel a person, started when it is first needed and closed when nobody needs it.
//!
//! A file process belongs to the person and so does everything it says: what comes out of a channel is bounded in number, size and rate, and
//! a process that says what it cannot say is cut off. A file system that hangs holds up one person's process and no thread of the portal's.
//! Nothing here decides who may ask for what, and nothing opens a file. What takes a person's rights away (`access.rs`) closes the
//! channel.

mod client;
mod pool;
#[cfg(test)]
mod tests;

use std::time::Duration;

use eirene_core::launcher::LauncherError;

pub use client::{Event, FilesChannel, Heard, Request};
pub use pool::{FilesPool, Owner};

/// Requests of one person at the same time. The process itself takes [`eirene_files_protocol::MOST_REQUESTS`].
pub const MOST_AT_ONCE: usize = 16;

/// How long things may take, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long nothing may be heard of a request that answers at once: behind it is a file system that does not answer.
    pub reply: Duration,
    /// A channel that nobody used for so long is closed.
    pub idle: Duration,
    /// After a process that failed, or that does not reach a space, the next one of that person is started so much later.
    pub pause: Duration,
    /// Channels in all. The launcher has a limit of its own, which is to be higher.
    pub most: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reply: Duration::from_secs(30), idle: Duration::from_mins(5), pause: Duration::from_secs(5), most: 200 }
    }
}

/// Why there is no answer. What a verb itself ran into is a [`eirene_files_protocol::Problem`] and no error.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The person's file system, or the process in front of it, does not answer: nothing is known, and it may be asked again.
    #[error("the person's storage does not answer")]
    Away {
        /// Seconds to wait.
        retry_after_s: u64,
    },
    /// The process ended, or the portal closed the channel, before the answer came: whether it was done is not known.
    #[error("the file process has ended")]
    Ended,
    /// The process said what it cannot say, and was cut off.
    #[error("the file process broke the protocol: {0}")]
    Broken(&'static str),
    /// The process is not the person.
    #[error("the file process is user {said}, and not the person")]
    WrongUser {
        /// Who it says it is.
        said: u32,
    },
    /// This person's requests, or everybody's channels, are as many as there may be.
    #[error("too much is asked of the file processes at once")]
    Busy,
    /// The portal's own mistake: such a request cannot be said.
    #[error("the request cannot be said: {0}")]
    Unsayable(#[from] eirene_files_protocol::ProtocolError),
    /// The launcher started none.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
}
