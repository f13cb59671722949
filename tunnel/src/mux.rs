//! Byte streams over one connection. The portal holds the [`Opener`], the agent the [`Acceptor`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What a peer may make this side keep in memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes a stream may hold that nobody has read yet.
    pub stream_window: u32,
    /// The same for all streams together. It has room for many stalled streams, so that one of them never holds up another.
    pub connection_window: u32,
    /// Bytes a stream may hold that are not sent yet.
    pub send_buffer: u32,
    /// Streams open at once.
    pub max_streams: u32,
    /// Longest frame, bytes.
    pub max_frame: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stream_window: 256 * 1024,
            connection_window: 64 * 1024 * 1024,
            send_buffer: 256 * 1024,
            max_streams: 512,
            max_frame: 64 * 1024,
        }
    }
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Messages, see [`crate::message`]; opened once.
    Control,
    /// Bytes to and from the app's socket.
    App,
}

impl StreamKind {
    fn uri(self) -> &'static str {
        match self {
            Self::Control => "http://tunnel/control",
            Self::App => "http://tunnel/app",
        }
    }

    fn from_path(path: &str) -> Option<Self> {
        match path {
            "/control" => Some(Self::Control),
            "/app" => Some(Self::App),
            _ => None,
        }
    }
}

/// Why a stream could not be opened or accepted.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The connection is gone.
    #[error("the tunnel is closed")]
    Closed,
    /// The connection broke or the peer broke the protocol.
    #[error("the tunnel failed")]
    Failed(#[from] h2::Error),
}

/// The side that opens streams. Cheap to clone; the connection lives in the future that [`Opener::start`] returns beside it.
#[derive(Clone)]
pub struct Opener {
    requests: SendRequest<Bytes>,
    places: Arc<Semaphore>,
    closed: watch::Receiver<bool>,
}

/// Says that the connection is gone, however its driver ended.
struct Closing {
    places: Arc<Semaphore>,
    closed: watch::Sender<bool>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.places.close();
        self.closed.send_replace(true);
    }
}

impl Opener {
    /// Takes a connection whose handshake is over. The returned future moves its bytes and ends with it; spawn it.
    pub async fn start<T>(
        io: T,
        limits: Limits,
    ) -> Result<(Self, impl Future<Output = Result<(), TunnelError>> + Send), TunnelError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window)
            .max_frame_size(limits.max_frame)
            .max_send_buffer_size(limits.send_buffer as usize)
            .max_header_list_size(4 * 1024)
            .enable_push(false)
            .handshake(io)
            .await?;
        let (sender, closed) = watch::channel(false);
        let places = Arc::new(Semaphore::new(limits.max_streams as usize));
        let closing = Closing { places: Arc::clone(&places), closed: sender };
        let driver = async move {
            let _closing = closing;
            connection.await.map_err(TunnelError::from)
        };
        Ok((Self { requests, places, closed }, driver))
    }

    /// Opens a stream; waits while the most streams allowed are open, so set a deadline. The stream can be used at once: a peer that cannot serve it
    /// resets it, which reads show.
    pub async fn open(&self, kind: StreamKind) -> Result<TunnelStream, TunnelError> {
        // What the peer allows is not enough: it could allow none and let the waiting ones pile up.
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| TunnelError::Closed)?;
        let mut requests = self.requests.clone().ready().await?;
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(kind.uri());
        let (response, send) = requests.send_request(request, false)?;
        Ok(TunnelStream { receive: Receive::Opening(response), send, rest: Bytes::new(), _place: Some(place) })
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the connection is gone.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        // An error means the same: the driver is gone.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

/// The side that accepts streams, and whose [`Acceptor::accept`] moves all bytes of the connection: call it in a loop.
pub struct Acceptor<T> {
    connection: h2::server::Connection<T, Bytes>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Acceptor<T> {
    /// Takes a connection whose handshake is over.
    pub async fn start(io: T, limits: Limits) -> Result<Self, TunnelError> {
        let connection = h2::server::Builder::new()
            .initial_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window)
            .max_frame_size(limits.max_frame)
            .max_concurrent_streams(limits.max_streams)
            .max_send_buffer_size(limits.send_buffer as usize)
            .max_header_list_size(4 * 1024)
            .handshake(io)
            .await?;
        Ok(Self { connection })
    }

    /// The next stream; `None` when the connection has ended.
    pub async fn accept(&mut self) -> Result<Option<(StreamKind, TunnelStream)>, TunnelError> {
        while let Some(accepted) = self.connection.accept().await {
            let (request, mut respond) = accepted?;
            let Some(kind) = StreamKind::from_path(request.uri().path()) else {
                respond.send_reset(Reason::REFUSED_STREAM);
                continue;
            };
            let send = respond.send_response(Response::new(()), false)?;
            return Ok(Some((
                kind,
                TunnelStream { receive: Receive::Open(request.into_body()), send, rest: Bytes::new(), _place: None },
            )));
        }
        Ok(None)
    }

    /// Sends what is still to be sent and closes the connection; wait for [`Acceptor::accept`] to give `None`.
    pub fn shut_down(&mut self) {
        self.connection.graceful_shutdown();
    }
}

enum Receive {
    Opening(ResponseFuture),
    Open(RecvStream),
}

/// One byte stream. Shutting it down ends this direction alone; dropping it ends both.
pub struct TunnelStream {
    receive: Receive,
    send: SendStream<Bytes>,
    /// Received and not yet read; its window is given back as it is read.
    rest: Bytes,
    /// Its place among the most streams allowed, on the side that opened it.
    _place: Option<OwnedSemaphorePermit>,
}

fn broken(error: h2::Error) -> io::Error {
    if error.is_io() {
        return error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
    }
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.receive {
                Receive::Opening(response) => {
                    let response = ready!(Pin::new(response).poll(cx)).map_err(broken)?;
                    this.receive = Receive::Open(response.into_body());
                }
                Receive::Open(receive) => {
                    if this.rest.is_empty() {
                        match ready!(receive.poll_data(cx)) {
                            None => return Poll::Ready(Ok(())),
                            Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(Ok(())),
                            Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                            Some(Ok(bytes)) => this.rest = bytes,
                        }
                        if this.rest.is_empty() {
                            continue;
                        }
                    }
                    let taken = this.rest.len().min(buffer.remaining());
                    buffer.put_slice(&this.rest[..taken]);
                    this.rest.advance(taken);
                    receive.flow_control().release_capacity(taken).map_err(broken)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(bytes.len());
        loop {
            match ready!(self.send.poll_capacity(cx)) {
                // Capacity can shrink to nothing between the wake-up and now.
                Some(Ok(0)) => {}
                Some(Ok(room)) => {
                    let taken = room.min(bytes.len());
                    self.send.send_data(Bytes::copy_from_slice(&bytes[..taken]), false).map_err(broken)?;
                    return Poll::Ready(Ok(taken));
                }
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.send.send_data(Bytes::new(), true) {
            // Already ended from either side: nothing is left to end.
            Err(error) if error.is_reset() || error.is_go_away() || error.is_io() => Poll::Ready(Err(broken(error))),
            _ => Poll::Ready(Ok(())),
        }
    }
}
