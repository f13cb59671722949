//! Log in and log out.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use eirene_http::cookies;
use eirene_http::extract::{ClientAddress, CsrfForm, MaybeSignedIn, PlainForm, RequestId, safe_next};
use eirene_services::app::App;
use eirene_services::error::AppError;
use secrecy::SecretString;
use serde::Deserialize;

use super::views::Field;
use super::views::layout::{Layout, Tone};
use super::views::simple::LoginPage;
use super::{Done, Shown, show, show_as, words};

/// Query of the log-in page.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    next: Option<String>,
    #[serde(flatten)]
    done: Done,
}

/// The log-in form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginForm {
    username: String,
    password: SecretString,
    #[serde(default)]
    next: Option<String>,
}

/// A form without fields of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

fn view(username: &str, next: Option<&str>, error: String, tone: Tone) -> LoginPage {
    LoginPage {
        layout: Layout::for_nobody(words(), &words().get("login.page_title")),
        username: Field::new(username),
        error,
        tone,
        next: safe_next(next),
    }
}

/// `GET /login`
pub(crate) async fn page(signed_in: MaybeSignedIn, Query(wanted): Query<Wanted>) -> Shown {
    if signed_in.0.is_some() {
        return Ok(Redirect::to(&safe_next(wanted.next.as_deref())).into_response());
    }
    let mut page = view("", wanted.next.as_deref(), String::new(), Tone::Bad);
    page.layout = page.layout.with_notice(wanted.done.notice());
    Ok(show(&page)?.into_response())
}

/// `POST /login`
pub(crate) async fn log_in(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    RequestId(request_id): RequestId,
    headers: HeaderMap,
    PlainForm(form): PlainForm<LoginForm>,
) -> Shown {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let answer = app.logins.log_in(&form.username, form.password, address, agent, Some(&request_id)).await;
    let refused = |status: StatusCode, error: String, tone: Tone| {
        show_as(status, &view(&form.username, form.next.as_deref(), error, tone))
    };
    match answer {
        Ok(login) => {
            let cookie = [(header::SET_COOKIE, cookies::set_login(&login.secret))];
            Ok((cookie, Redirect::to(&safe_next(form.next.as_deref()))).into_response())
        }
        Err(AppError::Unauthenticated) => refused(StatusCode::UNAUTHORIZED, words().get("login.wrong"), Tone::Bad),
        Err(AppError::Invalid(_) | AppError::TooLarge) => {
            refused(StatusCode::UNPROCESSABLE_ENTITY, words().get("login.too_long"), Tone::Bad)
        }
        Err(AppError::RateLimited { retry_after_s }) => {
            let seconds = retry_after_s.to_string();
            let error = words().fill("login.limited", &[("seconds", &seconds)]);
            let page = refused(StatusCode::TOO_MANY_REQUESTS, error, Tone::Wait)?;
            Ok(with_retry(page, &seconds))
        }
        Err(AppError::Unavailable { retry_after_s, .. }) => {
            let page = refused(StatusCode::SERVICE_UNAVAILABLE, words().get("login.unavailable"), Tone::Doubt)?;
            Ok(with_retry(page, &retry_after_s.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

fn with_retry(page: Response, seconds: &str) -> Response {
    ([(header::RETRY_AFTER, seconds.to_owned())], page).into_response()
}

/// `POST /logout`
pub(crate) async fn log_out(State(app): State<App>, CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>) -> Shown {
    app.logins.log_out(&signed_in.actor, signed_in.login.id).await?;
    let cookie = [(header::SET_COOKIE, cookies::clear_login())];
    Ok((cookie, Redirect::to("/login?done=logged_out")).into_response())
}
