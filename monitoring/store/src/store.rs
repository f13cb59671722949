//! The store's face: [`Store`], what it can be told ([`Options`]) and what can go wrong ([`StoreError`]).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::open::Open;
use crate::query::{self, Answer, Query, SeriesSpan};
use crate::recovery;
use crate::refusal::{Counters, Refusal};
use crate::writer::{Writer, lock};

/// Longest name of a series, bytes: its length is one byte in files.
pub const MOST_NAME_BYTES: usize = 255;
/// What is farther from zero is refused; no unit that is sampled goes there, and sums of it are still numbers.
pub const MOST_VALUE: f64 = 1e30;
/// How much a node's clock may be ahead of ours, milliseconds.
pub const MOST_AHEAD_MS: i64 = 5 * 60_000;
/// How old a sample may be when it comes, milliseconds: a tunnel was away that long.
pub const MOST_BEHIND_MS: i64 = 60 * 60_000;

/// The least bound of the disk, bytes.
const LEAST_DISK_BYTES: u64 = 1 << 20;
/// The least that records may take before the disk has them, bytes.
const LEAST_PENDING_BYTES: usize = 8 << 20;
/// What becomes one frame of the journal takes little more than this at the most, bytes: its length is four bytes there.
const MOST_FRAME_BYTES: usize = 1 << 30;
const DAY_MS: i64 = 86_400_000;

/// A session, by the bytes of its UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

/// One sample of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'a> {
    /// Its series, such as `c1/gpu/0/util`: printable ASCII without blanks.
    pub name: &'a str,
    /// Milliseconds since the epoch, by the clock of the node.
    pub at_ms: i64,
    /// In the series' own unit.
    pub value: f64,
}

/// How much of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the disk that all files together may take; 1 MiB at least.
    pub disk_bytes: u64,
    /// Milliseconds that samples are kept.
    pub raw_ms: i64,
    /// Milliseconds that minutes are kept.
    pub minutes_ms: i64,
    /// Milliseconds after which chunks are closed: longer ones need less room.
    pub seal_ms: i64,
    /// Milliseconds that a sample may be older than the latest of its series.
    pub late_ms: i64,
    /// Bytes of memory for open chunks, an eighth of the disk's at most; while they are closed it is twice that. Half of it is for series, which take
    /// 256 bytes and their names each, the rest for their samples.
    pub memory_bytes: usize,
    /// Sessions that may be open in memory.
    pub sessions: usize,
    /// Series of one session.
    pub series_per_session: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            disk_bytes: 2 << 30,
            raw_ms: 7 * DAY_MS,
            minutes_ms: 13 * 31 * DAY_MS,
            seal_ms: 2 * 60 * 60_000,
            late_ms: 10 * 60_000,
            memory_bytes: 256 << 20,
            sessions: 4096,
            series_per_session: 4096,
        }
    }
}

impl Options {
    /// The most of all journals before chunks are closed: what they become must fit beside them, and a start reads them.
    pub(crate) fn journal_bytes(&self) -> u64 {
        (self.disk_bytes / 8).min(4 * self.memory_bytes as u64)
    }

    /// The most that what stays open may take of the next journal; more is closed with the rest.
    pub(crate) fn kept_bytes(&self) -> usize {
        usize::try_from(self.journal_bytes() / 2).unwrap_or(usize::MAX).min(MOST_FRAME_BYTES)
    }

    /// The most that records take while the disk does not have them yet: of the time that closing takes, or of a disk that is away.
    pub(crate) fn pending_bytes(&self) -> usize {
        (self.memory_bytes / 8).clamp(LEAST_PENDING_BYTES, MOST_FRAME_BYTES)
    }

    fn check(&self) -> Result<Self, StoreError> {
        let refuse = |what| Err(StoreError::Options { what });
        if self.disk_bytes < LEAST_DISK_BYTES {
            return refuse("the disk's bound has to be 1 MiB at least");
        }
        if self.raw_ms <= 0 || self.minutes_ms < self.raw_ms {
            return refuse("minutes have to be kept as long as samples at least");
        }
        if self.seal_ms <= 0 || !(0..=MOST_BEHIND_MS).contains(&self.late_ms) {
            return refuse("chunks have to be closed, and late samples to come within an hour");
        }
        if self.memory_bytes == 0 || self.sessions == 0 || self.series_per_session == 0 {
            return refuse("memory, sessions and series have to be one at least");
        }
        // Open chunks become a segment, which must fit as well.
        let memory_bytes = self.memory_bytes.min(usize::try_from(self.disk_bytes / 8).unwrap_or(usize::MAX));
        Ok(Self { memory_bytes, ..self.clone() })
    }
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process, or this one, has the directory open.
    #[error("the store in `{}` is open already: end the other process first", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// An option makes no sense.
    #[error("{what}")]
    Options {
        /// Which, and what would.
        what: &'static str,
    },
    /// The bound of the disk leaves no room, with everything removed that may be.
    #[error("no room for {needed} bytes: {used} of {bound} are used; raise the bound")]
    Full {
        /// Bytes that were to be written.
        needed: u64,
        /// Bytes that are used.
        used: u64,
        /// The bound.
        bound: u64,
    },
    /// The operating system refused something.
    #[error("`{}` cannot be used", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A query's span is empty or ends before it begins.
    #[error("the span of the query is empty")]
    Span,
    /// An answer or a part of a file would be larger than anything needs.
    #[error("too many points: ask for fewer, for fewer series or for a shorter span")]
    TooLarge,
}

