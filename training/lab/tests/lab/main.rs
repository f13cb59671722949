//! Real ranks on emulated nodes: what goes over the wires, and what happens when one fails. Needs root.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "../../../deep.rs"]
mod deep;
mod failures;
mod nodes;
mod preflight;
mod secrecy;
mod strangers;
mod wire;
