//! Collectives as verified schedules.
//!
//! A collective operation is worked out for every rank before it runs: [`generate`] writes the programs, [`verify`] proves them right, and
//! only what is proven ([`Verified`]) is executed, by one engine over any transport. [`Counts`] says exactly what a schedule
//! moves, [`predict`] about how long it takes.
//!
//! ```
//! use eirene_train_schedule::{Algorithm, Collective, Counts, Lengths, generate, verify};
//!
//! let ring = verify(generate(Collective::AllReduce, &Algorithm::Ring, 4)?)?;
//! let counts = Counts::of(&ring, &Lengths::Whole(1000)).ok_or("not lengths of an allreduce")?;
//! assert_eq!(counts.sent(0).elements, 2 * 1000 * 3 / 4);
//! assert_eq!(ring.depth(), 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate knows chunks, not bytes: it has no buffers, transports, data types or clocks.

mod counts;
mod generate;
mod geometry;
mod ir;
mod names;
mod predict;
mod verify;

pub use counts::{Counts, Moved};
pub use generate::{Refused, algorithms, generate};
pub use geometry::{Geometry, Lengths, cut, sends_empty};
pub use ir::*;
pub use predict::{Costs, Link, chain_segments, predict};
pub use verify::{Fault, Flaw, MAX_RANKS, Verified, verify};
