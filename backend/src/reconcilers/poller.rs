//! The one place that looks at the scheduler: all jobs in one call, nodes and partitions less often.
//!
//! It looks sooner when somebody has just submitted or cancelled, slower when the scheduler answers slowly, and backs off with jitter
//! while it does not answer. One lost answer is looked over; from the second on, sessions are shown as undetermined.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::Clock;
use eirene_core::scheduler::{Scheduler, SchedulerError, SchedulerResult};

use super::Status;
use crate::app::App;
use crate::monitoring::metrics::cluster_seen;
use crate::services::cluster::{Cluster, Snapshot};
use crate::services::nudge::Nudges;

/// Nodes and partitions change slowly.
const CLUSTER_EVERY: Duration = Duration::from_secs(10);
/// Never two looks within this time.
const LEAST_GAP: Duration = Duration::from_millis(300);
/// After a nudge it looks this often …
const BRISK: Duration = Duration::from_secs(1);
/// … for this long.
const BRISK_FOR: Duration = Duration::from_secs(6);
/// Longest wait while the scheduler does not answer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// Longest wait for one answer.
const LOOK_WAIT: Duration = Duration::from_secs(30);
/// So many looks must fail in a row before the scheduler counts as away.
const PATIENCE: u32 = 2;

/// The poller.
pub struct Poller {
    scheduler: Arc<dyn Scheduler>,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    nudges: Nudges,
    status: Status,
    shutdown: tokio_util::sync::CancellationToken,
    base: Duration,
    failures: u32,
    cluster_seen: Option<Instant>,
    gpu_types: BTreeSet<String>,
}

impl Poller {
    /// A poller that publishes into `app.cluster`.
    pub fn new(app: &App) -> Self {
        Self {
            scheduler: Arc::clone(&app.scheduler),
            cluster: app.cluster.clone(),
            clock: Arc::clone(&app.clock),
            nudges: app.nudges.clone(),
            status: app.status.clone(),
            shutdown: app.shutdown.clone(),
            base: Duration::from_secs(app.config.slurm.poll_interval_s),
            failures: 0,
            cluster_seen: None,
            gpu_types: BTreeSet::new(),
        }
    }

