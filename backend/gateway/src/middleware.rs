//! What happens around every request of the portal's own origin, in one place and in this order: refuse an
//! address that is too long and what another site caused, run the handler without letting a panic or a wait
//! without end through, give errors their body, put the security headers on, count and log.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use eirene_api::tus;
use eirene_core::SessionId;
use eirene_core::launcher::Cause;
use eirene_http::headers;
use eirene_http::problem::{HttpError, Problem};
use eirene_http::request::{CausedBy, RequestInfo, caused_by};
use eirene_http::unhurried::{QUIET, Unhurried};
use eirene_services::app::App;
use eirene_services::audit::RefusedRequest;
use eirene_services::cause;
use eirene_services::error::AppError;
use eirene_services::traces::Answered;
use eirene_words::{say, say_with};
use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use tracing::{Instrument as _, Span};

use super::health::KeepBody;

/// How long a handler may take until its answer begins.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest address that is answered, in KiB: somewhat less than the longest that is read as one (64 KiB), which HTTP itself answers with
/// no body, or not at all. An archive of many paths is asked for by a form.
const LONGEST_ADDRESS_KIB: usize = 56;
/// Everything below is for programs: it knows no cookie, and errors are JSON.
const API: &str = "/api/";
/// What an error says in its headers besides its body.
const KEPT: [HeaderName; 4] = [header::ALLOW, tus::RESUMABLE, tus::VERSIONS, tus::OFFSET];
/// Where a program trades a password for a token.
const TOKENS: &str = "/api/v1/tokens";

/// The middleware; goes around the whole router.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let (begun, begun_at) = (Instant::now(), app.clock.now());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let info = request.extensions().get::<RequestInfo>().cloned().unwrap_or_else(|| RequestInfo::new(None));
    let for_program = is_for_programs(&path);
    let cause = cause_of(&info, route.as_ref().map_or("", MatchedPath::as_str), &path);

    let refusal = refuse_long(&request).or_else(|| refuse_foreign(&app, &request, for_program));
    let mut response = if let Some(error) = refusal {
        error.into_response()
    } else {
        cause::of(cause, run(request, next, PATIENCE, QUIET)).instrument(span(cause)).await
    };
    let refused = response.extensions().get().and_then(|problem: &Problem| problem.refused);
    response = finish_error(response, for_program, &info);
    if response.status() == StatusCode::UNAUTHORIZED && for_program {
        let challenge = if path == TOKENS && method == Method::POST {
            "Basic realm=\"eirene\", charset=\"UTF-8\""
        } else {
            "Bearer realm=\"eirene\""
        };
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    headers::secure(&mut response, app.config.apps_scheme() == "https");
    let id = info.id.to_string();
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    note(verb(&method), route.as_ref().map_or("none", MatchedPath::as_str), response.status(), begun, &info);
    let route = route.as_ref().map_or("", MatchedPath::as_str);
    // Of strangers nothing is written down: they could fill the log.
    if let (Some(reason), Some((_, sender))) = (refused, info.sender()) {
        let (id, sender, address) = (id.clone(), sender.clone(), info.address);
        app.audit.refused_request(RefusedRequest {
            id,
            sender,
            address,
            method: verb(&method),
            route: route.to_owned(),
            reason,
        });
    }
    app.traces.answered(&Answered {
        request: &id,
        method: verb(&method),
        route,
        session: cause.session,
        status: response.status(),
        begins: begun_at,
        ends: app.clock.now(),
    });
    response
}

/// A request, and the session or run that its address names, where it names one.
fn cause_of(info: &RequestInfo, route: &str, path: &str) -> Cause {
    Cause { request: Some(info.id), session: session_in(route, path) }
}

/// What every line that is logged on the way of a request says.
fn span(cause: Cause) -> Span {
    tracing::info_span!(
        "request",
        request.id = cause.request.map(tracing::field::display),
        session.id = cause.session.map(tracing::field::display)
    )
}

