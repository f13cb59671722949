//! What can go wrong before a verb has done anything; what it does has errors of its own.

use std::io;

/// Each variant is a decision; its text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Ranks could not be started.
    #[error(transparent)]
    Launch(#[from] eirene_train_launch::Error),
    /// A node or a link is sick, and nothing was started.
    #[error("{0}")]
    Sick(String),
    /// There is no Python around this program.
    #[error(
        "bench needs the Python package eirene_train with torch: `pip install eirene-train torch`, then the `eirene-train` that comes with it"
    )]
    NeedsPython,
    /// The program that a verb is handed to cannot be started.
    #[error("cannot start `{program}`: {source}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody takes what there is to say.
    #[error("cannot write output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// What the command exits with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Launch(error) => error.exit_code(),
            Self::NeedsPython | Self::Output(_) | Self::Sick(_) => 2,
            Self::NotStarted { .. } => 127,
        }
    }
}
