//! Requests that take as long as their bytes do: an upload is not given up after half a minute, but when nothing has come for a while.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::time::Instant;

/// How long nothing may move.
pub const QUIET: Duration = Duration::from_mins(1);

/// In the extensions of every request, put there by the middleware. A handler that reads a long body says each time that something came; until
/// then the request is like any other.
#[derive(Debug, Clone, Default)]
pub struct Unhurried(Arc<Mutex<Option<Instant>>>);

impl Unhurried {
    /// Something moved.
    pub fn moved(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long to wait yet; none: nothing has moved for too long, or ever.
    pub fn left(&self, quiet: Duration) -> Option<Duration> {
        let moved = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        quiet.checked_sub(moved.elapsed()).filter(|left| !left.is_zero())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Unhurried {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
