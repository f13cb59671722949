//! What keeps open pages true, and what they do with [files]: the API's own answers, for the cookie of the portal's pages. Kept apart from the
//! API so that neither accepts the other's credentials. Nothing here changes anything but files.

pub mod files;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use eirene_core::{JobKind, SessionId};
use eirene_http::body::{Query, some_plain};
use eirene_http::extract::{Id, SignedIn};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use http::HeaderMap;
use serde::Deserialize;

use super::samples::{self, Which as WhichSamples};
use super::streams::{self, LogOf, Wanted};
use super::view::{ClusterDocument, SessionView};

/// The router.
pub fn router(app: &App) -> Router<App> {
    routes().merge(files::router(app))
}

eirene_http::listed_routes! {
    GET "/live/events" => events;
    GET "/live/sessions/{id}" => session;
    GET "/live/sessions/{id}/events" => session_events;
    GET "/live/sessions/{id}/logs" => logs;
    GET "/live/sessions/{id}/samples" => session_samples;
    GET "/live/runs/{id}/samples" => run_samples;
    GET "/live/runs/{id}/events" => run_events;
    GET "/live/runs/{id}/logs" => run_logs;
    GET "/live/cluster" => cluster;
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    #[serde(default, deserialize_with = "some_plain")]
    last_id: Option<i64>,
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    #[serde(default)]
    follow: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HowRun {
    #[serde(default, deserialize_with = "some_plain")]
    rank: Option<u32>,
    #[serde(default)]
    follow: bool,
}

async fn events(
    State(app): State<App>,
    person: SignedIn,
    headers: HeaderMap,
    Query(from): Query<From>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, from.last_id)?;
    let wanted = if from.all { Wanted::All } else { Wanted::Own };
    streams::events(&app, &person.actor, person.ticket, wanted, last_id).await
}

async fn session_events(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    Query(from): Query<From>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, from.last_id)?;
    streams::events(&app, &person.actor, person.ticket, Wanted::One(JobKind::Session, id), last_id).await
}

async fn logs(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    Query(how): Query<How>,
) -> HttpResult<Response> {
    streams::log(&app, &person.actor, person.ticket, LogOf::Session(id), how.follow).await
}

async fn run_events(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    Query(from): Query<From>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, from.last_id)?;
    streams::events(&app, &person.actor, person.ticket, Wanted::One(JobKind::Run, id), last_id).await
}

async fn run_logs(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    Query(how): Query<HowRun>,
) -> HttpResult<Response> {
    streams::log(&app, &person.actor, person.ticket, LogOf::Run(id, how.rank), how.follow).await
}

async fn session(State(app): State<App>, person: SignedIn, Id(id): Id<SessionId>) -> HttpResult<Response> {
    let session = app.sessions.get(&person.actor, id).await?;
    let copied = app.nodes.copied(&session);
    let view = SessionView::new(&session, &app.config).with_nodes(&app.nodes.of(&session)).with_copied(copied.as_ref());
    Ok(Json(view).into_response())
}

async fn session_samples(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    Query(which): Query<WhichSamples>,
) -> HttpResult<Response> {
    let session = app.sessions.get(&person.actor, id).await?;
    Ok(samples::answer(&app, &session, &which).await?.into_response())
}

async fn run_samples(
    State(app): State<App>,
    person: SignedIn,
    Id(id): Id<SessionId>,
    Query(which): Query<WhichSamples>,
) -> HttpResult<Response> {
    let run = app.runs.get(&person.actor, id).await?;
    Ok(samples::answer(&app, &run, &which).await?.into_response())
}

async fn cluster(State(app): State<App>, person: SignedIn) -> HttpResult<Response> {
    Ok(Json(ClusterDocument::from(&app.overview.cluster(&person.actor).await?)).into_response())
}
