//! What can go wrong in finding out who started us, and in starting ranks.

use std::io;
use std::path::PathBuf;

/// Each variant is a decision; its text names the thing and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable holds something that it cannot hold.
    #[error("`{variable}` is `{value}`, but {expected}")]
    Malformed {
        /// The variable's name.
        variable: String,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A launcher left something out that cannot be guessed.
    #[error("{found}, but `{variable}` is not set; {cure}")]
    Missing {
        /// What is there.
        found: String,
        /// What is not.
        variable: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// Two sources say what cannot both be true.
    #[error("{one}, but {other}; {cure}")]
    Contradiction {
        /// The first side, with its variables.
        one: String,
        /// The other side, with its variables.
        other: String,
        /// What to do.
        cure: String,
    },
    /// The directory to meet in is not ours alone.
    #[error("`{}` {problem}; {cure}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        cure: &'static str,
    },
    /// The world's secret could not be had.
    #[error("the world's secret cannot be read from {place}: {problem}")]
    Secret {
        /// Where it should have been.
        place: String,
        /// What happened.
        problem: String,
    },
    /// A host file has a line that says nothing.
    #[error("host file `{}`, line {line}: {problem}", path.display())]
    HostFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// What was asked for cannot be done.
    #[error("{0}")]
    Usage(String),
    /// A session's agent starts nothing.
    #[error("{text}")]
    Refused {
        /// Its stable code for why.
        code: String,
        /// What is wrong, and what to do.
        text: String,
    },
    /// The program could not be started.
    #[error("`{program}` cannot be started on {host}: {problem}")]
    NotStarted {
        /// What was to be run.
        program: String,
        /// Where.
        host: String,
        /// What the system said.
        problem: String,
        /// What a shell would end with: 127 when the program is not there, 126 when it may not be run.
        code: u8,
    },
    /// A host did not answer, or stopped answering.
    #[error("host `{host}` {problem}")]
    Host {
        /// The host.
        host: String,
        /// What happened, with what the remote shell said.
        problem: String,
    },
    /// The operating system said no.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// An error of the system's, with what was being done.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    /// What a command that ends with this error exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotStarted { code, .. } => *code,
            Self::Malformed { .. }
            | Self::Missing { .. }
            | Self::Contradiction { .. }
            | Self::Directory { .. }
            | Self::Secret { .. }
            | Self::HostFile { .. }
            | Self::Usage(_)
            | Self::Refused { .. }
            | Self::Host { .. }
            | Self::System { .. } => 2,
        }
    }
}
