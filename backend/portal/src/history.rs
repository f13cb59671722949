//! My sessions, all of them: what the dashboard has no room for.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::SignedIn;
use eirene_services::app::App;
use eirene_services::sessions::ListSessions;
use serde::Deserialize;

use super::views::layout::Place;
use super::views::session::{HistoryPage, SessionView};
use super::{Shown, layout, now, show, words};

/// Sessions on one page.
const PAGE: u32 = 50;

/// Which part of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    cursor: Option<String>,
}

/// `GET /sessions`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn, Query(part): Query<Part>) -> Shown {
    let newest_href = if part.cursor.is_some() { "/sessions".to_owned() } else { String::new() };
    let ask = ListSessions { all: false, live_only: false, cursor: part.cursor, limit: PAGE };
    let found = app.sessions.list(&signed_in.actor, ask).await?;
    let page = HistoryPage {
        layout: layout(&signed_in, Place::Elsewhere, &words().get("history.title")),
        sessions: found.items.iter().map(|session| SessionView::new(words(), session, now(&app))).collect(),
        older_href: found.next.map(|next| format!("/sessions?cursor={next}")).unwrap_or_default(),
        newest_href,
    };
    Ok(show(&page)?.into_response())
}
