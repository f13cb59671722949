//! Brings back what jobs left in their scratch that ended before they could: by SIGKILL, with their node, or because there was no room.
//!
//! A session that is over and whose scratch was never said to be done has something on its nodes, as far as is known. On each of them that takes
//! jobs a small job runs as the person, `eirene-agent rescue`, which finishes by the journal that lies beside the content. Whatever is begun is
//! written into the session's row before, so it goes on after a kill at any line: a rescue whose submit has no answer is looked for by its mark
//! before there is another. Two would do no harm either, because the second finds the directory held, or gone. A node that is down says nothing,
//! and is waited for; what could not be brought back in a week is given up, and said.
//!
//! A file system over a job's nodes (BeeOND) ends with its job: there the job's epilog has the same done before it stops it, and what became of it
//! is read from the end of the job's own log: of few sessions in one run, those first of which nothing was heard for longest, and of each the more
//! rarely the longer it is over. What no epilog has said in its time is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use eirene_core::job_file::{AGENT_VARIABLE, LEFT_VARIABLE, RESCUE_SCRIPT};
use eirene_core::launcher::{LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::scheduler::{CallAs, Job, JobIdentity, JobSpec, JobState, SchedulerError};
use eirene_core::scratch::{brought_out, left_directory, not_brought_out};
use eirene_core::secret::Secret;
use eirene_core::{KeptOn, NodeName, RescueJob, ScratchKind, ScratchPhase, ScratchState, Session, SessionId};
use eirene_services::app::App;
use eirene_services::audit::by_system;
use eirene_services::cause;
use eirene_services::cluster::Snapshot;
use eirene_services::events::EventKind;
use eirene_services::sessions::start::MARKER_PREFIX;
use eirene_words::say_with;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::SCHEDULER_WAIT;
use super::driver::Reconciler;
use super::job_files::JobFiles;
use super::lookup::{Found, find};
use super::submit::job_spec;

/// Sessions in one run.
const MOST: u32 = 1000;
/// So long it is tried.
const PATIENCE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A rescue that failed is followed by another after this time, doubled each time …
const FIRST_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// … up to this.
const LONGEST_AGAIN: SignedDuration = SignedDuration::from_hours(12);
/// A rescue's job shows itself in the scheduler's list within this time.
const SHOWN_WITHIN: SignedDuration = SignedDuration::from_secs(15);
/// One that neither list knows any more is over after this time, however it ended.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(2);
/// An epilog that brings something out is at its end after this time: the longest that its settings take, and some for what it does besides.
const EPILOG_WITHIN: SignedDuration = SignedDuration::from_hours(3);
/// Jobs' logs in one run.
pub(super) const MOST_LOGS: usize = 20;
/// No log is begun in a run in which they have taken so long already.
const LOGS_WITHIN: Duration = Duration::from_secs(30);
/// The longest time between two looks at one log.
const LONGEST_LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// What a rescue asks the cluster for.
const CPUS: u32 = 1;
const MEMORY_MIB: u64 = 512;
const WALLTIME_MIN: u32 = 60;

/// The reconciler.
pub(super) struct ScratchRescue {
    app: App,
    job_files: JobFiles,
    /// When this process began.
    began: Timestamp,
    /// When the logs of those jobs were looked at last whose epilogs have not said all.
    looked: Mutex<BTreeMap<SessionId, Timestamp>>,
}

impl ScratchRescue {
    pub(super) fn new(app: App, job_files: JobFiles) -> Self {
        let began = app.clock.now();
        Self { app, job_files, began, looked: Mutex::default() }
    }
}

#[async_trait]
impl Reconciler for ScratchRescue {
    fn name(&self) -> &'static str {
        "scratch_rescue"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let snapshot = self.app.cluster.snapshot();
        if !snapshot.reachable {
            return Ok(());
        }
        let mut trouble = None;
        let sessions = self.app.db.sessions_with_scratch_left(MOST).await?;
        let (mut logs, begun) = (self.logs_to_read(&sessions), Instant::now());
        for session in sessions {
            let id = session.id;
            let is_read = logs.remove(&id) && begun.elapsed() < LOGS_WITHIN;
            if is_read {
                // Noted before: one that hangs is no more often asked for than another.
                self.looked().insert(id, self.app.clock.now());
            }
            if let Err(error) = self.look_after(session, is_read, &snapshot).await {
                trouble = Some(error.context(format!("session {id}")));
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

/// What is concluded of the scratch of a session that is over: nothing was said of its last start's, so nothing is known of it; what was on nodes
/// is there yet; what was on a file system over the job's nodes is as its epilog left it, which none does not know yet.
fn conclude(session: &mut Session, by_epilog: Option<Epilog>) {
    let (restart_count, wanted) = (session.restart_count, session.scratch.as_ref());
    let brings_out = wanted.is_some_and(|wanted| !wanted.stage_out.is_empty());
    let on_nodes = wanted.is_some_and(|wanted| wanted.kind == ScratchKind::Node);
    let Some(known) = session.scratch_state.take_if(|_| session.state.is_final()) else { return };
    session.scratch_state = match known.phase {
        ScratchPhase::Done | ScratchPhase::Lost => Some(known),
        _ if known.restart_count != restart_count => None,
        ScratchPhase::Kept if on_nodes => Some(known),
        _ if on_nodes && !session.nodes.is_empty() => {
            let kept = session.nodes.iter().map(|node| KeptOn::new(node.clone(), None));
            Some(ScratchState::new(restart_count, ScratchPhase::Kept, kept.collect()))
        }
        // Its epilog may be at it.
        _ if brings_out && !on_nodes && by_epilog.is_none() => Some(known),
        _ if brings_out && by_epilog != Some(Epilog::BroughtOut) => {
            Some(ScratchState { phase: ScratchPhase::Lost, ..known })
        }
        _ => Some(ScratchState::new(restart_count, ScratchPhase::Done, Vec::new())),
    };
}

/// What a job's epilog has made of a file system that ended with the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Epilog {
    /// All that was owed is in its place.
    BroughtOut,
    /// Not all of it is, and it is gone.
    Lost,
}

/// Whether its scratch is a file system over the nodes of its job.
fn ends_with_job(session: &Session) -> bool {
    session.scratch.as_ref().is_some_and(|wanted| wanted.kind == ScratchKind::Beeond)
}

/// Whether its owner waits for anything in it.
fn is_missed(session: &Session) -> bool {
    session.scratch.as_ref().is_some_and(|wanted| !wanted.stage_out.is_empty())
}

/// Whether what became of its scratch has yet to be said by its job's epilog.
fn waits_for_epilog(session: &Session) -> bool {
    let said = |state: &ScratchState| {
        state.restart_count != session.restart_count || matches!(state.phase, ScratchPhase::Done | ScratchPhase::Lost)
    };
    ends_with_job(session)
        && is_missed(session)
        && session.state.is_final()
        && session.scratch_state.as_ref().is_some_and(|state| !said(state))
}

/// Since when it is over.
fn over_since(session: &Session) -> Timestamp {
    session.ended_at.unwrap_or(session.created_at)
}

/// The pause after a look at the log of a job that was over for this time then.
fn look_again(over_for: SignedDuration) -> SignedDuration {
    (over_for / 8).clamp(SignedDuration::ZERO, LONGEST_LOOK_AGAIN)
}

/// When the first rescue may begin: where it is known why something could not be copied, it needs some time to become otherwise.
fn not_before(kept: &KeptOn, session: &Session) -> Option<Timestamp> {
    let first = kept.text.as_ref().and(session.ended_at).map(|ended| ended + FIRST_AGAIN);
    kept.rescue.not_before.or(first)
}

/// How long a rescue may take, minutes: what the partition takes at most.
fn walltime_min(session: &Session, snapshot: &Snapshot) -> u32 {
    let partition = snapshot.partition(session.resources.partition.as_ref());
    let most = partition.and_then(|partition| partition.max_walltime_min).unwrap_or(WALLTIME_MIN);
    most.clamp(1, WALLTIME_MIN)
}

/// The pause after the failure of this number.
fn again(failures: u32) -> SignedDuration {
    FIRST_AGAIN.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_AGAIN)
}

/// The session with its rescue in its job's place, for who looks for jobs by their marks.
fn as_rescued(session: &Session, job: &RescueJob) -> Session {
    Session { marker: job.marker.clone(), submit_begun_at: Some(job.begun_at), ..session.clone() }
}

impl ScratchRescue {
    fn looked(&self) -> MutexGuard<'_, BTreeMap<SessionId, Timestamp>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose jobs' logs are to be read in this run, as far as there is time.
    fn logs_to_read(&self, sessions: &[Session]) -> BTreeSet<SessionId> {
        let now = self.app.clock.now();
        let mut looked = self.looked();
        // Nothing is kept of those that are done with.
        let before = std::mem::take(&mut *looked);
        let mut waiting: Vec<_> = sessions
            .iter()
            .filter(|session| waits_for_epilog(session))
            .map(|session| (before.get(&session.id).copied(), over_since(session), session.id))
            .collect();
        waiting.sort_unstable_by_key(|&(last, since, id)| (last.unwrap_or(since), id));
        let mut to_read = BTreeSet::new();
        for (last, since, id) in waiting {
            let is_due = last.is_none_or(|last| now >= last + look_again(last.duration_since(since)));
            if is_due && to_read.len() < MOST_LOGS {
                to_read.insert(id);
            }
            if let Some(last) = last {
                looked.insert(id, last);
            }
        }
        to_read
    }

    async fn look_after(&self, seen: Session, is_log_read: bool, snapshot: &Snapshot) -> anyhow::Result<()> {
        let by_epilog = if is_log_read { self.by_epilog(&seen).await } else { None };
        let mut session = seen.clone();
        conclude(&mut session, by_epilog);
        // Most of them only wait.
        if session != seen {
            let began = seen.scratch_state.as_ref().is_some_and(|state| state.phase != ScratchPhase::Filling);
            if by_epilog == Some(Epilog::BroughtOut) && began {
                // Told first: who is killed in between tells it twice rather than never.
                self.tell(&seen, "scratch_rescued", "scratch_state.notice_rescued", &[]).await;
            }
            let changed = self.app.sessions.change(seen.id, |session| conclude(session, by_epilog));
            let Some(changed) = changed.await? else { return Ok(()) };
            session = changed;
        }
        let Some(state) = session.scratch_state.clone() else { return Ok(()) };
        match state.phase {
            // No job comes for it: the epilog of its own does.
            ScratchPhase::Kept if ends_with_job(&session) => return Ok(()),
            ScratchPhase::Kept => {}
            ScratchPhase::Lost => return self.tell_lost(&session).await,
            _ => return Ok(()),
        }
        self.tell_kept(&session, &state).await?;
        if self.app.clock.now() >= over_since(&session) + PATIENCE {
            return self.give_up(&session, &state, snapshot).await;
        }
        let mut trouble = None;
        for kept in &state.kept {
            // One node that makes trouble does not keep the others from it.
            if let Err(error) = self.step(&session, kept, snapshot).await {
                trouble = Some(error.context(format!("node {}", kept.node)));
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    /// What became of a file system that ended with its job, by the end of the job's own log; none as long as that is open.
    async fn by_epilog(&self, session: &Session) -> Option<Epilog> {
        let since = self.app.clock.now().duration_since(over_since(session));
        let lost_after = |time| (since >= time).then_some(Epilog::Lost);
        // A launcher that is away says nothing about it.
        let Some(log) = self.job_files.job_log(session).await else { return lost_after(PATIENCE) };
        let name = format!("{}.{}", session.id, session.restart_count);
        let says = |words: &str| log.lines().any(|line| line.trim_end().ends_with(words));
        if says(&brought_out(&name)) {
            Some(Epilog::BroughtOut)
        } else if says(&not_brought_out(&name)) {
            Some(Epilog::Lost)
        } else {
            lost_after(EPILOG_WITHIN)
        }
    }

    async fn step(&self, session: &Session, kept: &KeptOn, snapshot: &Snapshot) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        let node = &kept.node;
        match &kept.rescue.job {
            None if not_before(kept, session).is_some_and(|time| now < time) => Ok(()),
            // As long as it is down nothing is known of what is on it.
            None if !snapshot.nodes.iter().any(|known| known.name == *node && known.available) => Ok(()),
            None => {
                let marker = format!("{MARKER_PREFIX}{}", Secret::generate().expose());
                self.submit(session, node, RescueJob { marker, begun_at: now, identity: None }).await
            }
            Some(job) => match &job.identity {
                Some(identity) => self.watch(session, node, job, identity, snapshot).await,
                None => {
                    match find(&as_rescued(session, job), self.began, snapshot, self.app.scheduler.as_ref()).await {
                        Found::Job(identity) => self.store(session.id, node, job, identity).await,
                        Found::Absent => self.submit(session, node, RescueJob { begun_at: now, ..job.clone() }).await,
                        Found::Unknown => Ok(()),
                    }
                }
            },
        }
    }

    /// Submits a rescue, once: that it begins is written down before.
    async fn submit(&self, session: &Session, node: &NodeName, job: RescueJob) -> anyhow::Result<()> {
        let Some(spec) = self.spec(session, node, &job.marker).await? else {
            return self.failed(session.id, node, job.marker).await;
        };
        let begun = self.edit(session.id, node, |kept| {
            let mine = kept.rescue.job.as_ref().is_none_or(|known| known.marker == job.marker);
            if mine {
                kept.rescue.job = Some(job.clone());
            }
        });
        let noted = begun.await?.is_some_and(|kept| kept.rescue.job.as_ref() == Some(&job));
        if !noted {
            return Ok(());
        }
        let asked = cause::about(session.id, self.app.scheduler.submit(&session.owner_name, &spec));
        match tokio::time::timeout(SCHEDULER_WAIT, asked).await {
            Ok(Ok(identity)) => self.store(session.id, node, &job, identity).await,
            Ok(Err(error)) if !error.is_undetermined() => {
                tracing::warn!(session.id = %session.id, %node, %error, "A rescue was refused; it is tried again later");
                self.failed(session.id, node, job.marker).await
            }
            // It may have arrived at any moment until now: what is looked for counts from now.
            Ok(Err(_)) | Err(_) => {
                let now = self.app.clock.now();
                let late = RescueJob { begun_at: now, ..job.clone() };
                self.edit(session.id, node, |kept| {
                    if kept.rescue.job.as_ref() == Some(&job) {
                        kept.rescue.job = Some(late.clone());
                    }
                })
                .await?;
                Ok(())
            }
        }
    }

    /// What is submitted; none where the person or the home refuses, or scratches on nodes are not offered any more.
    async fn spec(&self, session: &Session, node: &NodeName, marker: &str) -> anyhow::Result<Option<JobSpec>> {
        let Some(base) = &self.app.config.scratch.node else { return Ok(None) };
        let left = left_directory(base, session.owner_uid, session.id, session.restart_count).display().to_string();
        // The file says what the job is for. It is nothing that the job needs; the answer tells where the session's directory is.
        let content = json!({"rescue": left}).to_string();
        let request =
            LauncherRequest::WriteJobFile { person: session.owner_name.clone(), session: session.id, content };
        let directory = match self.app.launcher.call(request).await {
            Ok(LauncherAnswer::Written { directory }) => directory,
            Err(error @ LauncherError::Unreachable { .. }) => return Err(error).context("the launcher"),
            Err(LauncherError::Refused { code, text }) if code == "away" => anyhow::bail!("the launcher: {text}"),
            Ok(_) | Err(LauncherError::Refused { .. }) => return Ok(None),
        };
        let mut spec = job_spec(&self.app, session, &directory);
        let agent = spec.environment.iter().find(|(name, _)| name == AGENT_VARIABLE).cloned();
        let plain = |name: &str| matches!(name, "PATH" | "HOME" | "USER" | "LOGNAME" | "LANG");
        spec.environment.retain(|(name, _)| plain(name));
        spec.environment.extend(agent);
        spec.environment.push((LEFT_VARIABLE.to_owned(), left));
        Ok(Some(JobSpec {
            name: marker.to_owned(),
            node: Some(node.clone()),
            feature: None,
            nodes: 1,
            cpus: CPUS,
            memory_mib: MEMORY_MIB,
            gpus: 0,
            gpu_type: None,
            walltime_min: walltime_min(session, &self.app.cluster.snapshot()),
            script: RESCUE_SCRIPT.to_owned(),
            output: format!("{directory}/rescue.log"),
            warn_before_end_s: 60,
            ..spec
        }))
    }

    async fn store(
        &self,
        id: SessionId,
        node: &NodeName,
        job: &RescueJob,
        identity: JobIdentity,
    ) -> anyhow::Result<()> {
        tracing::info!(session.id = %id, %node, job.id = identity.id, "Job {} rescues the scratch of session {id}", identity.id);
        let details = json!({"job_id": identity.id, "node": node});
        self.edit(id, node, |kept| {
            if let Some(known) = kept.rescue.job.as_mut().filter(|known| known.marker == job.marker) {
                known.identity = Some(identity.clone());
            }
        })
        .await?;
        self.app.sessions.record(by_system("scratch_rescue", "scratch.rescue", &id.to_string(), "ok", details)).await;
        self.app.nudges.poll().notify_one();
        Ok(())
    }

    /// Waits for the end of a rescue.
    async fn watch(
        &self,
        session: &Session,
        node: &NodeName,
        job: &RescueJob,
        identity: &JobIdentity,
        snapshot: &Snapshot,
    ) -> anyhow::Result<()> {
        let is_it =
            |seen: &&Job| seen.identity.id == identity.id && seen.name == job.marker && seen.uid == session.owner_uid;
        let state = match snapshot.jobs.iter().find(is_it) {
            Some(seen) => Some(seen.state),
            None if snapshot.asked_at.is_none_or(|asked| asked < job.begun_at + SHOWN_WITHIN) => return Ok(()),
            None => {
                let since = job.begun_at - SignedDuration::from_hours(1);
                let asked = self.app.scheduler.accounted_jobs(&job.marker, since);
                let accounted =
                    tokio::time::timeout(SCHEDULER_WAIT, asked).await.context("accounting did not answer")?;
                let accounted = match accounted {
                    Err(SchedulerError::NoAccounting) => Vec::new(),
                    answer => answer?,
                };
                accounted.iter().find(is_it).map(|seen| seen.state).filter(|state| state.is_final())
            }
        };
        match state {
            Some(JobState::Completed) => self.done(session, node).await,
            Some(state) if state.is_final() => self.failed(session.id, node, job.marker.clone()).await,
            None if self.app.clock.now() > job.begun_at + FORGOTTEN_AFTER => {
                self.failed(session.id, node, job.marker.clone()).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// All that was owed on a node is in its place.
    async fn done(&self, session: &Session, node: &NodeName) -> anyhow::Result<()> {
        let kept = session.scratch_state.as_ref().map(|state| state.kept.as_slice()).unwrap_or_default();
        if is_missed(session) && kept.iter().all(|kept| kept.node == *node) {
            // Told first: who is killed in between tells it twice rather than never.
            self.tell(session, "scratch_rescued", "scratch_state.notice_rescued", &[]).await;
        }
        let after = self
            .app
            .sessions
            .change(session.id, |session| {
                if let Some(state) = session.scratch_state.as_mut().filter(|state| state.phase == ScratchPhase::Kept) {
                    state.kept.retain(|kept| kept.node != *node);
                    if state.kept.is_empty() {
                        state.phase = ScratchPhase::Done;
                    }
                }
            })
            .await?;
        let over = |session: &Session| session.scratch_state.as_ref().is_none_or(|state| !state.is_open());
        if let Some(session) = after.filter(over) {
            self.job_files.remove(&session).await;
        }
        Ok(())
    }

    /// A rescue has ended and brought not everything out, or could not begin.
    async fn failed(&self, id: SessionId, node: &NodeName, marker: String) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        self.edit(id, node, |kept| {
            if kept.rescue.job.as_ref().is_none_or(|known| known.marker == marker) {
                let failures = kept.rescue.failures.saturating_add(1);
                kept.rescue.failures = failures;
                kept.rescue.not_before = Some(now + again(failures));
                kept.rescue.job = None;
            }
        })
        .await?;
        Ok(())
    }

    /// Nothing more is tried, but one that runs comes to its end.
    async fn give_up(&self, session: &Session, state: &ScratchState, snapshot: &Snapshot) -> anyhow::Result<()> {
        let jobs = || state.kept.iter().filter_map(|kept| kept.rescue.job.as_ref());
        let live = |job: &RescueJob| {
            let mut seen = snapshot.jobs.iter().filter(|seen| seen.name == job.marker && seen.uid == session.owner_uid);
            seen.find(|seen| !seen.state.is_final()).map(|seen| (seen.identity.id, seen.state))
        };
        let live: Vec<(u32, JobState)> = jobs().filter_map(live).collect();
        if live.iter().any(|(_, state)| *state != JobState::Pending) {
            for kept in state.kept.iter().filter(|kept| kept.rescue.job.is_some()) {
                self.step(session, kept, snapshot).await?;
            }
            return Ok(());
        }
        for (id, _) in live {
            let person = CallAs::Person(session.owner_name.clone());
            let cancelled = cause::about(session.id, self.app.scheduler.cancel(&person, id));
            tokio::time::timeout(SCHEDULER_WAIT, cancelled).await.context("cancelling a rescue: no answer")??;
        }
        let lost = self.app.sessions.change(session.id, |session| {
            if let Some(state) = session.scratch_state.as_mut().filter(|state| state.phase == ScratchPhase::Kept) {
                state.phase = ScratchPhase::Lost;
                state.told = false;
            }
        });
        if let Some(session) = lost.await? {
            self.job_files.remove(&session).await;
            self.tell_lost(&session).await?;
        }
        Ok(())
    }

    async fn tell_kept(&self, session: &Session, state: &ScratchState) -> anyhow::Result<()> {
        if state.told {
            return Ok(());
        }
        if is_missed(session) {
            let nodes: Vec<&str> = state.kept.iter().map(|kept| kept.node.as_str()).collect();
            self.tell(session, "scratch_kept", "scratch_state.notice_kept", &[("nodes", &nodes.join(", "))]).await;
        }
        self.told(session.id).await
    }

    async fn tell_lost(&self, session: &Session) -> anyhow::Result<()> {
        if session.scratch_state.as_ref().is_some_and(|state| state.told) {
            return Ok(());
        }
        if is_missed(session) {
            self.tell(session, "scratch_lost", "scratch_state.notice_lost", &[]).await;
        }
        self.told(session.id).await
    }

    /// What has been told is written down afterwards: who is killed in between tells it twice rather than never.
    async fn told(&self, id: SessionId) -> anyhow::Result<()> {
        let told = |session: &mut Session| {
            if let Some(state) = &mut session.scratch_state {
                state.told = true;
            }
        };
        self.app.sessions.change(id, told).await?;
        Ok(())
    }

    async fn tell(&self, session: &Session, code: &str, key: &str, values: &[(&str, &str)]) {
        let name = [("name", session.name.as_str())];
        let text = say_with(key, &[name.as_slice(), values].concat());
        let data = json!({"code": code, "text": text.as_str(), "session": session.id});
        self.app.events.publish(EventKind::Notice, Some(session.id), Some(session.owner), data).await;
    }

    /// Changes what is known of a node that keeps something; the answer is what it is then.
    async fn edit(
        &self,
        id: SessionId,
        node: &NodeName,
        change: impl Fn(&mut KeptOn) + Send + Sync,
    ) -> anyhow::Result<Option<KeptOn>> {
        fn entry<'a>(session: &'a mut Session, node: &NodeName) -> Option<&'a mut KeptOn> {
            let state = session.scratch_state.as_mut().filter(|state| state.phase == ScratchPhase::Kept)?;
            state.kept.iter_mut().find(|kept| kept.node == *node)
        }
        let edited = self.app.sessions.change(id, |session| {
            if let Some(kept) = entry(session, node) {
                change(kept);
            }
        });
        Ok(edited.await?.and_then(|mut session| entry(&mut session, node).cloned()))
    }
}
