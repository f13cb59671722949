//! From the snapshot to the sessions: what each job says, restarts, jobs that are gone, and the flag *undetermined*.
//!
//! While the scheduler cannot be asked, flags are set and nothing else. A job that is missing from a good snapshot is asked for in the accounting
//! database before anything is concluded, and as long as its agent is connected it is not gone, whatever the lists say.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use async_trait::async_trait;
use eirene_core::scheduler::{Job, SchedulerError};
use eirene_core::{JobKind, Session, SessionId, SessionState};
use eirene_services::app::App;
use eirene_services::cluster::Snapshot;
use eirene_services::monitoring::metrics::database_answered;
use eirene_services::samples::{Back, MEMORY, memory_shares};
use eirene_services::sessions::reasons;
use jiff::{SignedDuration, Timestamp};

use super::driver::Reconciler;
use super::job_files::JobFiles;
use super::lookup::is_ours;
use super::{SCHEDULER_WAIT, see};

/// A job that neither list knows is given up after it was missing for this long.
pub(super) const MISSING_FOR: SignedDuration = SignedDuration::from_mins(1);
/// A job that is missing here and still lives in the accounting database is given up after this long.
const STRANDED_FOR: SignedDuration = SignedDuration::from_mins(15);
/// Accounting is asked for at most so many jobs in one run …
const MOST_ASKED: usize = 20;
/// … and for each of them this often.
pub(super) const ASK_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// The reconciler.
pub(super) struct Observe {
    app: App,
    job_files: JobFiles,
    missing: Mutex<HashMap<SessionId, Missing>>,
}

/// Where memory was fuller than that, a kill without a word was because of it: up to five seconds before, when it was last sampled.
const FULL: f64 = 0.9;
/// The end of a job is seen within some seconds, by accounting within some minutes.
const LAST_WORDS: Back = Back { length_ms: 300_000, points: 60 };

/// A job that the scheduler does not show any more.
#[derive(Debug, Clone, Copy)]
struct Missing {
    since: Timestamp,
    asked: Option<Timestamp>,
}

impl Observe {
    pub(super) fn new(app: App, job_files: JobFiles) -> Self {
        Self { app, job_files, missing: Mutex::default() }
    }
}

#[async_trait]
impl Reconciler for Observe {
    fn name(&self) -> &'static str {
        "observe"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let snapshot = self.app.cluster.snapshot();
        if !snapshot.is_known() && snapshot.trouble.is_none() {
            return Ok(());
        }
        let asked = Instant::now();
        self.app.db.ping().await?;
        database_answered(asked.elapsed());
        let live = self.app.db.live_sessions().await?;
        count(&self.app, &live);
        if !snapshot.reachable {
            return self.flag(&live).await;
        }
        let mut trouble = None;
        let mut missing = Vec::new();
        let by_id: HashMap<u32, &Job> = snapshot.jobs.iter().map(|job| (job.identity.id, job)).collect();
        for session in &live {
            let Some(identity) = &session.job else {
                self.unflag(session).await?;
                continue;
            };
            match by_id.get(&identity.id).filter(|job| is_ours(job, session)) {
                Some(job) => {
                    if let Err(error) = self.seen(session, job).await {
                        trouble = Some(error.context(format!("session {}", session.id)));
                    }
                }
                None => missing.push(session),
            }
        }
        self.forget_found(&missing);
        let mut asked = 0;
        for session in missing {
            let looked_for = async {
                let Some((asked_at, since)) = self.due(session, &snapshot, asked) else {
                    return self.unflag(session).await;
                };
                asked += 1;
                self.gone(session, asked_at, since).await
            };
            if let Err(error) = looked_for.await {
                trouble = Some(error.context(format!("session {}", session.id)));
            }
        }
        trouble.map_or(Ok(()), Err)
    }
}

impl Observe {
    async fn flag(&self, live: &[Session]) -> anyhow::Result<()> {
        for session in live.iter().filter(|session| !session.undetermined) {
            self.app.sessions.change(session.id, |session| session.undetermined = !session.state.is_final()).await?;
        }
        Ok(())
    }

    async fn unflag(&self, session: &Session) -> anyhow::Result<()> {
        if session.undetermined {
            self.app.sessions.change(session.id, |session| session.undetermined = false).await?;
        }
        Ok(())
    }

    async fn seen(&self, session: &Session, job: &Job) -> anyhow::Result<()> {
        if job.restart_count > session.restart_count && !job.state.is_final() {
            self.restarted(session, job).await?;
        }
        // A change that changes nothing costs a read; most looks bring no news.
        let mut after = session.clone();
        see::see(&mut after, job);
        if after == *session && job.restart_count == session.restart_count {
            return Ok(());
        }
        let after = self.judged(session, job).await?;
        self.finished(session, after).await
    }

    /// Changes it to what its job says, and to what was last known of its memory where its job was killed and nobody says why.
    async fn judged(&self, session: &Session, job: &Job) -> anyhow::Result<Option<Session>> {
        // It may have been restarted and be over since anybody looked: how it ended is of its last start.
        let is_over_anew = job.state.is_final() && job.restart_count > session.restart_count;
        if is_over_anew {
            self.app.efficiency.start_over(session, job).await?;
        }
        let look = |session: &mut Session| {
            if is_over_anew {
                see::restart(session, job);
            }
            see::see(session, job);
        };
        let mut after = session.clone();
        look(&mut after);
        let was_full = see::may_be_memory(&after, job) && self.memory_was_full(session).await;
        let judge = |session: &mut Session| {
            look(session);
            if was_full && see::may_be_memory(session, job) {
                session.reason = Some(reasons::out_of_memory());
            }
        };
        Ok(self.app.sessions.change(session.id, judge).await?)
    }

