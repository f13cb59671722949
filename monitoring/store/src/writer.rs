//! Everything that writes: flushes, the closing of chunks, and making room. One thread at a time does; queries and appends go on meanwhile,
//! for what changes is handed to them whole ([`Open`]).
//!
//! The order of writes is what makes a crash harmless. Closing chunks: (1) the next journal has what is kept open; (2) the minutes have
//! their name; (3) the samples have theirs, from which on the old journals are not needed; (4) those are removed. A start that finds the old
//! journals without the samples removes the minutes and reads the journals ([`crate::recovery`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::block::BlockBuilder;
use crate::disk::{Disk, FileName, Kind};
use crate::dropped::{self, Dropped};
use crate::journal::Journal;
use crate::open::{Frozen, Load, Open};
use crate::rollup::minutes;
use crate::segment::{Segment, SegmentWriter, name};
use crate::{Options, SessionId, StoreError};

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// What chunks or journals take before closing is worth its while, bytes.
const WORTH_BYTES: usize = 32 << 20;
/// Journals that wait to be closed, from starts that followed each other quickly.
const MOST_JOURNALS: u64 = 4;
/// How long what comes waits for the journal while chunks are closed.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Segments in order, as queries see them.
pub(crate) type Segments = Vec<Arc<Segment>>;

