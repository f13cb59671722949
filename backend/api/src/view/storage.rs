//! The storage as the API shows it to admins. A number that nobody said is absent, and never 0.

use eirene_core::storage::{
    Ability, Capabilities, Consistency, Counted, DefaultQuota, Files, Known, Limit, Pool, Quota, QuotaId, Reach, Room,
    ServerNode, Target, Why,
};
use eirene_services::storage::judge::{Finding, server_name, target_name};
use eirene_services::storage::pools::PoolRoom;
use eirene_services::storage::snapshot::{Asked, RootSeen};
use eirene_services::storage::{Quotas, Report};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The storage at its last look.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Storage)]
pub struct StorageView {
    /// How it is spoken to: `posix`, `beegfs7` or `beegfs8`.
    adapter: String,
    /// Its tool's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    version: Option<String>,
    /// When it was looked at; absent before the first look.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    as_of: Option<Timestamp>,
    /// What it can; absent before the first look.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capabilities: Option<CapabilitiesView>,
    /// Directories in which spaces lie.
    roots: Vec<RootView>,
    /// Servers; none where the storage has none or did not tell them, which is then a finding.
    servers: Vec<ServerView>,
    /// Targets, likewise.
    targets: Vec<TargetView>,
    /// Pools, likewise.
    pools: Vec<PoolView>,
    /// What is wrong, the worst first.
    findings: Vec<FindingView>,
}

/// What the storage can.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageCapabilities)]
pub(super) struct CapabilitiesView {
    /// Servers and targets.
    targets: AbilityView,
    /// Pools.
    pools: AbilityView,
    /// Quotas of users and groups can be read.
    quota_read: AbilityView,
    /// They can be set.
    quota_write: AbilityView,
    /// Default quotas.
    default_quota: AbilityView,
    /// Directories have quotas of their own.
    project_quota: AbilityView,
    /// How files are spread can be read.
    stripe_read: AbilityView,
    /// It can be set.
    stripe_write: AbilityView,
    /// Rates of servers.
    server_stats: AbilityView,
    /// Counts of users and clients.
    user_stats: AbilityView,
    /// A valid licence, where the storage wants one.
    licence: AbilityView,
}

/// Whether something can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StorageAbility)]
pub(super) struct AbilityView {
    /// `yes`, `no` or `unknown`.
    #[schema(value_type = String, pattern = "^(yes|no|unknown)$")]
    can: &'static str,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    why: Option<Why>,
}

/// What there is of something, and what of it is free. A number that nobody tells is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = StorageSizes)]
pub(super) struct SizesView {
    /// Size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total_bytes: Option<u64>,
    /// Free.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_bytes: Option<u64>,
    /// Inodes; absent also where the file system makes them as they are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    total_files: Option<u64>,
    /// Free inodes, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_files: Option<u64>,
}

/// A directory in which spaces lie.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageRoot)]
pub(super) struct RootView {
    /// Name.
    name: String,
    /// Type of its file system; absent when it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    file_system: Option<String>,
    /// What it has.
    #[serde(flatten)]
    sizes: SizesView,
    /// Whether nobody can write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    read_only: Option<bool>,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageServer)]
pub(super) struct ServerView {
    /// Role and number.
    #[schema(example = "metadata:1")]
    id: String,
    /// What the administrator of the storage calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    alias: Option<String>,
    /// Its network interfaces and addresses, in the words of the storage's tool.
    addresses: Vec<String>,
    /// Whether it was reached at the look; absent where the storage does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reachable: Option<bool>,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageTarget)]
pub(super) struct TargetView {
    /// Role and number.
    #[schema(example = "storage:101")]
    id: String,
    /// What the administrator of the storage calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    alias: Option<String>,
    /// Pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool: Option<u16>,
    /// `online`, `probably_offline`, `offline` or `unknown`.
    #[schema(value_type = String)]
    reach: &'static str,
    /// `good`, `needs_resync`, `bad` or `unknown`.
    #[schema(value_type = String)]
    consistency: &'static str,
    /// How full the storage thinks it is: `normal`, `low`, `emergency` or `unknown`.
    #[schema(value_type = String)]
    room: &'static str,
    /// What it has.
    #[serde(flatten)]
    sizes: SizesView,
    /// What the sizes are rounded to, bytes.
    precision_bytes: u64,
}

/// A pool of targets.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StoragePool)]
pub(super) struct PoolView {
    /// Number.
    id: u16,
    /// Name.
    name: String,
    /// Its storage targets, by number.
    targets: Vec<u32>,
    /// What its targets have together.
    #[serde(flatten)]
    sizes: SizesView,
    /// Whether not every target tells its bytes, so that there may be more.
    bytes_at_least: bool,
    /// Whether not every target tells its inodes, so that there may be more.
    files_at_least: bool,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageFinding)]
pub(super) struct FindingView {
    /// Stable code.
    #[schema(value_type = String, example = "target_offline")]
    code: &'static str,
    /// `warning` or `broken`.
    #[schema(value_type = String)]
    severity: &'static str,
    /// What it is about; empty for the whole.
    about: String,
    /// One sentence with the cure.
    text: String,
}

/// Quotas, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageQuotas)]
pub struct QuotasView {
    /// One for each number and pool.
    items: Vec<QuotaView>,
    /// What is doubtful about them.
    doubts: Vec<String>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    missing: Option<Why>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text: Option<String>,
}

/// What a user or group uses and may use.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageQuota)]
pub(super) struct QuotaView {
    /// Number of the user, group or project.
    id: u32,
    /// Pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool: Option<u16>,
    /// Used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_bytes: Option<u64>,
    /// Limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_bytes: Option<u64>,
    /// Whether it is known that there is no limit.
    unlimited: bool,
    /// Files used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_files: Option<u64>,
    /// Limit of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_files: Option<u64>,
    /// What counts as a file: `inodes`, or `chunk_files`, of which a file has several and a directory none.
    #[schema(value_type = String)]
    counted: &'static str,
    /// Whether `used_files` is a lower bound.
    files_at_least: bool,
    /// Why a number is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    missing: Option<Why>,
}

/// A limit, or the word that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StorageLimit)]
#[serde(untagged)]
pub enum LimitWord {
    /// At most so much.
    At(u64),
    /// `unlimited`.
    Word(NoLimit),
}

/// The word for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoLimit {
    /// No limit.
    Unlimited,
}

