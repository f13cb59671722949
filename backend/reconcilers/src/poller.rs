//! The one place that looks at the scheduler: all jobs in one call, nodes and partitions less often.
//!
//! It looks sooner when somebody has just submitted or cancelled, slower when the scheduler answers slowly, and backs off with jitter
//! while it does not answer. One lost answer is looked over; from the second on, or once what is known is ten seconds old and no answer comes,
//! sessions are shown as undetermined.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::Clock;
use eirene_core::scheduler::{Jobs, Scheduler, SchedulerError, SchedulerResult};

use eirene_services::app::App;
use eirene_services::cluster::{Cluster, Snapshot};
use eirene_services::health::status::Status;
use eirene_services::monitoring::metrics::cluster_seen;
use eirene_services::nudge::Nudges;

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
/// What is known may be this old while an answer is awaited.
const STALE: Duration = Duration::from_secs(10);
/// An answer is not late before this, however long ago the last one came.
const LEAST_WAIT: Duration = Duration::from_secs(2);
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
    /// When the last answered question for jobs was asked, and how long its answer took.
    answered: Option<(Instant, Duration)>,
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
            answered: None,
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
        let jobs = self.jobs().await;
        let before = self.cluster.snapshot();
        if jobs.is_ok() {
            self.answered = Some((begun, begun.elapsed()));
        }
        let trouble = match jobs {
            Ok(jobs) => {
                if before.is_known() && !before.reachable {
                    tracing::info!("The scheduler answers again");
                }
                self.failures = 0;
                let mut next = Snapshot {
                    asked_at: Some(asked_at),
                    good_since: before.good_since.or(Some(asked_at)),
                    reachable: true,
                    trouble: None,
                    jobs: Arc::new(jobs.ours),
                    queue: Arc::new(jobs.queue),
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

    /// Asks for all jobs. While the answer is late, the scheduler counts as away.
    async fn jobs(&self) -> SchedulerResult<Jobs> {
        let late_after = late_after(self.answered.map(|(asked, took)| (asked.elapsed(), took)));
        let mut answer = pin!(bounded("listing the jobs", self.scheduler.jobs()));
        tokio::select! {
            jobs = &mut answer => return jobs,
            () = tokio::time::sleep(late_after) => {}
        }
        let before = self.cluster.snapshot();
        if before.reachable {
            let trouble = format!("listing the jobs: no answer for {} s", late_after.as_secs());
            tracing::warn!(trouble, "The scheduler does not answer; nothing is concluded from that");
            self.cluster.publish(Snapshot {
                reachable: false,
                good_since: None,
                trouble: Some(trouble),
                ..(*before).clone()
            });
        }
        answer.await
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

/// After how long an answer is late: the last one was asked for so long ago, and took so long. A scheduler that is always slow is given its time.
fn late_after(answered: Option<(Duration, Duration)>) -> Duration {
    answered.map_or(STALE, |(age, took)| STALE.saturating_sub(age).max(took.saturating_mul(2)).max(LEAST_WAIT))
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
    use eirene_services::testing::TestApp;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_late_counts_as_none_until_it_comes() {
        let test = TestApp::new().await;
        let mut poller = Poller::new(&test.app);
        poller.look().await;
        let seen = test.app.cluster.snapshot();
        assert!(seen.reachable && seen.good_since.is_some());
        tokio::time::pause();
        let hold = test.scheduler.hold().await;
        let mut changes = test.app.cluster.watch();
        let look = async {
            poller.look().await;
            poller.failures
        };
        let change = async {
            changes.changed().await.unwrap();
            let late = test.app.cluster.snapshot();
            drop(hold);
            late
        };
        let (failures, late) = tokio::join!(look, change);
        assert!(!late.reachable && late.good_since.is_none() && late.trouble.is_some(), "{late:?}");
        assert_eq!((late.asked_at, failures), (seen.asked_at, 0));
        let again = test.app.cluster.snapshot();
        assert!(again.reachable && again.good_since.is_some() && again.trouble.is_none());
    }

    #[test]
    fn an_answer_is_late_when_what_is_known_is_ten_seconds_old() {
        let s = Duration::from_secs;
        for (answered, expected) in [
            (None, 10),
            (Some((s(2), s(0))), 8),
            (Some((s(9), s(0))), 2),
            (Some((s(60), s(0))), 2),
            // Always slow, and so asked every 36 s.
            (Some((s(36), s(12))), 24),
        ] {
            assert_eq!(late_after(answered), s(expected), "{answered:?}");
        }
    }

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
