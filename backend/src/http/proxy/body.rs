//! The body of an app's answer on its way to the browser: passed on as it comes, ended when the right to it is gone, and
//! its connection put back for the next request when it is through.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use eirene_core::SessionId;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::link::{Link, Pool};
use crate::services::access::Grant;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The app, its connection or its agent went away.
    #[error("the app's answer broke off")]
    App(#[from] hyper::Error),
    /// The right to it is gone, or eirened ends.
    #[error("the right to the app is gone")]
    Revoked,
}

/// What ends a stream from our side.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) grant: Arc<Grant>,
    pub(super) gone: CancellationToken,
    pub(super) shutdown: CancellationToken,
}

impl Ends {
    /// Waits until the stream has to end.
    pub(super) async fn wait(self) {
        tokio::select! {
            () = self.grant.revoked.cancelled() => {}
            () = self.gone.cancelled() => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

/// The body.
pub(super) struct AppBody {
    body: Incoming,
    link: Option<Link>,
    pool: Arc<Pool>,
    session: SessionId,
    ends: Ends,
    /// Made when the body first makes us wait: most never do.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl AppBody {
    /// The body that comes over `link`.
    pub(super) async fn new(body: Incoming, link: Link, pool: Arc<Pool>, session: SessionId, ends: Ends) -> Self {
        let mut this = Self { body, link: Some(link), pool, session, ends, end: None };
        if this.body.is_end_stream() {
            // Nobody polls a body that is known to be empty.
            poll_fn(|cx| {
                this.put_back(cx);
                Poll::Ready(())
            })
            .await;
        }
        this
    }

    fn put_back(&mut self, cx: &mut Context<'_>) {
        let Some(mut link) = self.link.take() else { return };
        if link.drive(cx) && link.is_ready() {
            self.pool.put(self.session, link);
        }
    }

    fn poll_app(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if let Some(link) = &mut self.link {
            link.drive(cx);
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl Body for AppBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        match this.poll_app(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if this.body.is_end_stream() {
                    this.put_back(cx);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.link = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                this.put_back(cx);
                Poll::Ready(None)
            }
            Poll::Pending => {
                let end = this.end.get_or_insert_with(|| Box::pin(this.ends.clone().wait()));
                match end.as_mut().poll(cx) {
                    Poll::Ready(()) => {
                        this.link = None;
                        Poll::Ready(Some(Err(Broken::Revoked)))
                    }
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
