//! The dashboard: my sessions, what is free, sizes to start with one click.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::SignedIn;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::sessions::ListSessions;

use super::start::{Land, new_key};
use super::views::cluster::FreeFragment;
use super::views::layout::Place;
use super::views::old_files::PromisedView;
use super::views::session::SessionView;
use super::views::space::SpacesNotice;
use super::views::start::{DashboardPage, SessionsFragment};
use super::{Done, Shown, layout, now, show, words};

/// Most sessions that live on one dashboard; more would be somebody's program.
const LIVE: u32 = 100;
/// Among this many of the last sessions, those that are over are looked for.
const LAST: u32 = 20;
/// So many of them are shown.
const EARLIER: usize = 5;
/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 15;
/// Where the page hears of changes.
const EVENTS: &str = "/live/events";

async fn mine(app: &App, signed_in: &SignedIn) -> Result<(Vec<SessionView>, Vec<SessionView>), AppError> {
    let ask = |live_only, limit| ListSessions { all: false, live_only, cursor: None, limit };
    let live = app.sessions.list(&signed_in.actor, ask(true, LIVE)).await?;
    let last = app.sessions.list(&signed_in.actor, ask(false, LAST)).await?;
    let view = |session: &_| SessionView::new(words(), session, now(app));
    let earlier = last.items.iter().filter(|session| session.state.is_final()).take(EARLIER).map(view).collect();
    Ok((live.items.iter().map(view).collect(), earlier))
}

/// `GET /`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn, Query(done): Query<Done>) -> Shown {
    let (live, earlier) = mine(&app, &signed_in).await?;
    let land = Land::read(&app, &signed_in).await?;
    let presets = if land.images.is_empty() { Vec::new() } else { land.ground().presets("", &new_key) };
    // Not knowing what is in them keeps nobody from their sessions.
    let spaces = app.spaces.list_known(&signed_in.actor).await.unwrap_or_default();
    let promised = app.old_files.promised(&signed_in.actor, &spaces).await?;
    let promised = PromisedView::all(words(), &promised);
    let spaces = SpacesNotice::of(words(), &spaces);
    let layout = layout(&signed_in, Place::Dashboard, &words().get("dashboard.title"));
    let layout = layout.live(EVENTS, REFRESH_S).with_notice(done.notice());
    Ok(show(&DashboardPage { layout, live, earlier, free: land.free(), presets, spaces, promised })?.into_response())
}

/// `GET /fragments/sessions`
pub(crate) async fn sessions_fragment(State(app): State<App>, signed_in: SignedIn) -> Shown {
    let (live, earlier) = mine(&app, &signed_in).await?;
    Ok(show(&SessionsFragment { live, earlier })?.into_response())
}

/// `GET /fragments/free`
pub(crate) async fn free_fragment(State(app): State<App>, signed_in: SignedIn) -> Shown {
    let land = Land::read(&app, &signed_in).await?;
    Ok(show(&FreeFragment { free: land.free() })?.into_response())
}
