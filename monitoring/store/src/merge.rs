//! Segments made of segments: many small ones become one, so that their number stays small, and what sessions that were dropped left in
//! them goes. A name says what a segment was made of, so a crash between its name and the removal of the others is seen at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::block::{Block, BlockBuilder};
use crate::disk::{Kind, SegmentName};
use crate::dropped::Dropped;
use crate::rollup::{Fold, MINUTE_MS, stored};
use crate::segment::{Entry, ReadError, Segment, SegmentWriter, name};
use crate::writer::Writer;
use crate::{SessionId, StoreError};

/// Segments that become one.
const RUN: usize = 16;
/// Those of more bytes are left alone.
const SMALL_BYTES: u64 = 4 << 20;
/// Milliseconds that a merged segment of samples may span: it is removed as a whole.
const RAW_SPAN_MS: i64 = 86_400_000;
/// The same of minutes.
const MINUTES_SPAN_MS: i64 = 31 * 86_400_000;

impl Writer {
    /// Merges the oldest run of small segments, if there is one.
    pub(crate) fn merge_one(&mut self, kind: Kind) -> Result<(), StoreError> {
        let (segments, dropped) = {
            let open = self.shared();
            (Arc::clone(&open.segments), Arc::clone(&open.dropped))
        };
        let small = SMALL_BYTES.min(self.disk.bound() / 256);
        let of_kind: Vec<&Arc<Segment>> = segments.iter().filter(|segment| segment.name.kind == kind).collect();
        let Some(run) = of_kind.windows(RUN).find(|run| fits_together(run, kind, small)) else { return Ok(()) };
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        // Room is made beforehand, for all of it: what is merged must not have to go meanwhile.
        self.room(run.iter().map(|segment| segment.bytes).sum())?;
        if run.iter().any(|segment| !self.shared().segments.iter().any(|still| still.name == segment.name)) {
            return Ok(());
        }
        let into = name(kind, first.name.lowest, last.name.highest);
        let merged = self.write_new(into, |writer, out| writer.merge(run, &dropped, out))?;
        self.take_out(run, merged)
    }

    /// Rewrites the oldest segment that has something of a dropped session, and forgets those of which nothing is left.
    pub(crate) fn rewrite_one(&mut self) -> Result<(), StoreError> {
        let (segments, dropped, frozen) = {
            let open = self.shared();
            (Arc::clone(&open.segments), Arc::clone(&open.dropped), open.frozen.is_some())
        };
        if dropped.0.is_empty() || frozen {
            return Ok(());
        }
        let gone = |segment: &Segment, entry: &Entry| dropped.covers(&entry.session, segment.name.highest);
        if let Some(old) = segments.iter().find(|segment| segment.entries.iter().any(|entry| gone(segment, entry))) {
            self.room(old.bytes)?;
            if !self.shared().segments.iter().any(|still| still.name == old.name) {
                return Ok(());
            }
            let into = SegmentName { version: old.name.version + 1, ..old.name };
            let rewritten = self.write_new(into, |writer, out| writer.copy_without(old, &dropped, out))?;
            self.take_out(&[old], rewritten)?;
        }
        self.forget_dropped()
    }

    fn forget_dropped(&mut self) -> Result<(), StoreError> {
        let left = {
            let mut open = self.shared();
            let segments = Arc::clone(&open.segments);
            let before = open.dropped.0.len();
            let held = |session: &SessionId, first: &u64| {
                segments.iter().any(|segment| segment.name.highest < *first && segment.entry(session).is_some())
            };
            Arc::make_mut(&mut open.dropped).0.retain(|session, first| held(session, first));
            if open.dropped.0.len() == before {
                return Ok(());
            }
            Arc::clone(&open.dropped)
        };
        self.write_dropped(&left)
    }

    /// Writes a segment that stands for others; none if it is empty.
    fn write_new(
        &mut self,
        into: SegmentName,
        fill: impl FnOnce(&mut Self, &mut SegmentWriter) -> Result<(), StoreError>,
    ) -> Result<Option<Segment>, StoreError> {
        let mut out = SegmentWriter::begin(&mut self.disk, into)?;
        let filled = fill(self, &mut out);
        if filled.is_err() || out.is_empty() {
            out.abandon(&mut self.disk);
            return filled.map(|()| None);
        }
        let written = out.finish(&mut self.disk)?;
        self.disk.sync()?;
        Ok(Some(written))
    }

