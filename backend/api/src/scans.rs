//! What takes the room in a space: measured by the person's own process, and theirs alone to read.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use eirene_core::SpaceName;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::files::path::AskedPath;
use eirene_words::say_with;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::operations::accepted;
use super::wrong;
use crate::view::{OperationView, ScanView};

/// Directories of an answer when nothing is said.
const DEFAULT_LIMIT: u32 = 100;
/// Most directories of an answer.
const MAX_LIMIT: u32 = 1000;

/// What to measure.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewScan {
    /// Below which directory; the space itself when nothing is said.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
}

/// What is asked about.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Sizes {
    /// Which directory; the space itself when nothing is said.
    #[param(max_length = 4095, nullable = false)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    #[param(nullable = false)]
    raw_path: Option<String>,
    /// Most directories that are named.
    #[param(minimum = 1, maximum = 1000, default = 100, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
}

/// Measure what takes the room, at the lowest priority; gone on with where it stopped.
///
/// You measure a space once at a time: while you do, the answer is the operation that does. What came of it is at `GET` of the same address, and
/// at the operation's `results`.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/scan", tag = "files", request_body = NewScan,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<NewScan>,
) -> HttpResult<Response> {
    let path = AskedPath::new("path", new.path, new.raw_path);
    accepted(app.scans.start(&caller.actor, &space, &path).await?)
}

/// What takes the room in a directory of a space, as far as you have had it measured.
///
/// The directories in it come the largest first. The smallest of very many are only in the numbers of those above them.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/scan", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Sizes),
    responses((status = 200, body = ScanView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(asked): body::Query<Sizes>,
) -> HttpResult<Json<ScanView>> {
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(wrong("limit", say_with("wrong.between", &[("least", "1"), ("most", &MAX_LIMIT.to_string())])));
    }
    let path = AskedPath::new("path", asked.path, asked.raw_path);
    Ok(Json(ScanView::from(app.scans.sizes(&caller.actor, &space, &path, limit as usize).await?)))
}
