//! What is in memory: an open chunk for each live series, and the records of samples that the journal does not have yet.
//!
//! Nothing here waits for a disk. Taking samples decides which are refused; a late one (a node's clock differs, a tunnel was away) is put
//! behind the others and sorted when it is read. A series' samples that were closed are all before those it takes now, so that no sample is
//! ever counted twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::bits::{BitReader, BitWriter, Times, Values};
use crate::dropped::Dropped;
use crate::journal::Record;
use crate::refusal::Refusal;
use crate::segment::Segment;
use crate::{MOST_AHEAD_MS, MOST_BEHIND_MS, MOST_NAME_BYTES, MOST_VALUE, Options, Sample, SessionId};

/// Samples of one open chunk.
const MOST_OPEN_SAMPLES: u32 = 1 << 16;
/// What an open chunk takes in memory beside its bits and its name, with the tables that lead to it.
const HEAD_BYTES: usize = 256;
/// Records that wait for the journal.
const MOST_PENDING_BYTES: usize = 8 << 20;
/// Records of samples that go over into the next journal; more are closed with the others.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// Where a series that has nothing closed begins.
pub(crate) const NO_FLOOR: i64 = i64::MIN;

/// An open chunk.
#[derive(Debug)]
pub(crate) struct Head {
    /// What the journal calls the series.
    reference: u32,
    /// The last time that is closed.
    floor: i64,
    last: i64,
    count: u32,
    ordered: bool,
    bits: BitWriter,
    times: Times,
    values: Values,
}

impl Head {
    fn new(reference: u32, floor: i64) -> Self {
        Self {
            reference,
            floor,
            last: i64::MIN,
            count: 0,
            ordered: true,
            bits: BitWriter::default(),
            times: Times::default(),
            values: Values::default(),
        }
    }

    fn push(&mut self, at: i64, value: f64, window_ms: i64) -> Result<(), Refusal> {
        if at <= self.floor {
            return Err(Refusal::Late);
        }
        if self.count >= MOST_OPEN_SAMPLES {
            return Err(Refusal::TooOften);
        }
        if self.count > 0 && at <= self.last {
            if at < self.last.saturating_sub(window_ms) {
                return Err(Refusal::Late);
            }
            if at == self.last || self.chunk(i64::MAX).samples().iter().any(|sample| sample.0 == at) {
                return Err(Refusal::Duplicate);
            }
            self.ordered = false;
        }
        self.times.write(&mut self.bits, at);
        self.values.write(&mut self.bits, value);
        self.count += 1;
        self.last = self.last.max(at);
        Ok(())
    }

    /// A copy of the chunk as it is, up to a time.
    fn chunk(&self, upto: i64) -> Chunk {
        Chunk {
            bits: self.bits.clone().finish(),
            count: self.count,
            ordered: self.ordered,
            upto,
            last: self.last.min(upto),
        }
    }
}

/// A chunk that nothing is added to.
#[derive(Debug)]
pub(crate) struct Chunk {
    bits: Vec<u8>,
    count: u32,
    ordered: bool,
    /// Later samples are not its own.
    upto: i64,
    /// No sample is later.
    last: i64,
}

impl Chunk {
    /// Its samples by time.
    pub(crate) fn samples(&self) -> Vec<(i64, f64)> {
        let (mut bits, mut times, mut values) = (BitReader::new(&self.bits), Times::default(), Values::default());
        let read = |_| Some((times.read(&mut bits)?, values.read(&mut bits)?));
        let mut samples: Vec<(i64, f64)> = (0..self.count).map_while(read).filter(|(at, _)| *at <= self.upto).collect();
        if !self.ordered {
            samples.sort_by_key(|sample| sample.0);
        }
        samples
    }
}

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
}

