//! `eirene_train._native`: the runtime as Python sees it. What it means is written in `eirene_train/_native.pyi`.
//!
//! Types, reductions and collectives are numbers here, and memory is addresses, so that a call costs little; giving them a shape that people
//! like is the Python package's work. Whatever may wait releases the GIL.

mod codes;
mod error;
mod group;
mod interrupt;
mod seal;
mod work;
mod world;

use pyo3::prelude::*;

/// The runtime behind `eirene_train`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::codes::{collective, dtype, op};
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::seal::Seal;
    #[pymodule_export]
    use crate::work::Work;
    #[pymodule_export]
    use crate::world::{Region, World, addresses, command, launched};
}
