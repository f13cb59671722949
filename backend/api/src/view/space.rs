//! Spaces as the API shows them.

use eirene_core::space::{
    HintState, Level, LimitState, PolicyOutcome, PolicyStep, SeenUsage, StripeHint, UsageSample, UsageSource,
};
use eirene_core::storage::{Limit, Why};
use eirene_core::{Reason, Space, SpaceKind, SpaceOwner, SpaceState};
use eirene_services::spaces::SpaceSeen;
use eirene_services::spaces::group_limits::GroupLimit;
use eirene_services::spaces::policing::PolicyReport;
use eirene_services::spaces::trend::Trend;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// A space.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Space)]
pub struct SpaceView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// Name; unique.
    #[schema(example = "home-ada")]
    name: String,
    /// What it is for.
    kind: SpaceKind,
    /// What people read.
    title: String,
    /// Whether its people may write, as far as the file system lets them.
    writable: bool,
    /// The person it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// The POSIX group it belongs to. Without owner and group it is everybody's, to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    group: Option<String>,
    /// What was last seen of it.
    state: SpaceState,
    /// Whether the storage could not be asked when it was last looked at, so that what is shown was seen before.
    undetermined: bool,
    /// Why it is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<Reason>,
    /// What it is mostly filled with.
    hint: StripeHint,
    /// Whether files are spread by that: `applied`, `wanted` as long as nobody was asked, or `not_applied`, which is tried again. Absent where there is
    /// nothing to apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint_state: Option<HintState>,
    /// Why it is not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint_text: Option<String>,
    /// What it uses, by the last look; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    usage: Option<UsageView>,
    /// How it grows.
    trend: TrendView,
    /// Where sessions see it while it is there. Absent where they do not, and of homes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "/project/stars")]
    mounted_at: Option<String>,
    /// The limit that the platform sets, if it sets one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit: Option<LimitView>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    expires_at: Option<Timestamp>,
    /// When it was taken away; until it is removed it can be brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    retired_at: Option<Timestamp>,
    /// Before this time it is not removed. It grows later where the portal was down or the clock has jumped: that time is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    remove_after: Option<Timestamp>,
    /// When it was first known.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// How much a space may hold by the platform's word.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpaceLimit)]
pub(super) struct LimitView {
    /// Bytes; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes: Option<u64>,
    /// Files and directories; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    files: Option<u64>,
    /// `held` by the storage, `wanted` as long as it is not set yet, or `not_held`: then it is only shown, and warned of once it is known what the
    /// space uses: from the storage, or `measured`. With `user_quota` as the source of its usage that is not known, and the limit told there counts.
    state: LimitState,
    /// Why it is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    text: Option<String>,
}

impl LimitView {
    fn of(space: &Space) -> Option<Self> {
        let (bytes, files) = (at(space.limit_bytes.map(|limit| limit.0)), at(space.limit_files.map(|limit| limit.0)));
        (space.limit_state != LimitState::Unset).then(|| Self {
            bytes,
            files,
            state: space.limit_state,
            text: space.limit_said.clone(),
        })
    }
}

fn at(limit: Limit<u64>) -> Option<u64> {
    match limit {
        Limit::At(most) => Some(most),
        Limit::Unlimited => None,
    }
}

/// What a space uses. A number that nobody said is absent, and never 0.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpaceUsage)]
pub(super) struct UsageView {
    /// Where the numbers come from. With `file_system` it is not known what the space uses, only what is free for everybody.
    /// With `measured` one of its people had all of it measured (`POST /scan`), because the storage does not count it.
    source: UsageSource,
    /// How full it is; what was measured more than seven days ago says nothing of it.
    level: Level,
    /// When it was measured, of what was; it was so then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    measured_at: Option<Timestamp>,
    /// Whether files with several names may have been counted more than once, of what was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    approximate: Option<bool>,
    /// Used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_bytes: Option<u64>,
    /// Limit; absent without `missing` there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_bytes: Option<u64>,
    /// Files used, as the source counts files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_files: Option<u64>,
    /// Limit of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_files: Option<u64>,
    /// Free on the whole file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_bytes: Option<u64>,
    /// Files that the whole file system can still take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    free_files: Option<u64>,
    /// Why it is not known what the space uses or may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    missing: Option<Why>,
    /// When it was looked at.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
}

/// What one of your groups uses and may use on the storage. A number that nobody said is absent, and never 0.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = GroupLimit)]
pub struct GroupLimitView {
    /// The POSIX group.
    #[schema(example = "physics")]
    group: String,
    /// The pool; of a storage that is only mounted, a number for each file system that counts for itself. Absent where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pool: Option<u16>,
    /// How full that is, by the rules of spaces.
    level: Level,
    /// Used, by all of the group together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_bytes: Option<u64>,
    /// Limit; absent where there is none or it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_bytes: Option<u64>,
    /// Files used, as the storage counts files.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_files: Option<u64>,
    /// Limit of files, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_files: Option<u64>,
}

