//! What the storage's servers do now, and who asks how much of them.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_core::storage::{OperationsKind, Role};
use eirene_http::extract::{SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::AppError;
use jiff::SignedDuration;
use serde::Deserialize;

use crate::views::activity::{ActivityFragment, ActivityPage, ActivityView, MINUTES, Seen, numbers};
use crate::views::layout::Place;
use crate::{Shown, layout, now, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 15;

/// Of which servers: those of contents, or those of names.
#[derive(Deserialize)]
pub(crate) struct Of {
    role: Option<String>,
}

impl Of {
    fn role(&self) -> Role {
        if self.role.as_deref() == Some("metadata") { Role::Metadata } else { Role::Storage }
    }
}

async fn activity(app: &App, me: &SignedIn, role: Role) -> Result<ActivityView, AppError> {
    let servers = app.storage_stats.servers(&me.actor, role).await?;
    let history = app.storage_stats.history(&me.actor, role, MINUTES)?;
    let people = app.storage_stats.operations(&me.actor, role, OperationsKind::Users).await?;
    let nodes = app.storage_stats.operations(&me.actor, role, OperationsKind::Clients).await?;
    let users_history = app.storage_stats.history_of_users(&me.actor, role, MINUTES)?;
    let names = app.accounts.names(&me.actor, &numbers(&people, &users_history)).await?;
    let seen = Seen {
        role,
        servers: &servers,
        history: &history,
        every: SignedDuration::from_secs(app.config.storage.poll_interval_s.cast_signed()),
        users_history: &users_history,
        people: &people,
        nodes: &nodes,
        names: &names,
        now: now(app),
    };
    Ok(ActivityView::new(words(), &seen))
}

/// `GET /admin/storage/activity`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(of): Query<Of>) -> Shown {
    let role = of.role();
    let query = if role == Role::Metadata { "?role=metadata" } else { "" };
    let page = ActivityPage {
        layout: layout(&me, Place::Storage, &words().get("activity.title")).live("", REFRESH_S),
        activity: activity(&app, &me, role).await?,
        fragment_href: format!("/fragments/admin/storage/activity{query}"),
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/admin/storage/activity`
pub(crate) async fn fragment(State(app): State<App>, SignedInAdmin(me): SignedInAdmin, Query(of): Query<Of>) -> Shown {
    Ok(show(&ActivityFragment { activity: activity(&app, &me, of.role()).await? })?.into_response())
}
