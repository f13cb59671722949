//! Bytes on their way out of a person's process: as many as were promised, or an end that nobody takes for one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use eirene_files_protocol::{Answer, Outcome};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Transfer;
use crate::error::AppError;
use crate::error::files::FilesTrouble;
use crate::file_processes::{Event, Request};

/// Most bytes taken at once; so many are held for each transfer.
const CHUNK: usize = 256 * 1024;
/// How long the process may bring nothing.
const QUIET: Duration = Duration::from_mins(1);

/// The bytes did not all come, or cannot be told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file was not read to its end")]
pub struct BrokenOff;

/// Bytes of a file or an archive. Dropped, the process stops reading.
#[derive(Debug)]
pub struct Outflow {
    stream: UnixStream,
    request: Request,
    outcome: Option<Outcome>,
    /// How many are still to come, where that was said.
    left: Option<u64>,
    buffer: BytesMut,
    over: bool,
    /// What the process said was wrong, if it did.
    trouble: Option<FilesTrouble>,
    _place: Transfer,
}

impl Outflow {
    /// What comes through `stream` for `request`; so many bytes, where that is known.
    pub(super) fn new(request: Request, stream: UnixStream, left: Option<u64>, place: Transfer) -> Self {
        Self {
            stream,
            request,
            outcome: None,
            left,
            buffer: BytesMut::new(),
            over: false,
            trouble: None,
            _place: place,
        }
    }

    /// The same, once the first bytes have come: a request that fails before them is an answer, not a broken one.
    pub(super) async fn begun(mut self) -> Result<(Self, Bytes), AppError> {
        match self.fill().await {
            Ok(first) if !first.is_empty() => Ok((self, first)),
            _ => {
                self.over = true;
                match self.last_word().await? {
                    Outcome::Problem(problem) => Err(problem.into()),
                    Outcome::Done(_) => Err(super::wrong_answer()),
                }
            }
        }
    }

    /// The first bytes of so many, and the rest: what fails before them is an answer.
    pub(super) async fn first(mut self) -> Result<(Option<Bytes>, Self), AppError> {
        match self.next().await {
            Some(Ok(first)) => Ok((Some(first), self)),
            None => Ok((None, self)),
            Some(Err(BrokenOff)) => Err(self.trouble.take().unwrap_or_else(|| FilesTrouble::away(1)).into()),
        }
    }

    /// The next bytes; none after the last of them. The last come only when the process has said that all is well: whoever gets fewer than
    /// were promised knows that they are not the file.
    pub async fn next(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        if self.over {
            return None;
        }
        let chunk = match self.fill().await {
            Ok(chunk) => chunk,
            Err(error) => return Some(self.broken(&error)),
        };
        // Others have their turn, too: where both sides are fast, a connection would be served without an end.
        tokio::task::yield_now().await;
        let left = self.left.map(|left| left.checked_sub(chunk.len() as u64));
        match left {
            // More than it said.
            Some(None) => return Some(self.broken(&"it sent more than it said")),
            Some(Some(left)) => self.left = Some(left),
            None => {}
        }
        if !chunk.is_empty() && self.left != Some(0) {
            return Some(Ok(chunk));
        }
        match self.last_word().await {
            Ok(Outcome::Done(Answer::Written { .. })) if self.left.is_none_or(|left| left == 0) => {
                self.over = true;
                (!chunk.is_empty()).then_some(Ok(chunk))
            }
            Ok(Outcome::Problem(problem)) => {
                self.trouble = Some(problem.into());
                Some(self.broken(&"it ran into a problem"))
            }
            Ok(Outcome::Done(_)) => Some(self.broken(&"it says that it is done, and is not")),
            Err(error) => Some(self.broken(&error)),
        }
    }

    fn broken(&mut self, why: &dyn std::fmt::Display) -> Result<Bytes, BrokenOff> {
        self.over = true;
        tracing::debug!(%why, "a transfer broke off");
        Err(BrokenOff)
    }

    /// Bytes, or none at the end of the stream.
    async fn fill(&mut self) -> Result<Bytes, AppError> {
        self.buffer.reserve(CHUNK);
        let Self { stream, request, outcome, buffer, .. } = self;
        let reading = async {
            loop {
                tokio::select! {
                    read = stream.read_buf(buffer) => return read.map_err(|_| FilesTrouble::away(1).into()),
                    // What is said meanwhile is not left to pile up.
                    event = request.next(), if outcome.is_none() => match event? {
                        Event::Outcome(said) => *outcome = Some(said),
                        Event::Part(_) | Event::Progress(_) => {}
                    },
                }
            }
        };
        let read: Result<usize, AppError> = timeout(QUIET, reading).await.unwrap_or(Err(FilesTrouble::away(1).into()));
        read?;
        Ok(self.buffer.split().freeze())
    }

    async fn last_word(&mut self) -> Result<Outcome, AppError> {
        loop {
            if let Some(outcome) = self.outcome.take() {
                return Ok(outcome);
            }
            if let Event::Outcome(outcome) = self.request.next_in_time().await? {
                self.outcome = Some(outcome);
            }
        }
    }
}
