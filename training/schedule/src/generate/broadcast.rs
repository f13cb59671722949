//! Broadcast.
//!
//! The binomial tree is as old as MPI. The chain of segments pays (p − 2 + s) steps of n/s each and is best for large buffers on few links.
//! Scatter with a ring allgather: van de Geijn, "On global combine operations", 1994, and Barnett et al., "Interprocessor collective
//! communication library", 1994; here blocks that a rank has from the scatter do not come to it a second time.

use std::ops::Range;

use super::draft::{Draft, before, copy, input, one, others, output, receive, send};
use crate::ir::{Rank, Step};

/// The root to everybody.
pub(super) fn direct(ranks: u32, root: Rank, segments: u32) -> Draft {
    Draft::whole(ranks, segments, |rank| {
        if rank != root {
            return (0..segments).map(|segment| receive(root, output(one(segment)))).collect();
        }
        let sends = (0..segments).flat_map(|segment| others(root, ranks).map(move |to| send(to, input(one(segment)))));
        sends.chain([copy(input(0..segments), output(0..segments))]).collect()
    })
}

/// Everybody reads the root's input.
pub(super) fn shared(ranks: u32, root: Rank) -> Draft {
    Draft::whole(ranks, 1, |rank| {
        let get = if rank == root {
            copy(input(one(0)), output(one(0)))
        } else {
            Step::RemoteCopy { of: root, from: input(one(0)), to: output(one(0)) }
        };
        vec![Step::Fence, get, Step::Fence]
    })
}

/// Down a binomial tree.
pub(super) fn binomial(ranks: u32, root: Rank) -> Draft {
    Draft::whole(ranks, 1, |rank| {
        let place = before(rank, root, ranks);
        let mut program = Vec::new();
        if let Some(parent) = parent(place) {
            program.push(receive((parent + root) % ranks, output(one(0))));
        }
        let have = if place == 0 { input } else { output };
        program.extend(children(place, ranks).map(|child| send((child + root) % ranks, have(one(0)))));
        if place == 0 {
            program.push(copy(input(one(0)), output(one(0))));
        }
        program
    })
}

/// Along a chain, segment by segment.
pub(super) fn chain(ranks: u32, root: Rank, segments: u32) -> Draft {
    Draft::whole(ranks, segments, |rank| {
        let place = before(rank, root, ranks);
        let mut program = Vec::new();
        for segment in 0..segments {
            if place > 0 {
                program.push(receive(before(rank, 1, ranks), output(one(segment))));
            }
            if place < ranks - 1 {
                let have = if place == 0 { input } else { output };
                program.push(send((rank + 1) % ranks, have(one(segment))));
            }
        }
        if place == 0 {
            program.push(copy(input(0..segments), output(0..segments)));
        }
        program
    })
}

/// A block to each rank down a binomial tree, then round the ring whatever a rank lacks.
pub(super) fn scatter_allgather(ranks: u32, root: Rank) -> Draft {
    Draft::whole(ranks, ranks, |rank| {
        let place = before(rank, root, ranks);
        let (left, right) = (before(rank, 1, ranks), (rank + 1) % ranks);
        let have = if place == 0 { input } else { output };
        let mut program = Vec::new();
        if let Some(parent) = parent(place) {
            program.push(receive((parent + root) % ranks, output(subtree(place, ranks))));
        }
        program.extend(children(place, ranks).map(|child| send((child + root) % ranks, have(subtree(child, ranks)))));
        for round in 0..ranks - 1 {
            let (out, into) = (before(place, round, ranks), before(place, round + 1, ranks));
            if !subtree((place + 1) % ranks, ranks).contains(&out) {
                program.push(send(right, have(one(out))));
            }
            if !subtree(place, ranks).contains(&into) {
                program.push(receive(left, output(one(into))));
            }
        }
        if place == 0 {
            program.push(copy(input(0..ranks), output(0..ranks)));
        }
        program
    })
}

/// The parent of a place in the binomial tree whose root is place 0.
pub(super) fn parent(place: u32) -> Option<u32> {
    (place > 0).then(|| place & (place - 1))
}

/// Its children, those with the most below them first.
pub(super) fn children(place: u32, places: u32) -> impl Iterator<Item = u32> {
    let reach = reach(place, places);
    (0..reach.ilog2()).rev().map(move |bit| place + (1 << bit)).filter(move |child| *child < places)
}

/// Itself and all below it.
pub(super) fn subtree(place: u32, places: u32) -> Range<u32> {
    place..places.min(place + reach(place, places))
}

/// How far its subtree would reach in a tree that is full.
fn reach(place: u32, places: u32) -> u32 {
    if place == 0 { places.next_power_of_two() } else { 1 << place.trailing_zeros() }
}
