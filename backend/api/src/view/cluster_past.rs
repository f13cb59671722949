//! How the cluster was, as the API shows it.

use eirene_services::samples::{ClusterPast, Figure};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// How the cluster was. All lists have a mean for each of the same spans of time; null where nobody looked.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ClusterHistory)]
pub(crate) struct ClusterPastView {
    /// When the first span begins.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Length of a span, seconds.
    step_s: i64,
    /// How many spans there are.
    spans: usize,
    /// Jobs that have nodes.
    jobs_running: Vec<Option<f64>>,
    /// Jobs that wait.
    jobs_waiting: Vec<Option<f64>>,
    /// GPUs that jobs have.
    gpus_held: Vec<Option<f64>>,
    /// GPUs that waiting jobs ask for.
    gpus_waiting: Vec<Option<f64>>,
    /// GPUs there are.
    gpus_total: Vec<Option<f64>>,
}

impl From<ClusterPast> for ClusterPastView {
    fn from(past: ClusterPast) -> Self {
        let values = |figure| past.values(figure).to_vec();
        Self {
            from: Timestamp::from_millisecond(past.from_ms).unwrap_or_default(),
            step_s: past.step_ms / 1000,
            spans: past.spans,
            jobs_running: values(Figure::JobsRunning),
            jobs_waiting: values(Figure::JobsWaiting),
            gpus_held: values(Figure::GpusHeld),
            gpus_waiting: values(Figure::GpusWaiting),
            gpus_total: values(Figure::GpusTotal),
        }
    }
}
