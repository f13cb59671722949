//! For whoever watches over eirened: alive, ready, and how much of what.

use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use eirene_core::SessionId;
use eirene_http::extract::{Id, SureAddress};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::health::readiness::{Line, Report};
use eirene_services::monitoring::exposition::{Target, exposition};
use eirene_services::monitoring::metrics::describe;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Metrics are counted for the whole process, as the facade everybody counts through is.
static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();

fn recorder() -> &'static PrometheusHandle {
    RECORDER.get_or_init(|| {
        let buckets = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets(&buckets).unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("Somebody else counts the metrics; /metrics stays empty");
        }
        describe();
        handle
    })
}

/// Begins to count; before anything that counts runs.
pub(crate) fn install() {
    recorder();
}

/// The routes on the portal's origin.
pub(crate) fn router() -> Router<App> {
    routes()
}

eirene_http::listed_routes! {
    GET "/healthz" => alive;
    GET "/readyz" => ready;
    GET "/metrics" => metrics_for_listed;
    GET "/metrics/sessions" => targets_for_listed;
    GET "/metrics/sessions/{id}" => session_for_listed;
}

/// The metrics on a listener of their own, which the configuration opened to whom it may concern.
pub fn metrics_router(app: App) -> Router {
    install();
    Router::new()
        .route("/metrics", get(metrics))
        .route("/metrics/sessions", get(targets))
        .route("/metrics/sessions/{id}", get(session))
        .with_state(app)
}

async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the portal is of use, 503 when it is not; for the addresses that may see the metrics with a line per dependency, by name.
async fn ready(State(app): State<App>, address: SureAddress) -> HttpResult<Response> {
    let report = app.readiness.report().await?;
    let text = match require_listed(&app, address) {
        Ok(()) => lines(&report),
        Err(_) if report.is_usable() => "ready\n".to_owned(),
        Err(_) => "not ready\n".to_owned(),
    };
    if report.is_usable() {
        return Ok(text.into_response());
    }
    let retry = [(header::RETRY_AFTER, HeaderValue::from_static("2"))];
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    Ok((StatusCode::SERVICE_UNAVAILABLE, retry, kind, KeepBody, text).into_response())
}

fn lines(report: &Report) -> String {
    let mut text = String::new();
    for Line { what, trouble, .. } in &report.lines {
        let _ = match trouble {
            None => writeln!(text, "ok   {what}"),
            Some(trouble) => writeln!(text, "AWAY {what}: {}", trouble.line()),
        };
    }
    let _ = writeln!(text, "     agents connected: {}", report.agents);
    text
}

/// Marks an error that has its body already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepBody;

impl axum::response::IntoResponseParts for KeepBody {
    type Error = std::convert::Infallible;
    fn into_response_parts(
        self,
        mut response: axum::response::ResponseParts,
    ) -> Result<axum::response::ResponseParts, Self::Error> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}

/// On the portal's own listener only the addresses of the list get an answer, and none that a proxy which is not listed has sent on; for others there is nothing here.
async fn metrics_for_listed(State(app): State<App>, address: SureAddress) -> HttpResult<Response> {
    require_listed(&app, address)?;
    Ok(metrics().await)
}

fn require_listed(app: &App, SureAddress(address): SureAddress) -> HttpResult<()> {
    // Whatever arrives comes from a proxy then, and nobody says for whom.
    if app.config.has_unlisted_proxy() {
        return Err(HttpError::from(AppError::NotFound));
    }
    let is_listed = |address| app.config.metrics.allow.iter().any(|network| network.contains(address));
    if address.is_some_and(is_listed) { Ok(()) } else { Err(HttpError::from(AppError::NotFound)) }
}

async fn metrics() -> Response {
    as_text(counted())
}

/// What was counted so far, as Prometheus reads it.
pub(crate) fn counted() -> String {
    let recorder = recorder();
    recorder.run_upkeep();
    recorder.render()
}

fn as_text(text: String) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn targets_for_listed(
    State(app): State<App>,
    address: SureAddress,
    headers: HeaderMap,
) -> HttpResult<Json<Vec<Target>>> {
    require_listed(&app, address)?;
    let scheme = if app.config.portal_origin().starts_with("https:") { "https" } else { "http" };
    targets_at(&app, &headers, scheme).await
}

async fn targets(State(app): State<App>, headers: HeaderMap) -> HttpResult<Json<Vec<Target>>> {
    targets_at(&app, &headers, "http").await
}

/// Sessions and runs that have nodes, at the address where Prometheus has found this list.
async fn targets_at(app: &App, headers: &HeaderMap, scheme: &'static str) -> HttpResult<Json<Vec<Target>>> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let host = host.filter(|_| app.config.metrics.sessions).ok_or(AppError::NotFound)?;
    let sessions = app.sessions.live().await?;
    let begun = sessions.iter().filter(|session| session.started_at.is_some());
    Ok(Json(begun.map(|session| Target::new(session, host.as_str(), scheme)).collect()))
}

async fn session_for_listed(State(app): State<App>, address: SureAddress, id: Id<SessionId>) -> HttpResult<Response> {
    require_listed(&app, address)?;
    session(State(app), id).await
}

/// What one session uses now.
async fn session(State(app): State<App>, Id(id): Id<SessionId>) -> HttpResult<Response> {
    let session = if app.config.metrics.sessions { app.sessions.as_it_is(id).await? } else { None };
    if session.is_none_or(|session| session.state.is_final()) {
        return Err(HttpError::from(AppError::NotFound));
    }
    Ok(as_text(exposition(&app.samples.last(id).await?)))
}
