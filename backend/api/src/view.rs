//! Domain things as the API shows them: what programs may rely on, apart from what the types inside look like.

mod alerts;
mod cluster_past;
mod confined;
mod efficiency;
mod file;
mod file_work;
mod health;
mod node_change;
mod nodes;
mod old_files;
mod preview;
mod run;
mod samples;
mod scan;
mod scratch;
mod space;
mod storage;
mod storage_stats;
mod zabbix;

use eirene_core::audit::AuditEvent;
use eirene_core::{
    ApiToken, Image, Reason, Resources, Role, Scope, ScratchSpec, Session, SessionState, User, UserState, scheduler,
};
use eirene_services::cluster::{ClusterView, GpuSupply};
use eirene_services::config::Config;
use eirene_services::nodes::{Copied, NodeStatus};
use eirene_services::sessions::AdoptedJob;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use self::nodes::{NodeDetail, node_details};
use self::scratch::ScratchStateView;
pub use alerts::AlertView;
pub(crate) use alerts::SilenceView;
pub(crate) use cluster_past::ClusterPastView;
pub use confined::ConfinedNodeView;
pub(crate) use efficiency::{ByWord, JobUsageView, ReportView};
pub use file::{DetailsView, ListingView};
pub use file_work::{AclLine, MovedView, OperationView, PermissionsView, RefusedView, TrashedView};
pub(crate) use health::HealthView;
pub use node_change::NodeChangeView;
pub use old_files::OldFilesView;
pub use preview::PreviewView;
pub use run::RunView;
pub use samples::{SampleGroup, SamplesView};
pub use scan::ScanView;
pub use space::{GroupLimitView, PolicyView, SampleView, SpaceView};
pub use storage::{DefaultQuotasView, LimitWord, QuotasView, StorageView};
pub use storage_stats::StorageStatsView;
pub use zabbix::NodeInZabbixView;

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    /// Id; also the label of its origin.
    #[schema(pattern = "^[0-9a-f]{32}$", example = "0190d2a4c3f87b1e8f0e6d2f4b5a6978")]
    id: String,
    /// What its owner calls it.
    #[schema(example = "exercise 3")]
    name: String,
    /// Owner's name.
    #[schema(example = "ada")]
    owner: String,
    /// App.
    #[schema(example = "jupyterlab")]
    app: String,
    /// Image.
    #[schema(example = "jupyter")]
    image: String,
    /// Project.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    project: Option<String>,
    /// Where it is on its way.
    state: SessionState,
    /// Whether SLURM cannot be asked at the moment, so that `state` is the last known.
    undetermined: bool,
    /// Why it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// Where its app answers, until it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    url: Option<String>,
    /// SLURM's number for its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    slurm_job_id: Option<u32>,
    /// Nodes of its allocation.
    nodes: Vec<String>,
    /// What runs on each of its nodes, where a single session is asked for.
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

/// What a session or a run asked for.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Resources)]
pub struct ResourcesView {
    /// Partition; none is the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    partition: Option<String>,
    /// Number of nodes.
    nodes: u32,
    /// CPUs per node.
    cpus: u32,
    /// Memory per node, MiB.
    memory_mib: u64,
    /// GPUs per node.
    gpus: u32,
    /// GPU type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    gpu_type: Option<String>,
    /// Longest time, minutes.
    walltime_min: u32,
}

impl SessionView {
    /// Of a session.
    pub fn new(session: &Session, config: &Config) -> Self {
        let text = |name: &dyn std::fmt::Display| name.to_string();
        Self {
            id: session.id.to_string(),
            name: session.name.to_string(),
            owner: session.owner_name.to_string(),
            app: session.app.to_string(),
            image: session.image.to_string(),
            project: session.project.as_ref().map(|name| text(name)),
            state: session.state,
            undetermined: session.undetermined,
            reason: session.reason.clone(),
            url: (!session.state.is_final()).then(|| format!("{}/", config.session_origin(session.id))),
            slurm_job_id: session.job.as_ref().map(|job| job.id),
            nodes: session.nodes.iter().map(|name| text(name)).collect(),
            node_details: Vec::new(),
            resources: ResourcesView::from(&session.resources),
            scratch: session.scratch.clone(),
            scratch_state: ScratchStateView::of(session),
            restart_count: session.restart_count,
            created_at: session.created_at,
            start_estimate: session.start_estimate,
            started_at: session.started_at,
            ends_at: session.ends_at,
            ended_at: session.ended_at,
            version: session.version,
        }
    }

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
}