fn session_in(route: &str, path: &str) -> Option<SessionId> {
    let mut pairs = route.split('/').zip(route.split('/').skip(1));
    let at = pairs.position(|(noun, name)| matches!(noun, "sessions" | "runs") && name == "{id}")?;
    path.split('/').nth(at + 1)?.parse().ok()
}

fn is_for_programs(path: &str) -> bool {
    path.starts_with(API)
        || path.starts_with("/live/")
        || path.starts_with("/metrics")
        || matches!(path, "/healthz" | "/readyz")
}

/// An address that is too long.
fn refuse_long(request: &Request) -> Option<HttpError> {
    let length = request.uri().path_and_query().map_or(0, |address| address.as_str().len());
    (length > LONGEST_ADDRESS_KIB * 1024).then(|| {
        let text = say_with("problem.uri_too_long", &[("kib", &LONGEST_ADDRESS_KIB.to_string())]);
        HttpError::new(StatusCode::URI_TOO_LONG, "uri_too_long", text)
    })
}

/// Requests that change something and come with a cookie have to be caused by our own pages: `SameSite` does not tell
/// session origins from the portal's.
fn refuse_foreign(app: &App, request: &Request, for_program: bool) -> Option<HttpError> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if safe || (for_program && !request.uri().path().starts_with("/live/")) {
        return None;
    }
    match caused_by(request.headers(), app.config.portal_origin()) {
        CausedBy::Own => None,
        CausedBy::Foreign | CausedBy::Unknown => {
            Some(HttpError::new(StatusCode::FORBIDDEN, "foreign_origin", say("problem.foreign_page")))
        }
    }
}

/// Waits for the answer to begin: `patience`, or, once something moves, until nothing has for `quiet`.
async fn run(mut request: Request, next: Next, patience: Duration, quiet: Duration) -> Response {
    let unhurried = Unhurried::default();
    request.extensions_mut().insert(unhurried.clone());
    let handled = AssertUnwindSafe(next.run(request)).catch_unwind();
    tokio::pin!(handled);
    let mut wait = Some(patience);
    let mut outcome = None;
    while let Some(left) = wait {
        outcome = tokio::time::timeout(left, handled.as_mut()).await.ok();
        wait = if outcome.is_none() { unhurried.left(quiet) } else { None };
    }
    match outcome {
        Some(Ok(response)) => response,
        Some(Err(panic)) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            HttpError::from(AppError::Internal(anyhow::anyhow!("a handler panicked: {text}"))).into_response()
        }
        None => HttpError::from(AppError::Unavailable { what: say("away.answer"), retry_after_s: 5 }).into_response(),
    }
}

/// Gives an error its body. Errors that the framework made become ours; a page that a handler rendered stays.
fn finish_error(mut response: Response, for_program: bool, info: &RequestInfo) -> Response {
    let status = response.status();
    let failed = status.is_client_error() || status.is_server_error();
    if !failed || response.extensions_mut().remove::<KeepBody>().is_some() {
        return response;
    }
    let problem = response.extensions_mut().remove::<Problem>().or_else(|| {
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let bare = kind.is_none_or(|kind| kind.starts_with("text/plain"));
        (bare || for_program).then(|| from_framework(status))
    });
    let Some(problem) = problem else { return response };
    if let Some(cause) = &problem.cause {
        tracing::error!(request.id = %info.id, error = format!("{cause:#}"), "A request failed");
    }
    let mut finished = if for_program {
        problem.into_json(&info.id.to_string())
    } else {
        // A page has no list of fields; what is wrong with the only one says all of it.
        let text = if let [only] = problem.errors.as_slice() { &only.message } else { &problem.detail };
        let mut page = eirene_portal::error_page(problem.status_code(), text, &info.id.to_string());
        problem.add_headers(&mut page);
        page
    };
    for name in KEPT {
        if let Some(value) = response.headers().get(&name) {
            finished.headers_mut().insert(name, value.clone());
        }
    }
    finished
}

