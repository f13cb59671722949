//! Sessions: starting, listing, showing, stopping; their events and logs.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use eirene_core::{NameError, Resources, SessionId};
use eirene_words::say_with;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::{List, cursor, limit, wrong};
use crate::app::App;
use crate::error::{AppError, FieldError};
use crate::http::body::{self, some_plain};
use crate::http::extract::{Caller, Id};
use crate::http::problem::{HttpError, HttpResult};
use crate::http::streams::{self, Wanted};
use crate::http::view::SessionView;
use crate::services::sessions::{IdempotencyKey, ListSessions, StartSession, defaults};

/// Longest `Idempotency-Key`.
const MAX_KEY: usize = 255;

/// A session to be started. CPUs, memory and GPUs are per node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// What you call it; the app's name when nothing is given.
    #[schema(min_length = 1, max_length = 80, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "exercise 3")]
    name: Option<String>,
    /// App, one of the image's.
    #[serde(default = "app")]
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,31}$", default = "jupyterlab")]
    app: String,
    /// Image, by name.
    #[serde(default = "image")]
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$", default = "jupyter")]
    image: String,
    /// Project; it maps to a SLURM account.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$")]
    project: Option<String>,
    /// Partition; the cluster's default when nothing is given.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    partition: Option<String>,
    /// Number of nodes.
    #[serde(default = "nodes", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 100_000, default = 1)]
    nodes: u32,
    /// CPUs per node.
    #[serde(default = "cpus", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 100_000, default = 2)]
    cpus: u32,
    /// Memory per node, MiB.
    #[serde(default = "memory_mib", deserialize_with = "body::whole")]
    #[schema(minimum = 64, maximum = 1_073_741_824_u64, default = 2048)]
    memory_mib: u64,
    /// GPUs per node.
    #[serde(default, deserialize_with = "body::whole")]
    #[schema(minimum = 0, maximum = 1024, default = 0)]
    gpus: u32,
    /// GPU type; needs at least one GPU.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    gpu_type: Option<String>,
    /// Longest time, minutes.
    #[serde(default = "walltime_min", deserialize_with = "body::whole")]
    #[schema(minimum = 1, maximum = 527_040, default = 60)]
    walltime_min: u32,
}

fn app() -> String {
    defaults::APP.to_owned()
}

fn image() -> String {
    defaults::IMAGE.to_owned()
}

fn nodes() -> u32 {
    defaults::NODES
}

fn cpus() -> u32 {
    defaults::CPUS
}

fn memory_mib() -> u64 {
    defaults::MEMORY_MIB
}

fn walltime_min() -> u32 {
    defaults::WALLTIME_MIN
}

/// Parses one name and notes its field when it is wrong.
fn name<T: std::str::FromStr<Err = NameError>>(errors: &mut Vec<FieldError>, field: &str, text: &str) -> Option<T> {
    text.parse().map_err(|error: NameError| errors.push(FieldError::no_name(field, error))).ok()
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
        Ok(StartSession { name: title, app, image, project, resources })
    }

    fn key(&self, headers: &HeaderMap) -> HttpResult<Option<IdempotencyKey>> {
        let mut values = headers.get_all("idempotency-key").iter();
        let Some(value) = values.next() else { return Ok(None) };
        let is_visible = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let good = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= MAX_KEY).filter(is_visible);
        let (Some(key), None) = (good, values.next()) else {
            return Err(wrong("Idempotency-Key", say_with("wrong.idempotency_key", &[("n", &MAX_KEY.to_string())])));
        };
        let body = serde_json::to_vec(self).map_err(|e| AppError::Internal(e.into()))?;
        Ok(Some(IdempotencyKey { key: key.to_owned(), body_sha256: HEXLOWER.encode(&Sha256::digest(&body)) }))
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
    let key = new.key(&headers)?;
    let (session, _new) = app.sessions.start(&caller.actor, new.parse()?, key).await?;
    let mut response = (StatusCode::CREATED, Json(SessionView::new(&session, &app.config))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/sessions/{}", session.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Everybody's, for admins.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    all: Option<bool>,
    /// Only those that are not over.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    live: Option<bool>,
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
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
    let query = ListSessions {
        all: which.all.unwrap_or(false),
        live_only: which.live.unwrap_or(false),
        cursor: cursor(which.cursor)?,
        limit: limit(which.limit)?,
    };
    let page = app.sessions.list(&caller.actor, query).await?;
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
    Ok(Json(SessionView::new(&session, &app.config).with_nodes(&app.nodes.of(&session))))
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

/// Where a stream of events begins.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// The last event you have; the header `Last-Event-ID` goes before it.
    #[param(minimum = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    last_id: Option<i64>,
}

/// Follow a session's events, as server-sent events: `state`, `log` and `notice`.
///
/// `state` carries the session as `GET /api/v1/sessions/{id}` shows it, `log` new text of its log, `notice` a `code`, a `text` for people and
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
    streams::events(&app, &caller.actor, caller.ticket, Wanted::Session(id), last_id).await
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
    streams::log(&app, &caller.actor, caller.ticket, id, how.follow.unwrap_or(false)).await
}
