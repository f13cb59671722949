//! What is in a space: directories, entries, bytes. All of it is read by the person's own process; a space that is not theirs is not found,
//! whatever the path.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::SpaceName;
use eirene_files_protocol::{ArchiveFormat, Cursor, EntryKind, Name, Sort, Version};
use eirene_http::body::{self, some_plain};
use eirene_http::content;
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_services::access::Grant;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::error::files::FilesTrouble;
use eirene_services::files::long::SearchWish;
use eirene_services::files::outflow::{BrokenOff, Outflow};
use eirene_services::files::path::AskedPath;
use eirene_services::files::reading::{Content, ListWish, Reading};
use eirene_words::{say, say_with};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::operations::accepted;
use super::{cursor, wrong};
use crate::range::{self, Decision, Span};
use crate::view::{DetailsView, ListingView, OperationView, PreviewView};

/// Entries of a page when nothing is said.
const DEFAULT_LIMIT: u32 = 200;
/// Most entries of a page.
const MAX_LIMIT: u32 = 1000;
/// Longest filter, bytes.
const MAX_FILTER: usize = 255;
/// Largest size that is searched by, in bytes: an exbibyte, above what a file can have on any file system that is served.
const MOST_BYTES: u64 = 1 << 60;

/// By what a directory is sorted.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// Name.
    #[default]
    Name,
    /// Size.
    Size,
    /// Time of the last change.
    Modified,
}

/// In which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Smallest first.
    #[default]
    Asc,
    /// Largest first.
    Desc,
}

/// How an archive is written.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// POSIX tar.
    #[default]
    Tar,
    /// Zip, not compressed. It has no links: they are left out, and named with everything else that is in its `SKIPPED.txt`.
    Zip,
}

impl From<Format> for ArchiveFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Tar => Self::Tar,
            Format::Zip => Self::Zip,
        }
    }
}

/// Which page of which directory.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// The directory's path below the space; the space itself when nothing is said.
    #[param(max_length = 4095, nullable = false)]
    path: Option<String>,
    /// The same as base64url of its bytes, in place of `path`.
    #[param(nullable = false)]
    raw_path: Option<String>,
    /// Where to go on: the last answer's `next`.
    #[param(max_length = 64, pattern = "^[a-z0-9_.-]*$", nullable = false)]
    cursor: Option<String>,
    /// Most items.
    #[param(minimum = 1, maximum = 1000, default = 200, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    limit: Option<u32>,
    /// By what.
    #[param(inline, default = "name")]
    #[serde(default)]
    sort: By,
    /// In which order.
    #[param(inline, default = "asc")]
    #[serde(default)]
    order: Order,
    /// Whether names that begin with a dot are listed.
    #[param(default = false, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    hidden: Option<bool>,
    /// Only names with this in them, whatever the case.
    #[param(max_length = 255, nullable = false)]
    filter: Option<String>,
}

/// Which path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct At {
    /// The path below the space.
    #[param(max_length = 4095, nullable = false)]
    path: Option<String>,
    /// The same as base64url of its bytes, in place of `path`.
    #[param(nullable = false)]
    raw_path: Option<String>,
}

/// Which path, and what is to be worked out of it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Closely {
    /// The path below the space.
    #[param(max_length = 4095, nullable = false)]
    path: Option<String>,
    /// The same as base64url of its bytes, in place of `path`.
    #[param(nullable = false)]
    raw_path: Option<String>,
    /// Whether the bytes are to be summed up, and how.
    #[param(inline, nullable = false)]
    checksum: Option<Sum>,
}

/// A checksum.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sum {
    /// SHA-256.
    Sha256,
}

/// What to pack, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Pack {
    /// The path below the space, or several; the space itself when nothing is said.
    #[serde(default)]
    #[param(max_items = 500, required = false)]
    path: Vec<String>,
    /// The same as base64url of their bytes, in place of `path` or beside it.
    #[serde(default)]
    #[param(max_items = 500, required = false)]
    raw_path: Vec<String>,
    /// How.
    #[param(inline, default = "tar")]
    #[serde(default)]
    format: Format,
}

impl Pack {
    fn paths(self) -> (Vec<AskedPath>, ArchiveFormat) {
        let (one, format) = (self.path.len() + self.raw_path.len() <= 1, self.format.into());
        let field = |number: usize| if one { "path".to_owned() } else { format!("path[{number}]") };
        let text = self.path.into_iter().enumerate();
        let text = text.map(|(number, path)| AskedPath::new(field(number), Some(path), None));
        let raw = self.raw_path.into_iter().enumerate();
        let raw = raw.map(|(number, path)| AskedPath::new(field(number), None, Some(path)));
        (text.chain(raw).collect(), format)
    }
}

