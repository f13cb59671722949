//! Spaces: one's own, those of one's groups and those of everybody. Admins see everybody's, and of none what is in it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use eirene_core::SpaceName;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_words::say_with;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{List, cursor, limit, wrong};
use crate::view::{GroupLimitView, SampleView, SpaceView};

/// How long somebody who asks for limits of groups waits for the storage.
const GROUP_LIMITS_WAIT: Duration = Duration::from_secs(5);
/// Days of samples when nothing is said.
const DEFAULT_DAYS: u32 = 30;
/// Most days of samples.
const MAX_DAYS: u32 = 400;

/// Which spaces.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Everybody's, in pages; only for admins. One's own come all at once.
    #[param(default = false, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    all: Option<bool>,
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items of a page.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
}

/// How far back.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Days {
    /// Days.
    #[param(minimum = 1, maximum = 400, default = 30, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    days: Option<u32>,
}

/// Your spaces, the home first: what each uses and may use, and how it grows.
#[utoipa::path(
    get, path = "/api/v1/spaces", tag = "spaces", params(Which), responses((status = 200, body = List<SpaceView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<List<SpaceView>>> {
    let (cursor, limit) = (cursor(which.cursor)?, limit(which.limit)?);
    let (items, next) = if which.all == Some(true) {
        let page = app.spaces.all(&caller.actor, cursor, limit).await?;
        (page.items, page.next)
    } else {
        (app.spaces.list(&caller.actor).await?, None)
    };
    Ok(Json(List { items: items.into_iter().map(SpaceView::from).collect(), next }))
}

/// One space. Your own are also found as `home`, and by the name of a root in which everybody has one.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}", tag = "spaces",
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 200, body = SpaceView))
)]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
) -> HttpResult<Json<SpaceView>> {
    Ok(Json(SpaceView::from(app.spaces.get(&caller.actor, &space).await?)))
}

/// What a space used in the last days, oldest first.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/usage", tag = "spaces",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Days),
    responses((status = 200, body = List<SampleView>))
)]
pub(crate) async fn usage(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(days): body::Query<Days>,
) -> HttpResult<Json<List<SampleView>>> {
    let days = days.days.unwrap_or(DEFAULT_DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(wrong("days", say_with("wrong.between", &[("least", "1"), ("most", &MAX_DAYS.to_string())])));
    }
    let samples = app.spaces.samples(&caller.actor, &space, days).await?;
    Ok(Json(List { items: samples.into_iter().map(SampleView::from).collect(), next: None }))
}

/// What the groups that you are in may use on the storage itself, where that is limited: all members together, wherever their files lie. What a space
/// of the group shows already is not in it, unless the storage has several pools.
#[utoipa::path(
    get, path = "/api/v1/me/group-limits", tag = "spaces", responses((status = 200, body = List<GroupLimitView>))
)]
pub(crate) async fn group_limits(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<GroupLimitView>>> {
    let limits = app.spaces.group_limits(&caller.actor, GROUP_LIMITS_WAIT).await?;
    Ok(Json(List { items: limits.into_iter().map(GroupLimitView::from).collect(), next: None }))
}
