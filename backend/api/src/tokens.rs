//! API tokens: trading a password for one, listing, ending.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eirene_core::{Scope, TokenId};
use eirene_http::body;
use eirene_http::extract::{Caller, ClientAddress, Id, RequestId, authorization};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::tokens::NewToken as Wanted;
use http::{HeaderMap, StatusCode};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::List;
use crate::view::TokenView;

/// A token to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewToken {
    /// What you call it.
    #[schema(min_length = 1, max_length = 100, pattern = r"^[!-~]([ -~]*[!-~])?$", example = "laptop")]
    name: String,
    /// What it may be used for; everything but `tokens` and `admin` when nothing is given.
    #[schema(min_items = 1, max_items = 16)]
    scopes: Option<Vec<Scope>>,
    /// Seconds until it ends; never when nothing is given.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 31_622_400, example = 86_400)]
    expires_in_s: Option<u64>,
}

/// A token just made.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeToken {
    /// The token, as it is listed from now on.
    #[serde(flatten)]
    view: TokenView,
    /// The token itself: shown this once.
    #[schema(pattern = "^eir_[A-Za-z0-9_-]{43}$")]
    token: String,
}

/// Trade user name and password (HTTP Basic) for a token.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", request_body = NewToken, security(("password" = [])),
    responses((status = 201, body = MadeToken))
)]
pub(crate) async fn create(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    RequestId(request_id): RequestId,
    headers: HeaderMap,
    request: axum::extract::Request,
) -> HttpResult<Response> {
    // Without credentials nothing is read; with them the body is checked before a password is, so that a wrong body costs no try.
    let (username, password) = basic(&headers).ok_or(AppError::Unauthenticated)?;
    let body::Json(new) =
        <body::Json<NewToken> as axum::extract::FromRequest<App>>::from_request(request, &app).await?;
    let NewToken { name, scopes, expires_in_s } = new;
    let wanted = Wanted { name, scopes, expires_in_s };
    let made = app.tokens.create_with_password(&username, password, address, Some(&request_id), wanted).await?;
    let shown = MadeToken { view: TokenView::from(&made.token), token: made.secret.expose().to_owned() };
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

/// User name and password of a Basic header.
fn basic(headers: &HeaderMap) -> Option<(String, SecretString)> {
    let decoded = STANDARD.decode(authorization(headers, "Basic")?.trim_end()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), SecretString::from(password)))
}

/// List your tokens.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", responses((status = 200, body = List<TokenView>)))]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<TokenView>>> {
    let tokens = app.tokens.list(&caller.actor).await?;
    Ok(Json(List { items: tokens.iter().map(TokenView::from).collect(), next: None }))
}

/// Show one of your tokens. A token may always see itself.
#[utoipa::path(
    get, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "Token", pattern = "^[0-9a-f]{32}$")),
    responses((status = 200, body = TokenView))
)]
pub(crate) async fn show(State(app): State<App>, caller: Caller, Id(id): Id<TokenId>) -> HttpResult<Json<TokenView>> {
    Ok(Json(TokenView::from(&app.tokens.get(&caller.actor, id).await?)))
}

/// End one of your tokens. A token may always end itself.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "tokens",
    params(("id" = String, Path, description = "Token", pattern = "^[0-9a-f]{32}$")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn delete(State(app): State<App>, caller: Caller, Id(id): Id<TokenId>) -> HttpResult<StatusCode> {
    app.tokens.delete(&caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn basic_credentials_are_read_up_to_the_first_colon() {
        let with = |text: &str| {
            let value = format!("Basic {}", STANDARD.encode(text));
            HeaderMap::from_iter([(http::header::AUTHORIZATION, value.parse().unwrap())])
        };
        let (name, password) = basic(&with("ada:a:b")).unwrap();
        assert_eq!((name.as_str(), password.expose_secret()), ("ada", "a:b"));
        assert!(basic(&with("ada")).is_none());
        assert!(basic(&HeaderMap::new()).is_none());
    }
}
