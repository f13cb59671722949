//! Who sends a request: the browser that is signed in, or the program with a token. The two are never mixed: pages know
//! only the cookie, the API knows only `Authorization`. Handlers that serve both are mounted twice, and each mount knows its own.

use std::net::IpAddr;

use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Request};
use axum::response::{IntoResponse as _, Redirect, Response};
use eirene_core::Login;
use eirene_core::SpaceName;
use eirene_core::secret::Secret;
use eirene_services::access::{Digest, Ticket};
use eirene_services::actor::{Actor, Via};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::logins;
use eirene_words::say;
use http::request::Parts;
use http::{Method, StatusCode, header};
use serde::de::DeserializeOwned;

use super::body;
use super::cookies;
use super::problem::HttpError;
use super::request::RequestInfo;

/// The name of the hidden field that carries a form's token.
pub const FORM_TOKEN: &str = "csrf";
/// The header that carries it where the body is no form.
pub const FORM_HEADER: &str = "x-eirene-form";
/// Longest `Authorization` header that is looked at.
const MAX_AUTHORIZATION: usize = 4096;

/// A person in a browser.
#[derive(Clone)]
pub struct SignedIn {
    /// Who.
    pub actor: Actor,
    /// Their log-in.
    pub login: Login,
    /// The token every form of theirs carries as the hidden field [`FORM_TOKEN`].
    pub csrf: String,
    /// What open streams of theirs hang on.
    pub ticket: Ticket,
    secret: Secret,
}

/// An admin in a browser; for everybody else the page does not exist.
#[derive(Clone)]
pub struct SignedInAdmin(pub SignedIn);

/// A person in a browser, or nobody.
#[derive(Clone)]
pub struct MaybeSignedIn(pub Option<SignedIn>);

/// A form of a signed-in person, with its token checked. `T` gets the other fields.
pub struct CsrfForm<T>(pub SignedIn, pub T);

/// A form of an admin. For everybody else there is nothing here, whatever they send.
pub struct AdminForm<T>(pub SignedIn, pub T);

/// A form of nobody in particular: the one to log in with. That it comes from our own page is checked by the middleware.
#[derive(Debug)]
pub struct PlainForm<T>(pub T);

/// A program with a token, or one of our own pages where [`FromPage`] says so.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who.
    pub actor: Actor,
    /// What open streams of theirs hang on.
    pub ticket: Ticket,
}

/// In the extensions of a request to what programs ask for by token, where a page asks for it by its log-in instead: who that is. Nothing but
/// the mount for pages puts it there.
#[derive(Clone)]
pub struct FromPage(Caller);

/// A program with an admin's token; whoever else asks is told so before what they sent is looked at.
#[derive(Debug, Clone)]
pub struct AdminCaller(pub Caller);

/// The request's id.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// The client's address.
#[derive(Debug, Clone, Copy)]
pub struct ClientAddress(pub Option<IpAddr>);

/// The client's address where it is sure; none of what came through a proxy that is not listed as one.
#[derive(Debug, Clone, Copy)]
pub struct SureAddress(pub Option<IpAddr>);

fn info(parts: &Parts) -> RequestInfo {
    parts.extensions.get::<RequestInfo>().cloned().unwrap_or_else(|| RequestInfo::new(None))
}

async fn signed_in(parts: &Parts, app: &App) -> Result<Option<SignedIn>, HttpError> {
    let Some(value) = cookies::value(&parts.headers, cookies::LOGIN).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let secret = Secret::from_text(value);
    let Some((login, user)) = app.logins.by_secret(&secret).await? else { return Ok(None) };
    let info = info(parts);
    info.sent_by(&user);
    let ticket = Ticket::Login(Digest::of(secret.expose()));
    let actor = Actor { user, via: Via::Login(login.id), address: info.address, request_id: Some(info.id.to_string()) };
    Ok(Some(SignedIn { actor, login, csrf: logins::form_token(&secret), ticket, secret }))
}

impl SignedIn {
    /// Whether the one header [`FORM_HEADER`] is this log-in's token.
    pub fn sent_form_token(&self, headers: &http::HeaderMap) -> bool {
        let mut values = headers.get_all(FORM_HEADER).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        value.to_str().is_ok_and(|token| logins::form_token_matches(&self.secret, token))
    }
}

impl FromPage {
    /// A page of this person's.
    pub fn new(person: SignedIn) -> Self {
        Self(Caller { actor: person.actor, ticket: person.ticket })
    }
}

/// Where somebody who is not signed in is sent: to the log-in, and back afterwards when a page was asked for.
fn sign_in_first(parts: &Parts) -> Response {
    if parts.method != Method::GET {
        return HttpError::from(AppError::Unauthenticated).into_response();
    }
    let wanted = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let pairs = [("next", wanted)];
    match serde_html_form::to_string(pairs) {
        Ok(query) if wanted != "/" => Redirect::to(&format!("/login?{query}")).into_response(),
        _ => Redirect::to("/login").into_response(),
    }
}

impl FromRequestParts<App> for SignedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        match signed_in(parts, app).await {
            Ok(Some(person)) => Ok(person),
            Ok(None) => Err(sign_in_first(parts)),
            Err(error) => Err(error.into_response()),
        }
    }
}

impl FromRequestParts<App> for SignedInAdmin {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        let person = <SignedIn as FromRequestParts<App>>::from_request_parts(parts, app).await?;
        if !person.actor.acts_as_admin() {
            return Err(HttpError::from(AppError::Hidden).into_response());
        }
        Ok(Self(person))
    }
}

impl FromRequestParts<App> for MaybeSignedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        signed_in(parts, app).await.map(Self).map_err(axum::response::IntoResponse::into_response)
    }
}

