//! Sessions: starting, listing, showing, stopping; their events and logs.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::{JobKind, Resources, ScratchSpec, SessionId};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::app::App;
use eirene_services::sessions::StartSession;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::List;
use super::wanted::{self, Since, Which, name};
use crate::streams::{self, LogOf, Wanted};
use crate::view::SessionView;

/// A session to be started. CPUs, memory and GPUs are per node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// What you call it; the app's name when nothing is given.
    #[schema(min_length = 1, max_length = 80, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "exercise 3")]
    name: Option<String>,
    /// App, one of the image's.
    #[serde(default = "wanted::app")]
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,31}$", default = "jupyterlab")]
    app: String,
    /// Image, by name.
    #[serde(default = "wanted::image")]
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$", default = "jupyter")]
    image: String,
    /// Project; it maps to a SLURM account.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$")]
    project: Option<String>,
    /// Partition; the cluster's default when nothing is given.
    #[schema(pattern = "^_?[A-Za-z0-9][A-Za-z0-9_.+@-]{0,63}$")]
    partition: Option<String>,
    /// Number of nodes.
    #[serde(default = "wanted::nodes", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 100_000, default = 1)]
    nodes: u32,
    /// CPUs per node.
    #[serde(default = "wanted::cpus", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 100_000, default = 2)]
    cpus: u32,
    /// Memory per node, MiB.
    #[serde(default = "wanted::memory_mib", deserialize_with = "body::whole")]
    #[schema(minimum = 64, maximum = 1_073_741_824_u64, default = 2048)]
    memory_mib: u64,
    /// GPUs per node.
    #[serde(default, deserialize_with = "body::whole")]
    #[schema(minimum = 0, maximum = 1024, default = 0)]
    gpus: u32,
    /// GPU type; needs at least one GPU.
    #[schema(pattern = "^_?[A-Za-z0-9][A-Za-z0-9_.+@-]{0,63}$")]
    gpu_type: Option<String>,
    /// Longest time, minutes.
    #[serde(default = "wanted::walltime_min", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 527_040, default = 60)]
    walltime_min: u32,
    /// Fast scratch on its nodes, seen as `/local`, for as long as it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scratch: Option<ScratchSpec>,
}

impl NewSession {
    fn parse(&self) -> HttpResult<StartSession> {
        let mut errors = Vec::new();
        let app = name(&mut errors, "app", &self.app);
        let image = name(&mut errors, "image", &self.image);
        let title = self.name.as_deref().and_then(|text| name(&mut errors, "name", text));
        let project = self.project.as_deref().and_then(|text| name(&mut errors, "project", text));
        let partition = self.partition.as_deref().and_then(|text| name(&mut errors, "partition", text));
        let gpu_type = self.gpu_type.as_deref().and_then(|text| name(&mut errors, "gpu_type", text));
        let (Some(app), Some(image), true) = (app, image, errors.is_empty()) else {
            return Err(HttpError::invalid(errors));
        };
        let resources = Resources {
            partition,
            nodes: self.nodes,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            gpus: self.gpus,
            gpu_type,
            walltime_min: self.walltime_min,
        };
        Ok(StartSession { name: title, app, image, project, resources, scratch: self.scratch.clone() })
    }
}

/// Start a session. The same `Idempotency-Key` and body again give the same session.
///
/// While SLURM is away the session is taken all the same and waits as `queued`, with the reason.
#[utoipa::path(
    post, path = "/api/v1/sessions", tag = "sessions", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "Any text of your choice, unguessable to others",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$")),
    responses((status = 201, body = SessionView, headers(("Location" = String, description = "The session"))))
)]
pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body::Json(new): body::Json<NewSession>,
) -> HttpResult<Response> {
    let key = wanted::key(&headers, &new)?;
    let (session, _new) = app.sessions.start(&caller.actor, new.parse()?, key).await?;
    Ok(wanted::created(&format!("/api/v1/sessions/{}", session.id), SessionView::new(&session, &app.config)))
}

/// List sessions, newest first.
#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "sessions", params(Which),
    responses((status = 200, body = List<SessionView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<List<SessionView>>> {
    let page = app.sessions.list(&caller.actor, which.query()?).await?;
    let items = page.items.iter().map(|session| SessionView::new(session, &app.config)).collect();
    Ok(Json(List { items, next: page.next }))
}

/// Show a session.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = SessionView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
) -> HttpResult<Json<SessionView>> {
    let session = app.sessions.get(&caller.actor, id).await?;
    let copied = app.nodes.copied(&session);
    let view = SessionView::new(&session, &app.config).with_nodes(&app.nodes.of(&session)).with_copied(copied.as_ref());
    Ok(Json(view))
}

/// Ask a session to stop. Asking again changes nothing.
#[utoipa::path(
    delete, path = "/api/v1/sessions/{id}", tag = "sessions",
    params(("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$")),
    responses((status = 202, body = SessionView))
)]
pub(crate) async fn stop(State(app): State<App>, caller: Caller, Id(id): Id<SessionId>) -> HttpResult<Response> {
    let session = app.sessions.stop(&caller.actor, id).await?;
    Ok((StatusCode::ACCEPTED, Json(SessionView::new(&session, &app.config))).into_response())
}

/// Follow a session's events, as server-sent events: `state`, `nodes`, `scratch`, `sample`, `log` and `notice`.
///
/// `state` carries the session as `GET /api/v1/sessions/{id}` shows it, `sample` what was measured on one of its nodes just now, `log` new text of
/// its log, `notice` a `code`, a `text` for people and
/// what belongs to it, such as `ends_soon` with `session`, `minutes_left` and `ends_at`.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/events", tag = "events",
    params(
        ("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$"),
        Since,
        ("Last-Event-ID" = Option<i64>, Header, description = "The last event you have", minimum = 0),
    ),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(crate) async fn events(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    body::Query(since): body::Query<Since>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, since.last_id)?;
    streams::events(&app, &caller.actor, caller.ticket, Wanted::One(JobKind::Session, id), last_id).await
}

/// How a log is read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// Stay, and send what is added, until the session is over.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    follow: Option<bool>,
}

/// Read a session's log.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/logs", tag = "sessions",
    params(("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$"), How),
    responses((status = 200, content_type = "text/plain", body = String))
)]
pub(crate) async fn logs(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    body::Query(how): body::Query<How>,
) -> HttpResult<Response> {
    let of = LogOf::Session(id);
    streams::log(&app, &caller.actor, caller.ticket, of, how.follow.unwrap_or(false)).await
}
