//! How much of the cluster a run asks for, where some of it may be left to the session that it is like.

use eirene_core::{GpuType, PartitionName, Resources};

use crate::sessions::defaults;

/// What a run asks the cluster for.
#[derive(Debug, Clone)]
pub enum RunSize {
    /// All of it: no partition is the cluster's default, no type of GPU is any.
    Whole(Resources),
    /// Only this of it.
    Parts(SizeParts),
}

/// Parts of [`Resources`]; what is none is left open.
#[derive(Debug, Clone, Default)]
pub struct SizeParts {
    /// Partition.
    pub partition: Option<PartitionName>,
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// CPUs per node.
    pub cpus: Option<u32>,
    /// Memory per node, MiB.
    pub memory_mib: Option<u64>,
    /// GPUs per node.
    pub gpus: Option<u32>,
    /// GPU type.
    pub gpu_type: Option<GpuType>,
    /// Longest time, minutes.
    pub walltime_min: Option<u32>,
}

impl RunSize {
    /// All of it; what is left open is as in `rest`.
    pub(super) fn or(self, rest: Resources) -> Resources {
        match self {
            Self::Whole(resources) => resources,
            Self::Parts(parts) => parts.or(rest),
        }
    }
}

impl SizeParts {
    fn or(self, rest: Resources) -> Resources {
        let gpus = self.gpus.unwrap_or(rest.gpus);
        Resources {
            partition: self.partition.or(rest.partition),
            nodes: self.nodes.unwrap_or(rest.nodes),
            cpus: self.cpus.unwrap_or(rest.cpus),
            memory_mib: self.memory_mib.unwrap_or(rest.memory_mib),
            gpus,
            // Whoever wants no GPU has not asked for the type of them that comes with the rest.
            gpu_type: self.gpu_type.or(rest.gpu_type.filter(|_| gpus > 0)),
            walltime_min: self.walltime_min.unwrap_or(rest.walltime_min),
        }
    }
}

/// What is asked for where nothing is said.
pub(super) fn usual() -> Resources {
    Resources {
        partition: None,
        nodes: defaults::NODES,
        cpus: defaults::CPUS,
        memory_mib: defaults::MEMORY_MIB,
        gpus: 0,
        gpu_type: None,
        walltime_min: defaults::WALLTIME_MIN,
    }
}
