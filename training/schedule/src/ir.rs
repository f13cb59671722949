//! The form of a schedule.
//!
//! A collective over `p` ranks is `p` programs, one for each rank, over buffers cut into **chunks**. A chunk is the smallest thing a step
//! names; how many elements it has is said when the schedule runs, so one schedule serves every length, also uneven ones and lengths below
//! the number of chunks (a chunk may be empty; messages whose chunks have no elements need not be sent, nor waited for, where both sides know
//! that they have none). A message of **no chunks** is a token: it is really sent, and occurs in barriers only.
//!
//! Steps between memories ([`Step::Fence`], [`Step::RemoteCombine`], [`Step::RemoteCopy`]) and messages do not occur in one schedule.
//! With one rank there is nothing to combine and nothing to finish: its schedule only copies.

use std::ops::Range;

/// A rank within a schedule, from 0.
pub type Rank = u32;

/// What a rank's chunks lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// What the caller gives. Never written. In place, it is the same memory as the output.
    Input,
    /// What the caller gets.
    Output,
    /// Memory of the engine's, cut like the input or the output, whichever has more chunks; its content is undefined at the beginning.
    Scratch,
}

/// Some chunks one after the other in one space.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where they lie.
    pub space: Space,
    /// Their numbers.
    pub chunks: Range<u32>,
}

/// One step of a rank's program. Steps are executed in order; what a step says about a `Send` ends when the message has left, which may be
/// long after the step: a later step that writes what is still being sent waits for it. A program has ended when all its messages have left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Copies within the rank. Both spans have the same number of chunks. Where they are the same memory (in place) nothing is done, neither
    /// read, written nor waited for.
    Copy {
        /// What.
        from: Span,
        /// Where to.
        to: Span,
    },
    /// Sends one message. Messages between two ranks arrive in the order they were sent.
    Send {
        /// To whom.
        to: Rank,
        /// What.
        what: Span,
    },
    /// Waits for the next message of a rank and stores it.
    Receive {
        /// From whom.
        from: Rank,
        /// Where to.
        into: Span,
    },
    /// Waits for the next message of each of some ranks and reduces them with the rank's own part, **in rank order**, so that everybody who
    /// combines the same parts has the same bits.
    Combine {
        /// From whom, ascending, without the rank itself.
        from: Vec<Rank>,
        /// The rank's own part.
        own: Span,
        /// Where the result goes; it may be where the own part lies.
        into: Span,
        /// This completes the chunks: an average is divided here, exactly once.
        finish: bool,
    },
    /// Waits until every rank has come here. Only between ranks that share memory. Everything a rank did before it is seen by all behind it.
    Fence,
    /// Reduces a span of the **inputs** of some ranks, read in place, in rank order, and writes the result into as many chunks of
    /// the **outputs** of some ranks, in place. Only between ranks that share memory.
    RemoteCombine {
        /// Whose inputs, ascending, the rank itself among them.
        from: Vec<Rank>,
        /// Which chunks.
        chunks: Range<u32>,
        /// Whose outputs, ascending.
        into: Vec<Rank>,
        /// The first chunk of the outputs that is written; the same as the first of `chunks`, except where outputs are shorter than inputs.
        at: u32,
        /// As in [`Step::Combine`].
        finish: bool,
    },
    /// Copies out of another rank's memory. Only between ranks that share memory.
    RemoteCopy {
        /// Whose.
        of: Rank,
        /// What, in that rank's spaces (input or output).
        from: Span,
        /// Where to, in the rank's own.
        to: Span,
    },
}

/// What a schedule brings about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Every output is the reduction of all inputs. Chunks: any number.
    AllReduce,
    /// Every output is the root's input. Chunks: any number.
    Broadcast {
        /// Whose.
        root: Rank,
    },
    /// The root's output is the reduction of all inputs; other outputs are not touched. Chunks: any number.
    Reduce {
        /// Where to.
        root: Rank,
    },
    /// Output of rank r is the reduction of all inputs' blocks r. Input: p blocks of s chunks each; output: s chunks.
    ReduceScatter,
    /// Every output is the inputs in rank order. Input: s chunks; output: p blocks of s chunks each.
    AllGather,
    /// Block j of rank i's input becomes block i of rank j's output. Input and output: p blocks of s chunks each.
    AllToAll,
    /// The root's output is the inputs in rank order; other outputs are not touched. As allgather.
    Gather {
        /// Where to.
        root: Rank,
    },
    /// Output of rank r is block r of the root's input. As reduce-scatter.
    Scatter {
        /// From where.
        root: Rank,
    },
    /// Nobody goes on before everybody has come. No chunks.
    Barrier,
}

impl Collective {
    /// All of them, for a root.
    pub const fn all(root: Rank) -> [Self; 9] {
        [
            Self::AllReduce,
            Self::Broadcast { root },
            Self::Reduce { root },
            Self::ReduceScatter,
            Self::AllGather,
            Self::AllToAll,
            Self::Gather { root },
            Self::Scatter { root },
            Self::Barrier,
        ]
    }

    /// The rank that gives or gets everything, where there is one.
    pub fn root(self) -> Option<Rank> {
        match self {
            Self::Broadcast { root } | Self::Reduce { root } | Self::Gather { root } | Self::Scatter { root } => {
                Some(root)
            }
            Self::AllReduce | Self::ReduceScatter | Self::AllGather | Self::AllToAll | Self::Barrier => None,
        }
    }

    /// Whether contributions are reduced.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce { .. } | Self::ReduceScatter)
    }
}

/// How a schedule brings it about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Everybody's part goes straight to whoever needs it, all parts are combined at once.
    Direct {
        /// Segments of each block, which follow each other.
        segments: u32,
    },
    /// Everybody sends everything to everybody and combines it all: one round, for little data.
    Exchange,
    /// As direct, reading and writing the other ranks' memory in place. Not for collectives whose blocks may differ without all ranks' knowing.
    Shared,
    /// Round a ring.
    Ring,
    /// Round a ring, each block cut into segments that follow each other.
    SegmentedRing {
        /// Segments of each block.
        segments: u32,
    },
    /// Recursive halving, then doubling (Rabenseifner); ranks beyond the largest power of two fold in first.
    HalvingDoubling,
    /// Recursive doubling of whole buffers; ranks beyond the largest power of two fold in first.
    Doubling,
    /// Within nodes first, then between them, then within again.
    TwoLevel {
        /// Which node each rank is on.
        nodes: Vec<u32>,
        /// Segments of the buffer, which go through the levels one behind the other.
        segments: u32,
    },
    /// A binomial tree.
    Binomial,
    /// A chain through which segments follow each other.
    Chain {
        /// Segments of the buffer.
        segments: u32,
    },
    /// A scatter along a binomial tree, then a ring allgather (van de Geijn).
    ScatterAllGather,
    /// Chains of some ranks below, a binomial tree of their heads above.
    ChainBinomial {
        /// Ranks of a chain.
        chain: u32,
        /// Segments of the buffer.
        segments: u32,
    },
    /// Bruck's, in a logarithmic number of rounds.
    Bruck,
    /// Straight between pairs, one partner after the other.
    Pairwise,
    /// Dissemination, in a logarithmic number of rounds.
    Dissemination,
}

/// A collective, worked out for every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What it brings about.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// Ranks.
    pub ranks: u32,
    /// Chunks of the input.
    pub input_chunks: u32,
    /// Chunks of the output.
    pub output_chunks: u32,
    /// Chunks of the scratch: none where it is not used, else as many as the input or the output has, whichever has more.
    pub scratch_chunks: u32,
    /// One program a rank.
    pub programs: Vec<Vec<Step>>,
}
