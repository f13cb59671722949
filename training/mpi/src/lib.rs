//! Any MPI, found and opened at run time.
//!
//! No header and no MPI is needed to build this crate: the library is found where the program runs
//! ([`find`]), opened and recognised by its symbols ([`Library`]), and spoken to in its own binary interface,
//! of which there are three: Open MPI's, MPICH's and the standard one of MPI 5. [`Mpi::start`] guards the
//! start: where the launcher and the library cannot meet, it is an error that names both and the cure,
//! never a hang and never many worlds of one.
//!
//! The story in order: [`Surroundings`] (what is seen from this process), [`find`], [`choose`],
//! [`Mpi::start`], [`Mpi::world`], then messages and collectives on a [`Communicator`].
//!
//! Left to others: who started us when it was no MPI, schedules, and how a tensor's type maps to [`Number`].

mod abi;
mod collective;
mod communicator;
mod environment;
mod error;
mod ffi;
mod find;
mod issue;
mod library;
mod mismatch;
mod number;
mod request;
mod slices;
mod start;
mod watch;

pub use abi::Abi;
pub use collective::{Blocks, Collective, Input};
pub use communicator::{Arrived, Communicator};
pub use environment::{Environment, Launcher, Promise, Surroundings};
pub use error::Error;
pub use find::{Candidate, Origin, choose, find};
pub use library::{Family, Identity, Library, Pmix};
pub use mismatch::{Mismatch, check};
pub use number::{Number, Numeric, Op, Width};
pub use request::{Done, Request};
pub use start::{Mpi, Options, ThreadLevel};
