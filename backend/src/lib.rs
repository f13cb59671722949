//! `eirened`: puts services, reconcilers and the gateway together, and the commands its operator needs.
//!
//! How it fits together is told in `ARCHITECTURE.md`.

pub mod commands;
