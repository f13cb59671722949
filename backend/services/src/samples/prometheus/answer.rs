//! What Prometheus answers: JSON from elsewhere, read strictly. What is no series of ours is passed over, a value that cannot be is left out, and
//! whatever says that it is not all there is to say is no answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use eirene_monitoring::{Metric, NodeName, Sample, Series};
use eirene_monitoring_store::{Line, Point};
use serde::Deserialize;

use super::Trouble;
use super::expression::{FOLD, tag};
use crate::outward::short;
use crate::samples::history::Spans;
use crate::samples::{Figure, name};

/// The envelope of every answer.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
    #[serde(borrow, default, rename = "errorType")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    warnings: Vec<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    result: &'a serde_json::value::RawValue,
}

#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow)]
    metric: HashMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    values: Vec<(f64, &'a str)>,
}

/// One series of a session.
pub(super) struct Told {
    series: Series,
    node: NodeName,
    /// In order.
    pub(super) points: Vec<Point>,
}

impl Told {
    /// With the name that the store gives it.
    pub(super) fn named(self) -> Line {
        Line { name: name::write(&self.series, &self.node), points: self.points }
    }
}

fn not_understood(why: &str) -> Trouble {
    Trouble::NotUnderstood(why.to_owned())
}

/// What a refusal says, where it is Prometheus that refuses.
pub(super) fn refusal(bytes: &[u8]) -> Option<Trouble> {
    let said: Said<'_> = serde_json::from_slice(bytes).ok()?;
    let text = short(said.error.as_deref().unwrap_or_default());
    match said.kind.as_deref()? {
        "timeout" | "canceled" => Some(Trouble::Failed(format!("it gave up: {text}"))),
        "execution" if text.contains("too many samples") => Some(Trouble::TooMuch),
        "bad_data" if text.contains("maximum resolution") => Some(Trouble::TooMuch),
        kind => Some(Trouble::Failed(format!("{}: {text}", short(kind)))),
    }
}

/// Whether it is a good answer, whatever to.
pub(super) fn is_good(bytes: &[u8]) -> Result<(), Trouble> {
    opened(bytes).map(|_| ())
}

fn opened(bytes: &[u8]) -> Result<Data<'_>, Trouble> {
    let said: Said<'_> = serde_json::from_slice(bytes).map_err(|_| not_understood("it is no JSON of Prometheus"))?;
    if said.status != "success" {
        return Err(refusal(bytes).unwrap_or_else(|| not_understood("it has no status")));
    }
    if let Some(warning) = said.warnings.first() {
        return Err(Trouble::Partial(short(warning)));
    }
    said.data.ok_or_else(|| not_understood("it has no data"))
}

fn matrix(bytes: &[u8]) -> Result<Vec<Found<'_>>, Trouble> {
    let data = opened(bytes)?;
    if data.kind != "matrix" {
        return Err(not_understood("it is of another kind"));
    }
    serde_json::from_str(data.result.get()).map_err(|_| not_understood("its series are not as they should be"))
}

/// Where the span begins that a value is of, which stands at the span's last millisecond.
fn begin(at_s: f64, spans: Spans) -> Result<i64, Trouble> {
    let at_ms = (at_s * 1000.0).round() as i64;
    let from = at_ms.saturating_add(1).saturating_sub(spans.step_ms);
    let is_ours = from >= spans.from_ms && from < spans.to_ms && (from - spans.from_ms) % spans.step_ms == 0;
    if is_ours { Ok(from) } else { Err(not_understood("a value is of a time that was not asked for")) }
}

/// A value in Prometheus' words, `NaN` and `+Inf` among them, which say nothing here.
fn value(text: &str) -> Result<Option<f64>, Trouble> {
    let value: f64 = text.parse().map_err(|_| not_understood("a value is no number"))?;
    Ok(value.is_finite().then_some(value))
}

/// The folds of a span.
#[derive(Default)]
struct Folds {
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    count: Option<f64>,
}

impl Folds {
    /// All of them, or nothing.
    fn point(&self, at_ms: i64, series: &Series) -> Option<Point> {
        let (min, max, mean) = (self.min?, self.max?, self.mean?);
        let is_possible = |value: f64| Sample { series: series.clone(), value }.is_possible();
        let count = self.count.filter(|count| *count >= 1.0)?;
        ([min, max, mean].into_iter().all(is_possible) && min <= max).then(|| Point {
            at_ms,
            min,
            mean: mean.clamp(min, max),
            max,
            count: count as u32,
        })
    }
}

/// The lines of one metric.
pub(super) fn lines(bytes: &[u8], metric: Metric, spans: Spans) -> Result<Vec<Told>, Trouble> {
    let mut all: HashMap<(NodeName, Series), BTreeMap<i64, Folds>> = HashMap::new();
    for found in matrix(bytes)? {
        let Some((node, series)) = whose(&found, metric) else { continue };
        let fold = found.metric.get(FOLD).map(Cow::as_ref);
        let line = all.entry((node, series)).or_default();
        for (at_s, text) in &found.values {
            let (at_ms, value) = (begin(*at_s, spans)?, value(text)?);
            let folds = line.entry(at_ms).or_default();
            match fold {
                Some("min") => folds.min = value,
                Some("max") => folds.max = value,
                Some("avg") => folds.mean = value,
                Some("count") => folds.count = value,
                _ => return Err(not_understood("a value is of nothing that was asked for")),
            }
        }
    }
    let told = all.into_iter().filter_map(|((node, series), spans)| {
        let points: Vec<Point> = spans.iter().filter_map(|(at_ms, folds)| folds.point(*at_ms, &series)).collect();
        (!points.is_empty()).then_some(Told { series, node, points })
    });
    Ok(told.collect())
}

/// Whose series it is, where it is one of ours: labels that the site has taken away leave none.
fn whose(found: &Found<'_>, metric: Metric) -> Option<(NodeName, Series)> {
    let node = NodeName::try_from(found.metric.get("node")?.as_ref()).ok()?;
    let device = metric.devices().first().and_then(|kind| found.metric.get(kind.label()));
    let text = match device.filter(|device| !device.is_empty()) {
        Some(device) => format!("{}/{device}", metric.name()),
        None => metric.name().to_owned(),
    };
    Some((node, text.parse().ok()?))
}

/// The figures of the cluster. Where two portals have told of the same time and not the same, nobody knows which is ours.
pub(super) fn figures(bytes: &[u8], spans: Spans) -> Result<Vec<(Figure, Vec<Point>)>, Trouble> {
    let mut all: BTreeMap<&str, BTreeMap<i64, Option<f64>>> = BTreeMap::new();
    let found = matrix(bytes)?;
    for found in &found {
        let Some(tag) = found.metric.get(FOLD) else { continue };
        let line = all.entry(tag.as_ref()).or_default();
        for (at_s, text) in &found.values {
            let (at_ms, Some(value)) = (begin(*at_s, spans)?, value(text)?) else { continue };
            let same = |known: f64| (known - value).abs() <= f64::EPSILON * known.abs().max(1.0);
            let known = line.entry(at_ms).or_insert(Some(value));
            *known = known.filter(|known| same(*known));
        }
    }
    let point = |(at_ms, value): (&i64, &Option<f64>)| {
        let value = value.filter(|value| *value >= 0.0)?;
        Some(Point { at_ms: *at_ms, min: value, mean: value, max: value, count: 1 })
    };
    let of = |figure: Figure| {
        let line = all.get(tag(figure).as_str())?;
        Some((figure, line.iter().filter_map(point).collect()))
    };
    Ok(Figure::ALL.into_iter().filter_map(of).collect())
}
