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

use super::link::{Link, Pool};

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The app, its connection or its agent went away.
    #[error("the app's answer broke off")]
    App(#[from] hyper::Error),
    /// The right to it is gone, or eirened ends.
    #[error("the right to the app is gone")]
    Over,
}

/// The body.
pub(super) struct AppBody {
    body: Incoming,
    source: Source,
    pool: Arc<Pool>,
    session: SessionId,
}

/// Where the rest of a body comes from.
enum Source {
    /// Over this connection.
    Link(Link),
    /// All of it is here.
    Complete,
    /// There will be no more.
    Broken,
}

impl AppBody {
    /// The body that comes over `link`.
    pub(super) async fn new(body: Incoming, link: Link, pool: Arc<Pool>, session: SessionId) -> Self {
        let mut this = Self { body, source: Source::Link(link), pool, session };
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
        if let Source::Link(mut link) = std::mem::replace(&mut self.source, Source::Complete)
            && link.drive(cx)
            && link.is_ready()
        {
            self.pool.put(self.session, link);
        }
    }

    fn poll_app(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Source::Link(link) = &self.source
            && link.over().is_some()
        {
            // Asked each time: an app that never lets us wait would otherwise outlive the right to it.
            return Poll::Ready(Some(Err(Broken::Over)));
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::App)));
        }
        if let Source::Link(link) = &mut self.source {
            link.drive(cx);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::App)));
        }
        match &mut self.source {
            Source::Link(link) => link.poll_over(cx).map(|_| Some(Err(Broken::Over))),
            Source::Complete | Source::Broken => Poll::Pending,
        }
    }
}

impl Body for AppBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        if matches!(this.source, Source::Broken) {
            return Poll::Ready(Some(Err(Broken::Over)));
        }
        let frame = this.poll_app(cx);
        match &frame {
            Poll::Ready(Some(Err(_))) => this.source = Source::Broken,
            Poll::Ready(None) => this.put_back(cx),
            Poll::Ready(Some(Ok(_))) if this.body.is_end_stream() => this.put_back(cx),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        frame
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
    use eirene_services::access::{Digest, Ticket};
    use eirene_services::testing::TestApp;
    use eirene_services::tokens::NewToken;
    use http::{Request, Response};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_util::sync::CancellationToken;

    use super::*;

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
        let (answer, _theirs) = tokio::join!(link.send(request, &grant), answer_with(theirs, &bytes));
        let Ok(answer) = answer else { panic!("no answer") };
        let pool = Arc::new(Pool::one_of(1));
        let mut body = AppBody::new(answer.into_body(), link, pool, SessionId::generate()).await;
        let mut next = async || poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(matches!(next().await, Some(Ok(_))));
        assert!(matches!(next().await, Some(Ok(_))));
        grant.revoked.cancel();
        assert!(matches!(next().await, Some(Err(Broken::Over))));
        assert!(matches!(next().await, Some(Err(Broken::Over))));
    }
}
