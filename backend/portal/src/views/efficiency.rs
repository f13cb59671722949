//! What sessions and runs held and used: a row for each person or partition, the worst as examples, and how the sums are made.

use eirene_core::JobKind;
use eirene_core::job_usage::{HeldUsed, UsageBy, UsageSums};
use eirene_services::efficiency::{Example, IDLE_MINUTES, IDLE_PERCENT, Report};
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::layout::Layout;
use crate::pages::Page;

/// Days that can be chosen.
pub(crate) const TIMES: [i64; 3] = [7, 30, 90];

/// A way to another report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ChoiceView {
    href: String,
    label: String,
    current: bool,
}

/// A row. What nobody knows is empty.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RowView {
    name: String,
    jobs: String,
    gpu_hours: String,
    computing: String,
    computing_percent: Option<u8>,
    idle: String,
    empty: String,
    cpu_hours: String,
    cpu_used: String,
    cpu_percent: Option<u8>,
    memory_hours: String,
    memory_used: String,
    memory_percent: Option<u8>,
}

/// A session or run that is worth a look.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ExampleView {
    href: String,
    name: String,
    line: String,
    began: Time,
    advice: Vec<String>,
}

/// The report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EfficiencyView {
    times: Vec<ChoiceView>,
    ways: Vec<ChoiceView>,
    total: Option<RowView>,
    rows: Vec<RowView>,
    /// That not all have a row; empty where they have.
    unlisted: String,
    examples: Vec<ExampleView>,
    /// How the sums are made, a sentence each.
    sums: Vec<String>,
}

impl EfficiencyView {
    /// Shows a report of so many days.
    pub(crate) fn new(words: &Words, report: &Report, by: UsageBy, days: i64) -> Self {
        let by_word = |by| if by == UsageBy::Partition { "partition" } else { "person" };
        let href = |days: i64, by| format!("/admin/efficiency?days={days}&by={}", by_word(by));
        let time = |of: i64| ChoiceView {
            href: href(of, by),
            label: words.fill("efficiency.days", &[("n", &of.to_string())]),
            current: of == days,
        };
        let way = |of, key: &str| ChoiceView { href: href(days, of), label: words.get(key), current: of == by };
        let known = report.total.jobs > 0;
        let all = UsageSums { name: words.get("efficiency.total"), ..report.total.clone() };
        Self {
            times: TIMES.into_iter().map(time).collect(),
            ways: vec![way(UsageBy::Person, "efficiency.person"), way(UsageBy::Partition, "efficiency.partition")],
            total: known.then(|| row(words, &all)),
            rows: report.groups.iter().map(|sums| row(words, sums)).collect(),
            unlisted: if report.unlisted > 0 { unlisted(words, report) } else { String::new() },
            examples: examples(words, &report.examples),
            sums: explained(words, &report.total),
        }
    }
}

fn unlisted(words: &Words, report: &Report) -> String {
    let number = |count: usize| format::number(count as u64);
    let (listed, others) = (number(report.groups.len()), number(report.unlisted));
    words.fill("efficiency.unlisted", &[("n", &listed), ("others", &others)])
}

fn row(words: &Words, sums: &UsageSums) -> RowView {
    let gpu = sums.gpu;
    let of_known = |seconds: u64| share(HeldUsed { held: gpu.known_s, used: seconds });
    let (computing, cpu, memory) = (of_known(gpu.busy_s), share(sums.cpu), share(sums.memory_mib_s));
    let of =
        |part: Option<u8>, key: &str| part.map(|part| words.fill(key, &[("n", &part.to_string())])).unwrap_or_default();
    let hours = |seconds: u64| format::hours(words, seconds);
    let held = |seconds: u64| if seconds == 0 { String::new() } else { hours(seconds) };
    let known = |text: String| if gpu.known_s == 0 { String::new() } else { text };
    RowView {
        name: sums.name.clone(),
        jobs: format::number(sums.jobs),
        gpu_hours: held(gpu.held_s),
        computing: of(computing, "efficiency.computing"),
        computing_percent: computing,
        idle: known(hours(gpu.idle_s)),
        empty: known(words.fill("efficiency.empty", &[("n", &hours(gpu.empty_s))])),
        cpu_hours: held(sums.cpu.held),
        cpu_used: of(cpu, "efficiency.cpu_used"),
        cpu_percent: cpu,
        memory_hours: held(sums.memory_mib_s.held / 1024),
        memory_used: of(memory, "efficiency.memory_used"),
        memory_percent: memory,
    }
}

