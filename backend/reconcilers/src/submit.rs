//! Submits what waits to be submitted, once.
//!
//! The order makes it safe to be killed anywhere: the job file first, because it can be written again; then the note that a submit has begun;
//! then the submit; then the job's identity. A row with the note and without identity has a submit whose answer was lost, and is looked for
//! before anything is submitted again; also where its agent was heard of first. Each session is submitted by a task of its own, so that one that
//! hangs holds up nobody else.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::job_file::{AGENT_VARIABLE, BATCH_SCRIPT, JOB_FILE_VARIABLE};
use eirene_core::scheduler::{Job, JobIdentity, JobSpec};
use eirene_core::{Desired, Reason, Session, SessionId, SessionState};
use eirene_services::app::App;
use eirene_services::cause;
use eirene_services::error::AppError;
use eirene_services::sessions::{reasons, scratch};
use jiff::{SignedDuration, Timestamp};
use tokio_util::task::TaskTracker;

use super::driver::Reconciler;
use super::job_files::{JobFileError, JobFiles};
use super::lookup::{Found, find, is_ours, may_have_begun, pick};
use super::observe::{ASK_EVERY, MISSING_FOR};
use super::{SCHEDULER_WAIT, observe, see};

/// Submits at once.
const AT_ONCE: usize = 32;
/// A home that does not take the job file is tried for so long: quotas are raised, servers come back.
const HOME_PATIENCE: SignedDuration = SignedDuration::from_mins(2);
/// How often an identity is tried to be stored before the marker has to find it again.
const STORE_TRIES: u32 = 20;
const STORE_PAUSE: Duration = Duration::from_millis(500);
/// A submit that left nothing is repeated after this time, doubled each time …
const FIRST_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// … up to this.
const LONGEST_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// Sessions whose submit is under way in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy(Arc<Mutex<HashSet<SessionId>>>);

