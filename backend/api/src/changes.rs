//! Changing what is in a space: new directories, other names and places, copies, deletion for good.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::SpaceName;
use eirene_core::file_work::OnConflict;
use eirene_http::body;
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_http::unhurried::Unhurried;
use eirene_services::app::App;
use eirene_services::files::changing::{Each, MoveWish};
use eirene_services::files::long::CopyWish;
use eirene_services::files::path::{AskedPath, shown};
use eirene_words::{say, say_with};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::operations::accepted;
use super::wrong;
use crate::view::{MovedView, OperationView, RefusedView};

/// Most things of one request.
const MOST_ITEMS: usize = 1000;

/// A directory to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDirectory {
    /// Its path below the space.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
    /// Whether those on the way are made too, and one that is there is as good.
    #[serde(default)]
    parents: bool,
}

/// A directory that is there now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeDirectory {
    /// Its path.
    path: String,
    /// The path's bytes as base64url, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raw_path: Option<String>,
    /// Whether it was not there before.
    made: bool,
}

/// From where to where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FromTo {
    /// What.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
    /// Its new path.
    #[schema(max_length = 4095)]
    to: Option<String>,
    /// The same as base64url of its bytes.
    raw_to: Option<String>,
}

/// Things that are copied.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPlaces {
    /// What, and where to.
    #[schema(min_items = 1, max_items = 1000)]
    items: Vec<FromTo>,
    /// To another space of yours.
    #[schema(value_type = Option<String>)]
    to_space: Option<SpaceName>,
    /// What happens where something lies already; `refuse` when nothing is said.
    #[serde(default = "refuse")]
    on_conflict: OnConflict,
    /// The same copy is gone on with where the portal had ended meanwhile, or its file process was lost, unless this is `false`: then it begins anew.
    /// With `true`, what lies there already and is the same counts as copied, whoever put it there and whatever else is in it; also with `replace`,
    /// and not with `keep_both`.
    resume: Option<bool>,
}

// Spelled out, and not `NewPlaces` flattened: serde would then name `body` where a field within is wrong, and a schema of two parts cannot refuse
// fields that it does not know.
/// Things that get other names or other places.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moves {
    /// What, and where to.
    #[schema(min_items = 1, max_items = 1000)]
    items: Vec<FromTo>,
    /// To another space of yours.
    #[schema(value_type = Option<String>)]
    to_space: Option<SpaceName>,
    /// What happens where something lies already; `refuse` when nothing is said.
    #[serde(default = "refuse")]
    on_conflict: OnConflict,
    /// As an operation, which also moves to another file system: what goes there is copied, the copy compared, and the original put into the
    /// trash.
    #[serde(default)]
    as_operation: bool,
}

/// What became of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MovedFiles {
    /// Where what was moved lies now.
    items: Vec<MovedView>,
    /// What was not, and why.
    refused: Vec<RefusedView>,
}

/// An archive, and the directory that is made of it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unpacking {
    /// The archive.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
    /// The new directory.
    #[schema(max_length = 4095)]
    to: Option<String>,
    /// The same as base64url of its bytes.
    raw_to: Option<String>,
    /// What happens where something lies already; `refuse` when nothing is said.
    #[serde(default = "refuse")]
    on_conflict: OnConflict,
}

/// Things to be deleted for good.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Doomed {
    /// Which.
    #[serde(default)]
    #[schema(max_items = 1000)]
    paths: Vec<String>,
    /// Which, as base64url of their bytes.
    #[serde(default)]
    #[schema(max_items = 1000)]
    raw_paths: Vec<String>,
    /// That this is meant: `true`.
    sure: bool,
}

pub(super) fn refuse() -> OnConflict {
    OnConflict::Refuse
}

/// Paths of a request, as they are to be parsed.
pub(super) fn several(paths: Vec<String>, raw_paths: Vec<String>) -> HttpResult<Vec<AskedPath>> {
    let texts = paths.into_iter().enumerate();
    let texts = texts.map(|(at, text)| AskedPath::new(format!("paths[{at}]"), Some(text), None));
    let raws = raw_paths.into_iter().enumerate();
    let raws = raws.map(|(at, raw)| AskedPath::new(format!("paths[{at}]"), None, Some(raw)));
    let all: Vec<AskedPath> = texts.chain(raws).collect();
    count("paths", all.len()).map(|()| all)
}

