//! Reading what was sent: bounded, and every mistake named by its field.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use eirene_core::Sentence;
use eirene_services::error::{AppError, FieldError};
use eirene_words::{say, say_with};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Deserialize as _;
use serde::de::{self, DeserializeOwned, Deserializer, Unexpected, Visitor};

use super::problem::HttpError;

/// Largest body that is read.
pub const MAX_BODY: usize = 64 * 1024;
/// A body that is too large is read on and thrown away up to here, so that its sender hears why.
const MAX_DRAINED: usize = 4 * 1024 * 1024;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest message about a field.
const MAX_MESSAGE: usize = 200;

/// Reads a body of at most [`MAX_BODY`] bytes.
pub async fn read(body: Body) -> Result<Bytes, HttpError> {
    tokio::time::timeout(PATIENCE, read_bounded(body))
        .await
        .map_err(|_| HttpError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", say("problem.too_slow")))?
}

async fn read_bounded(mut body: Body) -> Result<Bytes, HttpError> {
    let mut collected = BytesMut::new();
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| HttpError::new(StatusCode::BAD_REQUEST, "broken_body", say("problem.broken_body")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > MAX_DRAINED {
            break;
        }
        if seen <= MAX_BODY {
            collected.extend_from_slice(&data);
        }
    }
    if seen > MAX_BODY { Err(AppError::TooLarge.into()) } else { Ok(collected.freeze()) }
}

fn content_type_is(headers: &HeaderMap, wanted: &str) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case(wanted)
}

fn unsupported(wanted: &str) -> HttpError {
    let text = say_with("problem.unsupported_media_type", &[("wanted", wanted)]);
    HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", text)
}

/// A JSON body. Unknown fields are refused where the type says so.
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, HttpError> {
        let is_json = content_type_is(request.headers(), "application/json");
        // The body is read first, so that its sender hears about the size or the type in every case.
        let bytes = read(request.into_body()).await?;
        if !is_json {
            return Err(unsupported("application/json"));
        }
        from_json(&bytes).map(Self)
    }
}

/// Parses JSON; what is wrong is named by its field.
///
/// Every body of ours is an object: a list would otherwise be taken for the fields in their order.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        let json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
        let wrong = || HttpError::invalid(vec![FieldError::new("body", say("wrong.no_object"))]);
        return Err(if json { wrong() } else { malformed() });
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            return HttpError::invalid(vec![field_error(&path, &inner.to_string())]);
        }
        malformed()
    })?;
    deserializer.end().map_err(|_| malformed())?;
    Ok(value)
}

fn malformed() -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, "malformed", say("problem.malformed"))
}

fn field_error(path: &str, message: &str) -> FieldError {
    let message = message.split(" at line ").next().unwrap_or(message);
    let quoted = || message.split('`').nth(1).unwrap_or("").to_owned();
    // What serde says about a value is its own; about fields that are there or not we say it.
    let theirs = || Sentence::from_elsewhere(&message.chars().take(MAX_MESSAGE).collect::<String>());
    let (field, message) = if message.starts_with("unknown field") {
        (quoted(), say("wrong.unknown_field"))
    } else if message.starts_with("missing field") {
        (quoted(), say("wrong.missing_field"))
    } else if message.starts_with("duplicate field") {
        (quoted(), say("wrong.duplicate_field"))
    } else if path == "." {
        ("body".to_owned(), theirs())
    } else {
        (path.to_owned(), theirs())
    };
    FieldError::new(field.chars().take(MAX_MESSAGE).collect::<String>(), message)
}

/// Reads a whole number as JSON Schema has it: `2.0` is one too.
pub fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    struct Whole;

    impl Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number, not negative")
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
            // Beyond this not every whole number has a double of its own.
            let exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
            if exact { Ok(number as u64) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
        }
    }

    let number = deserializer.deserialize_any(Whole)?;
    T::try_from(number).map_err(|_| de::Error::custom(say("wrong.too_large")))
}

/// [`whole`], where the field may be left out.
pub fn some_whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    whole(deserializer).map(Some)
}

/// Reads a text, where the field may be left out and is not null.
pub fn some_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// Reads a query's number or truth value, written the one way the document knows. What reads queries takes `limit=` for a limit left out
/// and `+1` for a number; the published schema has neither.
pub fn some_plain<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = (!text.starts_with('+')).then(|| text.parse().ok()).flatten();
    value.map(Some).ok_or_else(|| de::Error::custom(say("wrong.plain")))
}

/// The query of a URL. Unknown fields are refused where the type says so.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, HttpError> {
        from_urlencoded(parts.uri.query().unwrap_or("").as_bytes()).map(Self)
    }
}

