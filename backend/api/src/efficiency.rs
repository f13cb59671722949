//! How well what sessions and runs hold is used: of one, for who may see it, and of all, for admins.

use axum::Json;
use axum::extract::State;
use eirene_core::{Session, SessionId};
use eirene_http::body;
use eirene_http::extract::{AdminCaller, Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::efficiency::Wanted;
use eirene_services::error::AppError;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::view::{ByWord, JobUsageView, ReportView};

/// Which report.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// From when on; 30 days before its end when nothing is said. At most 366 days.
    #[param(nullable = false, value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Until when; now when nothing is said.
    #[param(nullable = false, value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// `person`, which it is when nothing is said, or `partition`.
    #[param(inline)]
    #[serde(default)]
    by: ByWord,
}

/// What sessions and runs held and used of the cluster.
#[utoipa::path(
    get, path = "/api/v1/efficiency", tag = "cluster", params(Which), responses((status = 200, body = ReportView))
)]
pub(crate) async fn report(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<ReportView>> {
    let wanted = Wanted { from: which.from, to: which.to, by: which.by.into() };
    Ok(Json(app.efficiency.report(&caller.actor, wanted).await?.into()))
}

/// What a session holds and uses, and what could be done better.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/efficiency", tag = "sessions",
    params(("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = JobUsageView))
)]
pub(crate) async fn of_session(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> HttpResult<Json<JobUsageView>> {
    let session = app.sessions.get(&caller.actor, id).await?;
    answer(&app, &session).await
}

/// What a run holds and uses, and what could be done better.
#[utoipa::path(
    get, path = "/api/v1/runs/{id}/efficiency", tag = "runs",
    params(("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = JobUsageView))
)]
pub(crate) async fn of_run(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> HttpResult<Json<JobUsageView>> {
    let run = app.runs.get(&caller.actor, id).await?;
    answer(&app, &run).await
}

async fn answer(app: &App, session: &Session) -> HttpResult<Json<JobUsageView>> {
    // Nothing was held yet, so there is no such thing.
    let usage = app.efficiency.of(session).await?.ok_or(AppError::NotFound)?;
    Ok(Json(JobUsageView::new(&usage, &session.resources)))
}
