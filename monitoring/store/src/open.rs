//! What is in memory: an open chunk for each live series, and the records of samples that the journal does not have yet.
//!
//! Nothing here waits for a disk. Taking samples decides which are refused. A series' samples that were closed are all before those it takes now,
//! so that no sample is ever counted twice. A series that has had nothing for longer than a sample may be late has no chunk any more, and is known
//! by a hash of its name and its last time alone until nothing as old as that is taken from anybody.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::dropped::Dropped;
use crate::head::{Chunk, HEAD_BYTES, Head};
use crate::journal::Record;
use crate::refusal::Refusal;
use crate::segment::Segment;
use crate::{MOST_AHEAD_MS, MOST_BEHIND_MS, MOST_NAME_BYTES, MOST_VALUE, Options, Sample, SessionId};

/// What an ended series takes: where a hash of its name leads to a time, in a table that is not full.
const ENDED_BYTES: usize = 32;

/// Where a series that has nothing closed begins.
pub(crate) const NO_FLOOR: i64 = i64::MIN;

/// Chunks by the name of their series.
pub(crate) type Chunks = BTreeMap<Box<str>, Chunk>;

/// Chunks on their way into a segment, with the journals that hold them as well.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
    pub(crate) sessions: BTreeMap<SessionId, Chunks>,
}

#[derive(Debug, Default)]
struct OpenSession {
    /// The last time that was closed of any of its series, when it was opened.
    floor: Option<i64>,
    series: HashMap<Box<str>, Head>,
    /// The last times of series that have no chunk any more, by a hash of their names.
    ended: HashMap<u64, i64>,
    /// Memory of all this, without the samples' bits.
    heads: usize,
}

impl OpenSession {
    /// Lets go of series that have had nothing since `idle`. Nothing is known of them any more where all that is taken is later than theirs, which is
    /// so up to `past`; a clock that is set back later finds the session's floor there.
    fn release(&mut self, idle: i64, past: i64, hasher: &RandomState) {
        let (ended, floor) = (&mut self.ended, &mut self.floor);
        self.series.retain(|name, head| {
            let is_over = head.count == 0 && head.floor <= idle;
            if is_over {
                ended.insert(hasher.hash_one(&**name), head.floor);
            }
            !is_over
        });
        ended.retain(|_, last| {
            let is_known = *last > past;
            if !is_known {
                *floor = floor.map(|floor| floor.max(*last));
            }
            is_known
        });
        if self.series.len() < self.series.capacity() / 4 {
            self.series.shrink_to_fit();
        }
        if ended.len() < ended.capacity() / 4 {
            ended.shrink_to_fit();
        }
    }
}

/// What open chunks take of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// That there are series.
    pub(crate) heads: usize,
    /// Their samples.
    pub(crate) bits: usize,
}

/// All that queries and appends share.
#[derive(Debug, Default)]
pub(crate) struct Open {
    sessions: HashMap<SessionId, OpenSession>,
    load: Load,
    /// What ended series are known by.
    hasher: RandomState,
    samples: u64,
    pending: Vec<u8>,
    /// The time of the last sample in `pending`.
    pending_at: i64,
    next_reference: u32,
    pub(crate) frozen: Option<Arc<Frozen>>,
    pub(crate) segments: Arc<Vec<Arc<Segment>>>,
    pub(crate) dropped: Arc<Dropped>,
    /// The latest sample that was ever taken.
    pub(crate) newest: i64,
}

