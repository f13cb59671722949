//! The cluster's own past: how many jobs ran and waited, how many GPUs were held and waited for. Once a minute, in the same store as what sessions
//! use, as the series of a session that there is not; [`Samples`] keeps and forgets it as it does all others.

use eirene_core::scheduler::JobState;
use eirene_monitoring_store::{Query, Sample, SessionId};
use eirene_words::say;
use jiff::{SignedDuration, Timestamp};

use super::{AGAIN_S, Samples};
use crate::error::AppError;
use crate::services::cluster::Snapshot;

/// Ids of sessions are random; nobody has this one.
const CLUSTER: SessionId = SessionId([0; 16]);
const PREFIX: &str = "cluster/";
const MINUTE_MS: i64 = 60_000;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Jobs that have nodes.
    JobsRunning,
    /// Jobs that wait.
    JobsWaiting,
    /// GPUs that jobs have.
    GpusHeld,
    /// GPUs that waiting jobs ask for.
    GpusWaiting,
    /// GPUs there are.
    GpusTotal,
}

impl Figure {
    const ALL: [Self; 5] = [Self::JobsRunning, Self::JobsWaiting, Self::GpusHeld, Self::GpusWaiting, Self::GpusTotal];

    const fn name(self) -> &'static str {
        match self {
            Self::JobsRunning => "cluster/jobs_running",
            Self::JobsWaiting => "cluster/jobs_waiting",
            Self::GpusHeld => "cluster/gpus_held",
            Self::GpusWaiting => "cluster/gpus_waiting",
            Self::GpusTotal => "cluster/gpus_total",
        }
    }

    fn of(self, snapshot: &Snapshot) -> f64 {
        let jobs = |states: &[JobState]| {
            let there = snapshot.jobs.iter().filter(|job| states.contains(&job.state));
            there.count() as f64
        };
        let gpus = || snapshot.nodes.iter().flat_map(|node| &node.gpus);
        match self {
            Self::JobsRunning => jobs(&[JobState::Running, JobState::Configuring, JobState::Completing]),
            Self::JobsWaiting => jobs(&[JobState::Pending]),
            Self::GpusHeld => gpus().map(|gpus| f64::from(gpus.allocated)).sum(),
            Self::GpusTotal => gpus().map(|gpus| f64::from(gpus.total)).sum(),
            Self::GpusWaiting => snapshot
                .jobs
                .iter()
                .filter(|job| job.state == JobState::Pending)
                .flat_map(|job| &job.gpus)
                .map(|(_, count)| f64::from(*count))
                .sum(),
        }
    }
}

/// How the cluster was.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterPast {
    /// When the first span begins, milliseconds since 1970.
    pub from_ms: i64,
    /// Length of a span, milliseconds.
    pub step_ms: i64,
    /// How many spans there are.
    pub spans: usize,
    lines: Vec<Vec<Option<f64>>>,
}

impl ClusterPast {
    /// So many spans from the first on, each figure in the order of [`Figure::ALL`].
    pub(crate) fn new(from_ms: i64, step_ms: i64, spans: usize, value: impl Fn(Figure, usize) -> Option<f64>) -> Self {
        let line = |figure: &Figure| (0..spans).map(|place| value(*figure, place)).collect();
        Self { from_ms, step_ms, spans, lines: Figure::ALL.iter().map(line).collect() }
    }

    /// Means of one figure, one for each span; none where nobody looked.
    pub fn values(&self, figure: Figure) -> &[Option<f64>] {
        let place = Figure::ALL.iter().position(|known| *known == figure);
        place.and_then(|place| self.lines.get(place)).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Samples {
    /// Notes how the cluster is; not while it cannot be seen.
    pub(crate) fn note_cluster(&self, snapshot: &Snapshot) {
        let Some(store) = self.store().filter(|_| snapshot.reachable && snapshot.is_known()) else { return };
        let at_ms = self.inner.clock.now().as_millisecond();
        let sample = |figure: Figure| Sample { name: figure.name(), at_ms, value: figure.of(snapshot) };
        store.append(at_ms, CLUSTER, &Figure::ALL.map(sample));
    }

    /// How the cluster was for so long, in so many spans at most.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] while the store is not there.
    pub async fn cluster_past(&self, length: SignedDuration, spans: u32) -> Result<ClusterPast, AppError> {
        let away = || AppError::Unavailable { what: say("away.samples"), retry_after_s: AGAIN_S };
        let store = self.store().ok_or_else(away)?;
        let (step_ms, from_ms, to_ms) = grid(self.inner.clock.now(), length, spans);
        let ask =
            move || store.query(&Query { session: CLUSTER, prefix: PREFIX, from_ms, to_ms, points: spans.max(1) });
        let answer = tokio::task::spawn_blocking(ask).await.map_err(|error| AppError::Internal(error.into()))?;
        let answer = answer.map_err(|error| AppError::Internal(error.into()))?;
        let count = usize::try_from((to_ms - from_ms) / step_ms).unwrap_or_default();
        let mean = |figure: Figure, place: usize| {
            let line = answer.lines.iter().find(|line| line.name == figure.name())?;
            let at_ms = from_ms.saturating_add(step_ms.saturating_mul(i64::try_from(place).ok()?));
            let found =
                line.points.binary_search_by_key(&at_ms, |point| point.at_ms.div_euclid(step_ms) * step_ms).ok()?;
            line.points.get(found).map(|point| point.mean)
        };
        Ok(ClusterPast::new(from_ms, step_ms, count, mean))
    }
}

/// Length of a span, and from when to when: whole spans of whole minutes that reach until now.
fn grid(now: Timestamp, length: SignedDuration, spans: u32) -> (i64, i64, i64) {
    let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(MINUTE_MS);
    let wished = length_ms / i64::from(spans.max(1));
    let step = wished.div_euclid(MINUTE_MS).max(1).saturating_mul(MINUTE_MS);
    let to = now.as_millisecond().div_euclid(step).saturating_add(1).saturating_mul(step);
    let count = (length_ms / step).clamp(1, i64::from(spans.max(1)));
    (step, to.saturating_sub(count.saturating_mul(step)), to)
}
