//! What sessions and runs hold and use, as the API shows it.

use eirene_core::job_usage::{GpuTime, HeldUsed, JobUsage, UsageBy, UsageSums, Waste};
use eirene_core::{JobKind, Resources};
use eirene_services::efficiency::{Advice, Example, Report, advice};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// By what sums are told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EfficiencyBy)]
pub(crate) enum ByWord {
    /// By whose sessions and runs they are.
    #[default]
    Person,
    /// By where they ran.
    Partition,
}

impl From<ByWord> for UsageBy {
    fn from(word: ByWord) -> Self {
        match word {
            ByWord::Person => Self::Person,
            ByWord::Partition => Self::Partition,
        }
    }
}

/// What was held, and what was used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = HeldUsed)]
pub(crate) struct HeldUsedView {
    /// Held.
    held: u64,
    /// Used.
    used: u64,
}

impl From<HeldUsed> for HeldUsedView {
    fn from(HeldUsed { held, used }: HeldUsed) -> Self {
        Self { held, used }
    }
}

/// GPU-seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = GpuTime)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to each name")]
pub(crate) struct GpuTimeView {
    /// Held: GPUs times seconds.
    held_s: u64,
    /// Of these, how much it is known of what the GPU did.
    known_s: u64,
    /// Utilisation summed up: half an hour at 50 % is a quarter of an hour.
    busy_s: u64,
    /// In stretches of 30 minutes or more below 5 %.
    idle_s: u64,
    /// At 0 %, while the session had no process on that GPU. Where nobody tells who is on it, it is not counted.
    empty_s: u64,
}

impl From<GpuTime> for GpuTimeView {
    fn from(time: GpuTime) -> Self {
        let GpuTime { held_s, known_s, busy_s, idle_s, empty_s } = time;
        Self { held_s, known_s, busy_s, idle_s, empty_s }
    }
}

/// What one session or run held and used.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Efficiency)]
pub(crate) struct JobUsageView {
    /// Until when this is counted.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
    /// Whether it is over, and this is all.
    complete: bool,
    /// How long it has held its resources, seconds.
    wall_s: u64,
    /// Core-seconds; absent where nobody told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cpu_s: Option<HeldUsedView>,
    /// Memory of all nodes together and the most that was held of it, MiB; absent where nobody told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    memory_mib: Option<HeldUsedView>,
    /// GPU-seconds.
    gpu: GpuTimeView,
    /// What could be done better the next time.
    advice: Vec<String>,
}

fn texts(advice: &[Advice]) -> Vec<String> {
    advice.iter().map(|advice| advice.text.to_string()).collect()
}

impl JobUsageView {
    /// With what could be said about it.
    pub(crate) fn new(usage: &JobUsage, resources: &Resources) -> Self {
        Self {
            until: usage.until,
            complete: usage.is_final,
            wall_s: usage.wall_s,
            cpu_s: usage.cpu.map(Into::into),
            memory_mib: usage.memory_mib.map(Into::into),
            gpu: usage.gpu.into(),
            advice: texts(&advice(usage, resources)),
        }
    }
}

/// Sums over sessions and runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = EfficiencySums)]
pub(crate) struct SumsView {
    /// A person's or a partition's name; empty in the sum of all.
    name: String,
    /// How many sessions and runs.
    jobs: u64,
    /// Of how many neither processors nor memory are known.
    unknown_jobs: u64,
    /// Core-seconds of those that are known.
    cpu_s: HeldUsedView,
    /// MiB times seconds of those that are known.
    memory_mib_s: HeldUsedView,
    /// GPU-seconds.
    gpu: GpuTimeView,
}

impl From<UsageSums> for SumsView {
    fn from(sums: UsageSums) -> Self {
        Self {
            name: sums.name,
            jobs: sums.jobs,
            unknown_jobs: sums.unknown_jobs,
            cpu_s: sums.cpu.into(),
            memory_mib_s: sums.memory_mib_s.into(),
            gpu: sums.gpu.into(),
        }
    }
}

/// What an example wasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EfficiencyWaste)]
enum WasteWord {
    /// GPU time.
    Gpu,
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
}

/// Whether it is a session or a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = EfficiencyKind)]
enum KindWord {
    /// A session.
    Session,
    /// A run.
    Run,
}

/// A session or run that is worth a look.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = EfficiencyExample)]
pub(crate) struct ExampleView {
    /// What it wasted.
    waste: WasteWord,
    /// What it is.
    kind: KindWord,
    /// Its id.
    id: String,
    /// What its owner calls it.
    name: String,
    /// Whose it is.
    owner: String,
    /// Where it ran.
    partition: String,
    /// What it held and used.
    usage: JobUsageView,
}

impl From<Example> for ExampleView {
    fn from(example: Example) -> Self {
        let (session, usage) = (&example.job.session, &example.job.usage);
        Self {
            waste: match example.waste {
                Waste::Gpu => WasteWord::Gpu,
                Waste::Memory => WasteWord::Memory,
                Waste::Cpu => WasteWord::Cpu,
            },
            kind: match session.kind() {
                JobKind::Session => KindWord::Session,
                JobKind::Run => KindWord::Run,
            },
            id: session.id.to_string(),
            name: session.name.to_string(),
            owner: session.owner_name.to_string(),
            partition: usage.partition.to_string(),
            usage: JobUsageView { advice: texts(&example.advice), ..JobUsageView::new(usage, &session.resources) },
        }
    }
}

/// What sessions and runs held and used. One that was there for a part of the time counts with all of its own.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = EfficiencyReport)]
pub(crate) struct ReportView {
    /// From when on.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// All together.
    total: SumsView,
    /// By person or partition, at most 500, who has idle GPUs first.
    groups: Vec<SumsView>,
    /// Persons or partitions that are not listed because there are too many; they are in `total` all the same.
    unlisted: u64,
    /// The worst of each sort, at most five.
    examples: Vec<ExampleView>,
}

impl From<Report> for ReportView {
    fn from(report: Report) -> Self {
        Self {
            from: report.from,
            to: report.to,
            total: report.total.into(),
            groups: report.groups.into_iter().map(SumsView::from).collect(),
            unlisted: report.unlisted as u64,
            examples: report.examples.into_iter().map(ExampleView::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_says_how_many_it_does_not_list() {
        let (from, to, total) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH, UsageSums::default());
        let report = Report { from, to, groups: vec![total.clone(); 2], total, unlisted: 3, examples: Vec::new() };
        let shown = serde_json::to_value(ReportView::from(report)).unwrap();
        assert_eq!((&shown["unlisted"], shown["groups"].as_array().unwrap().len()), (&json!(3), 2));
    }
}
