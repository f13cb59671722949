//! From lines of samples to sums: seconds of processors, the most memory, and what GPUs did.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use eirene_core::job_usage::{GpuTime, HeldUsed};
use eirene_core::{Resources, Session};
use eirene_monitoring::Metric;

use crate::samples::{Chart, Line, Source};

/// What is looked at.
pub(super) const METRICS: [Metric; 6] =
    [Metric::Cpu, Metric::Memory, Metric::MemoryPeak, Metric::MemoryReclaimable, Metric::GpuUtil, Metric::GpuProcesses];

/// A GPU that computes less than this, in percent, is idle.
pub const IDLE_PERCENT: f64 = 5.0;
/// Stretches of idleness count from this length on, minutes: whoever reads her results is not wasting.
pub const IDLE_MINUTES: u64 = 30;
/// What is computed on a GPU where nothing is; NVML tells whole percents.
const NOTHING: f64 = 0.005;
const MIB: f64 = 1024.0 * 1024.0;

/// Takes off what other starts did elsewhere: spans at either end reach beyond this one, and into the one before or after it. Which nodes a start had
/// that is over is not known any more: then it had those of which most is told.
pub(super) fn of_start(chart: &mut Chart, session: &Session) {
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &chart.lines {
        let most = told.entry(line.node.as_str()).or_default();
        *most = line.values.iter().flatten().count().max(*most);
    }
    let mut told: Vec<(&str, usize)> = told.into_iter().collect();
    let is_its = |node: &str| session.nodes.iter().any(|own| own.as_str() == node);
    if told.iter().any(|(node, _)| is_its(node)) {
        told.retain(|(node, _)| is_its(node));
    }
    told.sort_by_key(|(_, spans)| Reverse(*spans));
    let nodes = told.iter().take(session.resources.nodes as usize);
    let nodes: HashSet<String> = nodes.map(|(node, _)| (*node).to_owned()).collect();
    chart.lines.retain(|line| nodes.contains(&line.node));
}

/// Core-seconds, and MiB. Nodes of which nobody told are left out, also of what was held; so is the time before the first sample and after the last
/// where samples are far apart, because what was used then is in no sum either.
pub(super) fn shares(resources: &Resources, wall_s: u64, chart: &Chart) -> (Option<HeldUsed>, Option<HeldUsed>) {
    let of = |metric: Metric| chart.lines.iter().filter(move |line| line.metric == metric && line.device.is_none());
    let told = |metric| of(metric).map(|line| line.node.as_str()).collect::<HashSet<_>>().len() as u64;
    let cpu_nodes = told(Metric::Cpu);
    let cpu = (cpu_nodes > 0).then(|| HeldUsed {
        held: u64::from(resources.cpus).saturating_mul(of(Metric::Cpu).map(|line| told_s(line, chart, wall_s)).sum()),
        used: whole(of(Metric::Cpu).filter_map(|line| line.total).sum()),
    });
    let most: Vec<f64> = memory_nodes(chart).into_iter().filter_map(|node| needed(chart, node)).collect();
    let memory = (!most.is_empty()).then(|| HeldUsed {
        held: resources.memory_mib.saturating_mul(most.len() as u64),
        used: whole(most.iter().sum::<f64>() / MIB),
    });
    (cpu, memory)
}

/// The nodes that told of their memory.
fn memory_nodes(chart: &Chart) -> BTreeSet<&str> {
    let of_memory = |line: &&Line| matches!(line.metric, Metric::Memory | Metric::MemoryPeak);
    chart.lines.iter().filter(of_memory).map(|line| line.node.as_str()).collect()
}

/// The most that a job needed on a node, bytes. What the kernel gives back before it kills is not needed, and a job that reads a lot holds as much
/// of that as it may: it is taken off where it is told. What a control group remembers as the most has it in it, and is else the better figure,
/// because it is more than what was seen every five seconds.
fn needed(chart: &Chart, node: &str) -> Option<f64> {
    let of =
        |metric| chart.lines.iter().find(|line| line.metric == metric && line.node == node && line.device.is_none());
    let highest = |metric| of(metric).and_then(|line| line.highest);
    let without_cache = || {
        let (held, cache) = (of(Metric::Memory)?, of(Metric::MemoryReclaimable)?);
        // The most of one and the least of the other: within a span nobody knows which of them were together, and less would be too little.
        let held = held.most.as_ref().unwrap_or(&held.values);
        let cache = cache.least.as_ref().unwrap_or(&cache.values);
        let both = held.iter().zip(cache).filter_map(|(held, cache)| Some((*held)? - (*cache)?));
        both.reduce(f64::max).map(|most| most.max(0.0))
    };
    without_cache().or_else(|| highest(Metric::MemoryPeak)).or_else(|| highest(Metric::Memory))
}

