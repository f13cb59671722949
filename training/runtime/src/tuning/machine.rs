//! What measurements are valid for: the shape of the group and the machine it is on.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::choice::Topology;
use crate::memory::segment::available;
use crate::world::Encryption;

/// What is known of where ranks run before anything is measured.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Cores that the ranks of a node share.
    pub(crate) cores: usize,
    /// The MPI in use: its name, version and file.
    pub(crate) mpi: Option<String>,
    /// Whether what goes to other nodes without MPI is encrypted.
    pub(crate) encryption: Encryption,
}

/// What measurements are valid for. Where anything of it differs they are made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    /// The node of each rank, numbered in the order of the lowest ranks.
    pub(crate) nodes: Vec<u32>,
    /// The processor's model.
    processor: String,
    /// Cores that the ranks of a node share.
    cores: usize,
    /// Memories with processors of their own.
    memories: usize,
    /// The MPI that carries messages between nodes and has collectives of its own; none if there is none.
    pub(crate) mpi: Option<String>,
    /// Whether what goes between nodes is encrypted; none where nothing goes there without MPI.
    encryption: Option<Encryption>,
    /// Of this package.
    version: String,
}

impl Key {
    /// Of ranks on this machine and others like it.
    pub(crate) fn of(topology: &Topology, machine: &Machine) -> Self {
        Self {
            nodes: topology.nodes().to_vec(),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: machine.cores,
            memories: memories(),
            mpi: machine.mpi.clone(),
            encryption: (machine.mpi.is_none() && topology.nodes().iter().any(|node| *node > 0))
                .then_some(machine.encryption),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The name of its file.
    pub(crate) fn file_name(&self) -> String {
        let text = format!("{self:?}");
        // FNV-1a. The file says the whole key, so nothing rests on there being no other with this number.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("algorithms-{hash:016x}.json")
    }
}

/// The processor's model, out of `/proc/cpuinfo`; where that does not name one, what it says of who made it.
fn processor(information: &str) -> String {
    let field = |name: &str| {
        let mut values = information.lines().filter_map(|line| line.split_once(':'));
        values.find(|(field, _)| field.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let made = || {
        let parts: Vec<String> = ["CPU implementer", "CPU part", "CPU variant"].into_iter().filter_map(field).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    };
    let known = field("model name").or_else(made).unwrap_or_default();
    format!("{} {known}", std::env::consts::ARCH).trim_end().to_owned()
}

fn memories() -> usize {
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return 1 };
    let is_node = |name: &str| {
        name.strip_prefix("node").is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

/// Bytes that a rank may use of what is left of this node's memory.
pub(crate) fn memory_left(local_ranks: usize) -> usize {
    let left = available().unwrap_or(1 << 30);
    // Most of it is somebody else's to use.
    left / 4 / local_ranks.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_as_well_as_the_system_can() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) CPU\n\nprocessor\t: 1\n";
        assert!(processor(x86).ends_with(" Intel(R) Xeon(R) CPU"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n";
        assert!(processor(arm).ends_with(" 0x41 0xd40 0x1"));
        assert_eq!(processor(""), std::env::consts::ARCH);
    }

    #[test]
    fn some_memory_is_left() {
        assert!(memory_left(2) > 0);
    }

    fn machine(cores: usize, mpi: Option<&str>, encryption: Encryption) -> Machine {
        Machine { cores, mpi: mpi.map(str::to_owned), encryption }
    }

    #[test]
    fn another_shape_or_machine_is_another_file() {
        let key = |nodes: &[u32], cores| Key::of(&Topology::new(nodes), &machine(cores, None, Encryption::On));
        let name = key(&[0, 0, 1, 1], 2).file_name();
        assert_eq!(name, key(&[5, 5, 9, 9], 2).file_name(), "nodes are told apart, not named");
        for other in [key(&[0, 1, 0, 1], 2), key(&[0, 0, 1], 2), key(&[0, 0, 1, 1], 3)] {
            assert_ne!(name, other.file_name());
        }
        let nodes = Topology::new(&[0, 0, 1, 1]);
        for other in [machine(2, Some("MPICH 4"), Encryption::On), machine(2, None, Encryption::Off)] {
            assert_ne!(name, Key::of(&nodes, &other).file_name());
        }
        // In a node, or where MPI carries everything, it is all the same.
        for (nodes, mpi) in [(&[0, 0][..], None), (&[0, 1], Some("MPICH 4"))] {
            let name = |encryption| Key::of(&Topology::new(nodes), &machine(2, mpi, encryption)).file_name();
            assert_eq!(name(Encryption::On), name(Encryption::Off));
        }
    }
}
