//! The cluster as the one poller last saw it. Nothing here asks the scheduler.

mod ahead;
pub mod concern;
pub mod forecast;
pub mod overview;
pub mod room;

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::PartitionName;
use eirene_core::scheduler::{Job, Node, Partition, Queue};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;

use ahead::AheadOfParts;
use concern::Concern;
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
    /// Our jobs that the scheduler remembers.
    pub jobs: Arc<Vec<Job>>,
    /// Everybody's jobs as numbers.
    pub queue: Arc<Queue>,
    /// Nodes.
    pub nodes: Arc<Vec<Node>>,
    /// Partitions.
    pub partitions: Arc<Vec<Partition>>,
    /// When GPUs come free, by type.
    pub forecasts: Arc<BTreeMap<String, Forecast>>,
    /// The same for those who see a part of it.
    pub ahead_of_parts: AheadOfParts,
}

impl Snapshot {
    /// The same, looking ahead from `now`.
    pub fn looking_ahead(self, now: Timestamp) -> Self {
        let forecasts = Arc::new(forecasts(&self.queue, |_| true, &self.nodes, now));
        Self { forecasts, ahead_of_parts: AheadOfParts::default(), ..self }
    }

    /// Whether the cluster has been seen at all.
    pub fn is_known(&self) -> bool {
        self.asked_at.is_some()
    }

    /// The partition of this name, or the default.
    pub fn partition(&self, name: Option<&PartitionName>) -> Option<&Partition> {
        partition_named(&self.partitions, name)
    }

    /// Partitions and nodes that concern somebody: of others not even the names.
    fn ground_of(&self, concern: &Concern) -> (Vec<Partition>, Vec<Node>) {
        let mut partitions = Vec::clone(&self.partitions);
        partitions.retain(|partition| concern.has_partition(&partition.name));
        let mut nodes = Vec::clone(&self.nodes);
        nodes.retain(|node| concern.has_node(node));
        for node in &mut nodes {
            node.partitions.retain(|name| concern.has_partition(name));
        }
        (partitions, nodes)
    }
}

fn partition_named<'a>(partitions: &'a [Partition], name: Option<&PartitionName>) -> Option<&'a Partition> {
    partitions.iter().find(|partition| name.map_or(partition.is_default, |name| partition.name == *name))
}

/// GPUs of one type on the nodes that are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct GpuSupply {
    /// Type; empty when the cluster does not name one.
    pub gpu_type: String,
    /// How many there are.
    pub total: u32,
    /// How many are free on nodes that take jobs.
    pub free: u32,
    /// How many of the free ones are on nodes that are reserved for a waiting job: until that starts, only shorter jobs start there.
    pub reserved: u32,
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
    /// Everybody's jobs as numbers, those in partitions and on nodes that are not shown too.
    pub queue: Arc<Queue>,
}

impl ClusterView {
    /// The partition of this name, or the default.
    pub fn partition(&self, name: Option<&PartitionName>) -> Option<&Partition> {
        partition_named(&self.partitions, name)
    }

    /// What of a snapshot concerns somebody: nothing else is in it, not even by name. GPUs are counted, and looked ahead for, on those nodes alone.
    pub fn of(snapshot: &Snapshot, concern: &Concern) -> Self {
        if concern.is_all_of(snapshot) {
            return Self::whole(snapshot);
        }
        let (partitions, nodes) = snapshot.ground_of(concern);
        let ahead = snapshot.ahead_of_parts.of(concern.narrowed(snapshot), || {
            // What runs on her nodes ends there, whoever's it is; what waits elsewhere is not in her way.
            let is_hers = |partition: &str| concern.has_partition_named(partition);
            snapshot.asked_at.map(|at| forecasts(&snapshot.queue, is_hers, &nodes, at)).unwrap_or_default()
        });
        let gpu_types = supply(&nodes, &ahead);
        Self { partitions: Arc::new(partitions), gpu_types, nodes: Arc::new(nodes), ..Self::whole(snapshot) }
    }

