//! The shared storage, for admins: its health by the last look, and quotas asked now.

use axum::Json;
use axum::extract::State;
use eirene_core::storage::QuotaOf;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::http::body::{self, some_plain};
use crate::http::extract::AdminCaller;
use crate::http::problem::HttpResult;
use crate::http::view::{QuotasView, StorageView};

/// Whose quotas.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Of {
    /// Users'.
    #[default]
    User,
    /// Groups'.
    Group,
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

/// What the storage is and can, its targets and pools, and what is wrong.
#[utoipa::path(get, path = "/api/v1/storage", tag = "storage", responses((status = 200, body = StorageView)))]
pub(crate) async fn show(State(app): State<App>, AdminCaller(caller): AdminCaller) -> HttpResult<Json<StorageView>> {
    Ok(Json(StorageView::from(app.storage.report(&caller.actor)?)))
}

/// What users or groups use and may use, by number. A storage that has no quotas, or refuses to tell them, says so in `missing`.
#[utoipa::path(
    get, path = "/api/v1/storage/quotas", tag = "storage", params(Which), responses((status = 200, body = QuotasView))
)]
pub(crate) async fn quotas(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<QuotasView>> {
    let of = match which.of {
        Of::User => QuotaOf::User,
        Of::Group => QuotaOf::Group,
    };
    let first = which.first.unwrap_or(0);
    let quotas = app.storage.quotas(&caller.actor, of, first, which.last.unwrap_or(first)).await?;
    Ok(Json(QuotasView::from(quotas)))
}
