//! The command, as its users see it: real ranks, real launchers.

mod common;
mod doctor;
mod hosts;
mod image_mpi;
mod meet;
mod preflight;
mod run;
mod slurm;
