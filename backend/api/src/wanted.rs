//! What requests about sessions and requests about runs have in common.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use data_encoding::HEXLOWER;
use eirene_core::NameError;
use eirene_http::body::some_plain;
use eirene_http::problem::HttpResult;
use eirene_services::error::{AppError, FieldError};
use eirene_services::sessions::{IdempotencyKey, ListSessions, defaults};
use eirene_words::say_with;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::IntoParams;

use super::{cursor, limit, wrong};

/// Longest `Idempotency-Key`.
const MAX_KEY: usize = 255;

pub(super) fn app() -> String {
    defaults::APP.to_owned()
}

pub(super) fn image() -> String {
    defaults::IMAGE.to_owned()
}

pub(super) fn nodes() -> u32 {
    defaults::NODES
}

pub(super) fn cpus() -> u32 {
    defaults::CPUS
}

pub(super) fn memory_mib() -> u64 {
    defaults::MEMORY_MIB
}

pub(super) fn walltime_min() -> u32 {
    defaults::WALLTIME_MIN
}

/// Parses one name and notes its field when it is wrong.
pub(super) fn name<T: std::str::FromStr<Err = NameError>>(
    errors: &mut Vec<FieldError>,
    field: &str,
    text: &str,
) -> Option<T> {
    text.parse().map_err(|error: NameError| errors.push(FieldError::no_name(field, error))).ok()
}

/// The request's `Idempotency-Key`, with what it is the key of.
pub(super) fn key(headers: &HeaderMap, asked: &impl Serialize) -> HttpResult<Option<IdempotencyKey>> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_visible = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
    let good = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= MAX_KEY).filter(is_visible);
    let (Some(key), None) = (good, values.next()) else {
        return Err(wrong("Idempotency-Key", say_with("wrong.idempotency_key", &[("n", &MAX_KEY.to_string())])));
    };
    let body = serde_json::to_vec(asked).map_err(|e| AppError::Internal(e.into()))?;
    Ok(Some(IdempotencyKey { key: key.to_owned(), body_sha256: HEXLOWER.encode(&Sha256::digest(&body)) }))
}

/// 201, with where it is.
pub(super) fn created(path: &str, view: impl Serialize) -> Response {
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Which sessions or runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Everybody's, for admins.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    all: Option<bool>,
    /// Only those that are not over.
    #[param(nullable = false, default = false)]
    #[serde(default, deserialize_with = "some_plain")]
    live: Option<bool>,
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 200, default = 50, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
}

impl Which {
    pub(super) fn query(self) -> HttpResult<ListSessions> {
        Ok(ListSessions {
            all: self.all.unwrap_or(false),
            live_only: self.live.unwrap_or(false),
            cursor: cursor(self.cursor)?,
            limit: limit(self.limit)?,
        })
    }
}

/// Where a stream of events begins.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// The last event you have; the header `Last-Event-ID` goes before it.
    #[param(minimum = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    pub(super) last_id: Option<i64>,
}
