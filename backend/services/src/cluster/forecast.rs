//! When GPUs come free: by the ends of all users' jobs that hold them.
//!
//! Jobs end by their time limits at the latest, and mostly before; jobs that wait may take what comes free first. So this says when there is room at
//! the latest if nobody else were waiting, and how much is waited for. It is worked out once a look for all who see the same nodes: with the look for the
//! whole cluster, and for a part of it when first somebody asks whom that part concerns (`ahead.rs`).

use std::collections::BTreeMap;

use eirene_core::scheduler::{Node, Queue};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// How far it looks ahead. What ends later counts as what has no end.
pub const HORIZON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Ends of one type that are told apart; with more of them, those come together that are closest in time.
const MOST_STEPS: usize = 100;

/// From this time on so many GPUs are free, until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FreeFrom {
    /// From when on.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How many, on nodes that take jobs now.
    pub free: u32,
}

/// What is known of the coming week for the GPUs of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When more come free, in the order of time. What is free now is not among them.
    pub steps: Vec<FreeFrom>,
    /// How many jobs that wait ask for.
    pub waiting: u32,
}

/// GPUs of one type on the nodes that take jobs.
#[derive(Debug, Default)]
struct Supply {
    total: u32,
    free: u32,
    ends: BTreeMap<Timestamp, u32>,
    waiting: u32,
}

/// The forecast of each type of GPU that these nodes have. Jobs count as waiting that wait for a partition for which `is_meant` holds.
pub fn forecasts(
    queue: &Queue,
    is_meant: impl Fn(&str) -> bool,
    nodes: &[Node],
    now: Timestamp,
) -> BTreeMap<String, Forecast> {
    #[cfg(test)]
    WORKED_OUT.set(WORKED_OUT.get() + 1);
    let mut supplies = BTreeMap::<&str, Supply>::new();
    for node in nodes {
        for gpus in &node.gpus {
            let supply = supplies.entry(&gpus.gpu_type).or_default();
            if node.available {
                supply.total = supply.total.saturating_add(gpus.total);
                supply.free = supply.free.saturating_add(gpus.total.saturating_sub(gpus.allocated));
            }
        }
    }
    for node in nodes.iter().filter(|node| node.available) {
        end(&mut supplies, queue, node, now);
    }
    for (gpu_type, count) in queue.waiting_in(is_meant).gpus {
        // Whoever names no type waits for whichever comes first.
        if let Some(supply) = supplies.get_mut(gpu_type.as_str()) {
            supply.waiting = count;
        }
    }
    supplies.into_iter().map(|(gpu_type, supply)| (gpu_type.to_owned(), supply.forecast())).collect()
}

/// Notes what comes free on a node, and when.
fn end(supplies: &mut BTreeMap<&str, Supply>, queue: &Queue, node: &Node, now: Timestamp) {
    let latest = now.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
    for (at, amount) in queue.releases.get(&node.name).into_iter().flatten() {
        // A job beyond its time limit ends at any moment.
        let at = now.max(*at);
        for (gpu_type, count) in amount.gpus.iter().filter(|_| at <= latest) {
            if let Some(supply) = kind(node, gpu_type).and_then(|kind| supplies.get_mut(kind)) {
                let ends = supply.ends.entry(at).or_default();
                *ends = ends.saturating_add(*count);
            }
        }
    }
}

/// Which of its GPUs a node gives for this type; a job that asked for no type has those of the node, where they are of one type.
fn kind<'a>(node: &'a Node, gpu_type: &str) -> Option<&'a str> {
    match node.gpus.as_slice() {
        [only] if gpu_type.is_empty() => Some(&only.gpu_type),
        several => several.iter().map(|gpus| gpus.gpu_type.as_str()).find(|kind| *kind == gpu_type),
    }
}

impl Supply {
    fn forecast(self) -> Forecast {
        let mut free = self.free;
        let mut steps = Vec::with_capacity(self.ends.len());
        for (at, count) in together(self.ends) {
            // Two looks, at jobs and at nodes, may be some seconds apart: there is never more than there is.
            let then = free.saturating_add(count).min(self.total);
            if then > free {
                free = then;
                steps.push(FreeFrom { at, free });
            }
        }
        Forecast { steps, waiting: self.waiting }
    }
}

/// Ends of one type, at most [`MOST_STEPS`]; those that come together do so at the time of the last.
fn together(ends: BTreeMap<Timestamp, u32>) -> Vec<(Timestamp, u32)> {
    let at_once = ends.len().div_ceil(MOST_STEPS).max(1);
    let ends: Vec<(Timestamp, u32)> = ends.into_iter().collect();
    ends.chunks(at_once)
        .filter_map(|chunk| {
            let (at, _) = chunk.last()?;
            Some((*at, chunk.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count))))
        })
        .collect()
}

