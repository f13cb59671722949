//! Work on files that outlives its request: each person's own.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::OperationId;
use eirene_core::file_work::Operation;
use eirene_http::body;
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_words::say;
use http::{HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::{List, Part, cursor, limit, wrong};
use crate::view::OperationView;

/// The answer to a request whose work has only begun: the operation, and where it is found.
pub(super) fn accepted(operation: Operation) -> HttpResult<Response> {
    let place = HeaderValue::try_from(format!("/api/v1/operations/{}", operation.id));
    let place = place.map_err(|error| AppError::Internal(error.into()))?;
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], Json(OperationView::from(operation))).into_response())
}

/// Your operations on files, the newest first.
#[utoipa::path(
    get, path = "/api/v1/operations", tag = "files", params(Part), responses((status = 200, body = List<OperationView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    body::Query(part): body::Query<Part>,
) -> HttpResult<Json<List<OperationView>>> {
    let after: Option<OperationId> = match cursor(part.cursor)? {
        Some(text) => Some(text.parse().map_err(|_| wrong("cursor", say("wrong.cursor")))?),
        None => None,
    };
    let page = app.operations.list(&caller.actor, after, limit(part.limit)?).await?;
    Ok(Json(List { items: page.items.into_iter().map(OperationView::from).collect(), next: page.next }))
}

/// One of your operations.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}", tag = "files",
    params(("id" = String, Path, description = "Operation", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = OperationView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> HttpResult<Json<OperationView>> {
    Ok(Json(OperationView::from(app.operations.get(&caller.actor, id).await?)))
}

/// Ask one of your operations to end. What it has done is done; one that is over stays as it is, but nobody goes on with it.
#[utoipa::path(
    delete, path = "/api/v1/operations/{id}", tag = "files",
    params(("id" = String, Path, description = "Operation", pattern = "^[0-9a-f]{32}$")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<OperationId>,
) -> HttpResult<(StatusCode, Json<OperationView>)> {
    let operation = app.operations.cancel(&caller.actor, id).await?;
    Ok((StatusCode::ACCEPTED, Json(OperationView::from(operation))))
}

/// What a search found, or the directories a scan measured, the largest first. It is kept for a while, and not beyond a restart.
#[utoipa::path(
    get, path = "/api/v1/operations/{id}/results", tag = "files",
    params(("id" = String, Path, description = "Operation", pattern = "^[0-9a-f]{32}$"), Part),
    responses((status = 200, body = List<Object>))
)]
pub(crate) async fn results(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<OperationId>,
    body::Query(part): body::Query<Part>,
) -> HttpResult<Json<List<Box<RawValue>>>> {
    let from: usize = match cursor(part.cursor)? {
        Some(text) => text.parse().map_err(|_| wrong("cursor", say("wrong.cursor")))?,
        None => 0,
    };
    let page = app.operations.results(&caller.actor, id, from, limit(part.limit)? as usize).await?;
    Ok(Json(List { items: page.items, next: page.next }))
}
