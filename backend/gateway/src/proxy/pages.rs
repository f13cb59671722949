//! What a session's origin says itself: the hand-over, waiting, and that there is nothing.
//!
//! The portal's pages cannot be shown here: this origin belongs to the app, so there is no script and no picture, and
//! all of it lies below `/.eirene/`, where the app is never asked.

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use eirene_core::secret::Secret;
use eirene_core::{Session, SessionId, SessionState};
use eirene_http::extract::is_local_path;
use eirene_http::host::same_origin;
use eirene_http::problem::{HttpError, Problem};
use eirene_http::{body, cookies};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_words::{say, words};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;

use super::asked::Asked;
use super::guard::is_navigation;

/// Everything below is ours.
pub(super) const OURS: &str = "/.eirene/";

const STYLE_TEXT: &str = "\
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { margin: 15vh auto; max-width: 34rem; padding: 0 1.5rem; }
h1 { font-size: 1.4rem; }
";

const POLICY: &str =
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Seconds between two looks of a waiting browser.
const LOOK_AGAIN_S: u64 = 2;

/// One list for what is answered and for the test that knows who may do what on every route.
macro_rules! own_routes {
    (|$app:ident, $asked:ident, $request:ident| $($method:ident $path:literal => $answer:expr;)*) => {
        /// Every route on a session's origin that is not the app's.
        #[cfg(test)]
        pub(crate) const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        /// Answers what lies below [`OURS`].
        pub(super) async fn own($app: &App, $asked: &Asked, $request: http::Request<Incoming>) -> Response {
            match ($request.method(), $request.uri().path()) {
                $((&Method::$method, $path) => $answer,)*
                _ => not_found($asked),
            }
        }
    };
}

own_routes! { |app, asked, request|
    POST "/.eirene/enter" => enter(app, asked, request).await;
    GET "/.eirene/style.css" => style();
}

/// The form the portal's hand-over page sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entering {
    code: String,
    #[serde(default)]
    path: Option<String>,
}

/// The style sheet.
fn style() -> Response {
    let css = [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "max-age=3600")];
    (css, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], STYLE_TEXT).into_response()
}

/// Trades the one-time code for the app cookie. Only the portal's own page may send it.
async fn enter(app: &App, asked: &Asked, request: http::Request<Incoming>) -> Response {
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    let from_portal = matches!((origins.next(), origins.next()),
        (Some(origin), None) if same_origin(origin.as_bytes(), app.config.portal_origin()));
    if !from_portal {
        return finish(asked, Problem::new(StatusCode::FORBIDDEN, "foreign_origin", say("problem.through_portal")));
    }
    match take_code(app, asked.session, request.map(Body::new)).await {
        Ok(response) => response,
        Err(error) if error.problem().status_code() == StatusCode::NOT_FOUND => nothing(app, asked.session),
        Err(error) => finish(asked, error.problem().clone()),
    }
}

async fn take_code(app: &App, session: SessionId, request: Request) -> Result<Response, HttpError> {
    let pairs = body::form_pairs(request).await?;
    let Entering { code, path } = body::from_pairs(&pairs)?;
    let (secret, _user) = app.access.finish_handover(&Secret::from_text(code), session).await?;
    let known = app.access.session(session).await?.ok_or(AppError::NotFound)?;
    let path = path.filter(|path| is_local_path(path)).unwrap_or_else(|| first_page(&known).to_owned());
    let mut response = redirect(&path);
    response.headers_mut().insert(header::SET_COOKIE, cookies::set_app(&secret));
    Ok(response)
}

/// Where an app begins.
fn first_page(session: &Session) -> &'static str {
    if session.app.as_str() == "jupyterlab" { "/lab" } else { "/" }
}

fn redirect(to: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    guard(response.headers_mut());
    response
}

/// To the portal, where it is decided who may go on: the same for every session, known or not.
pub(super) fn to_portal(app: &App, session: SessionId) -> Response {
    redirect(&format!("{}/open?session={session}", app.config.portal_origin()))
}

/// What those get who may not use the session.
pub(super) fn not_found(asked: &Asked) -> Response {
    finish(asked, HttpError::from(AppError::NotFound).problem().clone())
}

/// What those get whom another origin sends.
pub(super) fn foreign(asked: &Asked) -> Response {
    finish(asked, Problem::new(StatusCode::FORBIDDEN, "foreign_origin", say("problem.other_site")))
}

/// A problem, for programs and scripts. It carries the id by which the log knows the request.
pub(super) fn finish(asked: &Asked, problem: Problem) -> Response {
    let id = asked.id();
    if let Some(cause) = &problem.cause {
        let error = format!("{cause:#}");
        // Not left to the span: there is none where only errors are logged.
        tracing::error!(request.id = %id, session.id = %asked.session, error, "A request to a session's origin failed");
    }
    let id = id.to_string();
    let mut response = problem.into_json(&id);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    guard(response.headers_mut());
    response
}

