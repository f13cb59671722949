//! Uploads by the protocol tus 1.0.0: any client of it goes on where it stopped. What the headers mean is in [`tus`], what becomes of the
//! bytes in the service.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use eirene_core::{SpaceName, UploadId};
use eirene_http::extract::{Caller, Id};
use eirene_http::problem::{HttpError, HttpResult};
use eirene_http::unhurried::Unhurried;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::uploads::{NewUpload, Piece, Seen, discard};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::streams;
use crate::tus::{self, Chunk, Creation, Metadata, Speaks, Standing};

/// What this server offers of the upload protocol.
#[utoipa::path(
    options, path = "/api/v1/spaces/{space}/uploads", tag = "uploads",
    params(("space" = String, Path, description = "Name of the space", example = "home")),
    responses((status = 204, description = "`Tus-Version`, `Tus-Extension`, `Tus-Max-Size` and `Tus-Checksum-Algorithm` say it"))
)]
pub(crate) async fn offer(State(app): State<App>, caller: Caller) -> HttpResult<Response> {
    let most = app.uploads.most(&caller.actor)?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    tus::offer(response.headers_mut(), most);
    Ok(response)
}

/// The same, asked of an upload.
#[utoipa::path(
    options, path = "/api/v1/uploads/{id}", tag = "uploads", params(("id" = String, Path, description = "Id of the upload")),
    responses((status = 204, description = "`Tus-Version`, `Tus-Extension`, `Tus-Max-Size` and `Tus-Checksum-Algorithm` say it"))
)]
pub(crate) async fn offer_again(app: State<App>, caller: Caller) -> HttpResult<Response> {
    offer(app, caller).await
}

/// Make an upload: `Upload-Length` is its size, `Upload-Metadata` says where the file shall lie (`path`), and may say `sha256` of the whole,
/// `modified`, `on_conflict` (`refuse`, `keep_both`, `replace`) and `parents` (`true`: missing directories are made). The first bytes may come along.
#[utoipa::path(
    post, path = "/api/v1/spaces/{space}/uploads", tag = "uploads",
    params(
        ("space" = String, Path, description = "Name of the space", example = "home"),
        ("Tus-Resumable" = String, Header, pattern = "^1[.]0[.]0$", description = "The protocol's version", example = "1.0.0"),
        ("Upload-Length" = u64, Header, description = "Bytes of the whole", example = 1_048_576),
        ("Upload-Metadata" = String, Header, description = "Keys and base64 values", example = "path ZGF0YS5iaW4=")
    ),
    responses(
        (status = 201, description = "`Location` is the upload's address"),
        (status = 400, description = "A header is not as the protocol has it; `errors` names it"),
        (status = 409, description = "Something of this name lies there already"),
        (status = 412, description = "Another version of the protocol"),
        (status = 413, description = "Larger than any file"),
        (status = 415, description = "The body is not `application/offset+octet-stream`"),
        (status = 507, description = "There is no room")
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    Speaks: Speaks,
    Id(space): Id<SpaceName>,
    unhurried: Unhurried,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<Response> {
    let wish = match app.uploads.most_in(&caller.actor, &space).await {
        Ok(most) => Creation::parse(&headers, most),
        Err(error) => Err(error.into()),
    };
    let wish = match wish {
        Ok(wish) => wish,
        Err(error) => return Err(unwanted(&headers, body, error).await),
    };
    let Metadata { path, sha256, modified, on_conflict, parents } = wish.metadata;
    let new = NewUpload { path, length: wish.length, sha256, modified, on_conflict, parents };
    let made = match wish.first {
        Some(first) => {
            let moved = move || unhurried.moved();
            let body = streams::sent(&app, caller.ticket, body).await?;
            app.uploads.create_with(&caller.actor, &space, new, piece(first), body, moved).await?
        }
        None => app.uploads.create(&caller.actor, &space, new).await?,
    };
    let mut response = StatusCode::CREATED.into_response();
    let location = HeaderValue::try_from(format!("/api/v1/uploads/{}", made.upload.id));
    response.headers_mut().insert(header::LOCATION, location.map_err(|error| AppError::Internal(error.into()))?);
    stand(&made, &mut response)?;
    Ok(response)
}

/// How far an upload is.
#[utoipa::path(
    head, path = "/api/v1/uploads/{id}", tag = "uploads",
    params(
        ("id" = String, Path, description = "Id of the upload"),
        ("Tus-Resumable" = String, Header, pattern = "^1[.]0[.]0$", description = "The protocol's version", example = "1.0.0")
    ),
    responses(
        (status = 200, description = "`Upload-Offset` says where it goes on; `Eirene-Path` where the file lies, once it is whole"),
        (status = 412, description = "Another version of the protocol")
    )
)]
pub(crate) async fn look(
    State(app): State<App>,
    caller: Caller,
    Speaks: Speaks,
    Id(id): Id<UploadId>,
) -> HttpResult<Response> {
    let seen = app.uploads.look(&caller.actor, id).await?;
    let mut response = StatusCode::OK.into_response();
    let metadata = Metadata::written(&seen.wanted()?, seen.upload.checksum.as_deref(), seen.upload.on_conflict);
    tus::describe(response.headers_mut(), seen.upload.length, metadata);
    stand(&seen, &mut response)?;
    Ok(response)
}

