//! What sessions and runs held and used, by person or partition, with examples.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_core::job_usage::UsageBy;
use eirene_http::extract::SignedInAdmin;
use eirene_services::app::App;
use eirene_services::efficiency::{DAYS, Wanted};
use jiff::SignedDuration;
use serde::Deserialize;

use crate::views::efficiency::{EfficiencyPage, EfficiencyView, TIMES};
use crate::views::layout::Place;
use crate::{Shown, layout, now, show, words};

/// Which report.
#[derive(Deserialize)]
pub(crate) struct Which {
    days: Option<i64>,
    by: Option<String>,
}

/// `GET /admin/efficiency`
pub(crate) async fn page(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Query(which): Query<Which>,
) -> Shown {
    let days = which.days.filter(|days| TIMES.contains(days)).unwrap_or(DAYS);
    let by = if which.by.as_deref() == Some("partition") { UsageBy::Partition } else { UsageBy::Person };
    let from = now(&app).saturating_sub(SignedDuration::from_hours(24 * days)).ok();
    let report = app.efficiency.report(&me.actor, Wanted { from, to: None, by }).await?;
    let page = EfficiencyPage {
        layout: layout(&me, Place::Efficiency, &words().get("efficiency.title")),
        efficiency: EfficiencyView::new(words(), &report, by, days),
    };
    Ok(show(&page)?.into_response())
}
