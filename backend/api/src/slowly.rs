//! An answer that may take long: as any other where it comes soon, and otherwise begun with white space, which JSON may begin with, so that
//! nothing on the way takes the connection for dead.

use std::pin::Pin;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use eirene_http::content;
use eirene_http::problem::HttpResult;
use eirene_services::error::AppError;
use eirene_services::files::outflow::BrokenOff;
use futures_util::stream;
use http::{HeaderValue, header};
use serde::Serialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long nothing is said.
const QUIET: Duration = Duration::from_secs(5);

/// What is waited for.
pub(super) type Slow<T> = Pin<Box<dyn Future<Output = Result<T, AppError>> + Send>>;

/// Answers with what `slow` comes to. What fails soon has a status; what fails later breaks off, and so does what nobody may hear any more,
/// which `revoked` says.
pub(super) async fn answer<T: Serialize + Send + 'static>(
    mut slow: Slow<T>,
    revoked: CancellationToken,
    shutdown: CancellationToken,
) -> HttpResult<Response> {
    if let Ok(soon) = timeout(QUIET, &mut slow).await {
        let mut response = Json(soon?).into_response();
        content::private(&mut response);
        return Ok(response);
    }
    let stream = stream::unfold(Some((slow, revoked, shutdown)), |state| async move {
        let (mut slow, revoked, shutdown) = state?;
        let heard = tokio::select! {
            () = revoked.cancelled() => return Some((Err(BrokenOff), None)),
            () = shutdown.cancelled() => return Some((Err(BrokenOff), None)),
            heard = timeout(QUIET, &mut slow) => heard,
        };
        match heard {
            Err(_) => Some((Ok(Bytes::from_static(b" ")), Some((slow, revoked, shutdown)))),
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

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use http::StatusCode;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// The answer to what takes so long.
    async fn after(took: Duration, result: Result<u32, AppError>, revoked: &CancellationToken) -> HttpResult<Response> {
        let slow: Slow<u32> = Box::pin(async move {
            sleep(took).await;
            result
        });
        answer(slow, revoked.clone(), CancellationToken::new()).await
    }

    async fn body(response: Response) -> Result<String, axum::Error> {
        to_bytes(response.into_body(), 1000).await.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_soon_has_its_status() {
        let token = CancellationToken::new();
        let good = after(QUIET / 2, Ok(7), &token).await.unwrap();
        assert_eq!((good.status(), body(good).await.unwrap().as_str()), (StatusCode::OK, "7"));
        let bad = after(QUIET / 2, Err(AppError::NotFound), &token).await.unwrap_err().into_response();
        assert_eq!(bad.status(), StatusCode::NOT_FOUND);
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_kept_alive_by_white_space_and_is_json_all_the_same() {
        let began = Instant::now();
        let response = after(QUIET * 7 / 2, Ok(7), &CancellationToken::new()).await.unwrap();
        assert_eq!(began.elapsed(), QUIET, "the answer has begun long before its end is known");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let text = body(response).await.unwrap();
        assert_eq!((text.as_str(), serde_json::from_str(&text).ok()), ("  7", Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_late_or_may_not_be_heard_any_more_breaks_off() {
        let token = CancellationToken::new();
        let failed = after(QUIET * 3, Err(AppError::NotFound), &token).await.unwrap();
        assert!(body(failed).await.is_err(), "never taken for an answer");
        let heard = after(QUIET * 3, Ok(7), &token).await.unwrap();
        token.cancel();
        assert!(body(heard).await.is_err());
    }
}
