//! The command, as its users see it: real ranks, real launchers.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "../../../deep.rs"]
mod deep;
mod doctor;
mod hosts;
mod image_mpi;
mod meet;
mod preflight;
mod run;
mod slurm;
