//! The demo cluster as the scheduler in memory knows it.

use eirene_core::scheduler::{Node, NodeGpus, Partition, PartitionAccess, SchedulerError, SchedulerResult};
use eirene_core::{NodeName, Reason};

use super::scheduler::{FakeScheduler, said};
use crate::cause;

/// A node on which nothing runs, without GPUs, in no partition.
pub fn idle_node(name: &str) -> Node {
    Node {
        name: name.parse().unwrap(),
        available: true,
        state: "idle".into(),
        reason: None,
        cpus: 8,
        cpus_allocated: 0,
        cpu_load: None,
        memory_mib: 16_000,
        memory_allocated_mib: 0,
        gpus: vec![],
        has_counted_gpus: true,
        is_planned: false,
        partitions: vec![],
    }
}

pub(crate) fn nodes() -> Vec<Node> {
    let node = |name: &str, gpu_type: &str, partitions: &[&str]| Node {
        gpus: vec![NodeGpus { gpu_type: gpu_type.into(), total: 2, allocated: 0 }],
        partitions: partitions.iter().map(|name| name.parse().unwrap()).collect(),
        ..idle_node(name)
    };
    vec![node("c1", "a100", &["main"]), node("c2", "h100", &["main", "long"])]
}

pub(crate) fn partitions() -> Vec<Partition> {
    let partition = |name: &str, is_default, max_walltime_min, nodes: &[&str]| Partition {
        name: name.parse().unwrap(),
        is_default,
        available: true,
        max_walltime_min: Some(max_walltime_min),
        max_nodes: None,
        nodes: nodes.iter().map(|name| name.parse().unwrap()).collect(),
        access: PartitionAccess::default(),
    };
    vec![partition("main", true, 480, &["c1", "c2"]), partition("long", false, 2880, &["c2"])]
}

impl FakeScheduler {
    /// Drains with a reason, resumes without.
    pub fn change_node(&self, name: &NodeName, word: &str, reason: Option<String>) -> SchedulerResult<()> {
        let mut state = self.asked()?;
        state.causes.push(cause::present());
        let refuse = |code: &str| Err(SchedulerError::Refused { reason: Reason::new(code, said("no")) });
        if !state.may_change_nodes {
            return refuse("node_not_permitted");
        }
        let Some(node) = state.nodes.iter_mut().find(|node| node.name == *name) else { return refuse("node_unknown") };
        (node.available, node.state, node.reason) = (reason.is_none(), word.to_owned(), reason);
        Ok(())
    }
}
