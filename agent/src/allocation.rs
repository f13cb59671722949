//! What the job has of the cluster, from SLURM's variables: no look-up, no program.

use crate::job::Environment;

/// The nodes, in SLURM's order: the first runs the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Every node with its processors.
    pub(crate) nodes: Vec<(String, u32)>,
}

impl Allocation {
    /// Reads the variables of a batch step on `here`; none where they contradict themselves.
    pub(crate) fn read(environment: &Environment, here: &str) -> Option<Self> {
        // A job that was not started by `sbatch` may lack the list; it is on this node at least.
        let names = match environment.get("SLURM_JOB_NODELIST") {
            Some(list) => eirene_hostlist::expand(list).ok()?,
            None => vec![here.to_owned()],
        };
        let per_node = environment
            .get("SLURM_JOB_CPUS_PER_NODE")
            .and_then(|text| eirene_hostlist::counts(text).ok())
            .unwrap_or_default();
        let most = |index: usize| per_node.get(index).or(per_node.last()).copied().unwrap_or(1);
        let nodes: Vec<_> = names.into_iter().enumerate().map(|(index, name)| (name, most(index))).collect();
        let is_first = nodes.first().is_some_and(|(name, _)| name == here);
        is_first.then_some(Self { nodes })
    }

    /// The names alone.
    pub(crate) fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The nodes behind the first.
    pub(crate) fn others(&self) -> &[(String, u32)] {
        self.nodes.get(1..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::environment;

    #[test]
    fn nodes_come_with_their_processors() {
        let read = |list, processors| {
            let environment = environment(&[("SLURM_JOB_NODELIST", list), ("SLURM_JOB_CPUS_PER_NODE", processors)]);
            Allocation::read(&environment, "c1")
        };
        let three = read("c[1-2],d7", "8(x2),4").unwrap();
        assert_eq!(three.nodes, [("c1".into(), 8), ("c2".into(), 8), ("d7".into(), 4)]);
        assert_eq!(three.others().len(), 2);
        assert_eq!(read("c1", "").unwrap().nodes, [("c1".into(), 1)]);
        assert!(read("c2,c1", "4(x2)").is_none(), "the app's node is the first");
        assert!(read("c[1", "4").is_none());
        assert_eq!(Allocation::read(&environment(&[]), "c1").unwrap().names(), ["c1"]);
    }
}
