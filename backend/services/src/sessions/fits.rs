//! Whether the cluster could ever give what is asked for, so that a wish that cannot come true is answered at once and by field.
//!
//! Limits of accounts and QOS are SLURM's to enforce; what is free at the moment does not matter here.

use std::cmp::Reverse;

use eirene_core::scheduler::{Node, Partition};
use eirene_core::{PartitionName, Resources};
use eirene_words::{say, say_count, say_with, words};

use crate::cluster::Snapshot;
use crate::duration::minutes;
use crate::error::FieldError;

/// Sizes beyond which a request is a mistake on any cluster.
const MOST_NODES: u32 = 100_000;
const MOST_CPUS: u32 = 100_000;
const MOST_MEMORY_MIB: u64 = 1 << 30;
const MOST_GPUS: u32 = 1_024;
const MOST_WALLTIME_MIN: u32 = 366 * 24 * 60;
const LEAST_MEMORY_MIB: u64 = 64;

/// Checks `wanted` against the cluster as last seen; while it has not been seen, against what no cluster could give.
pub fn fits(wanted: &Resources, cluster: &Snapshot) -> Result<(), Vec<FieldError>> {
    let mut errors = out_of_range(wanted);
    if errors.is_empty() && cluster.is_known() {
        errors = impossible(wanted, cluster);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// What no cluster could give, or nobody could ask for.
pub fn out_of_range(wanted: &Resources) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut within = |field: &str, value: u64, least: u64, most: u64| {
        if !(least..=most).contains(&value) {
            errors.push(FieldError::new(
                field,
                say_with("wrong.between", &[("least", &least.to_string()), ("most", &most.to_string())]),
            ));
        }
    };
    within("nodes", wanted.nodes.into(), 1, MOST_NODES.into());
    within("cpus", wanted.cpus.into(), 1, MOST_CPUS.into());
    within("memory_mib", wanted.memory_mib, LEAST_MEMORY_MIB, MOST_MEMORY_MIB);
    within("gpus", wanted.gpus.into(), 0, MOST_GPUS.into());
    within("walltime_min", wanted.walltime_min.into(), 1, MOST_WALLTIME_MIN.into());
    if wanted.gpu_type.is_some() && wanted.gpus == 0 {
        errors.push(FieldError::new("gpu_type", say("fits.type_without_gpu")));
    }
    errors
}

/// What the partition that is named, or the default, cannot give. Where the default is unknown, what no partition can.
fn impossible(wanted: &Resources, cluster: &Snapshot) -> Vec<FieldError> {
    match cluster.partition(wanted.partition.as_ref()) {
        Some(partition) => impossible_in(partition, wanted, cluster),
        None => match &wanted.partition {
            Some(name) => {
                vec![FieldError::new("partition", say_with("fits.no_partition", &[("partition", name.as_str())]))]
            }
            None => impossible_everywhere(wanted, cluster),
        },
    }
}

/// The scheduler may put it into any partition: it is impossible where all say so, and the one that comes nearest tells why.
fn impossible_everywhere(wanted: &Resources, cluster: &Snapshot) -> Vec<FieldError> {
    let mut nearest: Option<(bool, Vec<FieldError>)> = None;
    for partition in cluster.partitions.iter() {
        let errors = impossible_in(partition, wanted, cluster);
        if errors.is_empty() {
            return errors;
        }
        let is_nearer = nearest.as_ref().is_none_or(|(available, known)| {
            (partition.available, Reverse(errors.len())) > (*available, Reverse(known.len()))
        });
        if is_nearer {
            nearest = Some((partition.available, errors));
        }
    }
    let mut errors = nearest.map(|(_, errors)| errors).unwrap_or_default();
    if cluster.partitions.len() > 1 {
        for error in &mut errors {
            error.message = words().fill("fits.nowhere", &[("message", &error.message)]);
        }
    }
    errors
}

fn impossible_in(partition: &Partition, wanted: &Resources, cluster: &Snapshot) -> Vec<FieldError> {
    let name = &partition.name;
    let most_is = |key: &str, most: u64| say_with(key, &[("partition", name.as_str()), ("most", &most.to_string())]);
    if !partition.available {
        return vec![FieldError::new("partition", say_with("fits.closed", &[("partition", name.as_str())]))];
    }
    let mut errors = Vec::new();
    let nodes: Vec<&Node> = cluster.nodes.iter().filter(|node| node.partitions.contains(name)).collect();
    let most_nodes = (nodes.len() as u64).min(partition.max_nodes.map_or(u64::MAX, u64::from));
    if u64::from(wanted.nodes) > most_nodes {
        errors.push(FieldError::new("nodes", most_is("fits.nodes", most_nodes)));
    }
    let most_cpus = nodes.iter().map(|node| node.cpus).max().unwrap_or(0);
    if wanted.cpus > most_cpus {
        errors.push(FieldError::new("cpus", most_is("fits.cpus", most_cpus.into())));
    }
    let most_memory = nodes.iter().map(|node| node.memory_mib).max().unwrap_or(0);
    if wanted.memory_mib > most_memory {
        errors.push(FieldError::new("memory_mib", most_is("fits.memory", most_memory)));
    }
    errors.extend(missing_gpus(wanted, name.as_str(), &nodes));
    if let Some(most) = partition.max_walltime_min.filter(|most| wanted.walltime_min > *most) {
        let most = minutes(words(), most.into());
        let names = [("partition", name.as_str()), ("most", most.as_str())];
        let message = match longer(wanted, cluster) {
            Some(other) => say_with("fits.time_elsewhere", &[&names[..], &[("other", other.as_str())]].concat()),
            None => say_with("fits.time", &names),
        };
        errors.push(FieldError::new("walltime_min", message));
    }
    if errors.is_empty() {
        let able = nodes.iter().filter(|node| could_hold(node, wanted)).count() as u64;
        if able < u64::from(wanted.nodes) {
            let names = [("partition", name.as_str())];
            let message = match able {
                0 => say_with("fits.none_together", &names),
                able => say_count("fits.together", able, &names),
            };
            errors.push(FieldError::new("nodes", message));
        }
    }
    errors
}

/// Another partition that could give all of it.
fn longer<'a>(wanted: &Resources, cluster: &'a Snapshot) -> Option<&'a PartitionName> {
    let allows = |partition: &&Partition| {
        let in_time = partition.max_walltime_min.is_none_or(|most| wanted.walltime_min <= most);
        // Whose accounts a partition takes is not known, so it is not recommended.
        in_time && !partition.access.by_account && impossible_in(partition, wanted, cluster).is_empty()
    };
    cluster.partitions.iter().find(allows).map(|partition| &partition.name)
}

