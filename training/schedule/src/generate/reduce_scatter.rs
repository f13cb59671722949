//! Reduce-scatter.
//!
//! Ring and pairwise exchange: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005. All of
//! them send n(p−1)/p from each rank; direct and pairwise need no scratch, the ring has only neighbours.

use super::draft::{Draft, ascending, before, combine, input, one, others, output, scratch, send};
use crate::ir::Step;

/// Every block straight to its owner, who combines all at once; segment s + 1 is on its way while segment s is combined.
pub(super) fn direct(ranks: u32, segments: u32) -> Draft {
    Draft::new(ranks, (ranks * segments, segments), |rank| {
        let mut program = Vec::new();
        for turn in 0..=segments {
            if turn < segments {
                program.extend(others(rank, ranks).map(|to| send(to, input(one(to * segments + turn)))));
            }
            if let Some(last) = turn.checked_sub(1) {
                let own = input(one(rank * segments + last));
                program.push(combine(ascending(rank, ranks), own, output(one(last)), true));
            }
        }
        program
    })
}

/// Each rank combines its block out of everybody's input.
pub(super) fn shared(ranks: u32) -> Draft {
    Draft::new(ranks, (ranks, 1), |rank| {
        let own = Step::RemoteCombine {
            from: (0..ranks).collect(),
            chunks: one(rank),
            into: vec![rank],
            at: 0,
            finish: true,
        };
        vec![Step::Fence, own, Step::Fence]
    })
}

/// Blocks go round the ring, collect, and end at their owner.
pub(super) fn ring(ranks: u32) -> Draft {
    Draft::new(ranks, (ranks, 1), |rank| {
        let (left, right) = (before(rank, 1, ranks), (rank + 1) % ranks);
        let mut program = vec![send(right, input(one(left)))];
        for round in 2..ranks {
            let block = one(before(rank, round, ranks));
            program.push(combine(vec![left], input(block.clone()), scratch(block.clone()), false));
            program.push(send(right, scratch(block)));
        }
        program.push(combine(vec![left], input(one(rank)), output(one(0)), true));
        program
    })
}

/// With one partner after the other.
pub(super) fn pairwise(ranks: u32) -> Draft {
    Draft::new(ranks, (ranks, 1), |rank| {
        let mut program = Vec::new();
        for distance in 1..ranks {
            let (to, from) = ((rank + distance) % ranks, before(rank, distance, ranks));
            let own = if distance == 1 { input(one(rank)) } else { output(one(0)) };
            program.push(send(to, input(one(to))));
            program.push(combine(vec![from], own, output(one(0)), distance == ranks - 1));
        }
        program
    })
}
