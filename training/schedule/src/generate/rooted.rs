//! Gather to one rank and scatter from it.
//!
//! Only the root knows how long the other ranks' blocks are, so nobody else can pass them on or find them in place: there are no trees here,
//! and nothing between memories.

use super::draft::{Draft, copy, input, one, others, output, receive, send};
use crate::ir::Rank;

/// Everybody's block to the root.
pub(super) fn gather(ranks: u32, root: Rank, segments: u32) -> Draft {
    Draft::new(ranks, (segments, ranks * segments), |rank| {
        if rank != root {
            return (0..segments).map(|segment| send(root, input(one(segment)))).collect();
        }
        let own = output(root * segments..(root + 1) * segments);
        let mut program = vec![copy(input(0..segments), own)];
        for segment in 0..segments {
            program.extend(others(root, ranks).map(|from| receive(from, output(one(from * segments + segment)))));
        }
        program
    })
}

/// The root's blocks to everybody.
pub(super) fn scatter(ranks: u32, root: Rank, segments: u32) -> Draft {
    Draft::new(ranks, (ranks * segments, segments), |rank| {
        if rank != root {
            return (0..segments).map(|segment| receive(root, output(one(segment)))).collect();
        }
        let block = |to: Rank, segment| input(one(to * segments + segment));
        let sends = (0..segments).flat_map(|segment| others(root, ranks).map(move |to| send(to, block(to, segment))));
        let own = input(root * segments..(root + 1) * segments);
        sends.chain([copy(own, output(0..segments))]).collect()
    })
}
