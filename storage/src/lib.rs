#![doc = include_str!("../README.md")]

mod answer;
mod beegfs;
pub mod beegfs7;
pub mod beegfs8;
mod doubts;
mod noise;
pub mod posix;
mod units;

pub use beegfs7::Beegfs7;
pub use beegfs8::Beegfs8;
pub use posix::{LocalProbe, Look, Posix, Probe, Seen};
