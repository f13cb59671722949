//! What a session used, as the API shows it.

use eirene_monitoring::{Group, Kind, Unit, Whose};
use eirene_monitoring_store::Resolution;
use eirene_services::samples::{Chart, LeftOut, Line, Source};
use eirene_words::words;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is looked at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SampleGroup {
    /// Processor time.
    Cpu,
    /// Processor time by core.
    Cores,
    /// Memory.
    Memory,
    /// Storage.
    Io,
    /// Network.
    Network,
    /// GPUs.
    Gpu,
    /// Single processes.
    Processes,
    /// What programs report of themselves.
    Report,
}

macro_rules! same_words {
    ($($ours:ident => $theirs:ident: $($word:ident)*;)*) => {$(
        impl From<$theirs> for $ours {
            fn from(word: $theirs) -> Self {
                match word { $($theirs::$word => Self::$word,)* }
            }
        }
    )*};
}

same_words! {
    SampleGroup => Group: Cpu Cores Memory Io Network Gpu Processes Report;
    Group => SampleGroup: Cpu Cores Memory Io Network Gpu Processes Report;
    SampleUnit => Unit: Seconds Bytes Ratio Watts Celsius None;
    SampleOf => Whose: Job Node Program;
    SampleSource => Source: BuiltIn Prometheus;
}

/// Who had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SampleSource {
    /// What the portal keeps itself.
    BuiltIn,
    /// The site's Prometheus.
    Prometheus,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SampleUnit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Parts of one.
    Ratio,
    /// Watts.
    Watts,
    /// Degrees Celsius.
    Celsius,
    /// Pieces, or a number without unit.
    None,
}

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SampleOf {
    /// The job's alone.
    Job,
    /// The whole node's: other jobs are in it.
    Node,
    /// The program's own word.
    Program,
}

/// What a session or run used. All lines have a value for each of the same spans of time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Samples)]
pub struct SamplesView {
    /// When the first span begins.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Length of a span, seconds.
    step_s: i64,
    /// How many spans there are.
    spans: usize,
    /// Whether it was made of minutes, because spans are long, the samples themselves are not kept any more, or they are too many for so long a time.
    of_minutes: bool,
    /// Parts of what was kept that could not be read; those are left out.
    unreadable: u32,
    /// Who had it. What Prometheus has is scraped: what was counted before its first scrape and after its last is in no total.
    source: SampleSource,
    /// Seconds between two samples there; no span is shorter.
    every_s: i64,
    /// The lines, by metric, node and device.
    lines: Vec<LineView>,
    /// What is in no line, because there is too much of it or nobody tells it, a sentence each; for all of the session or run, whatever was asked.
    left_out: Vec<String>,
}

/// A line: one metric of one node, or of a device there.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SamplesLine)]
pub(super) struct LineView {
    /// What is measured.
    #[schema(example = "cpu_seconds")]
    metric: &'static str,
    /// With what it is looked at.
    group: SampleGroup,
    /// Where.
    node: String,
    /// Of which core, mount, interface, GPU, process or name; absent where it is of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    device: Option<String>,
    /// What is counted.
    unit: SampleUnit,
    /// Whether `values` are the rise per second of something that only rises. Seconds of processor time per second are cores.
    per_second: bool,
    /// Whose figure it is.
    of: SampleOf,
    /// A value for each span: the mean, or the rise per second; null where nothing is known.
    values: Vec<Option<f64>>,
    /// The greatest of each span, where spans have several samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    most: Option<Vec<Option<f64>>>,
    /// For what only rises: by how much it rose in all this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total: Option<f64>,
    /// For what rises and falls: the greatest in all this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    highest: Option<f64>,
}

impl From<Line> for LineView {
    fn from(line: Line) -> Self {
        let metric = line.metric;
        Self {
            metric: metric.name(),
            group: metric.group().into(),
            node: line.node,
            device: line.device,
            unit: metric.unit().into(),
            per_second: metric.kind() == Kind::Counter,
            of: metric.whose().into(),
            values: line.values,
            most: line.most,
            total: line.total,
            highest: line.highest,
        }
    }
}

impl SamplesView {
    /// A chart, and what it does not have.
    pub(crate) fn new(chart: Chart, left_out: &[LeftOut]) -> Self {
        Self {
            from: Timestamp::from_millisecond(chart.from_ms).unwrap_or_default(),
            step_s: chart.step_ms / 1000,
            spans: chart.spans,
            of_minutes: chart.resolution == Resolution::Minute,
            unreadable: chart.broken,
            source: chart.source.into(),
            every_s: chart.every_ms / 1000,
            lines: chart.lines.into_iter().map(LineView::from).collect(),
            left_out: left_out.iter().map(|what| words().get(what.key())).collect(),
        }
    }
}
