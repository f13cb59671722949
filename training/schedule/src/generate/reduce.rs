//! Reduce to one rank.
//!
//! The binomial tree is broadcast's, upwards. Chains below and a tree of their heads above: Awan et al., "S-Caffe: Co-designing MPI
//! runtimes and Caffe for scalable deep learning on modern GPU clusters", 2017. Partial results lie in the scratch, for the outputs of other
//! ranks are not theirs to touch.

use super::broadcast::{children, parent};
use super::draft::{Draft, ascending, before, combine, input, one, output, scratch, send};
use crate::ir::{Rank, Step};

/// Everybody to the root.
pub(super) fn direct(ranks: u32, root: Rank, segments: u32) -> Draft {
    Draft::whole(ranks, segments, |rank| {
        let step = |segment| {
            if rank == root {
                combine(ascending(root, ranks), input(one(segment)), output(one(segment)), true)
            } else {
                send(root, input(one(segment)))
            }
        };
        (0..segments).map(step).collect()
    })
}

/// Each rank combines a block out of everybody's input into the root's output.
pub(super) fn shared(ranks: u32, root: Rank) -> Draft {
    Draft::whole(ranks, ranks, |rank| {
        let own = Step::RemoteCombine {
            from: (0..ranks).collect(),
            chunks: one(rank),
            into: vec![root],
            at: rank,
            finish: true,
        };
        vec![Step::Fence, own, Step::Fence]
    })
}

/// Up a binomial tree.
pub(super) fn binomial(ranks: u32, root: Rank) -> Draft {
    chain_binomial(ranks, root, 1, 1)
}

/// Up chains of so many ranks, then up a binomial tree of their heads, segment by segment.
pub(super) fn chain_binomial(ranks: u32, root: Rank, chain: u32, segments: u32) -> Draft {
    let heads = ranks.div_ceil(chain);
    Draft::whole(ranks, segments, |rank| {
        let place = before(rank, root, ranks);
        let is_head = place.is_multiple_of(chain);
        let mut below = Vec::new();
        if place + 1 < ranks && !(place + 1).is_multiple_of(chain) {
            below.push(place + 1);
        }
        if is_head {
            below.extend(children(place / chain, heads).map(|head| head * chain));
        }
        let mut from: Vec<Rank> = below.into_iter().map(|place| (place + root) % ranks).collect();
        from.sort_unstable();
        let above = if is_head { parent(place / chain).map(|head| head * chain) } else { Some(place - 1) };
        let mut program = Vec::new();
        for segment in 0..segments {
            let result = match above {
                None => output(one(segment)),
                Some(_) if from.is_empty() => input(one(segment)),
                Some(_) => scratch(one(segment)),
            };
            if !from.is_empty() {
                program.push(combine(from.clone(), input(one(segment)), result.clone(), above.is_none()));
            }
            program.extend(above.map(|place| send((place + root) % ranks, result)));
        }
        program
    })
}
