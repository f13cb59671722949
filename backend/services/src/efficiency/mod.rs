//! How well what sessions and runs hold is used: measured from their samples, kept as a row for each of their starts, summed up for admins, and as
//! advice for people.
//!
//! A start that is over because SLURM has put its job back into the queue is written down before the session's row forgets it, and measured as soon as
//! its last samples are there: from them, so neither twice nor not at all, whenever the portal stops in between.
//!
//! Nothing follows from it by itself: samples are an agent's word, and an agent is its person's. The rules are constants here and in [`advice`], and
//! pages say them, so that a sum can be checked.

mod advice;
mod measure;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use eirene_core::job_usage::{JobStart, JobUsage, MeasuredJob, UsageBy, UsageSums, Waste};
use eirene_core::scheduler::{Job, JobState};
use eirene_core::{Clock, Session, SessionId};
use eirene_database::Db;
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};

use crate::actor::Actor;
use crate::cluster::Cluster;
use crate::config;
use crate::error::{AppError, FieldError};
use crate::samples::Samples;

pub use advice::{Advice, advice};
pub use measure::{IDLE_MINUTES, IDLE_PERCENT};

/// The longest time that is reported on.
pub const MOST_DAYS: i64 = 366;
/// The time that is reported on when nobody says which.
pub const DAYS: i64 = 30;
/// Most people or partitions that a report lists.
pub const MOST_GROUPS: usize = 500;
/// Examples of each sort of waste.
const EXAMPLES: u32 = 5;
/// While a session lasts it is measured so often.
const AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// Samples of a session that is over may take so long to come.
const SETTLES: SignedDuration = SignedDuration::from_mins(2);

/// A job that is preempted has some time left, up to this at most places.
const GRACE: SignedDuration = SignedDuration::from_mins(10);

/// What could not be measured is measured after all others for so long.
const LATER: SignedDuration = SignedDuration::from_hours(1);
/// After so many for which there was no answer a round is over: most likely there is none for anybody.
const MOST_UNANSWERED: usize = 3;

/// What is to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// From when on; [`DAYS`] before its end when nothing is said.
    pub from: Option<Timestamp>,
    /// Until when; now when nothing is said.
    pub to: Option<Timestamp>,
    /// By what.
    pub by: UsageBy,
}

/// A session or run that is worth a look.
#[derive(Debug, Clone)]
pub struct Example {
    /// What it wasted.
    pub waste: Waste,
    /// Which it is.
    pub job: MeasuredJob,
    /// What its person could do.
    pub advice: Vec<Advice>,
}

/// What was held and used.
#[derive(Debug, Clone)]
pub struct Report {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
    /// All together.
    pub total: UsageSums,
    /// By person or partition, who has idle GPUs first; at most [`MOST_GROUPS`].
    pub groups: Vec<UsageSums>,
    /// How many there are beside them, who are in the total all the same.
    pub unlisted: usize,
    /// The worst of each sort.
    pub examples: Vec<Example>,
}

/// The measuring, and the reports. Cheap to clone.
#[derive(Clone)]
pub struct Efficiency {
    db: Db,
    clock: Arc<dyn Clock>,
    samples: Samples,
    cluster: Cluster,
    /// For so long there are samples to measure.
    kept: SignedDuration,
    /// What could not be measured lately, and when that was last tried.
    failed: Arc<Mutex<HashMap<Start, Timestamp>>>,
}

/// A start: whose, and after how many restarts.
type Start = (SessionId, u32);

fn start_of(session: &Session) -> Start {
    (session.id, session.restart_count)
}

