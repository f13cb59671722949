//! Making spaces, changing them, taking them away and bringing them back; for admins. What is wished for is done within seconds, and the answer
//! is the space as it is by then.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::space::StripeHint;
use eirene_core::storage::{Bytes, Files, Limit};
use eirene_core::{NameError, Space, SpaceName, SpaceTitle};
use eirene_http::body::{self, some_plain};
use eirene_http::extract::{AdminCaller, Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::app::App;
use eirene_services::error::FieldError;
use eirene_services::spaces::making::{ChangeSpace, End, NewLimits, NewSpace, Title};
use eirene_words::say;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::users::Nothing;
use super::wrong;
use crate::view::{PolicyView, SpaceView};

/// A space to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSpace)]
pub(crate) struct Wish {
    /// The root it is to lie in.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$", example = "project")]
    root: String,
    /// Its name; left out where everybody has one in the root.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,63}$", example = "stars")]
    name: Option<String>,
    /// What people read; null or empty is its name, or its root's title where everybody has one there.
    #[schema(max_length = 80)]
    title: Option<String>,
    /// The person it is for.
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{0,31}$")]
    owner: Option<String>,
    /// The POSIX group it is for. Without owner and group it is everybody's, to read.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    group: Option<String>,
    /// What it is mostly filled with.
    hint: Option<StripeHint>,
    /// When it expires.
    #[schema(value_type = Option<String>, format = DateTime, required = false)]
    expires_at: Option<Timestamp>,
    /// How many bytes it may hold; no limit where it is left out.
    #[schema(minimum = 1_048_576, maximum = 1_152_921_504_606_846_976_u64)]
    limit_bytes: Option<u64>,
    /// How many files and directories it may hold.
    #[schema(minimum = 1, maximum = 1_152_921_504_606_846_976_u64)]
    limit_files: Option<u64>,
}

/// What is to be changed of a space; what is left out stays.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeSpace)]
pub(crate) struct Change {
    /// What people read; null or empty is its name, or its root's title where everybody has one there.
    #[schema(value_type = Option<String>, max_length = 80, required = false)]
    #[serde(default, deserialize_with = "said")]
    title: Option<Said>,
    /// What it is mostly filled with; holds for files that are made afterwards.
    hint: Option<StripeHint>,
    /// When it expires; null is never.
    #[schema(value_type = Option<String>, format = DateTime, required = false)]
    #[serde(default, deserialize_with = "given")]
    expires_at: Option<End>,
    /// How many bytes it may hold; null is no limit. A space that holds more already takes nothing new.
    #[schema(value_type = Option<u64>, minimum = 1_048_576, maximum = 1_152_921_504_606_846_976_u64, required = false)]
    #[serde(default, deserialize_with = "given_limit")]
    limit_bytes: Option<Limit<u64>>,
    /// How many files and directories it may hold; null is no limit.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_152_921_504_606_846_976_u64, required = false)]
    #[serde(default, deserialize_with = "given_limit")]
    limit_files: Option<Limit<u64>>,
}

/// A text that is there; none where it is null.
#[derive(Debug)]
struct Said(Option<String>);

/// What is there, also where it is null.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Said>, D::Error> {
    Ok(Some(Said(Option::deserialize(deserializer)?)))
}

/// What is there, also where it is null: nothing else tells "never" from "as it is".
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<End>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.map_or(End::Never, End::At)))
}

/// As [`given`]: null is no limit.
fn given_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Limit<u64>>, D::Error> {
    Ok(Some(Option::deserialize(deserializer)?.map_or(Limit::Unlimited, Limit::At)))
}

fn limits(bytes: Option<Limit<u64>>, files: Option<Limit<u64>>) -> NewLimits {
    NewLimits { bytes: bytes.map(|limit| limit.map(Bytes)), files: files.map(|limit| limit.map(Files)) }
}

/// Whether it is only said.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Trial {
    /// Must be `true`: policies are carried out by the portal itself, and only looked at here.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    dry_run: Option<bool>,
}

fn named<T: std::str::FromStr<Err = NameError>>(field: &'static str, text: &str) -> HttpResult<T> {
    text.parse().map_err(|error| HttpError::invalid(vec![FieldError::no_name(field, error)]))
}

