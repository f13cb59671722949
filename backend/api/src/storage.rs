//! The shared storage, for admins: its health by the last look, quotas asked now, and the limits the storage itself enforces.

use axum::Json;
use axum::extract::{Path, State};
use eirene_core::storage::{Bytes, Files, OperationsKind, PoolId, QuotaOf, Role};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{AdminCaller, Id};
use eirene_http::problem::{HttpResult, Problem};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::storage::limits::NewLimits;
use eirene_words::{say, say_with};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::wrong;
use crate::view::{DefaultQuotasView, LimitWord, QuotasView, StorageStatsView, StorageView};

/// Minutes of the past that are kept.
const MOST_MINUTES: u32 = 1440;

/// Whose quotas.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = StorageQuotaOf)]
pub(crate) enum Of {
    /// Users'.
    #[default]
    User,
    /// Groups'.
    Group,
}

impl From<Of> for QuotaOf {
    fn from(of: Of) -> Self {
        match of {
            Of::User => Self::User,
            Of::Group => Self::Group,
        }
    }
}

/// Limits of one user or group; what is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetLimits {
    /// Pool; the storage's default one when nothing is said.
    pool: Option<u16>,
    /// Bytes.
    limit_bytes: Option<LimitWord>,
    /// Files, as the storage counts them.
    limit_files: Option<LimitWord>,
}

/// Limits of users or groups who have none of their own; what is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetDefaults {
    /// Users' or groups'; users' when nothing is said.
    #[serde(default)]
    of: Of,
    /// Bytes.
    limit_bytes: Option<LimitWord>,
    /// Files, as the storage counts them.
    limit_files: Option<LimitWord>,
}

fn limits(bytes: Option<LimitWord>, files: Option<LimitWord>) -> NewLimits {
    NewLimits { bytes: bytes.map(|limit| limit.limit().map(Bytes)), files: files.map(|limit| limit.limit().map(Files)) }
}

/// Which quotas.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// `user`, which it is when nothing is said, or `group`.
    #[param(inline)]
    #[serde(default)]
    of: Of,
    /// The first number.
    #[param(minimum = 0, maximum = 4_294_967_295_u64, default = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    first: Option<u32>,
    /// The last number; the first one alone when nothing is said. At most 65536 numbers at once.
    #[param(minimum = 0, maximum = 4_294_967_295_u64, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    last: Option<u32>,
}

/// Whose statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = StorageStatsOf)]
pub(crate) enum StatsOf {
    /// Of servers: what each did in its last second.
    #[default]
    Servers,
    /// Of users: what each had done.
    Users,
    /// Of clients, likewise.
    Clients,
}

/// Which servers.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = StorageServerRole)]
pub(crate) enum ServerRole {
    /// Those that hold names and attributes.
    Metadata,
    /// Those that hold contents.
    #[default]
    Storage,
}

/// Which statistics.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichStats {
    /// `servers`, which it is when nothing is said, `users` or `clients`.
    #[param(inline)]
    #[serde(default)]
    of: StatsOf,
    /// Of which servers: `storage`, which it is when nothing is said, or `metadata`.
    #[param(inline)]
    #[serde(default)]
    role: ServerRole,
    /// Minutes of the past that are wanted too; for `of=servers` and `of=users`.
    #[param(minimum = 1, maximum = 1440, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    history: Option<u32>,
}

/// What the storage is and can, its targets and pools, and what is wrong.
#[utoipa::path(get, path = "/api/v1/storage", tag = "storage", responses((status = 200, body = StorageView)))]
pub(crate) async fn show(State(app): State<App>, AdminCaller(caller): AdminCaller) -> HttpResult<Json<StorageView>> {
    Ok(Json(StorageView::from(app.storage.report(&caller.actor)?)))
}

