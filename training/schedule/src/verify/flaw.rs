//! What can be wrong with a schedule.

use std::fmt;

use crate::ir::{Rank, Space};

/// Why a schedule may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Whose program.
    pub rank: Option<Rank>,
    /// Which step of it.
    pub step: Option<usize>,
    /// Only when input and output are the same memory.
    pub in_place: bool,
    /// What.
    pub fault: Fault,
}

impl std::error::Error for Flaw {}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rank) = self.rank {
            write!(formatter, "rank {rank}")?;
            if let Some(step) = self.step {
                write!(formatter, ", step {step}")?;
            }
            if self.in_place {
                write!(formatter, ", in place")?;
            }
            write!(formatter, ": ")?;
        }
        write!(formatter, "{}", self.fault)
    }
}

/// The kinds of flaws.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Numbers of chunks, ranks or programs do not fit together.
    #[error("{0}")]
    Tables(&'static str),
    /// A step names a rank that is not in the schedule, or the rank itself where another is meant.
    #[error("rank {0} cannot be meant here")]
    Peer(Rank),
    /// A list of ranks is empty, not ascending, or has or lacks the rank itself.
    #[error("the list of ranks is not ascending, or the rank itself is wrongly in it or left out")]
    Ranks,
    /// A span goes beyond the space, or the rank has no such space.
    #[error("{space:?} has {has} chunks here, the span ends at {end}")]
    Bounds {
        /// Which space.
        space: Space,
        /// Where the span ends.
        end: u32,
        /// How many there are.
        has: u32,
    },
    /// Two spans, or a message and the span for it, differ in the number of chunks.
    #[error("{from} chunks for a place of {into}")]
    Count {
        /// Chunks that come.
        from: u32,
        /// Chunks there is room for.
        into: u32,
    },
    /// A span of no chunks, or a message with chunks in a barrier.
    #[error("only a barrier has messages of no chunks, and it has no others")]
    Token,
    /// A chunk is put where a chunk of another length may belong.
    #[error("chunk of class {from} comes to a place of class {into}, the lengths can differ")]
    Class {
        /// What comes.
        from: u32,
        /// What belongs there.
        into: u32,
    },
    /// The input is written.
    #[error("the input is written")]
    WritesInput,
    /// Spans of one step overlap without being the same.
    #[error("what is read and what is written overlap in part")]
    Overlap,
    /// Something is read that nobody has written.
    #[error("{space:?} chunk {chunk} of rank {of} is read before it has a content")]
    Undefined {
        /// Whose memory.
        of: Rank,
        /// Which space.
        space: Space,
        /// Which chunk.
        chunk: u32,
    },
    /// A collective that does not reduce has a step that does.
    #[error("this collective reduces nothing")]
    Combines,
    /// A contribution would be counted twice.
    #[error("the contribution of rank {of} to chunk {class} would count twice")]
    Twice {
        /// Whose.
        of: Rank,
        /// To what.
        class: u32,
    },
    /// A result is finished that lacks contributions.
    #[error("chunk {class} is finished without the contribution of rank {lacks}")]
    FinishedEarly {
        /// What.
        class: u32,
        /// Whose is lacking.
        lacks: Rank,
    },
    /// Something is combined that was finished already.
    #[error("chunk {class} is combined though it was finished before")]
    FinishedBefore {
        /// What.
        class: u32,
    },
    /// Ranks wait for each other, without anything that could end it.
    #[error("waits for ever")]
    Deadlock,
    /// A message that nobody takes.
    #[error("rank {to} never takes this message")]
    Unreceived {
        /// For whom.
        to: Rank,
    },
    /// Messages and steps between memories in one schedule.
    #[error("messages and steps between memories are mixed")]
    Mixed,
    /// Ranks have different numbers of fences.
    #[error("{has} fences, other ranks have {others}")]
    Fences {
        /// How many this rank has.
        has: usize,
        /// How many rank 0 has.
        others: usize,
    },
    /// Another rank's memory is touched before the first or behind the last fence.
    #[error("memory of rank {of} is touched where no fence stands between it and its owner")]
    Unfenced {
        /// Whose memory.
        of: Rank,
    },
    /// Two ranks touch the same memory between two fences, and one writes.
    #[error("memory of rank {of} (place {place}) is also touched by rank {with} between the same fences")]
    Race {
        /// Whose memory.
        of: Rank,
        /// Which chunk of all its memory.
        place: u32,
        /// Who else.
        with: Rank,
    },
    /// At the end, an output chunk was never written.
    #[error("output chunk {chunk} is never written")]
    Unwritten {
        /// Which.
        chunk: u32,
    },
    /// At the end, an output chunk lacks a contribution.
    #[error("output chunk {chunk} lacks the contribution of rank {lacks}")]
    Lacks {
        /// Which.
        chunk: u32,
        /// Whose.
        lacks: Rank,
    },
    /// At the end, an output chunk has something else than it should.
    #[error("output chunk {chunk} has a content that belongs elsewhere")]
    Elsewhere {
        /// Which.
        chunk: u32,
    },
    /// At the end, an output chunk is complete but was never finished.
    #[error("output chunk {chunk} is never finished")]
    Unfinished {
        /// Which.
        chunk: u32,
    },
    /// Ranks have combined the same contributions in different ways, so that their results may differ in the last bits.
    #[error("output chunk {chunk} is combined in another way than on rank 0")]
    Diverges {
        /// Which.
        chunk: u32,
    },
    /// A barrier that a rank leaves before another has come.
    #[error("can leave before rank {unheard} has come")]
    Unheard {
        /// Who may be missing.
        unheard: Rank,
    },
}