/// What the store holds and has refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Bytes of open chunks.
    pub memory_bytes: usize,
    /// Sessions, series and samples that are open.
    pub sessions: usize,
    /// Open series.
    pub series: usize,
    /// Open samples.
    pub samples: u64,
    /// Files of closed samples and minutes.
    pub segments: usize,
    /// How often a file, or a part of one, was found broken or cut since the start.
    pub damage: u64,
    /// Samples that were refused since the start, by reason.
    pub refused: Vec<(Refusal, u64)>,
}

/// A store of samples in a directory of its own. All calls can be made from any thread; [`Store::append`] never waits for the disk.
#[derive(Debug)]
pub struct Store {
    options: Options,
    open: Arc<Mutex<Open>>,
    writer: Mutex<Writer>,
    refused: Counters,
    /// Held until the store is dropped.
    _lock: File,
}

impl Store {
    /// Opens the store in `path`, which is made if need be, and reads what the last process left. The directory is closed to other users.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while somebody else has it open, [`StoreError::Options`], [`StoreError::Io`].
    pub fn open(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let options = options.check()?;
        let (writer, lock) = recovery::start(path, &options)?;
        let open = Arc::clone(&writer.open);
        Ok(Self { options, open, writer: Mutex::new(writer), refused: Counters::default(), _lock: lock })
    }

    /// Takes samples of a session; gives how many were taken. The others are counted by reason. They are seen by queries at once, and
    /// survive a crash from the next [`Store::flush`] on.
    /// While [`Store::maintain`] sets aside what it closes this waits, of very many series for seconds: it is not for a thread that serves others.
    pub fn append(&self, now_ms: i64, session: SessionId, samples: &[Sample<'_>]) -> usize {
        let mut open = lock(&self.open);
        let mut taken = 0;
        for sample in samples {
            match open.take(now_ms, session, sample, &self.options) {
                Ok(()) => taken += 1,
                Err(refusal) => self.refused.count(refusal),
            }
        }
        taken
    }

    /// Returns once the disk has all that was taken. After an error it can be called again.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`].
    pub fn flush(&self) -> Result<(), StoreError> {
        lock(&self.writer).flush()
    }

    /// Does what has to be done now and then, a bounded part of it: closes chunks, removes what is too old, joins small files. To be called
    /// every few seconds, after [`Store::flush`].
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`]; nothing is lost, and the next call goes on.
    pub fn maintain(&self, now_ms: i64) -> Result<(), StoreError> {
        lock(&self.writer).maintain(now_ms)
    }

    /// Closes all chunks, so that nothing but segments is left: before a backup of the directory.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`].
    pub fn close_chunks(&self, now_ms: i64) -> Result<(), StoreError> {
        lock(&self.writer).close_all(now_ms)
    }

    /// Answers a query. A session or series that is not known has no lines.
    ///
    /// # Errors
    /// [`StoreError::Span`], [`StoreError::TooLarge`], [`StoreError::Io`].
    pub fn query(&self, query: &Query<'_>) -> Result<Answer, StoreError> {
        query::answer(&self.open, query)
    }

    /// The series of a session by name, with their first and last times.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn series(&self, session: SessionId) -> Result<Vec<SeriesSpan>, StoreError> {
        query::series(&self.open, session)
    }

    /// Forgets a session: nobody is shown anything of it from now on, also after a crash. Its bytes leave the disk in the next rounds of
    /// [`Store::maintain`], those in the journal when chunks are closed.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::Io`]: it may come back after a crash, so this has to be called again.
    pub fn drop_session(&self, session: SessionId) -> Result<(), StoreError> {
        lock(&self.writer).drop_session(session)
    }

    /// How much there is.
    pub fn stats(&self) -> Stats {
        let (disk_bytes, damage) = {
            let writer = lock(&self.writer);
            (writer.disk.used(), writer.damage)
        };
        let open = lock(&self.open);
        let load = open.load();
        Stats {
            disk_bytes,
            memory_bytes: load.heads + load.bits,
            sessions: open.session_count(),
            series: open.series_count(),
            samples: open.samples(),
            segments: open.segments.len(),
            damage,
            refused: self.refused.all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_s_length_fits_into_its_head_however_much_memory_there_is() {
        let options = Options { memory_bytes: 128 << 30, disk_bytes: 1 << 40, ..Options::default() }.check().unwrap();
        assert_eq!((options.kept_bytes(), options.pending_bytes()), (MOST_FRAME_BYTES, MOST_FRAME_BYTES));
        let options = Options { memory_bytes: 1 << 20, ..Options::default() }.check().unwrap();
        assert_eq!((options.kept_bytes(), options.pending_bytes()), (2 << 20, LEAST_PENDING_BYTES));
    }
}