/// What users or groups use and may use, by number. Where nobody counts it, as on a network file system that is only mounted, or the storage
/// refuses to tell it, `missing` says so. Of a storage that is only mounted each file system counts for itself: where there are several, each has a
/// number in a pool's place, and `doubts` say whose it is.
#[utoipa::path(
    get, path = "/api/v1/storage/quotas", tag = "storage", params(Which), responses((status = 200, body = QuotasView))
)]
pub(crate) async fn quotas(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<QuotasView>> {
    let first = which.first.unwrap_or(0);
    let quotas = app.storage.quotas(&caller.actor, which.of.into(), first, which.last.unwrap_or(first)).await?;
    Ok(Json(QuotasView::from(quotas)))
}

/// What the storage's servers do now, or who asks how much of them. Users and clients are counted since the servers were started; their rates
/// come from two counts, so the first question has none, and none is told after a server was started anew. With `history`, what the servers
/// did in the last minutes is in `history`, and which users asked most then in `history_of_users`: the ten of each point who asked most, and all
/// others as one sum. A storage without statistics says so in `missing`.
#[utoipa::path(
    get, path = "/api/v1/storage/stats", tag = "storage", params(WhichStats),
    responses((status = 200, body = StorageStatsView))
)]
pub(crate) async fn stats(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(which): body::Query<WhichStats>,
) -> HttpResult<Json<StorageStatsView>> {
    let role = match which.role {
        ServerRole::Metadata => Role::Metadata,
        ServerRole::Storage => Role::Storage,
    };
    if which.history.is_some_and(|minutes| !(1..=MOST_MINUTES).contains(&minutes)) {
        let most = MOST_MINUTES.to_string();
        return Err(wrong("history", say_with("wrong.between", &[("least", "1"), ("most", &most)])));
    }
    let (stats, actor) = (&app.storage_stats, &caller.actor);
    Ok(Json(match which.of {
        StatsOf::Servers => {
            let history = which.history.map(|minutes| stats.history(actor, role, minutes)).transpose()?;
            StorageStatsView::of_servers(stats.servers(actor, role).await?, &history.unwrap_or_default())
        }
        StatsOf::Users => {
            let history = which.history.map(|minutes| stats.history_of_users(actor, role, minutes)).transpose()?;
            let users = stats.operations(actor, role, OperationsKind::Users).await?;
            StorageStatsView::of_users(users, &history.unwrap_or_default())
        }
        StatsOf::Clients if which.history.is_some() => {
            return Err(wrong("history", say("wrong.history_of_clients")));
        }
        StatsOf::Clients => StorageStatsView::from(stats.operations(actor, role, OperationsKind::Clients).await?),
    }))
}

/// Set the limits of one user or group, by number; the answer is what the storage says then.
#[utoipa::path(
    put, path = "/api/v1/storage/quotas/{of}/{number}", tag = "storage", request_body = SetLimits,
    params(
        ("of" = String, Path, description = "`user` or `group`", pattern = "^(user|group)$"),
        ("number" = u32, Path, description = "Number of the user or group", minimum = 0, maximum = 4_294_967_295_u64)
    ),
    responses((status = 200, body = QuotasView))
)]
pub(crate) async fn set(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Path((of, number)): Path<(String, String)>,
    body::Json(wanted): body::Json<SetLimits>,
) -> HttpResult<Json<QuotasView>> {
    let of = match of.as_str() {
        "user" => QuotaOf::User,
        "group" => QuotaOf::Group,
        _ => return Err(AppError::NotFound.into()),
    };
    let number = number.parse().map_err(|_| AppError::NotFound)?;
    let new = limits(wanted.limit_bytes, wanted.limit_files);
    let quotas = app.storage_limits.set(&caller.actor, of, number, wanted.pool.map(PoolId), new).await?;
    Ok(Json(QuotasView::from(quotas)))
}

/// The limits of users and groups who have none of their own, in one pool.
#[utoipa::path(
    get, path = "/api/v1/storage/default-quotas/{pool}", tag = "storage",
    params(("pool" = u16, Path, description = "Number of the pool", minimum = 0, maximum = 65_535)),
    responses(
        (status = 200, body = DefaultQuotasView),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "The portal sets none on this storage, or it refuses")
    )
)]
pub(crate) async fn defaults(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(pool): Id<u16>,
) -> HttpResult<Json<DefaultQuotasView>> {
    Ok(Json(DefaultQuotasView::from(app.storage_limits.defaults(&caller.actor, PoolId(pool)).await?)))
}

/// Set the limits of users or groups who have none of their own, in one pool; the answer is what the storage says then.
#[utoipa::path(
    put, path = "/api/v1/storage/default-quotas/{pool}", tag = "storage", request_body = SetDefaults,
    params(("pool" = u16, Path, description = "Number of the pool", minimum = 0, maximum = 65_535)),
    responses((status = 200, body = DefaultQuotasView))
)]
pub(crate) async fn set_defaults(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(pool): Id<u16>,
    body::Json(wanted): body::Json<SetDefaults>,
) -> HttpResult<Json<DefaultQuotasView>> {
    let new = limits(wanted.limit_bytes, wanted.limit_files);
    let set = app.storage_limits.set_defaults(&caller.actor, PoolId(pool), wanted.of.into(), new).await?;
    Ok(Json(DefaultQuotasView::from(set)))
}