#[cfg(test)]
thread_local! {
    /// How often this thread, which is a test's own, has worked forecasts out.
    pub(super) static WORKED_OUT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::{Job, JobIdentity, JobState, NodeGpus};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{idle_node, queue, start_time};

    fn node(name: &str, available: bool, gpus: &[(&str, u32, u32)]) -> Node {
        let gpus = gpus.iter().map(|(kind, total, allocated)| NodeGpus {
            gpu_type: (*kind).to_owned(),
            total: *total,
            allocated: *allocated,
        });
        Node { available, state: "mixed".into(), gpus: gpus.collect(), ..idle_node(name) }
    }

    fn job(state: JobState, nodes: &[&str], gpus: &[(&str, u32)], ends_in_min: Option<i64>) -> Job {
        Job {
            identity: JobIdentity { cluster: "c".into(), id: 1, submitted_at: start_time() },
            name: String::new(),
            uid: 1000,
            state,
            word: String::new(),
            reason: None,
            partition: "main".into(),
            nodes: nodes.iter().map(|name| name.parse().unwrap()).collect(),
            restart_count: 0,
            started_at: None,
            ends_at: ends_in_min.map(at),
            preempted_at: None,
            exit_code: None,
            gpus: gpus.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        }
    }

    fn at(minutes: i64) -> Timestamp {
        start_time() + SignedDuration::from_mins(minutes)
    }

    fn steps(of: &Forecast) -> Vec<(i64, u32)> {
        of.steps.iter().map(|step| (step.at.duration_since(start_time()).as_mins(), step.free)).collect()
    }

    #[test]
    fn gpus_come_free_as_their_jobs_end() {
        use JobState::{Completed, Completing, Pending, Running, Suspended};
        let nodes = [
            node("a", true, &[("a100", 4, 4)]),
            node("b", true, &[("a100", 4, 3)]),
            node("h", true, &[("h100", 2, 2)]),
            node("gone", false, &[("a100", 8, 8)]),
        ];
        let jobs = [
            job(Running, &["a"], &[("a100", 2)], Some(30)),
            job(Running, &["a", "b"], &[("a100", 5)], Some(90)),
            job(Completing, &["h"], &[("h100", 1)], Some(-1)),
            // Of no type: the node has one kind alone.
            job(Running, &["h"], &[("", 1)], Some(60)),
            job(Running, &["gone"], &[("a100", 8)], Some(10)),
            job(Suspended, &["a"], &[("a100", 1)], Some(20)),
            job(Completed, &["a"], &[("a100", 4)], Some(5)),
            job(Pending, &[], &[("a100", 16), ("no-such", 1)], None),
            job(Running, &["a"], &[("a100", 1)], Some(60 * 24 * 8)),
            job(Running, &["a"], &[("a100", 1)], None),
        ];
        let all = forecasts(&queue(&jobs), |_| true, &nodes, start_time());
        assert_eq!(steps(&all["a100"]), [(30, 3), (90, 8)], "1 is free now, and the node that is down gives none");
        assert_eq!((all["a100"].waiting, all["h100"].waiting), (16, 0));
        assert_eq!(steps(&all["h100"]), [(0, 1), (60, 2)], "what is beyond its time ends at any moment");
        assert_eq!(all.len(), 2);
    }

    proptest! {
        #[test]
        fn it_never_promises_more_than_there_is_and_never_goes_back(
            nodes in proptest::collection::vec((any::<bool>(), 0..6_u32, 0..8_u32), 1..5),
            jobs in proptest::collection::vec(
                (proptest::collection::vec(0..5_usize, 0..4), 0..9_u32, -100..20_000_i64, any::<bool>()), 0..300),
        ) {
            let nodes: Vec<Node> = nodes.iter().enumerate().map(|(number, (available, total, allocated))| {
                node(&format!("n{number}"), *available, &[("a100", *total, *allocated)])
            }).collect();
            let names = ["n0", "n1", "n2", "n3", "unknown"];
            let jobs: Vec<Job> = jobs.iter().map(|(on, count, ends, typed)| {
                let on: Vec<&str> = on.iter().map(|number| names[*number]).collect();
                job(JobState::Running, &on, &[(if *typed { "a100" } else { "" }, *count)], Some(*ends))
            }).collect();
            let all = forecasts(&queue(&jobs), |_| true, &nodes, start_time());
            let up = nodes.iter().filter(|node| node.available).map(|node| &node.gpus[0]);
            let total: u32 = up.clone().map(|gpus| gpus.total).sum();
            let mut free: u32 = up.map(|gpus| gpus.total.saturating_sub(gpus.allocated)).sum();
            let mut last = None;
            prop_assert!(all["a100"].steps.len() <= MOST_STEPS);
            for step in &all["a100"].steps {
                prop_assert!(step.free > free && step.free <= total);
                prop_assert!(step.at >= start_time() && Some(step.at) > last && step.at <= start_time() + HORIZON);
                (free, last) = (step.free, Some(step.at));
            }
        }
    }
}
