//! My account: API tokens, password.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::ApiToken;
use eirene_core::account::{Role, Scope};
use eirene_core::id::TokenId;
use eirene_http::cookies;
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use eirene_services::tokens::NewToken;
use eirene_words::say;
use secrecy::SecretString;
use serde::Deserialize;

use super::login::Nothing;
use super::views::account::{AccountPage, ScopeChoice, TokenView};
use super::views::format::Time;
use super::views::layout::Place;
use super::views::simple::ConfirmPage;
use super::views::{Choice, Field, FormError};
use super::{Done, Shown, layout, show, show_as, words};

/// How long a token may last, in days; the second is offered first.
const LIFETIMES: [&str; 4] = ["7", "30", "90", "365"];
/// What the form begins with.
const FIRST_LIFETIME: &str = "90";

/// The field of a scope.
fn scope_field(scope: Scope) -> String {
    format!("scope_{}", scope.as_str().replace(':', "_"))
}

fn scope_label(scope: Scope) -> String {
    words().get(&format!("scope.{}", scope.as_str().replace(':', "_")))
}

pub(super) fn role_label(role: Role) -> String {
    words().get(&format!("role.{role}"))
}

fn token_view(token: &ApiToken) -> TokenView {
    TokenView {
        name: token.name.clone(),
        scopes: token.scopes.iter().map(|scope| scope_label(*scope)).collect::<Vec<_>>().join(", "),
        created: Time::new(token.created_at),
        expires: token.expires_at.map(Time::new),
        last_used: token.last_used_at.map(Time::new),
        delete_href: format!("/account/tokens/{}/delete", token.id),
    }
}

async fn view(app: &App, signed_in: &SignedIn) -> Result<AccountPage, AppError> {
    let user = &signed_in.actor.user;
    let tokens = app.tokens.list(&signed_in.actor).await?;
    let offered = Scope::ALL.iter().filter(|scope| **scope != Scope::Admin || user.is_admin());
    Ok(AccountPage {
        layout: layout(signed_in, Place::Account, &words().get("account.title")),
        username: user.username.to_string(),
        role: role_label(user.role),
        uid: user.uid.map(|uid| uid.to_string()).unwrap_or_default(),
        tokens: tokens.iter().map(token_view).collect(),
        new_token: String::new(),
        token_name: Field::default(),
        scopes: offered
            .map(|scope| ScopeChoice {
                value: scope_field(*scope),
                label: scope_label(*scope),
                checked: Scope::DEFAULT.contains(scope),
            })
            .collect(),
        scopes_error: String::new(),
        lifetimes: LIFETIMES
            .iter()
            .map(|days| Choice::new(*days, words().get(&format!("account.days_{days}")), FIRST_LIFETIME))
            .collect(),
        token_errors: Vec::new(),
        current_password: Field::default(),
        new_password: Field::default(),
        password_errors: Vec::new(),
    })
}

/// `GET /account`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn, Query(done): Query<Done>) -> Shown {
    let mut page = view(&app, &signed_in).await?;
    page.layout = page.layout.with_notice(done.notice());
    Ok(show(&page)?.into_response())
}

/// `POST /account/tokens`: makes a token and shows it this once.
pub(crate) async fn make_token(
    State(app): State<App>,
    CsrfForm(signed_in, form): CsrfForm<BTreeMap<String, String>>,
) -> Shown {
    let name = form.get("token_name").map(|name| name.trim().to_owned()).unwrap_or_default();
    let days = form.get("lifetime_days").filter(|days| LIFETIMES.contains(&days.as_str()));
    let days = days.and_then(|days| days.parse::<u64>().ok());
    let scopes: Vec<Scope> =
        Scope::ALL.iter().copied().filter(|scope| form.contains_key(&scope_field(*scope))).collect();
    let Some(days) = days else {
        return Err(AppError::Invalid(vec![FieldError::new("lifetime_days", say("wrong.lifetime"))]).into());
    };
    let new = NewToken { name: name.clone(), scopes: Some(scopes.clone()), expires_in_s: Some(days * 24 * 60 * 60) };
    let errors = match app.tokens.create(&signed_in.actor, new).await {
        Ok(made) => {
            let mut page = view(&app, &signed_in).await?;
            made.secret.expose().clone_into(&mut page.new_token);
            return show_as(StatusCode::CREATED, &page);
        }
        Err(AppError::Invalid(errors)) => errors,
        Err(AppError::Conflict { text, .. }) => vec![FieldError::new("", text)],
        Err(error) => return Err(error.into()),
    };
    let named = |error: FieldError| match error.field.as_str() {
        "name" => FieldError { field: "token_name".to_owned(), ..error },
        _ => error,
    };
    let errors: Vec<FormError> =
        errors.into_iter().map(|error| FormError::from_service(words(), &named(error))).collect();
    let mut page = view(&app, &signed_in).await?;
    page.token_name = Field { value: name, error: FormError::text_of(&errors, "token_name") };
    page.scopes_error = FormError::text_of(&errors, "scopes");
    for choice in &mut page.scopes {
        choice.checked = scopes.iter().any(|scope| scope_field(*scope) == choice.value);
    }
    page.token_errors = errors;
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

async fn find_token(app: &App, signed_in: &SignedIn, text: &str) -> Result<ApiToken, AppError> {
    let id: TokenId = text.parse().map_err(|_| AppError::NotFound)?;
    app.tokens.get(&signed_in.actor, id).await
}

/// `GET /account/tokens/{id}/delete`: asks once more.
pub(crate) async fn delete_token_page(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let token = find_token(&app, &signed_in, &text).await?;
    let title = words().fill("account.token_delete_title", &[("name", &token.name)]);
    let page = ConfirmPage {
        layout: layout(&signed_in, Place::Account, &title),
        title,
        text: words().get("account.token_delete_text"),
        action: format!("/account/tokens/{}/delete", token.id),
        yes: words().get("account.token_delete"),
        back_href: "/account".to_owned(),
    };
    Ok(show(&page)?.into_response())
}

/// `POST /account/tokens/{id}/delete`
pub(crate) async fn delete_token(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let id: TokenId = text.parse().map_err(|_| AppError::NotFound)?;
    app.tokens.delete(&signed_in.actor, id).await?;
    Ok(Redirect::to("/account?done=token_deleted").into_response())
}

/// The password form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordForm {
    current_password: SecretString,
    new_password: SecretString,
    /// Sent for the browser's password store; who is asking is known from the cookie alone.
    #[serde(default, rename = "username")]
    _username: Option<String>,
}

/// `POST /account/password`: changes it and logs out everywhere.
pub(crate) async fn change_password(
    State(app): State<App>,
    CsrfForm(signed_in, form): CsrfForm<PasswordForm>,
) -> Shown {
    let answer = app.accounts.change_own_password(&signed_in.actor, form.current_password, form.new_password).await;
    let errors = match answer {
        Ok(()) => {
            let cookie = [(header::SET_COOKIE, cookies::clear_login())];
            return Ok((cookie, Redirect::to("/login?done=password_changed")).into_response());
        }
        Err(AppError::Invalid(errors)) => errors,
        Err(error) => return Err(error.into()),
    };
    let errors: Vec<FormError> = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
    let mut page = view(&app, &signed_in).await?;
    page.current_password.error = FormError::text_of(&errors, "current_password");
    page.new_password.error = FormError::text_of(&errors, "new_password");
    page.password_errors = errors;
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}
