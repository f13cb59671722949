//! What storage says: sizes, targets, quotas, stripes, counts. Plain data; the port that brings it is one level up.

use serde::{Deserialize, Serialize};

use crate::account::word_enum;

/// A value that was said, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<T> {
    /// It was said.
    Known(T),
    /// It was not; whoever shows it shows the reason in its place.
    Missing(Why),
}

impl<T> Known<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing(_) => None,
        }
    }
}

word_enum! {
    /// Why a value or an ability is missing.
    #[non_exhaustive]
    Why {
        /// This storage has no such thing.
        NotSupported = "not_supported",
        /// It could, and is not switched on (quotas, for example).
        NotEnabled = "not_enabled",
        /// It refused: rights, a secret.
        Refused = "refused",
        /// It has no licence for it.
        Unlicensed = "unlicensed",
        /// Whoever knows it did not answer.
        DidNotAnswer = "did_not_answer",
        /// There was an answer that nobody here can read.
        NotUnderstood = "not_understood",
        /// Nobody has measured it yet.
        NeverMeasured = "never_measured",
    }
}

/// What came, and what is doubtful about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial<T> {
    /// What came.
    pub value: T,
    /// What is doubtful; an answer that removes or refuses something must have none.
    pub doubts: Vec<Doubt>,
}

/// One reason not to trust an answer whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// What it is about.
    pub about: DoubtAbout,
    /// For administrators and logs: at most 300 printable characters, which may hold what the storage's tool printed.
    pub text: String,
}

/// What a doubt is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoubtAbout {
    /// One target.
    Target(TargetId),
    /// One user, group or project.
    Id(QuotaId),
    /// One line of an answer, counted from 1.
    Line(u32),
    /// The whole answer.
    Whole,
}

/// Bytes; never blocks or kilobytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bytes(pub u64);

/// A number of files: inodes, or what [`Counted`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Files(pub u64);

/// What a quota counts as a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Files and directories.
    Inodes,
    /// BeeGFS: pieces of files on storage targets; a file has up to as many as it has targets, a directory none.
    ChunkFiles,
}

/// A limit. No number stands for "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit<T> {
    /// No limit.
    Unlimited,
    /// At most so much.
    At(T),
}

impl<T> Limit<T> {
    /// The limit in another unit.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Limit<U> {
        match self {
            Self::Unlimited => Limit::Unlimited,
            Self::At(most) => Limit::At(to(most)),
        }
    }
}

/// A target: a place on a server where data or metadata lies. Numbers are unique within a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId {
    /// Whose.
    pub role: Role,
    /// Number.
    pub number: u32,
}

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Knows all the others.
    Management,
    /// Holds names and attributes.
    Metadata,
    /// Holds contents.
    Storage,
}

/// A pool of storage targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u16);

/// Whose quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaId {
    /// A user id.
    User(u32),
    /// A group id.
    Group(u32),
    /// A project id of XFS or ext4.
    Project(u32),
}

/// User or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOf {
    /// Users.
    User,
    /// Groups.
    Group,
}

impl QuotaOf {
    /// The quota's name for the user or group of this number.
    pub fn id(self, number: u32) -> QuotaId {
        match self {
            Self::User => QuotaId::User(number),
            Self::Group => QuotaId::Group(number),
        }
    }
}

/// Users or groups by number, both ends included; at most [`QuotaRange::MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRange {
    /// Of what.
    pub of: QuotaOf,
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

impl QuotaRange {
    /// Most ids of one question.
    pub const MOST: u32 = 65_536;
}

/// Whether a target can be reached, as the management says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It answers.
    Online,
    /// It has not answered for a while.
    ProbablyOffline,
    /// It does not answer.
    Offline,
    /// Not said.
    Unknown,
}

/// Whether a target's content may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// It may.
    Good,
    /// It is behind its mirror, or is being brought up to it.
    NeedsResync,
    /// It may not.
    Bad,
    /// Not said.
    Unknown,
}

/// How full the storage itself thinks a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    Normal,
    /// New files go elsewhere if they can.
    Low,
    /// New files go elsewhere.
    Emergency,
    /// Not said.
    Unknown,
}

