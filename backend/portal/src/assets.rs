//! Static files of the portal, embedded in the binary and served under a path that carries a hash of them all.
//!
//! The path changes whenever a file changes, so browsers may keep what they have for ever; a module that imports its neighbour by a
//! relative path gets the neighbour of its own version.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;
use sha2::{Digest as _, Sha256};

#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../frontend/static"]
struct Files;

/// Kept for a year by browsers and proxies alike: the path names the content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Asked for again each time: the path named no content, or an older one.
const EACH_TIME: HeaderValue = HeaderValue::from_static("no-cache");

/// The version of all static files together: 16 hexadecimal digits.
#[derive(Debug, Clone)]
pub(crate) struct Assets {
    version: String,
}

impl Assets {
    /// Computes the version of the embedded files.
    pub(crate) fn load() -> Self {
        let mut names: Vec<_> = Files::iter().collect();
        names.sort();
        let mut hash = Sha256::new();
        for name in names {
            if let Some(file) = Files::get(&name) {
                hash.update(name.as_bytes());
                hash.update(file.metadata.sha256_hash());
            }
        }
        let mut version = String::with_capacity(16);
        for byte in &hash.finalize()[..8] {
            let _ = write!(version, "{byte:02x}");
        }
        Self { version }
    }

    /// Where a static file is served.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("/static/{}/{name}", self.version)
    }

    /// Every file with its address and content, for previews.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        Files::iter().filter_map(|name| Some((self.url(&name), Files::get(&name)?.data.into_owned())))
    }

    /// Whether there is such a file.
    pub(crate) fn contains(name: &str) -> bool {
        Files::get(name).is_some()
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// `GET /static/{version}/{*name}`: a file; an older version's path answers with today's file, not to be kept.
pub(crate) async fn file(Path((version, name)): Path<(String, String)>, assets: axum::Extension<Assets>) -> Response {
    let Some(file) = Files::get(&name) else { return StatusCode::NOT_FOUND.into_response() };
    let keep = if version == assets.version { FOR_EVER } else { EACH_TIME };
    let kind = HeaderValue::from_static(content_type(&name));
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, keep)], file.data).into_response()
}

/// `GET /favicon.ico`: browsers ask for it whatever the page says.
pub(crate) async fn favicon() -> Response {
    let Some(file) = Files::get("favicon.svg") else { return StatusCode::NOT_FOUND.into_response() };
    let kind = HeaderValue::from_static("image/svg+xml");
    (
        [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"))],
        file.data,
    )
        .into_response()
}
