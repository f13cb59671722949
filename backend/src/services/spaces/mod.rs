//! Spaces: the rules. Each is a pure function, so that it can be tried in every situation: who may use a space, how full it is and whether its
//! owner is told, how it grows, what its policy does, how its files are spread.

pub mod access;
pub mod hint;
pub mod level;
pub mod policy;
#[cfg(test)]
pub(crate) mod testing;
pub mod trend;
