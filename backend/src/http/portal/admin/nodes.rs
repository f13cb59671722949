//! The nodes of the cluster, from the snapshot.

use axum::extract::State;
use axum::response::IntoResponse as _;

use crate::app::App;
use crate::http::extract::SignedInAdmin;
use crate::http::portal::views::admin::{NodeView, NodesPage};
use crate::http::portal::views::format::Time;
use crate::http::portal::views::layout::Place;
use crate::http::portal::{Shown, layout, show, words};

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
