//! Which algorithm is taken for which call, and why: what somebody has asked for, else what was measured to be fastest on this topology, else
//! what thresholds say.
//!
//! Every rank of a group has to take the same one. So what this rests on is what rank 0 of the world has decided ([`crate::tuning`]), and
//! beside that only what all ranks know alike: the collective, its bytes, and whether all buffers lie in arenas.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use eirene_train_schedule::{Algorithm, Collective};

use crate::call;
use crate::tuning::candidates::{MOST_SEGMENTS, in_pieces, is_offered};
use crate::tuning::explain::Explained;
use crate::tuning::overrides::{Forced, Override};
use crate::tuning::policy::Policy;
use crate::tuning::table::{Case, Table};

/// Which node each rank of a group is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    nodes: Vec<u32>,
}

impl Topology {
    /// Of the nodes by rank, whatever their numbers.
    pub(crate) fn new(nodes: &[u32]) -> Self {
        let mut seen = Vec::new();
        let nodes = nodes
            .iter()
            .map(|node| {
                let index = seen.iter().position(|known| known == node).unwrap_or_else(|| {
                    seen.push(*node);
                    seen.len() - 1
                });
                index as u32
            })
            .collect();
        Self { nodes }
    }

    /// The node of each rank, numbered in the order of the lowest ranks.
    pub(crate) fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(crate) fn node_count(&self) -> usize {
        self.nodes.iter().max().map_or(0, |most| *most as usize + 1)
    }

    pub(crate) fn is_one_node(&self) -> bool {
        self.node_count() <= 1
    }
}

/// How a call is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    /// By a schedule of ours.
    Schedule(Algorithm),
    /// By MPI's own collective.
    Mpi,
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedule(algorithm) => algorithm.fmt(formatter),
            Self::Mpi => formatter.write_str("mpi"),
        }
    }
}

impl Way {
    /// The way that is shown like this, for ranks on these nodes.
    pub(crate) fn named(name: &str, nodes: &[u32]) -> Option<Self> {
        if name == "mpi" { Some(Self::Mpi) } else { Algorithm::named(name, nodes).map(Self::Schedule) }
    }
}

/// What all ranks know alike of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    /// Its length.
    pub(crate) bytes: usize,
    /// All buffers lie where all ranks can reach them.
    pub(crate) shared: bool,
    /// MPI itself can do it.
    pub(crate) mpi: bool,
}

/// A way, and the reason for it.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) way: Way,
    because: Because,
    /// Why it is not what somebody has asked for.
    passed: Option<Arc<str>>,
}

/// Where a choice comes from.
#[derive(Debug, Clone)]
enum Because {
    /// Somebody has asked for it, in these words.
    Asked(Arc<str>),
    /// It was the fastest, as the table says.
    Measured(Arc<Table>, Arc<Case>),
    /// A threshold.
    Threshold(&'static str),
    /// A threshold, and nothing that was measured is much faster.
    Unbeaten(&'static str, Arc<Table>, Arc<Case>),
}

/// The way and the reason, in words.
impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.way)?;
        match &self.because {
            Because::Asked(words) => write!(formatter, "asked for by `{words}`")?,
            Because::Measured(table, case) => write!(formatter, "{}", table.words(case))?,
            Because::Threshold(reason) => write!(formatter, "{reason}")?,
            Because::Unbeaten(reason, table, case) => {
                write!(formatter, "{reason}; nothing was clearly faster: {}", table.words(case))?;
            }
        }
        self.passed.as_ref().map_or(Ok(()), |passed| write!(formatter, " ({passed})"))
    }
}

/// What somebody has asked for, for one collective of a group.
struct Wish {
    words: Arc<str>,
    /// What it comes to, or why the group cannot have it.
    way: Result<Wanted, Arc<str>>,
}

/// What a wish comes to in a group.
enum Wanted {
    /// The algorithm, and whether its segments go with the size.
    Ours(Algorithm, bool),
    /// MPI's own.
    Mpi,
}

/// Chooses for one group.
pub(crate) struct Chooser {
    topology: Topology,
    /// By the collective's number.
    wishes: [Option<Wish>; call::KINDS],
    table: RwLock<Option<Arc<Table>>>,
    explained: Option<Arc<Explained>>,
}