fn count(field: &str, many: usize) -> HttpResult<()> {
    if (1..=MOST_ITEMS).contains(&many) {
        return Ok(());
    }
    Err(wrong(field, say_with("wrong.none_or_many", &[("most", &MOST_ITEMS.to_string())])))
}

fn wishes(items: Vec<FromTo>) -> HttpResult<Vec<MoveWish>> {
    count("items", items.len())?;
    let wishes = items.into_iter().enumerate().map(|(at, item)| MoveWish {
        from: AskedPath::new(format!("items[{at}].path"), item.path, item.raw_path),
        to: AskedPath::new(format!("items[{at}].to"), item.to, item.raw_to),
    });
    Ok(wishes.collect())
}

/// Make a directory.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/directories", tag = "files", request_body = NewDirectory,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 201, body = MadeDirectory))
)]
pub(crate) async fn make_directory(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<NewDirectory>,
) -> HttpResult<(StatusCode, Json<MadeDirectory>)> {
    let path = AskedPath::new("path", new.path, new.raw_path);
    let (path, made) = app.files.make_directory(&caller.actor, &space, &path, new.parents).await?;
    let (path, raw_path) = shown(path.as_bytes());
    Ok((StatusCode::CREATED, Json(MadeDirectory { path, raw_path, made })))
}

/// Give things other names or other places. Where nothing at all was moved, the answer is why the first was not. What lies on another file
/// system is refused as `other_file_system`, unless an operation is asked for (`as_operation`); where only some of them lie there, `refused` says
/// which, also where nothing was moved.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/move", tag = "files", request_body = Moves,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 200, body = MovedFiles), (status = 202, body = OperationView))
)]
pub(crate) async fn move_files(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    unhurried: Unhurried,
    body::Json(new): body::Json<Moves>,
) -> HttpResult<Response> {
    let wishes = wishes(new.items)?;
    let (actor, to, conflict) = (&caller.actor, new.to_space.as_ref(), new.on_conflict);
    if new.as_operation {
        return accepted(app.files.move_as_operation(&app.operations, actor, &space, to, &wishes, conflict).await?);
    }
    let moved = || unhurried.moved();
    let each = app.files.move_each(actor, &space, to, &wishes, conflict, &moved).await?;
    let Each { done, refused } = each;
    let moved = MovedFiles {
        items: done.iter().map(|(_, moved)| MovedView::from(moved)).collect(),
        refused: refused.into_iter().map(|(path, trouble)| RefusedView::new(&path, trouble)).collect(),
    };
    Ok(Json(moved).into_response())
}

/// Copy things, as an operation. A copy gets its name when it is whole.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/copy", tag = "files", request_body = NewPlaces,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn copy(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<NewPlaces>,
) -> HttpResult<Response> {
    let wishes = wishes(new.items)?;
    let wish = CopyWish { places: &wishes, conflict: new.on_conflict, resume: new.resume };
    accepted(app.files.copy(&app.operations, &caller.actor, &space, new.to_space.as_ref(), wish).await?)
}

/// Make a new directory of what is in an archive (tar, also compressed with gzip, or zip), as an operation. It gets its name when all is
/// written. A member whose name leads elsewhere, a device, and what gives rights is not made, and named in the operation's `progress.skipped`.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/extract", tag = "files", request_body = Unpacking,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn extract(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<Unpacking>,
) -> HttpResult<Response> {
    let wish =
        MoveWish { from: AskedPath::new("path", new.path, new.raw_path), to: AskedPath::new("to", new.to, new.raw_to) };
    accepted(app.files.extract(&app.operations, &caller.actor, &space, &wish, new.on_conflict).await?)
}

/// Delete things for good, as an operation.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/delete", tag = "files", request_body = Doomed,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(doomed): body::Json<Doomed>,
) -> HttpResult<Response> {
    if !doomed.sure {
        return Err(wrong("sure", say("wrong.not_sure")));
    }
    let paths = several(doomed.paths, doomed.raw_paths)?;
    accepted(app.files.delete(&app.operations, &caller.actor, &space, &paths).await?)
}
