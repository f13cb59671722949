//! What a schedule moves: messages, chunks and elements, exactly.
//!
//! Counted is what leaves a rank for another: messages, and what is read from or written to another rank's memory. Messages without
//! elements are counted where they are sent, see [`crate::sends_empty`].

use crate::geometry::Lengths;
use crate::ir::{Rank, Space, Span, Step};
use crate::verify::Verified;

/// What goes from some ranks to some others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Messages; none for what goes from memory to memory.
    pub messages: u64,
    /// Chunks that have elements.
    pub chunks: u64,
    /// Elements; times the size of one, bytes.
    pub elements: u64,
}

impl std::ops::Add for Moved {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            chunks: self.chunks + other.chunks,
            elements: self.elements + other.elements,
        }
    }
}

impl std::iter::Sum for Moved {
    fn sum<I: Iterator<Item = Self>>(list: I) -> Self {
        list.fold(Self::default(), std::ops::Add::add)
    }
}

/// What a schedule moves for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    ranks: u32,
    sends_empty: bool,
    pairs: Vec<Moved>,
    reduced: Vec<u64>,
}

impl Counts {
    /// Counts; none where the lengths do not suit the collective.
    pub fn of(schedule: &Verified, lengths: &Lengths) -> Option<Self> {
        let elements = schedule.geometry().elements(lengths)?;
        let ranks = schedule.ranks();
        let mut counts = Self {
            ranks,
            sends_empty: lengths.sends_empty(schedule.collective()),
            pairs: vec![Moved::default(); ranks as usize * ranks as usize],
            reduced: vec![0; ranks as usize],
        };
        for rank in 0..ranks {
            for step in schedule.program(rank) {
                counts.step(schedule, &elements, rank, step);
            }
        }
        Some(counts)
    }

    fn step(&mut self, schedule: &Verified, elements: &[u64], rank: Rank, step: &Step) {
        let span = |rank, span: &Span| size(schedule, elements, rank, span);
        match step {
            Step::Send { to, what } => {
                let moved = span(rank, what);
                let sent = moved.elements > 0 || self.sends_empty;
                self.add(rank, *to, Moved { messages: u64::from(sent), ..moved });
            }
            Step::Combine { from, own, .. } => {
                self.reduced[rank as usize] += from.len() as u64 * span(rank, own).elements;
            }
            Step::RemoteCombine { from, chunks, into, .. } => {
                for other in from {
                    let moved = span(*other, &Span { space: Space::Input, chunks: chunks.clone() });
                    self.add(*other, rank, moved);
                }
                let moved = span(rank, &Span { space: Space::Input, chunks: chunks.clone() });
                for other in into {
                    self.add(rank, *other, moved);
                }
                self.reduced[rank as usize] += (from.len() as u64 - 1) * moved.elements;
            }
            Step::RemoteCopy { of, from, .. } => self.add(*of, rank, span(*of, from)),
            Step::Copy { .. } | Step::Receive { .. } | Step::Fence => {}
        }
    }

    fn add(&mut self, from: Rank, to: Rank, moved: Moved) {
        if from != to {
            let pair = &mut self.pairs[from as usize * self.ranks as usize + to as usize];
            *pair = *pair + moved;
        }
    }

    /// From one rank to another.
    pub fn pair(&self, from: Rank, to: Rank) -> Moved {
        if from < self.ranks && to < self.ranks {
            self.pairs[from as usize * self.ranks as usize + to as usize]
        } else {
            Moved::default()
        }
    }

    /// From one rank to all others.
    pub fn sent(&self, rank: Rank) -> Moved {
        (0..self.ranks).map(|to| self.pair(rank, to)).sum()
    }

    /// To one rank from all others.
    pub fn received(&self, rank: Rank) -> Moved {
        (0..self.ranks).map(|from| self.pair(from, rank)).sum()
    }

    /// From all ranks together.
    pub fn total(&self) -> Moved {
        self.pairs.iter().copied().sum()
    }

    /// From the ranks of one node to ranks on others; `nodes` says which node each rank is on.
    pub fn leaving(&self, nodes: &[u32], node: u32) -> Moved {
        let on = |rank: Rank| nodes.get(rank as usize) == Some(&node);
        let ranks = 0..self.ranks;
        ranks
            .clone()
            .filter(|from| on(*from))
            .flat_map(|from| ranks.clone().filter(|to| !on(*to)).map(move |to| self.pair(from, to)))
            .sum()
    }

    /// Between nodes, all together.
    pub fn between(&self, nodes: &[u32]) -> Moved {
        let mut all = nodes.to_vec();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|node| self.leaving(nodes, node)).sum()
    }

    /// How many elements a rank reduces into others.
    pub fn reduced(&self, rank: Rank) -> u64 {
        self.reduced.get(rank as usize).copied().unwrap_or_default()
    }
}

fn size(schedule: &Verified, elements: &[u64], rank: Rank, span: &Span) -> Moved {
    let geometry = schedule.geometry();
    let lengths = span.chunks.clone().map(|chunk| elements[geometry.class(rank, span.space, chunk) as usize]);
    lengths.filter(|length| *length > 0).map(|elements| Moved { messages: 0, chunks: 1, elements }).sum()
}