impl Chooser {
    /// By what the world's ranks have agreed on.
    pub(crate) fn new(policy: &Policy, topology: Topology) -> Self {
        let mut wishes = [const { None }; call::KINDS];
        for wanted in policy.overrides() {
            wishes[call::kind(wanted.collective) as usize] = Some(Wish::new(wanted, &topology));
        }
        let table = policy.table().filter(|table| table.is_for(&topology));
        Self { wishes, table: RwLock::new(table), explained: policy.explained(), topology }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What was measured for this group, if anything was.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this is what was measured. Between the same two calls on all ranks.
    pub(crate) fn adopt(&self, table: Arc<Table>) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Some(table);
    }

    /// Chooses for a call.
    pub(crate) fn choose(&self, collective: Collective, given: Given) -> Choice {
        let Given { bytes, shared, mpi } = given;
        let ours = |algorithm, because, passed| Choice { way: Way::Schedule(algorithm), because, passed };
        let mut passed = None;
        if let Some(wish) = &self.wishes[call::kind(collective) as usize] {
            let asked = || Because::Asked(Arc::clone(&wish.words));
            match &wish.way {
                Ok(Wanted::Mpi) if mpi => return Choice { way: Way::Mpi, because: asked(), passed: None },
                Ok(Wanted::Mpi) => {
                    passed = Some(format!("`{}` is not possible: MPI does not have it", wish.words).into());
                }
                Ok(Wanted::Ours(Algorithm::Shared, _)) if !shared => {
                    passed = Some(format!("`{}` is for buffers that all lie in arenas", wish.words).into());
                }
                Ok(Wanted::Ours(algorithm, goes_with_size)) => {
                    let algorithm = if *goes_with_size {
                        let ranks = self.topology.ranks();
                        in_pieces(collective, algorithm, bytes, block(ranks as usize), ranks)
                    } else {
                        algorithm.clone()
                    };
                    return ours(algorithm, asked(), None);
                }
                Err(reason) => passed = Some(Arc::clone(reason)),
            }
        }
        let (algorithm, reason) = by_thresholds(collective, bytes, &self.topology, shared);
        if shared {
            return ours(algorithm, Because::Threshold(reason), passed);
        }
        let table = self.table();
        let Some((table, case)) = table.and_then(|table| table.case(collective, bytes).map(|case| (table, case)))
        else {
            return ours(algorithm, Because::Threshold(reason), passed);
        };
        match case.way(bytes, self.topology.ranks()) {
            Some(way) if mpi || way != Way::Mpi => Choice { way, because: Because::Measured(table, case), passed },
            _ => ours(algorithm, Because::Unbeaten(reason, table, case), passed),
        }
    }

    /// Chooses for a call, and says so the first time if that is wanted.
    pub(crate) fn choose_and_tell(&self, collective: Collective, given: Given) -> Choice {
        let choice = self.choose(collective, given);
        if let Some(explained) = &self.explained {
            explained.once(collective, given.bytes, given.shared, &self.topology, &choice);
        }
        choice
    }

    /// Says something on the way, if that is wanted.
    pub(crate) fn tell(&self, text: &str) {
        if let Some(explained) = &self.explained {
            explained.tell(text);
        }
    }
}

impl Wish {
    fn new(wanted: &Override, topology: &Topology) -> Self {
        let words = Arc::clone(&wanted.words);
        let cannot = |reason: &str| Err(format!("`{words}` is not possible: {reason}").into());
        let way = match &wanted.forced {
            Forced::Mpi if topology.ranks() == 1 => cannot("the group has one rank"),
            Forced::Mpi => Ok(Wanted::Mpi),
            Forced::Named(name) => match name.resolve(topology.nodes()) {
                Some((Algorithm::TwoLevel { .. }, _)) if topology.is_one_node() => {
                    cannot("all ranks of this group are on one node")
                }
                Some((algorithm, _)) if !is_offered(wanted.collective, &algorithm, topology) => {
                    cannot(&format!("the collective has no such algorithm on {} ranks", topology.ranks()))
                }
                Some((algorithm, goes_with_size)) => Ok(Wanted::Ours(algorithm, goes_with_size)),
                None => cannot("there is no such algorithm"),
            },
        };
        Self { words, way }
    }
}

