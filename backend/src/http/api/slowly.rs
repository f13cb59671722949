//! An answer that may take long: as any other where it comes soon, and otherwise begun with white space, which JSON may begin with, so that
//! nothing on the way takes the connection for dead.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::AppError;
use crate::http::content;
use crate::http::problem::HttpResult;
use crate::services::access::Grant;
use crate::services::files::outflow::BrokenOff;

/// How long nothing is said.
const QUIET: Duration = Duration::from_secs(5);

/// What is waited for.
pub(super) type Slow<T> = Pin<Box<dyn Future<Output = Result<T, AppError>> + Send>>;

/// Answers with what `slow` comes to. What fails soon has a status; what fails later breaks off, and so does what nobody may hear any more.
pub(super) async fn answer<T: Serialize + Send + 'static>(
    mut slow: Slow<T>,
    grant: Arc<Grant>,
    shutdown: CancellationToken,
) -> HttpResult<Response> {
    if let Ok(soon) = timeout(QUIET, &mut slow).await {
        let mut response = Json(soon?).into_response();
        content::private(&mut response);
        return Ok(response);
    }
    let stream = stream::unfold(Some((slow, grant, shutdown)), |state| async move {
        let (mut slow, grant, shutdown) = state?;
        let heard = tokio::select! {
            () = grant.revoked.cancelled() => return Some((Err(BrokenOff), None)),
            () = shutdown.cancelled() => return Some((Err(BrokenOff), None)),
            heard = timeout(QUIET, &mut slow) => heard,
        };
        match heard {
            Err(_) => Some((Ok(Bytes::from_static(b" ")), Some((slow, grant, shutdown)))),
            Ok(Ok(value)) => {
                let json = serde_json::to_vec(&value).map(Bytes::from).map_err(|_| BrokenOff);
                Some((json, None))
            }
            Ok(Err(_)) => Some((Err(BrokenOff), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    content::private(&mut response);
    Ok(response)
}