/// All that queries and appends share.
#[derive(Debug, Default)]
pub(crate) struct Open {
    sessions: HashMap<SessionId, OpenSession>,
    /// Memory of all open chunks.
    bytes: usize,
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

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
        if self.pending.len() >= MOST_PENDING_BYTES || self.bytes >= options.memory_bytes {
            return Err(Refusal::Busy);
        }
        if !self.sessions.contains_key(&session) && self.sessions.len() >= options.sessions {
            return Err(Refusal::TooManySessions);
        }
        let open = self.sessions.entry(session).or_default();
        if let Some(head) = open.series.get_mut(sample.name) {
            let before = head.bits.capacity();
            head.push(sample.at_ms, sample.value, options.late_ms)?;
            self.bytes += head.bits.capacity() - before;
            Record::sample(&mut self.pending, &mut self.pending_at, head.reference, sample.at_ms, sample.value);
        } else {
            if open.series.len() >= options.series_per_session {
                return Err(Refusal::TooManySeries);
            }
            let closed = || floor(&self.segments, self.frozen.as_deref(), &self.dropped, &session);
            let floor = *open.floor.get_or_insert_with(closed);
            let mut head = Head::new(self.next_reference, floor);
            head.push(sample.at_ms, sample.value, options.late_ms)?;
            self.next_reference += 1;
            Record::define(&mut self.pending, head.reference, session, sample.name, floor);
            Record::sample(&mut self.pending, &mut self.pending_at, head.reference, sample.at_ms, sample.value);
            self.bytes += HEAD_BYTES + sample.name.len() + head.bits.capacity();
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
                let series = &mut self.sessions.entry(session).or_default().series;
                if !series.contains_key(name) {
                    self.bytes += HEAD_BYTES + name.len();
                    series.insert(name.into(), Head::new(0, floor));
                }
            }
            Record::Sample { reference, at, value } => {
                let head = names
                    .get(&reference)
                    .and_then(|(session, name)| self.sessions.get_mut(session)?.series.get_mut(name));
                let Some(head) = head else { return };
                let before = head.bits.capacity();
                // What two journals both have is a duplicate of itself.
                if head.push(at, value, late_ms).is_ok() {
                    self.samples += 1;
                    self.newest = self.newest.max(at);
                }
                self.bytes += head.bits.capacity() - before;
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
        for (name, head) in &open.series {
            self.bytes = self.bytes.saturating_sub(HEAD_BYTES + name.len() + head.bits.capacity());
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
        wanted.map(|(name, head)| (name.clone(), head.chunk(i64::MAX))).collect()
    }

    /// Sets aside all samples up to `cut`, which are those of the journals from `lowest` to `highest`, and makes the rest the begin of the
    /// next journal. Sessions that have nothing later than `idle` are closed.
    pub(crate) fn freeze(&mut self, cut: i64, idle: i64, lowest: u64, highest: u64, late_ms: i64) {
        let mut frozen = Frozen { lowest, highest, sessions: BTreeMap::new() };
        self.take_pending();
        (self.bytes, self.samples, self.next_reference) = (0, 0, 0);
        for (id, session) in &mut self.sessions {
            let mut chunks = Chunks::new();
            for (name, head) in &mut session.series {
                let cut = if self.pending.len() > MOST_KEPT_BYTES { i64::MAX } else { cut };
                if let Some(chunk) = split(head, cut, late_ms) {
                    chunks.insert(name.clone(), chunk);
                }
            }
            if !chunks.is_empty() {
                frozen.sessions.insert(*id, chunks);
            }
            if session.series.values().all(|head| head.count == 0 && head.floor <= idle) {
                session.series.clear();
                continue;
            }
            for (name, head) in &mut session.series {
                head.reference = self.next_reference;
                self.next_reference += 1;
                self.bytes += HEAD_BYTES + name.len() + head.bits.capacity();
                self.samples += u64::from(head.count);
                Record::define(&mut self.pending, head.reference, *id, name, head.floor);
                for (at, value) in head.chunk(i64::MAX).samples() {
                    Record::sample(&mut self.pending, &mut self.pending_at, head.reference, at, value);
                }
            }
        }
        self.sessions.retain(|_, session| !session.series.is_empty());
        if !frozen.sessions.is_empty() {
            self.frozen = Some(Arc::new(frozen));
        }
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

/// Leaves in `head` what is later than `cut`, and gives the rest.
fn split(head: &mut Head, cut: i64, late_ms: i64) -> Option<Chunk> {
    let samples = head.chunk(i64::MAX).samples();
    let kept = samples.iter().position(|sample| sample.0 > cut).unwrap_or(samples.len());
    let (closed, kept) = samples.split_at(kept);
    let &(floor, _) = closed.last()?;
    let chunk = head.chunk(cut);
    *head = Head::new(head.reference, floor);
    for &(at, value) in kept {
        // They are in order and were taken before.
        let _ = head.push(at, value, late_ms);
    }
    Some(chunk)
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
