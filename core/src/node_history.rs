//! The past of nodes: what each was when it changed. Who compares, keeps and forgets is not said here.

use jiff::Timestamp;

use crate::name::NodeName;

/// The word for a node that the scheduler no longer has.
pub const GONE: &str = "gone";
/// The word for a node that takes jobs, however many it runs: work that comes and goes is no change.
pub const IN_SERVICE: &str = "in_service";

/// What a node was from a time on, until its next change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// The node.
    pub node: NodeName,
    /// When it was first seen so.
    pub at: Timestamp,
    /// [`IN_SERVICE`], [`GONE`], or the state of a [`crate::scheduler::Node`] that takes no jobs.
    pub state: String,
    /// The operator's reason, hostile text.
    pub reason: Option<String>,
}
