//! Ends what is to end: the agent is asked first, the job is cancelled when that does not help, until the scheduler says that it is over.
//!
//! What ended by itself is left to end its job, so that SLURM's accounting says how it ended; a run that was stopped is cancelled once nothing is
//! left to be brought out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use async_trait::async_trait;
use eirene_core::scheduler::{CallAs, JobIdentity, JobState, SchedulerError};
use eirene_core::{Desired, Session, SessionId, SessionState};
use eirene_services::app::App;
use eirene_services::cause;
use eirene_services::sessions::{reasons, scratch};
use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use super::job_files::JobFiles;
use super::lookup::{Found, find, is_ours};
use super::submit::Busy;
use super::{SCHEDULER_WAIT, observe, see};

/// A cancel is repeated after this time, doubled each time …
const AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// … up to this.
const LONGEST_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// Time for agents to come back after a start.
const COME_BACK: SignedDuration = SignedDuration::from_secs(15);
/// Sessions that are ended at once.
const AT_ONCE: usize = 8;

/// The reconciler.
pub(super) struct Stop {
    app: App,
    job_files: JobFiles,
    busy: Busy,
    /// When this process began.
    began: Timestamp,
    steps: Mutex<HashMap<SessionId, Steps>>,
}

/// What was tried in this process; after a restart everything is tried again, which does no harm.
#[derive(Debug, Clone, Copy)]
struct Steps {
    since: Timestamp,
    asked: bool,
    /// When it was cancelled last, and how often.
    cancelled: Option<(Timestamp, u32)>,
}

impl Stop {
    pub(super) fn new(app: App, job_files: JobFiles, busy: Busy) -> Self {
        let began = app.clock.now();
        Self { app, job_files, busy, began, steps: Mutex::default() }
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
        // One that hangs holds up nobody else.
        let results = futures_util::stream::iter(ending).map(|session: Session| async move {
            let result = match &session.job {
                Some(identity) => self.end_job(&session, identity).await,
                None => self.end_without_job(&session).await,
            };
            result.with_context(|| format!("session {}", session.id))
        });
        let results: Vec<anyhow::Result<()>> = results.buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().find(Result::is_err).unwrap_or(Ok(()))
    }
}

impl Stop {
    /// A session whose job is not known: there is none, or the answer to its submit was lost.
    async fn end_without_job(&self, session: &Session) -> anyhow::Result<()> {
        if self.busy.contains(session.id) {
            return Ok(());
        }
        match find(session, self.began, &self.app.cluster.snapshot(), self.app.scheduler.as_ref()).await {
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
        // What is to be kept of a scratch takes longer to copy than an app takes to end.
        let copying_s = scratch::reserve_s(session, &self.app.config.scratch);
        let is_live = self.app.tunnels.is_live(session.id);
        let has_copied =
            !is_live && !steps.asked && reasons::ends_by_itself(session) && !reasons::is_said_before_copying(session);
        let left_to_copy_s = if has_copied { 0 } else { copying_s };
        let grace = SignedDuration::from_secs((self.app.config.agent.stop_within_s + left_to_copy_s).into());
        // The snapshot may still have the job in the queue whose agent is there; one that was asked and has gone since is ending its job.
        // After a start agents need a moment to come back, and one of them may be copying.
        let may_come_back = copying_s > 0 && now < self.began + COME_BACK;
        let ends = (steps.asked || reasons::ends_by_itself(session) || may_come_back) && !self.waits(session, identity);
        let may_end = !reasons::awaits_cancel(session) && (is_live || ends);
        let mut answer = Ok(());
        if may_end && now < steps.since + grace {
            if !steps.asked {
                steps.asked = self.app.tunnels.stop(session.id);
            }
        } else if steps.cancelled.is_none_or(|(last, times)| now >= last + again(times)) {
            steps.cancelled = Some((now, steps.cancelled.map_or(1, |(_, times)| times.saturating_add(1))));
            answer = self.cancel_all(session, identity).await;
        }
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).insert(session.id, steps);
        self.show_stopping(session).await?;
        answer
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
    fn waits(&self, session: &Session, identity: &JobIdentity) -> bool {
        let snapshot = self.app.cluster.snapshot();
        snapshot
            .jobs
            .iter()
            .any(|job| job.identity.id == identity.id && is_ours(job, session) && job.state == JobState::Pending)
    }

    /// Cancels the session's job, and whatever else lives under its mark: a submit that was believed lost may have left a second one.
    async fn cancel_all(&self, session: &Session, identity: &JobIdentity) -> anyhow::Result<()> {
        let snapshot = self.app.cluster.snapshot();
        let mut ours: Vec<u32> = snapshot
            .jobs
            .iter()
            .filter(|job| is_ours(job, session) && !job.state.is_final())
            .map(|job| job.identity.id)
            .collect();
        if !ours.contains(&identity.id) && is_still_ours(&self.app, session, identity.id).await? {
            ours.push(identity.id);
        }
        for id in ours {
            cancel(&self.app, session, id).await?;
        }
        Ok(())
    }
}

/// Numbers of jobs begin anew when a scheduler's state is lost: what carries this one now may be somebody else's.
async fn is_still_ours(app: &App, session: &Session, id: u32) -> anyhow::Result<bool> {
    let asked = tokio::time::timeout(SCHEDULER_WAIT, app.scheduler.job(id));
    let job = asked.await.context("reading a job: no answer")??;
    Ok(job.is_some_and(|job| is_ours(&job, session) && !job.state.is_final()))
}

/// Cancels a job of the session as its owner, or with the service account's rights when the owner has none and the job is still ours.
pub(super) async fn cancel(app: &App, session: &Session, id: u32) -> anyhow::Result<()> {
    let person = CallAs::Person(session.owner_name.clone());
    let mut answer = cancel_as(app, session, &person, id).await;
    if let Err(SchedulerError::Refused { .. } | SchedulerError::Unauthorised { .. }) = &answer {
        if !is_still_ours(app, session, id).await? {
            return Ok(());
        }
        // The person may be gone from the cluster; the allocation must be given back all the same.
        answer = cancel_as(app, session, &CallAs::Service, id).await;
    }
    app.nudges.poll().notify_one();
    answer?;
    tracing::info!(session.id = %session.id, job.id = id, "Job {id} of session {} was cancelled", session.id);
    Ok(())
}

async fn cancel_as(app: &App, session: &Session, as_: &CallAs, id: u32) -> Result<(), SchedulerError> {
    tokio::time::timeout(SCHEDULER_WAIT, cause::about(session.id, app.scheduler.cancel(as_, id)))
        .await
        .unwrap_or_else(|_| Err(SchedulerError::Unreachable { what: "cancelling a job".into(), source: None }))
}

/// The pause after the cancel of this number.
fn again(times: u32) -> SignedDuration {
    AGAIN.saturating_mul(1 << times.saturating_sub(1).min(4)).min(LONGEST_AGAIN)
}
