//! Alerts: one's own, for admins all; and the times for which nobody, or oneself, is not told.

use axum::Json;
use axum::extract::State;
use eirene_core::alert::AlertRule;
use eirene_core::{AlertId, SessionId, SilenceId};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{AdminCaller, Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::alerts::{ListAlerts, NewOwnSilence, NewSilence, no_job};
use eirene_services::app::App;
use eirene_words::say;
use http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{List, cursor, limit, wrong};
use crate::view::{AlertView, SilenceView};

/// Which alerts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Everybody's and the platform's, for admins.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    all: Option<bool>,
    /// Only those that go on.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    open: Option<bool>,
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
}

/// List alerts about your sessions and runs, the latest first.
#[utoipa::path(get, path = "/api/v1/alerts", tag = "alerts", params(Which), responses((status = 200, body = List<AlertView>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<List<AlertView>>> {
    let before = cursor(which.cursor)?.map(|text| text.parse::<AlertId>()).transpose();
    let wanted = ListAlerts {
        all: which.all.unwrap_or(false),
        open_only: which.open.unwrap_or(false),
        before: before.map_err(|_| wrong("cursor", say("wrong.cursor")))?,
        limit: limit(which.limit)?,
    };
    let page = app.alerts.list(&caller.actor, wanted).await?;
    Ok(Json(List { items: page.items.iter().map(AlertView::from).collect(), next: page.next }))
}

/// Show an alert.
#[utoipa::path(
    get, path = "/api/v1/alerts/{id}", tag = "alerts",
    params(("id" = String, Path, description = "Alert", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = AlertView))
)]
pub(crate) async fn show(State(app): State<App>, caller: Caller, Id(id): Id<AlertId>) -> HttpResult<Json<AlertView>> {
    Ok(Json(AlertView::from(&app.alerts.get(&caller.actor, id).await?)))
}

/// Say that you know of an alert. Whoever says so first is kept; to say it again changes nothing.
#[utoipa::path(
    post, path = "/api/v1/alerts/{id}/acknowledge", tag = "alerts",
    params(("id" = String, Path, description = "Alert", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = AlertView))
)]
pub(crate) async fn acknowledge(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AlertId>,
) -> HttpResult<Json<AlertView>> {
    Ok(Json(AlertView::from(&app.alerts.acknowledge(&caller.actor, id).await?)))
}

/// List the silences that are not over: admins', and those that people have for themselves, which have an `owner`.
#[utoipa::path(
    get, path = "/api/v1/alert-silences", tag = "alerts", responses((status = 200, body = List<SilenceView>))
)]
pub(crate) async fn silences(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
) -> HttpResult<Json<List<SilenceView>>> {
    let items = app.alerts.silences(&caller.actor).await?.into_iter().map(SilenceView::from).collect();
    Ok(Json(List { items, next: None }))
}

/// A silence to be made. Without a rule and a subject it is of everything.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAlertSilence)]
pub(crate) struct Wanted {
    /// Of which rule; any where it is left out.
    rule: Option<AlertRule>,
    /// About what, as alerts have it as their `subject`; anything where it is left out.
    #[schema(min_length = 1, max_length = 300, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "node7")]
    subject: Option<String>,
    /// For how many minutes.
    #[serde(deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 44_640, example = 120)]
    minutes: u32,
    /// Why.
    #[schema(min_length = 1, max_length = 200, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "new memory")]
    reason: String,
}

/// Have nobody told of some alerts for a time.
#[utoipa::path(
    post, path = "/api/v1/alert-silences", tag = "alerts", request_body = Wanted,
    responses((status = 201, body = SilenceView))
)]
pub(crate) async fn silence(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Json(wanted): body::Json<Wanted>,
) -> HttpResult<(StatusCode, Json<SilenceView>)> {
    let Wanted { rule, subject, minutes, reason } = wanted;
    let silence = app.alerts.silence(&caller.actor, NewSilence { rule, subject, minutes, reason }).await?;
    Ok((StatusCode::CREATED, Json(silence.into())))
}

/// Take a silence away, an admin's or somebody's own.
#[utoipa::path(
    delete, path = "/api/v1/alert-silences/{id}", tag = "alerts",
    params(("id" = String, Path, description = "Silence", pattern = "^[0-9a-f]{32}$")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn unsilence(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(id): Id<SilenceId>,
) -> HttpResult<StatusCode> {
    app.alerts.unsilence(&caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List what you have silenced for yourself and is not over.
#[utoipa::path(
    get, path = "/api/v1/me/alert-silences", tag = "alerts", responses((status = 200, body = List<SilenceView>))
)]
pub(crate) async fn own_silences(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<SilenceView>>> {
    let items = app.alerts.own_silences(&caller.actor).await?.into_iter().map(SilenceView::from).collect();
    Ok(Json(List { items, next: None }))
}

/// A silence to be made for yourself, about sessions and runs of yours.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOwnAlertSilence)]
pub(crate) struct WantedOwn {
    /// Of which rule: one about sessions and runs.
    rule: AlertRule,
    /// The id of the session or run it is about; all of yours where it is left out.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    job: Option<String>,
    /// For how many minutes.
    #[serde(deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 44_640, example = 120)]
    minutes: u32,
    /// Why; you need not say.
    #[schema(min_length = 1, max_length = 200, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "it only loads data")]
    reason: Option<String>,
}

/// Be not told of some alerts about your own sessions and runs for a time. They are still listed, and admins are still told.
#[utoipa::path(
    post, path = "/api/v1/me/alert-silences", tag = "alerts", request_body = WantedOwn,
    responses((status = 201, body = SilenceView))
)]
pub(crate) async fn silence_own(
    State(app): State<App>,
    caller: Caller,
    body::Json(wanted): body::Json<WantedOwn>,
) -> HttpResult<(StatusCode, Json<SilenceView>)> {
    let WantedOwn { rule, job, minutes, reason } = wanted;
    // What is no id is the id of nothing.
    let job = job.map(|text| text.parse::<SessionId>()).transpose();
    let job = job.map_err(|_| HttpError::invalid(vec![no_job()]))?;
    let silence = app.alerts.silence_own(&caller.actor, NewOwnSilence { rule, job, minutes, reason }).await?;
    Ok((StatusCode::CREATED, Json(silence.into())))
}

/// Take a silence of your own away.
#[utoipa::path(
    delete, path = "/api/v1/me/alert-silences/{id}", tag = "alerts",
    params(("id" = String, Path, description = "Silence", pattern = "^[0-9a-f]{32}$")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn unsilence_own(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SilenceId>,
) -> HttpResult<StatusCode> {
    app.alerts.unsilence_own(&caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
