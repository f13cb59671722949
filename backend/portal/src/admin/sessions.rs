//! Everybody's sessions, and jobs of ours that no session explains.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::{SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::sessions::ListSessions;
use serde::Deserialize;

use crate::views::admin::{AdoptedView, AllSessionsFragment, AllSessionsPage};
use crate::views::format::Time;
use crate::views::layout::Place;
use crate::views::session::SessionView;
use crate::{Shown, layout, now, show, words};

/// Sessions on one page.
pub(super) const PAGE: u32 = 50;
/// Seconds after which a browser without scripts looks again.
pub(super) const REFRESH_S: u32 = 30;

/// Which part of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    show: Option<String>,
    pub(super) cursor: Option<String>,
}

impl Part {
    pub(super) fn live_only(&self) -> bool {
        self.show.as_deref() != Some("all")
    }

    pub(super) fn query(&self, cursor: Option<&str>) -> String {
        let mut parts = Vec::new();
        if !self.live_only() {
            parts.push("show=all".to_owned());
        }
        if let Some(cursor) = cursor {
            parts.push(format!("cursor={}", super::encode(cursor)));
        }
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }
}

async fn list(app: &App, me: &SignedIn, part: &Part) -> Result<(Vec<SessionView>, Option<String>), AppError> {
    let ask = ListSessions { all: true, live_only: part.live_only(), cursor: part.cursor.clone(), limit: PAGE };
    let found = app.sessions.list(&me.actor, ask).await?;
    let view = |session: &_| SessionView::new(words(), session, now(app)).without_app();
    Ok((found.items.iter().map(view).collect(), found.next))
}

/// `GET /admin/sessions`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(part): Query<Part>) -> Shown {
    let (sessions, next) = list(&app, &me, &part).await?;
    let adopted = app.sessions.adopted(&me.actor).await?;
    let page = AllSessionsPage {
        layout: layout(&me, Place::Sessions, &words().get("all.title")).live("/live/events?all=true", REFRESH_S),
        sessions,
        live_only: part.live_only(),
        next_href: next.map(|next| format!("/admin/sessions{}", part.query(Some(&next)))).unwrap_or_default(),
        adopted: adopted
            .iter()
            .map(|job| AdoptedView {
                job: job.job_id.to_string(),
                uid: job.uid.to_string(),
                seen: Time::new(job.seen_at),
            })
            .collect(),
        fragment_href: format!("/fragments/admin/sessions{}", part.query(part.cursor.as_deref())),
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/admin/sessions`
pub(crate) async fn fragment(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(part): Query<Part>,
) -> Shown {
    let (sessions, _) = list(&app, &me, &part).await?;
    Ok(show(&AllSessionsFragment { sessions })?.into_response())
}
