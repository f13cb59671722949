//! Whether something would start now, and what is in its way: the one judgement behind the dashboard, the start form and ready-made sizes.
//!
//! It knows what the scheduler shows: what is free on each node, when running jobs end at the latest, and which nodes are kept for jobs that wait. It
//! is no promise: other jobs may come first.

use eirene_core::Resources;
use eirene_core::scheduler::{Node, Queue};
use jiff::{SignedDuration, Timestamp};

use super::ClusterView;

/// Whether something would start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Now,
    /// Only with a shorter time limit: later its nodes are kept for jobs that wait.
    Until {
        /// The longest time limit, minutes.
        walltime_min: u32,
    },
    /// No.
    Later {
        /// What is short; none where nothing can be said.
        short: Option<Short>,
        /// What of the same would start now; none where nothing useful would.
        fits: Option<Resources>,
        /// When there is enough at the latest, if no other job takes it.
        from: Option<Timestamp>,
    },
}

/// What is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Short {
    /// No node of the partition takes jobs.
    Nodes,
    /// So many nodes have enough, which are too few.
    FreeNodes(u32),
    /// So many CPUs at most are free on as many nodes as are requested, beside the rest.
    Cpus(u32),
    /// The same of memory, MiB.
    Memory(u64),
    /// The same of GPUs.
    Gpus(u32),
    /// Several of these.
    Several,
    /// Nodes that have enough are kept for jobs that wait.
    Planned,
}

/// What is free on a node.
#[derive(Debug, Clone, Copy)]
struct Free {
    cpus: u32,
    memory_mib: u64,
    gpus: u32,
}

impl Free {
    fn on(node: &Node, wanted: &Resources) -> Self {
        let gpus = node.gpus.iter().filter(|gpus| is_wanted(wanted, &gpus.gpu_type));
        Self {
            cpus: node.cpus.saturating_sub(node.cpus_allocated),
            memory_mib: node.memory_mib.saturating_sub(node.memory_allocated_mib),
            gpus: gpus.map(|gpus| gpus.total.saturating_sub(gpus.allocated)).sum(),
        }
    }

    fn holds(self, wanted: &Resources) -> bool {
        self.cpus >= wanted.cpus && self.memory_mib >= wanted.memory_mib && self.gpus >= wanted.gpus
    }
}

/// Whether GPUs of this type are among those that are requested.
fn is_wanted(wanted: &Resources, gpu_type: &str) -> bool {
    wanted.gpu_type.as_ref().is_none_or(|wanted| wanted.as_str() == gpu_type)
}

/// Judges `wanted` by what of the cluster somebody sees.
pub fn room(cluster: &ClusterView, wanted: &Resources) -> Room {
    let nothing = Room::Later { short: None, fits: None, from: None };
    let partition = cluster.partition(wanted.partition.as_ref()).filter(|partition| partition.available);
    let (Some(partition), Some(now)) = (partition, cluster.at) else { return nothing };
    let nodes: Vec<(&Node, Free)> = cluster
        .nodes
        .iter()
        .filter(|node| node.available && node.partitions.contains(&partition.name))
        .map(|node| (node, Free::on(node, wanted)))
        .collect();
    if nodes.is_empty() {
        return Room::Later { short: Some(Short::Nodes), fits: None, from: None };
    }
    let Some(last) = (wanted.nodes as usize).checked_sub(1) else { return nothing };
    let mut minutes: Vec<u32> = nodes
        .iter()
        .filter(|(_, free)| free.holds(wanted))
        .map(|(node, _)| minutes_left(node, &cluster.queue, now))
        .collect();
    minutes.sort_unstable_by(|a, b| b.cmp(a));
    match minutes.get(last) {
        Some(left) if *left >= wanted.walltime_min => return Room::Now,
        Some(left) if *left > 0 => return Room::Until { walltime_min: *left },
        _ => {}
    }
    let from = enough_from(&nodes, &cluster.queue, wanted, now);
    if minutes.len() > last {
        return Room::Later { short: Some(Short::Planned), fits: None, from };
    }
    let free: Vec<Free> = nodes.iter().map(|(_, free)| *free).collect();
    let (short, smaller) = shortage(&free, wanted);
    // There may be room for that on nodes that are kept for jobs that wait.
    let fits = smaller.and_then(|smaller| match room(cluster, &smaller) {
        Room::Now => Some(smaller),
        Room::Until { walltime_min } => Some(Resources { walltime_min, ..smaller }),
        Room::Later { .. } => None,
    });
    Room::Later { short: Some(short), fits, from }
}