    /// Samples are the word of the session's own agent: they may change the sentence that its person reads, and nothing else.
    async fn memory_was_full(&self, session: &Session) -> bool {
        let recent = self.app.samples.recent(vec![session.id], &MEMORY, LAST_WORDS).await;
        let shares = recent.map(|found| found.iter().flat_map(|(_, recent)| memory_shares(recent)).collect::<Vec<_>>());
        shares.is_ok_and(|shares| shares.iter().any(|(_, share)| *share >= FULL))
    }

    /// A restart gets a secret of its own, and the start before it is written down, before the row says so; killed in between, the next run does all
    /// of it again.
    async fn restarted(&self, session: &Session, job: &Job) -> anyhow::Result<()> {
        self.app.efficiency.start_over(session, job).await?;
        if session.state != SessionState::Stopping {
            let known = self.app.db.agent_credentials(session.id).await?;
            let issued =
                known.is_some_and(|known| known.restart_count == job.restart_count && known.tunnel_key_hash.is_some());
            if !issued {
                self.job_files.issue(session, job.restart_count).await.context("the job file of a restart")?;
            }
        }
        self.app.sessions.change(session.id, |session| see::restart(session, job)).await?;
        self.app.tunnels.close_before(session.id, job.restart_count);
        Ok(())
    }

    /// A job that was not in the look of `asked_at` and has been missing since `since`.
    async fn gone(&self, session: &Session, asked_at: Timestamp, since: Timestamp) -> anyhow::Result<()> {
        let begun = session.submit_begun_at.unwrap_or(session.created_at) - SignedDuration::from_hours(1);
        let asked = self.app.scheduler.accounted_jobs(&session.marker, begun);
        let mut accounted =
            match tokio::time::timeout(SCHEDULER_WAIT, asked).await.context("accounting did not answer")? {
                // Then what the scheduler itself has not shown for a while is all that can be known.
                Err(SchedulerError::NoAccounting) => Vec::new(),
                answer => answer?,
            };
        accounted.retain(|job| {
            is_ours(job, session) && session.job.as_ref().is_some_and(|identity| identity.id == job.identity.id)
        });
        let missing_for = asked_at.duration_since(since);
        let after = match accounted.first() {
            Some(job) if job.state.is_final() => {
                let mut job = job.clone();
                job.restart_count = job.restart_count.max(see::restarts(session, &accounted));
                self.judged(session, &job).await?
            }
            Some(_) if missing_for < STRANDED_FOR => return Ok(()),
            None if missing_for < MISSING_FOR => return Ok(()),
            Some(_) | None => self.app.sessions.change(session.id, see::vanish).await?,
        };
        self.finished(session, after).await
    }

    async fn finished(&self, before: &Session, after: Option<Session>) -> anyhow::Result<()> {
        let Some(after) = after.filter(|after| after.state.is_final() && !before.state.is_final()) else {
            return Ok(());
        };
        finish(&self.app, &self.job_files, &after).await;
        Ok(())
    }

    /// When it was looked for and since when it is missing, when accounting is to be asked about it now, after `asked` others. Whoever had
    /// to wait is due before those who were asked.
    fn due(&self, session: &Session, snapshot: &Snapshot, asked: usize) -> Option<(Timestamp, Timestamp)> {
        let now = snapshot.asked_at?;
        let fresh = session.submit_begun_at.is_some_and(|begun| now < begun + SignedDuration::from_secs(5));
        if fresh || self.app.tunnels.is_live(session.id) {
            return None;
        }
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = missing.entry(session.id).or_insert(Missing { since: now, asked: None });
        if asked >= MOST_ASKED || entry.asked.is_some_and(|asked| now < asked + ASK_EVERY) {
            return None;
        }
        entry.asked = Some(now);
        Some((now, entry.since))
    }

    fn forget_found(&self, missing: &[&Session]) {
        let still: HashSet<SessionId> = missing.iter().map(|session| session.id).collect();
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| still.contains(id));
    }
}

fn count(app: &App, live: &[Session]) {
    for &state in SessionState::ALL.iter().filter(|state| !state.is_final()) {
        for (name, kind) in [("eirene_sessions", JobKind::Session), ("eirene_runs", JobKind::Run)] {
            let there = live.iter().filter(|session| session.state == state && session.kind() == kind).count();
            metrics::gauge!(name, "state" => state.as_str()).set(there as f64);
        }
    }
    metrics::gauge!("eirene_agents_connected").set(app.tunnels.count() as f64);
}

/// What is left to do when a session is over: streams, secret, log.
pub(super) async fn finish(app: &App, job_files: &JobFiles, session: &Session) {
    app.tunnels.close(session.id);
    // A run may have waited for this one.
    app.nudges.submit().notify_one();
    job_files.remove(session).await;
    if session.state == SessionState::Failed
        && let Some(text) = job_files.job_log(session).await
        && let Err(error) = app.logs.append_job_log(session.id, &text).await
    {
        tracing::warn!(session.id = %session.id, %error, "The log of session {} was not written", session.id);
    }
    app.logs.close(session.id);
}
