//! What the portal depends on: a line each with its state in words, since when, how long its last answer took, and what to do.

use std::time::Duration;

use eirene_services::health::problem::Trouble;
use eirene_services::health::readiness::{Answered, Dependency, Line, Report};
use eirene_words::Words;
use serde::Serialize;

use super::format::Time;
use super::layout::{Layout, Tone};
use super::session::{Chip, sentence};
use crate::pages::Page;

/// One thing the portal depends on.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LineView {
    /// What it is.
    name: String,
    /// Its state.
    chip: Chip,
    /// What is wrong with it; empty when nothing is.
    text: String,
    /// What it or the system said of that; empty for nothing.
    detail: String,
    /// What to do; empty for nothing.
    cure: String,
    /// Since when it is so.
    since: Time,
    /// When it last gave an answer; none where there is none.
    answered: Option<Time>,
    /// Why there is none; empty where there is one.
    no_answer: String,
    /// How long that took; empty where nobody has measured.
    took: String,
}

/// All of them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HealthView {
    /// When they were looked at.
    at: Time,
    /// That something is wrong; empty when nothing is.
    wrong: String,
    /// A line each.
    lines: Vec<LineView>,
    /// How many agents are connected.
    agents: String,
}

/// The page.
#[derive(Debug, Serialize)]
pub(crate) struct HealthPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What it shows.
    pub(crate) health: HealthView,
}

impl Page for HealthPage {
    const TEMPLATE: &'static str = "pages/admin/health.html";
}

/// What it shows, by itself.
#[derive(Debug, Serialize)]
pub(crate) struct HealthFragment {
    /// What it shows.
    pub(crate) health: HealthView,
}

impl Page for HealthFragment {
    const TEMPLATE: &'static str = "fragments/health.html";
}

impl HealthView {
    /// Shows `report`.
    pub(crate) fn new(words: &Words, report: &Report) -> Self {
        let wrong = report.lines.iter().filter(|line| line.trouble.is_some()).count() as u64;
        Self {
            at: Time::new(report.at),
            wrong: if wrong == 0 { String::new() } else { words.count("health.wrong", wrong) },
            lines: report.lines.iter().map(|line| LineView::new(words, line)).collect(),
            agents: words.count("health.agents", report.agents as u64),
        }
    }
}

impl LineView {
    fn new(words: &Words, line: &Line) -> Self {
        let (text, cure) = line.trouble.map(Trouble::says).unzip();
        Self {
            name: name(words, &line.what),
            chip: chip(words, line.trouble),
            text: text.map(|text| sentence(text.as_str())).unwrap_or_default(),
            detail: sentence(&line.detail),
            cure: cure.map(|cure| sentence(cure.as_str())).unwrap_or_default(),
            since: Time::new(line.since),
            answered: line.answered.at().map(Time::new),
            no_answer: match line.answered {
                Answered::At(_) => String::new(),
                Answered::NotSeen => words.get("health.no_answer"),
                Answered::NotAsked => words.get("health.not_asked"),
            },
            took: line.took.map(|took| took_words(words, took)).unwrap_or_default(),
        }
    }
}

fn name(words: &Words, what: &Dependency) -> String {
    match what {
        Dependency::Database => words.get("health.database"),
        Dependency::Launcher => words.get("health.launcher"),
        Dependency::Scheduler => words.get("health.scheduler"),
        Dependency::Root(name) => words.fill("health.root", &[("name", name.as_str())]),
        Dependency::Homes => words.get("health.homes"),
        Dependency::Samples => words.get("health.samples"),
        Dependency::Prometheus => words.get("health.prometheus"),
        Dependency::Zabbix => words.get("health.zabbix"),
        Dependency::Traces => words.get("health.traces"),
        Dependency::Webhook => words.get("health.webhook"),
        Dependency::Reconciler(name) => words.fill("health.reconciler", &[("name", *name)]),
    }
}

/// The state in a word. Red is that people cannot do what they came for.
fn chip(words: &Words, trouble: Option<Trouble>) -> Chip {
    let (key, tone) = match trouble {
        None => ("health.works", Tone::Good),
        Some(Trouble::DatabaseSlow | Trouble::LauncherSlow) => ("health.slow", Tone::Wait),
        Some(Trouble::DatabaseAway | Trouble::LauncherAway | Trouble::SchedulerAway | Trouble::StorageAway) => {
            ("health.away", Tone::Bad)
        }
        Some(Trouble::PrometheusAway | Trouble::ZabbixAway | Trouble::WebhookAway) => ("health.away", Tone::Wait),
        Some(
            Trouble::SamplesNotKept
            | Trouble::ZabbixTakesNothing
            | Trouble::TracesAway
            | Trouble::WebhookRefuses
            | Trouble::WebhookRefusedOne
            | Trouble::ReconcilerFails,
        ) => ("health.fails", Tone::Wait),
    };
    Chip { label: words.get(key), tone }
}

fn took_words(words: &Words, took: Duration) -> String {
    let ms = took.as_millis();
    if ms == 0 {
        return words.get("health.took_no_time");
    }
    if ms < 1000 {
        return words.fill("health.took_ms", &[("n", &ms.to_string())]);
    }
    words.fill("health.took_s", &[("n", &format!("{}.{}", ms / 1000, ms % 1000 / 100))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_it_took_reads_well() {
        let took = |ms| took_words(eirene_words::words(), Duration::from_millis(ms)).replace('\u{a0}', " ");
        for (ms, text) in [(0, "in less than 1 ms"), (1, "in 1 ms"), (999, "in 999 ms"), (12_345, "in 12.3 s")] {
            assert_eq!(took(ms), text);
        }
    }
}