/// For how many minutes a job may run on a node until a job that waits is expected there.
fn minutes_left(node: &Node, queue: &Queue, now: Timestamp) -> u32 {
    match queue.planned.get(&node.name) {
        Some(start) => u32::try_from(start.duration_since(now).as_mins()).unwrap_or(0),
        // Kept, and nobody says until when.
        None if node.is_planned => 0,
        None => u32::MAX,
    }
}

/// What is short on nodes with so much free, and for what they have enough.
fn shortage(free: &[Free], wanted: &Resources) -> (Short, Option<Resources>) {
    // The most of one thing that as many nodes as are requested have beside the rest.
    let most = |relaxed: &Resources, of: fn(&Free) -> u64| {
        let mut all: Vec<u64> = free.iter().filter(|free| free.holds(relaxed)).map(of).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.get((wanted.nodes as usize).saturating_sub(1)).copied().filter(|most| *most > 0)
    };
    let small = |most: u64| u32::try_from(most).unwrap_or(u32::MAX);
    if let Some(most) = most(&Resources { cpus: 0, ..wanted.clone() }, |free| free.cpus.into()) {
        return (Short::Cpus(small(most)), Some(Resources { cpus: small(most), ..wanted.clone() }));
    }
    if let Some(most) = most(&Resources { memory_mib: 0, ..wanted.clone() }, |free| free.memory_mib) {
        // Whole GiB, as the form has them; less than one runs no app.
        let fits = Resources { memory_mib: most / 1024 * 1024, ..wanted.clone() };
        return (Short::Memory(most), Some(fits).filter(|fits| fits.memory_mib > 0));
    }
    if wanted.gpus > 0 {
        if let Some(most) = most(&Resources { gpus: 0, ..wanted.clone() }, |free| free.gpus.into()) {
            return (Short::Gpus(small(most)), Some(Resources { gpus: small(most), ..wanted.clone() }));
        }
        if free.iter().filter(|free| free.gpus > 0).count() < wanted.nodes as usize {
            return (Short::Gpus(0), None);
        }
    }
    match small(free.iter().filter(|free| free.holds(wanted)).count() as u64) {
        0 => (Short::Several, None),
        holding => (Short::FreeNodes(holding), Some(Resources { nodes: holding, ..wanted.clone() })),
    }
}

