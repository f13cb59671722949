//! Launching, as its users see it.

mod common;
mod detect;
mod hosts;
mod meet;
mod run;
mod slurm;
