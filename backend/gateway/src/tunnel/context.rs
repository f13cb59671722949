//! What the tunnel is given.

use std::sync::Arc;

use eirene_core::Clock;
use eirene_services::agents::TunnelRegistry;
use eirene_services::agents::admission::AgentAdmission;
use eirene_services::app::App;
use eirene_services::events::Events;
use eirene_services::logs::Logs;
use eirene_services::nodes::NodeReports;
use eirene_services::nudge::Nudges;
use eirene_services::samples::Samples;
use eirene_services::sessions::Sessions;
use eirene_services::traces::Traces;
use eirene_services::workers::Workers;
use tokio_util::sync::CancellationToken;

/// What agents reach through the tunnel, each its own session's part of it.
#[derive(Clone)]
pub struct TunnelContext {
    pub(super) admission: AgentAdmission,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Sessions,
    pub(super) tunnels: TunnelRegistry,
    pub(super) nudges: Nudges,
    pub(super) logs: Logs,
    pub(super) nodes: NodeReports,
    pub(super) samples: Samples,
    pub(super) events: Events,
    pub(super) traces: Traces,
    pub(super) workers: Workers,
    pub(super) shutdown: CancellationToken,
    /// Seconds within which an app must be ready.
    pub(super) ready_within_s: u32,
}

impl From<&App> for TunnelContext {
    fn from(app: &App) -> Self {
        Self {
            admission: app.agent_admission.clone(),
            clock: Arc::clone(&app.clock),
            sessions: app.sessions.clone(),
            tunnels: app.tunnels.clone(),
            nudges: app.nudges.clone(),
            logs: app.logs.clone(),
            nodes: app.nodes.clone(),
            samples: app.samples.clone(),
            events: app.events.clone(),
            traces: app.traces.clone(),
            workers: app.workers.clone(),
            shutdown: app.shutdown.clone(),
            ready_within_s: app.config.agent.ready_within_s,
        }
    }
}