/// Parses what forms and queries look like; repeated names make lists.
pub fn from_urlencoded<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    let deserializer = serde_html_form::Deserializer::from_bytes(bytes);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        HttpError::invalid(vec![field_error(&path, &error.into_inner().to_string())])
    })
}

/// Reads an `application/x-www-form-urlencoded` body as pairs.
pub async fn form_pairs(request: Request) -> Result<Vec<(String, String)>, HttpError> {
    const TYPE: &str = "application/x-www-form-urlencoded";
    let is_form = content_type_is(request.headers(), TYPE);
    let bytes = read(request.into_body()).await?;
    if !is_form {
        return Err(unsupported(TYPE));
    }
    from_urlencoded(&bytes)
}

/// Makes a value of a form's pairs.
pub fn from_pairs<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T, HttpError> {
    let text = serde_html_form::to_string(pairs).map_err(|e| AppError::Internal(e.into()))?;
    from_urlencoded(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(deserialize_with = "whole")]
        cpus: u32,
        #[serde(default)]
        names: Vec<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        cpus: u32,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default, deserialize_with = "some_plain")]
        limit: Option<u32>,
    }

    fn field(error: &HttpError) -> (u16, String) {
        (error.problem().status, error.problem().errors.first().map(|e| e.field.clone()).unwrap_or_default())
    }

    #[test]
    fn every_mistake_names_its_field() {
        for (text, status, name) in [
            (r#"{"cpus": "<script>"}"#, 422, "cpus"),
            (r#"{"cpus": -1}"#, 422, "cpus"),
            (r#"{"cpus": 1e30}"#, 422, "cpus"),
            (r#"{"cpus": 1.5}"#, 422, "cpus"),
            (r#"{"cpus": -0.5}"#, 422, "cpus"),
            (r#"{"cpus": 4294967296}"#, 422, "cpus"),
            (r#"{"cpus": null}"#, 422, "cpus"),
            (r#"{"cpus": 1, "x'; --": 1}"#, 422, "x'; --"),
            (r#"{"cpus": 1, "cpus": 2}"#, 422, "cpus"),
            (r#"{"names": []}"#, 422, "cpus"),
            (r#"{"cpus": 1, "names": ["a", 2]}"#, 422, "names[1]"),
            ("[]", 422, "body"),
            ("[1, []]", 422, "body"),
            ("null", 422, "body"),
            ("{", 400, ""),
            ("", 400, ""),
            (r#"{"cpus": 1} x"#, 400, ""),
            ("\u{0}", 400, ""),
        ] {
            let error = from_json::<Sample>(text.as_bytes()).map(|s| s.cpus).unwrap_err();
            let (got, named) = field(&error);
            assert_eq!(got, status, "{text}");
            assert_eq!(named, name, "{text}");
        }
        let good: Sample = from_json(br#"{"cpus": 2.0, "names": ["a"]}"#).map_err(|e| format!("{e:?}")).unwrap();
        assert_eq!((good.cpus, good.names), (2, vec!["a".to_owned()]));
    }

    #[test]
    fn queries_name_their_fields_too() {
        for (text, name) in [("cpus=x", "cpus"), ("cpus=1&y=2", "y"), ("", "cpus"), ("cpus=1&cpus=2", "cpus")] {
            let error = from_urlencoded::<Asked>(text.as_bytes()).map(|s| s.cpus).unwrap_err();
            assert_eq!(field(&error), (422, name.to_owned()), "{text}");
        }
        for text in ["cpus=1&limit=", "cpus=1&limit", "cpus=1&limit=%2B1", "cpus=1&limit=-1", "cpus=1&limit=1&limit=2"]
        {
            let error = from_urlencoded::<Asked>(text.as_bytes()).map(|s| s.limit).unwrap_err();
            assert_eq!(field(&error), (422, "limit".to_owned()), "{text}");
        }
        let good: Asked = from_urlencoded(b"cpus=3&names=a&names=b").map_err(|e| format!("{e:?}")).unwrap();
        assert_eq!((good.names, good.limit), (vec!["a".to_owned(), "b".to_owned()], None));
        let good: Asked = from_urlencoded(b"cpus=3&limit=7").map_err(|e| format!("{e:?}")).unwrap();
        assert_eq!(good.limit, Some(7));
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        assert_eq!(
            read(Body::from(vec![b'x'; MAX_BODY])).await.map_err(|e| e.problem().status).unwrap().len(),
            MAX_BODY
        );
        let error = read(Body::from(vec![b'x'; MAX_BODY + 1])).await.unwrap_err();
        assert_eq!(error.problem().status, 413);
    }
}
