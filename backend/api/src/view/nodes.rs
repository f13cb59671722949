//! What runs on the nodes of one session or run, as the API shows it.

use eirene_services::nodes::{NodeStatus, RunningStep as Running};
use eirene_tunnel::message::NodeState;
use serde::Serialize;
use utoipa::ToSchema;

/// A node of a session, and what runs there.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct NodeDetail {
    /// Name.
    #[schema(example = "c1")]
    name: String,
    /// Whether ranks can be started there; absent while its agent is not connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    state: Option<NodeWord>,
    /// Why they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text: Option<String>,
    /// Whether the session's app, or the run's program, is there.
    app: bool,
    /// Steps with ranks there.
    steps: Vec<RunningStep>,
}

/// Whether ranks can be started on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeWord {
    /// Its container is being started.
    Starting,
    /// They can.
    Ready,
    /// Not now.
    Lost,
}

/// A step that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct RunningStep {
    /// The session's own number for it.
    number: u32,
    /// What it runs, shortened.
    #[schema(example = "python3 train.py")]
    command: String,
    /// Ranks on all its nodes together.
    ranks: u32,
    /// How many nodes it has.
    nodes: u32,
}

/// What runs on a session's nodes.
pub(super) fn node_details(nodes: &[NodeStatus]) -> Vec<NodeDetail> {
    let step = |step: &Running| RunningStep {
        number: step.number,
        command: step.command.clone(),
        ranks: step.ranks,
        nodes: step.nodes,
    };
    let word = |state| match state {
        NodeState::Starting => Some(NodeWord::Starting),
        NodeState::Ready => Some(NodeWord::Ready),
        NodeState::Lost => Some(NodeWord::Lost),
        NodeState::Unknown => None,
    };
    let detail = |node: &NodeStatus| NodeDetail {
        name: node.name.to_string(),
        state: node.state.and_then(word),
        text: node.text.clone(),
        app: node.has_app,
        steps: node.steps.iter().map(step).collect(),
    };
    nodes.iter().map(detail).collect()
}