/// A target as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub id: TargetId,
    /// The server it is on.
    pub node: Known<NodeId>,
    /// What the administrator calls it: hostile text.
    pub alias: Option<String>,
    /// The pool; metadata targets have none.
    pub pool: Option<PoolId>,
    /// Whether it is reached.
    pub reach: Reach,
    /// Whether its content is good.
    pub consistency: Consistency,
    /// How full it is by the storage's own thresholds.
    pub room: Room,
    /// Size.
    pub total: Known<Bytes>,
    /// Free.
    pub free: Known<Bytes>,
    /// Inodes in all.
    pub inodes_total: Known<Files>,
    /// Free inodes.
    pub inodes_free: Known<Files>,
    /// What the sizes are rounded to.
    pub precision: Bytes,
    /// What the numbers of inodes are rounded to.
    pub inodes_precision: Files,
    /// Seconds since the management last heard of it.
    pub last_contact_s: Known<u64>,
}

impl Target {
    /// Leaves its sizes out: its server did not answer, and the last ones are not those of now.
    pub fn leave_out_sizes(&mut self) {
        let why = Why::DidNotAnswer;
        (self.total, self.free) = (Known::Missing(why), Known::Missing(why));
        (self.inodes_total, self.inodes_free) = (Known::Missing(why), Known::Missing(why));
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeId {
    /// What it does.
    pub role: Role,
    /// Number within its role.
    pub number: u32,
    /// Its name, where it was said: hostile text.
    pub alias: Option<String>,
}

/// A server as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerNode {
    /// Which.
    pub id: NodeId,
    /// Network interfaces and addresses in the tool's own words.
    pub addresses: Vec<String>,
    /// Whether any of them was reached just now.
    pub reachable: Known<bool>,
}

/// A pool of storage targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Which.
    pub id: PoolId,
    /// Its name: hostile text.
    pub name: String,
    /// Storage targets.
    pub targets: Vec<u32>,
    /// Mirror groups.
    pub mirrors: Vec<u32>,
}

/// Limits of who has none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultQuota {
    /// A user's bytes.
    pub user_size: Known<Limit<Bytes>>,
    /// A user's files.
    pub user_files: Known<Limit<Files>>,
    /// A group's bytes.
    pub group_size: Known<Limit<Bytes>>,
    /// A group's files.
    pub group_files: Known<Limit<Files>>,
}

/// What one user, group or project uses and may use, in one pool where there are pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Whose.
    pub id: QuotaId,
    /// The pool.
    pub pool: Option<PoolId>,
    /// Used.
    pub used: Known<Bytes>,
    /// Limit.
    pub limit: Known<Limit<Bytes>>,
    /// Files used.
    pub files_used: Known<Files>,
    /// Limit of files.
    pub files_limit: Known<Limit<Files>>,
    /// What counts as a file.
    pub counted: Counted,
    /// `files_used` is a lower bound: not every target counts.
    pub files_at_least: bool,
    /// How often the storage measures usage, seconds.
    pub measured_every_s: Known<u32>,
}

/// What a mounted file system counts for users or groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelQuotas {
    /// Which file system: what has the same number lies on the same one.
    pub device: u64,
    /// In ascending order; whoever is not among them has nothing there.
    pub rows: Vec<KernelQuota>,
}

/// What a mounted file system counts for one user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelQuota {
    /// Number of the user or group.
    pub id: u32,
    /// Used, bytes.
    pub used: u64,
    /// The soft limit of bytes where there is one and it is the lower one, else the hard one; `None` for none.
    pub limit: Option<u64>,
    /// Inodes used.
    pub files: u64,
    /// As `limit`, of inodes.
    pub files_limit: Option<u64>,
}

/// How contents are spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Over targets.
    Raid0,
    /// Over targets, twice.
    Raid10,
    /// Over pairs of targets that mirror each other.
    BuddyMirror,
    /// A word nobody here knows.
    Other(String),
}

/// How the files of a directory are spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    /// Pattern.
    pub pattern: Pattern,
    /// Bytes before the next target.
    pub chunk: Known<Bytes>,
    /// Targets a new file gets.
    pub targets_wanted: Known<u32>,
    /// Targets of a file; a directory has none.
    pub targets: Vec<u32>,
    /// Pool of new files and its name.
    pub pool: Known<(PoolId, String)>,
}

/// What the storage knows of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Kind.
    pub kind: EntryKind,
    /// The storage's own id.
    pub entry_id: String,
    /// The server that holds its metadata; with mirroring the one that answers now.
    pub metadata_node: Known<NodeId>,
    /// Whether the metadata is mirrored.
    pub metadata_mirrored: Known<bool>,
    /// How contents are spread.
    pub stripe: Known<Stripe>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Directory.
    Directory,
    /// File.
    File,
    /// Symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// What is to be changed in how new files of a directory are spread; what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetStripe {
    /// Bytes before the next target: a power of two from 64 KiB, at most 2³¹.
    pub chunk: Option<Bytes>,
    /// Targets of a new file, at least 1.
    pub targets: Option<u32>,
    /// Pool of new files.
    pub pool: Option<PoolId>,
    /// Mirrored or not.
    pub mirrored: Option<bool>,
}

