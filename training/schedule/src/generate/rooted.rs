//! Gather to one rank and scatter from it.
//!
//! Only the root knows how long the other ranks' blocks are, so nobody else can pass them on: there are no trees here.

use super::draft::{Draft, copy, input, one, others, output, receive, send};
use crate::ir::{Rank, Step};

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

/// The root reads everybody's input.
pub(super) fn gather_shared(ranks: u32, root: Rank) -> Draft {
    Draft::new(ranks, (1, ranks), |rank| {
        let mut program = vec![Step::Fence];
        if rank == root {
            program.push(copy(input(one(0)), output(one(root))));
            program.extend(others(root, ranks).map(|of| Step::RemoteCopy {
                of,
                from: input(one(0)),
                to: output(one(of)),
            }));
        }
        program.push(Step::Fence);
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

/// Everybody reads what is his from the root's input.
pub(super) fn scatter_shared(ranks: u32, root: Rank) -> Draft {
    Draft::new(ranks, (ranks, 1), |rank| {
        let get = if rank == root {
            copy(input(one(root)), output(one(0)))
        } else {
            Step::RemoteCopy { of: root, from: input(one(rank)), to: output(one(0)) }
        };
        vec![Step::Fence, get, Step::Fence]
    })
}
