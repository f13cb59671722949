//! The charts of a session or a run, on a page of their own, so that its first page stays light.

use axum::extract::{Path, Query, State};
use axum::response::IntoResponse as _;
use eirene_core::id::SessionId;
use eirene_core::session::Session;
use eirene_http::extract::SignedIn;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::sessions::ListSessions;
use serde::Deserialize;

use super::session::{clocks, usage_since};
use super::views::charts::{self, ChartsPage};
use super::views::layout::Place;
use super::{Shown, layout, now, show, words};

/// Sessions that can be compared with, and as many runs.
const OTHERS: u32 = 50;
/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 30;

/// An id as typed; what is no id is not there.
fn id(text: &str) -> Result<SessionId, AppError> {
    text.parse().map_err(|_| AppError::NotFound)
}

/// What a link compares with; the rest of the address is the page's module's.
#[derive(Deserialize)]
pub(crate) struct Compared {
    with: Option<String>,
}

/// `GET /sessions/{id}/charts`
pub(crate) async fn of_session(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(compared): Query<Compared>,
) -> Shown {
    let last_event = app.events.latest().await?;
    let session = app.sessions.get(&signed_in.actor, id(&text)?).await?;
    page(&app, &signed_in, (&session, last_event), &compared, Place::Elsewhere).await
}

/// `GET /runs/{id}/charts`
pub(crate) async fn of_run(
    State(app): State<App>,
    signed_in: SignedIn,
    Path(text): Path<String>,
    Query(compared): Query<Compared>,
) -> Shown {
    let last_event = app.events.latest().await?;
    let run = app.runs.get(&signed_in.actor, id(&text)?).await?;
    page(&app, &signed_in, (&run, last_event), &compared, Place::Runs).await
}

/// What a link names, if it is there and may be seen.
async fn named(app: &App, signed_in: &SignedIn, compared: &Compared) -> Option<Session> {
    let (folder, text) = compared.with.as_deref()?.split_once('/')?;
    let id = id(text).ok()?;
    match folder {
        "sessions" => app.sessions.get(&signed_in.actor, id).await.ok(),
        "runs" => app.runs.get(&signed_in.actor, id).await.ok(),
        _ => None,
    }
}

/// What it can be compared with: the person's own, the latest of them, and what a link names.
async fn others(app: &App, signed_in: &SignedIn, compared: &Compared) -> Result<Vec<Session>, AppError> {
    let ask = || ListSessions { all: false, live_only: false, cursor: None, limit: OTHERS };
    let mut found = app.sessions.list(&signed_in.actor, ask()).await?.items;
    found.extend(app.runs.list(&signed_in.actor, ask()).await?.items);
    let named = named(app, signed_in, compared).await;
    found.extend(named.filter(|named| found.iter().all(|one| one.id != named.id)));
    Ok(found)
}

async fn page(
    app: &App,
    signed_in: &SignedIn,
    (session, last_event): (&Session, i64),
    compared: &Compared,
    place: Place,
) -> Shown {
    let title = words().fill("charts.page_title", &[("name", session.name.as_str())]);
    let mut layout = layout(signed_in, place, &title);
    if !session.state.is_final() {
        // The page's module has the stream; here it is for browsers without scripts.
        layout.refresh_s = REFRESH_S;
    }
    // Without them the page is there all the same.
    let happened = app.alerts.of_session(session.id).await.unwrap_or_default();
    let earlier = app.efficiency.earlier_starts(session).await.unwrap_or_default();
    let first = charts::first_start(session, &earlier);
    let page = ChartsPage {
        layout,
        name: session.name.to_string(),
        back_href: format!("/{}", charts::below(session)),
        about: charts::about(
            words(),
            session,
            &earlier,
            &happened,
            &others(app, signed_in, compared).await?,
            (last_event, now(app)),
        ),
        left_out: charts::left_out(words(), &app.samples.left_out(session).await),
        clocks: clocks(app, session),
        usage: usage_since(app, session, first).await.without_charts(),
    };
    Ok(show(&page)?.into_response())
}
