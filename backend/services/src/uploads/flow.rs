//! Bytes from a sender into a person's file process: one piece in hand at a time, no faster than the storage takes them, and no longer than
//! somebody sends.

use std::time::Duration;

use bytes::Bytes;
use eirene_files_protocol::{Answer, Outcome, Problem};
use futures_util::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::file_processes::{Event, FilesError, Request};

/// Bytes that are read and thrown away, at most, so that their sender hears why they were not wanted.
const MOST_DISCARDED: usize = 4 * 1024 * 1024;
/// How long that may take.
const DISCARDING: Duration = Duration::from_secs(5);
/// Seconds after which it is worth asking a storage again that took nothing.
const RETRY_AFTER_S: u64 = 10;
/// Into so many parts a wait is cut, so that whoever watches hears that it is being waited.
const PARTS: u32 = 3;

/// How long nothing may move.
#[derive(Debug, Clone, Copy)]
pub struct Quiet {
    /// From the sender, and into the storage.
    pub bytes: Duration,
    /// After the last byte, until the storage has it for certain.
    pub last_word: Duration,
}

impl Default for Quiet {
    fn default() -> Self {
        Self { bytes: Duration::from_mins(1), last_word: Duration::from_secs(50) }
    }
}

/// How the bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All came.
    Whole,
    /// The sender has gone, or sends no more.
    Short,
    /// The process takes no more: its last word says why.
    Refused,
    /// The storage takes nothing.
    Stuck,
}

/// Sends all of `body` through the stream. What the process says to it, and whether all of the body came.
pub(super) async fn feed<B, E>(
    mut request: Request,
    stream: UnixStream,
    body: &mut B,
    moved: &(impl Fn() + Send + Sync),
    quiet: Quiet,
) -> Result<(Result<Answer, Problem>, bool), FilesError>
where
    B: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Send,
{
    let mut end = None;
    let outcome = {
        let pumping = pump(stream, &mut *body, moved, quiet.bytes);
        let patience = sleep(quiet.last_word);
        tokio::pin!(pumping, patience);
        loop {
            tokio::select! {
                // Its end of the stream is closed with it: the process hears that no more comes.
                ended = &mut pumping, if end.is_none() => {
                    if ended == End::Stuck {
                        return Err(FilesError::Away { retry_after_s: RETRY_AFTER_S });
                    }
                    moved();
                    patience.as_mut().reset(Instant::now() + quiet.last_word);
                    end = Some(ended);
                }
                event = request.next() => {
                    if let Event::Outcome(outcome) = event? {
                        break outcome;
                    }
                }
                () = &mut patience, if end.is_some() => {
                    return Err(FilesError::Away { retry_after_s: RETRY_AFTER_S });
                }
            }
        }
    };
    if matches!(end, None | Some(End::Refused)) {
        discard(body).await;
    }
    let outcome = match outcome {
        Outcome::Done(answer) => Ok(answer),
        Outcome::Problem(problem) => Err(problem),
    };
    Ok((outcome, end != Some(End::Short)))
}

async fn pump<B, E>(mut stream: UnixStream, body: &mut B, moved: &(impl Fn() + Send + Sync), quiet: Duration) -> End
where
    B: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Send,
{
    loop {
        let mut next = None;
        for _ in 0..PARTS {
            next = timeout(quiet / PARTS, body.next()).await.ok();
            moved();
            if next.is_some() {
                break;
            }
        }
        let bytes = match next {
            Some(Some(Ok(bytes))) => bytes,
            Some(None) => return End::Whole,
            Some(Some(Err(_))) | None => return End::Short,
        };
        // Others have their turn, too: where both sides are fast, a connection would be served without an end.
        tokio::task::yield_now().await;
        match timeout(quiet, stream.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::Refused,
            Err(_) => return End::Stuck,
        }
    }
}

/// Reads what nobody wants, up to a limit: whoever still sends does not hear the answer.
pub async fn discard<B, E>(body: &mut B)
where
    B: Stream<Item = Result<Bytes, E>> + Send + Unpin,
{
    let discarding = async {
        let mut seen = 0_usize;
        while let Some(Ok(bytes)) = body.next().await {
            seen = seen.saturating_add(bytes.len());
            if seen > MOST_DISCARDED {
                break;
            }
        }
    };
    // What takes longer is not waited for; the connection is closed then.
    let _ = timeout(DISCARDING, discarding).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream;

    use super::*;

    const QUIET: Duration = Duration::from_millis(60);

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_sends_nothing_is_let_go() {
        let (near, _far) = pair();
        let asked = AtomicUsize::new(0);
        let mut body = stream::pending::<Result<Bytes, Infallible>>();
        let moved = || asked.store(asked.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        assert_eq!(pump(near, &mut body, &moved, QUIET).await, End::Short);
        assert_eq!(asked.load(Ordering::SeqCst), PARTS as usize, "whoever watches hears that it is waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_takes_nothing_is_waited_for_with_one_piece_in_hand() {
        let (near, _far) = pair();
        let taken = AtomicUsize::new(0);
        let piece = Bytes::from(vec![7; 1 << 20]);
        let mut body = stream::repeat_with(|| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(piece.clone())
        });
        assert_eq!(pump(near, &mut body, &|| {}, QUIET).await, End::Stuck);
        assert!(taken.load(Ordering::SeqCst) <= 2, "nothing is taken that cannot be given on");
    }

    #[tokio::test]
    async fn a_process_that_closes_its_end_is_heard() {
        let (near, far) = pair();
        drop(far);
        let mut body = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"x")));
        assert_eq!(pump(near, &mut body, &|| {}, QUIET).await, End::Refused);
    }

    #[tokio::test]
    async fn not_everything_that_nobody_wants_is_read() {
        let taken = AtomicUsize::new(0);
        let mut body = stream::repeat_with(|| {
            taken.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Bytes::from(vec![0; 1 << 20]))
        });
        discard(&mut body).await;
        assert_eq!(taken.load(Ordering::SeqCst), (MOST_DISCARDED >> 20) + 1);
    }
}
