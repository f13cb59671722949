//! What can go wrong, as decisions for the caller.

use std::path::PathBuf;
use std::time::Duration;

use crate::mismatch::Mismatch;
use crate::number::{Number, Op};

/// An error of this crate. `Disabled` and `NotFound` mean: go on without MPI. `Mismatch` means: stop and show
/// the message, for going on would be many worlds of one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `EIRENE_TRAIN_MPI=none`.
    #[error("MPI is switched off by `EIRENE_TRAIN_MPI=none`")]
    Disabled,
    /// No candidate could be opened.
    #[error("no MPI library was found; tried: {tried}")]
    NotFound {
        /// The candidates with the reason of each.
        tried: String,
        /// The first that is there and does not open, with the reason.
        broken: Option<String>,
    },
    /// The loader refused a library.
    #[error("`{}` does not open: {message}", library.display())]
    Open {
        /// The file or name.
        library: PathBuf,
        /// The loader's words.
        message: String,
    },
    /// The file opens but is no MPI that is known here.
    #[error("`{}` is no MPI this program knows: {message}", library.display())]
    NotMpi {
        /// The file or name.
        library: PathBuf,
        /// What is missing.
        message: String,
    },
    /// Launcher and library cannot meet.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// MPI_Init has not returned, and nothing explains it but ranks that never came.
    #[error(
        "MPI_Init of {library} has not returned after {waited:?}: other ranks have not arrived, or its network is stuck"
    )]
    StartTimeout {
        /// The library.
        library: String,
        /// How long.
        waited: Duration,
    },
    /// MPI was already finalised in this process, and MPI cannot be started twice.
    #[error("MPI is over in this process: it was finalised and cannot be started again")]
    Finalized,
    /// Communicators or requests are still alive.
    #[error("MPI is still in use; it ends when the last communicator and request are dropped")]
    InUse,
    /// An MPI call failed.
    #[error("{call} failed with code {code}: {message}")]
    Call {
        /// The function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// MPI_Error_string of it.
        message: String,
    },
    /// A message was longer than the memory it was to be received into.
    #[error("{call}: a message is longer than the memory for it: {message}")]
    Truncated {
        /// The function.
        call: &'static str,
        /// MPI_Error_string of it.
        message: String,
    },
    /// This MPI gets this reduction wrong.
    #[error("{library} gets {op:?} of {number:?} wrong; reduce it some other way")]
    Unreliable {
        /// The library.
        library: String,
        /// The type.
        number: Number,
        /// The operation.
        op: Op,
    },
    /// Something did not finish in time.
    #[error("{what} has not finished after {waited:?}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// The caller asked for something that cannot be.
    #[error("{message}")]
    Invalid {
        /// What.
        message: String,
    },
    /// The operating system refused.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Its words.
        #[source]
        cause: std::io::Error,
    },
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into() }
    }
}