/// When as many nodes as are requested have enough, by the ends of the jobs that run there.
fn enough_from(nodes: &[(&Node, Free)], queue: &Queue, wanted: &Resources, now: Timestamp) -> Option<Timestamp> {
    let mut times: Vec<Timestamp> = nodes
        .iter()
        .filter_map(|(node, free)| {
            let mut free = *free;
            if free.holds(wanted) {
                return Some(now);
            }
            let mut ends = queue.releases.get(&node.name).into_iter().flatten();
            ends.find_map(|(at, amount)| {
                free.cpus = free.cpus.saturating_add(amount.cpus);
                free.memory_mib = free.memory_mib.saturating_add(amount.memory_mib);
                // Jobs that named no type hold some of whichever the node has.
                let gpus = amount.gpus.iter().filter(|(kind, _)| kind.is_empty() || is_wanted(wanted, kind));
                free.gpus = gpus.fold(free.gpus, |sum, (_, count)| sum.saturating_add(*count));
                free.holds(wanted).then_some((*at).max(now))
            })
        })
        .collect();
    times.sort_unstable();
    // A time limit that has just passed says no more than now.
    let soon = now.checked_add(SignedDuration::from_secs(1)).ok()?;
    times.get((wanted.nodes as usize).checked_sub(1)?).copied().filter(|at| *at >= soon)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eirene_core::scheduler::{Amount, NodeGpus};
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::Concern;
    use crate::testing::{self, idle_node, start_time};

    /// A node of `main` with 8 CPUs, 16,000 MiB and 2 a100, of which so much is allocated.
    fn node(name: &str, cpus: u32, memory_mib: u64, gpus: u32) -> Node {
        Node {
            cpus_allocated: cpus,
            memory_allocated_mib: memory_mib,
            gpus: vec![NodeGpus { gpu_type: "a100".into(), total: 2, allocated: gpus }],
            partitions: vec!["main".parse().unwrap()],
            ..idle_node(name)
        }
    }

    fn seen(nodes: Vec<Node>, queue: Queue) -> ClusterView {
        let snapshot =
            crate::cluster::Snapshot { nodes: Arc::new(nodes), queue: Arc::new(queue), ..testing::snapshot(vec![]) };
        ClusterView::of(&snapshot, &Concern::of(&snapshot, None, &[]))
    }

    fn wish(nodes: u32, cpus: u32, gib: u64, gpus: u32) -> Resources {
        Resources { partition: None, nodes, cpus, memory_mib: gib * 1024, gpus, gpu_type: None, walltime_min: 60 }
    }

    fn at(minutes: i64) -> Timestamp {
        start_time() + SignedDuration::from_mins(minutes)
    }

    fn planned(node: &str, minutes: i64) -> Queue {
        Queue { planned: [(node.parse().unwrap(), at(minutes))].into(), ..Queue::default() }
    }

    fn later(short: Short, fits: Option<Resources>) -> Room {
        Room::Later { short: Some(short), fits, from: None }
    }

    #[test]
    fn what_is_short_is_named_and_what_would_start_instead() {
        let busy = |cpus, memory_mib, gpus| vec![node("c1", cpus, memory_mib, gpus), node("c2", 8, 16_000, 2)];
        for (nodes, wanted, expected) in [
            (busy(0, 0, 0), wish(1, 8, 15, 2), Room::Now),
            (busy(7, 0, 0), wish(1, 4, 8, 1), later(Short::Cpus(1), Some(wish(1, 1, 8, 1)))),
            (busy(0, 13_500, 0), wish(1, 4, 8, 1), later(Short::Memory(2500), Some(wish(1, 4, 2, 1)))),
            (busy(0, 15_500, 0), wish(1, 4, 8, 1), later(Short::Memory(500), None)),
            (busy(0, 0, 1), wish(1, 4, 8, 2), later(Short::Gpus(1), Some(wish(1, 4, 8, 1)))),
            (busy(0, 0, 2), wish(1, 4, 8, 1), later(Short::Gpus(0), None)),
            (busy(8, 0, 2), wish(1, 4, 8, 1), later(Short::Gpus(0), None)),
            (busy(8, 16_000, 0), wish(1, 4, 8, 1), later(Short::Several, None)),
            (busy(0, 0, 0), wish(2, 4, 8, 0), later(Short::FreeNodes(1), Some(wish(1, 4, 8, 0)))),
        ] {
            assert_eq!(room(&seen(nodes, Queue::default()), &wanted), expected, "{wanted:?}");
        }
    }

    #[test]
    fn nodes_that_take_no_jobs_have_no_room() {
        let down = Node { available: false, ..node("c1", 0, 0, 0) };
        assert_eq!(room(&seen(vec![down], Queue::default()), &wish(1, 1, 1, 0)), later(Short::Nodes, None));
        let unknown = Resources { partition: Some("nowhere".parse().unwrap()), ..wish(1, 1, 1, 0) };
        let nothing = Room::Later { short: None, fits: None, from: None };
        assert_eq!(room(&seen(vec![node("c1", 0, 0, 0)], Queue::default()), &unknown), nothing);
        let typed = Resources { gpu_type: Some("h100".parse().unwrap()), ..wish(1, 1, 1, 1) };
        assert_eq!(room(&seen(vec![node("c1", 0, 0, 0)], Queue::default()), &typed), later(Short::Gpus(0), None));
    }

    #[test]
    fn a_node_that_is_kept_for_a_job_takes_only_what_ends_before() {
        let nodes = || vec![node("c1", 0, 0, 0)];
        assert_eq!(room(&seen(nodes(), planned("c1", 60)), &wish(1, 1, 1, 0)), Room::Now);
        assert_eq!(room(&seen(nodes(), planned("c1", 20)), &wish(1, 1, 1, 0)), Room::Until { walltime_min: 20 });
        assert_eq!(room(&seen(nodes(), planned("c1", 0)), &wish(1, 1, 1, 0)), later(Short::Planned, None));
        let other = vec![node("c1", 0, 0, 0), node("c2", 0, 0, 0)];
        assert_eq!(room(&seen(other, planned("c1", 20)), &wish(1, 1, 1, 0)), Room::Now, "there is another");
        let busy = vec![node("c1", 7, 0, 0)];
        let shorter = Resources { walltime_min: 20, ..wish(1, 1, 1, 1) };
        assert_eq!(room(&seen(busy, planned("c1", 20)), &wish(1, 4, 1, 1)), later(Short::Cpus(1), Some(shorter)));
        let unknown = Node { is_planned: true, ..node("c1", 0, 0, 0) };
        assert_eq!(room(&seen(vec![unknown], Queue::default()), &wish(1, 1, 1, 0)), later(Short::Planned, None));
    }

    #[test]
    fn there_is_enough_when_the_jobs_that_hold_it_end() {
        let ends = |cpus, gpus: u32| Amount { cpus, memory_mib: 0, gpus: [(String::new(), gpus)].into() };
        let releases = [
            ("c1".parse().unwrap(), [(at(10), ends(2, 0)), (at(30), ends(2, 1))].into()),
            ("c2".parse().unwrap(), [(at(-5), ends(1, 0)), (at(90), ends(8, 2))].into()),
        ];
        let cluster = seen(
            vec![node("c1", 7, 0, 1), node("c2", 8, 0, 2)],
            Queue { releases: releases.into(), ..Queue::default() },
        );
        let from = |wanted: &Resources| match room(&cluster, wanted) {
            Room::Later { from, .. } => from,
            other => panic!("{other:?}"),
        };
        assert_eq!(from(&wish(1, 3, 1, 1)), Some(at(10)));
        assert_eq!(from(&wish(1, 3, 1, 2)), Some(at(30)));
        assert_eq!(from(&wish(2, 3, 1, 1)), Some(at(90)));
        assert_eq!(from(&wish(3, 1, 1, 0)), None, "there are two");
    }

    proptest! {
        /// Whatever is said to start now instead does.
        #[test]
        fn what_is_offered_instead_has_room(
            nodes in proptest::collection::vec((0..9_u32, 0..17_u64, 0..3_u32, proptest::option::of(0..200_i64)), 1..6),
            wanted in (1..4_u32, 1..9_u32, 1..16_u64, 0..3_u32),
        ) {
            let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
            let planned = names.iter().zip(&nodes).filter_map(|(name, node)| Some((name.parse().unwrap(), at(node.3?))));
            let queue = Queue { planned: planned.collect(), ..Queue::default() };
            let all = names.iter().zip(&nodes).map(|(name, (cpus, gib, gpus, _))| node(name, *cpus, (gib * 1000).min(16_000), *gpus));
            let cluster = seen(all.collect(), queue);
            let wanted = wish(wanted.0, wanted.1, wanted.2, wanted.3);
            match room(&cluster, &wanted) {
                Room::Until { walltime_min } => {
                    prop_assert!(walltime_min < wanted.walltime_min);
                    prop_assert_eq!(room(&cluster, &Resources { walltime_min, ..wanted }), Room::Now);
                }
                Room::Later { fits: Some(fits), .. } => prop_assert_eq!(room(&cluster, &fits), Room::Now, "{:?}", fits),
                Room::Now | Room::Later { .. } => {}
            }
        }
    }
}
