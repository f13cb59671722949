//! What Zabbix says of a node, as a section of its page.

use eirene_services::zabbix::{NodeInZabbix, SeenInZabbix, ShownItem};
use eirene_words::Words;
use eirene_zabbix::{Point, Problem, Severity};
use jiff::Timestamp;
use serde::Serialize;

use super::chart::pieces;
use super::format::{Time, bytes};
use super::layout::Tone;
use super::session::Chip;

/// Stretches of time that a picture is drawn in.
const SPANS: usize = 60;
/// The time that it shows, seconds.
const LENGTH_S: i64 = 3600;

/// The section.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ZabbixPart {
    /// Whether Zabbix answers.
    pub(crate) reachable: bool,
    /// When it was asked; none while it does not answer.
    pub(crate) at: Option<Time>,
    /// That there is no host of the node's own; empty where there is.
    pub(crate) no_host: String,
    /// Problems that go on.
    pub(crate) problems: Vec<ProblemRow>,
    /// Items of the node's own host.
    pub(crate) items: Vec<ItemPart>,
}

/// A problem.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProblemRow {
    chip: Chip,
    name: String,
    since: Option<Time>,
    /// That somebody knows, or that nobody is told; empty for neither.
    remark: String,
}

/// An item and its last hour.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ItemPart {
    name: String,
    /// The last value, in words.
    now: String,
    /// Polylines; none where there are no values.
    lines: Vec<String>,
    /// What the picture shows, for who does not see it.
    text: String,
}

impl ZabbixPart {
    /// Shows it; none where no Zabbix is configured.
    pub(crate) fn new(words: &Words, node: &NodeInZabbix, name: &str) -> Option<Self> {
        match node {
            NodeInZabbix::NotConfigured => None,
            NodeInZabbix::Away => Some(Self::default()),
            NodeInZabbix::Seen(seen) => Some(Self::of(words, seen, name)),
        }
    }

    fn of(words: &Words, seen: &SeenInZabbix, name: &str) -> Self {
        let no_host = || words.fill("node_zabbix.no_host", &[("node", name)]);
        Self {
            reachable: true,
            at: Some(Time::new(seen.at)),
            no_host: if seen.host.is_some() { String::new() } else { no_host() },
            problems: seen.problems.iter().map(|problem| row(words, problem)).collect(),
            items: seen.items.iter().map(|item| part(words, item, seen.at)).collect(),
        }
    }
}

fn row(words: &Words, problem: &Problem) -> ProblemRow {
    let remark = match (problem.suppressed, problem.acknowledged) {
        (true, _) => words.get("node_zabbix.suppressed"),
        (false, true) => words.get("node_zabbix.acknowledged"),
        (false, false) => String::new(),
    };
    ProblemRow {
        chip: chip(words, problem.severity),
        name: problem.name.clone(),
        since: Timestamp::from_second(problem.clock).ok().map(Time::new),
        remark,
    }
}

fn chip(words: &Words, severity: Severity) -> Chip {
    let (key, tone) = match severity {
        Severity::NotClassified => ("node_zabbix.not_classified", Tone::Doubt),
        Severity::Information => ("node_zabbix.information", Tone::Busy),
        Severity::Warning => ("node_zabbix.warning", Tone::Wait),
        Severity::Average => ("node_zabbix.average", Tone::Wait),
        Severity::High => ("node_zabbix.high", Tone::Bad),
        Severity::Disaster => ("node_zabbix.disaster", Tone::Bad),
    };
    Chip { label: words.get(key), tone }
}

fn part(words: &Words, shown: &ShownItem, at: Timestamp) -> ItemPart {
    let ShownItem { item, points } = shown;
    let said = |value: f64| in_words(words, value, &item.units);
    let values = points.iter().map(|point| point.value);
    let (least, most) =
        values.clone().fold((0.0_f64, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let last = points.last();
    let now = last.map_or_else(|| words.get("node_zabbix.no_value"), |point| said(point.value));
    let text = match last {
        Some(_) => {
            let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
            words.fill("node_zabbix.between", &[("low", &said(low)), ("high", &said(high))])
        }
        None => String::new(),
    };
    let top = if most > least { most } else { least + 1.0 };
    let lines = if last.is_some() { pieces(&spans(points, at.as_second()), least, top) } else { Vec::new() };
    ItemPart { name: item.name.clone(), now, lines, text }
}

/// A mean for each stretch of the last hour; none where nothing was measured.
fn spans(points: &[Point], until: i64) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); SPANS];
    let from = until.saturating_sub(LENGTH_S);
    let width = LENGTH_S / i64::try_from(SPANS).unwrap_or(1);
    for point in points {
        let place = point.clock.saturating_sub(from).max(0) / width;
        let place = usize::try_from(place).unwrap_or(usize::MAX).min(SPANS - 1);
        if let Some((sum, count)) = sums.get_mut(place) {
            *sum += point.value;
            *count += 1;
        }
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f64::from(count))).collect()
}

/// A value with its unit, as Zabbix writes both; `!` before a unit asks for no prefix.
fn in_words(words: &Words, value: f64, units: &str) -> String {
    let units = units.trim_start_matches('!');
    if units == "B" && value >= 0.0 {
        return bytes(words, value as u64);
    }
    let number = format!("{value:.2}");
    let number = number.trim_end_matches('0').trim_end_matches('.');
    if units.is_empty() { number.to_owned() } else { format!("{number}\u{a0}{units}") }
}

#[cfg(test)]
mod tests {
    use eirene_words::words;

    use super::*;

    #[test]
    fn values_have_their_units_and_bytes_are_read_well() {
        let said = |value, units: &str| in_words(words(), value, units).replace('\u{a0}', " ");
        assert_eq!(said(0.5, ""), "0.5");
        assert_eq!(said(10.0, "%"), "10 %");
        assert_eq!(said(100.0, ""), "100");
        assert_eq!(said(3.0 * 1024.0 * 1024.0, "B"), "3 MiB");
        assert_eq!(said(1.25, "!rpm"), "1.25 rpm");
        assert_eq!(said(-4.0, "B"), "-4 B");
    }

    #[test]
    fn an_hour_is_drawn_with_its_gaps_whatever_the_clock_of_the_points_says() {
        let point = |clock, value| Point { clock, value };
        let points = [point(0, 1.0), point(6400, 2.0), point(6430, 4.0), point(10_000, 6.0), point(i64::MAX, 8.0)];
        let drawn = spans(&points, 10_000);
        assert_eq!(drawn.len(), SPANS);
        assert_eq!((drawn[0], drawn[1], drawn[SPANS - 1]), (Some(7.0 / 3.0), None, Some(7.0)));
        assert_eq!(spans(&[], 0), vec![None; SPANS]);
    }
}
