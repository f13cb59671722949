//! The upload protocol tus 1.0.0 as it stands in headers: what a request says, parsed, and what an answer says, written.
//!
//! Offered are the core and the extensions of [`EXTENSIONS`]; uploads put together of others and uploads of unknown length are not, and
//! neither is another verb in `X-HTTP-Method-Override`: what a request may do is decided by the verb it came with. A header that is there
//! twice is none. Owners, offsets and removal of uploads are in `eirene_services::uploads`.

use std::fmt::Write as _;

use axum::extract::{FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::Response;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use eirene_core::Sentence;
use eirene_core::file_work::OnConflict;
use eirene_files_protocol::{Checksum, Digest, Moment, PathError, RelativePath};
use eirene_http::problem::{HttpError, HttpResult, Problem};
use eirene_services::error::{AppError, FieldError};
use eirene_services::files::path::{self, MOST_DEPTH};
use eirene_words::{say, say_count, say_with};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The version.
pub const VERSION: &str = "1.0.0";
/// What is offered beyond the core.
pub const EXTENSIONS: &str = "creation,creation-with-upload,expiration,checksum,termination";
/// Sums of a chunk that are compared.
pub const ALGORITHMS: &str = "crc32,sha256,sha1";
/// What bytes of an upload are sent as.
pub const CHUNK_TYPE: &str = "application/offset+octet-stream";
/// Which version is spoken.
pub const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
/// Which versions could be.
pub const VERSIONS: HeaderName = HeaderName::from_static("tus-version");
/// Where an upload goes on.
pub const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// Where the file lies once it is whole: below its space, bytes that no URL has written as `%XX`.
pub const FINAL_PATH: HeaderName = HeaderName::from_static("eirene-path");
/// Sums that did not come right: the protocol's own status.
pub const CHECKSUM_MISMATCH: u16 = 460;

const EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
const CHECKSUM_ALGORITHM: HeaderName = HeaderName::from_static("tus-checksum-algorithm");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
const CONCAT: HeaderName = HeaderName::from_static("upload-concat");
const METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
/// What programs of others say of a file, and nobody here needs.
const IGNORED: [&str; 2] = ["filename", "filetype"];
/// What an upload may be told.
const KEYS: &str = "path, sha256, modified, on_conflict, parents";

/// The request speaks the version of ours. To be asked for after who asks it, and before what they want.
#[derive(Debug, Clone, Copy)]
pub struct Speaks;

impl<S: Sync> FromRequestParts<S> for Speaks {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> HttpResult<Self> {
        if only(&parts.headers, &RESUMABLE)?.is_some_and(|value| value.as_bytes() == VERSION.as_bytes()) {
            return Ok(Self);
        }
        let text = say_with("problem.upload_version", &[("version", VERSION)]);
        Err(HttpError::new(StatusCode::PRECONDITION_FAILED, "upload_version", text))
    }
}

/// Says the version with every answer, an error as well, and which there are with one that another version got.
pub async fn speak(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let other = response.status() == StatusCode::PRECONDITION_FAILED;
    let headers = response.headers_mut();
    headers.insert(RESUMABLE, HeaderValue::from_static(VERSION));
    if other {
        headers.insert(VERSIONS, HeaderValue::from_static(VERSION));
    }
    response
}

/// Says what is offered; `most` is the size of the largest upload, bytes.
pub fn offer(headers: &mut HeaderMap, most: u64) {
    headers.insert(VERSIONS, HeaderValue::from_static(VERSION));
    headers.insert(EXTENSION, HeaderValue::from_static(EXTENSIONS));
    headers.insert(CHECKSUM_ALGORITHM, HeaderValue::from_static(ALGORITHMS));
    headers.insert(MAX_SIZE, HeaderValue::from(most));
}

/// A wish for a new upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// Its size.
    pub length: u64,
    /// What it is.
    pub metadata: Metadata,
    /// The first bytes, where they come with the wish.
    pub first: Option<Chunk>,
}

/// What an upload is told about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Where it is to lie; never the space itself.
    pub path: RelativePath,
    /// SHA-256 of the whole.
    pub sha256: Option<Digest<32>>,
    /// When its content was changed last.
    pub modified: Option<Moment>,
    /// Where its name is taken.
    pub on_conflict: OnConflict,
    /// Whether directories on the way are made.
    pub parents: bool,
}

/// Bytes of an upload that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Where they begin.
    pub offset: u64,
    /// How many, where that is said.
    pub bytes: Option<u64>,
    /// What they have to add up to.
    pub checksum: Option<Checksum>,
}

/// How an upload stands.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Where it goes on.
    pub offset: u64,
    /// When it is removed; none once it is whole.
    pub expires: Option<Timestamp>,
    /// Where the file lies, once it is whole.
    pub path: Option<&'a RelativePath>,
}

