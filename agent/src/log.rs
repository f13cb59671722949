//! What the app and the agent wrote: into the job's own log at once, and the end of it in memory for the portal, by offset.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use eirene_tunnel::message::MAX_LOG_TEXT;
use tokio::sync::watch;

/// Bytes kept for a portal that was away.
const KEPT: usize = 256 * 1024;

/// The log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Mutex<Inner>>,
    end: watch::Sender<u64>,
}

struct Inner {
    sink: Box<dyn Write + Send>,
    kept: VecDeque<u8>,
    /// Offset just behind the last byte.
    end: u64,
}

impl Log {
    /// A log that writes on to `sink`.
    pub fn new(sink: impl Write + Send + 'static) -> Self {
        let inner = Inner { sink: Box::new(sink), kept: VecDeque::new(), end: 0 };
        Self { inner: Arc::new(Mutex::new(inner)), end: watch::Sender::new(0) }
    }

    /// One sentence of the agent's own.
    pub fn say(&self, sentence: &str) {
        self.write(format!("[eirene] {sentence}\n").as_bytes());
    }

    /// What the app wrote.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // A full home must not end the session; the portal still gets the text.
        let _ = inner.sink.write_all(bytes).and_then(|()| inner.sink.flush());
        inner.kept.extend(bytes);
        let surplus = inner.kept.len().saturating_sub(KEPT);
        inner.kept.drain(..surplus);
        inner.end += bytes.len() as u64;
        self.end.send_replace(inner.end);
    }

    /// Tells when something was written.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// The next piece from `offset` on, with where it begins (later, when what was there is no longer kept) and where it ends.
    pub(crate) fn piece(&self, offset: u64) -> Option<(u64, u64, String)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = inner.end - inner.kept.len() as u64;
        let begin = offset.clamp(oldest, inner.end);
        let skip = usize::try_from(begin - oldest).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = inner.kept.iter().skip(skip).take(MAX_LOG_TEXT).copied().collect();
        if bytes.is_empty() {
            return None;
        }
        // A character must not be cut in two, unless it never ends.
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            _ => bytes.len(),
        };
        Some((begin, begin + whole as u64, String::from_utf8_lossy(&bytes[..whole]).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_characters_stay_whole() {
        let log = Log::new(std::io::sink());
        let text = "aé€😀".repeat(3000);
        log.write(text.as_bytes());
        let (mut offset, mut got) = (0, String::new());
        while let Some((begin, end, piece)) = log.piece(offset) {
            assert_eq!(begin, offset);
            assert!(piece.len() <= MAX_LOG_TEXT);
            got.push_str(&piece);
            offset = end;
        }
        assert_eq!(got, text);
        assert_eq!(*log.subscribe().borrow(), text.len() as u64);
    }

    #[test]
    fn memory_is_bounded_and_what_is_gone_is_passed_over() {
        let log = Log::new(std::io::sink());
        for _ in 0..100 {
            log.write(&[b'x'; 10_000]);
        }
        let (begin, ..) = log.piece(0).unwrap();
        assert_eq!(begin, 1_000_000 - KEPT as u64);
        assert!(log.piece(1_000_000).is_none());
        assert!(log.piece(u64::MAX).is_none());
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_log() {
        let log = Log::new(std::io::sink());
        log.write(&[0xff, 0xfe, b'a', 0xe2]);
        let (_, first, _) = log.piece(0).unwrap();
        log.write(&[0x28]);
        let mut end = first;
        while let Some((_, next, _)) = log.piece(end) {
            assert!(next > end);
            end = next;
        }
        assert_eq!(end, 5);
    }
}
