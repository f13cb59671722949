//! What one launcher says of us, and how its variables are read.

use crate::environment::Environment;
use crate::error::Error;
use crate::launch::Starter;

/// Most ranks a world may have; more is a mistake in a variable.
const MOST_RANKS: u32 = 1 << 20;

/// What one launcher says of us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) starter: Starter,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) local_rank: Option<u32>,
    pub(crate) local_size: Option<u32>,
    pub(crate) node: Option<u32>,
    pub(crate) node_count: Option<u32>,
    pub(crate) nodes: Vec<String>,
    /// A name that all ranks of this world share and no other world of this user has; empty when the launcher gives none.
    pub(crate) world: String,
    /// The variables that say so.
    pub(crate) evidence: String,
    pub(crate) remarks: Vec<String>,
    /// Whether PMIx or PMI is SLURM's own.
    pub(crate) by_slurm: bool,
}

impl Claim {
    pub(crate) fn new(starter: Starter, rank: u32, size: u32, evidence: String) -> Self {
        Self {
            starter,
            rank,
            size,
            local_rank: None,
            local_size: None,
            node: None,
            node_count: None,
            nodes: Vec::new(),
            world: String::new(),
            evidence,
            remarks: Vec::new(),
            by_slurm: false,
        }
    }

    /// One side of a contradiction.
    pub(crate) fn says(&self) -> String {
        format!("{} says rank {} of {} ({})", self.starter, self.rank, self.size, self.evidence)
    }

    /// Whether all ranks are known to be on one node.
    pub(crate) fn is_one_node(&self) -> bool {
        self.size == 1 || self.node_count == Some(1) || self.nodes.len() == 1 || self.local_size == Some(self.size)
    }

    /// Whether the claim agrees with itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |other: String| Error::Contradiction {
            one: self.says(),
            other,
            cure: "start the program by its launcher again, with unchanged variables".to_owned(),
        };
        if self.size == 0 || self.size > MOST_RANKS {
            return Err(wrong(format!("a world has 1 to {MOST_RANKS} ranks")));
        }
        if self.rank >= self.size {
            return Err(wrong(format!("ranks of {} go from 0 to {}", self.size, self.size - 1)));
        }
        if let Some(local) = self.local_size.filter(|local| *local == 0 || *local > self.size) {
            return Err(wrong(format!("{local} of them are said to be on this node")));
        }
        if let Some(rank) = self.local_rank.filter(|rank| *rank >= self.local_size.unwrap_or(self.size)) {
            let size = self.local_size.unwrap_or(self.size);
            return Err(wrong(format!("this is said to be rank {rank} on a node with {size}")));
        }
        Ok(())
    }
}

/// A number as launchers write them: digits, nothing else.
pub(crate) fn number(environment: &Environment, variable: &str) -> Result<Option<u32>, Error> {
    let Some(value) = environment.get(variable) else { return Ok(None) };
    parse(value).map(Some).ok_or_else(|| malformed(variable, value, "must be a number from 0 to 4294967295"))
}

/// A number that a claim cannot do without.
pub(crate) fn needed(environment: &Environment, variable: &'static str, found: &str) -> Result<u32, Error> {
    number(environment, variable)?.ok_or_else(|| Error::Missing {
        found: found.to_owned(),
        variable,
        cure: "start the program by its launcher again, and pass all its variables into the container",
    })
}

pub(crate) fn parse(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(crate) fn malformed(variable: &str, value: &str, expected: &'static str) -> Error {
    // A value may be long and may hold anything: the message shows a piece of it, printable.
    let value = value.chars().take(60).flat_map(char::escape_default).collect();
    Error::Malformed { variable: variable.to_owned(), value, expected }
}
