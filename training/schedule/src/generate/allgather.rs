//! Allgather.
//!
//! Ring and recursive doubling: Thakur, Rabenseifner and Gropp, 2005. Bruck et al., "Efficient algorithms for all-to-all communications in
//! multiport message-passing systems", 1997: a logarithmic number of rounds for every number of ranks. Here blocks lie at their final places
//! from the beginning, so that they may be of different lengths and nothing is turned round at the end; a message that would reach beyond
//! the last block is sent as two.

use std::ops::Range;

use super::draft::{Draft, before, copy, input, one, others, output, receive, send};
use crate::ir::{Rank, Step};

/// Everybody's block straight to everybody.
pub(super) fn direct(ranks: u32, segments: u32) -> Draft {
    Draft::new(ranks, (segments, ranks * segments), |rank| {
        let mut program = Vec::new();
        for turn in 0..=segments {
            if turn < segments {
                program.extend(others(rank, ranks).map(|to| send(to, input(one(turn)))));
            }
            match turn.checked_sub(1) {
                None => program.push(copy(input(0..segments), output(rank * segments..(rank + 1) * segments))),
                Some(last) => {
                    program.extend(others(rank, ranks).map(|from| receive(from, output(one(from * segments + last)))));
                }
            }
        }
        program
    })
}

/// Everybody reads everybody's input.
pub(super) fn shared(ranks: u32) -> Draft {
    Draft::new(ranks, (1, ranks), |rank| {
        let mut program = vec![Step::Fence, copy(input(one(0)), output(one(rank)))];
        program.extend(others(rank, ranks).map(|of| Step::RemoteCopy { of, from: input(one(0)), to: output(one(of)) }));
        program.push(Step::Fence);
        program
    })
}

/// Blocks go round the ring.
pub(super) fn ring(ranks: u32) -> Draft {
    Draft::new(ranks, (1, ranks), |rank| {
        let (left, right) = (before(rank, 1, ranks), (rank + 1) % ranks);
        let mut program = vec![send(right, input(one(0))), copy(input(one(0)), output(one(rank)))];
        for round in 1..ranks {
            let block = one(before(rank, round, ranks));
            program.push(receive(left, output(block.clone())));
            if round < ranks - 1 {
                program.push(send(right, output(block)));
            }
        }
        program
    })
}

/// All that is there, from ranks at distances 1, 2, 4, …
pub(super) fn bruck(ranks: u32) -> Draft {
    Draft::new(ranks, (1, ranks), |rank| {
        let mut program = vec![copy(input(one(0)), output(one(rank)))];
        let mut distance = 1;
        while distance < ranks {
            let count = distance.min(ranks - distance);
            let (to, from) = (before(rank, distance, ranks), (rank + distance) % ranks);
            program.extend(round_the_end(rank, count, ranks).map(|blocks| send(to, output(blocks))));
            program.extend(round_the_end(from, count, ranks).map(|blocks| receive(from, output(blocks))));
            distance *= 2;
        }
        program
    })
}

/// All that is there, between partners at distances 1, 2, 4, …; for powers of two.
pub(super) fn doubling(ranks: u32) -> Draft {
    Draft::new(ranks, (1, ranks), |rank| {
        let mut program = vec![copy(input(one(0)), output(one(rank)))];
        for distance in (0..ranks.ilog2()).map(|round| 1 << round) {
            let partner = rank ^ distance;
            let blocks = |of: Rank| output(of & !(distance - 1)..(of & !(distance - 1)) + distance);
            program.push(send(partner, blocks(rank)));
            program.push(receive(partner, blocks(partner)));
        }
        program
    })
}

/// Some blocks from `start` on, round the end of all, as one span or two.
fn round_the_end(start: u32, count: u32, blocks: u32) -> impl Iterator<Item = Range<u32>> {
    let end = start + count;
    [start..end.min(blocks), 0..end.saturating_sub(blocks)].into_iter().filter(|range| !range.is_empty())
}
