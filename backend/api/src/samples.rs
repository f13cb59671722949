//! What sessions and runs use: processors, memory, storage, network, GPUs, and what programs report.

use axum::Json;
use axum::extract::State;
use eirene_core::{Session, SessionId};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::samples::{MOST_POINTS, Wanted};
use eirene_words::say_with;
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use super::wrong;
use crate::view::{SampleGroup, SamplesView};

/// Which samples.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Of what; all but `cores` and `processes`, which are many, when nothing is said.
    #[param(inline, nullable = false)]
    group: Option<SampleGroup>,
    /// From when on; the beginning when nothing is said.
    #[param(nullable = false, value_type = Option<String>, format = DateTime)]
    from: Option<Timestamp>,
    /// Until when; the end, or now.
    #[param(nullable = false, value_type = Option<String>, format = DateTime)]
    to: Option<Timestamp>,
    /// Most points of a line, or a few more.
    #[param(minimum = 1, maximum = 2000, default = 300, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    points: Option<u32>,
}

impl Which {
    fn wanted(&self) -> HttpResult<Wanted> {
        if self.points.is_some_and(|points| !(1..=MOST_POINTS).contains(&points)) {
            let most = MOST_POINTS.to_string();
            return Err(wrong("points", say_with("wrong.between", &[("least", "1"), ("most", &most)])));
        }
        Ok(Wanted { group: self.group.map(Into::into), from: self.from, to: self.to, points: self.points })
    }
}

/// What a session uses, as lines over time. What only rises, such as seconds of processor time, is told as its rise per second.
#[utoipa::path(
    get, path = "/api/v1/sessions/{id}/samples", tag = "sessions",
    params(("id" = String, Path, description = "Session", pattern = "^[0-9a-f]{32}$"), Which),
    responses((status = 200, body = SamplesView))
)]
pub(crate) async fn of_session(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<SamplesView>> {
    let session = app.sessions.get(&caller.actor, id).await?;
    answer(&app, &session, &which).await
}

/// What a run uses, as lines over time. What only rises, such as seconds of processor time, is told as its rise per second.
#[utoipa::path(
    get, path = "/api/v1/runs/{id}/samples", tag = "runs",
    params(("id" = String, Path, description = "Run", pattern = "^[0-9a-f]{32}$"), Which),
    responses((status = 200, body = SamplesView))
)]
pub(crate) async fn of_run(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<SessionId>,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<SamplesView>> {
    let run = app.runs.get(&caller.actor, id).await?;
    answer(&app, &run, &which).await
}

/// What is wanted of a session or run that may be seen.
pub(crate) async fn answer(app: &App, session: &Session, which: &Which) -> HttpResult<Json<SamplesView>> {
    let chart = app.samples.chart(session, which.wanted()?).await?;
    Ok(Json(SamplesView::new(chart, &app.samples.left_out(session).await)))
}
