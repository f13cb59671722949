//! The past of a node as the API shows it.

use eirene_core::node_history::NodeChange;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What a node was from a time on, until its next change.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NodeChange)]
pub struct NodeChangeView {
    /// When it was first seen so.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `in_service` while it takes jobs, `gone` when the scheduler no longer has it, else the word for why it takes none.
    #[schema(example = "drained")]
    state: String,
    /// The operator's reason.
    reason: Option<String>,
}

impl From<NodeChange> for NodeChangeView {
    fn from(NodeChange { node: _, at, state, reason }: NodeChange) -> Self {
        Self { at, state, reason }
    }
}
