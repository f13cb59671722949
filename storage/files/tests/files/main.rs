//! The whole file process, asked over its socket.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bench;
mod escape;
mod process;
mod verbs;
