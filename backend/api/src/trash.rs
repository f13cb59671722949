//! The trash of a space: each person's own, until it is restored or removed for good.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;
use eirene_files_protocol::TrashId;
use eirene_http::body;
use eirene_http::extract::{Caller, Id, InSpace};
use eirene_http::problem::HttpResult;
use eirene_http::unhurried::Unhurried;
use eirene_services::app::App;
use eirene_services::files::changing::Each;
use eirene_services::files::path::{AskedPath, shown};
use eirene_words::say;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::changes::{refuse, several};
use super::operations::accepted;
use super::{List, Part, cursor, limit, wrong};
use crate::view::{MovedView, OperationView, RefusedView, TrashedView};

/// Things for the trash.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unwanted {
    /// Which.
    #[serde(default)]
    #[schema(max_items = 1000)]
    paths: Vec<String>,
    /// Which, as base64url of their bytes.
    #[serde(default)]
    #[schema(max_items = 1000)]
    raw_paths: Vec<String>,
}

/// Something that was put into the trash.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PutInTrash {
    /// Its id there.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// Where it was.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
}

/// What became of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PutAway {
    /// What lies in the trash now.
    items: Vec<PutInTrash>,
    /// What does not, and why.
    refused: Vec<RefusedView>,
}

/// Where to put something back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Back {
    /// Its path; where it was when nothing is said.
    #[schema(max_length = 4095)]
    to: Option<String>,
    /// The same as base64url of its bytes.
    raw_to: Option<String>,
    /// What happens where something lies already; `refuse` when nothing is said.
    #[serde(default = "refuse")]
    on_conflict: OnConflict,
}

/// Put things into the trash. Where nothing at all was, the answer is why the first was not.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/trash", tag = "files", request_body = Unwanted,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 200, body = PutAway))
)]
pub(crate) async fn put(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    unhurried: Unhurried,
    body::Json(unwanted): body::Json<Unwanted>,
) -> HttpResult<Json<PutAway>> {
    let paths = several(unwanted.paths, unwanted.raw_paths)?;
    let moved = || unhurried.moved();
    let Each { done, refused } = app.files.trash_each(&caller.actor, &space, &paths, &moved).await?;
    let items = done.into_iter().map(|(path, id)| {
        let (path, raw_path) = shown(path.as_bytes());
        PutInTrash { id: id.to_string(), path, raw_path }
    });
    Ok(Json(PutAway {
        items: items.collect(),
        refused: refused.into_iter().map(|(path, trouble)| RefusedView::new(&path, trouble)).collect(),
    }))
}

/// What lies in your trash of this space, the newest first.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/trash", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Part),
    responses((status = 200, body = List<TrashedView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(part): body::Query<Part>,
) -> HttpResult<Json<List<TrashedView>>> {
    let after: Option<TrashId> = match cursor(part.cursor)? {
        Some(text) => Some(text.parse().map_err(|_| wrong("cursor", say("wrong.cursor")))?),
        None => None,
    };
    let page = app.files.trash(&caller.actor, &space, after, limit(part.limit)?).await?;
    let next = page.next.map(|id| id.to_string());
    Ok(Json(List { items: page.items.into_iter().map(TrashedView::from).collect(), next }))
}

/// Put something back where it was, or elsewhere.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/trash/{id}/restore", tag = "files", request_body = Back,
    params(
        ("space" = String, Path, description = "Name of the space", example = "home"),
        ("id" = String, Path, description = "Id in the trash", pattern = "^[0-9a-f]{32}$")
    ),
    responses((status = 200, body = MovedView))
)]
pub(crate) async fn restore(
    State(app): State<App>,
    caller: Caller,
    InSpace(space, id): InSpace<TrashId>,
    body::Json(back): body::Json<Back>,
) -> HttpResult<Json<MovedView>> {
    let elsewhere = back.to.is_some() || back.raw_to.is_some();
    let to = elsewhere.then(|| AskedPath::new("to", back.to, back.raw_to));
    let moved = app.files.restore(&caller.actor, &space, id, to.as_ref(), back.on_conflict).await?;
    Ok(Json(MovedView::from(&moved)))
}

/// Remove something from the trash for good, as an operation.
#[utoipa::path(
    delete, path = "/api/v1/spaces/{space}/trash/{id}", tag = "files",
    params(
        ("space" = String, Path, description = "Name of the space", example = "home"),
        ("id" = String, Path, description = "Id in the trash", pattern = "^[0-9a-f]{32}$")
    ),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    InSpace(space, id): InSpace<TrashId>,
) -> HttpResult<Response> {
    accepted(app.files.empty_trash(&app.operations, &caller.actor, &space, Some(id)).await?)
}

/// Remove all that lies in your trash of this space for good, as an operation.
#[utoipa::path(
    delete, path = "/api/v1/spaces/{space}/trash", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn empty(State(app): State<App>, caller: Caller, Id(space): Id<SpaceName>) -> HttpResult<Response> {
    accepted(app.files.empty_trash(&app.operations, &caller.actor, &space, None).await?)
}
