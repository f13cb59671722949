//! What can go wrong, by what a caller may do about it.

use std::time::Duration;

/// How a mismatch begins, also when another rank tells of it.
const DISAGREE: &str = "the ranks do not agree: ";

/// Why something did not happen. Ranks are those of the world, except where a message says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// It took longer than allowed.
    #[error("{what} did not end within {waited:?}{}", missing_ranks(missing))]
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// What for.
        what: String,
        /// Who has not come, where that is known.
        missing: Vec<u32>,
    },
    /// Ranks did not come when the world was to be joined.
    #[error("{message}")]
    Absent {
        /// How long was waited for whom, where, and what to look at.
        message: String,
        /// Who has not come.
        missing: Vec<u32>,
    },
    /// A rank has ended while it was needed.
    #[error("rank {rank} has ended while {what}")]
    PeerDied {
        /// Which.
        rank: u32,
        /// What was going on.
        what: String,
    },
    /// A rank has left the world in order while it was needed.
    #[error("rank {rank} has left, but it was still needed: {what}")]
    Left {
        /// Which.
        rank: u32,
        /// What for.
        what: String,
    },
    /// The caller's own hook asked it to give up.
    #[error("interrupted while {what}")]
    Interrupted {
        /// What was going on.
        what: String,
    },
    /// Ranks have called different things.
    #[error("{DISAGREE}{message}")]
    Mismatch {
        /// Who called what.
        message: String,
    },
    /// Another rank has given up, and told why.
    #[error("rank {rank} has given up: {reason}")]
    Aborted {
        /// Which.
        rank: u32,
        /// Why.
        reason: String,
    },
    /// What was asked for makes no sense.
    #[error("{message}")]
    Invalid {
        /// Why not.
        message: String,
    },
    /// There is not enough memory, or it cannot be shared.
    #[error("cannot {what} {bytes} bytes of shared memory: {reason}")]
    Memory {
        /// How much was wanted.
        bytes: usize,
        /// What failed.
        what: String,
        /// What the system says.
        reason: String,
    },
    /// A rank is so far behind another that no more is kept for it.
    #[error(
        "rank {rank} has sent so much that waits here unread that no more is taken from it: let this rank take part in what rank {rank} \
         has begun (groups it has built, above all) before it begins more"
    )]
    Behind {
        /// Whom it is behind.
        rank: u32,
    },
    /// The world was left, or something failed in it before.
    #[error("this world has ended: {reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// The ranks could not find or trust each other.
    #[error("{0}")]
    Meeting(String),
    /// The connection to a rank failed.
    #[error("the connection to rank {rank} failed: {reason}")]
    Connection {
        /// Which rank.
        rank: u32,
        /// What the system says.
        reason: String,
    },
    /// The MPI library refused.
    #[error("MPI: {0}")]
    Mpi(String),
}

impl Error {
    /// That a rank has given up for a reason. Calls that do not match are everybody's error, whoever has found it.
    pub(crate) fn aborted(rank: u32, reason: String) -> Self {
        match reason.strip_prefix(DISAGREE) {
            Some(message) => Self::Mismatch { message: message.to_owned() },
            None => Self::Aborted { rank, reason },
        }
    }

    pub(crate) fn memory(bytes: usize, what: &str, errno: nix::Error) -> Self {
        Self::Memory { bytes, what: what.to_owned(), reason: errno.desc().to_owned() }
    }
}

/// What the mesh says, for those who decide by it; what it says of how ranks met stays in its words.
impl From<eirene_train_mesh::Error> for Error {
    fn from(error: eirene_train_mesh::Error) -> Self {
        use eirene_train_mesh::Error as Mesh;
        match error {
            Mesh::Timeout { waited, missing, .. } if !missing.is_empty() => {
                Self::Timeout { waited, what: "meeting the other ranks".to_owned(), missing }
            }
            Mesh::Died { rank } => Self::PeerDied { rank, what: "the ranks met".to_owned() },
            Mesh::Aborted { rank, reason } => Self::aborted(rank, reason),
            Mesh::Left { rank } => Self::Left { rank, what: "the ranks met".to_owned() },
            Mesh::Full { rank } => Self::Behind { rank },
            other => Self::Meeting(other.to_string()),
        }
    }
}

fn missing_ranks(missing: &[u32]) -> String {
    match missing {
        [] => String::new(),
        [one] => format!(": rank {one} has not come"),
        many => format!(": ranks {} have not come", many.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