impl Efficiency {
    /// Measures what is in `samples`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, samples: Samples, cluster: Cluster, config: &config::Samples) -> Self {
        let kept = SignedDuration::from_hours(24 * i64::from(config.keep_minutes_days));
        Self { db, clock, samples, cluster, kept, failed: Arc::default() }
    }

    /// Measures some of those that are due; says how many. One for which there is no answer does not keep the others from being measured: it comes
    /// after them for a while, in turn with those like it.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] where there was no answer and nothing was measured: it is not measured as nothing then.
    pub async fn measure_some(&self, most: u32) -> Result<usize, AppError> {
        let now = self.clock.now();
        let before = |length| now.saturating_sub(length).unwrap_or(now);
        let failed = self.failed_since(before(LATER));
        // Those that failed may stand before all others there, and take nobody's place.
        let limit = most.saturating_add(u32::try_from(failed.len()).unwrap_or(u32::MAX));
        // Of what is over nothing more comes, so it is first.
        let mut due = self.db.starts_to_measure(before(self.kept), before(SETTLES), limit).await?;
        due.extend(self.db.jobs_to_measure(before(self.kept), before(AGAIN), before(SETTLES), limit).await?);
        due.sort_by_key(|session| failed.get(&start_of(session)).copied());
        due.truncate(most as usize);
        let (mut measured, mut unanswered, mut last) = (0, 0, None);
        for session in &due {
            match self.measure(session).await {
                Ok(usage) => {
                    if let Some(usage) = usage {
                        self.db.put_job_usage(&usage).await?;
                    }
                    self.failed.lock().unwrap_or_else(PoisonError::into_inner).remove(&start_of(session));
                    measured += 1;
                }
                Err(error) => {
                    self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(start_of(session), now);
                    if !matches!(error, AppError::Unavailable { .. }) {
                        tracing::warn!(session.id = %session.id, %error, "What a session used cannot be measured");
                        continue;
                    }
                    last = Some(error);
                    unanswered += 1;
                    // Who was slow is left alone for a while, and that is no fault of those behind: each round one of them has its turn.
                    if unanswered >= MOST_UNANSWERED || failed.contains_key(&start_of(session)) {
                        break;
                    }
                }
            }
        }
        last.filter(|_| measured == 0).map_or(Ok(measured), Err)
    }

    /// What could not be measured since then, and when that was last tried.
    fn failed_since(&self, since: Timestamp) -> HashMap<Start, Timestamp> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.retain(|_, at| *at > since);
        failed.clone()
    }

    /// What a session or run holds and uses, as of now, with what its earlier starts did when they were last measured. None of one that has never
    /// begun. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// The database's, and [`AppError::Unavailable`] while samples cannot be read.
    pub async fn of(&self, session: &Session) -> Result<Option<JobUsage>, AppError> {
        // Before its last start was measured for the first time, only what was before it is final.
        let has_last = |usage: &JobUsage| usage.restart_count == session.restart_count || session.started_at.is_none();
        if session.ended_at.is_some()
            && let Some(usage) = self.db.job_usage(session.id).await?
            && usage.is_final
            && has_last(&usage)
        {
            return Ok(Some(usage));
        }
        let earlier = self.db.job_usage_before(session.id, session.restart_count).await?;
        let current = self.measure(session).await?;
        Ok(match (earlier, current) {
            (Some(mut all), Some(current)) => {
                all.add(&current);
                Some(all)
            }
            (earlier, current) => current.or(earlier),
        })
    }

    /// Writes down that the start which `session` still has is over, because the scheduler says so of its `job`: what it held and used is measured by
    /// that. It may be said again, and then changes nothing.
    ///
    /// # Errors
    /// The database's.
    pub async fn start_over(&self, session: &Session, job: &Job) -> Result<(), AppError> {
        let Some(start) = over(session, job, self.clock.now()) else { return Ok(()) };
        Ok(self.db.put_job_start(&start).await?)
    }

    /// The starts of a session or run that were over before the scheduler put it back into the queue, the first of them first. The caller has asked
    /// whether it may be seen.
    ///
    /// # Errors
    /// The database's.
    pub async fn earlier_starts(&self, session: &Session) -> Result<Vec<JobStart>, AppError> {
        Ok(self.db.job_starts(session.id).await?)
    }

    /// What its person could do better, by what was last measured. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// The database's.
    pub async fn advice(&self, session: &Session) -> Result<Vec<Advice>, AppError> {
        let usage = self.db.job_usage(session.id).await?;
        Ok(usage.map(|usage| advice(&usage, &session.resources)).unwrap_or_default())
    }

    /// One start: that of `session` as it is, or as it was.
    async fn measure(&self, session: &Session) -> Result<Option<JobUsage>, AppError> {
        let Some(started_at) = session.started_at else { return Ok(None) };
        let until = session.ended_at.unwrap_or_else(|| self.clock.now());
        let mut chart = self.samples.whole(session, &measure::METRICS).await?;
        measure::of_start(&mut chart, session);
        let chosen = session.resources.partition.clone();
        let default = || self.cluster.snapshot().partition(None).map(|partition| partition.name.clone());
        // Before the cluster was seen nobody knows which the default is; it is measured again.
        let Some(partition) = chosen.or_else(default) else { return Ok(None) };
        let over = session.ended_at.is_some_and(|at| self.clock.now().duration_since(at) >= SETTLES);
        let wall_s = u64::try_from(until.duration_since(started_at).as_secs()).unwrap_or_default();
        let (cpu, memory_mib) = measure::shares(&session.resources, wall_s, &chart);
        let gpu = measure::gpus(&session.resources, wall_s, &chart);
        let (session, restart_count) = start_of(session);
        Ok(Some(JobUsage {
            session,
            restart_count,
            started_at,
            partition,
            until,
            is_final: over,
            wall_s,
            cpu,
            memory_mib,
            gpu,
        }))
    }

    /// What was held and used in a time, for admins.
    ///
    /// # Errors
    /// [`AppError::Forbidden`] for who is no admin; a time that ends before it begins, or is longer than [`MOST_DAYS`].
    pub async fn report(&self, actor: &Actor, wanted: Wanted) -> Result<Report, AppError> {
        actor.require_admin()?;
        let to = wanted.to.unwrap_or_else(|| self.clock.now());
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let from = wanted.from.unwrap_or_else(|| to.saturating_sub(days(DAYS)).unwrap_or(to));
        let length = to.duration_since(from);
        if length <= SignedDuration::ZERO || length > days(MOST_DAYS) {
            return Err(AppError::Invalid(vec![FieldError::new("from", say("efficiency.wrong_time"))]));
        }
        let (total, groups, unlisted) = summed(self.db.usage_sums(wanted.by, from, to).await?);
        let mut examples = Vec::new();
        for waste in [Waste::Gpu, Waste::Memory, Waste::Cpu] {
            for job in self.db.worst_jobs(waste, from, to, EXAMPLES).await? {
                let advice = advice(&job.usage, &job.session.resources);
                // Where there is nothing to say there is nothing to look at.
                if advice.iter().any(|advice| advice.about.is(waste)) {
                    examples.push(Example { waste, job, advice });
                }
            }
        }
        Ok(Report { from, to, total, groups, unlisted, examples })
    }
}

