//! The REST API, `/api/v1`: for programs, by token alone. Each file is one noun; the document that describes it all is
//! made of the same routes ([`openapi`]).

mod alerts;
mod audit;
mod changes;
mod cluster;
mod efficiency;
mod events;
pub mod files;
mod health;
mod images;
pub mod live;
mod making;
mod me;
mod nodes;
mod old_files;
mod openapi;
mod operations;
mod permissions;
mod range;
mod runs;
mod samples;
mod scans;
mod sessions;
mod slowly;
mod spaces;
mod storage;
mod streams;
mod tokens;
mod trash;
pub mod tus;
mod uploads;
mod users;
pub mod view;
mod wanted;

use axum::Router;
use axum::middleware::from_fn;
use eirene_core::Sentence;
use eirene_http::body::some_plain;
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::app::App;
use eirene_services::error::FieldError;
use eirene_words::{say, say_with};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

/// Items of a page when nothing is said.
const DEFAULT_LIMIT: u32 = 50;
/// Most items of a page.
const MAX_LIMIT: u32 = 200;
/// Longest cursor.
const MAX_CURSOR: usize = 64;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    /// The items.
    items: Vec<T>,
    /// Give this as `cursor` for the next page; null after the last.
    next: Option<String>,
}

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
}

/// A limit within its bounds.
fn limit(given: Option<u32>) -> HttpResult<u32> {
    match given {
        None => Ok(DEFAULT_LIMIT),
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(_) => Err(wrong("limit", say_with("wrong.between", &[("least", "1"), ("most", &MAX_LIMIT.to_string())]))),
    }
}

/// A cursor that could be one of ours.
fn cursor(given: Option<String>) -> HttpResult<Option<String>> {
    let plain = |text: &str| {
        text.len() <= MAX_CURSOR
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
    };
    match given {
        Some(text) if text.is_empty() => Ok(None),
        Some(text) if !plain(&text) => Err(wrong("cursor", say("wrong.cursor"))),
        other => Ok(other),
    }
}

fn wrong(field: &str, message: Sentence) -> HttpError {
    HttpError::invalid(vec![FieldError::new(field, message)])
}

/// Routes and document together: neither can have what the other lacks.
pub fn parts() -> (Router<App>, utoipa::openapi::OpenApi) {
    let (router, document) = OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(me::me))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::show, tokens::delete))
        .routes(routes!(sessions::list, sessions::start))
        .routes(routes!(sessions::show, sessions::stop))
        .routes(routes!(sessions::events))
        .routes(routes!(sessions::logs))
        .routes(routes!(samples::of_session))
        .routes(routes!(samples::of_run))
        .routes(routes!(efficiency::of_session))
        .routes(routes!(efficiency::of_run))
        .routes(routes!(efficiency::report))
        .routes(routes!(runs::list, runs::start))
        .routes(routes!(runs::show, runs::cancel))
        .routes(routes!(runs::requeue))
        .routes(routes!(runs::events))
        .routes(routes!(runs::logs))
        .routes(routes!(events::events))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::show))
        .routes(routes!(alerts::acknowledge))
        .routes(routes!(alerts::silences, alerts::silence))
        .routes(routes!(alerts::unsilence))
        .routes(routes!(alerts::own_silences, alerts::silence_own))
        .routes(routes!(alerts::unsilence_own))
        .routes(routes!(cluster::cluster))
        .routes(routes!(cluster::history))
        .routes(routes!(cluster::nodes))
        .routes(routes!(nodes::drain))
        .routes(routes!(nodes::resume))
        .routes(routes!(nodes::history))
        .routes(routes!(nodes::confinement))
        .routes(routes!(nodes::zabbix))
        .routes(routes!(cluster::adopted))
        .routes(routes!(images::images))
        .routes(routes!(spaces::list, making::create))
        .routes(routes!(spaces::show, making::change, making::retire))
        .routes(routes!(making::restore))
        .routes(routes!(making::policy))
        .routes(routes!(spaces::usage))
        .routes(routes!(spaces::group_limits))
        .routes(routes!(old_files::show, old_files::look, old_files::change))
        .routes(routes!(files::list))
        .routes(routes!(files::entry))
        .routes(routes!(files::content))
        .routes(routes!(files::archive))
        .routes(routes!(files::preview))
        .routes(routes!(files::search))
        .routes(routes!(scans::show, scans::start))
        .routes(routes!(changes::make_directory))
        .routes(routes!(changes::move_files))
        .routes(routes!(changes::copy))
        .routes(routes!(changes::extract))
        .routes(routes!(changes::delete))
        .routes(routes!(permissions::show, permissions::set))
        .routes(routes!(trash::put))
        .routes(routes!(trash::list, trash::empty))
        .routes(routes!(trash::remove))
        .routes(routes!(trash::restore))
        .routes(routes!(operations::list))
        .routes(routes!(operations::show, operations::cancel))
        .routes(routes!(operations::results))
        .routes(routes!(uploads::create, uploads::offer).layer(from_fn(tus::speak)))
        .routes(routes!(uploads::look, uploads::append, uploads::end, uploads::offer_again).layer(from_fn(tus::speak)))
        .routes(routes!(health::show))
        .routes(routes!(storage::show))
        .routes(routes!(storage::quotas))
        .routes(routes!(storage::stats))
        .routes(routes!(storage::set))
        .routes(routes!(storage::defaults, storage::set_defaults))
        .routes(routes!(users::list, users::create))
        .routes(routes!(users::disable))
        .routes(routes!(users::enable))
        .routes(routes!(users::reset_password))
        .routes(routes!(audit::list))
        .routes(routes!(openapi::show))
        .split_for_parts();
    (router, openapi::finish(document))
}

/// The router.
pub fn router() -> Router<App> {
    parts().0
}