fn from_framework(status: StatusCode) -> Problem {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => Problem::new(status, "method_not_allowed", say("problem.method_not_allowed")),
        StatusCode::NOT_FOUND => HttpError::from(AppError::NotFound).problem().clone(),
        _ => Problem::new(status, "bad_request", say("problem.bad_request")),
    }
}

/// The verb as it is counted and logged. A sender may make up any number of others, and each label is kept for good.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "OTHER",
    }
}

fn note(method: &'static str, route: &str, status: StatusCode, begun: Instant, info: &RequestInfo) {
    let took = begun.elapsed();
    let labels = [("route", route.to_owned()), ("method", method.to_owned()), ("status", status.as_str().to_owned())];
    metrics::counter!("eirene_http_requests_total", &labels).increment(1);
    metrics::histogram!("eirene_http_request_seconds").record(took.as_secs_f64());
    let user = info.sender().map(|(id, _)| id.to_string());
    tracing::info!(
        request.id = %info.id,
        method,
        route,
        status = status.as_u16(),
        duration_ms = took.as_millis() as u64,
        user.id = user.as_deref().unwrap_or("-"),
        "Answered a request"
    );
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use eirene_services::testing::Logged;
    use tower::ServiceExt as _;
    use tracing::Level;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[test]
    fn the_session_of_a_request_is_the_one_its_address_names() {
        let id = SessionId::generate();
        let named = |route: &str| session_in(route, &route.replace("{id}", &id.to_string()));
        for route in ["/sessions/{id}", "/sessions/{id}/stop", "/runs/{id}/log", "/api/v1/sessions/{id}/events"] {
            assert_eq!(named(route), Some(id), "{route}");
        }
        for route in ["", "/", "/sessions/new", "/api/v1/tokens/{id}", "/api/v1/sessions", "/spaces/{space}/trash/{id}"]
        {
            assert_eq!(named(route), None, "{route}");
        }
        assert_eq!(session_in("/sessions/{id}", "/sessions/../../etc"), None);
    }

    #[tokio::test]
    async fn what_is_logged_on_the_way_says_of_which_request_and_which_session() {
        let (logged, info, id) = (Logged::down_to(Level::INFO), RequestInfo::new(None), SessionId::generate());
        let path = format!("/sessions/{id}/stop");
        async { tracing::warn!("something happened") }
            .instrument(span(cause_of(&info, "/sessions/{id}/stop", &path)))
            .await;
        let line = logged.line("something happened");
        let said = |name: &str| line["span"][name].as_str().map(str::to_owned);
        assert_eq!(
            (said("request.id"), said("session.id")),
            (Some(info.id.to_string()), Some(id.to_string())),
            "{line}"
        );
    }

    /// The status of a handler that may have said that something moved, and then takes so long.
    async fn after(moves: bool, takes: Duration, quiet: Duration) -> StatusCode {
        let handler = move |unhurried: Unhurried| async move {
            if moves {
                unhurried.moved();
            }
            tokio::time::sleep(takes).await;
        };
        let guarded = axum::middleware::from_fn(move |request, next| run(request, next, SHORT, quiet));
        let router = Router::new().route("/", get(handler)).layer(guarded);
        router.oneshot(Request::new(Body::empty())).await.unwrap().status()
    }

    #[tokio::test(start_paused = true)]
    async fn what_moves_is_waited_for_and_what_has_stopped_is_not() {
        let ever = Duration::from_hours(1);
        assert_eq!(after(false, ever, ever).await, StatusCode::SERVICE_UNAVAILABLE, "it never moved");
        assert_eq!(after(true, ever, SHORT).await, StatusCode::SERVICE_UNAVAILABLE, "it stopped");
        assert_eq!(after(true, 5 * SHORT, ever).await, StatusCode::OK);
    }
}