fn some_named<T: std::str::FromStr<Err = NameError>>(field: &'static str, text: Option<&str>) -> HttpResult<Option<T>> {
    text.map(|text| named(field, text)).transpose()
}

/// A title; none where it is empty.
fn title(text: Option<&str>) -> HttpResult<Option<SpaceTitle>> {
    some_named("title", text.filter(|text| !text.trim().is_empty()))
}

async fn shown(app: &App, caller: &Caller, space: &Space, status: StatusCode) -> HttpResult<Response> {
    let seen = app.spaces.get(&caller.actor, &space.name).await?;
    Ok((status, Json(SpaceView::from(seen))).into_response())
}

/// Have a space made: a person's, a group's, or everybody's to read, as its root is for.
#[utoipa::path(
    post, path = "/api/v1/spaces", tag = "spaces", request_body = Wish, responses((status = 201, body = SpaceView))
)]
pub(crate) async fn create(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    body::Json(wish): body::Json<Wish>,
) -> HttpResult<Response> {
    let new = NewSpace {
        root: named("root", &wish.root)?,
        name: some_named("name", wish.name.as_deref())?,
        title: title(wish.title.as_deref())?,
        owner: some_named("owner", wish.owner.as_deref())?,
        group: some_named("group", wish.group.as_deref())?,
        hint: wish.hint,
        expires_at: wish.expires_at,
        limits: limits(wish.limit_bytes.map(Limit::At), wish.limit_files.map(Limit::At)),
    };
    let space = app.making.create(&caller.actor, new).await?;
    shown(&app, &caller, &space, StatusCode::CREATED).await
}

/// Change a space's title, what it is filled with, its end, or how much it may hold.
#[utoipa::path(
    patch, path = "/api/v1/spaces/{space}", tag = "spaces", request_body = Change,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 200, body = SpaceView))
)]
pub(crate) async fn change(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(space): Id<SpaceName>,
    body::Json(change): body::Json<Change>,
) -> HttpResult<Response> {
    let titled = |Said(text): Said| Ok::<_, HttpError>(title(text.as_deref())?.map_or(Title::Usual, Title::Is));
    let change = ChangeSpace {
        title: change.title.map(titled).transpose()?,
        hint: change.hint,
        expires_at: change.expires_at,
        limits: limits(change.limit_bytes, change.limit_files),
    };
    let space = app.making.change(&caller.actor, &space, &change).await?;
    shown(&app, &caller, &space, StatusCode::OK).await
}

/// Take a space away: within seconds nobody reaches it. It is kept, and can be brought back.
#[utoipa::path(
    delete, path = "/api/v1/spaces/{space}", tag = "spaces",
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = SpaceView))
)]
pub(crate) async fn retire(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(space): Id<SpaceName>,
) -> HttpResult<Response> {
    let space = app.making.retire(&caller.actor, &space).await?;
    shown(&app, &caller, &space, StatusCode::ACCEPTED).await
}

/// Bring a space back that was taken away.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/restore", tag = "spaces", request_body = Nothing,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = SpaceView))
)]
pub(crate) async fn restore(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(space): Id<SpaceName>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<Response> {
    let space = app.making.restore(&caller.actor, &space).await?;
    shown(&app, &caller, &space, StatusCode::ACCEPTED).await
}

/// What the policy of its root would do to a space now, and what it did. Nothing is done.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/policy", tag = "spaces", request_body = Nothing,
    params(("space" = String, Path, description = "Name of the space", example = "home"), Trial),
    responses((status = 200, body = PolicyView))
)]
pub(crate) async fn policy(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Id(space): Id<SpaceName>,
    body::Query(trial): body::Query<Trial>,
    body::Json(Nothing {}): body::Json<Nothing>,
) -> HttpResult<Json<PolicyView>> {
    if trial.dry_run != Some(true) {
        return Err(wrong("dry_run", say("wrong.not_dry")));
    }
    Ok(Json(PolicyView::from(app.policing.report(&caller.actor, &space).await?)))
}
