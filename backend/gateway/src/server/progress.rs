//! A connection on which a write that gets nowhere ends it, and a long head waits for its turn.
//!
//! Whoever asks for much and reads nothing would keep a connection and its buffers for good. One that is quiet has no
//! write that waits, so an idle WebSocket or event stream is left alone. A head of a request is kept in memory until its end has come, so few
//! connections at once may have a long one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use eirene_http::crowd::Standing;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::PollSemaphore;

/// What is read of a request before its head counts as long.
pub(super) const LONG_HEAD: usize = 128 * 1024;

/// The connection.
pub(super) struct Progress<S> {
    stream: S,
    patience: Duration,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
    standing: Standing,
    /// How many requests had come when something was last read, and how much was read since.
    heard: (u64, usize),
    turn: PollSemaphore,
    /// Held by a long head.
    has_turn: Option<OwnedSemaphorePermit>,
}

impl<S> Progress<S> {
    /// `stream`, on which a write may wait for `patience` until any of it gets on.
    pub(super) fn new(stream: S, patience: Duration, standing: Standing) -> Self {
        let turn = PollSemaphore::new(Arc::clone(standing.long_heads()));
        Self { stream, patience, deadline: None, standing, heard: (0, 0), turn, has_turn: None }
    }

    /// Comes when more may be read: at once, but for a long head.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let requests = self.standing.requests();
        if requests != self.heard.0 || self.standing.is_busy() {
            // What comes now is the body, or the next head.
            (self.heard, self.has_turn) = ((requests, 0), None);
        }
        if self.heard.1 >= LONG_HEAD && self.has_turn.is_none() {
            // It is never closed.
            self.has_turn = std::task::ready!(self.turn.poll_acquire(cx));
        }
        Poll::Ready(())
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.deadline = None;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Progress<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_turn(cx));
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.heard.1 = self.heard.1.saturating_add(buffer.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progress<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // A socket has nothing of its own to flush, and its end is not waited for: neither says that bytes got on.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use eirene_http::crowd::{Crowd, Guest, Most};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use futures_util::FutureExt as _;

    use super::*;

    fn guest(crowd: &Crowd) -> Guest {
        crowd.admit(None).unwrap()
    }

    #[tokio::test]
    async fn a_long_head_waits_for_its_turn_and_a_body_does_not() {
        let crowd = Crowd::new(Most { in_all: 9, of_one: 9, long_heads: 1 });
        let guests = [guest(&crowd), guest(&crowd)];
        let [first, second] = guests.each_ref().map(|guest| {
            let (ours, theirs) = tokio::io::duplex(4 * LONG_HEAD);
            (Progress::new(ours, Duration::from_secs(9), guest.standing()), theirs)
        });
        let ((mut first, mut sends), (mut second, mut also_sends)) = (first, second);
        let (mut some, mut more, mut also_more) = (vec![0; LONG_HEAD], [0; 100], [0; 100]);
        sends.write_all(&vec![0; LONG_HEAD + 200]).await.unwrap();
        also_sends.write_all(&vec![0; LONG_HEAD + 200]).await.unwrap();
        for stream in [&mut first, &mut second] {
            stream.read_exact(&mut some).await.unwrap();
        }
        first.read_exact(&mut more).await.unwrap();
        let mut waits = std::pin::pin!(second.read_exact(&mut also_more));
        assert!(waits.as_mut().now_or_never().is_none(), "the other has the turn");
        // The first one's head has come to its end.
        let request = guests[0].standing().begin();
        first.read_exact(&mut [0; 100]).await.unwrap();
        waits.await.unwrap();
        drop(request);
        assert_eq!(crowd.long_heads().available_permits(), 0);
        guests[1].standing().begin().upgrade();
        second.read_exact(&mut [0; 100]).await.unwrap();
        assert_eq!(crowd.long_heads().available_permits(), 1, "a WebSocket has no head");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_gets_nowhere_fails_and_one_that_gets_on_begins_anew() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let guest = guest(&Crowd::new(Most { in_all: 1, of_one: 1, long_heads: 1 }));
        let mut progress = Progress::new(ours, Duration::from_millis(50), guest.standing());
        progress.write_all(&[0; 8]).await.unwrap();
        assert!(progress.deadline.is_none(), "nothing waits");
        let waits = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut progress).poll_write(cx, &[0]))).await;
        assert!(waits.is_pending() && progress.deadline.is_some());
        theirs.read_exact(&mut [0; 8]).await.unwrap();
        progress.write_all(&[0; 8]).await.unwrap();
        assert!(progress.deadline.is_none(), "it got on");
        let error = progress.write_all(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