    /// Looks until eirened ends.
    pub async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        let nudges = self.nudges.clone();
        let mut brisk_until: Option<Instant> = None;
        loop {
            let begun = Instant::now();
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.look() => {}
            }
            let took = begun.elapsed();
            let brisk = brisk_until.is_some_and(|until| begun < until);
            let wait = interval(self.base, took, self.failures, brisk, rand::random());
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                at_nodes = self.nudged(&nudges) => {
                    brisk_until = Some(Instant::now() + BRISK_FOR);
                    if at_nodes {
                        self.cluster_seen = None;
                    }
                    // A scheduler that answers slowly is not asked more because somebody is in a hurry.
                    let gap = LEAST_GAP.max(took.saturating_mul(3).min(LONGEST_BACKOFF));
                    tokio::time::sleep(gap.saturating_sub(begun.elapsed())).await;
                }
            }
        }
    }

    /// Comes when somebody waits for news, and says whether it is about nodes; never while the scheduler is away.
    async fn nudged(&self, nudges: &Nudges) -> bool {
        if self.failures >= PATIENCE {
            return std::future::pending().await;
        }
        tokio::select! {
            () = nudges.nodes().notified() => true,
            () = nudges.poll().notified() => false,
        }
    }

    /// One look.
    pub async fn look(&mut self) {
        let begun = Instant::now();
        let asked_at = self.clock.now();
        let before = self.cluster.snapshot();
        let jobs = bounded("listing the jobs", self.scheduler.jobs()).await;
        let trouble = match jobs {
            Ok(jobs) => {
                if self.failures >= PATIENCE {
                    tracing::info!("The scheduler answers again");
                }
                self.failures = 0;
                let mut next = Snapshot {
                    asked_at: Some(asked_at),
                    good_since: before.good_since.or(Some(asked_at)),
                    reachable: true,
                    trouble: None,
                    jobs: Arc::new(jobs),
                    nodes: Arc::clone(&before.nodes),
                    partitions: Arc::clone(&before.partitions),
                    ..Snapshot::default()
                }
                .looking_ahead(asked_at);
                // Whoever waits for a job does not wait for the nodes.
                self.cluster.publish(next.clone());
                let trouble = self.look_at_cluster(&mut next).await;
                if trouble.is_none() {
                    self.cluster.publish(next.looking_ahead(asked_at));
                }
                trouble
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let trouble = error.to_string();
                if self.failures == PATIENCE {
                    tracing::warn!(error = trouble, "The scheduler does not answer; nothing is concluded from that");
                }
                let reachable = before.reachable && self.failures < PATIENCE;
                self.cluster.publish(Snapshot {
                    reachable,
                    // One look without an answer: what was on its way then may still arrive.
                    good_since: None,
                    trouble: Some(trouble.clone()),
                    ..(*before).clone()
                });
                Some(trouble)
            }
        };
        cluster_seen(&self.cluster, &mut self.gpu_types);
        metrics::histogram!("eirene_scheduler_poll_seconds").record(begun.elapsed().as_secs_f64());
        metrics::gauge!("eirene_scheduler_reachable").set(f64::from(u8::from(self.cluster.snapshot().reachable)));
        self.status.note("poll", self.clock.now(), begun.elapsed(), trouble);
    }

    async fn look_at_cluster(&mut self, next: &mut Snapshot) -> Option<String> {
        if self.cluster_seen.is_some_and(|seen| seen.elapsed() < CLUSTER_EVERY) {
            return None;
        }
        let nodes = bounded("listing the nodes", self.scheduler.nodes());
        let partitions = bounded("listing the partitions", self.scheduler.partitions());
        match tokio::join!(nodes, partitions) {
            (Ok(nodes), Ok(partitions)) => {
                next.nodes = Arc::new(nodes);
                next.partitions = Arc::new(partitions);
                self.cluster_seen = Some(Instant::now());
                None
            }
            (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        }
    }
}

async fn bounded<T>(what: &str, call: impl Future<Output = SchedulerResult<T>>) -> SchedulerResult<T> {
    tokio::time::timeout(LOOK_WAIT, call).await.unwrap_or_else(|_| {
        Err(SchedulerError::Unreachable {
            what: format!("{what}: no answer within {} s", LOOK_WAIT.as_secs()),
            source: None,
        })
    })
}

/// How long to wait after a look that took `took`; `chance` in 0..1 spreads the looks of several portals.
fn interval(base: Duration, took: Duration, failures: u32, brisk: bool, chance: f64) -> Duration {
    let wanted = match failures {
        0 if brisk => base.min(BRISK),
        0 => base,
        1 => BRISK,
        failures => base.saturating_mul(1 << (failures - 1).min(4)).min(LONGEST_BACKOFF.max(base)),
    };
    // A scheduler that answers slowly is asked less: at most a quarter of its time is ours.
    let polite = wanted.max(took.saturating_mul(3).min(Duration::from_mins(1)));
    if failures < PATIENCE { polite } else { polite.mul_f64(0.8 + 0.4 * chance.clamp(0.0, 1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_slower_when_the_scheduler_is_slow_or_away() {
        let (base, quick) = (Duration::from_secs(2), Duration::from_millis(20));
        assert_eq!(interval(base, quick, 0, false, 0.5), base);
        assert_eq!(interval(base, quick, 0, true, 0.5), BRISK);
        assert_eq!(interval(base, Duration::from_secs(4), 0, true, 0.5), Duration::from_secs(12));
        assert_eq!(interval(base, quick, 1, false, 0.5), BRISK);
        let waits: Vec<Duration> = (2..10).map(|failures| interval(base, quick, failures, false, 0.5)).collect();
        assert!(waits.is_sorted() && waits[0] == Duration::from_secs(4), "{waits:?}");
        assert!(*waits.last().unwrap() <= LONGEST_BACKOFF);
        assert_ne!(interval(base, quick, 5, false, 0.0), interval(base, quick, 5, false, 1.0));
    }
}
