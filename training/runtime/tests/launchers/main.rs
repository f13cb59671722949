//! Real processes, whoever starts them: the program `conformance` under every launcher there is.

mod conform;
mod killed;
mod launcher;
mod matrix;
#[path = "../../../launch/tests/fixture/slurm.rs"]
mod slurm;
mod started;
