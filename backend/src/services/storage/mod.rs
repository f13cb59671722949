//! The storage as it is seen: one look at everything it says of itself, and what is wrong by that look.

pub mod judge;
pub mod snapshot;
