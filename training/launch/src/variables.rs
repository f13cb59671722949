//! Our own variables, all of them: what `eirene-train run` tells its ranks, and what people may set. The table in `training/README.md` says
//! the same to people, and a test of this crate holds the two, and all code that reads a variable, against each other. Those that crates
//! below this one read stand here for that alone.

/// Rank in the world. Only launchers set it.
pub const RANK: &str = "EIRENE_TRAIN_RANK";
/// Ranks in the world. People set it where a launcher tells the rank only.
pub const SIZE: &str = "EIRENE_TRAIN_SIZE";
/// Rank among those on this node.
pub const LOCAL_RANK: &str = "EIRENE_TRAIN_LOCAL_RANK";
/// Ranks on this node.
pub const LOCAL_SIZE: &str = "EIRENE_TRAIN_LOCAL_SIZE";
/// This node's number.
pub const NODE: &str = "EIRENE_TRAIN_NODE";
/// The nodes' names, as a host list.
pub const NODES: &str = "EIRENE_TRAIN_NODES";
/// The world's name. People set it where a launcher gives none.
pub const WORLD: &str = "EIRENE_TRAIN_WORLD";
/// Number of an open descriptor that holds the world's secret.
pub const SECRET_FD: &str = "EIRENE_TRAIN_SECRET_FD";
/// Path of a file, readable by its owner only, that holds the world's secret.
pub const SECRET_FILE: &str = "EIRENE_TRAIN_SECRET_FILE";
/// Where ranks meet: `tcp://HOST:PORT`, `descriptor:N` (a listening socket), `directory:PATH` (one node), or the plain path of a
/// directory that all nodes see.
pub const MEETING: &str = "EIRENE_TRAIN_MEETING";
/// A directory on this node, open to its owner only, for sockets.
pub const DIRECTORY: &str = "EIRENE_TRAIN_DIRECTORY";
/// `auto`, `mpi` or `builtin`.
pub const TRANSPORT: &str = "EIRENE_TRAIN_TRANSPORT";
/// `on` or `off`: whether data that the built-in transport sends to other nodes is encrypted. Rank 0's holds for all.
pub const ENCRYPTION: &str = "EIRENE_TRAIN_ENCRYPTION";
/// Whom to believe when several launchers left their variables: `run`, `pmix`, `pmi`, `openmpi`, `slurm`, `torchrun`, `alone`.
pub const STARTER: &str = "EIRENE_TRAIN_STARTER";
/// Algorithms to take whatever is faster: `allreduce=ring:8;broadcast=binomial`, or one for all collectives that have it. `p2p=mpi`: messages by
/// MPI as they are; `mpi`: everything.
pub const ALGORITHM: &str = "EIRENE_TRAIN_ALGORITHM";
/// Whether algorithms are measured: `off`, `read` (what was measured before is used), `measure` (once for each topology), `again`.
pub const TUNING: &str = "EIRENE_TRAIN_TUNING";
/// The directory for what was measured, instead of `$XDG_CACHE_HOME/eirene-train` or `~/.cache/eirene-train`.
pub const CACHE: &str = "EIRENE_TRAIN_CACHE";
/// `1`: rank 0 says on stderr which algorithm is chosen and why, once for each kind of call.
pub const EXPLAIN: &str = "EIRENE_TRAIN_EXPLAIN";
/// The remote shell's command instead of `ssh`.
pub const RSH: &str = "EIRENE_TRAIN_RSH";
/// The node program's command on other hosts.
pub const REMOTE: &str = "EIRENE_TRAIN_REMOTE";
/// The MPI library's path, or `none`. The crate `mpi` reads it.
pub const MPI: &str = "EIRENE_TRAIN_MPI";
/// The network interfaces that ranks may use, with commas between them. The crate `mesh` reads it.
pub const INTERFACE: &str = "EIRENE_TRAIN_INTERFACE";
/// The emulated nodes that `eirene-train-nodes` means where none are named.
pub const LAB: &str = "EIRENE_TRAIN_LAB";
/// The step's number, where a session's agent has started the ranks. The Python package reads it.
pub const STEP: &str = "EIRENE_TRAIN_STEP";
/// What is done before ranks start on several nodes of a session, where the command line does not say: `once`, `always`, `exclude` or `off`.
pub const PREFLIGHT: &str = "EIRENE_TRAIN_PREFLIGHT";
/// The socket at which a session's agent takes requests for ranks on the session's nodes; set in the session's container.
pub const STEPS: &str = "EIRENE_TRAIN_STEPS";
