//! Real processes, whoever starts them: the program `conformance` under every launcher there is.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod conform;
#[path = "../../../deep.rs"]
mod deep;
mod killed;
mod launcher;
mod matrix;
#[path = "../../../launch/tests/fixture/slurm.rs"]
mod slurm;
mod started;