fn nothing(app: &App, session: SessionId) -> Response {
    let title = words().get("origin.used.title");
    let link = link(app, session, "origin.used.link");
    let text = words().fill("origin.used.text", &[("link", &link)]);
    page(StatusCode::NOT_FOUND, &title, &format!("<h1>{title}</h1>\n<p>{text}</p>"), false)
}

/// What a person gets whose browser was led to a host name that is nobody's; none for a program.
pub(crate) fn unknown_host(app: &App, request: &http::Request<Incoming>) -> Option<Response> {
    if request.method() == Method::GET && request.uri().path() == "/.eirene/style.css" {
        return Some(style());
    }
    is_navigation(request.method(), request.headers()).then_some(())?;
    let title = words().get("origin.unknown.title");
    let link = format!("<a href=\"{}\">{}</a>", app.config.portal_origin(), words().get("origin.unknown.link"));
    let text = words().get("origin.unknown.text");
    Some(page(StatusCode::NOT_FOUND, &title, &format!("<h1>{title}</h1>\n<p>{text}</p>\n<p>{link}</p>"), false))
}

/// While the app does not answer: a page that looks again by itself, or a problem that says when to.
pub(super) async fn not_there(app: &App, asked: &Asked, navigation: bool) -> Response {
    let session = asked.session;
    let known = match app.access.session(session).await {
        Ok(Some(known)) => known,
        Ok(None) => return not_found(asked),
        Err(error) => return finish(asked, HttpError::from(error).problem().clone()),
    };
    if known.state.is_final() || known.state == SessionState::Stopping {
        if navigation {
            return redirect(&format!("{}/sessions/{session}", app.config.portal_origin()));
        }
        return finish(asked, Problem::new(StatusCode::GONE, "session_over", say("origin.over")));
    }
    let (title, text) = match known.state {
        SessionState::Running => ("origin.reconnecting.title", "origin.reconnecting.text"),
        SessionState::Queued => ("origin.waiting.title", "origin.waiting.text"),
        _ => ("origin.starting.title", "origin.starting.text"),
    };
    let (title, text) = (words().get(title), say(text));
    if navigation {
        let heading = words().fill("origin.heading", &[("title", &title)]);
        let again = words().fill("origin.again", &[("text", text.as_str())]);
        let link = link(app, session, "origin.link");
        let body = format!("<h1>{heading}</h1>\n<p>{again}</p>\n<p>{link}</p>");
        return page(StatusCode::SERVICE_UNAVAILABLE, &title, &body, true);
    }
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", text);
    finish(asked, Problem { retry_after_s: Some(LOOK_AGAIN_S), ..problem })
}

/// A link to the session's page in the portal.
fn link(app: &App, session: SessionId, key: &str) -> String {
    format!("<a href=\"{}/sessions/{session}\">{}</a>", app.config.portal_origin(), words().get(key))
}

/// All that is put in is our own, of the catalogue or an id.
fn page(status: StatusCode, title: &str, body: &str, again: bool) -> Response {
    let refresh =
        if again { format!("<meta http-equiv=\"refresh\" content=\"{LOOK_AGAIN_S}\">\n") } else { String::new() };
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n{refresh}\
         <link rel=\"stylesheet\" href=\"/.eirene/style.css\">\n<main>\n{body}\n</main>\n</html>\n"
    );
    let mut response = (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response();
    if again {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(LOOK_AGAIN_S));
    }
    guard(response.headers_mut());
    response
}

fn guard(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use eirene_services::testing::Logged;
    use tracing::Level;

    use super::*;

    #[tokio::test]
    async fn a_fault_is_logged_and_shown_by_the_same_id_also_where_only_errors_are_logged() {
        for level in [Level::INFO, Level::ERROR] {
            let (logged, asked) = (Logged::down_to(level), Asked::of(SessionId::generate()));
            let fault = HttpError::from(AppError::Internal(anyhow::anyhow!("the cause")));
            let response = asked.span().in_scope(|| finish(&asked, fault.problem().clone()));
            let id = asked.id().to_string();
            assert_eq!(response.headers()["x-request-id"], id.as_str());
            let body = to_bytes(response.into_body(), 10_000).await.unwrap();
            let shown: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((shown["code"].as_str(), shown["request_id"].as_str()), (Some("internal"), Some(id.as_str())));
            assert!(!shown.to_string().contains("the cause"), "{shown}");
            let line = logged.line("A request to a session's origin failed");
            assert_eq!(line["fields"]["error"], "the cause", "{line}");
            assert_eq!(line["fields"]["request.id"], id, "{line}");
            assert_eq!(line["fields"]["session.id"], asked.session.to_string(), "{line}");
            assert_eq!(line["span"]["name"] == "request", level == Level::INFO, "{line}");
        }
    }
}
