//! The file process: one for each person, run as that person by the launcher, asked by the portal over a packet socket.
//!
//! It is the only part of the platform that opens people's files, and it has no more rights than the person. Three things keep it in the
//! spaces it was given: everything is found beneath a space's root (`beneath.rs`) and changed by a single name in a directory that was found
//! (`change.rs`), Landlock takes the rest of the file system away (`confine.rs`), and the kernel asks the person's own permissions. Threads
//! are few and fixed, so a file system that hangs holds up this person only.
//!
//! Who may ask for what is the portal's to decide; becoming the person, and ending when the launcher ends, is the launcher's.

mod accounts;
mod acl;
mod beneath;
mod change;
mod checksum;
mod confine;
mod directory;
mod errno;
mod preview;
pub mod purge;
mod rights;
mod room;
mod server;
mod settle;
mod sidecar;
mod stream;
mod summing;
mod trash;
mod verbs;
mod walk;
mod writeback;

pub use server::{Settings, StartError, serve};
