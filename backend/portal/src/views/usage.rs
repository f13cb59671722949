//! What a session or a run uses, as its page shows it: a picture for each sort of figure, its numbers in words, and the same as a table.
//!
//! A few nodes or GPUs are lines; many are a strip each, darker where more is used. What nobody tells has no picture.

use eirene_core::session::Session;
use eirene_monitoring::Metric;
use eirene_services::efficiency::Advice;
use eirene_services::samples::{Chart, Line};
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::format::{self, Time};
use super::{chart, charts};
use crate::pages::Page;

/// Points of a line.
pub(crate) const POINTS: u32 = 200;
/// So many are drawn as lines; more are strips.
const MOST_LINES: usize = 4;
/// Strips of one picture, and rows of its table.
const MOST_STRIPS: usize = 64;
/// Pictures of what programs report.
const MOST_REPORTS: usize = 6;
/// Parts that a strip has.
const STRIP_PARTS: usize = 60;
/// How dark a strip can be: the classes `heat-0` to `heat-4`.
const SHADES: f64 = 4.0;

/// How a figure is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Cores' worth of time.
    Cores,
    /// Bytes.
    Bytes,
    /// Bytes by the second.
    BytesPerSecond,
    /// Parts of one.
    Share,
    /// A number a program has chosen.
    Number,
}

impl Kind {
    fn shown(self, words: &Words, value: f64) -> String {
        match self {
            Self::Cores => format!("{value:.1}"),
            Self::Bytes => format::bytes(words, whole(value)),
            Self::BytesPerSecond => words.fill("unit.per_second", &[("n", &format::bytes(words, whole(value)))]),
            Self::Share => words.fill("usage.percent", &[("n", &whole((value * 100.0).round()).to_string())]),
            Self::Number => digits(value),
        }
    }
}

/// A line of a picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LineView {
    /// What it is of, and its last value.
    label: String,
    /// Which of the ways to draw a line it has, from 1.
    style: usize,
    /// Points of a polyline, one for each stretch without a gap.
    pieces: Vec<String>,
}

/// A strip of a picture: one of many nodes or GPUs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StripView {
    /// Where it begins, from the top.
    top: usize,
    /// Stretches of one shade.
    parts: Vec<StripPart>,
}

/// A stretch of a strip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StripPart {
    at: usize,
    width: usize,
    shade: u8,
}

/// A row of a picture's table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RowView {
    name: String,
    last: String,
    mean: String,
    highest: String,
}

/// A picture.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PictureView {
    title: String,
    /// What it is now, or was in the mean, in a few words.
    line: String,
    /// The picture in words.
    text: String,
    lines: Vec<LineView>,
    strips: Vec<StripView>,
    /// Height of all strips together.
    strips_height: usize,
    /// How far from the top the limit is; empty where there is none.
    limit: String,
    /// What reaches the top of the picture.
    top: String,
    rows: Vec<RowView>,
    /// What has to be known about it; empty mostly.
    remark: String,
}

/// All of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct UsageView {
    pictures: Vec<PictureView>,
    from: Option<Time>,
    until: Option<Time>,
    /// What could be done better, a sentence each.
    advice: Vec<String>,
    /// Why there are none; empty where there are.
    why_none: String,
    /// Of which nodes nothing is taken, as their clocks are wrong, a sentence each.
    clocks: Vec<String>,
    /// What it takes to look at all this; empty where nobody says it.
    watching: String,
    /// Where figures are read that are not the portal's own, and what that means; empty mostly.
    source: String,
    /// Where the charts are that one can look closer at; empty where there is nothing to look at, or one is there.
    charts_href: String,
}

/// The part of a page that grows.
#[derive(Debug, Serialize)]
pub(crate) struct UsageFragment {
    /// What is used.
    pub(crate) usage: UsageView,
}

impl Page for UsageFragment {
    const TEMPLATE: &'static str = "fragments/usage.html";
}

/// One thing that is drawn.
pub(super) struct Series {
    name: String,
    values: Vec<Option<f64>>,
    highest: f64,
}