/// What the last closing of chunks left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    load: Load,
    journal: u64,
}

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
    /// The next frame, as long as it is not written.
    pub(crate) unwritten: Vec<u8>,
    /// When the last flush began.
    pub(crate) flushed: Instant,
    pub(crate) sealed_at: Option<i64>,
    pub(crate) left: Left,
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
        self.flushed = Instant::now();
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
    ///
    /// Closing reads and writes again what may still be followed by late samples, so it waits until there is twice what it left the last time. Series
    /// without samples are let go by it, but nothing else of what series take.
    fn due(&mut self, now_ms: i64) -> Option<i64> {
        let is_first = self.sealed_at.is_none();
        let since = now_ms.saturating_sub(*self.sealed_at.get_or_insert(now_ms));
        let (sessions, load) = {
            let open = self.shared();
            (open.session_count(), open.load())
        };
        if sessions == 0 {
            return None;
        }
        let Options { memory_bytes, late_ms, seal_ms, .. } = self.options;
        let on_disk = self.journals.values().sum::<u64>() + self.journal.as_ref().map_or(0, Journal::length);
        let full =
            load.bits > memory_bytes.saturating_sub(load.heads) / 4 * 3 || on_disk >= self.options.journal_bytes();
        let many = self.current - self.lowest >= MOST_JOURNALS;
        // When what waits for late samples is itself too much, nothing waits.
        if many || (full && !is_first && since < late_ms / 8) {
            return Some(i64::MAX);
        }
        let Left { load: left, journal } = self.left;
        let grown = load.bits > WORTH_BYTES.max(2 * left.bits)
            || load.heads > WORTH_BYTES.max(2 * left.heads)
            || on_disk > (2 * WORTH_BYTES as u64).max(2 * journal);
        // Before anybody is refused a series, those that have ended make room.
        let crowded = load.heads > memory_bytes / 4 && since >= late_ms;
        // A clock that was set back starts again.
        let due = full || grown || crowded || since >= seal_ms || since < 0;
        due.then(|| now_ms.saturating_sub(late_ms))
    }

    /// Closes all chunks, whatever may still come late.
    pub(crate) fn close_all(&mut self, now_ms: i64) -> Result<(), StoreError> {
        self.write_frozen()?;
        if self.shared().samples() > 0 { self.seal(i64::MAX, now_ms) } else { Ok(()) }
    }

    /// Closes chunks up to `cut`.
    fn seal(&mut self, cut: i64, now_ms: i64) -> Result<(), StoreError> {
        self.freeze(cut, now_ms);
        self.flush()?;
        self.write_frozen()
    }

    /// Sets aside what is closed, and begins the next journal with the rest.
    fn freeze(&mut self, cut: i64, now_ms: i64) {
        {
            let mut open = lock(&self.open);
            open.freeze(cut, now_ms, self.lowest, self.current, &self.options);
            self.left = Left { load: open.load(), journal: open.pending() as u64 };
            // What waited before is either frozen or among this. It can be more than may wait of what comes, so none of it stays where that waits.
            self.unwritten = open.take_pending();
        }
        if let Some(journal) = self.journal.take() {
            self.journals.insert(self.current, journal.length());
        }
        self.current += 1;
        self.lowest = self.current;
        self.sealed_at = Some(now_ms);
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
        // No segment says of these journals that they are closed, so a start would read them beside what comes of the next one.
        if written.is_empty() {
            self.remove_journals(frozen.highest)?;
            self.shared().frozen = None;
            return Ok(());
        }
        {
            let mut open = self.shared();
            let segments = Arc::make_mut(&mut open.segments);
            segments.extend(written.into_iter().map(Arc::new));
            segments.sort_by_key(|segment| segment.name);
            open.frozen = None;
        }
        self.remove_journals(frozen.highest)
    }

    /// Removes the journals up to `highest`, for good once this has returned.
    fn remove_journals(&mut self, highest: u64) -> Result<(), StoreError> {
        while let Some(oldest) = self.journals.first_entry()
            && *oldest.key() <= highest
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
            // Of many sessions this takes longer than what comes meanwhile may be lost for.
            if self.flushed.elapsed() >= FLUSH_EVERY {
                self.flush()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sample, recovery};

    const BEGIN: i64 = 1_767_225_600_000;
    const SESSION: SessionId = SessionId([7; 16]);

    fn put(writer: &Writer, at_ms: i64) {
        let sample = Sample { name: "a", at_ms, value: 1.0 };
        writer.shared().take(at_ms, SESSION, &sample, &writer.options).unwrap();
    }

    /// Samples that are open, and bytes that wait for the journal.
    fn open(writer: &Writer) -> (u64, usize) {
        let open = writer.shared();
        (open.samples(), open.pending())
    }

    #[test]
    fn what_stays_open_takes_no_room_from_what_comes_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, held) = recovery::start(dir.path(), &Options::default()).unwrap();
        put(&writer, BEGIN);
        writer.freeze(BEGIN - 1, BEGIN);
        assert_eq!(open(&writer), (1, 0));
        assert!(!writer.unwritten.is_empty());
        put(&writer, BEGIN + 1);
        writer.flush().unwrap();
        drop((writer, held));
        let (writer, _lock) = recovery::start(dir.path(), &Options::default()).unwrap();
        assert_eq!(open(&writer).0, 2);
    }

    #[test]
    fn what_comes_while_chunks_are_closed_is_flushed_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, _lock) = recovery::start(dir.path(), &Options::default()).unwrap();
        put(&writer, BEGIN);
        writer.freeze(BEGIN, BEGIN);
        writer.flush().unwrap();
        put(&writer, BEGIN + 1);
        writer.flushed = Instant::now().checked_sub(FLUSH_EVERY).unwrap();
        let (frozen, dropped) = (writer.shared().frozen.clone().unwrap(), Dropped::default());
        assert_eq!(writer.write_segments(&frozen, &dropped).unwrap().len(), 2);
        assert_eq!(open(&writer), (1, 0));
    }

    #[test]
    fn journals_of_which_nothing_was_closed_are_gone_before_others_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, _lock) = recovery::start(dir.path(), &Options::default()).unwrap();
        put(&writer, BEGIN);
        writer.flush().unwrap();
        // A directory of its name cannot be removed as a file.
        let journal = writer.disk.path(&FileName::Journal(writer.current).to_string());
        std::fs::rename(&journal, dir.path().join("aside")).unwrap();
        std::fs::create_dir(&journal).unwrap();
        assert!(writer.seal(BEGIN - 1, BEGIN).is_err());
        assert!(writer.close_all(BEGIN).is_err());
        assert!(writer.shared().segments.is_empty());
        std::fs::remove_dir(&journal).unwrap();
        writer.close_all(BEGIN).unwrap();
        assert_eq!((writer.shared().segments.len(), writer.journals.len()), (2, 0));
    }
}