impl Open {
    pub(crate) fn new(dropped: Dropped) -> Self {
        Self { dropped: Arc::new(dropped), newest: i64::MIN, ..Self::default() }
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Bytes of records that wait for the journal.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn series_count(&self) -> usize {
        self.sessions.values().map(|session| session.series.len()).sum()
    }

    /// Takes one sample, and notes it for the journal.
    pub(crate) fn take(
        &mut self,
        now_ms: i64,
        session: SessionId,
        sample: &Sample<'_>,
        options: &Options,
    ) -> Result<(), Refusal> {
        judge(now_ms, sample)?;
        let Load { heads, bits } = self.load;
        if self.pending.len() >= options.pending_bytes() || heads + bits >= options.memory_bytes {
            return Err(Refusal::Busy);
        }
        if !self.sessions.contains_key(&session) && self.sessions.len() >= options.sessions {
            return Err(Refusal::TooManySessions);
        }
        let sessions = self.sessions.len();
        let open = self.sessions.entry(session).or_default();
        if let Some(head) = open.series.get_mut(sample.name) {
            let before = head.bytes();
            head.push(sample.at_ms, sample.value, options.late_ms)?;
            self.load.bits += head.bytes() - before;
            Record::sample(&mut self.pending, &mut self.pending_at, head.reference, sample.at_ms, sample.value);
        } else {
            if open.series.len() >= options.series_per_session {
                return Err(Refusal::TooManySeries);
            }
            has_room(heads, open.heads, sessions, options)?;
            let closed = || floor(&self.segments, self.frozen.as_deref(), &self.dropped, &session);
            let known = *open.floor.get_or_insert_with(closed);
            let hash = self.hasher.hash_one(sample.name);
            let floor = open.ended.get(&hash).map_or(known, |ended| known.max(*ended));
            let mut head = Head::new(self.next_reference, floor);
            head.push(sample.at_ms, sample.value, options.late_ms)?;
            self.next_reference += 1;
            Record::define(&mut self.pending, head.reference, session, sample.name, floor);
            Record::sample(&mut self.pending, &mut self.pending_at, head.reference, sample.at_ms, sample.value);
            let again = if open.ended.remove(&hash).is_some() { ENDED_BYTES } else { 0 };
            let bytes = HEAD_BYTES + sample.name.len();
            open.heads = (open.heads + bytes).saturating_sub(again);
            self.load.heads = (heads + bytes).saturating_sub(again);
            self.load.bits += head.bytes();
            open.series.insert(sample.name.into(), head);
        }
        self.samples += 1;
        self.newest = self.newest.max(sample.at_ms);
        Ok(())
    }

    /// Takes what a journal says, at the start: it was judged before.
    pub(crate) fn replay(&mut self, names: &mut HashMap<u32, (SessionId, Box<str>)>, record: Record<'_>, late_ms: i64) {
        match record {
            Record::Define { reference, session, name, floor } => {
                names.insert(reference, (session, name.into()));
                let open = self.sessions.entry(session).or_default();
                if !open.series.contains_key(name) {
                    let bytes = HEAD_BYTES + name.len();
                    open.heads += bytes;
                    self.load.heads += bytes;
                    open.series.insert(name.into(), Head::new(0, floor));
                }
            }
            Record::Sample { reference, at, value } => {
                let Some(head) = named(&mut self.sessions, names, reference) else { return };
                let before = head.bytes();
                // What two journals both have is a duplicate of itself.
                if head.push(at, value, late_ms).is_ok() {
                    self.samples += 1;
                    self.newest = self.newest.max(at);
                }
                self.load.bits += head.bytes() - before;
            }
            Record::Chunk { reference, count, bits } => {
                let Some(head) = named(&mut self.sessions, names, reference) else { return };
                let before = head.bytes();
                self.samples += head.take(&Chunk::read(bits, count), late_ms);
                self.newest = self.newest.max(head.last());
                self.load.bits += head.bytes() - before;
            }
            Record::Drop { session } => {
                names.retain(|_, (owner, _)| *owner != session);
                self.forget(session);
            }
        }
    }

    /// Removes a session's open chunks.
    pub(crate) fn forget(&mut self, session: SessionId) {
        let Some(open) = self.sessions.remove(&session) else { return };
        self.load.heads = self.load.heads.saturating_sub(open.heads);
        for head in open.series.values() {
            self.load.bits = self.load.bits.saturating_sub(head.bytes());
            self.samples = self.samples.saturating_sub(u64::from(head.count));
        }
    }

    /// The same, and the journal is to know.
    pub(crate) fn drop_session(&mut self, session: SessionId) {
        self.forget(session);
        Record::drop_session(&mut self.pending, session);
    }

    /// Records for the journal's next frame.
    pub(crate) fn take_pending(&mut self) -> Vec<u8> {
        self.pending_at = 0;
        std::mem::take(&mut self.pending)
    }

    /// Copies of a session's open chunks whose names begin with `prefix`.
    pub(crate) fn chunks(&self, session: &SessionId, prefix: &str) -> Chunks {
        let series = self.sessions.get(session).into_iter().flat_map(|open| &open.series);
        let wanted = series.filter(|(name, head)| name.starts_with(prefix) && head.count > 0);
        wanted.map(|(name, head)| (name.clone(), head.chunk())).collect()
    }

    /// Sets aside all samples up to `cut`, which are those of the journals from `lowest` to `highest`, and makes the rest the begin of the
    /// next journal. Series that have nothing are let go once nothing of theirs can be late any more.
    pub(crate) fn freeze(&mut self, cut: i64, now_ms: i64, lowest: u64, highest: u64, options: &Options) {
        let mut frozen = Frozen { lowest, highest, sessions: BTreeMap::new() };
        let idle = now_ms.saturating_sub(options.late_ms);
        let past = now_ms.saturating_sub(options.late_ms.max(MOST_BEHIND_MS));
        let most = options.kept_bytes();
        self.take_pending();
        (self.load, self.samples, self.next_reference) = (Load::default(), 0, 0);
        for (id, session) in &mut self.sessions {
            let mut chunks = Chunks::new();
            let cut = if self.pending.len() > most { i64::MAX } else { cut };
            for (name, head) in &mut session.series {
                if let Some(chunk) = head.close(cut, options.late_ms) {
                    chunks.insert(name.clone(), chunk);
                }
            }
            if !chunks.is_empty() {
                frozen.sessions.insert(*id, chunks);
            }
            session.release(idle, past, &self.hasher);
            session.heads = session.ended.len() * ENDED_BYTES;
            for (name, head) in &mut session.series {
                head.reference = self.next_reference;
                self.next_reference += 1;
                session.heads += HEAD_BYTES + name.len();
                self.load.bits += head.bytes();
                self.samples += u64::from(head.count);
                Record::define(&mut self.pending, head.reference, *id, name, head.floor);
                if head.count > 0 {
                    let chunk = head.chunk();
                    Record::chunk(&mut self.pending, head.reference, chunk.count, &chunk.bits);
                }
            }
            self.load.heads += session.heads;
        }
        self.sessions.retain(|_, session| !session.series.is_empty() || !session.ended.is_empty());
        // Also of nothing: the journals up to here are not needed once the next one has the rest.
        self.frozen = Some(Arc::new(frozen));
    }

    /// Gives every series a name in a new journal, after the old ones were read.
    pub(crate) fn after_replay(&mut self) {
        self.next_reference = 0;
        for (id, session) in &mut self.sessions {
            for (name, head) in &mut session.series {
                head.reference = self.next_reference;
                self.next_reference += 1;
                Record::define(&mut self.pending, head.reference, *id, name, head.floor);
            }
        }
    }
}

/// The open chunk that a journal means.
fn named<'a>(
    sessions: &'a mut HashMap<SessionId, OpenSession>,
    names: &HashMap<u32, (SessionId, Box<str>)>,
    reference: u32,
) -> Option<&'a mut Head> {
    let (session, name) = names.get(&reference)?;
    sessions.get_mut(session)?.series.get_mut(name)
}

