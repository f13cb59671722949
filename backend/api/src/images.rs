//! The image catalogue, for whoever starts sessions.

use axum::Json;
use axum::extract::State;
use eirene_http::extract::Caller;
use eirene_http::problem::HttpResult;
use eirene_services::app::App;

use super::List;
use crate::view::ImageView;

/// List the images sessions may be started from.
#[utoipa::path(get, path = "/api/v1/images", tag = "cluster", responses((status = 200, body = List<ImageView>)))]
pub(crate) async fn images(State(app): State<App>, caller: Caller) -> HttpResult<Json<List<ImageView>>> {
    let images = app.images.list(&caller.actor).await?;
    Ok(Json(List { items: images.iter().map(ImageView::from).collect(), next: None }))
}
