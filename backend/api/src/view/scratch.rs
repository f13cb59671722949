//! How the fast scratch of a session or run is, as the API shows it.

use eirene_core::{KeptOn, ScratchPhase, Session};
use eirene_services::nodes::{Copied, Share};
use serde::Serialize;
use utoipa::ToSchema;

/// How the fast scratch of a session or run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ScratchState)]
pub(crate) struct ScratchStateView {
    /// How far it is, on all nodes together.
    state: ScratchPhase,
    /// What has been copied so far, while something is: to the scratch, or from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    copied: Option<ShareView>,
    /// The same for each node, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    nodes: Vec<NodeShareView>,
    /// Where something is that could not be copied back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    kept_on: Vec<KeptOnView>,
}

/// What has been copied, of how much where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ScratchShare)]
pub(crate) struct ShareView {
    /// Bytes.
    bytes: u64,
    /// Files and links.
    files: u64,
    /// Bytes of all that is to be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total_bytes: Option<u64>,
    /// Files and links of all that is to be copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total_files: Option<u64>,
}

/// What has been copied on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeScratchShare)]
pub(crate) struct NodeShareView {
    /// The node.
    #[schema(example = "c1")]
    node: String,
    /// What has been copied there.
    copied: ShareView,
}

/// A node that keeps something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ScratchKeptOn)]
pub(crate) struct KeptOnView {
    /// The node.
    #[schema(example = "c1")]
    node: String,
    /// Why, as one sentence, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text: Option<String>,
    /// Whether a job of its owner's is bringing it back, or waits for its turn to.
    rescuing: bool,
}

impl ScratchStateView {
    /// Of the scratch of a session's present start; none as long as nothing has been said of it.
    pub(super) fn of(session: &Session) -> Option<Self> {
        let known = session.scratch_state.as_ref().filter(|known| known.restart_count == session.restart_count)?;
        let kept = |kept: &KeptOn| KeptOnView {
            node: kept.node.to_string(),
            text: kept.text.clone(),
            rescuing: kept.rescue.job.is_some() && known.phase == ScratchPhase::Kept,
        };
        Some(Self {
            state: known.phase,
            copied: None,
            nodes: Vec::new(),
            kept_on: known.kept.iter().map(kept).collect(),
        })
    }

    /// The same, with what is being copied.
    pub(super) fn with_copied(mut self, copied: Option<&Copied>) -> Self {
        if matches!(self.state, ScratchPhase::Filling | ScratchPhase::Emptying) {
            let node =
                |(node, share): &(_, Share)| NodeShareView { node: ToString::to_string(node), copied: share.into() };
            self.copied = copied.map(|copied| ShareView::from(&copied.all));
            self.nodes = copied.map(|copied| copied.nodes.iter().map(node).collect()).unwrap_or_default();
        }
        self
    }
}

impl From<&Share> for ShareView {
    fn from(share: &Share) -> Self {
        Self {
            bytes: share.copied.bytes,
            files: share.copied.files,
            total_bytes: share.total.map(|total| total.bytes),
            total_files: share.total.map(|total| total.files),
        }
    }
}