impl Series {
    pub(super) fn new(name: String, values: Vec<Option<f64>>, highest: Option<f64>) -> Self {
        let drawn = values.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { name, values, highest: highest.unwrap_or(drawn).max(drawn) }
    }

    fn of(name: String, line: &Line) -> Self {
        Self::new(name, line.values.clone(), line.highest)
    }

    /// Several as one: what is known of each span, added up.
    fn sum<'a>(name: String, lines: impl Iterator<Item = &'a Line>, spans: usize) -> Option<Self> {
        let mut values = vec![None; spans];
        for line in lines {
            for (sum, value) in values.iter_mut().zip(&line.values) {
                if let Some(value) = value {
                    *sum = Some(sum.unwrap_or(0.0) + value);
                }
            }
        }
        values.iter().any(Option::is_some).then(|| Self::new(name, values, None))
    }

    fn last(&self) -> Option<f64> {
        self.values.iter().rev().find_map(|value| *value)
    }

    fn mean(&self) -> Option<f64> {
        let known: Vec<f64> = self.values.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// What a picture is made of.
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) kind: Kind,
    pub(super) series: Vec<Series>,
    /// The most that can be, of each.
    pub(super) limit: Option<f64>,
    pub(super) remark: String,
}

impl UsageView {
    /// Shows what is known; none where the record is away.
    pub(crate) fn new(words: &Words, session: &Session, chart: Option<&Chart>, advice: &[Advice]) -> Self {
        let over = session.state.is_final();
        let drafts = chart.map(|chart| drafts(words, session, chart)).unwrap_or_default();
        let pictures: Vec<_> = drafts.into_iter().map(|draft| draft.picture(words, over)).collect();
        let why_none = match chart {
            _ if !pictures.is_empty() => String::new(),
            None => words.get("usage.away"),
            Some(_) if over => words.get("usage.nothing"),
            Some(_) => words.get("usage.soon"),
        };
        let time = |ms: i64| Timestamp::from_millisecond(ms).ok().map(Time::new);
        let spans = |chart: &Chart| i64::try_from(chart.spans).unwrap_or_default();
        let ends = chart.filter(|_| !pictures.is_empty());
        let watching = ends.and_then(|chart| watching(words, chart)).unwrap_or_default();
        Self {
            from: ends.and_then(|chart| time(chart.from_ms)),
            until: ends.and_then(|chart| time(chart.from_ms + chart.step_ms * spans(chart))),
            charts_href: if why_none.is_empty() {
                format!("/{}/charts", charts::below(session))
            } else {
                String::new()
            },
            pictures,
            advice: advice.iter().map(|advice| advice.text.to_string()).collect(),
            why_none,
            clocks: Vec::new(),
            watching,
            source: String::new(),
        }
    }

    /// The same where it is the site's Prometheus that has the record, with a sample every so many seconds.
    pub(crate) fn of_prometheus(mut self, words: &Words, every_s: u32) -> Self {
        self.source = words.fill("usage.prometheus", &[("n", &every_s.to_string())]);
        if self.why_none == words.get("usage.away") {
            self.why_none = words.get("usage.prometheus_away");
        }
        self
    }

    /// The same, with what is said of clocks that are wrong: where there is nothing, that is why.
    pub(crate) fn with_clocks(mut self, clocks: Vec<String>) -> Self {
        if !clocks.is_empty() && self.pictures.is_empty() {
            self.why_none = String::new();
        }
        self.clocks = clocks;
        self
    }

    /// The same on the page of charts itself, which says the rest beside it.
    pub(crate) fn without_charts(mut self) -> Self {
        self.charts_href = String::new();
        self.clocks = Vec::new();
        self
    }
}

