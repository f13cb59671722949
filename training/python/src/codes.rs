//! The numbers of types, reductions and collectives.

use eirene_train_runtime::{Collective, DType, ReduceOp};
use pyo3::prelude::*;

use crate::error;

const COLLECTIVES: [&str; 9] =
    ["all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "barrier"];

/// The number of an element type, by the name PyTorch gives it.
#[pyfunction]
pub(crate) fn dtype(name: &str) -> PyResult<usize> {
    DType::ALL
        .iter()
        .position(|dtype| dtype.name() == name)
        .ok_or_else(|| error::invalid(&format!("there is no type `{name}` here")))
}

/// The number of a reduction.
#[pyfunction]
pub(crate) fn op(name: &str) -> PyResult<usize> {
    ReduceOp::ALL
        .iter()
        .position(|op| op.name() == name)
        .ok_or_else(|| error::invalid(&format!("there is no reduction `{name}`")))
}

/// The number of a collective.
#[pyfunction]
pub(crate) fn collective(name: &str) -> PyResult<usize> {
    COLLECTIVES
        .iter()
        .position(|collective| *collective == name)
        .ok_or_else(|| error::invalid(&format!("there is no collective `{name}`")))
}

/// The element type with a number.
pub(crate) fn to_dtype(number: usize) -> PyResult<DType> {
    DType::ALL.get(number).copied().ok_or_else(|| error::invalid(&format!("there is no type number {number}")))
}

/// The reduction with a number.
pub(crate) fn to_op(number: usize) -> PyResult<ReduceOp> {
    ReduceOp::ALL.get(number).copied().ok_or_else(|| error::invalid(&format!("there is no reduction number {number}")))
}

/// The collective with a number.
pub(crate) fn to_collective(number: usize, root: u32) -> PyResult<Collective> {
    Ok(match number {
        0 => Collective::AllReduce,
        1 => Collective::Broadcast { root },
        2 => Collective::Reduce { root },
        3 => Collective::ReduceScatter,
        4 => Collective::AllGather,
        5 => Collective::AllToAll,
        6 => Collective::Gather { root },
        7 => Collective::Scatter { root },
        8 => Collective::Barrier,
        _ => return Err(error::invalid(&format!("there is no collective number {number}"))),
    })
}
