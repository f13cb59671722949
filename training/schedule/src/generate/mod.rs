//! Writes the programs of collectives.
//!
//! One file for each family; each says where its algorithms come from. What is written here is not trusted: the verifier proves it.

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod broadcast;
mod draft;
mod reduce;
mod reduce_scatter;
mod rooted;
mod two_level;

use self::draft::Draft;
use crate::ir::{Algorithm, Collective, Rank, Schedule};
use crate::verify::MAX_RANKS;

/// Segments a schedule can have.
pub(crate) const MAX_SEGMENTS: u32 = 4096;
/// Ranks times segments.
const MAX_BLOCKS: u32 = 65536;

/// Why no schedule is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The algorithm does not do that collective.
    #[error("`{algorithm}` does not do {collective}")]
    NotThis {
        /// Which collective.
        collective: Collective,
        /// Which algorithm.
        algorithm: Algorithm,
    },
    /// Too few or too many ranks.
    #[error("{ranks} ranks, schedules are for 1 to {MAX_RANKS}")]
    Ranks {
        /// How many were asked for.
        ranks: u32,
    },
    /// The algorithm does not do it for that number of ranks.
    #[error("`{algorithm}` needs a power of two of ranks, not {ranks}")]
    PowerOfTwo {
        /// Which algorithm.
        algorithm: Algorithm,
        /// How many were asked for.
        ranks: u32,
    },
    /// The root is not one of the ranks.
    #[error("root {root} is not one of {ranks} ranks")]
    Root {
        /// The root asked for.
        root: Rank,
        /// How many ranks there are.
        ranks: u32,
    },
    /// Not exactly one node is given for each rank.
    #[error("nodes of {given} ranks are given, there are {ranks}")]
    Nodes {
        /// How many are given.
        given: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// No segments, or too many; or a chain of no ranks.
    #[error("{segments} is not a sensible number of segments or of ranks in a chain, for {ranks} ranks")]
    Segments {
        /// How many were asked for.
        segments: u32,
        /// How many ranks there are.
        ranks: u32,
    },
}

type Writer<'a> = Box<dyn FnOnce(u32) -> Draft + 'a>;

/// Writes the schedule of a collective.
pub fn generate(collective: Collective, algorithm: &Algorithm, ranks: u32) -> Result<Schedule, Refused> {
    if ranks == 0 || ranks > MAX_RANKS {
        return Err(Refused::Ranks { ranks });
    }
    if let Some(root) = collective.root().filter(|root| *root >= ranks) {
        return Err(Refused::Root { root, ranks });
    }
    let Some(writer) = writer(collective, algorithm) else {
        return Err(Refused::NotThis { collective, algorithm: algorithm.clone() });
    };
    parameters(collective, algorithm, ranks)?;
    let draft = if ranks == 1 { draft::alone(collective) } else { writer(ranks) };
    Ok(draft.schedule(collective, algorithm.clone()))
}

fn parameters(collective: Collective, algorithm: &Algorithm, ranks: u32) -> Result<(), Refused> {
    match algorithm {
        Algorithm::TwoLevel { nodes, .. } if nodes.len() != ranks as usize => {
            return Err(Refused::Nodes { given: nodes.len(), ranks });
        }
        Algorithm::ChainBinomial { chain: 0, .. } => return Err(Refused::Segments { segments: 0, ranks }),
        Algorithm::Doubling if collective == Collective::AllGather && !ranks.is_power_of_two() => {
            return Err(Refused::PowerOfTwo { algorithm: algorithm.clone(), ranks });
        }
        _ => {}
    }
    let segments = algorithm.segments().unwrap_or(1);
    if segments == 0 || segments > MAX_SEGMENTS || segments * ranks > MAX_BLOCKS {
        return Err(Refused::Segments { segments, ranks });
    }
    Ok(())
}

