//! From lines of samples to sums: seconds of processors, the most memory, and what GPUs did.

use std::collections::HashSet;

use eirene_core::Resources;
use eirene_core::job_usage::{GpuTime, HeldUsed};
use eirene_monitoring::Metric;

use crate::services::samples::{Chart, Line};

/// What is looked at.
pub(super) const METRICS: [Metric; 5] =
    [Metric::Cpu, Metric::Memory, Metric::MemoryPeak, Metric::GpuUtil, Metric::GpuProcesses];

/// A GPU that computes less than this, in percent, is idle.
pub(crate) const IDLE_PERCENT: f64 = 5.0;
/// Stretches of idleness count from this length on, minutes: whoever reads her results is not wasting.
pub(crate) const IDLE_MINUTES: u64 = 30;
/// What is computed on a GPU where nothing is; NVML tells whole percents.
const NOTHING: f64 = 0.005;
const MIB: f64 = 1024.0 * 1024.0;

/// Core-seconds, and MiB. Nodes of which nobody told are left out, also of what was held.
pub(super) fn shares(resources: &Resources, wall_s: u64, chart: &Chart) -> (Option<HeldUsed>, Option<HeldUsed>) {
    let of = |metric: Metric| chart.lines.iter().filter(move |line| line.metric == metric && line.device.is_none());
    let told = |metric| of(metric).map(|line| line.node.as_str()).collect::<HashSet<_>>().len() as u64;
    let cpu_nodes = told(Metric::Cpu);
    let cpu = (cpu_nodes > 0).then(|| HeldUsed {
        held: u64::from(resources.cpus).saturating_mul(cpu_nodes).saturating_mul(wall_s),
        used: whole(of(Metric::Cpu).filter_map(|line| line.total).sum()),
    });
    // What a control group remembers is more than what was seen every five seconds.
    let memory = if told(Metric::MemoryPeak) >= told(Metric::Memory) { Metric::MemoryPeak } else { Metric::Memory };
    let memory_nodes = told(memory);
    let memory = (memory_nodes > 0).then(|| HeldUsed {
        held: resources.memory_mib.saturating_mul(memory_nodes),
        used: whole(of(memory).filter_map(|line| line.highest).sum::<f64>() / MIB),
    });
    (cpu, memory)
}

/// GPU-seconds.
pub(super) fn gpus(resources: &Resources, wall_s: u64, chart: &Chart) -> GpuTime {
    let held_s = u64::from(resources.gpus).saturating_mul(u64::from(resources.nodes)).saturating_mul(wall_s);
    let step_s = chart.step_ms as f64 / 1000.0;
    let mut time = GpuTime { held_s, ..GpuTime::default() };
    let (mut known, mut busy, mut idle, mut empty) = (0.0, 0.0, 0.0, 0.0);
    for line in chart.lines.iter().filter(|line| line.metric == Metric::GpuUtil) {
        let processes = processes(chart, line);
        for (place, value) in line.values.iter().enumerate() {
            let Some(value) = value else { continue };
            known += step_s;
            busy += value * step_s;
            // Where nobody tells who is on it, it is not taken for empty.
            let is_empty = processes.get(place).copied().flatten().is_some_and(|count| count <= 0.0);
            if *value < NOTHING && is_empty {
                empty += step_s;
            }
        }
        idle += idle_spans(line, step_s) as f64 * step_s;
    }
    // A span at either end may reach beyond what was held.
    let within = |seconds: f64| whole(seconds).min(held_s);
    (time.known_s, time.busy_s) = (within(known), within(busy));
    (time.idle_s, time.empty_s) = (within(idle), within(empty));
    time
}

/// How many processes of the session were on the same GPU, span by span.
fn processes<'a>(chart: &'a Chart, gpu: &Line) -> &'a [Option<f64>] {
    let is_it =
        |line: &&Line| line.metric == Metric::GpuProcesses && line.node == gpu.node && line.device == gpu.device;
    chart.lines.iter().find(is_it).map(|line| line.values.as_slice()).unwrap_or_default()
}

/// How many spans lie in long stretches without computing. A sample that was lost does not end a stretch, and does not count.
fn idle_spans(line: &Line, step_s: f64) -> usize {
    let long_enough = (IDLE_MINUTES * 60) as f64;
    let is_idle = |value: &f64| *value < IDLE_PERCENT / 100.0;
    let known: Vec<f64> = line.values.iter().flatten().copied().collect();
    let stretches = known.chunk_by(|one, other| is_idle(one) == is_idle(other));
    let idle = stretches.filter(|stretch| stretch.first().is_some_and(is_idle));
    idle.map(<[_]>::len).filter(|length| *length as f64 * step_s >= long_enough).sum()
}

fn whole(value: f64) -> u64 {
    // Casts of what is beyond are the nearest there is.
    value.round().max(0.0) as u64
}
