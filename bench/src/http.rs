//! One request on a connection of its own: enough for polling and for the API.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked.
pub(crate) struct Ask<'a> {
    /// Where to connect to.
    pub(crate) address: SocketAddr,
    /// Name of the site.
    pub(crate) host: &'a str,
    /// Method.
    pub(crate) method: &'a str,
    /// Path.
    pub(crate) path: &'a str,
    /// Content of the `Authorization` header.
    pub(crate) authorization: Option<&'a str>,
    /// JSON body.
    pub(crate) body: Option<String>,
}

impl Ask<'_> {
    /// Asks; gives status and body.
    pub(crate) async fn send(self) -> anyhow::Result<(StatusCode, Bytes)> {
        tokio::time::timeout(PATIENCE, self.exchange()).await.context("no answer in 30 s")?
    }

    async fn exchange(self) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder().method(self.method).uri(self.path).header(HOST, self.host);
        if let Some(authorization) = self.authorization {
            request = request.header("authorization", authorization);
        }
        if self.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::new(Bytes::from(self.body.unwrap_or_default())))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        tokio::pin!(connection, answer);
        tokio::select! {
            done = &mut answer => done,
            ended = &mut connection => {
                ended?;
                answer.await
            }
        }
    }
}
