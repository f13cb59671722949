//! Lines of charts out of what has the past: one grid of times for all, what only rises as its rise per second, and what became of it in all.

use std::collections::BTreeMap;
use std::time::Instant;

use eirene_core::{Session, SessionId};
use eirene_monitoring::{Group, Kind, Metric};
use eirene_monitoring_store::{Answer, Point, Resolution};
use jiff::Timestamp;

use super::history::{History, HistoryError, Part, Source, Spans};
use super::name;
use super::prometheus::Trouble;

/// Milliseconds between two samples: agents sample in the middle of each of these.
pub(super) const EVERY_MS: i64 = 5000;
const MINUTE_MS: i64 = 60_000;
/// Most points of a line.
pub const MOST_POINTS: u32 = 2000;
/// Points of a line when nobody says how many.
const POINTS: u32 = 300;
/// How often a chart is made coarser because it was too much, and by how much each time.
const COARSER: usize = 3;
const COARSER_BY: u32 = 4;
/// Decimal digits that are told: more would be noise, and every page would fetch it.
const DIGITS: i32 = 6;

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Of which groups; none is all but cores and processes, which are many.
    pub group: Option<Group>,
    /// From when on; the session's beginning when nothing is said.
    pub from: Option<Timestamp>,
    /// Until when; its end, or now.
    pub to: Option<Timestamp>,
    /// Points of a line, 1 to [`MOST_POINTS`].
    pub points: Option<u32>,
}

/// What a session used.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// When the first span begins, milliseconds since 1970.
    pub from_ms: i64,
    /// Length of a span, milliseconds. Spans begin at multiples of it.
    pub step_ms: i64,
    /// How many spans there are.
    pub spans: usize,
    /// What it was made of.
    pub resolution: Resolution,
    /// Who had it.
    pub source: Source,
    /// Milliseconds between two samples there.
    pub every_ms: i64,
    /// Parts of files that could not be read.
    pub broken: u32,
    /// The lines, by metric, node and device.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What is measured.
    pub metric: Metric,
    /// Where.
    pub node: String,
    /// Of what, where it is of something.
    pub device: Option<String>,
    /// A value for each span: means, or for what only rises its rise per second. None where nothing is known.
    pub values: Vec<Option<f64>>,
    /// The greatest of each span, where a span has more than one sample and the metric rises and falls.
    pub most: Option<Vec<Option<f64>>>,
    /// The least of each span, likewise.
    pub least: Option<Vec<Option<f64>>>,
    /// For what only rises: by how much it rose in the whole time.
    pub total: Option<f64>,
    /// For what rises and falls: the greatest of the whole time.
    pub highest: Option<f64>,
}

/// A time, milliseconds since 1970: from, and to which it is not part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// The time that is wanted. Nothing of it lies in the future, or before the session was asked for: what began anew has samples from before. There may
/// be none of it.
pub(super) fn span(session: &Session, wanted: &Wanted, now: Timestamp) -> Span {
    let begin = session.started_at.unwrap_or(session.created_at);
    let end = session.ended_at.unwrap_or(now);
    let ms = |at: Timestamp| at.as_millisecond();
    let to = ms(wanted.to.unwrap_or(end)).min(ms(now).saturating_add(1));
    Span { from: ms(wanted.from.unwrap_or(begin)).max(ms(session.created_at)).min(to), to }
}

/// Length of a span of the chart: a multiple of `every`, the time between two samples, and of a minute where it is longer.
fn step(span: Span, points: u32, every: i64) -> i64 {
    let up = |length: i64, unit: i64| (length.saturating_add(unit - 1) / unit).max(1).saturating_mul(unit);
    let wished = up(span.to.saturating_sub(span.from), i64::from(points.max(1))) / i64::from(points.max(1));
    let step = up(wished, every);
    if step > MINUTE_MS { up(step, MINUTE_MS) } else { step }
}

/// What is wanted of a group, or of all but cores and processes.
pub(super) fn parts(group: Option<Group>) -> Vec<Part> {
    let all = Group::ALL.iter().copied().map(Part::Group).filter(|part| !part.is_single());
    group.map_or_else(|| all.collect(), |group| vec![Part::Group(group)])
}

