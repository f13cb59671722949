//! What the agents do not say: an app that does not become ready is given up, with a reason and with the allocation given back; an agent that
//! has not been heard of for a while is shown as silent, and nothing else is concluded from that.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use eirene_core::scheduler::JobState;
use eirene_core::{Desired, Session, SessionId, SessionState};
use eirene_services::app::App;
use eirene_services::sessions::reasons;
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use super::lookup::is_ours;

/// The agent keeps the time itself and is given this much longer to say so.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// The reconciler.
pub(super) struct Ready {
    app: App,
    /// Since when each session has been seen starting on nodes that run its job, by our own clock: the scheduler's may differ, and after
    /// a restart of ours agents need a moment to come back.
    starting_since: Mutex<HashMap<SessionId, (u32, Timestamp)>>,
}

impl Ready {
    pub(super) fn new(app: App) -> Self {
        Self { app, starting_since: Mutex::default() }
    }

    /// The sessions that have been starting for too long.
    fn late(&self, live: &[Session], now: Timestamp) -> Vec<SessionId> {
        let limit = |session: &Session| {
            SignedDuration::from_secs(self.app.config.agent.ready_within_s.into()) + GRACE + preparing(session)
        };
        let snapshot = self.app.cluster.snapshot();
        let mut since = self.starting_since.lock().unwrap_or_else(PoisonError::into_inner);
        let mut starting = HashMap::new();
        for session in live.iter().filter(|session| session.state == SessionState::Starting) {
            let before = since.get(&session.id).filter(|(restart, _)| *restart == session.restart_count).copied();
            let runs = snapshot.jobs.iter().any(|job| is_ours(job, session) && job.state == JobState::Running);
            // Nodes that are being prepared and jobs that are suspended do not count; while the scheduler is away time goes on.
            if runs || (!snapshot.reachable && before.is_some()) {
                starting.insert(session.id, before.unwrap_or((session.restart_count, now)));
            }
        }
        *since = starting;
        let late = |session: &&Session| since.get(&session.id).is_some_and(|(_, since)| now > *since + limit(session));
        live.iter().filter(late).map(|session| session.id).collect()
    }
}

/// How much longer one may take that has a scratch: a file system is waited for, and files are copied for as long as that takes, within its time.
fn preparing(session: &Session) -> SignedDuration {
    match &session.scratch {
        None => SignedDuration::ZERO,
        Some(scratch) if scratch.stage_in.is_empty() => SignedDuration::from_mins(1),
        Some(_) => SignedDuration::from_mins(session.resources.walltime_min.into()),
    }
}

#[async_trait]
impl Reconciler for Ready {
    fn name(&self) -> &'static str {
        "ready"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        let limit_s = self.app.config.agent.ready_within_s;
        let live = self.app.db.live_sessions().await?;
        for id in self.late(&live, now) {
            self.app
                .sessions
                .change(id, |session| {
                    if session.state == SessionState::Starting {
                        session.state = SessionState::Stopping;
                        session.desired = Desired::Ended;
                        session.reason = Some(reasons::never_ready(session.kind(), limit_s));
                    }
                })
                .await?;
            self.app.nudges.stop().notify_one();
        }
        Ok(())
    }
}

/// An agent may be away for this long before it is shown.
const SILENCE: SignedDuration = SignedDuration::from_secs(30);

/// Watches for agents that are away.
pub(super) struct Silence {
    app: App,
    away_since: Mutex<HashMap<SessionId, Timestamp>>,
}

impl Silence {
    pub(super) fn new(app: App) -> Self {
        Self { app, away_since: Mutex::default() }
    }

    fn away_since(&self, id: SessionId, now: Timestamp) -> Timestamp {
        *self.away_since.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(now)
    }
}

#[async_trait]
impl Reconciler for Silence {
    fn name(&self) -> &'static str {
        "silence"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        let mut away = self.app.db.live_sessions().await?;
        away.retain(|session| session.state == SessionState::Running && !self.app.tunnels.is_live(session.id));
        let ids: HashSet<SessionId> = away.iter().map(|session| session.id).collect();
        self.away_since.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
        for session in &away {
            let known = session.reason.as_ref().is_some_and(|reason| reason.code == "agent_silent");
            if !known && now >= self.away_since(session.id, now) + SILENCE {
                self.app.sessions.agent_silent(session.id).await?;
            }
        }
        Ok(())
    }
}