fn missing_gpus(wanted: &Resources, partition: &str, nodes: &[&Node]) -> Option<FieldError> {
    let most = nodes.iter().map(|node| gpus_of(node, wanted)).max().unwrap_or(0);
    if wanted.gpus <= most {
        return None;
    }
    let field_error = match (&wanted.gpu_type, most) {
        (Some(gpu_type), 0) => {
            let names = [("partition", partition), ("type", gpu_type.as_str())];
            FieldError::new("gpu_type", say_with("fits.gpu_type", &names))
        }
        (None, 0) => FieldError::new("gpus", say_with("fits.no_gpus", &[("partition", partition)])),
        (_, most) => {
            let names = [("partition", partition), ("most", &most.to_string())];
            FieldError::new("gpus", say_with("fits.gpus", &names))
        }
    };
    Some(field_error)
}

fn gpus_of(node: &Node, wanted: &Resources) -> u32 {
    let counted = node.gpus.iter().filter(|gpus| wanted.gpu_type.as_ref().is_none_or(|t| gpus.gpu_type == t.as_str()));
    counted.map(|gpus| gpus.total).sum()
}

fn could_hold(node: &Node, wanted: &Resources) -> bool {
    node.cpus >= wanted.cpus && node.memory_mib >= wanted.memory_mib && gpus_of(node, wanted) >= wanted.gpus
}

#[cfg(test)]
mod tests {
    use crate::testing;

    use super::*;

    fn fields(change: impl Fn(&mut Resources)) -> Vec<String> {
        let mut wanted = testing::small();
        change(&mut wanted);
        match fits(&wanted, &testing::snapshot(vec![])) {
            Ok(()) => vec![],
            Err(errors) => errors.into_iter().map(|error| error.field).collect(),
        }
    }

