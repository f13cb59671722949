//! What a person could do so that less lies idle, in one sentence each. Short sessions and small amounts are nobody's business.

use eirene_core::job_usage::{HeldUsed, JobUsage, Waste};
use eirene_core::{Resources, Sentence};
use eirene_words::say_with;

/// What lasted less is not judged, seconds.
const SHORTEST_S: u64 = 600;
/// Idle GPU time from which there is advice, as a part of what was held, and in seconds.
const GPU_PART: f64 = 0.2;
const GPU_LEAST_S: u64 = 1800;
/// Memory: less than this part was needed, and so much was not.
const MEMORY_PART: f64 = 0.5;
const MEMORY_LEAST_MIB: u64 = 2048;
/// Processors: less than this part was used, of more than one.
const CPU_PART: f64 = 0.25;
/// What is recommended is so much more than what was needed.
const MEMORY_ROOM: f64 = 1.25;
const CPU_ROOM: f64 = 1.5;

/// What an advice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// GPUs that no program was on.
    EmptyGpus,
    /// GPUs that did not compute.
    IdleGpus,
    /// Memory.
    Memory,
    /// Processors.
    Cpus,
}

impl About {
    /// Whether it is about this sort of waste.
    pub fn is(self, waste: Waste) -> bool {
        match self {
            Self::EmptyGpus | Self::IdleGpus => waste == Waste::Gpu,
            Self::Memory => waste == Waste::Memory,
            Self::Cpus => waste == Waste::Cpu,
        }
    }
}

/// An advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What about.
    pub about: About,
    /// The advice itself.
    pub text: Sentence,
}

/// What could be done better the next time.
pub fn advice(usage: &JobUsage, resources: &Resources) -> Vec<Advice> {
    if usage.wall_s < SHORTEST_S {
        return Vec::new();
    }
    let all = [gpus(usage), memory(usage, resources), cpus(usage, resources)];
    all.into_iter().flatten().collect()
}

fn gpus(usage: &JobUsage) -> Option<Advice> {
    let gpu = usage.gpu;
    let is_much = |seconds: u64| seconds >= GPU_LEAST_S && seconds as f64 >= gpu.held_s as f64 * GPU_PART;
    let hours = |seconds: u64| hours(seconds);
    let held = hours(gpu.held_s);
    if is_much(gpu.empty_s) {
        let text = say_with("efficiency.empty_gpus", &[("n", &hours(gpu.empty_s)), ("held", &held)]);
        return Some(Advice { about: About::EmptyGpus, text });
    }
    is_much(gpu.idle_s).then(|| {
        let text = say_with("efficiency.idle_gpus", &[("n", &hours(gpu.idle_s)), ("held", &held)]);
        Advice { about: About::IdleGpus, text }
    })
}

fn memory(usage: &JobUsage, resources: &Resources) -> Option<Advice> {
    let HeldUsed { held, used } = usage.memory_mib?;
    if held.saturating_sub(used) < MEMORY_LEAST_MIB || used as f64 >= held as f64 * MEMORY_PART {
        return None;
    }
    let nodes = f64::from(resources.nodes.max(1));
    let ask = (used as f64 / nodes * MEMORY_ROOM / 1024.0).ceil().max(1.0);
    // A number of what nobody can ask for helps nobody.
    let is_less = ask * 1024.0 < resources.memory_mib as f64;
    let gib = |mib: u64| tenths(mib as f64 / 1024.0);
    let text = say_with("efficiency.memory", &[("held", &gib(held)), ("used", &gib(used)), ("ask", &tenths(ask))]);
    is_less.then_some(Advice { about: About::Memory, text })
}

fn cpus(usage: &JobUsage, resources: &Resources) -> Option<Advice> {
    let HeldUsed { held, used } = usage.cpu?;
    let part = used as f64 / held.max(1) as f64;
    let ask = (part * f64::from(resources.cpus) * CPU_ROOM).ceil().max(1.0);
    if part >= CPU_PART || ask >= f64::from(resources.cpus) {
        return None;
    }
    let percent = format!("{:.0}", part * 100.0);
    let (cpus, ask) = (resources.cpus.to_string(), tenths(ask));
    let text = say_with("efficiency.cpus", &[("cpus", &cpus), ("percent", &percent), ("ask", &ask)]);
    Some(Advice { about: About::Cpus, text })
}

/// Hours with one digit behind the point, none where there are many.
pub(crate) fn hours(seconds: u64) -> String {
    tenths(seconds as f64 / 3600.0)
}

fn tenths(value: f64) -> String {
    if value >= 100.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}
