//! The whole file process, asked over its socket.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod ask;
mod attacks;
mod bench;
mod changes;
mod escape;
mod process;
mod trash;
mod uploads;
mod verbs;
