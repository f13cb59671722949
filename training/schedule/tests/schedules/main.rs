//! Schedules against plain computations, formulas and mistakes.

mod common;
mod counts;
mod execution;
mod mutations;
mod proof;
