//! Where the chunks of a schedule lie and how long they are.
//!
//! Two chunks of one **class** have the same number of elements whatever the lengths of the call are; chunks of different classes may differ.
//! The verifier, the counts and the engine all speak of classes, so that there is one opinion about what fits what.

use std::ops::Range;

use crate::ir::{Collective, Rank, Schedule, Space};

/// How many elements a call has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lengths {
    /// One buffer, the same on every rank: allreduce, broadcast, reduce.
    Whole(u64),
    /// A block for each rank: reduce-scatter, allgather, gather, scatter.
    Blocks(Vec<u64>),
    /// From each rank (outer) to each rank (inner): all-to-all.
    Pairs(Vec<Vec<u64>>),
    /// None: barrier.
    Nothing,
}

/// Whether messages without elements are sent as well. Which ones have none all ranks know where the message before says how long everything
/// is: one buffer, or blocks of one length. What only the two ranks at its ends know, each learns from the other; and who calls for nothing at
/// all still has to hear what the others call for.
pub fn sends_empty(collective: Collective, even: bool, elements: u64) -> bool {
    match collective {
        Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => elements == 0,
        Collective::ReduceScatter | Collective::AllGather => !even || elements == 0,
        Collective::AllToAll | Collective::Gather { .. } | Collective::Scatter { .. } | Collective::Barrier => true,
    }
}

impl Lengths {
    /// As the function of this name, for a call of these lengths.
    pub(crate) fn sends_empty(&self, collective: Collective) -> bool {
        let (even, elements) = match self {
            Self::Whole(elements) => (true, *elements),
            Self::Blocks(list) => (list.windows(2).all(|pair| pair[0] == pair[1]), list.iter().sum()),
            Self::Pairs(_) | Self::Nothing => (true, 0),
        };
        sends_empty(collective, even, elements)
    }
}

/// The part number `index` of `elements` cut into `pieces`: as even as can be, the longer ones first.
pub fn cut(elements: u64, pieces: u32, index: u32) -> Range<u64> {
    let (pieces, index) = (u64::from(pieces.max(1)), u64::from(index));
    let (base, extra) = (elements / pieces, elements % pieces);
    let start = index * base + index.min(extra);
    start..start + base + u64::from(index < extra)
}

/// The chunk tables of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    collective: Collective,
    ranks: u32,
    input: u32,
    output: u32,
    scratch: u32,
}