/// Whether there is room for one more series. All of them have half of the memory. Once three quarters of that are taken, a session that has more than
/// an equal part of what was left then gets no more: so that who makes too many is refused before everybody else is.
fn has_room(heads: usize, own: usize, sessions: usize, options: &Options) -> Result<(), Refusal> {
    let all = options.memory_bytes / 2;
    let last = all / 4;
    if heads >= all - last && own >= last / sessions.max(1) {
        return Err(Refusal::TooManySeries);
    }
    if heads >= all { Err(Refusal::Busy) } else { Ok(()) }
}

/// What can be said of a sample alone.
fn judge(now_ms: i64, sample: &Sample<'_>) -> Result<(), Refusal> {
    let name = sample.name.as_bytes();
    if name.is_empty() || name.len() > MOST_NAME_BYTES || !name.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Name);
    }
    if !sample.value.is_finite() {
        return Err(Refusal::NotFinite);
    }
    if sample.value.abs() > MOST_VALUE {
        return Err(Refusal::Huge);
    }
    if sample.at_ms > now_ms.saturating_add(MOST_AHEAD_MS) {
        return Err(Refusal::Future);
    }
    if sample.at_ms < now_ms.saturating_sub(MOST_BEHIND_MS) {
        return Err(Refusal::Past);
    }
    Ok(())
}

/// The last time that is closed of a session.
fn floor(segments: &[Arc<Segment>], frozen: Option<&Frozen>, dropped: &Dropped, session: &SessionId) -> i64 {
    let entries = segments.iter().filter(|segment| !dropped.covers(session, segment.name.highest));
    let written = entries.filter_map(|segment| segment.entry(session)).map(|entry| entry.last).max();
    let frozen = frozen.filter(|frozen| !dropped.covers(session, frozen.highest));
    let chunks = frozen.and_then(|frozen| frozen.sessions.get(session)).into_iter().flat_map(Chunks::values);
    written.into_iter().chain(chunks.map(|chunk| chunk.last)).max().unwrap_or(NO_FLOOR)
}