impl LimitWord {
    /// As the services know it.
    pub fn limit(self) -> Limit<u64> {
        match self {
            Self::At(most) => Limit::At(most),
            Self::Word(NoLimit::Unlimited) => Limit::Unlimited,
        }
    }

    fn of<T>(known: &Known<Limit<T>>, number: fn(&T) -> u64) -> Option<Self> {
        known.value().map(|limit| match limit {
            Limit::Unlimited => Self::Word(NoLimit::Unlimited),
            Limit::At(most) => Self::At(number(most)),
        })
    }
}

/// The limits of those who have none of their own. What the storage did not say is absent.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = StorageDefaultQuotas)]
pub struct DefaultQuotasView {
    /// A user's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    user_bytes: Option<LimitWord>,
    /// A user's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    user_files: Option<LimitWord>,
    /// A group's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group_bytes: Option<LimitWord>,
    /// A group's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group_files: Option<LimitWord>,
}

impl From<DefaultQuota> for DefaultQuotasView {
    fn from(said: DefaultQuota) -> Self {
        Self {
            user_bytes: LimitWord::of(&said.user_size, |bytes| bytes.0),
            user_files: LimitWord::of(&said.user_files, |files| files.0),
            group_bytes: LimitWord::of(&said.group_size, |bytes| bytes.0),
            group_files: LimitWord::of(&said.group_files, |files| files.0),
        }
    }
}

impl From<Report> for StorageView {
    fn from(report: Report) -> Self {
        let snapshot = report.snapshot;
        let version = snapshot.capabilities.as_ref().and_then(|can| can.version.value().cloned());
        let targets: &[Target] = snapshot.targets.got().map_or(&[], |answer| &answer.value);
        Self {
            adapter: report.adapter.to_owned(),
            version,
            as_of: snapshot.at,
            capabilities: snapshot.capabilities.as_ref().map(CapabilitiesView::from),
            roots: snapshot.roots.iter().map(RootView::from).collect(),
            servers: items(&snapshot.nodes).map(ServerView::from).collect(),
            targets: targets.iter().map(TargetView::from).collect(),
            pools: items(&snapshot.pools).map(|pool| PoolView::new(pool, targets)).collect(),
            findings: report.findings.into_iter().map(FindingView::from).collect(),
        }
    }
}

fn items<T>(asked: &Asked<eirene_core::storage::Partial<Vec<T>>>) -> impl Iterator<Item = &T> {
    asked.got().into_iter().flat_map(|answer| &answer.value)
}

impl From<&Capabilities> for CapabilitiesView {
    fn from(can: &Capabilities) -> Self {
        Self {
            targets: can.targets.into(),
            pools: can.pools.into(),
            quota_read: can.quota_read.into(),
            quota_write: can.quota_write.into(),
            default_quota: can.default_quota.into(),
            project_quota: can.project_quota.into(),
            stripe_read: can.stripe_read.into(),
            stripe_write: can.stripe_write.into(),
            server_stats: can.server_stats.into(),
            user_stats: can.user_stats.into(),
            licence: can.licence.into(),
        }
    }
}

