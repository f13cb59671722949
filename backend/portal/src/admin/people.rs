//! People: adding, disabling, new passwords.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::account::{Role, User, UserState};
use eirene_core::name::{NameError, Username};
use eirene_http::extract::{AdminForm, SignedIn, SignedInAdmin};
use eirene_services::accounts::{NewAccount, Uid};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::account::role_label;
use crate::login::Nothing;
use crate::views::admin::{NewPassword, PeoplePage, PersonView};
use crate::views::format::Time;
use crate::views::layout::{Place, Tone};
use crate::views::session::Chip;
use crate::views::simple::ConfirmPage;
use crate::views::{Choice, Field, FormError};
use crate::{Done, Shown, layout, show, show_as, words};

/// People on one page.
const PAGE: u32 = 50;

/// Which part of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
    #[serde(flatten)]
    done: Done,
}

fn person(user: &User, me: &User) -> PersonView {
    let base = format!("/admin/users/{}", user.username);
    let active = user.state == UserState::Active;
    let (key, tone) = if active { ("people.active", Tone::Good) } else { ("people.disabled", Tone::Still) };
    PersonView {
        username: user.username.to_string(),
        role: role_label(user.role),
        chip: Chip { label: words().get(key), tone },
        uid: user.uid.map(|uid| uid.to_string()).unwrap_or_default(),
        created: Time::new(user.created_at),
        disable_href: if active && user.id != me.id { format!("{base}/disable") } else { String::new() },
        enable_href: if active { String::new() } else { format!("{base}/enable") },
        reset_href: format!("{base}/reset-password"),
    }
}

async fn view(app: &App, signed_in: &SignedIn, cursor: Option<String>) -> Result<PeoplePage, AppError> {
    let (people, next) = app.accounts.list(&signed_in.actor, cursor, PAGE).await?;
    let roles = Role::ALL.iter().map(|role| Choice::new(role.as_str(), role_label(*role), Role::Researcher.as_str()));
    Ok(PeoplePage {
        layout: layout(signed_in, Place::People, &words().get("people.title")),
        people: people.iter().map(|user| person(user, &signed_in.actor.user)).collect(),
        next_href: next.map(|cursor| format!("/admin/users?cursor={cursor}")).unwrap_or_default(),
        new_password: None,
        username: Field::default(),
        roles: roles.collect(),
        errors: Vec::new(),
    })
}

/// `GET /admin/users`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let mut page = view(&app, &me, part.cursor).await?;
    page.layout = page.layout.with_notice(part.done.notice());
    Ok(show(&page)?.into_response())
}

/// The form that adds a person.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPerson {
    username: String,
    role: String,
}

/// `POST /admin/users`: adds a person and shows the password this once.
pub(crate) async fn add(State(app): State<App>, AdminForm(me, form): AdminForm<NewPerson>) -> Shown {
    let typed = form.username.trim().to_owned();
    let errors = match make(&app, &me, &typed, &form.role).await {
        Ok((username, password)) => {
            let mut page = view(&app, &me, None).await?;
            page.new_password = password.map(|password| shown_once(&username, &password));
            return show_as(StatusCode::CREATED, &page);
        }
        Err(AppError::Invalid(errors)) => errors,
        Err(AppError::Conflict { text, .. }) => vec![FieldError::new("username", text)],
        Err(error) => return Err(error.into()),
    };
    let errors: Vec<FormError> = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
    let mut page = view(&app, &me, None).await?;
    page.username = Field { value: typed, error: FormError::text_of(&errors, "username") };
    for choice in &mut page.roles {
        choice.selected = choice.value == form.role;
    }
    page.errors = errors;
    show_as(StatusCode::UNPROCESSABLE_ENTITY, &page)
}

async fn make(
    app: &App,
    me: &SignedIn,
    username: &str,
    role: &str,
) -> Result<(Username, Option<SecretString>), AppError> {
    // Whoever may not add people learns nothing about what was wrong with the form.
    me.actor.require_admin().map_err(|_| AppError::Hidden)?;
    let wrong = |field: &str, error: NameError| AppError::Invalid(vec![FieldError::no_name(field, error)]);
    let username: Username = username.parse().map_err(|error| wrong("username", error))?;
    let role: Role = role.parse().map_err(|error| wrong("role", error))?;
    let new = NewAccount { username: username.clone(), role, uid: Uid::FromSystem, password: None };
    let (_, password) = app.accounts.create(&me.actor, new).await?;
    Ok((username, password))
}

fn shown_once(username: &Username, password: &SecretString) -> NewPassword {
    NewPassword { username: username.to_string(), password: password.expose_secret().to_owned() }
}

fn name(text: &str) -> Result<Username, AppError> {
    text.parse().map_err(|_| AppError::NotFound)
}

fn confirm(me: &SignedIn, username: &Username, verb: &str, words_key: &str, yes: &str) -> Shown {
    let title = words().fill(&format!("people.{words_key}_title"), &[("name", username.as_str())]);
    let page = ConfirmPage {
        layout: layout(me, Place::People, &title),
        title,
        text: words().get(&format!("people.{words_key}_text")),
        action: format!("/admin/users/{username}/{verb}"),
        yes: words().get(yes),
        back_href: "/admin/users".to_owned(),
    };
    Ok(show(&page)?.into_response())
}

/// `GET /admin/users/{username}/disable`: asks once more.
pub(crate) async fn disable_page(SignedInAdmin(me): SignedInAdmin, Path(text): Path<String>) -> Shown {
    confirm(&me, &name(&text)?, "disable", "disable", "people.disable")
}

/// `POST /admin/users/{username}/disable`
pub(crate) async fn disable(
    State(app): State<App>,
    Path(text): Path<String>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    set_state(&app, &me, &text, UserState::Disabled, "/admin/users?done=disabled").await
}

/// `GET /admin/users/{username}/enable`: asks once more.
pub(crate) async fn enable_page(SignedInAdmin(me): SignedInAdmin, Path(text): Path<String>) -> Shown {
    confirm(&me, &name(&text)?, "enable", "enable", "people.enable")
}

/// `POST /admin/users/{username}/enable`
pub(crate) async fn enable(
    State(app): State<App>,
    Path(text): Path<String>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    set_state(&app, &me, &text, UserState::Active, "/admin/users?done=enabled").await
}

async fn set_state(app: &App, me: &SignedIn, text: &str, state: UserState, then: &str) -> Shown {
    me.actor.require_admin().map_err(|_| AppError::Hidden)?;
    app.accounts.set_state(&me.actor, &name(text)?, state).await?;
    Ok(Redirect::to(then).into_response())
}

/// `GET /admin/users/{username}/reset-password`: asks once more.
pub(crate) async fn reset_page(SignedInAdmin(me): SignedInAdmin, Path(text): Path<String>) -> Shown {
    confirm(&me, &name(&text)?, "reset-password", "reset", "people.reset_yes")
}

/// `POST /admin/users/{username}/reset-password`: makes a new one and shows it this once.
pub(crate) async fn reset(
    State(app): State<App>,
    Path(text): Path<String>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    me.actor.require_admin().map_err(|_| AppError::Hidden)?;
    let username = name(&text)?;
    let password = app.accounts.reset_password(&me.actor, &username, None).await?;
    let mut page = view(&app, &me, None).await?;
    page.new_password = password.map(|password| shown_once(&username, &password));
    Ok(show(&page)?.into_response())
}
