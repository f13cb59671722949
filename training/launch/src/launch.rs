//! What is known of this process once it is known who started it.

use std::fmt::{self, Write as _};
use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::environment::Environment;
use crate::error::Error;
use crate::variables;

/// Who started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// `eirene-train run`.
    Run,
    /// A PMIx server: `srun --mpi=pmix`, Open MPI's `mpirun`, `prterun`.
    Pmix,
    /// A PMI 1 or 2 server: MPICH's and Intel's `mpiexec`, `srun --mpi=pmi2`.
    Pmi,
    /// Open MPI's `mpirun`, seen by its own variables only.
    OpenMpi,
    /// SLURM's `srun`, without PMI or PMIx.
    Slurm,
    /// torchrun, or somebody who sets the same variables.
    Torchrun,
    /// Nobody: a world of one.
    Alone,
}

impl Starter {
    /// The word by which people name it in `EIRENE_TRAIN_STARTER`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Pmix => "pmix",
            Self::Pmi => "pmi",
            Self::OpenMpi => "openmpi",
            Self::Slurm => "slurm",
            Self::Torchrun => "torchrun",
            Self::Alone => "alone",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Run, Self::Pmix, Self::Pmi, Self::OpenMpi, Self::Slurm, Self::Torchrun, Self::Alone]
            .into_iter()
            .find(|starter| starter.word() == word)
    }
}

impl fmt::Display for Starter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Run => "eirene-train run",
            Self::Pmix => "PMIx",
            Self::Pmi => "PMI",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "SLURM",
            Self::Torchrun => "torchrun",
            Self::Alone => "nobody",
        })
    }
}

/// What a person asked to be used between ranks (`EIRENE_TRAIN_TRANSPORT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Auto,
    Mpi,
    Builtin,
}

impl Transport {
    pub(crate) fn asked(environment: &Environment) -> Result<Self, Error> {
        match environment.get(variables::TRANSPORT) {
            None | Some("auto") => Ok(Self::Auto),
            Some("mpi") => Ok(Self::Mpi),
            Some("builtin") => Ok(Self::Builtin),
            Some(value) => Err(Error::Malformed {
                variable: variables::TRANSPORT.to_owned(),
                value: value.to_owned(),
                expected: "must be `auto`, `mpi` or `builtin`",
            }),
        }
    }
}

/// Whether an MPI library is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mpi {
    /// No: nobody started an MPI world, or a person said `builtin`.
    Never,
    /// Yes where a library is found; the built-in transport otherwise.
    WhereThere,
    /// Yes; no library is an error, for a person said `mpi`.
    Must,
}

/// Where the ranks of a world find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A world of one.
    Nobody,
    /// In a directory of this node.
    Directory(PathBuf),
    /// By a file that all nodes see.
    File(PathBuf),
    /// At rank 0's address.
    Address {
        /// Rank 0's host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// This is rank 0, and the launcher opened its listening socket already.
    Listener(RawFd),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => formatter.write_str("nowhere"),
            Self::Directory(path) => write!(formatter, "in directory {}", path.display()),
            Self::File(path) => write!(formatter, "by file {}", path.display()),
            Self::Address { host, port } => write!(formatter, "at {host}:{port}"),
            Self::Listener(descriptor) => write!(formatter, "at this rank's socket (descriptor {descriptor})"),
        }
    }
}

/// Where the world's secret comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Nothing to keep from anybody: a world of one.
    None,
    /// Rank 0 makes it and leaves it at the meeting place, readable by its owner only.
    Meeting,
    /// An open descriptor, with a file to fall back to when a program in between closed it.
    Descriptor(RawFd, Option<PathBuf>),
    /// A file that only its owner may read.
    File(PathBuf),
}

/// Who started us, and what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Who started this process.
    pub starter: Starter,
    /// This process in the world, from 0.
    pub rank: u32,
    /// Processes in the world.
    pub size: u32,
    /// This process among those on its node, where known.
    pub local_rank: Option<u32>,
    /// Processes on this node, where known.
    pub local_size: Option<u32>,
    /// This node's number, where known.
    pub node: Option<u32>,
    /// The nodes' names, where known.
    pub nodes: Vec<String>,
    /// A name that all ranks of this world share; empty when the launcher gives none.
    pub world: String,
    /// Whether an MPI is to be used.
    pub mpi: Mpi,
    /// Where the ranks meet when no MPI is used.
    pub place: Place,
    /// Where the secret comes from when no MPI is used.
    pub secret: SecretSource,
    /// Where ranks of this node may meet, best first.
    pub(crate) directory: Vec<PathBuf>,
    /// The directory on this node that somebody named for sockets.
    pub(crate) own_directory: Option<PathBuf>,
    pub(crate) uid: u32,
    pub(crate) evidence: String,
    pub(crate) remarks: Vec<String>,
}