    #[test]
    fn what_no_node_has_is_refused_by_field() {
        assert_eq!(fields(|_| {}), Vec::<String>::new());
        assert_eq!(fields(|r| r.partition = Some("nowhere".parse().unwrap())), ["partition"]);
        assert_eq!(fields(|r| r.nodes = 3), ["nodes"]);
        assert_eq!(fields(|r| r.cpus = 9), ["cpus"]);
        assert_eq!(fields(|r| r.memory_mib = 16_001), ["memory_mib"]);
        assert_eq!(fields(|r| r.gpus = 3), ["gpus"]);
        assert_eq!(fields(|r| (r.gpus, r.gpu_type) = (1, Some("b200".parse().unwrap()))), ["gpu_type"]);
        assert_eq!(fields(|r| (r.gpus, r.gpu_type) = (2, Some("a100".parse().unwrap()))), Vec::<String>::new());
        assert_eq!(fields(|r| (r.nodes, r.gpus, r.gpu_type) = (2, 1, Some("a100".parse().unwrap()))), ["nodes"]);
        assert_eq!(fields(|r| r.walltime_min = 481), ["walltime_min"]);
        let message = |walltime_min| {
            let long = Resources { walltime_min, ..testing::small() };
            fits(&long, &testing::snapshot(vec![])).unwrap_err().remove(0).message
        };
        assert_eq!(
            message(1200),
            "partition `main` accepts jobs of at most 8\u{a0}h; choose partition `long` for longer ones"
        );
        assert_eq!(message(2881), "partition `main` accepts jobs of at most 8\u{a0}h", "`long` takes no longer either");
        assert_eq!(fields(|r| (r.partition, r.nodes) = (Some("long".parse().unwrap()), 2)), ["nodes"]);
        assert_eq!(
            fields(|r| (r.partition, r.walltime_min) = (Some("long".parse().unwrap()), 481)),
            Vec::<String>::new()
        );
    }

    #[test]
    fn without_a_known_default_all_partitions_are_asked() {
        let mut cluster = testing::snapshot(vec![]);
        let change = |cluster: &mut Snapshot, edit: &dyn Fn(&mut Partition)| {
            std::sync::Arc::make_mut(&mut cluster.partitions).iter_mut().for_each(edit);
        };
        change(&mut cluster, &|partition| partition.is_default = false);
        let fields = |cluster: &Snapshot, edit: &dyn Fn(&mut Resources)| -> Vec<String> {
            let mut wanted = testing::small();
            edit(&mut wanted);
            fits(&wanted, cluster).err().into_iter().flatten().map(|error| error.field).collect()
        };
        assert_eq!(fields(&cluster, &|_| {}), Vec::<String>::new());
        assert_eq!(fields(&cluster, &|r| r.walltime_min = 2880), Vec::<String>::new(), "`long` allows it");
        assert_eq!(fields(&cluster, &|r| r.nodes = 2), Vec::<String>::new(), "`main` has them");
        assert_eq!(fields(&cluster, &|r| r.gpus = 3), ["gpus"]);
        assert_eq!(fields(&cluster, &|r| r.gpus = 1_000_000_000), ["gpus"]);
        assert_eq!(fields(&cluster, &|r| r.walltime_min = 2881), ["walltime_min"]);
        assert_eq!(fields(&cluster, &|r| (r.nodes, r.walltime_min) = (2, 2880)).len(), 1, "neither has both");
        let error = fits(&Resources { gpus: 3, ..testing::small() }, &cluster).unwrap_err().remove(0);
        assert_eq!(
            error.message,
            "no node of partition `main` has more than 2, and no other partition can give it either"
        );
        change(&mut cluster, &|partition| partition.available = partition.name.as_str() == "long");
        assert_eq!(fields(&cluster, &|r| r.nodes = 2), ["nodes"], "`main` takes no jobs");
        change(&mut cluster, &|partition| partition.available = false);
        assert_eq!(fields(&cluster, &|_| {}), ["partition"]);
        cluster.partitions = std::sync::Arc::default();
        assert_eq!(fields(&cluster, &|_| {}), Vec::<String>::new(), "the scheduler has the last word");
        assert_eq!(fields(&cluster, &|r| r.gpus = 1_000_000_000), ["gpus"]);
    }

    #[test]
    fn sizes_out_of_range_are_refused_even_before_the_cluster_was_seen() {
        let mut wanted = testing::small();
        (wanted.nodes, wanted.cpus, wanted.gpus, wanted.walltime_min, wanted.memory_mib) =
            (0, 0, 1_000_000_000, u32::MAX, u64::MAX);
        wanted.gpu_type = Some("a100".parse().unwrap());
        let errors = fits(&wanted, &Snapshot::default()).unwrap_err();
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["nodes", "cpus", "memory_mib", "gpus", "walltime_min"]);
        assert!(fits(&testing::small(), &Snapshot::default()).is_ok());
    }
}