/// What to look at.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Sheet {
    /// The path below the space.
    #[param(max_length = 4095, nullable = false)]
    path: Option<String>,
    /// The same as base64url of its bytes, in place of `path`.
    #[param(nullable = false)]
    raw_path: Option<String>,
    /// Which page of a text; anything else has only the first, 0.
    #[param(minimum = 0, default = 0, nullable = false)]
    #[serde(default, deserialize_with = "some_plain")]
    page: Option<u32>,
}

impl At {
    pub(super) fn asked(self) -> AskedPath {
        AskedPath::new("path", self.path, self.raw_path)
    }
}

/// A page of a directory. Names are as they lie there, byte for byte: two that look alike are two.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Page),
    responses((status = 200, body = ListingView))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(page): body::Query<Page>,
) -> HttpResult<Json<ListingView>> {
    let limit = page.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(wrong("limit", say_with("wrong.between", &[("least", "1"), ("most", &MAX_LIMIT.to_string())])));
    }
    if page.filter.as_ref().is_some_and(|filter| filter.len() > MAX_FILTER || filter.contains('\0')) {
        return Err(wrong("filter", say_with("wrong.too_long", &[("n", &MAX_FILTER.to_string())])));
    }
    let after: Option<Cursor> = match cursor(page.cursor)? {
        Some(text) => Some(text.parse().map_err(|_| wrong("cursor", say("wrong.cursor")))?),
        None => None,
    };
    let wish = ListWish {
        path: AskedPath::new("path", page.path, page.raw_path),
        sort: match page.sort {
            By::Name => Sort::Name,
            By::Size => Sort::Bytes,
            By::Modified => Sort::Modified,
        },
        descending: page.order == Order::Desc,
        hidden: page.hidden == Some(true),
        filter: page.filter.filter(|filter| !filter.is_empty()),
        after,
        limit,
    };
    Ok(Json(ListingView::from(app.files.list(&caller.actor, &space, wish).await?)))
}

/// One entry; of a link, the link itself and where it leads; of a directory, what the storage knows of it and how its new files are spread, where it tells that soon.
/// With `checksum=sha256` also the SHA-256 of all its bytes (of a link, those of what it leads to). Where that takes long, the answer begins
/// with spaces as a sign of life, and one that breaks off after them says that nothing came of it.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files/entry", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Closely),
    responses((status = 200, body = DetailsView))
)]
pub(crate) async fn entry(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(wanted): body::Query<Closely>,
) -> HttpResult<Response> {
    let Closely { path, raw_path, checksum } = wanted;
    let path = AskedPath::new("path", path, raw_path);
    let Some(Sum::Sha256) = checksum else {
        let looked = app.files.look(&caller.actor, &space, &path).await?;
        let known = match looked.stated.kind {
            EntryKind::Directory => app.stripes.of(&looked.space, looked.path.as_bytes()).await,
            _ => None,
        };
        return Ok(Json(DetailsView::new(looked, known.as_ref())).into_response());
    };
    let summing = app.files.sum_up(&caller.actor, &space, &path).await?;
    let grant = app.access.admit(caller.ticket).await?.ok_or(AppError::Unauthenticated)?;
    let (files, actor) = (app.files.clone(), caller.actor);
    let summed = async move {
        let (version, sum) = summing.finished().await?;
        let looked = files.look(&actor, &space, &path).await?;
        if looked.stated.kind == EntryKind::File && looked.stated.version != version {
            return Err(FilesTrouble::changed_meanwhile().into());
        }
        Ok(DetailsView::new(looked, None).with_sum(sum))
    };
    super::slowly::answer(Box::pin(summed), grant.revoked.clone(), app.shutdown.clone()).await
}

