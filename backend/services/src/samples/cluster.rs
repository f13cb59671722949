//! The cluster's own past: how many jobs ran and waited, how many GPUs were held and waited for. Once a minute, in the same store as what sessions
//! use, as the series of a session that there is not; [`Samples`] keeps and forgets it as it does all others. Sums of the whole cluster, which everybody
//! may see: whose they are and in which partition is not kept, so nobody's part of it could be told apart.

use eirene_monitoring_store::{Sample, SessionId};
use jiff::{SignedDuration, Timestamp};

use super::Samples;
use super::history::Spans;
use crate::cluster::Snapshot;
use crate::error::AppError;

/// Ids of sessions are random; nobody has this one.
pub(super) const CLUSTER: SessionId = SessionId([0; 16]);
pub(super) const PREFIX: &str = "cluster/";
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
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::JobsRunning, Self::JobsWaiting, Self::GpusHeld, Self::GpusWaiting, Self::GpusTotal];

    const fn name(self) -> &'static str {
        match self {
            Self::JobsRunning => "cluster/jobs_running",
            Self::JobsWaiting => "cluster/jobs_waiting",
            Self::GpusHeld => "cluster/gpus_held",
            Self::GpusWaiting => "cluster/gpus_waiting",
            Self::GpusTotal => "cluster/gpus_total",
        }
    }

    /// The metric that tells it to Prometheus, and its label `state`, where it has one: what does not add up with others has a name of its own.
    pub const fn series(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::JobsRunning => ("eirene_cluster_jobs", Some("running")),
            Self::JobsWaiting => ("eirene_cluster_jobs", Some("waiting")),
            Self::GpusHeld => ("eirene_cluster_all_gpus_held", None),
            Self::GpusWaiting => ("eirene_cluster_all_gpus_wanted", None),
            Self::GpusTotal => ("eirene_cluster_all_gpus_installed", None),
        }
    }

    /// The figure whose series in the store has this name.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// What it is in a snapshot.
    pub fn of(self, snapshot: &Snapshot) -> f64 {
        let waiting = || snapshot.queue.waiting_in(|_| true);
        let gpus = || snapshot.nodes.iter().flat_map(|node| &node.gpus);
        match self {
            Self::JobsRunning => f64::from(snapshot.queue.running_in(|_| true)),
            Self::JobsWaiting => f64::from(waiting().jobs),
            // Added up as whole numbers: of floats, none at all are -0.
            Self::GpusHeld => f64::from(gpus().map(|gpus| gpus.allocated).sum::<u32>()),
            Self::GpusTotal => f64::from(gpus().map(|gpus| gpus.total).sum::<u32>()),
            Self::GpusWaiting => f64::from(waiting().gpus.into_values().fold(0, u32::saturating_add)),
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
    pub fn new(from_ms: i64, step_ms: i64, spans: usize, value: impl Fn(Figure, usize) -> Option<f64>) -> Self {
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
    ///
    /// # Errors
    /// [`AppError::Internal`] where the thread that notes it came to grief.
    pub async fn note_cluster(&self, snapshot: &Snapshot) -> Result<(), AppError> {
        let Some(store) = self.store().filter(|_| snapshot.reachable && snapshot.is_known()) else { return Ok(()) };
        let at_ms = self.inner.clock.now().as_millisecond();
        let sample = |figure: Figure| Sample { name: figure.name(), at_ms, value: figure.of(snapshot) };
        let samples = Figure::ALL.map(sample);
        // The store may be setting aside what it closes, which is no wait for a thread that serves others.
        let append = move || store.append(at_ms, CLUSTER, &samples);
        tokio::task::spawn_blocking(append).await.map_err(|error| AppError::Internal(error.into()))?;
        Ok(())
    }

    /// How the cluster was for so long, in so many spans at most.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] while nobody has it who answers.
    pub async fn cluster_past(&self, length: SignedDuration, spans: u32) -> Result<ClusterPast, AppError> {
        let history = self.history(&[])?;
        let spans = grid(self.inner.clock.now(), length, spans);
        let Spans { from_ms, step_ms, .. } = spans;
        let lines = self.judged(history.source(), history.of_cluster(spans).await)?;
        let mean = |figure: Figure, place: usize| {
            let (_, points) = lines.iter().find(|(known, _)| *known == figure)?;
            let at_ms = from_ms.saturating_add(step_ms.saturating_mul(i64::try_from(place).ok()?));
            let found = points.binary_search_by_key(&at_ms, |point| point.at_ms.div_euclid(step_ms) * step_ms).ok()?;
            points.get(found).map(|point| point.mean)
        };
        let count = usize::try_from(spans.count()).unwrap_or_default();
        Ok(ClusterPast::new(from_ms, step_ms, count, mean))
    }
}

/// Whole spans of whole minutes that reach until now.
fn grid(now: Timestamp, length: SignedDuration, spans: u32) -> Spans {
    let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX).max(MINUTE_MS);
    let wished = length_ms / i64::from(spans.max(1));
    let step = wished.div_euclid(MINUTE_MS).max(1).saturating_mul(MINUTE_MS);
    let to = now.as_millisecond().div_euclid(step).saturating_add(1).saturating_mul(step);
    let count = (length_ms / step).clamp(1, i64::from(spans.max(1)));
    Spans { from_ms: to.saturating_sub(count.saturating_mul(step)), to_ms: to, step_ms: step }
}