fn drafts(words: &Words, session: &Session, chart: &Chart) -> Vec<Draft> {
    let of = |metric: Metric| chart.lines.iter().filter(move |line| line.metric == metric);
    let by_node =
        |metric| of(metric).filter(|line| line.device.is_none()).map(|line| Series::of(line.node.clone(), line));
    let several = chart.lines.iter().any(|line| chart.lines.first().is_some_and(|first| first.node != line.node));
    let by_gpu = |metric| {
        of(metric).map(move |line| {
            let gpu = words.fill("usage.gpu_name", &[("gpu", line.device.as_deref().unwrap_or_default())]);
            let name = if several { format!("{}, {gpu}", line.node) } else { gpu };
            Series::of(name, line)
        })
    };
    let sum = |key: &str, metric, wanted: fn(&&Line) -> bool| {
        Series::sum(words.get(key), of(metric).filter(wanted), chart.spans)
    };
    let greatest = |metric| of(metric).filter_map(|line| line.highest).reduce(f64::max);
    let draft = |key: &str, kind, series: Vec<Series>, limit| Draft {
        id: key.to_owned(),
        title: words.get(key),
        kind,
        series,
        limit,
        remark: String::new(),
    };
    let whole = |line: &&Line| line.device.is_none();
    let beyond = |line: &&Line| line.device.as_deref() != Some("lo");
    let io = [sum("usage.read", Metric::IoRead, whole), sum("usage.written", Metric::IoWritten, whole)];
    let network = [sum("usage.received", Metric::NetReceived, beyond), sum("usage.sent", Metric::NetSent, beyond)];
    let cpus = f64::from(session.resources.cpus);
    let mut all = vec![
        draft("usage.cpu", Kind::Cores, by_node(Metric::Cpu).collect(), Some(cpus)),
        draft("usage.memory", Kind::Bytes, by_node(Metric::Memory).collect(), greatest(Metric::MemoryLimit)),
        draft("usage.gpu", Kind::Share, by_gpu(Metric::GpuUtil).collect(), Some(1.0)),
        draft("usage.gpu_memory", Kind::Bytes, by_gpu(Metric::GpuMemory).collect(), greatest(Metric::GpuMemoryLimit)),
        draft("usage.storage", Kind::BytesPerSecond, io.into_iter().flatten().collect(), None),
        Draft {
            remark: words.get("usage.of_node"),
            ..draft("usage.network", Kind::BytesPerSecond, network.into_iter().flatten().collect(), None)
        },
    ];
    all.extend(reports(words, of(Metric::Report)));
    all.retain(|draft| !draft.series.is_empty());
    all
}

/// What sampling takes of a core, on average: where it takes most.
fn watching(words: &Words, chart: &Chart) -> Option<String> {
    let of_node = |line: &Line| Some((line.node.clone(), Series::of(line.node.clone(), line).mean()?));
    let nodes: Vec<(String, f64)> =
        chart.lines.iter().filter(|line| line.metric == Metric::ProbeCpu).filter_map(of_node).collect();
    let (node, cores) = nodes.iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let key = if nodes.len() > 1 { "usage.watching_most" } else { "usage.watching" };
    Some(words.fill(key, &[("share", &small_share(words, *cores)), ("node", node)]))
}

/// A share of which there is little: per cent with two digits behind the point.
fn small_share(words: &Words, share: f64) -> String {
    let hundredths = (share * 1e4).round();
    let (key, hundredths) = if hundredths < 1.0 { ("usage.percent_less", 1.0) } else { ("usage.percent", hundredths) };
    words.fill(key, &[("n", &digits(hundredths / 100.0))])
}

/// Each reported name has a picture: nobody knows which of them could share one.
fn reports<'a>(words: &Words, lines: impl Iterator<Item = &'a Line>) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    for line in lines {
        let Some(name) = &line.device else { continue };
        let series = Series::of(line.node.clone(), line);
        let id = format!("report-{name}");
        if let Some(known) = drafts.iter_mut().find(|draft| draft.id == id) {
            known.series.push(series);
        } else if drafts.len() < MOST_REPORTS {
            let title = words.fill("usage.report", &[("name", name)]);
            drafts.push(Draft {
                id,
                title,
                kind: Kind::Number,
                series: vec![series],
                limit: None,
                remark: String::new(),
            });
        }
    }
    drafts
}