/// Who writes it, for two ranks and more.
fn writer(collective: Collective, algorithm: &Algorithm) -> Option<Writer<'_>> {
    use Algorithm as A;
    Some(match (collective, algorithm) {
        (Collective::AllReduce, A::Direct { segments }) => Box::new(|p| allreduce::direct(p, *segments)),
        (Collective::AllReduce, A::Exchange) => Box::new(allreduce::exchange),
        (Collective::AllReduce, A::Shared) => Box::new(allreduce::shared),
        (Collective::AllReduce, A::Ring) => Box::new(|p| allreduce::ring(p, 1)),
        (Collective::AllReduce, A::SegmentedRing { segments }) => Box::new(|p| allreduce::ring(p, *segments)),
        (Collective::AllReduce, A::Doubling) => Box::new(allreduce::doubling),
        (Collective::AllReduce, A::HalvingDoubling) => Box::new(allreduce::halving_doubling),
        (Collective::AllReduce, A::TwoLevel { nodes, segments }) => {
            Box::new(|_| two_level::allreduce(nodes, *segments))
        }
        (Collective::Broadcast { root }, A::Direct { segments }) => {
            Box::new(move |p| broadcast::direct(p, root, *segments))
        }
        (Collective::Broadcast { root }, A::Shared) => Box::new(move |p| broadcast::shared(p, root)),
        (Collective::Broadcast { root }, A::Binomial) => Box::new(move |p| broadcast::binomial(p, root)),
        (Collective::Broadcast { root }, A::Chain { segments }) => {
            Box::new(move |p| broadcast::chain(p, root, *segments))
        }
        (Collective::Broadcast { root }, A::ScatterAllGather) => {
            Box::new(move |p| broadcast::scatter_allgather(p, root))
        }
        (Collective::Broadcast { root }, A::TwoLevel { nodes, segments }) => {
            Box::new(move |_| two_level::broadcast(nodes, root, *segments))
        }
        (Collective::Reduce { root }, A::Direct { segments }) => Box::new(move |p| reduce::direct(p, root, *segments)),
        (Collective::Reduce { root }, A::Shared) => Box::new(move |p| reduce::shared(p, root)),
        (Collective::Reduce { root }, A::Binomial) => Box::new(move |p| reduce::binomial(p, root)),
        (Collective::Reduce { root }, A::ChainBinomial { chain, segments }) => {
            Box::new(move |p| reduce::chain_binomial(p, root, *chain, *segments))
        }
        (Collective::ReduceScatter, A::Direct { segments }) => Box::new(|p| reduce_scatter::direct(p, *segments)),
        (Collective::ReduceScatter, A::Shared) => Box::new(reduce_scatter::shared),
        (Collective::ReduceScatter, A::Ring) => Box::new(reduce_scatter::ring),
        (Collective::ReduceScatter, A::Pairwise) => Box::new(reduce_scatter::pairwise),
        (Collective::AllGather, A::Direct { segments }) => Box::new(|p| allgather::direct(p, *segments)),
        (Collective::AllGather, A::Shared) => Box::new(allgather::shared),
        (Collective::ReduceScatter, A::TwoLevel { nodes, segments }) => {
            Box::new(|_| two_level::reduce_scatter(nodes, *segments))
        }
        (Collective::AllGather, A::TwoLevel { nodes, segments }) => {
            Box::new(|_| two_level::allgather(nodes, *segments))
        }
        (Collective::AllGather, A::Ring) => Box::new(allgather::ring),
        (Collective::AllGather, A::Bruck) => Box::new(allgather::bruck),
        (Collective::AllGather, A::Doubling) => Box::new(allgather::doubling),
        (Collective::AllToAll, A::Direct { segments }) => Box::new(|p| alltoall::direct(p, *segments)),
        (Collective::AllToAll, A::Pairwise) => Box::new(alltoall::pairwise),
        (Collective::Gather { root }, A::Direct { segments }) => Box::new(move |p| rooted::gather(p, root, *segments)),
        (Collective::Scatter { root }, A::Direct { segments }) => {
            Box::new(move |p| rooted::scatter(p, root, *segments))
        }
        (Collective::Barrier, A::Dissemination) => Box::new(barrier::dissemination),
        _ => return None,
    })
}

/// What may be tried: every algorithm that does the collective for these ranks, some with several numbers of segments. `nodes` says which
/// node each rank is on; algorithms between memories are named only where `shared_memory` says that all ranks share it.
pub fn algorithms(collective: Collective, ranks: u32, nodes: &[u32], shared_memory: bool) -> Vec<Algorithm> {
    use Algorithm as A;
    let direct = |list: &[u32]| list.iter().map(|&segments| A::Direct { segments }).collect::<Vec<_>>();
    let several = nodes.len() == ranks as usize && nodes.iter().any(|node| *node != nodes[0]);
    let two_level = |list: &[u32]| -> Vec<Algorithm> {
        let some = if several { list } else { &[] };
        some.iter().map(|&segments| A::TwoLevel { nodes: nodes.to_vec(), segments }).collect()
    };
    let mut list = match collective {
        Collective::AllReduce => [
            vec![A::Exchange, A::Doubling, A::HalvingDoubling, A::Ring],
            direct(&[1, 2, 4, 8, 16, 32]),
            [2, 4, 8].map(|segments| A::SegmentedRing { segments }).to_vec(),
            two_level(&[1, 4, 16]),
        ]
        .concat(),
        Collective::Broadcast { .. } => [
            vec![A::Binomial, A::ScatterAllGather],
            direct(&[1, 8]),
            [4, 8, 16, 32, 64, 128].map(|segments| A::Chain { segments }).to_vec(),
            two_level(&[1, 4, 16, 64]),
        ]
        .concat(),
        Collective::Reduce { .. } => {
            let chains =
                [(2, 8), (4, 8), (4, 32), (8, 32)].map(|(chain, segments)| A::ChainBinomial { chain, segments });
            [vec![A::Binomial], direct(&[1, 8]), chains.to_vec()].concat()
        }
        Collective::ReduceScatter => [vec![A::Ring, A::Pairwise], direct(&[1, 4, 16]), two_level(&[1, 4])].concat(),
        Collective::AllGather => [vec![A::Ring, A::Bruck, A::Doubling], direct(&[1, 4]), two_level(&[1, 4])].concat(),
        Collective::AllToAll => [vec![A::Pairwise], direct(&[1, 4])].concat(),
        Collective::Gather { .. } | Collective::Scatter { .. } => direct(&[1, 4]),
        Collective::Barrier => vec![A::Dissemination],
    };
    if shared_memory && writer(collective, &A::Shared).is_some() {
        list.push(A::Shared);
    }
    list.retain(|algorithm| parameters(collective, algorithm, ranks).is_ok());
    list
}
