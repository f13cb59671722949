//! For whoever watches over eirened: alive, ready, and how much of what.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use eirene_core::SessionId;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::Mutex;

use super::extract::{ClientAddress, Id};
use super::problem::{HttpError, HttpResult};
use crate::app::App;
use crate::error::AppError;
use crate::launcher_client::LauncherClient;
use crate::monitoring::exposition::{Target, exposition};
use crate::monitoring::metrics::describe;
use crate::services::storage::snapshot::Asked;

/// The database has this long to answer.
const DATABASE_WAIT: Duration = Duration::from_secs(3);
/// The launcher has this long to take a connection: it is a socket of this machine.
const LAUNCHER_WAIT: Duration = Duration::from_secs(1);
/// Prometheus has this long to answer the smallest question.
const PROMETHEUS_WAIT: Duration = Duration::from_secs(2);

/// How long a report is good.
const FRESH: SignedDuration = SignedDuration::from_secs(2);

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
pub fn install() {
    recorder();
}

/// The routes on the portal's origin.
pub fn router() -> Router<App> {
    routes().layer(Extension(Readiness::default()))
}

listed_routes! {
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

/// What [`ready`] found out last. Anybody may ask, and finding out costs a connection to the launcher.
#[derive(Clone, Default)]
struct Readiness(Arc<Mutex<Option<(Timestamp, Report)>>>);

#[derive(Clone)]
struct Report {
    usable: bool,
    text: String,
}

impl Readiness {
    /// The last report, or a new one: one at a time, the others wait for it.
    async fn report(&self, app: &App) -> Report {
        let mut last = self.0.lock().await;
        if let Some((at, report)) = &*last {
            let age = app.clock.now().duration_since(*at);
            if !age.is_negative() && age < FRESH {
                return report.clone();
            }
        }
        let report = look(app).await;
        *last = Some((app.clock.now(), report.clone()));
        report
    }
}

/// A line per dependency; 503 when one that nothing works without is away.
async fn ready(State(app): State<App>, Extension(readiness): Extension<Readiness>) -> HttpResult<Response> {
    // A task of its own, so that those who ask and go away at once do not each begin anew.
    let report = tokio::spawn(async move { readiness.report(&app).await }).await;
    let Report { usable, text } = report.map_err(|error| AppError::Internal(error.into()))?;
    if usable {
        return Ok(text.into_response());
    }
    let retry = [(header::RETRY_AFTER, HeaderValue::from_static("2"))];
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    Ok((StatusCode::SERVICE_UNAVAILABLE, retry, kind, KeepBody, text).into_response())
}

async fn look(app: &App) -> Report {
    let database = match tokio::time::timeout(DATABASE_WAIT, app.db.ping()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("does not answer".to_owned()),
        Err(_) => Err("answers too slowly".to_owned()),
    };
    let launcher = LauncherClient::new(&app.config.launcher.socket);
    let launcher = match tokio::time::timeout(LAUNCHER_WAIT, launcher.reach()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("takes no connections; nothing new is started"),
        Err(_) => Err("takes connections too slowly"),
    };
    let snapshot = app.cluster.snapshot();
    let cluster = if snapshot.reachable { Ok(()) } else { Err("does not answer; sessions are shown as last seen") };
    let mut text = String::new();
    let mut line = |name: &str, state: Result<(), &str>| {
        let _ = match state {
            Ok(()) => writeln!(text, "ok   {name}"),
            Err(why) => writeln!(text, "AWAY {name}: {why}"),
        };
    };
    line("database", database.as_ref().copied().map_err(String::as_str));
    line("launcher", launcher);
    line("slurm", cluster);
    // A storage that is away leaves the portal usable: what is said of spaces is then what was seen before.
    let storage = app.storage.snapshot();
    let answers = |yes: bool| if yes { Ok(()) } else { Err("does not answer; ask `doctor`") };
    for root in &storage.roots {
        line(&format!("storage root {}", root.name), answers(root.file_system.got().is_some()));
    }
    if storage.homes != Asked::Unsupported {
        line("storage homes", answers(storage.homes.got().is_some()));
    }
    let kept = app.samples.are_kept();
    line("samples", if kept { Ok(()) } else { Err("are not kept; charts show what there was, or nothing") });
    // One that is slow is away for this purpose.
    match tokio::time::timeout(PROMETHEUS_WAIT, app.samples.elsewhere_answers()).await {
        Ok(None) => {}
        Ok(Some(true)) => line("prometheus", Ok(())),
        Ok(Some(false)) | Err(_) => line("prometheus", Err("has no answer for us; there are no charts for now")),
    }
    if let Some(state) = app.zabbix.sending() {
        line("zabbix", state);
    }
    if let Some(state) = app.traces.sending() {
        line("traces", state);
    }
    for (name, health) in app.status.all() {
        line(&format!("reconciler {name}"), if health.failures == 0 { Ok(()) } else { Err("its last run failed") });
    }
    let _ = writeln!(text, "     agents connected: {}", app.tunnels.count());
    Report { usable: database.is_ok(), text }
}

/// Marks an error that has its body already.
#[derive(Debug, Clone, Copy)]
pub struct KeepBody;

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

/// On the portal's own listener only the addresses of the list get an answer; for others there is nothing here.
async fn metrics_for_listed(State(app): State<App>, address: ClientAddress) -> HttpResult<Response> {
    require_listed(&app, address)?;
    Ok(metrics().await)
}

fn require_listed(app: &App, ClientAddress(address): ClientAddress) -> HttpResult<()> {
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
    address: ClientAddress,
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
    let sessions = app.db.live_sessions().await.map_err(AppError::from)?;
    let begun = sessions.iter().filter(|session| session.started_at.is_some());
    Ok(Json(begun.map(|session| Target::new(session, host.as_str(), scheme)).collect()))
}

async fn session_for_listed(State(app): State<App>, address: ClientAddress, id: Id<SessionId>) -> HttpResult<Response> {
    require_listed(&app, address)?;
    session(State(app), id).await
}

/// What one session uses now.
async fn session(State(app): State<App>, Id(id): Id<SessionId>) -> HttpResult<Response> {
    let session = if app.config.metrics.sessions { app.db.session(id).await.map_err(AppError::from)? } else { None };
    if session.is_none_or(|session| session.state.is_final()) {
        return Err(HttpError::from(AppError::NotFound));
    }
    Ok(as_text(exposition(&app.samples.last(id).await?)))
}