impl Draft {
    /// As it is drawn; of what is over means are told, of what goes on the last.
    pub(super) fn picture(self, words: &Words, over: bool) -> PictureView {
        let shown = |value: Option<f64>| value.map(|value| self.kind.shown(words, value)).unwrap_or_default();
        let highest = self.series.iter().map(|series| series.highest).fold(f64::NEG_INFINITY, f64::max);
        let least = self.series.iter().flat_map(|series| series.values.iter().flatten()).copied().fold(0.0, f64::min);
        let top = self.limit.unwrap_or(0.0).max(highest);
        let top = if top > least { top } else { least + 1.0 };
        let row = |series: &Series| RowView {
            name: series.name.clone(),
            last: shown(series.last()),
            mean: shown(series.mean()),
            highest: shown(Some(series.highest)),
        };
        let rows: Vec<RowView> = self.series.iter().take(MOST_STRIPS).map(row).collect();
        let others = self.series.len().saturating_sub(MOST_STRIPS) as u64;
        let others = (others > 0).then(|| words.count("usage.others", others));
        let remarks = Some(self.remark.clone()).filter(|remark| !remark.is_empty());
        let strips = self.series.len() > MOST_LINES;
        let lines: Vec<&Series> = if strips { Vec::new() } else { self.series.iter().collect() };
        let drawn = lines.into_iter().enumerate().map(|(place, series)| {
            let value = shown(if over { series.mean() } else { series.last() });
            LineView {
                label: words.fill("usage.label", &[("what", &series.name), ("value", &value)]),
                style: place + 1,
                pieces: chart::pieces(&series.values, least, top),
            }
        });
        let strip = |(place, series): (usize, &Series)| StripView { top: place, parts: parts(&series.values, top) };
        let strips: Vec<StripView> =
            if strips { self.series.iter().take(MOST_STRIPS).enumerate().map(strip).collect() } else { Vec::new() };
        let told: Vec<String> = rows
            .iter()
            .take(MOST_LINES)
            .map(|row| {
                let values =
                    [("what", row.name.as_str()), ("last", &row.last), ("mean", &row.mean), ("highest", &row.highest)];
                words.fill("usage.told", &values)
            })
            .collect();
        PictureView {
            line: self.line(words, over),
            text: words.fill("usage.picture", &[("title", &self.title), ("lines", &told.join(" "))]),
            lines: drawn.collect(),
            strips_height: strips.len().max(1),
            strips,
            limit: self.limit.map(|limit| chart::height_of(limit, least, top)).unwrap_or_default(),
            top: self.kind.shown(words, top),
            rows,
            title: self.title,
            remark: remarks.into_iter().chain(others).collect::<Vec<_>>().join(" "),
        }
    }

    /// Of all together where that is a sum that means something; else of the first.
    fn line(&self, words: &Words, over: bool) -> String {
        let value = |series: &Series| if over { series.mean() } else { series.last() };
        let known: Vec<f64> = self.series.iter().filter_map(value).collect();
        let sum: f64 = known.iter().sum();
        let count = self.series.len() as f64;
        let (value, of) = match self.kind {
            _ if known.is_empty() => return String::new(),
            Kind::Cores | Kind::Bytes => (sum, self.limit.map(|limit| limit * count)),
            Kind::Share => (sum / known.len() as f64, None),
            Kind::BytesPerSecond | Kind::Number => return String::new(),
        };
        let key = match (over, of) {
            (false, Some(_)) => "usage.now_of",
            (false, None) => "usage.now",
            (true, Some(_)) => "usage.mean_of",
            (true, None) => "usage.mean",
        };
        let of = of.map(|of| match self.kind {
            Kind::Cores => format!("{of}"),
            _ => self.kind.shown(words, of),
        });
        words.fill(key, &[("value", &self.kind.shown(words, value)), ("of", &of.unwrap_or_default())])
    }
}

