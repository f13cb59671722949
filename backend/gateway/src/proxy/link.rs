//! HTTP/1.1 connections to apps, kept for the next request.
//!
//! A connection is moved by whoever uses it, in the same task that serves the browser: no task of its own, nothing to
//! wake across threads. While it lies in the pool nobody moves it; that it has been closed is seen when it is taken out.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use eirene_core::SessionId;
use eirene_services::access::Grant;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::upstream::ByteStream;

/// Connections kept per session, on all threads for sessions together.
const MAX_IDLE: usize = 256;
/// How long one is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(15);
/// Most that is read ahead of an app's answer.
const MAX_BUFFER: usize = 64 * 1024;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// One connection to an app.
pub(super) struct Link {
    sender: SendRequest<Incoming>,
    /// Moves the bytes; none once the connection is over or belongs to a WebSocket.
    driver: Option<Driver>,
    /// Cancelled when the session's streams have to end.
    gone: CancellationToken,
    /// The wait for the end of the right by which it is used, or was last.
    watch: Option<Watch>,
}

/// A wait for the end of a right. It is kept with the connection, for the next request mostly comes by the same right,
/// and to begin the wait takes locks that all streams of that right share.
struct Watch {
    grant: Arc<Grant>,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Why a stream has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The right to it is gone.
    Revoked,
    /// The session is over, its agent has gone, or eirened ends.
    Gone,
}

/// Why a request did not get an answer.
pub(super) enum Unsent {
    /// It must not go on.
    Over(Over),
    /// It was not sent; here it is again.
    Back(Box<Request<Incoming>>),
    /// It may have been sent.
    Lost(hyper::Error),
}

impl Link {
    /// Speaks HTTP on a new stream.
    pub(super) async fn start(stream: Box<dyn ByteStream>, gone: CancellationToken) -> hyper::Result<Self> {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(connection.with_upgrades())), gone, watch: None })
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

    /// Why a stream over it has to end now, if it has to.
    pub(super) fn over(&self) -> Option<Over> {
        if self.watch.as_ref().is_some_and(|watch| watch.grant.revoked.is_cancelled()) {
            return Some(Over::Revoked);
        }
        self.gone.is_cancelled().then_some(Over::Gone)
    }

    /// Waits until a stream over it has to end.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        let Some(watch) = &mut self.watch else { return Poll::Pending };
        watch.over.as_mut().poll(cx).map(|()| self.over().unwrap_or(Over::Gone))
    }

    /// From now on it is used by this right.
    fn watch(&mut self, grant: &Arc<Grant>) {
        if self.watch.as_ref().is_some_and(|watch| Arc::ptr_eq(&watch.grant, grant)) {
            return;
        }
        let (revoked, gone) = (grant.revoked.clone(), self.gone.clone());
        let over = Box::pin(async move {
            tokio::select! {
                () = revoked.cancelled() => {}
                () = gone.cancelled() => {}
            }
        });
        self.watch = Some(Watch { grant: Arc::clone(grant), over });
    }

    /// Sends a request and waits for the head of its answer, for as long as the right to it lasts: an upload or a long
    /// poll may take hours.
    pub(super) async fn send(
        &mut self,
        request: Request<Incoming>,
        grant: &Arc<Grant>,
    ) -> Result<Response<Incoming>, Unsent> {
        self.watch(grant);
        if let Some(over) = self.over() {
            return Err(Unsent::Over(over));
        }
        let answer = self.sender.try_send_request(request);
        tokio::pin!(answer);
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(sent));
            }
            self.drive(cx);
            match answer.as_mut().poll(cx) {
                Poll::Ready(sent) => Poll::Ready(Ok(sent)),
                Poll::Pending => self.poll_over(cx).map(Err),
            }
        });
        sent.await.map_err(Unsent::Over)?.map_err(|mut error| match error.take_message() {
            Some(request) => Unsent::Back(Box::new(request)),
            // Where the end of the right is what broke it, that is the news.
            None => self.over().map_or_else(|| Unsent::Lost(error.into_error()), Unsent::Over),
        })
    }

    /// Moves the connection until it has handed its stream over to a WebSocket.
    pub(super) async fn finish_upgrade(&mut self) {
        if let Some(driver) = self.driver.take() {
            let _ = driver.await;
        }
    }
}

/// Connections waiting for their next request on one thread.
pub(super) struct Pool {
    /// Most that are kept for a session. All of them take places in its tunnel, so the threads share what there is.
    most: usize,
    idle: Mutex<HashMap<SessionId, Vec<(Instant, Link)>>>,
}

impl Pool {
    /// One of `count` pools that share what is kept, each on a thread of its own.
    pub(super) fn one_of(count: usize) -> Self {
        Self { most: (MAX_IDLE / count.max(1)).max(1), idle: Mutex::default() }
    }

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
        if links.len() < self.most {
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