    fn copy_without(&mut self, old: &Segment, dropped: &Dropped, out: &mut SegmentWriter) -> Result<(), StoreError> {
        for entry in &old.entries {
            if dropped.covers(&entry.session, old.name.highest) {
                continue;
            }
            if let Some((bytes, index)) = self.readable(old, old.copy(entry))? {
                out.copy(&mut self.disk, entry.session, (entry.first, entry.last), &bytes, index)?;
            }
        }
        Ok(())
    }

    fn merge(&mut self, run: &[&Arc<Segment>], dropped: &Dropped, out: &mut SegmentWriter) -> Result<(), StoreError> {
        let mut sessions: BTreeMap<SessionId, Vec<(&Segment, &Entry)>> = BTreeMap::new();
        for segment in run {
            let segment: &Segment = segment;
            let entries = segment.entries.iter().filter(|entry| !dropped.covers(&entry.session, segment.name.highest));
            entries.for_each(|entry| sessions.entry(entry.session).or_default().push((segment, entry)));
        }
        for (session, parts) in sessions {
            let mut blocks = Vec::with_capacity(parts.len());
            let mut kind = Kind::Raw;
            for (segment, entry) in parts {
                kind = segment.name.kind;
                blocks.extend(self.readable(segment, segment.block(entry))?);
            }
            let block = match kind {
                Kind::Raw => join(&mut blocks, raw),
                Kind::Minutes => join(&mut blocks, minutes),
            };
            if !block.is_empty() {
                out.block(&mut self.disk, session, block)?;
            }
        }
        Ok(())
    }

    /// What was read, or nothing where a checksum is wrong: that is lost already, and counted.
    fn readable<T>(&mut self, segment: &Segment, read: Result<T, ReadError>) -> Result<Option<T>, StoreError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(ReadError::Broken) => {
                self.damage += 1;
                Ok(None)
            }
            Err(ReadError::Gone) => Err(segment.error(std::io::ErrorKind::NotFound.into())),
            Err(ReadError::Io(source)) => Err(segment.error(source)),
        }
    }
}

fn fits_together(run: &[&Arc<Segment>], kind: Kind, small: u64) -> bool {
    let most = match kind {
        Kind::Raw => RAW_SPAN_MS,
        Kind::Minutes => MINUTES_SPAN_MS,
    };
    let first = run.iter().flat_map(|segment| &segment.entries).map(|entry| entry.first).min();
    let last = run.iter().map(|segment| segment.last()).max();
    let span = last.zip(first).map_or(0, |(last, first)| last.saturating_sub(first));
    span <= most && run.iter().all(|segment| segment.bytes <= small)
}

/// All series of blocks that follow each other.
fn join(blocks: &mut [Block], add: fn(&mut BlockBuilder, &str, &mut [Block])) -> BlockBuilder {
    let names: BTreeSet<Box<str>> =
        blocks.iter().flat_map(|block| &block.series).map(|placed| placed.name.clone()).collect();
    let mut out = BlockBuilder::default();
    for name in &names {
        add(&mut out, name, blocks);
    }
    out
}

fn raw(out: &mut BlockBuilder, name: &str, blocks: &mut [Block]) {
    let mut samples: Vec<(i64, f64)> = Vec::new();
    for block in blocks {
        let Some(placed) = block.find(name) else { continue };
        samples.extend(block.raw(&placed).unwrap_or_default());
    }
    // In order already, unless what said so was lost with a broken file.
    samples.sort_by_key(|sample| sample.0);
    samples.dedup_by_key(|sample| sample.0);
    out.raw(name, &samples);
}

fn minutes(out: &mut BlockBuilder, name: &str, blocks: &mut [Block]) {
    let mut fold = Fold::new(MINUTE_MS);
    for block in blocks {
        let Some(placed) = block.find(name) else { continue };
        block.minutes(&placed).unwrap_or_default().iter().for_each(|point| fold.add(point));
    }
    let points: Vec<_> = fold.finish().into_iter().map(stored).collect();
    out.minutes(name, &points);
}
