//! The store from outside, in one program: what all parts share is built once.

mod common;
mod crash;
mod model;
mod store;
mod year;
