//! The store from outside, in one program: what all parts share is built once.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod crash;
mod many;
mod model;
mod store;
mod year;
