//! The mesh from outside: ranks as threads and as processes, and strangers among them.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod data;
#[path = "../../../deep.rs"]
mod deep;
mod process;
mod processes;
mod strangers;
mod together;
mod world;