/// Up to here everybody sends everything to everybody: one step, and no more bytes than what a head costs.
const TINY: usize = 4 << 10;
/// What one rank sends to others as it is at a time: measured.
const PIECE: usize = 256 << 10;
/// Blocks are not cut finer on account of that: a piece has its price.
const LEAST_PIECE: usize = 32 << 10;

/// Of a buffer whose blocks are combined by their owners, what goes through the ranks at a time. It has to stay in a core's second-level cache
/// together with what it is combined with. Measured with 16 MB on two cores: two ranks take as long with 512 KiB as with half of it (1.5 ms),
/// four are faster with 256 KiB (5.1 ms, with twice as much 6.2), and to three it is all the same.
fn segment(ranks: usize) -> usize {
    if ranks <= 2 { 512 << 10 } else { 256 << 10 }
}

/// What each of so many ranks owns of a segment.
fn block(ranks: usize) -> usize {
    (segment(ranks) / ranks).max(LEAST_PIECE)
}

/// What thresholds say, and why. `shared`: all buffers lie where all ranks can reach them.
pub(crate) fn by_thresholds(
    collective: Collective,
    bytes: usize,
    topology: &Topology,
    shared: bool,
) -> (Algorithm, &'static str) {
    let ranks = topology.ranks() as usize;
    if shared {
        let because = "every buffer is in memory that all ranks reach, so each is read and written once, in place";
        return (Algorithm::Shared, because);
    }
    let segments = |piece: usize| (bytes / piece.max(1)).clamp(1, MOST_SEGMENTS as usize) as u32;
    if !topology.is_one_node() {
        return far(collective, bytes, topology);
    }
    match collective {
        Collective::AllReduce if bytes <= TINY || ranks == 1 => {
            (Algorithm::Exchange, "so short that one step counts more than bytes")
        }
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce { .. } => (
            Algorithm::Direct { segments: segments(block(ranks) * ranks) },
            "within a node every rank is one step away, and each block is combined once, by its owner",
        ),
        Collective::Barrier => (Algorithm::Dissemination, "the fewest rounds"),
        Collective::Broadcast { .. } => {
            (Algorithm::Direct { segments: segments(PIECE) }, "within a node every rank is one step away")
        }
        Collective::AllGather | Collective::AllToAll | Collective::Gather { .. } | Collective::Scatter { .. } => {
            (Algorithm::Direct { segments: 1 }, "within a node every rank is one step away")
        }
    }
}

/// Between nodes.
fn far(collective: Collective, bytes: usize, topology: &Topology) -> (Algorithm, &'static str) {
    match collective {
        Collective::AllReduce if bytes <= 32 << 10 => {
            (Algorithm::Doubling, "short, so few rounds count more than bytes")
        }
        Collective::AllReduce => {
            let nodes = topology.nodes.clone();
            (
                Algorithm::TwoLevel { nodes, segments: (bytes / (4 << 20)).clamp(1, 64) as u32 },
                "as few bytes as possible between nodes, the rest within them",
            )
        }
        Collective::Broadcast { .. } if bytes > 32 << 10 => {
            let nodes = topology.nodes.clone();
            (
                Algorithm::TwoLevel { nodes, segments: (bytes / (512 << 10)).clamp(1, 256) as u32 },
                "every node gets it once, and passes it on while it comes in",
            )
        }
        Collective::Broadcast { .. } | Collective::Reduce { .. } => (Algorithm::Binomial, "few rounds"),
        Collective::ReduceScatter | Collective::AllGather => (Algorithm::Ring, "every byte crosses each link once"),
        Collective::AllToAll => (Algorithm::Pairwise, "one partner after the other"),
        Collective::Gather { .. } | Collective::Scatter { .. } => {
            (Algorithm::Direct { segments: 1 }, "every block goes where it belongs")
        }
        Collective::Barrier => (Algorithm::Dissemination, "the fewest rounds"),
    }
}
