//! Everything that writes: flushes, the closing of chunks, and making room. One thread at a time does; queries and appends go on meanwhile,
//! for what changes is handed to them whole ([`Open`]).
//!
//! The order of writes is what makes a crash harmless. Closing chunks: (1) the next journal has what is kept open; (2) the minutes have
//! their name; (3) the samples have theirs, from which on the old journals are not needed; (4) those are removed. A start that finds the old
//! journals without the samples removes the minutes and reads the journals ([`crate::recovery`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::BlockBuilder;
use crate::disk::{Disk, FileName, Kind};
use crate::dropped::{self, Dropped};
use crate::journal::Journal;
use crate::open::{Frozen, Open};
use crate::rollup::minutes;
use crate::segment::{Segment, SegmentWriter, name};
use crate::{Options, SessionId, StoreError};

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// Journals that wait to be closed, from starts that followed each other quickly.
const MOST_JOURNALS: u64 = 4;

/// Segments in order, as queries see them.
pub(crate) type Segments = Vec<Arc<Segment>>;

/// What the writing thread has.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) disk: Disk,
    pub(crate) open: Arc<Mutex<Open>>,
    pub(crate) options: Options,
    /// The one that is written, once it is.
    pub(crate) journal: Option<Journal>,
    pub(crate) current: u64,
    /// The first whose samples are open.
    pub(crate) lowest: u64,
    /// Those before, and their bytes.
    pub(crate) journals: BTreeMap<u64, u64>,
    /// A frame that could not be written yet.
    pub(crate) unwritten: Vec<u8>,
    pub(crate) sealed_at: Option<i64>,
    /// Files that were set aside, and their bytes.
    pub(crate) broken: Vec<(String, u64)>,
    /// How often something in a file was found to be broken.
    pub(crate) damage: u64,
}

impl Writer {
    pub(crate) fn shared(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    /// Has the disk hold all that was taken.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        // The frame that failed before, and the one since then.
        for _ in 0..2 {
            if self.unwritten.is_empty() {
                let pending = self.shared().take_pending();
                self.unwritten = pending;
            }
            if self.unwritten.is_empty() {
                return Ok(());
            }
            self.room(Journal::cost(self.unwritten.len()))?;
            let journal = match &mut self.journal {
                Some(journal) => journal,
                none => none.insert(Journal::create(&mut self.disk, self.current)?),
            };
            journal.write(&mut self.disk, &self.unwritten)?;
            self.unwritten = Vec::new();
        }
        Ok(())
    }

    /// One round of everything that is not urgent.
    pub(crate) fn maintain(&mut self, now_ms: i64) -> Result<(), StoreError> {
        self.write_frozen()?;
        if let Some(cut) = self.due(now_ms) {
            self.seal(cut, now_ms)?;
        }
        self.expire(now_ms)?;
        self.rewrite_one()?;
        self.merge_one(Kind::Raw)?;
        self.merge_one(Kind::Minutes)
    }

    /// Up to which time chunks are to be closed now, if they are.
    fn due(&mut self, now_ms: i64) -> Option<i64> {
        let since = now_ms.saturating_sub(*self.sealed_at.get_or_insert(now_ms));
        let (bytes, samples) = {
            let open = self.shared();
            (open.bytes(), open.samples())
        };
        if samples == 0 {
            return None;
        }
        let late = self.options.late_ms;
        let on_disk = self.journals.values().sum::<u64>() + self.journal.as_ref().map_or(0, Journal::length);
        let full = bytes > self.options.memory_bytes / 2 || on_disk >= self.options.journal_bytes();
        let many = self.current - self.lowest >= MOST_JOURNALS;
        // When what waits for late samples is itself too much, nothing waits.
        if many || (full && since < late.saturating_mul(2)) {
            return Some(i64::MAX);
        }
        // A clock that was set back starts again.
        (full || since >= self.options.seal_ms || since < 0).then(|| now_ms.saturating_sub(late))
    }