/// One second of one server, or of all servers of a role together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSample {
    /// The server; `Missing` when it is all of them.
    pub node: Known<NodeId>,
    /// Seconds since 1970.
    pub at_s: u64,
    /// Bytes written to disks in this second; metadata servers do not say.
    pub written: Known<Bytes>,
    /// Bytes read from disks in this second.
    pub read: Known<Bytes>,
    /// Requests carried out in this second.
    pub requests: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Workers that are busy.
    pub busy: u64,
}

/// Whose operations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationsKind {
    /// By user.
    Users,
    /// By client.
    Clients,
}

/// Operations since the servers were started. Whoever draws a chart takes differences; a count that falls is a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationCounts {
    /// Whose.
    pub of: OperationsOf,
    /// All of them.
    pub total: u64,
    /// By the storage's own names of operations.
    pub by_name: Vec<(String, u64)>,
    /// Bytes read.
    pub read: Known<Bytes>,
    /// Bytes written.
    pub written: Known<Bytes>,
}

/// Whose operations.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationsOf {
    /// A user id.
    User(u32),
    /// The servers could not tell.
    UnknownUser,
    /// A client's address.
    Client(String),
    /// The storage's own servers, which pass requests on to each other.
    Servers,
}

/// A mounted file system as everybody on this host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Size.
    pub total: Bytes,
    /// What may still be written by who is not root.
    pub available: Bytes,
    /// Inodes in all; file systems that make them as needed do not say.
    pub inodes_total: Known<Files>,
    /// Free inodes.
    pub inodes_available: Known<Files>,
    /// Nobody can write.
    pub read_only: bool,
    /// Version of the file system's client on the host that looked, where it is one of its own (BeeGFS).
    pub client_version: Option<String>,
    /// Which file system it is.
    pub identity: Identity,
}

/// What tells one file system from another that is mounted in its place: the same `kind`, `source`, `root_inode` and `marker` is the same
/// place. `fs_id` and `mount_id` change with a remount; they only date a look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Type as the kernel calls it: `xfs`, `nfs4`, `beegfs`.
    pub kind: String,
    /// Device or server.
    pub source: String,
    /// Inode of the directory at the mount point; none where something else is mounted over it.
    pub root_inode: Option<u64>,
    /// What the administrator's marker file in the root of the spaces holds, where there is one.
    pub marker: Option<String>,
    /// The kernel's id of the file system.
    pub fs_id: u64,
    /// The kernel's id of the mount.
    pub mount_id: u64,
}

/// What this storage can. Asked by calls that change nothing, never derived from a version.
///
/// Where an ability is `No(NotSupported)` its methods answer [`StorageError::Unsupported`](super::StorageError::Unsupported).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The adapter's name.
    pub name: &'static str,
    /// The tool's version, as it prints it.
    pub version: Known<String>,
    /// Nodes and targets.
    pub targets: Ability,
    /// Pools.
    pub pools: Ability,
    /// Quotas of users and groups can be read.
    pub quota_read: Ability,
    /// They can be set. Nobody can try without setting one, so `Unknown` unless even reading is refused.
    pub quota_write: Ability,
    /// Default quotas can be read.
    pub default_quota: Ability,
    /// Directories have quotas of their own.
    pub project_quota: Ability,
    /// How files are spread can be read.
    pub stripe_read: Ability,
    /// It can be set: see `quota_write`.
    pub stripe_write: Ability,
    /// Rates of servers.
    pub server_stats: Ability,
    /// Counts of users and clients.
    pub user_stats: Ability,
    /// Whether it has a valid licence, where it wants one. Most of it may work without.
    pub licence: Ability,
}

impl Capabilities {
    /// Those of a storage that can nothing of its own; adapters say what they can on top of it.
    pub fn none(name: &'static str) -> Self {
        let no = Ability::No(Why::NotSupported);
        Self {
            name,
            version: Known::Missing(Why::NotSupported),
            targets: no,
            pools: no,
            quota_read: no,
            quota_write: no,
            default_quota: no,
            project_quota: no,
            stripe_read: no,
            stripe_write: no,
            server_stats: no,
            user_stats: no,
            licence: no,
        }
    }
}

/// Whether something can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// It was tried.
    Yes,
    /// It cannot.
    No(Why),
    /// Nobody can tell now.
    Unknown,
}