/// Add bytes where the upload goes on. The last ones give the file its name.
#[utoipa::path(
    patch, path = "/api/v1/uploads/{id}", tag = "uploads",
    params(
        ("id" = String, Path, description = "Id of the upload"),
        ("Tus-Resumable" = String, Header, pattern = "^1[.]0[.]0$", description = "The protocol's version", example = "1.0.0"),
        ("Upload-Offset" = u64, Header, description = "Where the bytes begin", example = 0),
        ("Upload-Checksum" = Option<String>, Header, description = "`crc32`, `sha256` or `sha1`, and the sum of these bytes in base64; of `crc32`, that of zip, the highest byte first")
    ),
    request_body(content = Vec<u8>, content_type = "application/offset+octet-stream"),
    responses(
        (status = 204, description = "`Upload-Offset` says where it goes on"),
        (status = 410, description = "There is no such upload any more"),
        (status = 412, description = "Another version of the protocol"),
        (status = 423, description = "Somebody else is writing to it"),
        (status = 460, description = "The bytes do not add up to their sum, and none of them counts"),
        (status = 507, description = "There is no room")
    )
)]
pub(crate) async fn append(
    State(app): State<App>,
    caller: Caller,
    Speaks: Speaks,
    Id(id): Id<UploadId>,
    unhurried: Unhurried,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<Response> {
    let ready = match Chunk::parse(&headers) {
        Ok(chunk) => app.uploads.ready(&caller.actor, id, piece(chunk)).await.map_err(HttpError::from),
        Err(error) => Err(error),
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(error) => {
            let error = unwanted(&headers, body, error).await;
            return Ok(with_offset(error));
        }
    };
    let body = streams::sent(&app, caller.ticket, body).await?;
    match ready.take(body, move || unhurried.moved()).await {
        Ok(seen) => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            stand(&seen, &mut response)?;
            Ok(response)
        }
        Err(error) => Ok(with_offset(error.into())),
    }
}

/// End an upload. What came of it is removed; a file that is whole stays.
#[utoipa::path(
    delete, path = "/api/v1/uploads/{id}", tag = "uploads",
    params(
        ("id" = String, Path, description = "Id of the upload"),
        ("Tus-Resumable" = String, Header, pattern = "^1[.]0[.]0$", description = "The protocol's version", example = "1.0.0")
    ),
    responses((status = 204, description = "It is no more"), (status = 412, description = "Another version of the protocol"))
)]
pub(crate) async fn end(
    State(app): State<App>,
    caller: Caller,
    Speaks: Speaks,
    Id(id): Id<UploadId>,
) -> HttpResult<StatusCode> {
    app.uploads.end(&caller.actor, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn piece(chunk: Chunk) -> Piece {
    let Chunk { offset, bytes, checksum } = chunk;
    Piece { offset, bytes, checksum }
}

fn stand(seen: &Seen, response: &mut Response) -> HttpResult<()> {
    let path = seen.path()?;
    let expires = path.is_none().then_some(seen.upload.expires_at);
    Standing { offset: seen.offset, expires, path: path.as_ref() }.put(response.headers_mut());
    Ok(())
}

/// An error that says where the upload goes on, where it knows.
fn with_offset(error: HttpError) -> Response {
    let offset = error.problem().bytes;
    let mut response = error.into_response();
    if let Some(offset) = offset {
        response.headers_mut().insert(tus::OFFSET, HeaderValue::from(offset));
    }
    response
}

/// Reads a body that nobody wants, so that its sender hears why; one who asked first whether to send it has not begun.
async fn unwanted(headers: &HeaderMap, body: Body, error: HttpError) -> HttpError {
    if !headers.contains_key(header::EXPECT) {
        discard(&mut body.into_data_stream()).await;
    }
    error
}