impl From<&Resources> for ResourcesView {
    fn from(wanted: &Resources) -> Self {
        Self {
            partition: wanted.partition.as_ref().map(ToString::to_string),
            nodes: wanted.nodes,
            cpus: wanted.cpus,
            memory_mib: wanted.memory_mib,
            gpus: wanted.gpus,
            gpu_type: wanted.gpu_type.as_ref().map(ToString::to_string),
            walltime_min: wanted.walltime_min,
        }
    }
}

/// An account.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// Name.
    #[schema(example = "ada")]
    username: String,
    /// Role.
    role: Role,
    /// Whether they may sign in.
    state: UserState,
    /// POSIX user id; none for an account that runs nothing.
    uid: Option<u32>,
    /// When the account was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<&User> for UserView {
    fn from(user: &User) -> Self {
        Self {
            id: user.id.to_string(),
            username: user.username.to_string(),
            role: user.role,
            state: user.state,
            uid: user.uid,
            created_at: user.created_at,
        }
    }
}

/// An API token; its secret is shown only once, when it is made.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// What its owner calls it.
    name: String,
    /// What it may be used for.
    scopes: Vec<Scope>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it is over; null is never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When it was last used, to the minute or so.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
}

impl From<&ApiToken> for TokenView {
    fn from(token: &ApiToken) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            scopes: token.scopes.clone(),
            created_at: token.created_at,
            expires_at: token.expires_at,
            last_used_at: token.last_used_at,
        }
    }
}

/// An image people may start.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Image)]
pub struct ImageView {
    /// Name.
    #[schema(example = "jupyter")]
    name: String,
    /// One sentence.
    description: String,
    /// SHA-256 of its file.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    /// Size of its file.
    size_bytes: i64,
    /// Apps it can run.
    apps: Vec<String>,
    /// When it was added.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<&Image> for ImageView {
    fn from(image: &Image) -> Self {
        Self {
            name: image.name.to_string(),
            description: image.description.clone(),
            sha256: image.sha256.clone(),
            size_bytes: image.size_bytes,
            apps: image.apps.iter().map(ToString::to_string).collect(),
            created_at: image.created_at,
        }
    }
}

/// The cluster as it was last seen: for admins all of it, for everybody else what concerns them.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Cluster)]
pub struct ClusterDocument {
    /// When it was last seen; null before the first time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// Whether SLURM answers now.
    reachable: bool,
    /// Partitions.
    partitions: Vec<PartitionView>,
    /// GPUs by type, on these nodes.
    gpu_types: Vec<GpuSupply>,
    /// Nodes.
    nodes: Vec<NodeView>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Partition)]
pub struct PartitionView {
    /// Name.
    name: String,
    /// Whether jobs go here when they name none.
    is_default: bool,
    /// Whether it takes jobs.
    available: bool,
    /// Longest time limit, minutes; null is none.
    max_walltime_min: Option<u32>,
    /// Most nodes a job may have; null is no limit.
    max_nodes: Option<u32>,
    /// Its nodes.
    nodes: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    /// Name.
    #[schema(example = "c1")]
    name: String,
    /// Whether it takes jobs now.
    available: bool,
    /// State in plain words.
    #[schema(example = "idle")]
    state: String,
    /// The operator's reason where it is down or drained.
    reason: Option<String>,
    /// CPUs.
    cpus: u32,
    /// CPUs allocated.
    cpus_allocated: u32,
    /// Load as the node counts it: 1 keeps one CPU busy. Null where nobody says it.
    #[schema(example = 3.5)]
    cpu_load: Option<f64>,
    /// Memory, MiB.
    memory_mib: u64,
    /// Memory allocated, MiB.
    memory_allocated_mib: u64,
    /// GPUs by type.
    gpus: Vec<NodeGpusView>,
    /// Whether it is reserved for a waiting job: until that starts, only shorter jobs start there.
    reserved: bool,
    /// Partitions it belongs to.
    partitions: Vec<String>,
}

