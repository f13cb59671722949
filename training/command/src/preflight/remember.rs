//! Which nodes of a session were well, so that the next step need not try them again.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::beside::Beside;

const NAME: &str = "preflight.json";

/// What was found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    /// Nodes that were tried together.
    nodes: Vec<String>,
    /// What is slow about them.
    warnings: Vec<String>,
}

/// What is known of a session's nodes.
pub(super) struct Memory(Beside);

impl Memory {
    /// Beside a session's socket.
    pub(super) fn beside(socket: &Path) -> Self {
        Self(Beside::new(socket, NAME))
    }

    /// What is to be said of these nodes, where they were well together not long ago.
    pub(super) fn of(&self, nodes: &[String]) -> Option<Vec<String>> {
        let found: Found = self.0.read()?;
        nodes.iter().all(|node| found.nodes.contains(node)).then_some(found.warnings)
    }

    /// Keeps that these were well. Where it cannot be kept, they are tried again.
    pub(super) fn keep(&self, nodes: &[String], warnings: &[String]) {
        self.0.keep(&Found { nodes: nodes.to_vec(), warnings: warnings.to_vec() });
    }

    /// Forgets it.
    pub(super) fn forget(&self) {
        self.0.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_well_together_are_known() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::beside(&directory.path().join("steps.sock"));
        assert_eq!(memory.of(&names(&["c1", "c2"])), None);
        memory.keep(&names(&["c1", "c2", "c3"]), &names(&["c3 is slow"]));
        assert_eq!(memory.of(&names(&["c1", "c2"])), Some(names(&["c3 is slow"])));
        assert_eq!(memory.of(&names(&["c1", "c4"])), None, "c4 was never tried");
        memory.forget();
        assert_eq!(memory.of(&names(&["c1", "c2"])), None);
    }
}
