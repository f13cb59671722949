//! What is free on the cluster right now.

use eirene_core::scheduler::Node;
use eirene_words::Words;
use jiff::Timestamp;
use serde::Serialize;

use super::format::{self, Time};
use crate::pages::Page;

/// Up to this many things are drawn one by one, more as a bar.
const SLOTS: u64 = 16;

/// How much of one thing is free.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FreeItem {
    /// What it is.
    pub(crate) label: String,
    /// How much is free, in words.
    pub(crate) text: String,
    /// One entry per thing, true for free; empty when there are too many to draw.
    pub(crate) slots: Vec<bool>,
    /// Free part in per cent, for the bar.
    pub(crate) percent: u64,
}

/// What is free right now.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FreeView {
    /// GPUs by type.
    pub(crate) gpus: Vec<FreeItem>,
    /// CPUs and memory.
    pub(crate) others: Vec<FreeItem>,
    /// How many nodes take jobs.
    pub(crate) nodes: String,
    /// When the cluster was last asked.
    pub(crate) at: Option<Time>,
    /// Whether the scheduler answers.
    pub(crate) reachable: bool,
}

impl FreeView {
    /// Adds up what the nodes that take jobs have left.
    pub(crate) fn new(words: &Words, nodes: &[Node], at: Option<Timestamp>, reachable: bool) -> Self {
        let up: Vec<&Node> = nodes.iter().filter(|node| node.available).collect();
        let gpus = gpu_types(nodes)
            .into_iter()
            .map(|kind| {
                let (free, total) = up.iter().flat_map(|node| &node.gpus).filter(|gpus| gpus.gpu_type == kind).fold(
                    (0, 0),
                    |(free, total), gpus| {
                        (free + u64::from(gpus.total.saturating_sub(gpus.allocated)), total + u64::from(gpus.total))
                    },
                );
                let label = if kind.is_empty() { words.get("free.gpu_untyped") } else { kind };
                item(
                    label,
                    words.fill("free.of", &[("free", &free.to_string()), ("total", &total.to_string())]),
                    free,
                    total,
                )
            })
            .collect();
        let cpus_total: u64 = up.iter().map(|node| u64::from(node.cpus)).sum();
        let cpus: u64 = up.iter().map(|node| u64::from(node.cpus.saturating_sub(node.cpus_allocated))).sum();
        let memory_total: u64 = up.iter().map(|node| node.memory_mib).sum();
        let memory: u64 = up.iter().map(|node| node.memory_mib.saturating_sub(node.memory_allocated_mib)).sum();
        let memory_text = words.fill(
            "free.memory_of",
            &[("free", &format::memory(words, memory)), ("total", &format::memory(words, memory_total))],
        );
        let cpus_text = words.fill("free.of", &[("free", &cpus.to_string()), ("total", &cpus_total.to_string())]);
        let mut memory_item = item(words.get("free.memory"), memory_text, memory, memory_total);
        memory_item.slots.clear();
        Self {
            gpus,
            others: vec![item(words.get("free.cpus"), cpus_text, cpus, cpus_total), memory_item],
            nodes: words.fill("free.nodes", &[("up", &up.len().to_string()), ("total", &nodes.len().to_string())]),
            at: at.map(Time::new),
            reachable,
        }
    }
}

fn item(label: String, text: String, free: u64, total: u64) -> FreeItem {
    let slots = if total > 0 && total <= SLOTS { (0..total).map(|index| index < free).collect() } else { Vec::new() };
    FreeItem { label, text, slots, percent: (free * 100).checked_div(total).unwrap_or(0) }
}

/// The GPU types of the cluster, sorted; `""` for GPUs without a type.
pub(crate) fn gpu_types(nodes: &[Node]) -> Vec<String> {
    let mut types: Vec<String> = nodes.iter().flat_map(|node| &node.gpus).map(|gpus| gpus.gpu_type.clone()).collect();
    types.sort();
    types.dedup();
    types
}

/// The dashboard's panel by itself.
#[derive(Debug, Serialize)]
pub(crate) struct FreeFragment {
    /// What is free.
    pub(crate) free: FreeView,
}

impl Page for FreeFragment {
    const TEMPLATE: &'static str = "fragments/free.html";
}