impl Creation {
    /// What the headers ask for; `most` is the size of the largest upload, bytes.
    ///
    /// # Errors
    /// 400 for a header that is not as the protocol has it, 413 for too large a file, 415 for a body that is no chunk, 422 for what the file
    /// is said to be.
    pub fn parse(headers: &HeaderMap, most: u64) -> HttpResult<Self> {
        for unknown in [CONCAT, DEFER_LENGTH] {
            if headers.contains_key(&unknown) {
                return Err(bad(&unknown, say("wrong.not_offered")));
            }
        }
        let length = number(headers, &LENGTH)?.ok_or_else(|| bad(&LENGTH, say("wrong.missing_header")))?;
        if length > most {
            return Err(AppError::TooLarge.into());
        }
        let bytes = number(headers, &header::CONTENT_LENGTH)?;
        let first = match only(headers, &header::CONTENT_TYPE)? {
            Some(kind) if is_chunk(kind) => {
                Some(Chunk { offset: 0, bytes, checksum: checksum(headers)? }.within(length)?)
            }
            _ if bytes.unwrap_or(0) > 0 || headers.contains_key(header::TRANSFER_ENCODING) => return Err(no_chunk()),
            _ => None,
        };
        let metadata = only(headers, &METADATA)?.ok_or_else(|| bad(&METADATA, say("wrong.missing_header")))?;
        Ok(Self { length, metadata: Metadata::parse(metadata.as_bytes())?, first })
    }
}

impl Chunk {
    /// What the headers of a `PATCH` announce.
    ///
    /// # Errors
    /// 415 for another kind of body, 400 for a header that is not as the protocol has it.
    pub fn parse(headers: &HeaderMap) -> HttpResult<Self> {
        if !only(headers, &header::CONTENT_TYPE)?.is_some_and(is_chunk) {
            return Err(no_chunk());
        }
        let offset = number(headers, &OFFSET)?.ok_or_else(|| bad(&OFFSET, say("wrong.missing_header")))?;
        Ok(Self { offset, bytes: number(headers, &header::CONTENT_LENGTH)?, checksum: checksum(headers)? })
    }

    /// The chunk, if an upload of this length has room for it.
    fn within(self, length: u64) -> HttpResult<Self> {
        if self.bytes.unwrap_or(0) > length { Err(AppError::TooLarge.into()) } else { Ok(self) }
    }
}

impl Metadata {
    /// Parses `Upload-Metadata`: keys and base64 values. A key that nobody knows is refused, so that one that is spelled wrong does not go
    /// unnoticed.
    ///
    /// # Errors
    /// 400 where that is not its form, 422 where a value makes no sense, with the key as the field.
    pub fn parse(text: &[u8]) -> HttpResult<Self> {
        let malformed = || bad(&METADATA, say("wrong.upload_metadata"));
        let text = std::str::from_utf8(text).map_err(|_| malformed())?;
        let mut seen: Vec<&str> = Vec::new();
        let (mut path, mut sha256, mut modified) = (None, None, None);
        let (mut on_conflict, mut parents) = (OnConflict::Refuse, false);
        for pair in text.split(',').map(str::trim) {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            let named = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            if !named || seen.contains(&key) {
                return Err(malformed());
            }
            seen.push(key);
            let value = BASE64.decode(value.as_bytes()).map_err(|_| malformed())?;
            let word = std::str::from_utf8(&value).ok();
            match key {
                "path" => path = Some(parse_path(&value)?),
                "sha256" => sha256 = Some(parse_sha256(&value)?),
                "modified" => modified = Some(parse_time(word)?),
                "on_conflict" => on_conflict = one_of(key, word, "refuse, keep_both, replace")?,
                "parents" => parents = one_of(key, word, "true, false")?,
                ignored if IGNORED.contains(&ignored) => {}
                _ => {
                    let unknown = say_with("wrong.one_of", &[("words", KEYS)]);
                    return Err(HttpError::invalid(vec![FieldError::new("upload-metadata", unknown)]));
                }
            }
        }
        let path = path.ok_or_else(|| wrong("path", say("wrong.missing_field")))?;
        Ok(Self { path, sha256, modified, on_conflict, parents })
    }

    /// The metadata as it is told to whoever asks about the upload: where the file is to lie, under which conditions.
    pub fn written(path: &RelativePath, sha256: Option<&str>, on_conflict: OnConflict) -> HeaderValue {
        let mut text = format!("path {}", BASE64.encode(path.as_bytes()));
        for (key, value) in [("sha256", sha256), ("on_conflict", Some(on_conflict.as_str()))] {
            if let Some(value) = value {
                // A string takes all that is written to it.
                let _ = write!(text, ",{key} {}", BASE64.encode(value.as_bytes()));
            }
        }
        // Base64 and words of ours have no other characters.
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

impl Standing<'_> {
    /// Says it.
    pub fn put(&self, headers: &mut HeaderMap) {
        headers.insert(OFFSET, HeaderValue::from(self.offset));
        if let Some(Ok(expires)) = self.expires.map(|at| http_date(at).parse()) {
            headers.insert(EXPIRES, expires);
        }
        if let Some(Ok(path)) = self.path.map(|path| plain(path.as_bytes()).parse()) {
            headers.insert(FINAL_PATH, path);
        }
    }
}

/// Says an upload's length and what it is told about the file.
pub fn describe(headers: &mut HeaderMap, length: Option<u64>, metadata: HeaderValue) {
    if let Some(length) = length {
        headers.insert(LENGTH, HeaderValue::from(length));
    }
    headers.insert(METADATA, metadata);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The one header of this name.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> HttpResult<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(bad(name, say("wrong.header_twice"))),
    }
}