impl Geometry {
    /// The tables of a schedule, or what is wrong with them.
    pub fn of(schedule: &Schedule) -> Result<Self, &'static str> {
        let ranks = schedule.ranks;
        let (input, output) = (schedule.input_chunks, schedule.output_chunks);
        if ranks == 0 || schedule.programs.len() != ranks as usize {
            return Err("there is not one program for each rank");
        }
        if schedule.collective.root().is_some_and(|root| root >= ranks) {
            return Err("the root is not a rank");
        }
        let fits = match schedule.collective {
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => {
                input == output && input > 0
            }
            Collective::ReduceScatter | Collective::Scatter { .. } => {
                output > 0 && Some(input) == output.checked_mul(ranks)
            }
            Collective::AllGather | Collective::Gather { .. } => input > 0 && Some(output) == input.checked_mul(ranks),
            Collective::AllToAll => {
                input == output
                    && input > 0
                    && input.is_multiple_of(ranks)
                    && u64::from(input) * u64::from(ranks) < u64::from(u32::MAX)
            }
            Collective::Barrier => input == 0 && output == 0,
        };
        if !fits {
            return Err("the numbers of chunks do not suit the collective");
        }
        if schedule.scratch_chunks != 0 && schedule.scratch_chunks != input.max(output) {
            return Err("the scratch is not cut like the input or the output");
        }
        Ok(Self { collective: schedule.collective, ranks, input, output, scratch: schedule.scratch_chunks })
    }

    /// How many chunks a rank has in a space; none where the collective gives it no such buffer.
    pub fn chunks(&self, rank: Rank, space: Space) -> u32 {
        match (self.collective, space) {
            (Collective::Broadcast { root } | Collective::Scatter { root }, Space::Input) if rank != root => 0,
            (Collective::Reduce { root } | Collective::Gather { root }, Space::Output) if rank != root => 0,
            // Other ranks do not know the lengths of all blocks.
            (Collective::Gather { .. } | Collective::Scatter { .. }, Space::Scratch) => 0,
            (_, Space::Input) => self.input,
            (_, Space::Output) => self.output,
            (_, Space::Scratch) => self.scratch,
        }
    }

    /// Chunks of a block, where the collective has blocks; else chunks of the buffer.
    pub fn block(&self) -> u32 {
        match self.collective {
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } | Collective::Barrier => {
                self.input
            }
            Collective::ReduceScatter
            | Collective::Scatter { .. }
            | Collective::AllGather
            | Collective::Gather { .. }
            | Collective::AllToAll => self.input.min(self.output) / if self.pairs() { self.ranks } else { 1 },
        }
    }

    fn pairs(&self) -> bool {
        self.collective == Collective::AllToAll
    }

    /// The class of a chunk. It also names the chunk's content where the content is what the caller gave.
    pub fn class(&self, rank: Rank, space: Space, chunk: u32) -> u32 {
        let block = self.block();
        match (self.collective, space) {
            (Collective::ReduceScatter | Collective::Scatter { .. }, Space::Output)
            | (Collective::AllGather | Collective::Gather { .. }, Space::Input) => rank * block + chunk,
            (Collective::AllToAll, Space::Input) => rank * self.input + chunk,
            (Collective::AllToAll, Space::Output | Space::Scratch) => {
                ((chunk / block) * self.ranks + rank) * block + chunk % block
            }
            (_, Space::Input | Space::Output | Space::Scratch) => chunk,
        }
    }

    /// The number of classes; they are counted from 0.
    pub fn classes(&self) -> u32 {
        if self.pairs() { self.input * self.ranks } else { self.input.max(self.output) }
    }

    /// The number of elements of each class, for a call; none where the lengths do not suit the collective.
    pub fn elements(&self, lengths: &Lengths) -> Option<Vec<u64>> {
        let block = self.block();
        let blocks = |list: &[u64]| -> Vec<u64> {
            list.iter().flat_map(|&elements| (0..block).map(move |k| length(&cut(elements, block, k)))).collect()
        };
        let ranks = self.ranks as usize;
        match (self.collective, lengths) {
            (
                Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. },
                Lengths::Whole(elements),
            ) => Some(blocks(&[*elements])),
            (
                Collective::ReduceScatter
                | Collective::Scatter { .. }
                | Collective::AllGather
                | Collective::Gather { .. },
                Lengths::Blocks(list),
            ) if list.len() == ranks => Some(blocks(list)),
            (Collective::AllToAll, Lengths::Pairs(lists))
                if lists.len() == ranks && lists.iter().all(|list| list.len() == ranks) =>
            {
                Some(lists.iter().flat_map(|list| blocks(list)).collect())
            }
            (Collective::Barrier, Lengths::Nothing) => Some(Vec::new()),
            _ => None,
        }
    }

    /// Whether callers may give the same memory as input and output.
    pub fn may_be_in_place(&self) -> bool {
        !matches!(self.collective, Collective::AllToAll | Collective::Barrier)
    }

    /// Where a rank's spaces begin in its memory, counted in chunks: input, output, scratch, and how much there is in all. In place, input
    /// and output overlap as the collective says.
    pub(crate) fn layout(&self, rank: Rank, in_place: bool) -> Layout {
        let (input, output) = (self.chunks(rank, Space::Input), self.chunks(rank, Space::Output));
        let overlap = in_place && input > 0 && output > 0;
        let own = rank * self.block();
        let (input_at, output_at) = match self.collective {
            _ if !overlap => (0, input),
            Collective::ReduceScatter | Collective::Scatter { .. } => (0, own),
            Collective::AllGather | Collective::Gather { .. } => (own, 0),
            Collective::AllReduce
            | Collective::Broadcast { .. }
            | Collective::Reduce { .. }
            | Collective::AllToAll
            | Collective::Barrier => (0, 0),
        };
        let scratch_at = if overlap { input.max(output) } else { input + output };
        Layout {
            input: input_at,
            output: output_at,
            scratch: scratch_at,
            all: scratch_at + self.chunks(rank, Space::Scratch),
        }
    }
}

/// Where a rank's spaces begin in its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    input: u32,
    output: u32,
    scratch: u32,
    pub(crate) all: u32,
}

impl Layout {
    pub(crate) fn start(&self, space: Space) -> u32 {
        match space {
            Space::Input => self.input,
            Space::Output => self.output,
            Space::Scratch => self.scratch,
        }
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}