    /// Closes all chunks, whatever may still come late.
    pub(crate) fn close_all(&mut self, now_ms: i64) -> Result<(), StoreError> {
        self.write_frozen()?;
        if self.shared().samples() > 0 { self.seal(i64::MAX, now_ms) } else { Ok(()) }
    }

    /// Closes chunks up to `cut`.
    fn seal(&mut self, cut: i64, now_ms: i64) -> Result<(), StoreError> {
        let (lowest, current, late_ms) = (self.lowest, self.current, self.options.late_ms);
        let idle = now_ms.saturating_sub(late_ms.max(crate::MOST_BEHIND_MS));
        let frozen = {
            let mut open = self.shared();
            open.freeze(cut, idle, lowest, current, late_ms);
            open.frozen.is_some()
        };
        // What it had is either frozen or at the begin of the next journal.
        self.unwritten = Vec::new();
        if let Some(journal) = self.journal.take() {
            self.journals.insert(current, journal.length());
        }
        self.current += 1;
        if frozen {
            self.lowest = self.current;
        }
        self.sealed_at = Some(now_ms);
        self.flush()?;
        self.write_frozen()
    }

    /// Writes what is frozen as segments; then its journals go.
    fn write_frozen(&mut self) -> Result<(), StoreError> {
        let (frozen, dropped) = {
            let open = self.shared();
            let Some(frozen) = open.frozen.clone() else { return Ok(()) };
            (frozen, Arc::clone(&open.dropped))
        };
        // The next journal may not have been written yet, if that failed before.
        self.flush()?;
        let written = self.write_segments(&frozen, &dropped)?;
        self.disk.sync()?;
        {
            let mut open = self.shared();
            let segments = Arc::make_mut(&mut open.segments);
            segments.extend(written.into_iter().map(Arc::new));
            segments.sort_by_key(|segment| segment.name);
            open.frozen = None;
        }
        while let Some(oldest) = self.journals.first_entry()
            && *oldest.key() <= frozen.highest
        {
            self.disk.remove(&FileName::Journal(*oldest.key()).to_string())?;
            let bytes = oldest.remove();
            self.disk.subtract(bytes);
        }
        self.disk.sync()
    }

    fn write_segments(&mut self, frozen: &Frozen, dropped: &Dropped) -> Result<Vec<Segment>, StoreError> {
        self.room(2 * SegmentWriter::FIXED)?;
        let (lowest, highest) = (frozen.lowest, frozen.highest);
        let mut raw = SegmentWriter::begin(&mut self.disk, name(Kind::Raw, lowest, highest))?;
        let mut folded = match SegmentWriter::begin(&mut self.disk, name(Kind::Minutes, lowest, highest)) {
            Ok(folded) => folded,
            Err(error) => {
                raw.abandon(&mut self.disk);
                return Err(error);
            }
        };
        let filled = self.fill(&mut raw, &mut folded, frozen, dropped);
        if raw.is_empty() || filled.is_err() {
            raw.abandon(&mut self.disk);
            folded.abandon(&mut self.disk);
            return filled.map(|()| Vec::new());
        }
        let folded = match folded.finish(&mut self.disk) {
            Ok(folded) => folded,
            Err(error) => {
                raw.abandon(&mut self.disk);
                return Err(error);
            }
        };
        match raw.finish(&mut self.disk) {
            Ok(raw) => Ok(vec![raw, folded]),
            Err(error) => {
                // Without the samples the minutes do not count; a start would remove them as well.
                self.remove(&folded)?;
                Err(error)
            }
        }
    }