/// Stretches of a strip in [`STRIP_PARTS`] parts: the mean of each as a shade; none where nothing is known.
fn parts(values: &[Option<f64>], top: f64) -> Vec<StripPart> {
    let mut all: Vec<StripPart> = Vec::new();
    let count = STRIP_PARTS.min(values.len().max(1));
    for at in 0..count {
        let (from, to) = (at * values.len() / count, (at + 1) * values.len() / count);
        let known: Vec<f64> = values.get(from..to).unwrap_or_default().iter().flatten().copied().collect();
        if known.is_empty() {
            continue;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let shade = (1_u8..=4).rev().find(|shade| mean / top * SHADES >= f64::from(*shade) - 0.5).unwrap_or(0);
        let (begin, end) = (at * STRIP_PARTS / count, (at + 1) * STRIP_PARTS / count);
        match all.last_mut() {
            Some(last) if last.shade == shade && last.at + last.width == begin => last.width = end - last.at,
            _ => all.push(StripPart { at: begin, width: end - begin, shade }),
        }
    }
    all
}

fn whole(value: f64) -> u64 {
    // Casts of what is beyond are the nearest there is.
    value.max(0.0) as u64
}

/// A number with four digits at most, as short as it goes.
fn digits(value: f64) -> String {
    let size = value.abs();
    if (1000.0..1e9).contains(&size) {
        return format!("{}{}", if value < 0.0 { "−" } else { "" }, format::number(whole(size.round())));
    }
    if size == 0.0 || (0.001..1000.0).contains(&size) {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{value:.2e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_programs_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (-1.5, "-1.5"),
            (12345.6, "12\u{202f}346"),
            (0.00001, "1.00e-5"),
            (2e12, "2.00e12"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn what_watching_takes_is_told_where_it_takes_most() {
        let words = eirene_words::words();
        let line = |node: &str, values: &[Option<f64>]| Line {
            metric: Metric::ProbeCpu,
            node: node.into(),
            device: None,
            values: values.to_vec(),
            most: None,
            least: None,
            total: None,
            highest: None,
        };
        let told = |lines: Vec<Line>| {
            let chart = Chart {
                from_ms: 0,
                step_ms: 5000,
                spans: 3,
                resolution: eirene_monitoring_store::Resolution::Raw,
                source: eirene_services::samples::Source::BuiltIn,
                every_ms: 5000,
                broken: 0,
                lines,
            };
            watching(words, &chart)
        };
        let one = line("c1", &[Some(0.0012), None, Some(0.0014)]);
        let other = line("c2", &[Some(0.0001), Some(0.0), None]);
        assert_eq!(told(vec![one.clone()]).unwrap(), "Watching takes 0.13\u{a0}% of one core on c1.");
        let text = told(vec![other.clone(), one]).unwrap();
        assert_eq!(text, "Watching takes 0.13\u{a0}% of one core on c1, and no more on the other nodes.");
        assert_eq!(told(vec![other]).unwrap(), "Watching takes 0.01\u{a0}% of one core on c2.");
        let hardly = line("c1", &[Some(0.000_04), Some(0.0)]);
        assert_eq!(told(vec![hardly]).unwrap(), "Watching takes less than 0.01\u{a0}% of one core on c1.");
        assert_eq!(told(vec![line("c1", &[None])]), None, "an older agent, or one that has just begun");
        let cpu = Line { metric: Metric::Cpu, ..line("c1", &[Some(1.0)]) };
        assert_eq!(told(vec![cpu]), None);
    }

    #[test]
    fn strips_are_stretches_of_one_shade_and_gaps_stay_gaps() {
        let values = [vec![Some(0.0); 30], vec![None; 30], vec![Some(1.0); 60]].concat();
        let expected = [StripPart { at: 0, width: 15, shade: 0 }, StripPart { at: 30, width: 30, shade: 4 }];
        assert_eq!(parts(&values, 1.0), expected);
        assert_eq!(parts(&[Some(0.5)], 1.0), [StripPart { at: 0, width: 60, shade: 2 }]);
        assert!(parts(&[], 1.0).is_empty());
    }
}
