//! Words for collectives and algorithms: for tables, explanations and the command line.

use std::fmt;

use crate::ir::{Algorithm, Collective};

impl Collective {
    /// Its name, without the root.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "allgather",
            Self::AllToAll => "all-to-all",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Barrier => "barrier",
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        self.root().map_or(Ok(()), |root| write!(formatter, " with root {root}"))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct { segments } => write!(formatter, "direct/{segments}"),
            Self::Exchange => write!(formatter, "exchange"),
            Self::Shared => write!(formatter, "shared"),
            Self::Ring => write!(formatter, "ring"),
            Self::SegmentedRing { segments } => write!(formatter, "ring/{segments}"),
            Self::HalvingDoubling => write!(formatter, "halving-doubling"),
            Self::Doubling => write!(formatter, "doubling"),
            Self::TwoLevel { segments, .. } => write!(formatter, "two-level/{segments}"),
            Self::Binomial => write!(formatter, "binomial"),
            Self::Chain { segments } => write!(formatter, "chain/{segments}"),
            Self::ScatterAllGather => write!(formatter, "scatter-allgather"),
            Self::ChainBinomial { chain, segments } => write!(formatter, "chain-binomial/{chain}/{segments}"),
            Self::Bruck => write!(formatter, "bruck"),
            Self::Pairwise => write!(formatter, "pairwise"),
            Self::Dissemination => write!(formatter, "dissemination"),
        }
    }
}

impl Algorithm {
    /// In how many segments it cuts what it moves, if it cuts.
    pub fn segments(&self) -> Option<u32> {
        self.clone().segments_mut().copied()
    }

    /// The same, to be changed.
    pub fn segments_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Direct { segments }
            | Self::SegmentedRing { segments }
            | Self::TwoLevel { segments, .. }
            | Self::Chain { segments }
            | Self::ChainBinomial { segments, .. } => Some(segments),
            Self::Exchange
            | Self::Shared
            | Self::Ring
            | Self::HalvingDoubling
            | Self::Doubling
            | Self::Binomial
            | Self::ScatterAllGather
            | Self::Bruck
            | Self::Pairwise
            | Self::Dissemination => None,
        }
    }

    /// The algorithm of a name, as it is displayed. `nodes` is for the one whose name does not say everything: the node of each rank.
    pub fn named(name: &str, nodes: &[u32]) -> Option<Self> {
        let mut words = name.split('/');
        let word = words.next()?;
        let numbers: Vec<u32> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(match (word, numbers.as_slice()) {
            ("direct", &[segments]) => Self::Direct { segments },
            ("exchange", []) => Self::Exchange,
            ("shared", []) => Self::Shared,
            ("ring", []) => Self::Ring,
            ("ring", &[segments]) => Self::SegmentedRing { segments },
            ("halving-doubling", []) => Self::HalvingDoubling,
            ("doubling", []) => Self::Doubling,
            ("two-level", &[segments]) => Self::TwoLevel { nodes: nodes.to_vec(), segments },
            ("binomial", []) => Self::Binomial,
            ("chain", &[segments]) => Self::Chain { segments },
            ("scatter-allgather", []) => Self::ScatterAllGather,
            ("chain-binomial", &[chain, segments]) => Self::ChainBinomial { chain, segments },
            ("bruck", []) => Self::Bruck,
            ("pairwise", []) => Self::Pairwise,
            ("dissemination", []) => Self::Dissemination,
            _ => return None,
        })
    }
}