impl Launch {
    /// One line in plain words: what was found, and what follows from it.
    pub fn explain(&self) -> String {
        let mut line = format!("rank {} of {}", self.rank, self.size);
        if let (Some(rank), Some(size)) = (self.local_rank, self.local_size) {
            let _ = write!(line, ", {rank} of {size} on this node");
        }
        if self.nodes.len() > 1 {
            let _ = write!(line, ", on {} nodes", self.nodes.len());
        }
        let _ = write!(line, "; started by {} ({})", self.starter, self.evidence);
        line.push_str(match self.mpi {
            Mpi::Never => "; no MPI",
            Mpi::WhereThere => "; its MPI where a library is found",
            Mpi::Must => "; by MPI, as asked",
        });
        if self.place != Place::Nobody {
            let otherwise = if self.mpi == Mpi::Never { "ranks meet" } else { "without one, ranks meet" };
            let _ = write!(line, "; {otherwise} {}", self.place);
        }
        for remark in &self.remarks {
            line.push_str("; ");
            line.push_str(remark);
        }
        line
    }

    /// What to look at when the ranks have waited for each other in vain, in one sentence.
    pub fn advice(&self) -> String {
        let cause = match &self.place {
            Place::Nobody => return "a world of one waits for nobody".to_owned(),
            Place::Directory(_) => {
                let paths: Vec<String> = self.directory.iter().map(|path| format!("`{}`", path.display())).collect();
                let paths = paths.join(" or ");
                let cure = "are all of them running on this node, and do their containers share it? set EIRENE_TRAIN_DIRECTORY";
                format!("in directory {paths}: {cure} to a directory that they do share")
            }
            Place::File(path) => format!(
                "by file `{}`: do all nodes see its directory? set EIRENE_TRAIN_MEETING to a directory that they all see",
                path.display()
            ),
            Place::Address { host, port } => format!(
                "at {host}:{port}: can this node reach it? `eirene-train run --address` names rank 0's host in another way"
            ),
            Place::Listener(_) => {
                "at this rank's socket: can the other nodes reach this one? `eirene-train run --address` names \
                                   it in another way"
                    .to_owned()
            }
        };
        format!("the {} ranks of `{}` were to meet {cause}", self.size, self.world)
    }

    /// What an MPI says of itself must be what the launcher said of us: an MPI that cannot talk to its launcher starts as many
    /// worlds of one as there are ranks, and would compute nonsense.
    ///
    /// # Errors
    /// [`Error::Contradiction`], naming both sides and the cure.
    pub fn check_mpi(&self, rank: u32, size: u32, library: &str) -> Result<(), Error> {
        if size == self.size && rank == self.rank {
            return Ok(());
        }
        let cure = match (self.starter, size) {
            (Starter::Pmix, 1) => {
                "the library cannot talk to this PMIx: pass PMIX_* and its directories into the container, use an MPI with the \
                 launcher's PMIx version, or set EIRENE_TRAIN_TRANSPORT=builtin"
            }
            (Starter::Pmi, 1) => {
                "the library does not speak this PMI: use MPICH or Intel MPI, `srun --mpi=pmix` for Open MPI, or set \
                 EIRENE_TRAIN_TRANSPORT=builtin"
            }
            (Starter::OpenMpi, 1) => {
                "the library is not the Open MPI of this mpirun, or a container hides PMIX_* from it: use that one, or set \
                 EIRENE_TRAIN_TRANSPORT=builtin"
            }
            (Starter::Slurm, 1) => "start by `srun --mpi=pmix` (or --mpi=pmi2), or set EIRENE_TRAIN_TRANSPORT=builtin",
            _ => "start all ranks by the launcher of this MPI, or set EIRENE_TRAIN_TRANSPORT=builtin",
        };
        Err(Error::Contradiction {
            one: format!("{} says rank {} of {} ({})", self.starter, self.rank, self.size, self.evidence),
            other: format!("{library} says rank {rank} of {size}"),
            cure: cure.to_owned(),
        })
    }
}
