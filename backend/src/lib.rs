//! `eirened`: puts services, reconcilers, HTTP and the tunnel together, and the commands its operator needs.
//!
//! How it fits together is told in `ARCHITECTURE.md`.

pub mod commands;
pub mod server;
pub mod tunnel;
