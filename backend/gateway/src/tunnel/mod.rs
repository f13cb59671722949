//! Where agents dial in: the TLS listener, who is let in, and what is said on the control stream.
//!
//! The agent belongs to the person, so whatever comes from it is hostile: it is bounded in time, size and rate, and reaches its own
//! session only. What it says about its session is written by [`eirene_services::sessions`].

mod context;
mod control;
mod identity;
mod listener;
mod pace;
#[cfg(test)]
mod tests;

pub use context::TunnelContext;
pub use eirene_tunnel::TunnelStream;
pub use identity::TunnelIdentity;
pub use listener::listen;
