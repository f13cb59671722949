//! A run, as the API shows it.

use eirene_core::{Reason, RunProgram, ScratchSpec, Session, SessionState};
use eirene_services::nodes::{Copied, NodeStatus};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::ResourcesView;
use super::nodes::{NodeDetail, node_details};
use super::scratch::ScratchStateView;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$", example = "0190d2a4c3f87b1e8f0e6d2f4b5a6978")]
    id: String,
    /// What its owner calls it.
    #[schema(example = "train.py")]
    name: String,
    /// Owner's name.
    #[schema(example = "ada")]
    owner: String,
    /// What it runs, as the container sees it; relative paths begin in the owner's home.
    #[schema(example = "train.py")]
    file: String,
    /// Arguments.
    arguments: Vec<String>,
    /// Ranks on all nodes together; none is one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ranks: Option<u32>,
    /// Whether nodes and links are tried before ranks start on several nodes.
    preflight: bool,
    /// Where a notebook's run leaves the executed notebook.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    executed_notebook: Option<String>,
    /// Image.
    #[schema(example = "jupyter")]
    image: String,
    /// Project.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    project: Option<String>,
    /// Where it is on its way. It is `ended` when its program ended well or was cancelled, else `failed`.
    state: SessionState,
    /// Whether SLURM cannot be asked at the moment, so that `state` is the last known.
    undetermined: bool,
    /// Why it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// The exit status of its program, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    exit_status: Option<i32>,
    /// The run that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[0-9a-f]{32}$")]
    requeue_of: Option<String>,
    /// SLURM's number for its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    slurm_job_id: Option<u32>,
    /// Nodes of its allocation.
    nodes: Vec<String>,
    /// What runs on each of its nodes, where a single run is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    node_details: Vec<NodeDetail>,
    /// What was asked for; CPUs, memory and GPUs are per node.
    resources: ResourcesView,
    /// The fast scratch it asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    scratch: Option<ScratchSpec>,
    /// How that scratch is, once its agent has said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    scratch_state: Option<ScratchStateView>,
    /// How often SLURM has restarted its job.
    restart_count: u32,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When SLURM expects to start it, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    start_estimate: Option<Timestamp>,
    /// When its allocation began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    started_at: Option<Timestamp>,
    /// When its walltime is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    ends_at: Option<Timestamp>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    ended_at: Option<Timestamp>,
    /// Grows with every change.
    version: i64,
}

impl RunView {
    /// The same, with what runs on its nodes.
    pub(crate) fn with_nodes(mut self, nodes: &[NodeStatus]) -> Self {
        self.node_details = node_details(nodes);
        self
    }

    /// The same, with what is being copied to its scratch, or from it.
    pub(crate) fn with_copied(mut self, copied: Option<&Copied>) -> Self {
        self.scratch_state = self.scratch_state.map(|state| state.with_copied(copied));
        self
    }

    /// Of a run.
    pub fn new(run: &Session) -> Self {
        // A row without a program is a session, and services never hand one out as a run.
        let none = || RunProgram { file: String::new(), arguments: Vec::new(), ranks: None, preflight: false };
        let program = run.program.clone().unwrap_or_else(none);
        Self {
            id: run.id.to_string(),
            name: run.name.to_string(),
            owner: run.owner_name.to_string(),
            executed_notebook: program.executed(run.id),
            file: program.file,
            arguments: program.arguments,
            ranks: program.ranks,
            preflight: program.preflight,
            image: run.image.to_string(),
            project: run.project.as_ref().map(ToString::to_string),
            state: run.state,
            undetermined: run.undetermined,
            reason: run.reason.clone(),
            exit_status: run.exit_status,
            requeue_of: run.requeue_of.map(|id| id.to_string()),
            slurm_job_id: run.job.as_ref().map(|job| job.id),
            nodes: run.nodes.iter().map(ToString::to_string).collect(),
            node_details: Vec::new(),
            resources: ResourcesView::from(&run.resources),
            scratch: run.scratch.clone(),
            scratch_state: ScratchStateView::of(run),
            restart_count: run.restart_count,
            created_at: run.created_at,
            start_estimate: run.start_estimate,
            started_at: run.started_at,
            ends_at: run.ends_at,
            ended_at: run.ended_at,
            version: run.version,
        }
    }
}
