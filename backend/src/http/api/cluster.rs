//! The cluster as it was last seen; SLURM is never asked from here.

use axum::Json;
use axum::extract::State;
use eirene_core::Scope;

use super::List;
use crate::app::App;
use crate::http::extract::Caller;
use crate::http::problem::HttpResult;
use crate::http::view::{AdoptedJobView, ClusterDocument, NodeView};

/// Partitions, GPU types, and what is free now, per node.
#[utoipa::path(get, path = "/api/v1/cluster", tag = "cluster", responses((status = 200, body = ClusterDocument)))]
pub(crate) async fn cluster(State(app): State<App>, caller: Caller) -> HttpResult<Json<ClusterDocument>> {
    caller.actor.require(Scope::Read)?;
    Ok(Json(ClusterDocument::from(&app.cluster.view())))
}

/// The nodes alone.
#[utoipa::path(get, path = "/api/v1/nodes", tag = "cluster", responses((status = 200, body = List<NodeView>)))]
pub(crate) async fn nodes(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<NodeView>>> {
    caller.actor.require(Scope::Read)?;
    let nodes = app.cluster.view().nodes;
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
