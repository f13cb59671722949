//! Schedules against plain computations, formulas and mistakes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod counts;
mod execution;
mod mutations;
mod proof;