/// The start that `session` still has, where its job has been restarted since. It was over when that is seen, unless nobody has looked for a while: not
/// after its time was, not long after it was preempted, and not after the job was put back into the queue, which moves its submit time, or started
/// anew.
fn over(session: &Session, job: &Job, now: Timestamp) -> Option<JobStart> {
    let started_at = session.started_at.filter(|_| job.restart_count > session.restart_count)?;
    let gave_way = job.preempted_at.filter(|at| *at >= started_at).and_then(|at| at.checked_add(GRACE).ok());
    // While a job waits, its start is a guess of the scheduler's.
    let anew = job.started_at.filter(|_| job.state != JobState::Pending);
    let limits = [session.ends_at, gave_way, Some(job.identity.submitted_at), anew].into_iter().flatten();
    let ended_at = limits.filter(|at| *at > started_at).fold(now, Timestamp::min).max(started_at);
    Some(JobStart { session: session.id, restart_count: session.restart_count, started_at, ended_at })
}

/// All together, those that are listed, and how many are not.
fn summed(mut groups: Vec<UsageSums>) -> (UsageSums, Vec<UsageSums>, usize) {
    let mut total = UsageSums::default();
    for group in &groups {
        total.add(group);
    }
    let unlisted = groups.len().saturating_sub(MOST_GROUPS);
    groups.truncate(MOST_GROUPS);
    (total, groups, unlisted)
}