/// GPUs of one type on one node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NodeGpus)]
pub struct NodeGpusView {
    /// Type; empty when the cluster does not name one.
    gpu_type: String,
    /// How many there are.
    total: u32,
    /// How many are allocated.
    allocated: u32,
}

impl From<&scheduler::Node> for NodeView {
    fn from(node: &scheduler::Node) -> Self {
        let gpus = |gpus: &scheduler::NodeGpus| NodeGpusView {
            gpu_type: gpus.gpu_type.clone(),
            total: gpus.total,
            allocated: gpus.allocated,
        };
        Self {
            name: node.name.to_string(),
            available: node.available,
            state: node.state.clone(),
            reason: node.reason.clone(),
            cpus: node.cpus,
            cpus_allocated: node.cpus_allocated,
            cpu_load: node.cpu_load.map(|hundredths| f64::from(hundredths) / 100.0),
            memory_mib: node.memory_mib,
            memory_allocated_mib: node.memory_allocated_mib,
            gpus: node.gpus.iter().map(gpus).collect(),
            reserved: node.is_planned,
            partitions: node.partitions.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&scheduler::Partition> for PartitionView {
    fn from(partition: &scheduler::Partition) -> Self {
        Self {
            name: partition.name.to_string(),
            is_default: partition.is_default,
            available: partition.available,
            max_walltime_min: partition.max_walltime_min,
            max_nodes: partition.max_nodes,
            nodes: partition.nodes.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&ClusterView> for ClusterDocument {
    fn from(view: &ClusterView) -> Self {
        Self {
            at: view.at,
            reachable: view.reachable,
            partitions: view.partitions.iter().map(PartitionView::from).collect(),
            gpu_types: view.gpu_types.clone(),
            nodes: view.nodes.iter().map(NodeView::from).collect(),
        }
    }
}

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = AuditEvent)]
pub struct AuditView {
    /// Position in the log.
    id: i64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who.
    actor: String,
    /// What.
    #[schema(example = "session.start")]
    action: String,
    /// To whom or what.
    target: String,
    /// `ok`, `refused` or `failed`; `begun` where a change in SLURM, in the storage or in files begins, and `stopped` where it was ended on the way.
    outcome: String,
    /// Details.
    #[schema(value_type = Object)]
    details: serde_json::Value,
    /// The client's address.
    address: Option<String>,
    /// The request's id.
    request_id: Option<String>,
}

impl From<AuditEvent> for AuditView {
    fn from(event: AuditEvent) -> Self {
        let AuditEvent { id, at, actor, action, target, outcome, details, address, request_id } = event;
        Self { id, at, actor, action, target, outcome, details, address, request_id }
    }
}

/// A job with our mark that belongs to no session the database knows: it came back with a restored backup.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = AdoptedJob)]
pub struct AdoptedJobView {
    /// Cluster.
    cluster: String,
    /// SLURM's number for it.
    slurm_job_id: u32,
    /// POSIX user id of its owner.
    uid: u32,
    /// When it was last seen.
    #[schema(value_type = String, format = DateTime)]
    seen_at: Timestamp,
}

impl From<AdoptedJob> for AdoptedJobView {
    fn from(job: AdoptedJob) -> Self {
        Self { cluster: job.cluster, slurm_job_id: job.job_id, uid: job.uid, seen_at: job.seen_at }
    }
}
