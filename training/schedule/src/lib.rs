//! Collectives as verified schedules.
//!
//! A collective operation is worked out for every rank before it runs: [`generate`] writes the programs, [`verify`] proves them right, and
//! only what is proven ([`Verified`]) is executed, by one engine over any transport. [`Counts`] says exactly what a schedule
//! moves, [`predict`] about how long it takes.
//!
//! This crate knows chunks, not bytes: it has no buffers, transports, data types or clocks.

mod counts;
mod generate;
mod geometry;
mod ir;
mod predict;
mod verify;

pub use counts::{Counts, Moved};
pub use generate::{Refused, algorithms, generate};
pub use geometry::{Geometry, Lengths, cut};
pub use ir::*;
pub use predict::{Costs, Link, chain_segments, predict};
pub use verify::{Fault, Flaw, MAX_RANKS, Verified, verify};
