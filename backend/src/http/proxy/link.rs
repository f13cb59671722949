//! HTTP/1.1 connections to apps, kept for the next request.
//!
//! A connection is moved by whoever uses it, in the same task that serves the browser: no task of its own, nothing to
//! wake across threads. While it lies in the pool nobody moves it; that it has been closed is seen when it is taken out.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use eirene_core::SessionId;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::upstream::ByteStream;

/// Connections kept per session.
const MAX_IDLE: usize = 256;
/// How long one is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(15);
/// Most that is read ahead of an app's answer.
const MAX_BUFFER: usize = 64 * 1024;
/// Most headers of an app's answer.
const MAX_HEADERS: usize = 128;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// One connection to an app.
pub(super) struct Link {
    sender: SendRequest<Incoming>,
    /// Moves the bytes; none once the connection is over or belongs to a WebSocket.
    driver: Option<Driver>,
    /// Cancelled when the session's streams have to end.
    pub(super) gone: CancellationToken,
}

/// Why a request did not get an answer.
pub(super) enum Unsent {
    /// It was not sent; here it is again.
    Back(Box<Request<Incoming>>),
    /// It may have been sent.
    Lost(hyper::Error),
}

impl Link {
    /// Speaks HTTP on a new stream.
    pub(super) async fn start(stream: Box<dyn ByteStream>, gone: CancellationToken) -> hyper::Result<Self> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self { sender, driver: Some(Box::pin(connection.with_upgrades())), gone })
    }

    /// Moves bytes; whether the connection is still there.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let over = self.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready());
        if over {
            self.driver = None;
        }
        self.driver.is_some()
    }

    /// Whether the next request can be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready() && !self.gone.is_cancelled()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(&mut self, request: Request<Incoming>) -> Result<Response<Incoming>, Unsent> {
        let answer = self.sender.try_send_request(request);
        tokio::pin!(answer);
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = answer.as_mut().poll(cx) {
                return Poll::Ready(sent);
            }
            self.drive(cx);
            answer.as_mut().poll(cx)
        });
        sent.await.map_err(|mut error| match error.take_message() {
            Some(request) => Unsent::Back(Box::new(request)),
            None => Unsent::Lost(error.into_error()),
        })
    }

    /// Moves the connection until it has handed its stream over to a WebSocket.
    pub(super) async fn finish_upgrade(mut self) {
        if let Some(driver) = self.driver.take() {
            let _ = driver.await;
        }
    }
}

/// Connections waiting for their next request.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<SessionId, Vec<(Instant, Link)>>>,
}

impl Pool {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Vec<(Instant, Link)>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can be used at once: the one used last.
    pub(super) async fn take(&self, session: SessionId) -> Option<Link> {
        loop {
            let (_, mut link) = self.lock().get_mut(&session)?.pop()?;
            // Whatever arrived in the meantime, an end above all, is seen now.
            let ready = poll_fn(|cx| Poll::Ready(link.drive(cx) && link.is_ready())).await;
            if ready {
                return Some(link);
            }
        }
    }

    /// Keeps a connection.
    pub(super) fn put(&self, session: SessionId, link: Link) {
        let mut idle = self.lock();
        let links = idle.entry(session).or_default();
        if links.len() < MAX_IDLE {
            links.push((Instant::now(), link));
        }
    }

    /// Drops what has not been used for a while.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain(|_, links| {
            links.retain(|(since, link)| now.duration_since(*since) < MAX_IDLE_TIME && !link.gone.is_cancelled());
            !links.is_empty()
        });
    }
}
