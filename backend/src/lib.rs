//! The portal: services, the reconcilers behind them, HTTP in front of them, and the tunnels agents dial in on.
//!
//! `http` knows services, services know the database and the ports, reconcilers know services. Services know no HTTP.
//! How it fits together is told in `ARCHITECTURE.md`.

pub mod agents;
pub mod app;
pub mod beegfs_tool;
mod cause;
pub mod commands;
pub mod config;
mod crowd;
pub mod error;
pub mod files;
pub mod http;
pub mod launcher_client;
pub mod launcher_groups;
mod monitoring;
mod outward;
pub mod places;
pub mod probe;
pub mod reconcilers;
pub mod server;
pub mod services;
mod shared;
pub mod shared_storage;
#[cfg(test)]
mod testing;
pub mod traces;
pub mod tunnel;
pub mod workers;