impl From<Ability> for AbilityView {
    fn from(ability: Ability) -> Self {
        match ability {
            Ability::Yes => Self { can: "yes", why: None },
            Ability::No(why) => Self { can: "no", why: Some(why) },
            Ability::Unknown => Self { can: "unknown", why: None },
        }
    }
}

impl From<&RootSeen> for RootView {
    fn from(root: &RootSeen) -> Self {
        let seen = root.file_system.got();
        Self {
            name: root.name.to_string(),
            file_system: seen.map(|seen| seen.identity.kind.clone()),
            sizes: SizesView {
                total_bytes: seen.map(|seen| seen.total.0),
                free_bytes: seen.map(|seen| seen.available.0),
                total_files: seen.and_then(|seen| files(seen.inodes_total)),
                free_files: seen.and_then(|seen| files(seen.inodes_available)),
            },
            read_only: seen.map(|seen| seen.read_only),
        }
    }
}

fn files(known: Known<Files>) -> Option<u64> {
    known.value().map(|files| files.0)
}

impl From<&ServerNode> for ServerView {
    fn from(node: &ServerNode) -> Self {
        Self {
            id: server_name(&node.id),
            alias: node.id.alias.clone(),
            addresses: node.addresses.clone(),
            reachable: node.reachable.value().copied(),
        }
    }
}

impl From<&Target> for TargetView {
    fn from(target: &Target) -> Self {
        Self {
            id: target_name(target.id),
            alias: target.alias.clone(),
            pool: target.pool.map(|pool| pool.0),
            reach: match target.reach {
                Reach::Online => "online",
                Reach::ProbablyOffline => "probably_offline",
                Reach::Offline => "offline",
                Reach::Unknown => "unknown",
            },
            consistency: match target.consistency {
                Consistency::Good => "good",
                Consistency::NeedsResync => "needs_resync",
                Consistency::Bad => "bad",
                Consistency::Unknown => "unknown",
            },
            room: match target.room {
                Room::Normal => "normal",
                Room::Low => "low",
                Room::Emergency => "emergency",
                Room::Unknown => "unknown",
            },
            sizes: SizesView {
                total_bytes: target.total.value().map(|bytes| bytes.0),
                free_bytes: target.free.value().map(|bytes| bytes.0),
                total_files: files(target.inodes_total),
                free_files: files(target.inodes_free),
            },
            precision_bytes: target.precision.0,
        }
    }
}

impl PoolView {
    fn new(pool: &Pool, targets: &[Target]) -> Self {
        let PoolRoom { bytes, files } = PoolRoom::of(pool, targets);
        Self {
            id: pool.id.0,
            name: pool.name.clone(),
            targets: pool.targets.clone(),
            sizes: SizesView {
                total_bytes: bytes.total,
                free_bytes: bytes.free,
                total_files: files.total,
                free_files: files.free,
            },
            bytes_at_least: bytes.at_least,
            files_at_least: files.at_least,
        }
    }
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        let severity = finding.severity.as_str();
        Self { code: finding.code, severity, about: finding.about, text: finding.text.into() }
    }
}

impl From<Quotas> for QuotasView {
    fn from(quotas: Quotas) -> Self {
        let (missing, text) = quotas.missing.unzip();
        Self {
            items: quotas.answer.value.iter().map(QuotaView::from).collect(),
            doubts: quotas.answer.doubts.into_iter().map(|doubt| doubt.text).collect(),
            missing,
            text,
        }
    }
}

impl From<&Quota> for QuotaView {
    fn from(quota: &Quota) -> Self {
        let (QuotaId::User(id) | QuotaId::Group(id) | QuotaId::Project(id)) = quota.id;
        let at = |limit: Option<Limit<u64>>| match limit {
            Some(Limit::At(most)) => Some(most),
            Some(Limit::Unlimited) | None => None,
        };
        let why =
            [missing(&quota.used), missing(&quota.limit), missing(&quota.files_used), missing(&quota.files_limit)];
        Self {
            id,
            pool: quota.pool.map(|pool| pool.0),
            used_bytes: quota.used.value().map(|bytes| bytes.0),
            limit_bytes: at(quota.limit.value().map(|limit| limit.map(|bytes| bytes.0))),
            unlimited: quota.limit == Known::Known(Limit::Unlimited),
            used_files: files(quota.files_used),
            limit_files: at(quota.files_limit.value().map(|limit| limit.map(|files| files.0))),
            counted: match quota.counted {
                Counted::Inodes => "inodes",
                Counted::ChunkFiles => "chunk_files",
            },
            files_at_least: quota.files_at_least,
            missing: why.into_iter().flatten().next(),
        }
    }
}

fn missing<T>(known: &Known<T>) -> Option<Why> {
    match known {
        Known::Known(_) => None,
        Known::Missing(why) => Some(*why),
    }
}
