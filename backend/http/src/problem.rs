//! What goes wrong, as HTTP says it.
//!
//! A handler answers an [`HttpError`]; it becomes a response that carries a [`Problem`] and no body. The outermost
//! middleware gives it one: `application/problem+json` for programs, a page for people. So every error looks alike,
//! whoever made it, and carries the request's id.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use eirene_core::Sentence;
use eirene_services::error::files::{FilesTrouble, Kind};
use eirene_services::error::{AppError, FieldError};
use eirene_words::{say, say_count, say_with};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// An error on its way out of a handler.
#[derive(Debug)]
pub struct HttpError(Box<Problem>);

/// Result of a handler.
pub type HttpResult<T> = Result<T, HttpError>;

/// An error as RFC 9457 has it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// A URI for the kind of problem: `about:blank`, the status says it all.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: &'static str,
    /// The status in words.
    #[schema(example = "Not Found")]
    pub title: &'static str,
    /// The status.
    #[schema(minimum = 400, maximum = 599, example = 404)]
    pub status: u16,
    /// One sentence for people.
    #[schema(example = "there is no such thing, or you may not see it")]
    pub detail: String,
    /// Stable code for programs.
    #[schema(example = "not_found")]
    pub code: &'static str,
    /// Id of the request, to be found in the portal's log.
    #[schema(example = "0190d2a4c3f87b1e8f0e6d2f4b5a6978")]
    pub request_id: String,
    /// What is wrong with the input, by field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldError>,
    /// Seconds for `Retry-After`.
    #[serde(skip)]
    pub retry_after_s: Option<u64>,
    /// The size of a file that has no such range, for `Content-Range`; where an upload goes on, for its offset.
    #[serde(skip)]
    pub bytes: Option<u64>,
    /// Where something is refused because of who asks or from where: why, for the audit log.
    #[serde(skip)]
    #[schema(ignore)]
    pub refused: Option<&'static str>,
    /// What the log is told and the caller is not.
    #[serde(skip)]
    #[schema(ignore)]
    pub cause: Option<Arc<anyhow::Error>>,
}

impl Problem {
    /// A problem of this status.
    pub fn new(status: StatusCode, code: &'static str, detail: Sentence) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            code,
            request_id: String::new(),
            errors: Vec::new(),
            retry_after_s: None,
            bytes: None,
            refused: (status == StatusCode::FORBIDDEN).then_some(code),
            cause: None,
        }
    }

    /// The status as the type HTTP libraries use.
    pub fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The finished answer for a program.
    pub fn into_json(mut self, request_id: &str) -> Response {
        request_id.clone_into(&mut self.request_id);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status_code(), body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        self.add_headers(&mut response);
        response
    }

    /// Adds the headers that belong to the problem, whatever its body looks like.
    pub fn add_headers(&self, response: &mut Response) {
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let (StatusCode::RANGE_NOT_SATISFIABLE, Some(bytes)) = (self.status_code(), self.bytes)
            && let Ok(range) = HeaderValue::try_from(format!("bytes */{bytes}"))
        {
            response.headers_mut().insert(header::CONTENT_RANGE, range);
        }
    }
}

impl HttpError {
    /// An error of this status.
    pub fn new(status: StatusCode, code: &'static str, detail: Sentence) -> Self {
        Self(Box::new(Problem::new(status, code, detail)))
    }

    /// Wrong input, by field.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        AppError::Invalid(errors).into()
    }

    /// The problem inside.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

/// The status of what is wrong with files.
fn files_status(kind: Kind) -> StatusCode {
    match kind {
        Kind::NotThere => StatusCode::NOT_FOUND,
        Kind::MayNot => StatusCode::FORBIDDEN,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Wrong => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::OutOfRange => StatusCode::RANGE_NOT_SATISFIABLE,
        Kind::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Locked => StatusCode::LOCKED,
        Kind::Gone => StatusCode::GONE,
        // The upload protocol's own: "Checksum Mismatch".
        Kind::ChecksumDiffers => StatusCode::from_u16(460).unwrap_or(StatusCode::BAD_REQUEST),
        Kind::BrokenOff => StatusCode::BAD_REQUEST,
        Kind::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Kind::Away => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<AppError> for HttpError {
    fn from(error: AppError) -> Self {
        Self(Box::new(match error {
            AppError::Invalid(errors) => {
                let detail = say_count("problem.invalid", errors.len() as u64, &[]);
                Problem { errors, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail) }
            }
            AppError::Unauthenticated => {
                Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", say("problem.unauthenticated"))
            }
            AppError::Forbidden { code, text } => Problem::new(StatusCode::FORBIDDEN, code, text),
            AppError::NotFound => Problem::new(StatusCode::NOT_FOUND, "not_found", say("problem.not_found")),
            AppError::Hidden => Problem { refused: Some("hidden"), ..Self::from(AppError::NotFound).problem().clone() },
            AppError::Conflict { code, text } => Problem::new(StatusCode::CONFLICT, code, text),
            AppError::TooLarge => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", say("problem.too_large")),
            AppError::RateLimited { retry_after_s } => Problem {
                retry_after_s: Some(retry_after_s),
                ..Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "rate_limited",
                    say_with("problem.rate_limited", &[("seconds", &retry_after_s.to_string())]),
                )
            },
            AppError::Unavailable { what, retry_after_s } => Problem {
                retry_after_s: Some(retry_after_s),
                ..Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    say_with("problem.unavailable", &[("what", what.as_str())]),
                )
            },
            AppError::Files(trouble) => {
                let FilesTrouble { kind, code, text, retry_after_s, bytes } = *trouble;
                Problem { retry_after_s, bytes, ..Problem::new(files_status(kind), code, text) }
            }
            AppError::Internal(cause) => Problem {
                cause: Some(Arc::new(cause)),
                ..Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", say("problem.internal"))
            },
        }))
    }
}

impl From<Problem> for HttpError {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = self.0.status_code().into_response();
        response.extensions_mut().insert(*self.0);
        response
    }
}