impl Busy {
    pub(super) fn contains(&self, id: SessionId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn begin(&self, id: SessionId) -> Option<BusyGuard> {
        let mut busy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = busy.len() < AT_ONCE && busy.insert(id);
        begun.then(|| BusyGuard { busy: self.clone(), id })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

struct BusyGuard {
    busy: Busy,
    id: SessionId,
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.busy.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The reconciler.
pub(super) struct Submit {
    work: Work,
    busy: Busy,
    tracker: TaskTracker,
}

#[derive(Clone)]
struct Work {
    app: App,
    job_files: JobFiles,
    /// When this process began.
    began: Timestamp,
    /// Homes that did not take the job file, since when.
    home_trouble: Arc<Mutex<HashMap<SessionId, Timestamp>>>,
    /// Submits that were lost: how often, and when the last one was.
    lost: Arc<Mutex<HashMap<SessionId, (u32, Timestamp)>>>,
    /// Jobs that began before they were known, and of which nobody speaks.
    unheard: Arc<Mutex<HashMap<SessionId, Unheard>>>,
}

/// A job of which neither its agent nor the scheduler speaks.
#[derive(Debug, Clone, Copy)]
struct Unheard {
    asked: Timestamp,
    /// Since when accounting says that there is none, each time it was asked.
    absent_since: Option<Timestamp>,
}

impl Submit {
    pub(super) fn new(app: App, job_files: JobFiles, tracker: TaskTracker) -> Self {
        let began = app.clock.now();
        let work =
            Work { app, job_files, began, home_trouble: Arc::default(), lost: Arc::default(), unheard: Arc::default() };
        Self { work, busy: Busy::default(), tracker }
    }

    /// Sessions whose submit is under way.
    pub(super) fn busy(&self) -> Busy {
        self.busy.clone()
    }
}

fn waits(session: &Session) -> bool {
    session.job.is_none() && session.state == SessionState::Queued && session.desired == Desired::Running
}

/// Whether its job began before it was known: the answer to its submit was lost, or the row is older than it, and its agent came first.
fn ran_ahead(session: &Session) -> bool {
    let began = matches!(session.state, SessionState::Starting | SessionState::Running);
    session.job.is_none() && began && session.desired == Desired::Running
}

/// What is said now of the job of a session.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Which it is.
    Job(JobIdentity),
    /// Its agent is there, so there is one; the scheduler does not show it.
    Hidden,
    /// Nothing.
    Nothing,
}

/// Of several jobs it is that of the `connected` agent.
fn said(session: &Session, jobs: &[Job], connected: Option<u32>) -> Said {
    let job = match connected {
        Some(id) => jobs.iter().find(|job| job.identity.id == id && is_ours(job, session)),
        None => pick(jobs, session),
    };
    match (job, connected) {
        (Some(job), _) => Said::Job(job.identity.clone()),
        (None, Some(_)) => Said::Hidden,
        (None, None) => Said::Nothing,
    }
}

/// Whether the run that `session` repeats is one of those that go on: it takes nobody's turn then.
fn repeats_one_of(session: &Session, going_on: &HashMap<SessionId, Desired>) -> bool {
    session.requeue_of.is_some_and(|earlier| going_on.contains_key(&earlier))
}

#[async_trait]
impl Reconciler for Submit {
    fn name(&self) -> &'static str {
        "submit"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let live = self.work.app.db.live_sessions().await?;
        let going_on: HashMap<SessionId, Desired> = live.iter().map(|session| (session.id, session.desired)).collect();
        let (waiting, repeating): (Vec<Session>, Vec<Session>) = live
            .into_iter()
            .filter(|session| waits(session) || ran_ahead(session))
            .partition(|session| ran_ahead(session) || !repeats_one_of(session, &going_on));
        for earlier in repeating.iter().filter_map(|session| session.requeue_of) {
            // Whoever asked for the repetition may have been killed before it could say so.
            if going_on.get(&earlier) == Some(&Desired::Running) {
                self.work.app.sessions.ask_to_end(earlier, None).await?;
            }
        }
        let ids: HashSet<SessionId> = waiting.iter().map(|session| session.id).collect();
        self.work.home_trouble.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
        self.work.lost.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| ids.contains(id));
        self.work.unheard().retain(|id, _| ids.contains(id));
        for session in waiting {
            let Some(guard) = self.busy.begin(session.id) else { continue };
            let work = self.work.clone();
            self.tracker.spawn(async move {
                let id = session.id;
                let result = work.submit(session).await;
                drop(guard);
                if let Err(error) = result {
                    let cause = anyhow::Error::new(error);
                    tracing::warn!(session.id = %id, error = format!("{cause:#}"), "It is not settled which job session {id} has; the next run goes on");
                }
            });
        }
        Ok(())
    }
}

impl Work {
    async fn submit(&self, seen: Session) -> Result<(), AppError> {
        let app = &self.app;
        // The list may be older than the end of the task that last worked on this session.
        let Some(session) = app.db.session(seen.id).await? else { return Ok(()) };
        if ran_ahead(&session) {
            return self.catch_up(&session).await;
        }
        if !waits(&session) {
            return Ok(());
        }
        // One that was repeated before it was submitted is over at once, and what it waited for may still go on.
        if session.requeue_of.is_some() && app.db.live_before(session.id).await?.is_some() {
            return self.explain(session.id, reasons::earlier_run()).await;
        }
        let snapshot = app.cluster.snapshot();
        if !snapshot.reachable && snapshot.trouble.is_some() && session.submit_begun_at.is_none() {
            return self.explain(session.id, reasons::scheduler_away()).await;
        }
        if may_have_begun(&session, self.began).is_some() {
            match find(&session, self.began, &snapshot, app.scheduler.as_ref()).await {
                Found::Job(identity) => return self.store(session.id, &identity).await,
                Found::Unknown if session.submit_begun_at.is_none() => return Ok(()),
                Found::Unknown => return self.explain(session.id, reasons::submit_unsure()).await,
                Found::Absent if self.too_soon(session.id) => return Ok(()),
                Found::Absent => {
                    tracing::info!(session.id = %session.id, "Session {} has no job; it is submitted", session.id);
                }
            }
        }
        let directory = match self.job_files.issue(&session, 0).await {
            Ok(directory) => directory,
            Err(error) => return self.no_job_file(session.id, error).await,
        };
        let spec = job_spec(app, &session, &directory);
        let Some(session) = self.begin(session.id).await? else { return Ok(()) };
        let submitted = cause::about(session.id, app.scheduler.submit(&session.owner_name, &spec));
        match tokio::time::timeout(SCHEDULER_WAIT, submitted).await {
            Ok(Ok(identity)) => self.store(session.id, &identity).await,
            Ok(Err(error)) if !error.is_undetermined() => {
                let reason = match error {
                    eirene_core::scheduler::SchedulerError::Refused { reason } => reason,
                    other => {
                        tracing::warn!(session.id = %session.id, error = %other, "The submit of session {} failed", session.id);
                        reasons::submit_failed()
                    }
                };
                self.fail(session.id, reason).await
            }
            Ok(Err(error)) => {
                tracing::warn!(session.id = %session.id, %error, "The answer to the submit of session {} was lost", session.id);
                self.lost(session.id).await
            }
            Err(_) => self.lost(session.id).await,
        }
    }

