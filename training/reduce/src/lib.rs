//! Element types and their reductions, at memory speed.
//!
//! A [`Reduction`] is chosen once for an element type and an operation, and then folds the elements of any number of
//! sources into any number of outputs, in one pass over memory. What this crate leaves to others: where the memory comes
//! from, who may touch it when, and which rank folds what.
//!
//! # One result everywhere
//!
//! Sources are folded in the order given, from the left, for every element alike, whatever the length, the alignment and
//! the processor's instructions: nothing is reassociated, nothing is fused. So whoever folds the same sources gets the same
//! bits, with one exception that no format promises: the payload of what is not a number.
//!
//! * `float16` and `bfloat16` are accumulated in single precision over all sources and rounded once, to nearest, ties to even.
//! * Sums and products of integers wrap.
//! * [`Min`](ReduceOp::Min) and [`Max`](ReduceOp::Max) give what is not a number if any source has it. Zeros of both signs
//!   are equal: of equal elements the last one is taken.
//! * Truth values: zero is false, anything else true, results are 0 or 1.

mod copy;
mod half;
mod kernel;
mod number;
mod path;
mod reduction;
mod types;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use copy::copy;
pub use path::Path;
pub use reduction::Reduction;
pub use types::{DType, ReduceOp, Undefined};

#[cfg(test)]
#[expect(unsafe_code, reason = "tensors are given by address")]
mod tests;
