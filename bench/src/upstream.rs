//! The app behind all proxies: answers at once from memory, so that what is measured is the proxy.
//!
//! `/large` is 1 MiB, `/huge` 1 GiB, a WebSocket upgrade on any path is an echo, everything else is a small answer with status 200.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::ensure;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Bytes of the large answer.
pub(crate) const LARGE: usize = 1024 * 1024;
/// Bytes of the answer that nobody reads to its end.
pub(crate) const HUGE: usize = 1024 * LARGE;
/// The small answer.
pub(crate) const SMALL: &[u8] = b"sixty-four bytes are enough to see that this came from upstream\n";

static LARGE_BODY: [u8; LARGE] = [b'e'; LARGE];

/// The same bytes again and again, without a copy.
struct Repeat {
    data: &'static [u8],
    left: usize,
}

impl Body for Repeat {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.left.min(self.data.len());
        if length == 0 {
            return Poll::Ready(None);
        }
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&self.data[..length])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// Listens on a unix socket, a TCP address or both, until it is killed.
pub(crate) async fn serve(socket: Option<&Path>, listen: Option<SocketAddr>) -> anyhow::Result<()> {
    ensure!(socket.is_some() || listen.is_some(), "nothing to listen on: give --socket or --listen");
    let unix = socket.map(UnixListener::bind).transpose()?;
    let tcp = match listen {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    let unix = async {
        if let Some(listener) = unix {
            loop {
                let (stream, _) = listener.accept().await?;
                tokio::spawn(connection(stream));
            }
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    let tcp = async {
        if let Some(listener) = tcp {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                tokio::spawn(connection(stream));
            }
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        ended = unix => ended,
        ended = tcp => ended,
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(async |request| Ok::<_, Infallible>(answer(request)));
    // A proxy that goes away mid-request is nothing to report here: the load generator counts it.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

fn answer(request: Request<Incoming>) -> Response<Repeat> {
    if let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) {
        let accept = derive_accept_key(key.as_bytes());
        return upgrade(request, &accept);
    }
    let (data, left) = match request.uri().path() {
        "/large" => (&LARGE_BODY[..], LARGE),
        "/huge" => (&LARGE_BODY[..], HUGE),
        _ => (SMALL, SMALL.len()),
    };
    let mut response = Response::new(Repeat { data, left });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn upgrade(request: Request<Incoming>, accept: &str) -> Response<Repeat> {
    let mut response = Response::new(Repeat { data: &[], left: 0 });
    let Ok(accept) = HeaderValue::from_str(accept) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    tokio::spawn(async move {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_close() || socket.send(message).await.is_err() {
                return;
            }
        }
    });
    response
}