    /// Finds the job that began before it was known. Where there is none any more, as after a long time without a portal, the session is over.
    async fn catch_up(&self, session: &Session) -> Result<(), AppError> {
        let app = &self.app;
        let snapshot = app.cluster.snapshot();
        match said(session, &snapshot.jobs, app.tunnels.job_of(session.id)) {
            Said::Job(identity) => return self.store(session.id, &identity).await,
            Said::Hidden => {
                self.unheard().remove(&session.id);
                return Ok(());
            }
            Said::Nothing => {}
        }
        let now = app.clock.now();
        if self.unheard().get(&session.id).is_some_and(|unheard| now < unheard.asked + ASK_EVERY) {
            return Ok(());
        }
        let found = find(session, self.began, &snapshot, app.scheduler.as_ref()).await;
        if let Found::Job(identity) = found {
            return self.store(session.id, &identity).await;
        }
        let before = self.unheard().get(&session.id).and_then(|unheard| unheard.absent_since);
        let absent_since = (found == Found::Absent).then(|| before.unwrap_or(now));
        self.unheard().insert(session.id, Unheard { asked: now, absent_since });
        if absent_since.is_none_or(|since| now < since + MISSING_FOR) {
            return Ok(());
        }
        let vanish = |session: &mut Session| {
            if ran_ahead(session) {
                see::vanish(session);
            }
        };
        let after = app.sessions.change(session.id, vanish).await?;
        self.finished(after).await
    }

    fn unheard(&self) -> MutexGuard<'_, HashMap<SessionId, Unheard>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer was lost. The scheduler may have been given the job at any moment until now, so what is looked for counts from now.
    async fn lost(&self, id: SessionId) -> Result<(), AppError> {
        let now = self.app.clock.now();
        {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = lost.entry(id).or_insert((0, now));
            *entry = (entry.0.saturating_add(1), now);
        }
        self.app
            .sessions
            .change(id, |session| {
                if session.job.is_none() && !session.state.is_final() {
                    session.submit_begun_at = Some(now);
                }
                if waits(session) {
                    session.reason = Some(reasons::submit_unsure());
                }
            })
            .await?;
        Ok(())
    }

    /// Whether a submit that leaves nothing again and again has to wait.
    fn too_soon(&self, id: SessionId) -> bool {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get(&id).is_some_and(|(times, last)| {
            let pause = FIRST_AGAIN.saturating_mul(1 << times.min(&8)).min(LONGEST_AGAIN);
            self.app.clock.now() < *last + pause
        })
    }

    /// Notes that a submit begins; nothing when somebody was faster or the wish has changed.
    async fn begin(&self, id: SessionId) -> Result<Option<Session>, AppError> {
        let now = self.app.clock.now();
        let noted = self
            .app
            .sessions
            .change(id, |session| {
                if waits(session) {
                    session.submit_begun_at = Some(now);
                    session.reason = None;
                }
            })
            .await?;
        Ok(noted.filter(|session| waits(session) && session.submit_begun_at == Some(now)))
    }

    /// Stores the identity even when the session is to stop by now: then it is what has to be cancelled.
    async fn store(&self, id: SessionId, identity: &JobIdentity) -> Result<(), AppError> {
        let mut tries = 0;
        loop {
            let stored = self
                .app
                .sessions
                .change(id, |session| {
                    if session.job.is_none() && !session.state.is_final() {
                        session.job = Some(identity.clone());
                        session.undetermined = false;
                        if session.reason.as_ref().is_some_and(|reason| reason.code == "submit_undetermined") {
                            session.reason = None;
                        }
                    }
                })
                .await;
            tries += 1;
            match stored {
                Err(AppError::Unavailable { .. }) if tries < STORE_TRIES => tokio::time::sleep(STORE_PAUSE).await,
                Err(error) => return Err(error),
                Ok(session) => {
                    tracing::info!(session.id = %id, job.id = identity.id, "Session {id} is job {}", identity.id);
                    self.app.nudges.poll().notify_one();
                    if session.is_some_and(|session| session.desired == Desired::Ended) {
                        self.app.nudges.stop().notify_one();
                    }
                    return Ok(());
                }
            }
        }
    }