impl From<GroupLimit> for GroupLimitView {
    fn from(limit: GroupLimit) -> Self {
        let usage = limit.usage;
        Self {
            group: limit.group.to_string(),
            pool: limit.pool.map(|pool| pool.0),
            level: limit.level,
            used_bytes: usage.used_bytes.map(|n| n.0),
            limit_bytes: usage.limit_bytes.and_then(|limit| at(limit.map(|n| n.0))),
            used_files: usage.used_files.map(|n| n.0),
            limit_files: usage.limit_files.and_then(|limit| at(limit.map(|n| n.0))),
        }
    }
}

/// How a space grows, by its days of the last 30.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpaceTrend)]
pub(super) struct TrendView {
    /// Growth; negative when it shrinks, absent while too little is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    bytes_per_day: Option<i64>,
    /// When it is full if it goes on like that; absent where that is more than a year away, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    full_at: Option<Timestamp>,
    /// On how many days that rests.
    days_of_samples: usize,
}

/// What a space used at one time.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpaceSample)]
pub struct SampleView {
    /// When: one an hour for a week, one a day for about a year.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Used.
    used_bytes: u64,
    /// Files used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    used_files: Option<u64>,
    /// Limit then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit_bytes: Option<u64>,
}

/// What a policy would do to a space.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpacePolicy)]
pub struct PolicyView {
    /// The step that is due; absent where nothing is, or where it cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    step: Option<PolicyStep>,
    /// `nothing`, `would_do`, or `undetermined` where it cannot be known whether it is right.
    outcome: PolicyOutcome,
    /// One sentence.
    why: String,
    /// The last looks, newest first; what was the same as before is there once.
    runs: Vec<PolicyRunView>,
}

/// What came of a look of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SpacePolicyRun)]
pub(super) struct PolicyRunView {
    /// The step: `warn`, `retire` or `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    step: Option<PolicyStep>,
    /// What came of it: `warned`, `would_do`, `did` or `undetermined`.
    outcome: PolicyOutcome,
    /// One sentence.
    why: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl From<PolicyReport> for PolicyView {
    fn from(report: PolicyReport) -> Self {
        let PolicyReport { step, outcome, why, runs } = report;
        let runs = runs.into_iter().map(|run| PolicyRunView {
            step: run.step,
            outcome: run.outcome,
            why: run.why,
            at: run.at,
        });
        Self { step, outcome, why, runs: runs.collect() }
    }
}

impl From<SpaceSeen> for SpaceView {
    fn from(seen: SpaceSeen) -> Self {
        let SpaceSeen { space, seen, trend, mounted_at, .. } = seen;
        let (limit, remove_after) = (LimitView::of(&space), space.kept_until());
        let (owner, group) = match &space.owner {
            SpaceOwner::Person { name, .. } => (Some(name.to_string()), None),
            SpaceOwner::Group(group) => (None, Some(group.to_string())),
            SpaceOwner::Everybody => (None, None),
        };
        Self {
            id: space.id.to_string(),
            name: space.name.to_string(),
            kind: space.kind,
            title: space.title.to_string(),
            writable: space.writable,
            owner,
            group,
            state: space.state,
            undetermined: space.undetermined,
            reason: space.reason,
            hint: space.hint,
            hint_state: Some(space.hint_state).filter(|state| *state != HintState::Unset),
            hint_text: space.hint_said,
            usage: seen.map(UsageView::from),
            trend: TrendView::from(trend),
            mounted_at: mounted_at.map(|path| path.to_string_lossy().into_owned()),
            limit,
            expires_at: space.expires_at,
            retired_at: space.retired_at,
            remove_after,
            created_at: space.created_at,
        }
    }
}

impl From<SeenUsage> for UsageView {
    fn from(seen: SeenUsage) -> Self {
        let usage = seen.usage;
        Self {
            source: usage.source,
            level: seen.level,
            measured_at: usage.measured.map(|measured| measured.at),
            approximate: usage.measured.map(|measured| measured.approximate),
            used_bytes: usage.used_bytes.map(|n| n.0),
            limit_bytes: usage.limit_bytes.and_then(|limit| at(limit.map(|n| n.0))),
            used_files: usage.used_files.map(|n| n.0),
            limit_files: usage.limit_files.and_then(|limit| at(limit.map(|n| n.0))),
            free_bytes: usage.free_bytes.map(|n| n.0),
            free_files: usage.free_files.map(|n| n.0),
            missing: usage.missing,
            as_of: seen.seen_at,
        }
    }
}

impl From<Trend> for TrendView {
    fn from(trend: Trend) -> Self {
        Self { bytes_per_day: trend.bytes_per_day, full_at: trend.full_at, days_of_samples: trend.days }
    }
}

impl From<UsageSample> for SampleView {
    fn from(sample: UsageSample) -> Self {
        Self {
            at: sample.at,
            used_bytes: sample.used_bytes.0,
            used_files: sample.used_files.map(|n| n.0),
            limit_bytes: sample.limit_bytes.map(|n| n.0),
        }
    }
}
