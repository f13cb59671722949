//! Reads the JSON of an answer while it arrives, off the async threads, so that a long list is never in memory as a whole.

use std::io::{self, Read};

use eirene_core::scheduler::{SchedulerError, SchedulerResult};
use reqwest::Response;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Receiver, channel};

/// Pieces of the body that may wait to be read.
const PIECES: usize = 16;

/// The value of an answer of at most `most_bytes`. An answer that breaks off is lost; one that is whole and no such value is not
/// understood.
pub(crate) async fn decode<T: DeserializeOwned + Send + 'static>(
    mut response: Response,
    most_bytes: usize,
    what: &str,
) -> SchedulerResult<T> {
    let (sender, pieces) = channel(PIECES);
    let reading = tokio::task::spawn_blocking(move || {
        serde_json::from_reader(Incoming { pieces, current: None, at: 0 }).map_err(|error| error.to_string())
    });
    let mut bytes = 0_usize;
    while let Some(piece) = response.chunk().await.map_err(|source| lost(source, what))? {
        bytes = bytes.saturating_add(piece.len());
        if bytes > most_bytes {
            return Err(SchedulerError::Malformed { what: format!("{what}: the answer is too large") });
        }
        if sender.send(piece).await.is_err() {
            // The reader has seen enough to give up, and says why.
            break;
        }
    }
    drop(sender);
    reading
        .await
        .map_err(|source| SchedulerError::Unreachable { what: what.to_owned(), source: Some(Box::new(source)) })?
        .map_err(|error| SchedulerError::Malformed { what: format!("{what}: {error}") })
}

/// A request without an answer.
pub(crate) fn lost(source: reqwest::Error, what: &str) -> SchedulerError {
    SchedulerError::Unreachable { what: what.to_owned(), source: Some(Box::new(source.without_url())) }
}

/// The body's pieces as a blocking reader.
struct Incoming<B> {
    pieces: Receiver<B>,
    current: Option<B>,
    at: usize,
}

impl<B: AsRef<[u8]>> Read for Incoming<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(piece) = &self.current {
                let rest = piece.as_ref().get(self.at..).unwrap_or_default();
                if !rest.is_empty() {
                    let count = rest.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&rest[..count]);
                    self.at += count;
                    return Ok(count);
                }
            }
            self.current = self.pieces.blocking_recv();
            self.at = 0;
            if self.current.is_none() {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_read_as_one_text() {
        let (sender, pieces) = channel(8);
        for piece in ["[1", "", ",2", "3]", ""] {
            sender.send(piece.to_owned()).await.unwrap();
        }
        drop(sender);
        let reading = tokio::task::spawn_blocking(|| {
            serde_json::from_reader::<_, Vec<u32>>(Incoming { pieces, current: None, at: 0 }).unwrap()
        });
        assert_eq!(reading.await.unwrap(), [1, 23]);
    }
}