    async fn no_job_file(&self, id: SessionId, error: JobFileError) -> Result<(), AppError> {
        let reason = match error {
            JobFileError::Database(error) => return Err(error.into()),
            JobFileError::Away(error) => {
                tracing::warn!(session.id = %id, %error, "The job file of session {id} was not written");
                return self.explain(id, reasons::launcher_away()).await;
            }
            JobFileError::Spaces(error) => {
                tracing::warn!(session.id = %id, %error, "It is not known which spaces session {id} sees");
                return self.explain(id, reasons::people_away()).await;
            }
            JobFileError::Person(text) => reasons::no_person(&text),
            JobFileError::Home(text) => {
                let now = self.app.clock.now();
                let since = *self.home_trouble.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(now);
                if now < since + HOME_PATIENCE {
                    return self.explain(id, reasons::home_trouble(&text)).await;
                }
                reasons::home_trouble(&text)
            }
        };
        self.fail(id, reason).await
    }

    async fn fail(&self, id: SessionId, reason: Reason) -> Result<(), AppError> {
        let after = self.app.sessions.change(id, |session| give_up(session, &reason)).await?;
        self.finished(after).await
    }

    async fn finished(&self, after: Option<Session>) -> Result<(), AppError> {
        if let Some(over) = after.filter(|session| session.state.is_final()) {
            observe::finish(&self.app, &self.job_files, &over).await;
        }
        Ok(())
    }

    async fn explain(&self, id: SessionId, reason: Reason) -> Result<(), AppError> {
        self.app
            .sessions
            .change(id, |session| {
                if waits(session) {
                    session.reason = Some(reason.clone());
                }
            })
            .await?;
        Ok(())
    }
}

/// No job was made and none will be.
fn give_up(session: &mut Session, reason: &Reason) {
    if session.job.is_some() || session.state.is_final() {
        return;
    }
    if session.desired == Desired::Ended {
        return see::end_without_job(session);
    }
    session.state = SessionState::Failed;
    session.reason = Some(reason.clone());
}

pub(super) fn job_spec(app: &App, session: &Session, directory: &str) -> JobSpec {
    let resources = &session.resources;
    let home = directory.split_once("/.eirene/").map_or(directory, |(home, _)| home);
    let person = session.owner_name.as_str();
    let environment = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", home),
        ("USER", person),
        ("LOGNAME", person),
        ("LANG", "C.UTF-8"),
        (JOB_FILE_VARIABLE, &format!("{directory}/job.json")),
        (AGENT_VARIABLE, &app.config.agent.path.display().to_string()),
    ];
    JobSpec {
        name: session.marker.clone(),
        account: match &session.project {
            Some(project) => project.as_str().parse().ok(),
            None => app.config.slurm.account.clone(),
        },
        qos: app.config.slurm.qos.clone(),
        partition: resources.partition.clone(),
        node: None,
        feature: scratch::feature(session),
        nodes: resources.nodes,
        cpus: resources.cpus,
        memory_mib: resources.memory_mib,
        gpus: resources.gpus,
        gpu_type: resources.gpu_type.clone(),
        walltime_min: resources.walltime_min,
        script: BATCH_SCRIPT.to_owned(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        directory: directory.to_owned(),
        output: format!("{directory}/job.log"),
        warn_before_end_s: warning(resources.walltime_min) + scratch::reserve_s(session, &app.config.scratch),
    }
}

/// A twentieth of the time, between ten seconds and two minutes.
fn warning(walltime_min: u32) -> u32 {
    walltime_min.saturating_mul(3).clamp(10, 120)
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::JobState;
    use eirene_services::testing::{job, session};

    use super::*;

    #[test]
    fn of_several_jobs_it_is_the_one_whose_agent_is_there_and_while_one_is_there_none_is_given_up() {
        let session = session("ada");
        let jobs = [job(&session, 7, JobState::Running), job(&session, 8, JobState::Pending)];
        let is = |id: usize| Said::Job(jobs[id].identity.clone());
        assert_eq!(said(&session, &jobs, Some(7)), is(0));
        assert_eq!(said(&session, &jobs, None), is(1), "the newest");
        assert_eq!(said(&session, &jobs[1..], Some(7)), Said::Hidden);
        assert_eq!(said(&session, &[], None), Said::Nothing);
        let others = Job { uid: 1, ..jobs[0].clone() };
        assert_eq!(said(&session, &[others], Some(7)), Said::Hidden, "a copied marker");
    }
}