/// The bytes of a file, or with `Range` a part of them. Always to be saved: never a document of this origin.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files/content", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), At),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 304, description = "The client has it")
    )
)]
pub(crate) async fn content(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    method: Method,
    headers: HeaderMap,
    body::Query(at): body::Query<At>,
) -> HttpResult<Response> {
    let content = app.files.content(&caller.actor, &space, &at.asked()).await?;
    let name = content.name();
    let name = name.as_ref().map_or(&b""[..], Name::as_bytes);
    if method == Method::HEAD {
        let version = content.version().await?;
        // What a part would be is not asked with HEAD (RFC 9110, section 14.2).
        let decision = range::decide(&headers, &range::etag(&version), version.bytes, false);
        let mut response = match decision {
            Decision::NotModified => StatusCode::NOT_MODIFIED.into_response(),
            Decision::Failed => return Err(precondition_failed()),
            Decision::Whole | Decision::Part(_) | Decision::OutOfRange => {
                let mut response = Response::new(Body::empty());
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(version.bytes));
                response
            }
        };
        describe(&mut response, &version, name);
        return Ok(response);
    }
    let (span, version) = match wanted(&content, &headers).await? {
        Ok(span) => span,
        Err(not_modified) => {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            describe(&mut response, &not_modified, name);
            return Ok(response);
        }
    };
    let (from, to) = span.map_or((0, None), |span| (span.from, Some(span.to)));
    let Reading { begins, first, rest } = content.read(from, to).await?;
    if version.is_some_and(|version| version != begins.version) {
        return Err(AppError::from(FilesTrouble::changed_meanwhile()).into());
    }
    let grant = app.access.admit(caller.ticket).await?.ok_or(AppError::Unauthenticated)?;
    let mut response = Response::new(flow(&app, grant, first, rest));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(begins.to - begins.from));
    if let Some(Span { from, to }) = span {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let part = format!("bytes {from}-{}/{}", to.saturating_sub(1), begins.version.bytes);
        let part = HeaderValue::try_from(part).map_err(|error| AppError::Internal(error.into()))?;
        response.headers_mut().insert(header::CONTENT_RANGE, part);
    }
    describe(&mut response, &begins.version, name);
    Ok(response)
}

/// Which part, and of which content; or the content that the client has already. Without conditions the file is not looked at beforehand.
async fn wanted(
    content: &Content,
    headers: &HeaderMap,
) -> HttpResult<Result<(Option<Span>, Option<Version>), Version>> {
    if !range::has_conditions(headers) {
        return Ok(Ok((None, None)));
    }
    let version = content.version().await?;
    match range::decide(headers, &range::etag(&version), version.bytes, true) {
        Decision::Whole => Ok(Ok((None, Some(version)))),
        Decision::Part(span) => Ok(Ok((Some(span), Some(version)))),
        Decision::NotModified => Ok(Err(version)),
        Decision::Failed => Err(precondition_failed()),
        Decision::OutOfRange => Err(AppError::from(FilesTrouble::out_of_range(version.bytes)).into()),
    }
}

fn precondition_failed() -> HttpError {
    HttpError::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", say("problem.precondition_failed"))
}

/// What is said of a content in every answer about it.
fn describe(response: &mut Response, version: &Version, name: &[u8]) {
    content::secure(response, name);
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(range::etag(version)) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    content::last_modified(headers, version.modified);
}

/// A file or a directory with all in it, or several, as one archive. Several are in it by their own names, of which no two are the same, and
/// all of them are there. Pipes, sockets, devices and what you may not read are left out; a zip says which.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files/archive", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Pack),
    responses(
        (status = 200, content_type = "application/octet-stream", body = Vec<u8>)
    )
)]
pub(crate) async fn archive(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    method: Method,
    body::Query(pack): body::Query<Pack>,
) -> HttpResult<Response> {
    let (paths, format) = pack.paths();
    if method == Method::HEAD {
        let name = app.files.look_to_archive(&caller.actor, &space, &paths, format).await?;
        let mut response = Response::new(Body::empty());
        content::secure(&mut response, &name);
        return Ok(response);
    }
    Ok(packed(&app, caller, &space, &paths, format).await?)
}

/// An archive as it flows.
pub async fn packed(
    app: &App,
    caller: Caller,
    space: &SpaceName,
    paths: &[AskedPath],
    format: ArchiveFormat,
) -> Result<Response, AppError> {
    let packed = app.files.archive(&caller.actor, space, paths, format).await?;
    let grant = app.access.admit(caller.ticket).await?.ok_or(AppError::Unauthenticated)?;
    let mut response = Response::new(flow(app, grant, Some(packed.first), packed.rest));
    content::secure(&mut response, &packed.name);
    Ok(response)
}

