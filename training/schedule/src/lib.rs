//! Collectives as verified schedules.

mod ir;

pub use ir::*;
