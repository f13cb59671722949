//! The app behind the proxy in these tests: says what it was sent, streams without end, echoes WebSockets, refuses what asks for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use eirene_core::SessionId;
use eirene_services::agents::NoTunnel;
use futures_util::future::BoxFuture;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use crate::proxy::{ByteStream, Upstreams};

/// Apps that answer in this process.
#[derive(Clone, Default)]
pub(super) struct FakeApps {
    running: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    opened: Arc<AtomicUsize>,
}

impl FakeApps {
    /// From now on the session's app answers.
    pub(super) fn run(&self, session: SessionId) {
        self.running.lock().unwrap().insert(session, CancellationToken::new());
    }

    /// The session's agent goes away.
    pub(super) fn stop(&self, session: SessionId) {
        self.running.lock().unwrap().remove(&session).unwrap().cancel();
    }

    /// Streams opened so far.
    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

impl Upstreams for FakeApps {
    fn open(&self, session: SessionId) -> BoxFuture<'_, Result<Box<dyn ByteStream>, NoTunnel>> {
        Box::pin(async move {
            let gone = self.running.lock().unwrap().get(&session).cloned().ok_or(NoTunnel)?;
            self.opened.fetch_add(1, Ordering::SeqCst);
            let (ours, theirs) = tokio::io::duplex(32 * 1024);
            tokio::spawn(async move {
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(theirs), service_fn(answer))
                    .with_upgrades();
                tokio::select! {
                    _ = served => {}
                    () = gone.cancelled() => {}
                }
            });
            let stream: Box<dyn ByteStream> = Box::new(ours);
            Ok(stream)
        })
    }

    fn revoked(&self, session: SessionId) -> CancellationToken {
        let gone = self.running.lock().unwrap().get(&session).map(CancellationToken::child_token);
        gone.unwrap_or_default()
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response, Infallible> {
    Ok(match request.uri().path() {
        _ if request.uri().query() == Some("refused") => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "/ws" => websocket(request),
        "/endless" => {
            let first = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"first")) });
            Body::from_stream(first.chain(stream::pending())).into_response()
        }
        "/never" => std::future::pending().await,
        "/overreach" => {
            let headers = [
                ("set-cookie", "__Host-eirene_app=evil; Path=/; Secure"),
                ("access-control-allow-origin", "*"),
                ("service-worker-allowed", "/"),
            ];
            let mut response = headers.into_response();
            response.headers_mut().append(header::SET_COOKIE, "a=1; Domain=apps.eirene.localhost".parse().unwrap());
            response
        }
        "/empty" => StatusCode::NO_CONTENT.into_response(),
        "/large" => Body::from(vec![b'x'; 3_000_000]).into_response(),
        _ => told(request).await,
    })
}

/// What it was sent, as JSON.
async fn told(request: Request<Incoming>) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let headers: HashMap<String, String> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let answer = json!({
        "method": head.method.as_str(), "uri": head.uri.to_string(), "headers": headers, "length": body.len(),
    });
    axum::Json(answer).into_response()
}

fn websocket(mut request: Request<Incoming>) -> Response {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let Some(key) = key else { return StatusCode::BAD_REQUEST.into_response() };
    let seen = serde_json::to_string(&names(request.headers())).unwrap();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(stream) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, None).await;
        let _ = socket.send(seen.into()).await;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_close() || socket.send(message).await.is_err() {
                return;
            }
        }
    });
    let headers = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, key),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

fn names(headers: &HeaderMap) -> Vec<String> {
    headers.keys().map(ToString::to_string).collect()
}
