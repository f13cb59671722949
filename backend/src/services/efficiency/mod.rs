//! How well what sessions and runs hold is used: measured from their samples, kept as a row each, summed up for admins, and as advice for people.
//!
//! Nothing follows from it by itself: samples are an agent's word, and an agent is its person's. The rules are constants here and in [`advice`], and
//! pages say them, so that a sum can be checked.

mod advice;
mod measure;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use eirene_core::job_usage::{JobUsage, MeasuredJob, UsageBy, UsageSums, Waste};
use eirene_core::{Clock, Session};
use eirene_database::Db;
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};

use crate::config;
use crate::error::{AppError, FieldError};
use crate::services::actor::Actor;
use crate::services::cluster::Cluster;
use crate::services::samples::Samples;

pub(crate) use advice::{Advice, advice};
pub(crate) use measure::{IDLE_MINUTES, IDLE_PERCENT};

/// The longest time that is reported on.
pub const MOST_DAYS: i64 = 366;
/// The time that is reported on when nobody says which.
pub const DAYS: i64 = 30;
/// Most people or partitions of a report.
pub const MOST_GROUPS: u32 = 500;
/// Examples of each sort of waste.
const EXAMPLES: u32 = 5;
/// While a session lasts it is measured so often.
const AGAIN: SignedDuration = SignedDuration::from_mins(10);
/// Samples of a session that is over may take so long to come.
const SETTLES: SignedDuration = SignedDuration::from_mins(2);

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
    /// By person or partition, who has idle GPUs first.
    pub groups: Vec<UsageSums>,
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
}

impl Efficiency {
    /// Measures what is in `samples`.
    pub fn new(db: Db, clock: Arc<dyn Clock>, samples: Samples, cluster: Cluster, config: &config::Samples) -> Self {
        let kept = SignedDuration::from_hours(24 * i64::from(config.keep_minutes_days));
        Self { db, clock, samples, cluster, kept }
    }

    /// Measures some of those that are due; says how many.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] while samples cannot be read: nothing is measured then, rather than as nothing.
    pub(crate) async fn measure_some(&self, most: u32) -> Result<usize, AppError> {
        let now = self.clock.now();
        let before = |length| now.saturating_sub(length).unwrap_or(now);
        let due = self.db.jobs_to_measure(before(self.kept), before(AGAIN), before(SETTLES), most).await?;
        for session in &due {
            match self.measure(session).await {
                Ok(Some(usage)) => self.db.put_job_usage(&usage).await?,
                Ok(None) => {}
                Err(error @ AppError::Unavailable { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!(session.id = %session.id, %error, "What a session used cannot be measured");
                }
            }
        }
        Ok(due.len())
    }

    /// What a session or run holds and uses, as of now. None of one that has not begun. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// The database's, and [`AppError::Unavailable`] while samples cannot be read.
    pub async fn of(&self, session: &Session) -> Result<Option<JobUsage>, AppError> {
        if session.ended_at.is_some()
            && let Some(usage) = self.db.job_usage(session.id).await?
            && usage.is_final
        {
            return Ok(Some(usage));
        }
        self.measure(session).await
    }

    /// What its person could do better, by what was last measured. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// The database's.
    pub async fn advice(&self, session: &Session) -> Result<Vec<Advice>, AppError> {
        let usage = self.db.job_usage(session.id).await?;
        Ok(usage.map(|usage| advice(&usage, &session.resources)).unwrap_or_default())
    }

    async fn measure(&self, session: &Session) -> Result<Option<JobUsage>, AppError> {
        let Some(started_at) = session.started_at else { return Ok(None) };
        let until = session.ended_at.unwrap_or_else(|| self.clock.now());
        let chart = self.samples.whole(session, &measure::METRICS).await?;
        let chosen = session.resources.partition.clone();
        let default = || self.cluster.snapshot().partition(None).map(|partition| partition.name.clone());
        // Before the cluster was seen nobody knows which the default is; it is measured again.
        let Some(partition) = chosen.or_else(default) else { return Ok(None) };
        let over = session.ended_at.is_some_and(|at| self.clock.now().duration_since(at) >= SETTLES);
        let wall_s = u64::try_from(until.duration_since(started_at).as_secs()).unwrap_or_default();
        let (cpu, memory_mib) = measure::shares(&session.resources, wall_s, &chart);
        let gpu = measure::gpus(&session.resources, wall_s, &chart);
        Ok(Some(JobUsage { session: session.id, partition, until, is_final: over, wall_s, cpu, memory_mib, gpu }))
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
        let groups = self.db.usage_sums(wanted.by, from, to, MOST_GROUPS).await?;
        let mut total = UsageSums::default();
        for group in &groups {
            total.add(group);
        }
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
        Ok(Report { from, to, total, groups, examples })
    }
}
