//! Which algorithm is taken for which call, and why.

use eirene_train_schedule::{Algorithm, Collective};

/// Which node each rank of a group is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    nodes: Vec<u32>,
}

impl Topology {
    /// Of the nodes by rank, whatever their numbers.
    pub(crate) fn new(nodes: &[u32]) -> Self {
        let mut seen = Vec::new();
        let nodes = nodes
            .iter()
            .map(|node| {
                let index = seen.iter().position(|known| known == node).unwrap_or_else(|| {
                    seen.push(*node);
                    seen.len() - 1
                });
                index as u32
            })
            .collect();
        Self { nodes }
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.iter().max().map_or(0, |most| *most as usize + 1)
    }

    pub(crate) fn is_one_node(&self) -> bool {
        self.node_count() <= 1
    }
}

/// How a call is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// By a schedule of ours.
    Schedule(Algorithm),
    /// By MPI's own collective.
    Mpi,
}

/// A way, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) way: Way,
    pub(crate) because: String,
}

/// Up to here everybody sends everything to everybody: one step, and no more bytes than what a head costs.
const TINY: usize = 4 << 10;
/// What two ranks pass on at a time: measured; it has to stay in a core's second-level cache together with what it is combined with.
const PIECE: usize = 256 << 10;
/// Most segments of a schedule; larger buffers get larger segments.
const MOST_SEGMENTS: usize = 1024;

/// Chooses. `shared`: all buffers lie where all ranks can reach them.
pub(crate) fn choose(collective: Collective, bytes: usize, topology: &Topology, shared: bool) -> Choice {
    let ranks = topology.ranks() as usize;
    let of = |algorithm, because: &str| Choice { way: Way::Schedule(algorithm), because: because.to_owned() };
    if shared {
        return of(
            Algorithm::Shared,
            "shared: every buffer is in memory that all ranks reach, so each is read and written once, in place",
        );
    }
    let segments = |piece: usize| (bytes / piece.max(1)).clamp(1, MOST_SEGMENTS) as u32;
    if !topology.is_one_node() {
        return far(collective, bytes, topology);
    }
    match collective {
        Collective::AllReduce if bytes <= TINY || ranks == 1 => {
            of(Algorithm::Exchange, "exchange: so short that one step counts more than bytes")
        }
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce { .. } => of(
            Algorithm::Direct { segments: segments(PIECE * ranks) },
            "direct: within a node every rank is one step away, and each block is combined once, by its owner",
        ),
        Collective::Barrier => of(Algorithm::Dissemination, "dissemination: the fewest rounds"),
        Collective::Broadcast { .. } => {
            of(Algorithm::Direct { segments: segments(PIECE) }, "direct: within a node every rank is one step away")
        }
        Collective::AllGather | Collective::AllToAll | Collective::Gather { .. } | Collective::Scatter { .. } => {
            of(Algorithm::Direct { segments: 1 }, "direct: within a node every rank is one step away")
        }
    }
}

/// Between nodes.
fn far(collective: Collective, bytes: usize, topology: &Topology) -> Choice {
    let of = |algorithm, because: &str| Choice { way: Way::Schedule(algorithm), because: because.to_owned() };
    match collective {
        Collective::AllReduce if bytes <= 32 << 10 => {
            of(Algorithm::Doubling, "doubling: short, so few rounds count more than bytes")
        }
        Collective::AllReduce => {
            let nodes = topology.nodes.clone();
            of(
                Algorithm::TwoLevel { nodes, segments: (bytes / (4 << 20)).clamp(1, 64) as u32 },
                "two levels: as few bytes as possible between nodes, the rest within them",
            )
        }
        Collective::Broadcast { .. } | Collective::Reduce { .. } => of(Algorithm::Binomial, "binomial: few rounds"),
        Collective::ReduceScatter | Collective::AllGather => {
            of(Algorithm::Ring, "ring: every byte crosses each link once")
        }
        Collective::AllToAll => of(Algorithm::Pairwise, "pairwise: one partner after the other"),
        Collective::Gather { .. } | Collective::Scatter { .. } => {
            of(Algorithm::Direct { segments: 1 }, "direct: every block goes where it belongs")
        }
        Collective::Barrier => of(Algorithm::Dissemination, "dissemination: the fewest rounds"),
    }
}
