//! What holds the jobs on a node to what they have asked for, as the API shows it.

use eirene_core::confinement::{ConfinedNode, Confinement};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// What holds the jobs on a node, as the last session there saw it. What is absent is not known; all of it while nobody has told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ConfinedNode)]
pub struct ConfinedNodeView {
    /// Which control groups jobs have of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<Confinement>,
    /// Whether these hold jobs to their memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    memory: Option<bool>,
    /// Whether these hold jobs to their CPUs. A session that has all of a node's CPUs cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cpus: Option<bool>,
    /// When it was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false)]
    at: Option<Timestamp>,
}

impl From<ConfinedNode> for ConfinedNodeView {
    fn from(ConfinedNode { node: _, by, held, at }: ConfinedNode) -> Self {
        Self { by: Some(by), memory: held.memory, cpus: held.cpus, at: Some(at) }
    }
}