/// Asks who has the past. What only rises needs the span before the first as well. What would be too much is asked for in longer spans, while
/// there is time.
pub(super) async fn draw(
    history: &dyn History,
    session: SessionId,
    span: Span,
    parts: &[Part],
    points: Option<u32>,
) -> Result<Chart, HistoryError> {
    let (every, since) = (history.every_ms(), Instant::now());
    let mut points = points.unwrap_or(POINTS);
    let mut tries = 0;
    let mut step = step(span, points, every);
    loop {
        let from = span.from.div_euclid(step).saturating_sub(1).saturating_mul(step);
        let to = span.to.saturating_add(step - 1).div_euclid(step).saturating_mul(step).max(from.saturating_add(step));
        let spans = Spans { from_ms: from, to_ms: to, step_ms: step };
        let answers = match history.of_session(session, parts, spans, since).await {
            Err(HistoryError::Prometheus(Trouble::TooMuch)) if tries < COARSER => {
                tries += 1;
                points = (points / COARSER_BY).max(1);
                step = self::step(span, points, every).max(step);
                continue;
            }
            answers => answers?,
        };
        // Samples that are not kept any more come as minutes: then all lines are of minutes.
        let coarsest = answers.iter().map(|answer| answer.step_ms).max().unwrap_or(step);
        if coarsest > step {
            step = coarsest;
            continue;
        }
        let chart = chart(spans, &answers);
        return Ok(Chart { source: history.source(), every_ms: every, ..chart });
    }
}

fn chart(asked: Spans, answers: &[Answer]) -> Chart {
    // The first span was only for what comes after.
    let (from_ms, step) = (asked.from_ms + asked.step_ms, asked.step_ms);
    let spans = usize::try_from(asked.count().saturating_sub(1)).unwrap_or_default();
    let grid = Grid { from: from_ms, step, spans };
    let mut lines = BTreeMap::new();
    for line in answers.iter().flat_map(|answer| &answer.lines) {
        let Some(name) = name::read(&line.name) else { continue };
        let line = grid.line(name, &line.points);
        if line.values.iter().any(Option::is_some) {
            lines.insert((line.metric, line.node.clone(), line.device.clone()), line);
        }
    }
    let minutes = answers.iter().any(|answer| answer.resolution == Resolution::Minute);
    Chart {
        from_ms,
        step_ms: step,
        spans,
        resolution: if minutes { Resolution::Minute } else { Resolution::Raw },
        source: Source::BuiltIn,
        every_ms: EVERY_MS,
        broken: answers.iter().map(|answer| answer.broken).sum(),
        lines: lines.into_values().collect(),
    }
}

struct Grid {
    from: i64,
    step: i64,
    spans: usize,
}

impl Grid {
    fn line(&self, name: name::Name, points: &[Point]) -> Line {
        let name::Name { metric, node, device } = name;
        let none = || vec![None; self.spans];
        let (mut values, mut most, mut least, mut total, mut highest) = (none(), none(), none(), None, None);
        match metric.kind() {
            Kind::Counter => total = Some(self.rates(points, &mut values)),
            Kind::Gauge => {
                for point in points {
                    self.put(&mut values, point.at_ms, point.mean);
                    self.put(&mut most, point.at_ms, point.max);
                    self.put(&mut least, point.at_ms, point.min);
                    if point.at_ms >= self.from {
                        highest = Some(highest.map_or(point.max, |high: f64| high.max(point.max)));
                    }
                }
            }
        }
        let several = metric.kind() == Kind::Gauge && points.iter().any(|point| point.count > 1);
        let (most, least) = (several.then_some(most), several.then_some(least));
        Line { metric, node, device, values, most, least, total: total.map(short), highest }
    }

    /// The rise per second between each two spans that have samples; gives the sum of all rises. A counter that has fallen began anew: how much it
    /// rose meanwhile nobody knows.
    fn rates(&self, points: &[Point], values: &mut [Option<f64>]) -> f64 {
        let mut total = 0.0;
        let mut before: Option<&Point> = None;
        for point in points {
            let rise = before.map(|before| (point.max - before.max, point.at_ms - before.at_ms));
            if let Some((rise, passed)) = rise.filter(|(rise, passed)| *rise >= 0.0 && *passed > 0) {
                total += rise;
                self.put(values, point.at_ms, rise * 1000.0 / passed as f64);
            } else if before.is_none() && point.at_ms >= self.from {
                // What was counted in the first span itself, and not before.
                total += point.max - point.min;
            }
            before = Some(point);
        }
        total
    }

    fn put(&self, values: &mut [Option<f64>], at_ms: i64, value: f64) {
        let place = usize::try_from((at_ms - self.from).div_euclid(self.step)).ok();
        if let Some(slot) = place.and_then(|place| values.get_mut(place)) {
            *slot = Some(short(value));
        }
    }
}

/// The value with [`DIGITS`] digits; whole numbers stay whole.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() || value.fract() == 0.0 {
        return value;
    }
    let scale = 10_f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}