/// A whole number: digits and nothing else, and not more than a database holds.
fn number(headers: &HeaderMap, name: &HeaderName) -> HttpResult<Option<u64>> {
    let Some(value) = only(headers, name)? else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse().ok()).filter(|number| i64::try_from(*number).is_ok());
    number.map(Some).ok_or_else(|| bad(name, say("wrong.no_whole_number")))
}

fn checksum(headers: &HeaderMap) -> HttpResult<Option<Checksum>> {
    let Some(value) = only(headers, &CHECKSUM)? else { return Ok(None) };
    let parsed = || -> Option<Checksum> {
        let (algorithm, sum) = value.to_str().ok()?.split_once(' ')?;
        let sum = BASE64.decode(sum.as_bytes()).ok()?;
        match algorithm {
            "crc32" => Some(Checksum::Crc32(Digest(sum.try_into().ok()?))),
            "sha256" => Some(Checksum::Sha256(Digest(sum.try_into().ok()?))),
            "sha1" => Some(Checksum::Sha1(Digest(sum.try_into().ok()?))),
            _ => None,
        }
    };
    let wrong = || bad(&CHECKSUM, say_with("wrong.upload_checksum", &[("algorithms", ALGORITHMS)]));
    parsed().map(Some).ok_or_else(wrong)
}

fn is_chunk(kind: &HeaderValue) -> bool {
    let essence = kind.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case(CHUNK_TYPE)
}

fn no_chunk() -> HttpError {
    let text = say_with("problem.unsupported_media_type", &[("wanted", CHUNK_TYPE)]);
    HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", text)
}

/// A header that is not as the protocol has it.
fn bad(name: &HeaderName, message: Sentence) -> HttpError {
    let errors = vec![FieldError::new(name.as_str(), message)];
    let problem = Problem::new(StatusCode::BAD_REQUEST, "bad_header", say_count("problem.invalid", 1, &[]));
    Problem { errors, ..problem }.into()
}

fn wrong(field: &str, message: Sentence) -> HttpError {
    HttpError::invalid(vec![FieldError::new(field, message)])
}

fn parse_path(bytes: &[u8]) -> HttpResult<RelativePath> {
    let text = match RelativePath::parse(bytes) {
        Ok(path) if path.is_space() => say("wrong.space_itself"),
        Ok(path) if path.components().count() <= MOST_DEPTH => return Ok(path),
        Ok(_) | Err(PathError::TooLong) => {
            let (bytes, names) = (path::MOST_BYTES.to_string(), MOST_DEPTH.to_string());
            say_with("wrong.space_path_long", &[("bytes", &bytes), ("names", &names)])
        }
        Err(_) => say("wrong.space_path"),
    };
    Err(wrong("path", text))
}

fn parse_sha256(bytes: &[u8]) -> HttpResult<Digest<32>> {
    let digest = HEXLOWER_PERMISSIVE.decode(bytes).ok().and_then(|digest| digest.try_into().ok());
    digest.map(Digest).ok_or_else(|| wrong("sha256", say("wrong.sha256")))
}

fn parse_time(text: Option<&str>) -> HttpResult<Moment> {
    let time: Option<Timestamp> = text.and_then(|text| text.parse().ok());
    let time = time.ok_or_else(|| wrong("modified", say("wrong.time")))?;
    // Before 1970 the fraction is counted from the second before.
    let nanoseconds = time.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).unwrap_or(0);
    let nanoseconds = u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap_or(0);
    Ok(Moment { seconds, nanoseconds })
}

fn one_of<T: std::str::FromStr>(field: &str, word: Option<&str>, words: &str) -> HttpResult<T> {
    let parsed = word.and_then(|word| word.parse().ok());
    parsed.ok_or_else(|| wrong(field, say_with("wrong.one_of", &[("words", words)])))
}

/// A time as HTTP has it.
fn http_date(time: Timestamp) -> String {
    let printer = DateTimePrinter::new();
    // What has no such form is long past any upload's end.
    printer.timestamp_to_rfc9110_string(&time).unwrap_or_default()
}

/// Bytes in characters that a header and a URL take; `/` stays one.
fn plain(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push_str(&HEXLOWER.encode(&[*byte]).to_ascii_uppercase());
        }
    }
    text
}

#[cfg(test)]
mod tests;