    /// The same as a look that has seen nothing else, and no jobs.
    pub fn as_snapshot(&self) -> Snapshot {
        Snapshot {
            asked_at: self.at,
            reachable: self.reachable,
            partitions: Arc::clone(&self.partitions),
            nodes: Arc::clone(&self.nodes),
            ..Snapshot::default()
        }
    }

    fn whole(snapshot: &Snapshot) -> Self {
        Self {
            at: snapshot.asked_at,
            reachable: snapshot.reachable,
            partitions: Arc::clone(&snapshot.partitions),
            gpu_types: supply(&snapshot.nodes, &snapshot.forecasts),
            nodes: Arc::clone(&snapshot.nodes),
            queue: Arc::clone(&snapshot.queue),
        }
    }
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
    pub fn publish(&self, snapshot: Snapshot) {
        // Whatever it was put together from: nothing that was worked out of another look is in it.
        self.sender.send_replace(Arc::new(Snapshot { ahead_of_parts: AheadOfParts::default(), ..snapshot }));
    }

    /// All of it, for whoever runs the platform. What others are shown is [`overview::Overview`]'s to say.
    pub fn view(&self) -> ClusterView {
        ClusterView::whole(&self.snapshot())
    }
}

fn supply(nodes: &[Node], forecasts: &BTreeMap<String, Forecast>) -> Vec<GpuSupply> {
    let mut by_type = BTreeMap::<&str, GpuSupply>::new();
    for node in nodes {
        for gpus in &node.gpus {
            let entry = by_type.entry(&gpus.gpu_type).or_insert_with(|| {
                let Forecast { steps, waiting } = forecasts.get(&gpus.gpu_type).cloned().unwrap_or_default();
                GpuSupply { gpu_type: gpus.gpu_type.clone(), total: 0, free: 0, reserved: 0, forecast: steps, waiting }
            });
            entry.total = entry.total.saturating_add(gpus.total);
            if node.available {
                let free = gpus.total.saturating_sub(gpus.allocated);
                entry.free = entry.free.saturating_add(free);
                if node.is_planned {
                    entry.reserved = entry.reserved.saturating_add(free);
                }
            }
        }
    }
    by_type.into_values().collect()
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::NodeGpus;

    use super::*;
    use crate::testing::idle_node;

    fn node(name: &str, available: bool, gpu_type: &str, total: u32, allocated: u32) -> Node {
        let gpus = vec![NodeGpus { gpu_type: gpu_type.into(), total, allocated }];
        Node { available, gpus, ..idle_node(name) }
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
            reserved: 0,
            forecast: vec![],
            waiting: 0,
        };
        assert_eq!(cluster.view().gpu_types, vec![supply("a100", 4, 1), supply("h100", 4, 0)]);
    }

    #[test]
    fn of_a_part_of_the_cluster_only_that_is_counted_and_named() {
        use crate::testing;
        let mut snapshot = testing::snapshot(vec![]);
        for partition in Arc::make_mut(&mut snapshot.partitions) {
            if partition.name.as_str() == "main" {
                partition.access.groups = vec!["chem".into()];
            }
        }
        let part = ClusterView::of(&snapshot, &Concern::of(&snapshot, Some(&[]), &[]));
        let names = |nodes: &[Node]| nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&part.nodes), ["c2"]);
        let of_c2: Vec<&str> = part.nodes[0].partitions.iter().map(eirene_core::PartitionName::as_str).collect();
        assert_eq!(of_c2, ["long"], "of others not even the name");
        assert_eq!(part.partitions.len(), 1);
        assert_eq!(
            part.gpu_types.iter().map(|gpus| (gpus.gpu_type.as_str(), gpus.total)).collect::<Vec<_>>(),
            [("h100", 2)]
        );
        let all = ClusterView::of(&snapshot, &Concern::of(&snapshot, None, &[]));
        assert_eq!((names(&all.nodes), all.gpu_types.len()), (vec!["c1".to_owned(), "c2".to_owned()], 2));
    }
}
