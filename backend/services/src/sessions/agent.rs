//! What an agent says about its session or run. *Running* comes from here and from nowhere else.
//!
//! The caller has checked that the agent is the session's own; what it says can still be wrong, and harms its own session only.

use eirene_core::{Desired, JobKind, KeptOn, ScratchPhase, ScratchState, Session, SessionId, SessionState};

use super::change::advance;
use super::reasons::ScratchTrouble;
use super::{Sessions, reasons};
use crate::error::AppError;
use crate::events::{EventKind, Fact};

impl Sessions {
    /// The agent is there and starts the app.
    pub async fn agent_arrived(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        let now = self.parts.clock.now();
        self.change(id, |session| {
            if session.state == SessionState::Queued && advance(session, SessionState::Starting) {
                session.started_at = session.started_at.or(Some(now));
                session.start_estimate = None;
                session.reason = Some(reasons::starting(session.kind()));
            }
            if session.reason.as_ref().is_some_and(|reason| reason.code == "agent_silent") {
                session.reason = None;
            }
        })
        .await
    }

    /// The app answers.
    pub async fn agent_ready(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        self.agent_arrived(id).await?;
        self.change(id, |session| {
            if session.state == SessionState::Starting && advance(session, SessionState::Running) {
                session.reason = None;
            }
        })
        .await
    }

    /// The app is over; `code` is none when the agent gave up on it.
    pub async fn app_exited(&self, id: SessionId, outcome: AppOutcome) -> Result<Option<Session>, AppError> {
        let session = self
            .change(id, |session| {
                let stopping = session.state == SessionState::Stopping || session.desired == Desired::Ended;
                // However it ended, its owner has to know that something of it is not in its place.
                let lost = matches!(&outcome, AppOutcome::Scratch { trouble: ScratchTrouble::NotEmptied, .. });
                if session.state.is_final() || (stopping && !lost && reasons::verdict(session).is_some()) {
                    return;
                }
                let kind = session.kind();
                note_status(session, outcome.status());
                if !stopping || lost {
                    session.reason = Some(match &outcome {
                        AppOutcome::Ended => reasons::ended(kind),
                        AppOutcome::Failed(code) => reasons::failed(kind, *code),
                        AppOutcome::NeverReady(limit_s) => reasons::never_ready(kind, *limit_s),
                        AppOutcome::WalltimeReached => reasons::walltime_reached(kind),
                        AppOutcome::NotStarted(text) => reasons::agent_failed(kind, text.as_deref()),
                        AppOutcome::Scratch { trouble, text, .. } => reasons::scratch_trouble(*trouble, text),
                    });
                }
                // The wish follows what happened: whatever the app left of its allocation is to be given back.
                session.desired = Desired::Ended;
                session.state = SessionState::Stopping;
            })
            .await?;
        self.parts.nudges.stop().notify_one();
        self.parts.nudges.poll().notify_one();
        Ok(session)
    }

    /// A signal ended the program: its status is noted, and how the job ends says what it means.
    pub async fn program_killed(&self, id: SessionId, status: i32) -> Result<Option<Session>, AppError> {
        self.change(id, |session| {
            if !session.state.is_final() {
                note_status(session, Some(status));
            }
        })
        .await
    }

    /// A run's program was ended as its owner asked, and nothing is left to be brought out: its job can be cancelled.
    pub async fn program_stopped(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        let session = self
            .change(id, |session| {
                let is_asked = session.kind() == JobKind::Run && session.desired == Desired::Ended;
                if is_asked && !session.state.is_final() && reasons::verdict(session).is_none() {
                    session.reason = Some(reasons::stopped());
                }
            })
            .await?;
        self.parts.nudges.stop().notify_one();
        Ok(session)
    }

    /// How the session's scratch is. Only changes of that are written; what only its agent names is no node of the session.
    pub async fn scratch_said(&self, id: SessionId, said: ScratchState) -> Result<Option<Session>, AppError> {
        self.change(id, |session| {
            let is_news = said.restart_count >= session.restart_count && said.is_news(session.scratch_state.as_ref());
            if session.scratch.is_none() || !is_news {
                return;
            }
            let mut said = said.clone();
            said.kept.retain(|kept| session.nodes.contains(&kept.node));
            if said.phase == ScratchPhase::Kept && said.kept.is_empty() {
                said.kept = session.nodes.iter().map(|node| KeptOn::new(node.clone(), None)).collect();
            }
            session.scratch_state = Some(said);
        })
        .await
    }

    /// More has been copied to the session's scratch, or from it: tells the open pages, and writes nothing down.
    pub fn tell_copied(&self, session: &Session) {
        let fact = Fact::Session(Box::new(session.clone()));
        self.parts.events.publish_transient(EventKind::Scratch, Some(session.id), session.owner, fact);
    }

    /// Nothing has been heard of the agent for a while; its job may well go on.
    pub async fn agent_silent(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        self.change(id, |session| {
            if matches!(session.state, SessionState::Starting | SessionState::Running) {
                session.reason = Some(reasons::agent_silent());
            }
        })
        .await
    }
}

/// Only a run's status is kept: an app is not started for what it ends with.
fn note_status(session: &mut Session, status: Option<i32>) {
    if session.kind() == JobKind::Run {
        session.exit_status = status.or(session.exit_status);
    }
}

/// How an app or a run's program ended, as its agent tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppOutcome {
    /// With exit status 0, or because it was asked to.
    Ended,
    /// With another exit status.
    Failed(i32),
    /// It did not answer within so many seconds.
    NeverReady(u32),
    /// The time limit is near.
    WalltimeReached,
    /// It could not be started; a sentence that says why, if the agent has one.
    NotStarted(Option<String>),
    /// Its fast scratch was in the way.
    Scratch {
        /// What of it.
        trouble: ScratchTrouble,
        /// The agent's words.
        text: String,
        /// With which status it had ended before, if it ran at all.
        status: Option<i32>,
    },
}

impl AppOutcome {
    /// The exit status, where it has one.
    fn status(&self) -> Option<i32> {
        match self {
            Self::Ended => Some(0),
            Self::Failed(status) => Some(*status),
            Self::Scratch { status, .. } => *status,
            Self::NeverReady(_) | Self::WalltimeReached | Self::NotStarted(_) => None,
        }
    }
}
