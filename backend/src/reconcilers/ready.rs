//! What the agents do not say: an app that does not become ready is given up, with a reason and with the allocation given back; an agent that
//! has not been heard of for a while is shown as silent, and nothing else is concluded from that.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use eirene_core::{Desired, Session, SessionId, SessionState};
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use crate::app::App;
use crate::services::sessions::reasons;

/// The agent keeps the time itself and is given this much longer to say so.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// The reconciler.
pub(super) struct Ready {
    app: App,
    /// Agents need a moment to come back after the portal was away.
    begun: Timestamp,
}

impl Ready {
    pub(super) fn new(app: App) -> Self {
        let begun = app.clock.now();
        Self { app, begun }
    }

    fn late(&self, session: &Session, now: Timestamp) -> bool {
        let limit = SignedDuration::from_secs(self.app.config.agent.ready_within_s.into()) + GRACE;
        session.state == SessionState::Starting
            && now > self.begun + GRACE
            && session.started_at.is_some_and(|started| now > started + limit)
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
        for session in live.iter().filter(|session| self.late(session, now)) {
            self.app
                .sessions
                .change(session.id, |session| {
                    if self.late(session, now) {
                        session.state = SessionState::Stopping;
                        session.desired = Desired::Ended;
                        session.reason = Some(reasons::never_ready(limit_s));
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