/// A file as something to look at: text, the beginning of a table, a notebook's cells, a picture's size, or the first bytes of anything else. It
/// is parsed by your own process and says nothing but text and numbers; HTML, scripts and SVG in a notebook are left out by name.
#[utoipa::path(
    get, path = "/api/v1/spaces/{space}/files/preview", tag = "files",
    params(("space" = String, Path, description = "Name of the space", example = "home"), Sheet),
    responses((status = 200, body = PreviewView))
)]
pub(crate) async fn preview(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Query(sheet): body::Query<Sheet>,
) -> HttpResult<Response> {
    let path = AskedPath::new("path", sheet.path, sheet.raw_path);
    let glance = app.files.preview(&caller.actor, &space, &path, sheet.page.unwrap_or(0)).await?;
    let mut response = Json(PreviewView::from(glance)).into_response();
    content::private(&mut response);
    Ok(response)
}

/// What to search for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSearch {
    /// Below which directory; the space itself when nothing is said.
    #[schema(max_length = 4095)]
    path: Option<String>,
    /// The same as base64url of its bytes.
    raw_path: Option<String>,
    /// What the name has in it, whatever the case; with `*` or `?` in it, what the whole name is like.
    #[schema(min_length = 1, max_length = 255, example = "*.ipynb")]
    name: String,
    /// Only of this kind.
    kind: Option<Sought>,
    /// At least so large.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, maximum = 1_152_921_504_606_846_976_u64)]
    min_bytes: Option<u64>,
    /// At most so large.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, maximum = 1_152_921_504_606_846_976_u64)]
    max_bytes: Option<u64>,
    /// Changed since.
    #[schema(value_type = Option<String>, format = DateTime)]
    modified_after: Option<jiff::Timestamp>,
    /// How many at most; 1000 when nothing is said.
    #[serde(default, deserialize_with = "body::some_whole")]
    #[schema(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A kind that can be searched for.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sought {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
}

/// Search by name. What was found is at the operation's `results`.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/files/search", tag = "files", request_body = NewSearch,
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 202, body = OperationView))
)]
pub(crate) async fn search(
    State(app): State<App>,
    caller: Caller,
    Id(space): Id<SpaceName>,
    body::Json(new): body::Json<NewSearch>,
) -> HttpResult<Response> {
    let limit = new.limit.unwrap_or(MAX_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(wrong("limit", say_with("wrong.between", &[("least", "1"), ("most", &MAX_LIMIT.to_string())])));
    }
    for (field, bytes) in [("min_bytes", new.min_bytes), ("max_bytes", new.max_bytes)] {
        if bytes.is_some_and(|bytes| bytes > MOST_BYTES) {
            return Err(wrong(field, say_with("wrong.between", &[("least", "0"), ("most", &MOST_BYTES.to_string())])));
        }
    }
    if new.name.is_empty() || new.name.len() > MAX_FILTER || new.name.contains('\0') {
        return Err(wrong("name", say_with("wrong.too_long", &[("n", &MAX_FILTER.to_string())])));
    }
    let wish = SearchWish {
        path: AskedPath::new("path", new.path, new.raw_path),
        name: new.name,
        kind: new.kind.map(|kind| match kind {
            Sought::Directory => EntryKind::Directory,
            Sought::File => EntryKind::File,
            Sought::Link => EntryKind::Link,
        }),
        least_bytes: new.min_bytes,
        most_bytes: new.max_bytes,
        since: new.modified_after.map(jiff::Timestamp::as_second),
        limit,
    };
    accepted(app.files.search(&app.operations, &caller.actor, &space, wish).await?)
}

/// Bytes as a body: it breaks off where the file does, where the right to it ends, and when eirened ends.
fn flow(app: &App, grant: Arc<Grant>, first: Option<bytes::Bytes>, bytes: Outflow) -> Body {
    let shutdown = app.shutdown.clone();
    let state = (first, Some(bytes), grant, shutdown);
    let stream = stream::unfold(state, |(first, bytes, grant, shutdown)| async move {
        let mut flowing = bytes?;
        if let Some(first) = first {
            return Some((Ok(first), (None, Some(flowing), grant, shutdown)));
        }
        let next = tokio::select! {
            () = grant.revoked.cancelled() => Some(Err(BrokenOff)),
            () = shutdown.cancelled() => Some(Err(BrokenOff)),
            next = flowing.next() => next,
        }?;
        let rest = next.is_ok().then_some(flowing);
        Some((next, (None, rest, grant, shutdown)))
    });
    Body::from_stream(stream)
}
