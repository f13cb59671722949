//! Which cores and processes this node tells one by one.
//!
//! A few nodes tell all that the probe and the GPU helper have. With more nodes than [`MOST_NODES_IN_DETAIL`] that would be more than a session
//! has room for, and nodes that came late would have none: so each has its own part of that room, and keeps to it for as long as it lives.

use std::collections::{HashMap, HashSet};

use eirene_monitoring::{
    Device, DeviceKind, Group, MOST_CORE_SERIES, MOST_NODES_IN_DETAIL, MOST_PROCESS_SERIES, Metric, Sample, Series,
};

/// Metrics of single processes: processor time and memory, and both of GPUs.
const OF_PROCESSES: usize = 4;

/// How many series this node may ever tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    cores: usize,
    /// Of each of the metrics, so that none takes another's room.
    processes: usize,
}

impl Part {
    /// Of a session on so many nodes. On 64 each has 4,096 / 64 = 64 series of cores, and 1,024 / 64 / 4 = 4 processes by each metric: together
    /// 64 * 64 = 4,096 and 64 * 4 * 4 = 1,024, which is what there is room for. It is rounded down, so it is never more; and nothing is left for
    /// single processes on more than 256 nodes, and for cores on more than 4,096.
    fn of(nodes: usize) -> Self {
        Self { cores: MOST_CORE_SERIES / nodes, processes: MOST_PROCESS_SERIES / (nodes * OF_PROCESSES) }
    }
}

/// What is told of cores and processes.
#[derive(Debug)]
pub(super) struct Detail {
    /// None where all are.
    part: Option<Part>,
    cores: HashSet<Series>,
    processes: HashMap<Metric, HashSet<Series>>,
}

impl Detail {
    /// For a node of a session that has so many.
    pub(super) fn new(nodes: usize) -> Self {
        let part = (nodes > MOST_NODES_IN_DETAIL).then(|| Part::of(nodes));
        Self { part, cores: HashSet::new(), processes: HashMap::new() }
    }

    /// Leaves out what this node does not tell. What it has told once it tells as long as it is there: a line with gaps is none. Of processes the
    /// first ones take no more than half of the room, or what comes after them would have nothing.
    pub(super) fn choose(&mut self, samples: &mut Vec<Sample>) {
        let Some(part) = self.part else { return };
        for sample in samples.iter().filter(|sample| kind(sample) == Some(DeviceKind::Core)) {
            if self.cores.len() < part.cores {
                self.cores.insert(sample.series.clone());
            }
        }
        for metric in Metric::ALL.iter().filter(|metric| metric.group() == Group::Processes) {
            let told = self.processes.entry(*metric).or_default();
            // One that has done nothing yet is none of the busiest.
            let is_busy = |sample: &&Sample| sample.series.metric() == *metric && sample.value > 0.0;
            let mut greatest: Vec<&Sample> = samples.iter().filter(is_busy).collect();
            greatest.sort_unstable_by(|one, other| {
                other.value.total_cmp(&one.value).then_with(|| one.series.cmp(&other.series))
            });
            for sample in greatest.into_iter().take(part.processes.div_ceil(2)) {
                if told.len() < part.processes {
                    told.insert(sample.series.clone());
                }
            }
        }
        samples.retain(|sample| match kind(sample) {
            Some(DeviceKind::Core) => self.cores.contains(&sample.series),
            Some(DeviceKind::Process) => {
                self.processes.get(&sample.series.metric()).is_some_and(|told| told.contains(&sample.series))
            }
            _ => true,
        });
    }
}

fn kind(sample: &Sample) -> Option<DeviceKind> {
    sample.series.device().map(Device::kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(figures: &[(&str, f64)]) -> Vec<Sample> {
        figures.iter().map(|(name, value)| Sample { series: name.parse().unwrap(), value: *value }).collect()
    }

    fn chosen(detail: &mut Detail, figures: &[(&str, f64)]) -> Vec<String> {
        let mut samples = samples(figures);
        detail.choose(&mut samples);
        samples.iter().map(|sample| sample.series.to_string()).collect()
    }

    #[test]
    fn all_nodes_together_tell_no_more_than_there_is_room_for() {
        let metrics = Metric::ALL.iter().filter(|metric| metric.group() == Group::Processes).count();
        assert_eq!(metrics, OF_PROCESSES);
        for nodes in MOST_NODES_IN_DETAIL + 1..5000 {
            let part = Part::of(nodes);
            assert!(part.cores * nodes <= MOST_CORE_SERIES, "{nodes}");
            assert!(part.processes * OF_PROCESSES * nodes <= MOST_PROCESS_SERIES, "{nodes}");
            assert!(nodes > 256 || part.processes > 0, "{nodes}");
        }
        assert_eq!(Part::of(64), Part { cores: 64, processes: 4 });
    }

    #[test]
    fn a_few_nodes_tell_everything() {
        let figures =
            [("cpu_core/0", 1.0), ("cpu_process/1:a", 0.0), ("gpu_util_process/1:a", 0.0), ("cpu_seconds", 1.0)];
        assert_eq!(chosen(&mut Detail::new(MOST_NODES_IN_DETAIL), &figures).len(), figures.len());
    }

    #[test]
    fn of_many_nodes_each_tells_its_busiest_processes_and_those_of_gpus_have_room_of_their_own() {
        let mut detail = Detail::new(64);
        let first = [
            ("cpu_seconds", 9.0),
            ("cpu_process/1:a", 1.0),
            ("cpu_process/2:b", 3.0),
            ("cpu_process/3:c", 2.0),
            ("memory_process_bytes/1:a", 5.0),
            ("gpu_util_process/3:c", 0.5),
            ("gpu_util_process/1:a", 0.0),
            ("gpu_memory_process_bytes/3:c", 7.0),
            ("gpu_processes/0", 2.0),
        ];
        let left = ["cpu_process/1:a", "gpu_util_process/1:a"];
        let expected: Vec<_> = first.iter().map(|(name, _)| *name).filter(|name| !left.contains(name)).collect();
        assert_eq!(chosen(&mut detail, &first), expected);
        // Two others are the busiest now. Those that were told of before go on, whatever they do.
        let second =
            [("cpu_process/2:b", 3.0), ("cpu_process/3:c", 2.0), ("cpu_process/4:d", 9.0), ("cpu_process/5:e", 8.0)];
        assert_eq!(chosen(&mut detail, &second).len(), 4);
        // There is no more room, also when some have ended.
        let third = [("cpu_process/6:f", 99.0), ("cpu_process/5:e", 8.0), ("memory_process_bytes/6:f", 9.0)];
        assert_eq!(chosen(&mut detail, &third), ["cpu_process/5:e", "memory_process_bytes/6:f"]);
    }

    #[test]
    fn of_many_nodes_each_tells_as_many_cores_as_it_has_room_for() {
        let mut detail = Detail::new(64);
        let names: Vec<String> = (0..96).map(|core| format!("node_cpu_core/{core}")).collect();
        let figures: Vec<_> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
        assert_eq!(chosen(&mut detail, &figures), names[..64]);
        assert_eq!(chosen(&mut detail, &figures[32..]), names[32..64], "the same ones, whichever are there");
        let mut none = Detail::new(5000);
        assert!(chosen(&mut none, &figures).is_empty() && chosen(&mut none, &[("cpu_process/1:a", 1.0)]).is_empty());
    }
}
