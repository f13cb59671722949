//! The storage: what is wrong with it, what it consists of, and whose spaces are short of room.

use axum::extract::State;
use axum::response::IntoResponse as _;
use eirene_core::storage::Ability;
use eirene_http::extract::SignedInAdmin;
use eirene_services::app::App;
use eirene_services::storage::Report;

use crate::views::layout::Place;
use crate::views::storage::{Defaults, StoragePage};
use crate::{Shown, layout, show, words};

/// Seconds after which a browser without scripts looks again.
const REFRESH_S: u32 = 60;
/// Pools whose defaults are asked for: each is a question to the storage.
const MOST_POOLS: usize = 16;

/// `GET /admin/storage`
pub(crate) async fn page(State(app): State<App>, SignedInAdmin(me): SignedInAdmin) -> Shown {
    let report = app.storage.report(&me.actor)?;
    let census = app.spaces.census(&me.actor).await?;
    let defaults = defaults(&app, &me, &report).await;
    let layout = layout(&me, Place::Storage, &words().get("storage_page.title")).live("", REFRESH_S);
    Ok(show(&StoragePage::new(words(), layout, &report, &census, &defaults))?.into_response())
}

/// The default limits of the pools, in their order; none where the storage has no such thing.
async fn defaults(app: &App, me: &eirene_http::extract::SignedIn, report: &Report) -> Vec<Defaults> {
    let can = report.snapshot.capabilities.as_ref().is_some_and(|can| can.default_quota == Ability::Yes);
    let pools = report.snapshot.pools.got().map_or(&[][..], |pools| &pools.value);
    let asked: Vec<_> = pools.iter().take(if can { MOST_POOLS } else { 0 }).map(|pool| pool.id).collect();
    let said = app.storage_limits.defaults_of_all(&me.actor, &asked).await;
    // A pool that tells nothing takes nothing from the rest of the page.
    said.into_iter().map(|said| said.map_err(|error| error.to_string())).collect()
}
