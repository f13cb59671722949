//! One session: its page, its log, stopping it, and the way to its app.

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::id::SessionId;
use eirene_core::session::{JobKind, Session, SessionState};
use eirene_http::extract::{CsrfForm, SignedIn};
use eirene_http::headers::FormTarget;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::samples::Wanted;
use jiff::Timestamp;
use serde::Deserialize;

use super::login::Nothing;
use super::views::alerts::{self, AlertLine};
use super::views::charts;
use super::views::layout::Place;
use super::views::session::{HandoverPage, SessionFragment, SessionPage, SessionView, WaitingFragment, WaitingPage};
use super::views::simple::ConfirmPage;
use super::views::usage::{self, UsageFragment, UsageView};
use super::{Done, Shown, layout, now, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 10;
/// The same on the page that waits for the app.
const WAITING_REFRESH_S: u32 = 4;

/// An id as typed; what is no id is not there.
fn id(text: &str) -> Result<SessionId, AppError> {
    text.parse().map_err(|_| AppError::NotFound)
}

async fn find(app: &App, signed_in: &SignedIn, text: &str) -> Result<Session, AppError> {
    app.sessions.get(&signed_in.actor, id(text)?).await
}

fn is_foreign(session: &Session, signed_in: &SignedIn) -> bool {
    session.owner != signed_in.actor.user.id
}

fn view(app: &App, session: &Session, signed_in: &SignedIn) -> SessionView {
    let view = SessionView::new(words(), session, now(app));
    let app_label = view.app.clone();
    let view = view.with_nodes(words(), &app.nodes.of(session), &app_label);
    let view = view.with_copied(words(), session, app.nodes.copied(session).as_ref());
    if is_foreign(session, signed_in) { view.without_app() } else { view }
}

fn events(session: &Session) -> String {
    format!("/live/sessions/{}/events", session.id)
}

/// `GET /sessions/{id}`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(done): Query<Done>,
) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    let log = app.logs.read(&signed_in.actor, JobKind::Session, session.id).await?;
    let over = session.state.is_final();
    let mut layout = layout(&signed_in, Place::Elsewhere, session.name.as_str()).with_notice(done.notice());
    let view = view(&app, &session, &signed_in).with_alerts(alerts(&app, &session, &signed_in).await);
    // What is kept of a scratch is not for ever.
    if !over || view.scratch.is_some() {
        layout = layout.live(events(&session), REFRESH_S);
    }
    let log_href = if over { String::new() } else { format!("/live/sessions/{}/logs?follow=true", session.id) };
    let foreign = is_foreign(&session, &signed_in);
    let usage = usage(&app, &session).await;
    let usage_href = if over { String::new() } else { format!("/fragments/sessions/{}/usage", session.id) };
    let page = SessionPage { layout, session: view, usage, usage_href, log, log_href, foreign };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/sessions/{id}`
pub(crate) async fn fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    let foreign = is_foreign(&session, &signed_in);
    let view = view(&app, &session, &signed_in).with_alerts(alerts(&app, &session, &signed_in).await);
    Ok(show(&SessionFragment { session: view, foreign })?.into_response())
}

/// What whoever looks should know of a session or run. Without it the page is there all the same.
pub(super) async fn alerts(app: &App, session: &Session, signed_in: &SignedIn) -> Vec<AlertLine> {
    if session.state.is_final() {
        return Vec::new();
    }
    let found = app.alerts.told_of_session(&signed_in.actor, session.id).await;
    found.map(|alerts| alerts::lines(&alerts)).unwrap_or_default()
}

/// What a session or run uses since it was last started. Without the record the page is there all the same.
pub(super) async fn usage(app: &App, session: &Session) -> UsageView {
    usage_since(app, session, None).await
}

/// The same since some time.
pub(super) async fn usage_since(app: &App, session: &Session, from: Option<Timestamp>) -> UsageView {
    let wanted = Wanted { points: Some(usage::POINTS), from, ..Wanted::default() };
    let chart = app.samples.chart(session, wanted).await;
    if let Err(error) = &chart {
        tracing::debug!(session.id = %session.id, %error, "What a session uses could not be shown");
    }
    let advice = app.efficiency.advice(session).await.unwrap_or_default();
    let usage = UsageView::new(words(), session, chart.ok().as_ref(), &advice).with_clocks(clocks(app, session));
    let prometheus = &app.config.prometheus;
    if prometheus.url.is_some() { usage.of_prometheus(words(), prometheus.scrape_interval_s) } else { usage }
}

/// What is to be said of clocks on a session's nodes; nothing of one that is over.
pub(super) fn clocks(app: &App, session: &Session) -> Vec<String> {
    if session.state.is_final() {
        return Vec::new();
    }
    charts::clocks(words(), &app.samples.wrong_clocks_of(session.id))
}

/// `GET /fragments/sessions/{id}/usage`
pub(crate) async fn usage_fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    Ok(show(&UsageFragment { usage: usage(&app, &session).await })?.into_response())
}

/// `GET /sessions/{id}/log`: the log as text.
pub(crate) async fn log(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let log = app.logs.read(&signed_in.actor, JobKind::Session, id(&text)?).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], log).into_response())
}

/// `GET /sessions/{id}/stop`: asks once more.
pub(crate) async fn stop_page(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    let back = format!("/sessions/{}", session.id);
    let title = words().fill("session.stop_title", &[("name", session.name.as_str())]);
    let page = ConfirmPage {
        layout: layout(&signed_in, Place::Elsewhere, &title),
        title,
        text: words().get("session.stop_text"),
        action: format!("{back}/stop"),
        yes: words().get("session.stop_yes"),
        back_href: back,
    };
    Ok(show(&page)?.into_response())
}

/// `POST /sessions/{id}/stop`
pub(crate) async fn stop(
    State(app): State<App>,
    Path(text): Path<String>,
    CsrfForm(signed_in, Nothing {}): CsrfForm<Nothing>,
) -> Shown {
    let session = app.sessions.stop(&signed_in.actor, id(&text)?).await?;
    Ok(Redirect::to(&format!("/sessions/{}?done=stopping", session.id)).into_response())
}

/// Where a session's own origin sends a browser that it does not know.
#[derive(Deserialize)]
pub(crate) struct FromOrigin {
    session: Option<String>,
}

/// `GET /open?session={id}`
pub(crate) async fn open_from_origin(app: State<App>, signed_in: SignedIn, Query(from): Query<FromOrigin>) -> Shown {
    open(app, signed_in, Path(from.session.unwrap_or_default())).await
}

/// `GET /sessions/{id}/open`: over to the app when it is ready, else waits for it.
pub(crate) async fn open(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    if is_foreign(&session, &signed_in) {
        return Err(AppError::Hidden.into());
    }
    if session.state == SessionState::Running {
        return hand_over(&app, &signed_in, &session).await;
    }
    if session.state.is_final() || session.state == SessionState::Stopping {
        return Ok(Redirect::to(&format!("/sessions/{}", session.id)).into_response());
    }
    let layout = layout(&signed_in, Place::Elsewhere, session.name.as_str()).live(events(&session), WAITING_REFRESH_S);
    Ok(show(&WaitingPage { layout, session: view(&app, &session, &signed_in) })?.into_response())
}

async fn hand_over(app: &App, signed_in: &SignedIn, session: &Session) -> Shown {
    let code = app.access.begin_handover(&signed_in.actor, session.id).await?;
    let origin = app.config.session_origin(session.id);
    let page = HandoverPage {
        layout: layout(signed_in, Place::Elsewhere, &words().get("handover.page_title")),
        name: session.name.to_string(),
        action: format!("{origin}/.eirene/enter"),
        code: code.expose().to_owned(),
    };
    let mut answer = show(&page)?.into_response();
    answer.extensions_mut().insert(FormTarget(origin));
    Ok(answer)
}

/// `GET /fragments/waiting/{id}`
pub(crate) async fn waiting_fragment(State(app): State<App>, signed_in: SignedIn, Path(text): Path<String>) -> Shown {
    let session = find(&app, &signed_in, &text).await?;
    if is_foreign(&session, &signed_in) {
        return Err(AppError::Hidden.into());
    }
    Ok(show(&WaitingFragment { session: view(&app, &session, &signed_in) })?.into_response())
}
