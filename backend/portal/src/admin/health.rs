//! How everything is doing that the portal depends on.

use axum::extract::State;
use axum::response::IntoResponse as _;
use eirene_http::extract::{SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::AppError;

use crate::views::health::{HealthFragment, HealthPage, HealthView};
use crate::views::layout::Place;
use crate::{Shown, layout, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 15;

async fn health(app: &App, me: &SignedIn) -> Result<HealthView, AppError> {
    let report = app.readiness.for_admins(&me.actor).await?;
    Ok(HealthView::new(words(), &report))
}

/// `GET /admin/health`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin) -> Shown {
    let page = HealthPage {
        layout: layout(&me, Place::Health, &words().get("health.title")).live("", REFRESH_S),
        health: health(&app, &me).await?,
    };
    Ok(show(&page)?.into_response())
}

/// `GET /fragments/admin/health`
pub(crate) async fn fragment(State(app): State<App>, SignedInAdmin(me): SignedInAdmin) -> Shown {
    Ok(show(&HealthFragment { health: health(&app, &me).await? })?.into_response())
}
