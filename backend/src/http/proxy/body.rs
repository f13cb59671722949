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
    /// Whether the stream has to end now.
    fn reached(&self) -> bool {
        self.grant.revoked.is_cancelled() || self.gone.is_cancelled() || self.shutdown.is_cancelled()
    }

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
        // Asked each time: an app that never lets us wait would otherwise outlive the right to it. Whoever is woken to
        // be told so has waited, and so has come by the last arm.
        if this.ends.reached() {
            this.link = None;
            return Poll::Ready(Some(Err(Broken::Revoked)));
        }
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

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::services::access::{Digest, Ticket};
    use crate::services::tokens::NewToken;
    use crate::testing::TestApp;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";

    /// Answers the one request that comes.
    async fn answer_with(mut stream: DuplexStream, bytes: &[u8]) -> DuplexStream {
        assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// A body of a request; only hyper makes those.
    async fn nothing() -> Incoming {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
        tokio::spawn(connection);
        sender.ready().await.unwrap();
        let asked = sender.send_request(Request::new(String::new()));
        let (answer, _) = tokio::join!(asked, answer_with(theirs, b"HTTP/1.1 204 No Content\r\n\r\n"));
        answer.map(Response::into_body).unwrap()
    }

    #[tokio::test]
    async fn an_app_that_always_has_more_does_not_outlive_the_right_to_it() {
        let test = TestApp::new().await;
        let actor = test.ada().await;
        let new = NewToken { name: "a".into(), scopes: None, expires_in_s: None };
        let token = test.app.tokens.create(&actor, new).await.unwrap().secret;
        let grant = test.app.access.admit(Ticket::Token(Digest::of(token.expose()))).await.unwrap().unwrap();

        // All of the answer is there at once, so that its body never has to wait.
        let (ours, theirs) = tokio::io::duplex(2_000_000);
        let bytes = [HEAD, &vec![b'x'; 1_000_000]].concat();
        let mut link = Link::start(Box::new(ours), CancellationToken::new()).await.unwrap();
        let request = Request::new(nothing().await);
        let (answer, _theirs) = tokio::join!(link.send(request), answer_with(theirs, &bytes));
        let Ok(answer) = answer else { panic!("no answer") };
        let ends =
            Ends { grant: Arc::clone(&grant), gone: CancellationToken::new(), shutdown: CancellationToken::new() };
        let pool = Arc::new(Pool::default());
        let mut body = AppBody::new(answer.into_body(), link, pool, SessionId::generate(), ends).await;
        let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(matches!(next().await, Some(Ok(_))));
        assert!(matches!(next().await, Some(Ok(_))));
        grant.revoked.cancel();
        assert!(matches!(next().await, Some(Err(Broken::Revoked))));
        assert!(matches!(next().await, Some(Err(Broken::Revoked))));
    }
}
