//! The way to an app: byte streams through the agents' tunnels, in production; something else where the proxy is tested
//! or measured alone.

use eirene_core::SessionId;
use eirene_services::agents::{NoTunnel, TunnelRegistry};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// Bytes to and from an app.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

/// Where streams to apps come from.
pub trait Upstreams: Send + Sync + 'static {
    /// Opens a stream to the session's app.
    fn open(&self, session: SessionId) -> BoxFuture<'_, Result<Box<dyn ByteStream>, NoTunnel>>;

    /// Cancelled when the session's streams have to end.
    fn revoked(&self, session: SessionId) -> CancellationToken;
}

impl Upstreams for TunnelRegistry {
    fn open(&self, session: SessionId) -> BoxFuture<'_, Result<Box<dyn ByteStream>, NoTunnel>> {
        Box::pin(async move {
            let stream: Box<dyn ByteStream> = Box::new(self.open_app(session).await?);
            Ok(stream)
        })
    }

    fn revoked(&self, session: SessionId) -> CancellationToken {
        Self::revoked(self, session)
    }
}
