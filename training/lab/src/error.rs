//! What can go wrong.

/// Why there are no nodes, or not that one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else may not make namespaces.
    #[error("emulated nodes are network namespaces, which only root can make: use sudo")]
    NotRoot,
    /// No such number of nodes.
    #[error("a lab has 1 to {} nodes, not {count}", crate::MOST_NODES)]
    Count {
        /// How many were asked for.
        count: u32,
    },
    /// No lab of that name.
    #[error("there is no lab `{name}`: `eirene-train-nodes up` sets one up and says its name")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No such node.
    #[error("there is no node `{node}`: there are node1 to node{count}")]
    NoNode {
        /// What was asked for.
        node: String,
        /// How many there are.
        count: u32,
    },
    /// A tool failed.
    #[error("`{command}` failed: {said}")]
    Tool {
        /// The command line.
        command: String,
        /// What it said.
        said: String,
    },
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
