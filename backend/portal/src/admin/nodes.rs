//! The nodes of the cluster, from the snapshot, and each by itself with its past, where it is drained and resumed.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect};
use eirene_core::NodeName;
use eirene_http::extract::{AdminForm, Id, SignedIn, SignedInAdmin};
use eirene_services::app::App;
use eirene_services::error::{AppError, FieldError};
use serde::Deserialize;

use crate::login::Nothing;
use crate::views::FormError;
use crate::views::admin::{NodeView, NodesPage};
use crate::views::format::Time;
use crate::views::layout::Place;
use crate::views::node::NodePage;
use crate::{Done, Shown, layout, show, show_as, words};

/// `GET /admin/nodes`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin) -> Shown {
    let cluster = app.cluster.view();
    let page = NodesPage {
        layout: layout(&me, Place::Nodes, &words().get("nodes.title")),
        nodes: cluster.nodes.iter().map(|node| NodeView::new(words(), node)).collect(),
        at: cluster.at.map(Time::new),
        reachable: cluster.reachable,
    };
    Ok(show(&page)?.into_response())
}

async fn view(app: &App, me: &SignedIn, name: &NodeName) -> Result<NodePage, AppError> {
    let seen = app.upkeep.look(&me.actor, name).await?;
    let layout = layout(me, Place::Nodes, name.as_str());
    let page = NodePage::new(words(), layout, name.as_str(), &seen, app.cluster.snapshot().reachable)
        .with_clock(&app.samples.wrong_clocks());
    Ok(page.with_zabbix(words(), &app.zabbix.of_node(&me.actor, name).await?))
}

/// `GET /admin/nodes/{name}`
pub(crate) async fn one(
    State(app): State<App>,
    SignedInAdmin(me): SignedInAdmin,
    Id(name): Id<NodeName>,
    Query(done): Query<Done>,
) -> Shown {
    let mut page = view(&app, &me, &name).await?;
    page.layout = page.layout.with_notice(done.notice());
    Ok(show(&page)?.into_response())
}

/// The form that drains.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drain {
    reason: String,
}

/// `POST /admin/nodes/{name}/drain`
pub(crate) async fn drain(
    State(app): State<App>,
    Id(name): Id<NodeName>,
    AdminForm(me, form): AdminForm<Drain>,
) -> Shown {
    let drained = async {
        let wrong = |error| AppError::Invalid(vec![FieldError::no_name("reason", error)]);
        let reason = form.reason.trim().parse().map_err(wrong)?;
        app.upkeep.drain(&me.actor, &name, &reason).await
    };
    let drained = drained.await;
    answer(&app, &me, &name, drained, "node_draining", form.reason).await
}

/// `POST /admin/nodes/{name}/resume`
pub(crate) async fn resume(
    State(app): State<App>,
    Id(name): Id<NodeName>,
    AdminForm(me, Nothing {}): AdminForm<Nothing>,
) -> Shown {
    let resumed = app.upkeep.resume(&me.actor, &name).await;
    answer(&app, &me, &name, resumed, "node_resuming", String::new()).await
}

/// Back to the node's page, or the page with what was wrong.
async fn answer(
    app: &App,
    me: &SignedIn,
    name: &NodeName,
    changed: Result<(), AppError>,
    done: &str,
    typed: String,
) -> Shown {
    let (status, errors) = match changed {
        Ok(()) => return Ok(Redirect::to(&format!("/admin/nodes/{name}?done={done}")).into_response()),
        Err(AppError::Invalid(errors)) => (StatusCode::UNPROCESSABLE_ENTITY, errors),
        Err(AppError::Conflict { text, .. }) => (StatusCode::CONFLICT, vec![FieldError::new("", text)]),
        Err(error) => return Err(error.into()),
    };
    let errors = errors.iter().map(|error| FormError::from_service(words(), error)).collect();
    show_as(status, &view(app, me, name).await?.refused(typed, errors))
}
