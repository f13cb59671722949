//! Whoever asks.

use axum::Json;
use axum::extract::State;
use eirene_core::{Role, Scope};
use eirene_http::extract::Caller;
use eirene_http::problem::HttpResult;
use eirene_services::actor::Via;
use eirene_services::app::App;
use serde::Serialize;
use utoipa::ToSchema;

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// User name.
    #[schema(example = "ada")]
    name: String,
    /// Roles.
    roles: Vec<Role>,
    /// POSIX user id; null for an account that runs nothing.
    uid: Option<u32>,
    /// Projects that sessions and runs may be started for: the accounts that SLURM has for the caller, the default one first. Empty where it has
    /// no accounting database.
    projects: Vec<String>,
    /// What the token may be used for.
    scopes: Vec<Scope>,
    /// What the caller may have.
    limits: Limits,
}

/// What one person may have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limits {
    /// Sessions at once.
    live_sessions: u32,
    /// Runs at once, those that wait among them.
    live_runs: u32,
}

/// Who the caller is, and what they may do.
#[utoipa::path(get, path = "/api/v1/me", tag = "account", responses((status = 200, body = Me)))]
pub(crate) async fn me(State(app): State<App>, caller: Caller) -> HttpResult<Json<Me>> {
    caller.actor.require(Scope::Read)?;
    let scopes = match caller.actor.via {
        Via::Token { scopes, .. } => scopes,
        Via::Login(_) | Via::Cli => Vec::new(),
    };
    let projects = app.projects.of(&caller.actor.user.username).await;
    let projects = projects.iter().map(ToString::to_string).collect();
    Ok(Json(Me {
        name: caller.actor.user.username.to_string(),
        roles: vec![caller.actor.user.role],
        uid: caller.actor.user.uid,
        projects,
        scopes,
        limits: Limits { live_sessions: app.config.limits.live_sessions, live_runs: app.config.limits.live_runs },
    }))
}