impl OptionalFromRequestParts<App> for SignedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Option<Self>, Response> {
        signed_in(parts, app).await.map_err(axum::response::IntoResponse::into_response)
    }
}

impl<T: DeserializeOwned> FromRequest<App> for CsrfForm<T> {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let person = <SignedIn as FromRequestParts<App>>::from_request_parts(&mut parts, app).await?;
        let form = async {
            let pairs = body::form_pairs(Request::from_parts(parts, body)).await?;
            let (tokens, fields): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(name, _)| name == FORM_TOKEN);
            let good = matches!(&tokens[..], [(_, token)] if logins::form_token_matches(&person.secret, token));
            if !good {
                return Err(HttpError::new(StatusCode::FORBIDDEN, "form_token", say("problem.form_token")));
            }
            body::from_pairs(&fields)
        };
        let form = form.await.map_err(axum::response::IntoResponse::into_response)?;
        Ok(Self(person, form))
    }
}

impl<T: DeserializeOwned> FromRequest<App> for AdminForm<T> {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let SignedInAdmin(_) = SignedInAdmin::from_request_parts(&mut parts, app).await?;
        let CsrfForm(person, form) = CsrfForm::from_request(Request::from_parts(parts, body), app).await?;
        Ok(Self(person, form))
    }
}

impl<T: DeserializeOwned> FromRequest<App> for PlainForm<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, _app: &App) -> Result<Self, HttpError> {
        let pairs = body::form_pairs(request).await?;
        body::from_pairs(&pairs).map(Self)
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        if let Some(FromPage(caller)) = parts.extensions.get() {
            return Ok(caller.clone());
        }
        let secret = bearer(parts).ok_or(AppError::Unauthenticated)?;
        let (token, user) = app.tokens.by_secret(&secret).await?.ok_or(AppError::Unauthenticated)?;
        let info = info(parts);
        info.sent_by(&user);
        let ticket = Ticket::Token(Digest::of(secret.expose()));
        let via = Via::Token { id: token.id, scopes: token.scopes };
        let actor = Actor { user, via, address: info.address, request_id: Some(info.id.to_string()) };
        Ok(Self { actor, ticket })
    }
}

impl FromRequestParts<App> for AdminCaller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.actor.require_admin()?;
        Ok(Self(caller))
    }
}

/// The token of an `Authorization: Bearer` header; more than one header is none.
fn bearer(parts: &Parts) -> Option<Secret> {
    authorization(&parts.headers, "Bearer").map(Secret::from_text)
}

/// The credentials of an `Authorization` header of this scheme; more than one header is none.
pub fn authorization<'a>(headers: &'a http::HeaderMap, scheme: &str) -> Option<&'a str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (given, rest) = value.to_str().ok().filter(|text| text.len() <= MAX_AUTHORIZATION)?.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then(|| rest.trim_start())
}

impl FromRequestParts<App> for RequestId {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self(info(parts).id.to_string()))
    }
}

impl FromRequestParts<App> for ClientAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self(info(parts).address))
    }
}

impl FromRequestParts<App> for SureAddress {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Self::Rejection> {
        let info = info(parts);
        Ok(Self(info.address.filter(|_| !info.is_forwarded)))
    }
}

/// One id or name in the path; one that does not parse belongs to nothing, so it is not found.
#[derive(Debug, Clone, Copy)]
pub struct Id<T>(pub T);

impl<T: std::str::FromStr> FromRequestParts<App> for Id<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let Ok(Path(text)) = <Path<String> as FromRequestParts<App>>::from_request_parts(parts, app).await else {
            return Err(AppError::NotFound.into());
        };
        text.parse().map(Self).map_err(|_| AppError::NotFound.into())
    }
}

/// The name of a space and an id in it; where either does not parse there is nothing.
#[derive(Debug, Clone)]
pub struct InSpace<T>(pub SpaceName, pub T);

impl<T: std::str::FromStr> FromRequestParts<App> for InSpace<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let named = <Path<(String, String)> as FromRequestParts<App>>::from_request_parts(parts, app).await;
        let Ok(Path((space, id))) = named else { return Err(AppError::NotFound.into()) };
        match (space.parse(), id.parse()) {
            (Ok(space), Ok(id)) => Ok(Self(space, id)),
            _ => Err(AppError::NotFound.into()),
        }
    }
}

/// A path of this origin to go on to after the log-in, or the first page.
pub fn safe_next(next: Option<&str>) -> String {
    match next {
        Some(path) if is_local_path(path) => path.to_owned(),
        _ => "/".to_owned(),
    }
}

/// Whether a browser takes `path` for a path of the same origin and nothing else.
pub fn is_local_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= 2048
        && path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_this_origin_are_gone_on_to() {
        assert_eq!(safe_next(Some("/sessions/1?x=y#z")), "/sessions/1?x=y#z");
        for bad in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a b", "/\t/x", "/ä", "/\n"]
        {
            assert_eq!(safe_next(Some(bad)), "/", "{bad:?}");
        }
        assert_eq!(safe_next(None), "/");
    }

    #[test]
    fn one_authorization_header_of_the_scheme_counts() {
        let mut headers = http::HeaderMap::new();
        assert_eq!(authorization(&headers, "Bearer"), None);
        headers.insert(header::AUTHORIZATION, "bEARER eir_x".parse().unwrap());
        assert_eq!(authorization(&headers, "Bearer"), Some("eir_x"));
        assert_eq!(authorization(&headers, "Basic"), None);
        headers.append(header::AUTHORIZATION, "Bearer eir_y".parse().unwrap());
        assert_eq!(authorization(&headers, "Bearer"), None);
    }
}
