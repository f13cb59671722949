//! The whole file process, asked over its socket.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod accounts;
mod ask;
mod attacks;
mod bench;
mod changes;
mod disks;
mod escape;
mod extracting;
mod going_on;
mod large;
mod making;
mod old;
mod permissions;
mod power;
mod previews;
mod process;
mod purge;
mod purge_program;
mod sizes;
mod trash;
mod uploads;
mod verbs;
mod zips;