    fn fill(
        &mut self,
        raw: &mut SegmentWriter,
        folded: &mut SegmentWriter,
        frozen: &Frozen,
        dropped: &Dropped,
    ) -> Result<(), StoreError> {
        for (session, chunks) in &frozen.sessions {
            if dropped.covers(session, frozen.highest) {
                continue;
            }
            let (mut of_samples, mut of_minutes) = (BlockBuilder::default(), BlockBuilder::default());
            for (name, chunk) in chunks {
                let samples = chunk.samples();
                of_samples.raw(name, &samples);
                of_minutes.minutes(name, &minutes(&samples));
            }
            self.add(raw, *session, of_samples)?;
            self.add(folded, *session, of_minutes)?;
        }
        Ok(())
    }

    /// Adds a block, after room was made for it.
    pub(crate) fn add(
        &mut self,
        writer: &mut SegmentWriter,
        session: SessionId,
        block: BlockBuilder,
    ) -> Result<(), StoreError> {
        self.room(SegmentWriter::cost(block.bytes()))?;
        writer.block(&mut self.disk, session, block)
    }

    /// Makes room for `bytes`: what cannot be read goes first, then the oldest samples, then the oldest minutes.
    pub(crate) fn room(&mut self, bytes: u64) -> Result<(), StoreError> {
        while !self.disk.fits(bytes) {
            if let Some((name, size)) = self.broken.pop() {
                self.disk.remove(&name)?;
                self.disk.subtract(size);
                continue;
            }
            let oldest = self.shared().segments.first().cloned();
            let Some(oldest) = oldest else {
                return Err(StoreError::Full { needed: bytes, used: self.disk.used(), bound: self.disk.bound() });
            };
            self.take_out(&[&oldest], None)?;
        }
        Ok(())
    }

    /// Removes what is older than it may be. A clock that leaps ahead must not empty the store, so time goes no farther than a day
    /// after the latest sample.
    fn expire(&mut self, now_ms: i64) -> Result<(), StoreError> {
        let (segments, newest) = {
            let open = self.shared();
            (Arc::clone(&open.segments), open.newest)
        };
        let now = now_ms.min(newest.saturating_add(DAY_MS));
        for segment in segments.iter() {
            let kept = match segment.name.kind {
                Kind::Raw => self.options.raw_ms,
                Kind::Minutes => self.options.minutes_ms,
            };
            if segment.last() < now.saturating_sub(kept) {
                self.take_out(&[segment], None)?;
            }
        }
        Ok(())
    }

    /// Takes segments out of sight, puts one in their place, and then removes their files.
    pub(crate) fn take_out(&mut self, out: &[&Arc<Segment>], instead: Option<Segment>) -> Result<(), StoreError> {
        {
            let mut open = self.shared();
            let segments = Arc::make_mut(&mut open.segments);
            segments.retain(|segment| out.iter().all(|gone| gone.name != segment.name));
            segments.extend(instead.map(Arc::new));
            segments.sort_by_key(|segment| segment.name);
        }
        out.iter().try_for_each(|segment| self.remove(segment))
    }

    fn remove(&mut self, segment: &Segment) -> Result<(), StoreError> {
        self.disk.remove(&segment.name.to_string())?;
        self.disk.subtract(segment.bytes);
        Ok(())
    }

    /// Forgets a session, for good once this has returned.
    pub(crate) fn drop_session(&mut self, session: SessionId) -> Result<(), StoreError> {
        let dropped = {
            let mut open = self.shared();
            open.drop_session(session);
            let written = open.segments.iter().any(|segment| segment.entry(&session).is_some());
            let frozen = open.frozen.as_ref().is_some_and(|frozen| frozen.sessions.contains_key(&session));
            if written || frozen {
                Arc::make_mut(&mut open.dropped).0.insert(session, self.lowest);
            }
            Arc::clone(&open.dropped)
        };
        self.flush()?;
        self.write_dropped(&dropped)
    }

    pub(crate) fn write_dropped(&mut self, dropped: &Dropped) -> Result<(), StoreError> {
        let bytes = dropped.write();
        self.room(bytes.len() as u64)?;
        self.disk.replace(dropped::NAME, &bytes)
    }
}

/// Locks; a thread that panicked while it held the lock left nothing half done that the next could not go on with.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
