//! The cluster as it was last seen; SLURM is never asked from here.

use axum::Json;
use axum::extract::State;
use eirene_core::Scope;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::Caller;
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::samples::MOST_POINTS;
use eirene_words::say_with;
use jiff::SignedDuration;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{List, wrong};
use crate::view::{AdoptedJobView, ClusterDocument, ClusterPastView, NodeView};

/// Partitions, GPU types, and what is free now, per node.
///
/// Admins see all of the cluster, everybody else the partitions they may use, and where something of theirs is.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "cluster", responses((status = 200, body = ClusterDocument)))]
pub(crate) async fn cluster(State(app): State<App>, caller: Caller) -> HttpResult<Json<ClusterDocument>> {
    Ok(Json(ClusterDocument::from(&app.overview.cluster(&caller.actor).await?)))
}

/// Which part of the past.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Past {
    /// How many hours back from now.
    #[param(minimum = 1, maximum = 8784, default = 24, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    hours: Option<u32>,
    /// Most spans.
    #[param(minimum = 1, maximum = 2000, default = 300, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    points: Option<u32>,
}

impl Past {
    const HOURS: u32 = 366 * 24;

    fn checked(field: &str, value: Option<u32>, usual: u32, most: u32) -> HttpResult<u32> {
        let value = value.unwrap_or(usual);
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        Err(wrong(field, say_with("wrong.between", &[("least", "1"), ("most", &most.to_string())])))
    }
}

/// How many jobs ran and waited, and how many GPUs they had and wanted, over time.
///
/// These are sums of the whole cluster for everybody, also of partitions that are not for them: no name is in them.
#[utoipa::path(
    get, path = "/api/v1/cluster/history", tag = "cluster", params(Past), responses((status = 200, body = ClusterPastView))
)]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
    body::Query(past): body::Query<Past>,
) -> HttpResult<Json<ClusterPastView>> {
    caller.actor.require(Scope::Read)?;
    let hours = Past::checked("hours", past.hours, 24, Past::HOURS)?;
    let points = Past::checked("points", past.points, 300, MOST_POINTS)?;
    let length = SignedDuration::from_hours(hours.into());
    Ok(Json(app.samples.cluster_past(length, points).await?.into()))
}

/// The nodes alone.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "cluster", responses((status = 200, body = List<NodeView>)))]
pub(crate) async fn nodes(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<NodeView>>> {
    let nodes = app.overview.cluster(&caller.actor).await?.nodes;
    Ok(Json(List { items: nodes.iter().map(NodeView::from).collect(), next: None }))
}

/// Jobs with our mark that belong to no session, as after a restored backup; for admins. None is ever cancelled by itself.
#[utoipa::path(
    get, path = "/api/v1/adopted-jobs", tag = "cluster", responses((status = 200, body = List<AdoptedJobView>))
)]
pub(crate) async fn adopted(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<AdoptedJobView>>> {
    let jobs = app.sessions.adopted(&caller.actor).await?;
    Ok(Json(List { items: jobs.into_iter().map(AdoptedJobView::from).collect(), next: None }))
}