/// For how long there were samples of a line, of all its time.
fn told_s(line: &Line, chart: &Chart, wall_s: u64) -> u64 {
    if chart.source == Source::BuiltIn {
        return wall_s;
    }
    let known = |value: &Option<f64>| value.is_some();
    let (first, last) = (line.values.iter().position(known), line.values.iter().rposition(known));
    let spans = first.zip(last).map_or(0, |(first, last)| last - first + 1);
    whole(spans as f64 * chart.step_ms as f64 / 1000.0).min(wall_s)
}

/// GPU-seconds.
pub(super) fn gpus(resources: &Resources, wall_s: u64, chart: &Chart) -> GpuTime {
    let held_s = u64::from(resources.gpus).saturating_mul(u64::from(resources.nodes)).saturating_mul(wall_s);
    let step_s = chart.step_ms as f64 / 1000.0;
    let mut time = GpuTime { held_s, ..GpuTime::default() };
    let (mut known, mut busy, mut idle, mut empty) = (0.0, 0.0, 0.0, 0.0);
    for (node, gpu) in gpus_told(chart) {
        let of = |metric| values(chart, metric, node, gpu);
        let (util, processes) = (of(Metric::GpuUtil), of(Metric::GpuProcesses));
        let mut is_idle = Vec::new();
        for place in 0..util.len().max(processes.len()) {
            let at = |values: &[Option<f64>]| values.get(place).copied().flatten();
            let (util, processes) = (at(util), at(processes));
            // Where nobody tells who is on it, it is not taken for empty.
            let is_empty = processes.is_some_and(|count| count <= 0.0);
            // Of a part of a GPU (MIG) often nobody tells how much it computes. Without a process that is nothing; with one it is not known, and
            // not idleness either.
            let util = util.or(is_empty.then_some(0.0));
            is_idle.push(util.map(|util| util < IDLE_PERCENT / 100.0).or(processes.map(|_| false)));
            let Some(util) = util else { continue };
            known += step_s;
            busy += util * step_s;
            if util < NOTHING && is_empty {
                empty += step_s;
            }
        }
        idle += idle_spans(&is_idle, step_s) as f64 * step_s;
    }
    // A span at either end may reach beyond what was held.
    let within = |seconds: f64| whole(seconds).min(held_s);
    (time.known_s, time.busy_s) = (within(known), within(busy));
    (time.idle_s, time.empty_s) = (within(idle), within(empty));
    time
}

/// The GPUs, and parts of GPUs, of which it is told how much they compute or who is on them: the node, and which.
fn gpus_told(chart: &Chart) -> BTreeSet<(&str, Option<&str>)> {
    let of_gpus = |line: &&Line| matches!(line.metric, Metric::GpuUtil | Metric::GpuProcesses);
    chart.lines.iter().filter(of_gpus).map(|line| (line.node.as_str(), line.device.as_deref())).collect()
}

/// What is told of a GPU, span by span; nothing where nobody does.
fn values<'a>(chart: &'a Chart, metric: Metric, node: &str, gpu: Option<&str>) -> &'a [Option<f64>] {
    let is_it = |line: &&Line| line.metric == metric && line.node == node && line.device.as_deref() == gpu;
    chart.lines.iter().find(is_it).map(|line| line.values.as_slice()).unwrap_or_default()
}

/// How many spans lie in long stretches without computing. A sample that was lost does not end a stretch, and does not count.
fn idle_spans(is_idle: &[Option<bool>], step_s: f64) -> usize {
    let long_enough = (IDLE_MINUTES * 60) as f64;
    let known: Vec<bool> = is_idle.iter().flatten().copied().collect();
    let idle = known.chunk_by(|one, other| one == other).filter(|stretch| stretch.first() == Some(&true));
    idle.map(<[_]>::len).filter(|length| *length as f64 * step_s >= long_enough).sum()
}

fn whole(value: f64) -> u64 {
    // Casts of what is beyond are the nearest there is.
    value.round().max(0.0) as u64
}
