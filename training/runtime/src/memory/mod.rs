//! Memory that the ranks of a node share, and what lies in it: slot rings between pairs of ranks ([`lane`]), which are filled in
//! the way that is quicker between their cores ([`stores`]), the words on which ranks wait ([`bell`]) and meet ([`meeting`]).
//!
//! All of it is in sealed memfds, handed from rank to rank as descriptors: nothing depends on the size of `/dev/shm`, nothing has a name that
//! others could open, and nothing is left when the last rank ends, however it ends.
#![expect(
    unsafe_code,
    reason = "memory that other processes write at the same time is beyond what the compiler can check"
)]

pub(crate) mod bell;
pub(crate) mod lane;
pub(crate) mod meeting;
#[cfg(all(test, loom))]
mod model;
pub(crate) mod segment;
pub(crate) mod stores;
mod sync;
