//! How everything is doing that the portal depends on; for admins. What a load balancer asks is `/readyz`.

use axum::Json;
use axum::extract::State;
use eirene_http::extract::AdminCaller;
use eirene_http::problem::HttpResult;
use eirene_services::app::App;

use crate::view::HealthView;

/// How everything is doing that the portal depends on, what is wrong and what to do. Looked at at most once in 2 s, whoever asks.
#[utoipa::path(get, path = "/api/v1/health", tag = "health", responses((status = 200, body = HealthView)))]
pub(crate) async fn show(State(app): State<App>, AdminCaller(caller): AdminCaller) -> HttpResult<Json<HealthView>> {
    let report = app.readiness.for_admins(&caller.actor).await?;
    Ok(Json(HealthView::new(&report)))
}
