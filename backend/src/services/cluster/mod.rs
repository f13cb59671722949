//! The cluster as the one poller last saw it. Nothing here asks the scheduler.

pub mod forecast;

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::scheduler::{Job, Node, Partition};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

use forecast::{Forecast, FreeFrom, forecasts};

/// What the poller saw at one look.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// When the last good look was begun: whatever happened before is in it.
    pub asked_at: Option<Timestamp>,
    /// When the first good look of the present unbroken row was begun; none while the scheduler cannot be asked.
    pub good_since: Option<Timestamp>,
    /// Whether the scheduler can be asked.
    pub reachable: bool,
    /// Why not, for logs and admins.
    pub trouble: Option<String>,
    /// Every job the scheduler remembers.
    pub jobs: Arc<Vec<Job>>,
    /// Nodes.
    pub nodes: Arc<Vec<Node>>,
    /// Partitions.
    pub partitions: Arc<Vec<Partition>>,
    /// When GPUs come free, by type.
    pub forecasts: Arc<BTreeMap<String, Forecast>>,
}

impl Snapshot {
    /// The same, looking ahead from `now`.
    pub(crate) fn looking_ahead(self, now: Timestamp) -> Self {
        Self { forecasts: Arc::new(forecasts(&self.jobs, &self.nodes, now)), ..self }
    }

    /// Whether the cluster has been seen at all.
    pub fn is_known(&self) -> bool {
        self.asked_at.is_some()
    }

    /// The partition of this name, or the default.
    pub fn partition(&self, name: Option<&eirene_core::PartitionName>) -> Option<&Partition> {
        self.partitions.iter().find(|partition| name.map_or(partition.is_default, |name| partition.name == *name))
    }
}

/// GPUs of one type on the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct GpuSupply {
    /// Type; empty when the cluster does not name one.
    pub gpu_type: String,
    /// How many there are.
    pub total: u32,
    /// How many are free on nodes that take jobs.
    pub free: u32,
    /// When more come free within a week, at the latest: by the ends of the jobs that have them. Jobs that wait may take them first.
    pub forecast: Vec<FreeFrom>,
    /// How many of them jobs that wait ask for.
    pub waiting: u32,
}

/// The cluster as it is shown.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// When it was last seen.
    pub at: Option<Timestamp>,
    /// Whether the scheduler answers now.
    pub reachable: bool,
    /// Partitions.
    pub partitions: Arc<Vec<Partition>>,
    /// GPUs by type.
    pub gpu_types: Vec<GpuSupply>,
    /// Nodes.
    pub nodes: Arc<Vec<Node>>,
}

/// The cluster as last seen.
#[derive(Debug, Clone)]
pub struct Cluster {
    sender: Arc<watch::Sender<Arc<Snapshot>>>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self { sender: Arc::new(watch::Sender::new(Arc::default())) }
    }
}

impl Cluster {
    /// The last snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.sender.borrow())
    }

    /// Wakes whoever waits for the next snapshot.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.sender.subscribe()
    }

    /// Puts a new snapshot in place; only the poller does.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.sender.send_replace(Arc::new(snapshot));
    }

    /// What people are shown.
    pub fn view(&self) -> ClusterView {
        let snapshot = self.snapshot();
        ClusterView {
            at: snapshot.asked_at,
            reachable: snapshot.reachable,
            partitions: Arc::clone(&snapshot.partitions),
            gpu_types: supply(&snapshot.nodes, &snapshot.forecasts),
            nodes: Arc::clone(&snapshot.nodes),
        }
    }
}

fn supply(nodes: &[Node], forecasts: &BTreeMap<String, Forecast>) -> Vec<GpuSupply> {
    let mut by_type = BTreeMap::<&str, GpuSupply>::new();
    for node in nodes {
        for gpus in &node.gpus {
            let entry = by_type.entry(&gpus.gpu_type).or_insert_with(|| {
                let Forecast { steps, waiting } = forecasts.get(&gpus.gpu_type).cloned().unwrap_or_default();
                GpuSupply { gpu_type: gpus.gpu_type.clone(), total: 0, free: 0, forecast: steps, waiting }
            });
            entry.total = entry.total.saturating_add(gpus.total);
            if node.available {
                entry.free = entry.free.saturating_add(gpus.total.saturating_sub(gpus.allocated));
            }
        }
    }
    by_type.into_values().collect()
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::NodeGpus;

    use super::*;

    fn node(name: &str, available: bool, gpu_type: &str, total: u32, allocated: u32) -> Node {
        Node {
            name: name.parse().unwrap(),
            available,
            state: "idle".into(),
            reason: None,
            cpus: 8,
            cpus_allocated: 0,
            memory_mib: 16_000,
            memory_allocated_mib: 0,
            gpus: vec![NodeGpus { gpu_type: gpu_type.into(), total, allocated }],
            partitions: vec![],
        }
    }

    #[test]
    fn gpus_of_a_node_that_takes_no_jobs_are_not_free() {
        let cluster = Cluster::default();
        assert_eq!(cluster.view().at, None);
        let nodes = vec![node("a", true, "a100", 2, 1), node("b", false, "a100", 2, 0), node("c", true, "h100", 4, 5)];
        cluster.publish(Snapshot { nodes: Arc::new(nodes), ..Snapshot::default() });
        let supply = |gpu_type: &str, total, free| GpuSupply {
            gpu_type: gpu_type.into(),
            total,
            free,
            forecast: vec![],
            waiting: 0,
        };
        assert_eq!(cluster.view().gpu_types, vec![supply("a100", 4, 1), supply("h100", 4, 0)]);
    }
}
