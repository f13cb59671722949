//! Nodes out of service and back, and their past; for admins. What everybody sees of nodes is the cluster's.

use axum::Json;
use axum::extract::State;
use eirene_core::NodeName;
use eirene_http::body;
use eirene_http::extract::{AdminCaller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::app::App;
use eirene_services::error::FieldError;
use http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::List;
use super::users::Nothing;
use crate::view::{ConfinedNodeView, NodeChangeView, NodeInZabbixView};

/// Why a node is drained.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drain {
    /// One line of printable text. The scheduler keeps it with ` (eirene: NAME)` behind it.
    #[schema(min_length = 1, max_length = 200, example = "fan 3 is broken")]
    reason: String,
}

/// Have a node take no more jobs; those it runs go on. The cluster shows it as soon as it was seen.
#[utoipa::path(
    post, path = "/api/v1/nodes/{name}/drain", tag = "cluster", request_body = Drain,
    params(("name" = String, Path, description = "Node", pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")),
    responses((status = 204, description = "The scheduler has taken it."))
)]
pub(crate) async fn drain(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(name): Id<NodeName>,
    body::Json(wish): body::Json<Drain>,
) -> HttpResult<StatusCode> {
    let reason = wish.reason.parse().map_err(|error| HttpError::invalid(vec![FieldError::no_name("reason", error)]))?;
    app.upkeep.drain(&caller.actor, &name, &reason).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Have a drained or down node take jobs again.
#[utoipa::path(
    post, path = "/api/v1/nodes/{name}/resume", tag = "cluster", request_body = Nothing,
    params(("name" = String, Path, description = "Node", pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")),
    responses((status = 204, description = "The scheduler has taken it."))
)]
pub(crate) async fn resume(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(name): Id<NodeName>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<StatusCode> {
    app.upkeep.resume(&caller.actor, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a node was, newest first: at most its last 500 changes. A node that is gone has a past, too.
#[utoipa::path(
    get, path = "/api/v1/nodes/{name}/history", tag = "cluster",
    params(("name" = String, Path, description = "Node", pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")),
    responses((status = 200, body = List<NodeChangeView>))
)]
pub(crate) async fn history(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(name): Id<NodeName>,
) -> HttpResult<Json<List<NodeChangeView>>> {
    let history = app.upkeep.history(&caller.actor, &name).await?;
    Ok(Json(List { items: history.into_iter().map(NodeChangeView::from).collect(), next: None }))
}

/// What holds the jobs on a node to the memory and the CPUs that they have asked for, as the last session there saw it.
#[utoipa::path(
    get, path = "/api/v1/nodes/{name}/confinement", tag = "cluster",
    params(("name" = String, Path, description = "Node", pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")),
    responses((status = 200, body = ConfinedNodeView))
)]
pub(crate) async fn confinement(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(name): Id<NodeName>,
) -> HttpResult<Json<ConfinedNodeView>> {
    let confined = app.upkeep.confined(&caller.actor, &name).await?;
    Ok(Json(confined.map(ConfinedNodeView::from).unwrap_or_default()))
}

/// What the site's Zabbix says of a node: problems that go on, and the last hour of some items. Read at most once in 15 s, whoever asks.
#[utoipa::path(
    get, path = "/api/v1/nodes/{name}/zabbix", tag = "cluster",
    params(("name" = String, Path, description = "Node", pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$")),
    responses((status = 200, body = NodeInZabbixView))
)]
pub(crate) async fn zabbix(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(name): Id<NodeName>,
) -> HttpResult<Json<NodeInZabbixView>> {
    Ok(Json(app.zabbix.of_node(&caller.actor, &name).await?.into()))
}
