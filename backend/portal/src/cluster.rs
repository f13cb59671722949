//! The cluster's page, from the last snapshot.

use axum::extract::{Query, State};
use axum::response::IntoResponse as _;
use eirene_http::extract::SignedIn;
use eirene_services::app::App;
use eirene_services::error::AppError;
use jiff::SignedDuration;
use serde::Deserialize;

use super::views::cluster_page::{ClusterFragment, ClusterPage, ClusterPart};
use super::views::layout::Place;
use super::views::node_map::Measure;
use super::{Shown, layout, now, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 60;

/// The past that is shown, and in how many spans.
const PAST: SignedDuration = SignedDuration::from_hours(24);
const SPANS: u32 = 96;

/// What nodes are looked at by.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Asked {
    by: Option<String>,
}

impl Asked {
    fn measure(&self) -> Measure {
        Measure::read(self.by.as_deref())
    }
}

async fn seen(app: &App, signed_in: &SignedIn, by: Measure) -> Result<ClusterPart, AppError> {
    // Of GPUs only those who look at them are told what they do: it is read from the samples of every session that is shown.
    let seen = app.overview.look(&signed_in.actor, by == Measure::Gpu).await?;
    // Without its past the page is there all the same.
    let past = app.samples.cluster_past(PAST, SPANS).await.ok();
    Ok(ClusterPart::new(words(), &seen, by, past.as_ref(), now(app)))
}

/// `GET /cluster`
pub(crate) async fn page(State(app): State<App>, signed_in: SignedIn, Query(asked): Query<Asked>) -> Shown {
    let by = asked.measure();
    let layout = layout(&signed_in, Place::Cluster, &words().get("cluster_page.title")).live("", REFRESH_S);
    let cluster = seen(&app, &signed_in, by).await?;
    let fragment_href = format!("/fragments/cluster{}", by.query());
    Ok(show(&ClusterPage { layout, fragment_href, cluster })?.into_response())
}

/// `GET /fragments/cluster`
pub(crate) async fn fragment(State(app): State<App>, signed_in: SignedIn, Query(asked): Query<Asked>) -> Shown {
    Ok(show(&ClusterFragment { cluster: seen(&app, &signed_in, asked.measure()).await? })?.into_response())
}
