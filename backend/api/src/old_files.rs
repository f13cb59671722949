//! Old files in a space: what is known of them, looking now, and what an admin says of one space.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use eirene_core::SpaceName;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{AdminCaller, Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::old_files::{OldFilesChange, OldFilesDays};
use eirene_words::say;
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::users::Nothing;
use super::wrong;
use crate::view::OldFilesView;

/// Whether it is only looked.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Trial {
    /// Must be `true`: old files are removed by the portal itself, when their owner was told in time.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    dry_run: Option<bool>,
}

/// What is to be said of one space; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeOldFiles)]
pub(crate) struct Change {
    /// Whether nothing of it is to be listed or removed.
    exempt: Option<bool>,
    /// Days after which a file is old here; null is what its root says.
    #[schema(value_type = Option<u32>, minimum = 7, maximum = 3650, required = false)]
    #[serde(default, deserialize_with = "given")]
    days: Option<OldFilesDays>,
}

/// What is there, also where it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OldFilesDays>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.map_or(OldFilesDays::OfRoot, OldFilesDays::Own)))
}

/// What becomes of files in a space that nobody changes or reads: what is listed, when it goes, and what went.
///
/// Names of files are there for the owner alone.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/old-files", tag = "spaces",
    params(("space" = String, Path, description = "Name of the space", example = "scratch")),
    responses((status = 200, body = OldFilesView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
) -> HttpResult<Json<OldFilesView>> {
    Ok(Json(OldFilesView::from(app.old_files.report(&caller.actor, &space).await?)))
}

/// Look now what is old, at the lowest priority. Nothing is done to anything, and what is listed already stays as it is.
///
/// For the owner and for admins. What was found is at `GET` of the same address as `look`, when it is no longer `running`.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/old-files", tag = "spaces", request_body = Nothing,
    params(("space" = String, Path, description = "Name of the space", example = "scratch"), Trial),
    responses((status = 202, body = OldFilesView))
)]
pub(crate) async fn look(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(trial): body::Query<Trial>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<Response> {
    // Whoever may not know of the space hears nothing of the question either.
    app.old_files.report(&caller.actor, &space).await?;
    if trial.dry_run != Some(true) {
        return Err(wrong("dry_run", say("wrong.not_dry")));
    }
    let report = app.old_files.look(&caller.actor, &space).await?;
    Ok((StatusCode::ACCEPTED, Json(OldFilesView::from(report))).into_response())
}

/// Exempt a space, or say after how many days a file is old there.
#[utoipa::path(
    patch, path = "/api/v1/spaces/{space}/old-files", tag = "spaces", request_body = Change,
    params(("space" = String, Path, description = "Name of the space", example = "scratch-ada")),
    responses((status = 200, body = OldFilesView))
)]
pub(crate) async fn change(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(space): Id<SpaceName>,
    body::Json(change): body::Json<Change>,
) -> HttpResult<Json<OldFilesView>> {
    let change = OldFilesChange { exempt: change.exempt, days: change.days };
    Ok(Json(OldFilesView::from(app.old_files.change(&caller.actor, &space, change).await?)))
}
