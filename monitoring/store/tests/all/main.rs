//! The store from outside, in one program: what all parts share is built once.

mod common;
mod crash;
mod many;
mod model;
mod store;
mod year;
