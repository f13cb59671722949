//! What generators write with.

use std::ops::Range;

use crate::ir::{Algorithm, Collective, Rank, Schedule, Space, Span, Step};

/// A schedule without its name.
pub(super) struct Draft {
    input: u32,
    output: u32,
    programs: Vec<Vec<Step>>,
}

impl Draft {
    /// One program for each rank, over buffers of so many chunks.
    pub(super) fn new(ranks: u32, (input, output): (u32, u32), program: impl FnMut(Rank) -> Vec<Step>) -> Self {
        Self { input, output, programs: (0..ranks).map(program).collect() }
    }

    /// As [`Draft::new`], input and output cut alike.
    pub(super) fn whole(ranks: u32, chunks: u32, program: impl FnMut(Rank) -> Vec<Step>) -> Self {
        Self::new(ranks, (chunks, chunks), program)
    }

    pub(super) fn schedule(self, collective: Collective, algorithm: Algorithm) -> Schedule {
        let uses_scratch = |step: &Step| match step {
            Step::Copy { from: a, to: b }
            | Step::Combine { own: a, into: b, .. }
            | Step::RemoteCopy { from: a, to: b, .. } => a.space == Space::Scratch || b.space == Space::Scratch,
            Step::Send { what: span, .. } | Step::Receive { into: span, .. } => span.space == Space::Scratch,
            Step::Fence | Step::RemoteCombine { .. } => false,
        };
        let scratch = self.programs.iter().flatten().any(uses_scratch);
        Schedule {
            collective,
            algorithm,
            ranks: self.programs.len() as u32,
            input_chunks: self.input,
            output_chunks: self.output,
            scratch_chunks: if scratch { self.input.max(self.output) } else { 0 },
            programs: self.programs,
        }
    }
}

/// The schedule of a world of one.
pub(super) fn alone(collective: Collective) -> Draft {
    if collective == Collective::Barrier {
        Draft::whole(1, 0, |_| Vec::new())
    } else {
        Draft::whole(1, 1, |_| vec![copy(input(0..1), output(0..1))])
    }
}

/// The other ranks, those behind `rank` first, so that not all begin with the same.
pub(super) fn others(rank: Rank, ranks: u32) -> impl Iterator<Item = Rank> + Clone {
    (1..ranks).map(move |distance| (rank + distance) % ranks)
}

/// The other ranks, ascending.
pub(super) fn ascending(rank: Rank, ranks: u32) -> Vec<Rank> {
    (0..ranks).filter(|other| *other != rank).collect()
}

/// The rank so many places before, round the ring.
pub(super) fn before(rank: Rank, distance: u32, ranks: u32) -> Rank {
    (rank + ranks - distance % ranks) % ranks
}

/// Parts of a list, one for each piece; as [`crate::cut`].
pub(super) fn share(chunks: Range<u32>, pieces: u32, index: u32) -> Range<u32> {
    let part = crate::geometry::cut(u64::from(chunks.end - chunks.start), pieces, index);
    chunks.start + part.start as u32..chunks.start + part.end as u32
}

/// One chunk.
pub(super) fn one(chunk: u32) -> Range<u32> {
    chunk..chunk + 1
}

pub(super) fn input(chunks: Range<u32>) -> Span {
    Span { space: Space::Input, chunks }
}

pub(super) fn output(chunks: Range<u32>) -> Span {
    Span { space: Space::Output, chunks }
}

pub(super) fn scratch(chunks: Range<u32>) -> Span {
    Span { space: Space::Scratch, chunks }
}

pub(super) fn copy(from: Span, to: Span) -> Step {
    Step::Copy { from, to }
}

pub(super) fn send(to: Rank, what: Span) -> Step {
    Step::Send { to, what }
}

pub(super) fn receive(from: Rank, into: Span) -> Step {
    Step::Receive { from, into }
}

pub(super) fn combine(from: Vec<Rank>, own: Span, into: Span, finish: bool) -> Step {
    Step::Combine { from, own, into, finish }
}
