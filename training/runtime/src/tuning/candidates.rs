//! What may be tried for a collective of a size: the algorithms that `eirene-train-schedule` offers, cut into pieces of several sizes.

use eirene_train_schedule::{Algorithm, Collective, algorithms};

use crate::choice::{Topology, Way};

/// Most segments of a schedule; larger buffers get larger segments.
pub(crate) const MOST_SEGMENTS: u32 = 1024;
/// Most ranks times segments, as `eirene-train-schedule` has it.
const MOST_BLOCKS: u32 = 65536;

/// Bytes that follow each other through a schedule within a node.
const PIECES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
/// The same for schedules with a level between nodes.
const FAR_PIECES: [usize; 2] = [1 << 20, 4 << 20];

/// Something that may be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What it is called whatever the size: the algorithm in one segment, and the bytes of its pieces.
    pub(super) id: (Way, Option<usize>),
    /// What it is for the size.
    pub(super) way: Way,
}

/// The same with so many segments, or with the nearest number there can be; unchanged if it has none.
pub(crate) fn with_segments(algorithm: &Algorithm, wanted: usize, ranks: u32) -> Algorithm {
    let most = MOST_SEGMENTS.min(MOST_BLOCKS / ranks.max(1)).max(1);
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most);
    let mut algorithm = algorithm.clone();
    if let Some(segments) = algorithm.segments_mut() {
        *segments = wanted;
    }
    algorithm
}

/// The same in pieces of so many bytes.
pub(crate) fn in_pieces(
    collective: Collective,
    algorithm: &Algorithm,
    bytes: usize,
    piece: usize,
    ranks: u32,
) -> Algorithm {
    let cuts_blocks = match collective {
        Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => {
            !matches!(algorithm, Algorithm::TwoLevel { .. })
        }
        Collective::Broadcast { .. }
        | Collective::Reduce { .. }
        | Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::Barrier => false,
    };
    let blocks = if cuts_blocks { ranks as usize } else { 1 };
    with_segments(algorithm, bytes / (piece * blocks), ranks)
}

/// The algorithm without its numbers.
fn family(algorithm: &Algorithm) -> Algorithm {
    match with_segments(algorithm, 1, 1) {
        Algorithm::ChainBinomial { segments, .. } => Algorithm::ChainBinomial { chain: 2, segments },
        other => other,
    }
}

/// Whether the collective has the algorithm, for these ranks on these nodes.
pub(crate) fn is_offered(collective: Collective, algorithm: &Algorithm, topology: &Topology) -> bool {
    let ranks = topology.ranks();
    let has_sense = match algorithm {
        Algorithm::ChainBinomial { chain, .. } => *chain > 0,
        _ => true,
    };
    let fits = algorithm.segments().is_none_or(|segments| {
        segments > 0 && segments <= MOST_SEGMENTS && segments.saturating_mul(ranks) <= MOST_BLOCKS
    });
    let wanted = family(algorithm);
    has_sense
        && fits
        && algorithms(collective, ranks, topology.nodes(), true).iter().any(|offered| family(offered) == wanted)
}

/// Everything that may be tried without arenas, each schedule once. `mpi`: MPI itself can do it.
pub(super) fn candidates(collective: Collective, bytes: usize, topology: &Topology, mpi: bool) -> Vec<Candidate> {
    let ranks = topology.ranks();
    let mut list: Vec<Candidate> = Vec::new();
    let mut add = |one: &Algorithm, piece, algorithm| {
        let way = Way::Schedule(algorithm);
        if !list.iter().any(|known| known.way == way) {
            list.push(Candidate { id: (Way::Schedule(one.clone()), piece), way });
        }
    };
    for offered in algorithms(collective, ranks, topology.nodes(), false) {
        let one = with_segments(&offered, 1, ranks);
        add(&one, None, one.clone());
        let pieces: &[usize] = match (one.segments(), &one) {
            (None, _) => &[],
            (Some(_), Algorithm::TwoLevel { .. }) => &FAR_PIECES,
            (Some(_), _) => &PIECES,
        };
        for piece in pieces {
            add(&one, Some(*piece), in_pieces(collective, &one, bytes, *piece, ranks));
        }
    }
    // A ring in one segment is the ring.
    list.retain(|candidate| candidate.way != Way::Schedule(Algorithm::SegmentedRing { segments: 1 }));
    if mpi {
        list.push(Candidate { id: (Way::Mpi, None), way: Way::Mpi });
    }
    list
}

#[cfg(test)]
mod tests {
    use eirene_train_schedule::generate;

    use super::*;

    #[test]
    fn every_candidate_is_a_schedule_and_none_is_there_twice() {
        for nodes in [vec![0, 0], vec![0, 0, 0], vec![0, 0, 1, 1], vec![0, 1, 2, 0, 1]] {
            let topology = Topology::new(&nodes);
            for collective in super::super::MEASURED {
                for bytes in [1 << 10, 1 << 20, 64 << 20] {
                    let list = candidates(collective, bytes, &topology, true);
                    assert!(list.len() > 1, "{collective} on {nodes:?}");
                    for (index, candidate) in list.iter().enumerate() {
                        assert!(list[..index].iter().all(|other| other.way != candidate.way));
                        let Way::Schedule(algorithm) = &candidate.way else { continue };
                        assert!(generate(collective, algorithm, topology.ranks()).is_ok(), "{candidate:?}");
                        assert!(is_offered(collective, algorithm, &topology), "{candidate:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_are_of_the_size_that_is_wanted() {
        let one = Algorithm::Direct { segments: 1 };
        let cut = |collective, bytes| in_pieces(collective, &one, bytes, 256 << 10, 4);
        assert_eq!(cut(Collective::AllReduce, 16 << 20), Algorithm::Direct { segments: 16 });
        assert_eq!(cut(Collective::Broadcast { root: 0 }, 16 << 20), Algorithm::Direct { segments: 64 });
        assert_eq!(cut(Collective::AllReduce, 100), one);
        assert_eq!(with_segments(&one, 5000, 2), Algorithm::Direct { segments: 1024 });
        assert_eq!(with_segments(&Algorithm::Ring, 7, 2), Algorithm::Ring);
    }

    #[test]
    fn what_is_not_offered_is_known() {
        let three = Topology::new(&[0, 0, 0]);
        let offered = |collective, algorithm: Algorithm| is_offered(collective, &algorithm, &three);
        assert!(offered(Collective::AllReduce, Algorithm::SegmentedRing { segments: 7 }));
        assert!(offered(Collective::Reduce { root: 0 }, Algorithm::ChainBinomial { chain: 3, segments: 5 }));
        assert!(!offered(Collective::AllGather, Algorithm::Doubling), "three is no power of two");
        assert!(!offered(Collective::AllReduce, Algorithm::TwoLevel { nodes: vec![0; 3], segments: 1 }));
        assert!(!offered(Collective::AllReduce, Algorithm::Binomial));
        assert!(!offered(Collective::AllReduce, Algorithm::Direct { segments: 0 }));
    }
}
