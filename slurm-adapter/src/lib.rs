//! The scheduler port over slurmrestd ([`SlurmRestd`]) and over SLURM's own programs ([`SlurmCli`]).
//!
//! Both read the JSON of SLURM's data parsers, so they share every parser; they differ in how they ask and in how a refusal
//! looks. No SLURM word leaves this crate but [`eirene_core::scheduler::Job::word`], which is for logs.
//!
//! What it leaves to others: who may ask for what (the services), running programs and signing tokens (the launcher), and
//! deciding what a lost answer means (the reconcilers, by the job's name).

mod api;
mod calls;
#[cfg(test)]
mod captured;
mod cli;
mod convert;
mod default_partition;
mod doubts;
mod identity;
mod listing;
mod owners;
mod places;
mod reasons;
mod refusals;
mod restd;
mod state;
mod stream;
mod text;
mod tokens;
mod versions;
mod wire;

pub use cli::SlurmCli;
pub use identity::{JOB_NAME_PREFIX, is_ours, same_job};
pub use owners::{SystemUserIds, UserIds};
pub use restd::{SetupError, SlurmRestd};
pub use versions::is_newer_than_tested;
