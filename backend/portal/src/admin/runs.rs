//! Everybody's runs.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::{SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::sessions::ListSessions;

use super::sessions::{PAGE, Part, REFRESH_S};
use crate::views::layout::Place;
use crate::views::run::{AllRunsFragment, AllRunsPage, RunView};
use crate::{Shown, layout, now, show, words};

async fn list(app: &App, me: &SignedIn, part: &Part) -> Result<(Vec<RunView>, Option<String>), AppError> {
    let ask = ListSessions { all: true, live_only: part.live_only(), cursor: part.cursor.clone(), limit: PAGE };
    let found = app.runs.list(&me.actor, ask).await?;
    let view = |run: &_| RunView::new(words(), run, None, now(app)).foreign();
    Ok((found.items.iter().map(view).collect(), found.next))
}

/// `GET /admin/runs`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let (runs, next) = list(&app, &me, &part).await?;
    let page = AllRunsPage {
        layout: layout(&me, Place::AllRuns, &words().get("all_runs.title")).live("/live/events?all=true", REFRESH_S),
        runs,
        live_only: part.live_only(),
        next_href: next.map(|next| format!("/admin/runs{}", part.query(Some(&next)))).unwrap_or_default(),
        fragment_href: format!("/fragments/admin/runs{}", part.query(part.cursor.as_deref())),
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/admin/runs`
pub(crate) async fn fragment(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(part): Query<Part>,
) -> Shown {
    let (runs, _) = list(&app, &me, &part).await?;
    Ok(show(&AllRunsFragment { runs })?.into_response())
}
