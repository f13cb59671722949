//! Launching: who started this process, as which rank of how many, where the ranks meet; and starting ranks ourselves.
//!
//! [`Launch::detect`] reads the environment and touches nothing. [`Launch::plan`] makes the place to meet ready and gives the plan by
//! which the mesh joins. [`run`] starts ranks and looks after them, [`node`] does so on behalf of another host's `run`.
//!
//! The command line, joining, transports and MPI itself are left to others.

mod descriptor;
mod detect;
mod environment;
mod error;
mod launch;
mod meeting;
mod plan;
mod run;
pub mod variables;

pub use eirene_steps::ImageMpi;
pub use environment::Environment;
pub use error::Error;
pub use launch::{Launch, Mpi, Place, SecretSource, Starter};
pub use run::{
    BECAUSE_OF_ANOTHER, Bind, Ending, Hosts, Options, Output, SessionOptions, in_session, node, run, session_nodes,
};
