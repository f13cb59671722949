//! The cluster's page, from the last snapshot.

use axum::extract::State;
use axum::response::IntoResponse as _;
use jiff::SignedDuration;

use super::views::cluster_page::{ClusterFragment, ClusterPage, ClusterPart};
use super::views::layout::Place;
use super::{Shown, layout, now, show, words};
use crate::app::App;
use crate::http::extract::SignedIn;

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 60;

/// The past that is shown, and in how many spans.
const PAST: SignedDuration = SignedDuration::from_hours(24);
const SPANS: u32 = 96;

async fn seen(app: &App) -> ClusterPart {
    let snapshot = app.cluster.snapshot();
    // Without its past the page is there all the same.
    let past = app.samples.cluster_past(PAST, SPANS).await.ok();
    ClusterPart::new(words(), &app.cluster.view(), &snapshot.jobs, past.as_ref(), now(app))
}

/// `GET /cluster`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn) -> Shown {
    let layout = layout(&signed_in, Place::Cluster, &words().get("cluster_page.title")).live("", REFRESH_S);
    Ok(show(&ClusterPage { layout, cluster: seen(&app).await })?.into_response())
}

/// `GET /fragments/cluster`
pub(crate) async fn fragment(State(app): State<App>, _: SignedIn) -> Shown {
    Ok(show(&ClusterFragment { cluster: seen(&app).await })?.into_response())
}
