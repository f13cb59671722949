//! Ends what is to end: the agent is asked first, the job is cancelled when that does not help, until the scheduler says that it is over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use eirene_core::scheduler::{CallAs, JobIdentity, JobState, SchedulerError};
use eirene_core::{Desired, Session, SessionId, SessionState};
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use super::job_files::JobFiles;
use super::lookup::{Found, find};
use super::submit::Busy;
use super::{SCHEDULER_WAIT, observe, see};
use crate::app::App;

/// A cancel is repeated after this time.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// The reconciler.
pub(super) struct Stop {
    app: App,
    job_files: JobFiles,
    busy: Busy,
    steps: Mutex<HashMap<SessionId, Steps>>,
}

/// What was tried in this process; after a restart everything is tried again, which does no harm.
#[derive(Debug, Clone, Copy)]
struct Steps {
    since: Timestamp,
    asked: bool,
    cancelled: Option<Timestamp>,
}

impl Stop {
    pub(super) fn new(app: App, job_files: JobFiles, busy: Busy) -> Self {
        Self { app, job_files, busy, steps: Mutex::default() }
    }
}

#[async_trait]
impl Reconciler for Stop {
    fn name(&self) -> &'static str {
        "stop"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let mut ending = self.app.db.live_sessions().await?;
        ending.retain(|session| session.desired == Desired::Ended);
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|id, _| ending.iter().any(|session| session.id == *id));
        let mut trouble = None;
        for session in &ending {
            let result = match &session.job {
                Some(identity) => self.end_job(session, identity).await,
                None => self.end_without_job(session).await,
            };
            if let Err(error) = result {
                trouble = Some(error.context(format!("session {}", session.id)));
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

impl Stop {
    /// A session whose job is not known: there is none, or the answer to its submit was lost.
    async fn end_without_job(&self, session: &Session) -> anyhow::Result<()> {
        if self.busy.contains(session.id) {
            return Ok(());
        }
        match find(session, &self.app.cluster.snapshot(), self.app.scheduler.as_ref()).await {
            Found::Unknown => Ok(()),
            Found::Job(identity) => {
                self.app
                    .sessions
                    .change(session.id, |session| session.job = session.job.take().or(Some(identity.clone())))
                    .await?;
                self.end_job(session, &identity).await
            }
            Found::Absent => {
                let ended = self
                    .app
                    .sessions
                    .change(session.id, |session| {
                        if session.job.is_none() && !session.state.is_final() {
                            see::end_without_job(session);
                        }
                    })
                    .await?;
                if let Some(ended) = ended.filter(|ended| ended.state.is_final()) {
                    observe::finish(&self.app, &self.job_files, &ended).await;
                }
                Ok(())
            }
        }
    }

    async fn end_job(&self, session: &Session, identity: &JobIdentity) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        let mut steps = {
            let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            *steps.entry(session.id).or_insert(Steps { since: now, asked: false, cancelled: None })
        };
        let grace = SignedDuration::from_secs(self.app.config.agent.stop_within_s.into());
        // An agent that was asked and has gone since is ending its job.
        let asked_or_there = steps.asked || self.app.tunnels.is_live(session.id);
        if !self.waits(identity) && asked_or_there && now < steps.since + grace {
            if !steps.asked {
                steps.asked = self.app.tunnels.stop(session.id);
            }
        } else if steps.cancelled.is_none_or(|cancelled| now >= cancelled + AGAIN) {
            self.cancel(session, identity).await?;
            steps.cancelled = Some(now);
        }
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).insert(session.id, steps);
        self.show_stopping(session).await
    }

    /// A wish that came from somewhere else than the stop verb shows as well.
    async fn show_stopping(&self, session: &Session) -> anyhow::Result<()> {
        if session.state != SessionState::Stopping {
            self.app
                .sessions
                .change(session.id, |session| {
                    if !session.state.is_final() && session.desired == Desired::Ended {
                        session.state = SessionState::Stopping;
                    }
                })
                .await?;
        }
        Ok(())
    }

    /// Whether the job has not begun, as far as is known: then there is nobody to ask.
    fn waits(&self, identity: &JobIdentity) -> bool {
        let snapshot = self.app.cluster.snapshot();
        snapshot.jobs.iter().any(|job| job.identity.id == identity.id && job.state == JobState::Pending)
    }

    async fn cancel(&self, session: &Session, identity: &JobIdentity) -> anyhow::Result<()> {
        let person = CallAs::Person(session.owner_name.clone());
        let mut answer = self.cancel_as(&person, identity).await;
        if let Err(SchedulerError::Refused { .. } | SchedulerError::Unauthorised { .. }) = &answer {
            // The person may be gone from the cluster; the allocation must be given back all the same.
            answer = self.cancel_as(&CallAs::Service, identity).await;
        }
        self.app.nudges.poll().notify_one();
        answer?;
        tracing::info!(session.id = %session.id, job.id = identity.id, "Job {} of session {} was cancelled", identity.id, session.id);
        Ok(())
    }

    async fn cancel_as(&self, as_: &CallAs, identity: &JobIdentity) -> Result<(), SchedulerError> {
        let call = self.app.scheduler.cancel(as_, identity.id);
        tokio::time::timeout(SCHEDULER_WAIT, call)
            .await
            .unwrap_or_else(|_| Err(SchedulerError::Unreachable { what: "cancelling a job".into(), source: None }))
    }
}