/// What was used, in percent of what was held; none where nothing was.
fn share(HeldUsed { held, used }: HeldUsed) -> Option<u8> {
    let percent = u128::from(used).saturating_mul(100).checked_div(u128::from(held))?;
    u8::try_from(percent.min(100)).ok()
}

/// One that wasted several things stands there once.
fn examples(words: &Words, all: &[Example]) -> Vec<ExampleView> {
    let mut views: Vec<ExampleView> = Vec::new();
    for Example { job, advice, .. } in all {
        let session = &job.session;
        let place = match session.kind() {
            JobKind::Session => "sessions",
            JobKind::Run => "runs",
        };
        let href = format!("/{place}/{}", session.id);
        if views.iter().any(|view| view.href == href) {
            continue;
        }
        let (owner, partition) = (session.owner_name.as_str(), job.usage.partition.as_str());
        views.push(ExampleView {
            href,
            name: session.name.to_string(),
            line: words.fill("efficiency.example_of", &[("owner", owner), ("partition", partition)]),
            began: Time::new(job.usage.started_at),
            advice: advice.iter().map(|advice| advice.text.to_string()).collect(),
        });
    }
    views
}

fn explained(words: &Words, total: &UsageSums) -> Vec<String> {
    let (minutes, percent) = (IDLE_MINUTES.to_string(), IDLE_PERCENT.to_string());
    let mut sums = vec![
        words.get("efficiency.sum_time"),
        words.get("efficiency.sum_starts"),
        words.get("efficiency.sum_gpu"),
        words.get("efficiency.sum_computing"),
        words.fill("efficiency.sum_idle", &[("minutes", &minutes), ("percent", &percent)]),
        words.get("efficiency.sum_empty"),
        words.get("efficiency.sum_cpu"),
        words.get("efficiency.sum_memory"),
    ];
    if total.unknown_jobs > 0 {
        sums.push(words.fill("efficiency.sum_unknown", &[("n", &format::number(total.unknown_jobs))]));
    }
    sums
}

/// The page of what was held and used.
#[derive(Debug, Serialize)]
pub(crate) struct EfficiencyPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The report.
    pub(crate) efficiency: EfficiencyView,
}

impl Page for EfficiencyPage {
    const TEMPLATE: &'static str = "pages/admin/efficiency.html";
}

#[cfg(test)]
mod tests {
    use eirene_core::job_usage::GpuTime;

    use super::*;

    #[test]
    fn a_row_says_a_few_minutes_and_not_nothing() {
        let gpu = GpuTime { held_s: 7200, known_s: 7200, busy_s: 0, idle_s: 170, empty_s: 0 };
        let cpu = HeldUsed { held: 60, used: 1 };
        let shown = row(eirene_words::words(), &UsageSums { jobs: 1, cpu, gpu, ..UsageSums::default() });
        let little = "<\u{a0}0.1";
        let read = [shown.gpu_hours, shown.idle, shown.empty, shown.cpu_hours, shown.memory_hours];
        assert_eq!(read, ["2", little, "0 without a program", little, ""]);
    }

    #[test]
    fn a_share_is_whole_percents_and_nothing_where_nothing_was_held() {
        for ((held, used), percent) in
            [((0, 0), None), ((3, 1), Some(33)), ((10, 20), Some(100)), ((u64::MAX, u64::MAX / 2), Some(49))]
        {
            assert_eq!(share(HeldUsed { held, used }), percent, "{used} of {held}");
        }
    }
}
