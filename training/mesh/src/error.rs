//! What can go wrong between ranks. Each variant is a decision somebody takes: wait longer, mend the launch, give up
//! and say which rank is to blame.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why ranks could not meet, or why they can no longer talk.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody did not come, or did not speak, in time.
    #[error("waited {:.1} s for {}{}", .waited.as_secs_f64(), Ranks(.missing), Strangers(*.strangers))]
    Timeout {
        /// How long was waited.
        waited: Duration,
        /// The ranks that are missing.
        missing: Vec<u32>,
        /// How many connections came that could not prove the secret.
        strangers: u32,
    },
    /// A rank's process or machine is gone without a goodbye.
    #[error("rank {rank} died")]
    Died {
        /// The rank that is gone.
        rank: u32,
    },
    /// A rank ended the work for everybody.
    #[error("rank {rank} gave up: {reason}")]
    Aborted {
        /// The rank that ended it.
        rank: u32,
        /// In its own words.
        reason: String,
    },
    /// A rank has said goodbye and cannot be talked to.
    #[error("rank {rank} has left")]
    Left {
        /// The rank that has left.
        rank: u32,
    },
    /// Bytes came on a rank's connection which that rank did not send; the connection was dropped.
    #[error("the connection to rank {rank} carried bytes that rank {rank} did not send")]
    Corrupt {
        /// Whose connection it was.
        rank: u32,
    },
    /// Two processes say that they are the same rank.
    #[error("two processes say they are rank {rank}")]
    Duplicate {
        /// The rank claimed twice.
        rank: u32,
    },
    /// A rank was started for a world of another size.
    #[error("rank {rank} was started for a world of {theirs} ranks, rank 0 for {ours}")]
    WorldSize {
        /// The rank that differs from rank 0.
        rank: u32,
        /// The size it was told.
        theirs: u32,
        /// The size rank 0 was told.
        ours: u32,
    },
    /// Rank 0 closed the door each time after seeing our proof.
    #[error("rank 0 refused our proof: is the secret the same, and the world `{world}`?")]
    Refused {
        /// The world we wanted to join.
        world: String,
    },
    /// Two ranks that are both alive cannot reach each other.
    #[error("rank {from} could not reach rank {to}: check the interfaces and the firewall between them")]
    Unreachable {
        /// Who tried.
        from: u32,
        /// Whom it tried to reach.
        to: u32,
    },
    /// A rank could not take part for a reason of its own.
    #[error("rank {rank} could not start: {reason}")]
    Failed {
        /// Which rank.
        rank: u32,
        /// In its own words.
        reason: String,
    },
    /// A file that holds the secret, or the meeting file, cannot be trusted.
    #[error("`{}` {why}", .path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A directory that should be private is not.
    #[error("`{}` {why}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The plan or a call makes no sense.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// Descriptors were to be handed to a rank of another node.
    #[error("rank {rank} is on another node: descriptors cannot be handed to it")]
    OtherNode {
        /// Which rank.
        rank: u32,
    },
    /// So many messages of one rank wait unread that no more are taken, and the one asked for is not among them.
    #[error("too many unread messages from rank {rank}")]
    Full {
        /// Whose messages they are.
        rank: u32,
    },
    /// The process was forked; the ranks belong to its parent.
    #[error("this process is a fork: the ranks' connections belong to its parent")]
    Forked,
    /// The operating system refused.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    /// For `map_err` on calls to the system.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }

    /// The error with the system's answer in the same line, for those who get it as text.
    pub(crate) fn whole(&self) -> String {
        match self {
            Self::System { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

/// What has happened to the world since it met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A rank is gone without a goodbye.
    Died {
        /// The rank that is gone.
        rank: u32,
    },
    /// A rank ended the work for everybody.
    Aborted {
        /// The rank that ended it; it may be this one.
        rank: u32,
        /// In its own words.
        reason: String,
    },
    /// A rank's connection carried bytes that the rank did not send.
    Corrupt {
        /// Whose connection it was.
        rank: u32,
    },
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Died { rank } => Self::Died { rank },
            Trouble::Aborted { rank, reason } => Self::Aborted { rank, reason },
            Trouble::Corrupt { rank } => Self::Corrupt { rank },
        }
    }
}

/// `rank 3`, `ranks 1, 2 and 5`, `ranks 1, 2, 3 … (60 in all)`.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        match self.0 {
            [] => write!(out, "the other ranks"),
            [one] => write!(out, "rank {one}"),
            [most @ .., last] if self.0.len() <= SHOWN => {
                let most: Vec<String> = most.iter().map(u32::to_string).collect();
                write!(out, "ranks {} and {last}", most.join(", "))
            }
            many => {
                let first: Vec<String> = many.iter().take(SHOWN).map(u32::to_string).collect();
                write!(out, "ranks {} … ({} in all)", first.join(", "), many.len())
            }
        }
    }
}

struct Strangers(u32);

impl fmt::Display for Strangers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => write!(out, " (one connection came that could not prove the secret)"),
            many => write!(out, " ({many} connections came that could not prove the secret)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_are_named_in_words() {
        let say = |missing: Vec<u32>, strangers| {
            Error::Timeout { waited: Duration::from_millis(2500), missing, strangers }.to_string()
        };
        assert_eq!(say(vec![3], 0), "waited 2.5 s for rank 3");
        assert_eq!(
            say(vec![1, 2, 5], 1),
            "waited 2.5 s for ranks 1, 2 and 5 (one connection came that could not prove the secret)"
        );
        assert!(say((0..60).collect(), 0).ends_with("10, 11 … (60 in all)"));
    }
}
