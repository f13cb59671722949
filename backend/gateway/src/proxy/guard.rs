//! Who may pass: every request and every WebSocket upgrade shows the app cookie of this very origin, or a token.

use std::sync::Arc;

use eirene_core::SessionId;
use eirene_http::cookies;
use eirene_http::extract::authorization;
use eirene_http::request::{CausedBy, SEC_FETCH_SITE, caused_by};
use eirene_services::access::{Digest, Grant, Ticket};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::tokens;
use http::{HeaderMap, HeaderValue, Method, header};

use super::asked::Asked;
use super::headers::wants_websocket;

/// What is decided about a request.
pub(super) enum Decision {
    /// It may pass.
    Pass {
        /// By which right.
        grant: Arc<Grant>,
        /// Whether a browser shows it, and not a program.
        by_browser: bool,
    },
    /// Nothing it shows lets it in.
    Nobody,
    /// It would be let in, but another origin caused it.
    Foreign,
}

/// Decides about a request to a session.
pub(super) async fn decide(
    app: &App,
    asked: &Asked,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Decision, AppError> {
    let session = asked.session;
    // Jupyter's own clients send a token by a scheme of their own.
    let token = authorization(headers, "Bearer").or_else(|| authorization(headers, "token"));
    let token = token.filter(|text| text.starts_with(tokens::PREFIX));
    let (ticket, by_cookie) = match token {
        Some(token) => (Ticket::AppToken(session, Digest::of(token)), false),
        None => match cookies::value(headers, cookies::APP) {
            Some(value) => (Ticket::AppCookie(session, Digest::of(value)), true),
            None => return Ok(Decision::Nobody),
        },
    };
    let Some(grant) = app.access.admit_within(ticket, || asked.span()).await? else {
        return Ok(Decision::Nobody);
    };
    if caused_elsewhere(app, session, method, headers, by_cookie) {
        return Ok(Decision::Foreign);
    }
    Ok(Decision::Pass { grant, by_browser: by_cookie })
}

/// Other session origins are same-site, so only the exact origin counts. A program with a token sends no `Origin`; when
/// there is one, it has to be right for a WebSocket.
fn caused_elsewhere(app: &App, session: SessionId, method: &Method, headers: &HeaderMap, by_cookie: bool) -> bool {
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let websocket = wants_websocket(headers);
    let from_browser = by_cookie || (websocket && headers.contains_key(header::ORIGIN));
    if !from_browser {
        return false;
    }
    if !safe || websocket {
        return caused_by(headers, &app.config.session_origin(session)) != CausedBy::Own;
    }
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => false,
        // A link somewhere else may lead here; pictures, scripts and frames of somewhere else may not.
        Some(_) => !is_top_level(headers),
    }
}

fn is_top_level(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|given| given.as_bytes() == value.as_bytes());
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

/// Whether a person has opened this address in a browser, so that a page is wanted and not data.
pub(super) fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    if *method != Method::GET || headers.contains_key(header::AUTHORIZATION) || wants_websocket(headers) {
        return false;
    }
    if headers.contains_key("sec-fetch-mode") || headers.contains_key("sec-fetch-dest") {
        return is_top_level(headers);
    }
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|text| text.contains("text/html"))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn pages_are_told_from_data() {
        let of = |method: Method, pairs: &[(&'static str, &'static str)]| {
            let headers: HeaderMap =
                pairs.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect();
            is_navigation(&method, &headers)
        };
        let page = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert!(of(Method::GET, &page));
        assert!(of(Method::GET, &[("accept", "text/html,*/*")]));
        assert!(!of(Method::POST, &page));
        assert!(!of(Method::GET, &[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]));
        assert!(!of(Method::GET, &[("sec-fetch-mode", "cors"), ("accept", "text/html")]));
        assert!(!of(Method::GET, &[("accept", "application/json")]));
        assert!(!of(Method::GET, &[("accept", "text/html"), ("authorization", "Bearer x")]));
        assert!(!of(Method::GET, &[("accept", "text/html"), ("connection", "upgrade"), ("upgrade", "websocket")]));
    }
}
