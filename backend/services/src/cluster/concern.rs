//! What of a cluster concerns somebody: partitions she may use with their nodes, and wherever she has something that runs or waits.
//!
//! This decides what is shown, and by what of it a wish is judged before the scheduler is asked; who may run a job where is the scheduler's
//! business. So whatever is not known for certain is taken to concern her.

use std::collections::BTreeSet;

use eirene_core::scheduler::{Node, Partition};
use eirene_core::{GroupName, NodeName, PartitionName, Session};

use super::Snapshot;

/// What concerns somebody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Concern {
    partitions: BTreeSet<PartitionName>,
    /// Where something of hers runs.
    nodes: BTreeSet<NodeName>,
}

impl Concern {
    /// What concerns whoever is in `groups`, where those are known, and has `live`.
    pub fn of(cluster: &Snapshot, groups: Option<&[GroupName]>, live: &[Session]) -> Self {
        let mut partitions: BTreeSet<PartitionName> = cluster
            .partitions
            .iter()
            .filter(|partition| may_use(partition, groups))
            .map(|partition| partition.name.clone())
            .collect();
        let of_live = live.iter().filter_map(|session| cluster.partition(session.resources.partition.as_ref()));
        partitions.extend(of_live.map(|partition| partition.name.clone()));
        let nodes = live.iter().flat_map(|session| session.nodes.iter().cloned()).collect();
        Self { partitions, nodes }
    }

    /// Whether a partition concerns her.
    pub(crate) fn has_partition(&self, name: &PartitionName) -> bool {
        self.partitions.contains(name)
    }

    /// Whether a node concerns her.
    pub(crate) fn has_node(&self, node: &Node) -> bool {
        self.nodes.contains(&node.name) || node.partitions.iter().any(|name| self.has_partition(name))
    }

    /// The same by its name as the scheduler writes it.
    pub(crate) fn has_partition_named(&self, name: &str) -> bool {
        self.partitions.iter().any(|known| known.as_str() == name)
    }

    /// The same for whoever sees the same of this cluster: without nodes that her partitions have anyway, or that are not there.
    pub(crate) fn narrowed(&self, cluster: &Snapshot) -> Self {
        let known = cluster.nodes.iter().filter(|node| self.nodes.contains(&node.name));
        let beyond = known.filter(|node| !node.partitions.iter().any(|name| self.has_partition(name)));
        Self { partitions: self.partitions.clone(), nodes: beyond.map(|node| node.name.clone()).collect() }
    }

    /// Whether that is all there is.
    pub(crate) fn is_all_of(&self, cluster: &Snapshot) -> bool {
        cluster.partitions.iter().all(|partition| self.has_partition(&partition.name))
            && cluster.nodes.iter().all(|node| self.has_node(node))
    }
}

/// Whether a partition may take jobs of somebody in `groups`.
fn may_use(partition: &Partition, groups: Option<&[GroupName]>) -> bool {
    let allowed = &partition.access.groups;
    let Some(groups) = groups else { return true };
    // Of a group with a name that is none to us nobody knows who is in it.
    let is_hers = |name: &String| name.parse::<GroupName>().map_or(true, |name| groups.contains(&name));
    allowed.is_empty() || allowed.iter().any(is_hers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing;

    /// The demo cluster, of which `long` is for these groups.
    fn cluster(groups: &[&str]) -> Snapshot {
        let mut cluster = testing::snapshot(vec![]);
        for partition in Arc::make_mut(&mut cluster.partitions) {
            if partition.name.as_str() == "long" {
                partition.access.groups = groups.iter().map(|name| (*name).to_owned()).collect();
            }
        }
        cluster
    }

    fn groups(names: &[&str]) -> Vec<GroupName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn has_long(groups_of_it: &[&str], hers: Option<&[GroupName]>, live: &[Session]) -> bool {
        Concern::of(&cluster(groups_of_it), hers, live).has_partition(&"long".parse().unwrap())
    }

    #[test]
    fn a_partition_concerns_whom_it_takes_and_whom_it_may_take() {
        let physics = groups(&["physics", "ada"]);
        assert!(has_long(&[], Some(&[]), &[]), "for everybody");
        assert!(has_long(&["chem", "physics"], Some(&physics), &[]));
        assert!(!has_long(&["chem"], Some(&physics), &[]));
        assert!(has_long(&["chem"], None, &[]), "her groups are not known");
        assert!(has_long(&["a group"], Some(&physics), &[]), "nobody knows who is in that");
    }

    #[test]
    fn where_something_of_hers_is_concerns_her_though_she_may_not_start_there_any_more() {
        let mut session = testing::session("ada");
        session.resources.partition = Some("long".parse().unwrap());
        assert!(has_long(&["chem"], Some(&[]), std::slice::from_ref(&session)));
        // The node of a partition that is closed to her, under a name that the scheduler does not list any more.
        session.resources.partition = Some("gone".parse().unwrap());
        session.nodes = vec!["c2".parse().unwrap()];
        let mut cluster = cluster(&["chem"]);
        for node in Arc::make_mut(&mut cluster.nodes) {
            node.partitions.retain(|name| name.as_str() == "long" || node.name.as_str() == "c1");
        }
        let nodes = |live: &[Session]| {
            let concern = Concern::of(&cluster, Some(&[]), live);
            let hers = cluster.nodes.iter().filter(|node| concern.has_node(node));
            hers.map(|node| node.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&[]), ["c1"]);
        assert_eq!(nodes(std::slice::from_ref(&session)), ["c1", "c2"]);
        let narrowed =
            |session: &Session| Concern::of(&cluster, Some(&[]), std::slice::from_ref(session)).narrowed(&cluster);
        let nobodys = Concern::of(&cluster, Some(&[]), &[]);
        assert_ne!(narrowed(&session), nobodys);
        session.nodes = vec!["c1".parse().unwrap(), "gone-9".parse().unwrap()];
        assert_eq!(narrowed(&session), nobodys, "she would see c1 anyway");
    }
}
