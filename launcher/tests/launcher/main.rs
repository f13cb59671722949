//! The whole launcher: a real process on a real socket, with real people and real files.
//!
//! Needs root, because nothing of what it does can be done without. The people live in a user database that only this test's mount
//! namespace sees, so nothing on the machine changes. Without root the tests say so and check the one thing that is left: that a
//! launcher without root does not start.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod beegfs;
mod bench;
mod calls;
mod files;
mod groups;
mod limits;
mod logs;
mod measure;
mod spaces;
mod storage;
