//! Events of all one's sessions and runs.

use axum::extract::State;
use axum::response::Response;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::Caller;
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use http::HeaderMap;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::streams::{self, Wanted};

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// The last event you have; the header `Last-Event-ID` goes before it.
    #[param(minimum = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    last_id: Option<i64>,
    /// Everybody's, for admins.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    all: Option<bool>,
}

/// Follow the events of what is yours, as server-sent events: `state`, `scratch`, `log`, `operation`, `space`, `alert`
/// and `notice`.
///
/// `state` carries the session as `GET /api/v1/sessions/{id}` shows it, or the run as `GET /api/v1/runs/{id}` does, `scratch` the same
/// while something is copied to its scratch or from it (it is not kept), `log` new text of its log, `operation` the operation as
/// `GET /api/v1/operations/{id}` shows it, `space` the space as `GET /api/v1/spaces/{space}` does (both with the scope `files:read`; `space` is not
/// kept, so read the spaces first), `alert` the alert as `GET /api/v1/alerts/{id}` does,
/// `notice` a `code`, a `text` for people and what belongs to it, such as `ends_soon` with `session`, `minutes_left` and `ends_at`.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events",
    params(Which, ("Last-Event-ID" = Option<i64>, Header, description = "The last event you have", minimum = 0)),
    responses((status = 200, content_type = "text/event-stream", body = String))
)]
pub(crate) async fn events(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Response> {
    let last_id = streams::last_id(&headers, which.last_id)?;
    let wanted = if which.all.unwrap_or(false) { Wanted::All } else { Wanted::Own };
    streams::events(&app, &caller.actor, caller.ticket, wanted, last_id).await
}
