//! People, for admins.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::{Role, UserState, Username};
use eirene_http::body;
use eirene_http::extract::{AdminCaller, Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::accounts::{NewAccount, Uid};
use eirene_services::app::App;
use eirene_services::error::FieldError;
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{List, Part, cursor, limit};
use crate::view::UserView;

/// An account to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    /// Name; also the POSIX log-in name.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$", example = "ada")]
    username: String,
    /// Role; researcher when nothing is given.
    role: Option<Role>,
    /// Password; one is generated when nothing is given.
    #[schema(value_type = Option<String>, required = false, format = Password, min_length = 10, max_length = 256)]
    password: Option<SecretString>,
}

/// An account just made.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeUser {
    /// The account.
    #[serde(flatten)]
    view: UserView,
    /// The generated password, shown this once; absent when one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    password: Option<String>,
}

/// A body without fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// A new password.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    /// Password; one is generated when nothing is given.
    #[schema(value_type = Option<String>, required = false, format = Password, min_length = 10, max_length = 256)]
    password: Option<SecretString>,
}

/// A password that was generated.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadePassword {
    /// The generated password, shown this once; absent when one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    password: Option<String>,
}

fn shown(password: Option<SecretString>) -> Option<String> {
    password.map(|password| password.expose_secret().to_owned())
}

/// List accounts, by name.
#[utoipa::path(
    get, path = "/api/v1/users", tag = "people", params(Part), responses((status = 200, body = List<UserView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(part): body::Query<Part>,
) -> HttpResult<Json<List<UserView>>> {
    let (users, next) = app.accounts.list(&caller.actor, cursor(part.cursor)?, limit(part.limit)?).await?;
    Ok(Json(List { items: users.iter().map(UserView::from).collect(), next }))
}

/// Make an account for a person the portal's machine knows, or for an admin.
#[utoipa::path(
    post, path = "/api/v1/users", tag = "people", request_body = NewUser, responses((status = 201, body = MadeUser))
)]
pub(crate) async fn create(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Json(new): body::Json<NewUser>,
) -> HttpResult<Response> {
    let username =
        new.username.parse().map_err(|error| HttpError::invalid(vec![FieldError::no_name("username", error)]))?;
    let role = new.role.unwrap_or(Role::Researcher);
    let account = NewAccount { username, role, uid: Uid::FromSystem, password: new.password };
    let (user, password) = app.accounts.create(&caller.actor, account).await?;
    let made = MadeUser { view: UserView::from(&user), password: shown(password) };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

async fn set_state(app: &App, caller: &Caller, username: &Username, state: UserState) -> HttpResult<Json<UserView>> {
    let user = app.accounts.set_state(&caller.actor, username, state).await?;
    Ok(Json(UserView::from(&user)))
}

/// Disable an account. Its tokens and log-ins end at once; its sessions go on.
#[utoipa::path(
    post, path = "/api/v1/users/{username}/disable", tag = "people", request_body = Nothing,
    params(("username" = String, Path, description = "User name", pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$")),
    responses((status = 200, body = UserView))
)]
pub(crate) async fn disable(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(username): Id<Username>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<Json<UserView>> {
    set_state(&app, &caller, &username, UserState::Disabled).await
}

/// Enable an account again.
#[utoipa::path(
    post, path = "/api/v1/users/{username}/enable", tag = "people", request_body = Nothing,
    params(("username" = String, Path, description = "User name", pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$")),
    responses((status = 200, body = UserView))
)]
pub(crate) async fn enable(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(username): Id<Username>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<Json<UserView>> {
    set_state(&app, &caller, &username, UserState::Active).await
}

/// Give somebody a new password. Tokens and log-ins made with the old one end at once.
#[utoipa::path(
    post, path = "/api/v1/users/{username}/reset-password", tag = "people", request_body = NewPassword,
    params(("username" = String, Path, description = "User name", pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$")),
    responses((status = 200, body = MadePassword))
)]
pub(crate) async fn reset_password(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(username): Id<Username>,
    body::Json(new): body::Json<NewPassword>,
) -> HttpResult<Json<MadePassword>> {
    let password = app.accounts.reset_password(&caller.actor, &username, new.password).await?;
    Ok(Json(MadePassword { password: shown(password) }))
}
