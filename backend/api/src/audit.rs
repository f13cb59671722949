//! The audit log, for admins.

use axum::Json;
use axum::extract::State;
use eirene_http::body::{self, some_plain};
use eirene_http::extract::AdminCaller;
use eirene_http::problem::HttpResult;
use eirene_services::app::App;
use eirene_services::audit::AuditQuery;
use eirene_words::{say, say_with};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{List, limit, wrong};
use crate::view::AuditView;

/// Longest filter.
const MAX_FILTER: usize = 64;

/// Which part of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Where to go on: the last answer's `next`.
    #[param(nullable = false, pattern = "^[0-9]{0,18}$")]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
    /// Only this actor's.
    #[param(nullable = false, max_length = 64)]
    actor: Option<String>,
    /// Only this action.
    #[param(nullable = false, max_length = 64)]
    action: Option<String>,
}

/// Read the audit log, newest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "people", params(Which), responses((status = 200, body = List<AuditView>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Query(which): body::Query<Which>,
) -> HttpResult<Json<List<AuditView>>> {
    let limit = limit(which.limit)?;
    let before = match which.cursor.as_deref() {
        None | Some("") => None,
        Some(text) if text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        Some(_) => return Err(wrong("cursor", say("wrong.cursor"))),
    };
    for (field, value) in [("actor", &which.actor), ("action", &which.action)] {
        if value.as_ref().is_some_and(|text| text.chars().count() > MAX_FILTER || text.contains('\0')) {
            return Err(wrong(field, say_with("wrong.too_long", &[("n", &MAX_FILTER.to_string())])));
        }
    }
    let query = AuditQuery { before, limit, actor: which.actor, action: which.action };
    let events = app.audit.list(&caller.actor, query).await?;
    let full = events.len() == limit as usize;
    let next = if full { events.last().map(|event| event.id.to_string()) } else { None };
    Ok(Json(List { items: events.into_iter().map(AuditView::from).collect(), next }))
}
