//! Answers: what a session's series were in a span of time, in no more points than a chart has.
//!
//! The open chunks are copied under the lock, everything else is read without it, from a list of segments that does not change. A segment
//! whose file goes away meanwhile makes the query begin again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::block::{Block, Placed};
use crate::disk::Kind;
use crate::dropped::Dropped;
use crate::open::{Chunks, Frozen, Open};
use crate::rollup::{Fold, MINUTE_MS, Point, floor, minutes};
use crate::segment::{Entry, ReadError, Segment};
use crate::writer::{Segments, lock};
use crate::{SessionId, StoreError};

/// How often a query begins again.
const TRIES: usize = 5;
/// Points of one answer, of all series together: 160 MiB.
const MOST_POINTS: usize = 4 << 20;

/// A time of so many milliseconds has points enough when they are minutes.
const LONG_MS: i64 = 180 * MINUTE_MS;
/// Closed samples that are read for an answer about such a time: ten milliseconds of them.
const MOST_READ: usize = 1 << 19;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query<'a> {
    /// Whose.
    pub session: SessionId,
    /// How the series' names begin; empty: all.
    pub prefix: &'a str,
    /// From this millisecond since the epoch on; minutes from the one that it lies in.
    pub from_ms: i64,
    /// Up to this one, which is not part of it.
    pub to_ms: i64,
    /// Points that are wished for of each series; there is at most one more.
    pub points: u32,
}

/// What an answer was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Samples.
    Raw,
    /// Minutes.
    Minute,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// In order; spans without samples are left out.
    pub points: Vec<Point>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What it was made of: minutes where spans are a minute or longer, the samples are not kept any more, or there are too many of them in a long time.
    pub resolution: Resolution,
    /// Milliseconds of a span. Spans begin at multiples of it, so that two charts of one time agree.
    pub step_ms: i64,
    /// By name.
    pub lines: Vec<Line>,
    /// Parts of files that could not be used because a checksum was wrong.
    pub broken: u32,
}

/// A series a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesSpan {
    /// Its name.
    pub name: String,
    /// The first sample, or its minute, in milliseconds since the epoch.
    pub first_ms: i64,
    /// The last.
    pub last_ms: i64,
}

/// The store at one moment, for one session.
struct Moment {
    segments: Arc<Segments>,
    frozen: Option<Arc<Frozen>>,
    dropped: Arc<Dropped>,
    session: SessionId,
    open: Chunks,
}

impl Moment {
    fn of(open: &Mutex<Open>, session: SessionId, prefix: &str) -> Self {
        let open = lock(open);
        Self {
            segments: Arc::clone(&open.segments),
            frozen: open.frozen.clone(),
            dropped: Arc::clone(&open.dropped),
            session,
            open: open.chunks(&session, prefix),
        }
    }

    /// The session's part of every segment that has one.
    fn entries(&self, kind: Kind) -> impl Iterator<Item = (&Segment, &Entry)> {
        let of_kind = self.segments.iter().filter(move |segment| segment.name.kind == kind);
        let kept = of_kind.filter(|segment| !self.dropped.covers(&self.session, segment.name.highest));
        kept.filter_map(|segment| Some((&**segment, segment.entry(&self.session)?)))
    }

    /// The chunks that are in no segment yet, in order.
    fn chunks(&self) -> impl Iterator<Item = (&str, Vec<(i64, f64)>)> {
        let frozen = self.frozen.iter().filter(|frozen| !self.dropped.covers(&self.session, frozen.highest));
        let frozen = frozen.filter_map(|frozen| frozen.sessions.get(&self.session));
        frozen.chain([&self.open]).flatten().map(|(name, chunk)| (&**name, chunk.samples()))
    }

    /// Whether the samples of a span are all there, and not minutes alone.
    fn has_raw(&self, query: &Query<'_>) -> bool {
        let mut first = self.entries(Kind::Raw).map(|(_, entry)| entry.first).min().unwrap_or(i64::MAX);
        if first == i64::MAX {
            first = self.chunks().filter_map(|(_, samples)| Some(samples.first()?.0)).min().unwrap_or(i64::MAX);
        }
        let first = floor(first, MINUTE_MS);
        let older = |entry: &Entry| entry.first < first && entry.last >= query.from_ms && entry.first < query.to_ms;
        let from_minutes = floor(query.from_ms, MINUTE_MS) >= first;
        from_minutes || !self.entries(Kind::Minutes).any(|(_, entry)| older(entry))
    }

    /// Whether it would take too long to read the samples of a long time.
    fn is_much(&self, query: &Query<'_>) -> Result<bool, Stop> {
        let mut rows = 0;
        for (segment, entry) in self.entries(Kind::Raw) {
            if entry.last < query.from_ms || entry.first >= query.to_ms {
                continue;
            }
            let series = match segment.series(entry) {
                Ok(series) => series,
                // Whoever reads it says so.
                Err(ReadError::Broken) => continue,
                Err(error) => return Err(Stop::of(segment, error)),
            };
            let wanted = series.iter().filter(|placed| placed.name.starts_with(query.prefix));
            rows += wanted.map(|placed| placed.rows).sum::<usize>();
            if rows > MOST_READ {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Answers a query.
pub(crate) fn answer(open: &Mutex<Open>, query: &Query<'_>) -> Result<Answer, StoreError> {
    again(|| {
        let moment = Moment::of(open, query.session, query.prefix);
        Answering::of(&moment, query)?.run()
    })
}

/// The series of a session.
pub(crate) fn series(open: &Mutex<Open>, session: SessionId) -> Result<Vec<SeriesSpan>, StoreError> {
    again(|| {
        let moment = Moment::of(open, session, "");
        let mut spans: BTreeMap<Box<str>, (i64, i64)> = BTreeMap::new();
        let mut add = |name: &str, first: i64, last: i64| {
            let span = spans.entry(name.into()).or_insert((first, last));
            *span = (span.0.min(first), span.1.max(last));
        };
        // Samples last, so that what is exact counts where both are there.
        let raw_from = moment.entries(Kind::Raw).map(|(_, entry)| floor(entry.first, MINUTE_MS)).min();
        let older = moment.entries(Kind::Minutes).filter(|(_, entry)| raw_from.is_none_or(|raw| entry.first < raw));
        for (segment, entry) in older.chain(moment.entries(Kind::Raw)) {
            match segment.series(entry) {
                Ok(series) => series.iter().for_each(|placed| add(&placed.name, placed.first, placed.last)),
                Err(ReadError::Broken) => {}
                Err(error) => return Err(Stop::of(segment, error)),
            }
        }
        for (name, samples) in moment.chunks() {
            if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
                add(name, first.0, last.0);
            }
        }
        let spans = spans.into_iter();
        Ok(spans.map(|(name, (first_ms, last_ms))| SeriesSpan { name: name.into(), first_ms, last_ms }).collect())
    })
}

/// Why there is no answer yet.
enum Stop {
    /// A file went away.
    Gone(StoreError),
    For(StoreError),
}

impl Stop {
    fn of(segment: &Segment, error: ReadError) -> Self {
        match error {
            ReadError::Gone => Self::Gone(segment.error(std::io::ErrorKind::NotFound.into())),
            ReadError::Broken => Self::For(segment.error(std::io::ErrorKind::InvalidData.into())),
            ReadError::Io(source) => Self::For(segment.error(source)),
        }
    }
}

fn again<T>(mut once: impl FnMut() -> Result<T, Stop>) -> Result<T, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match once() {
            Ok(answer) => return Ok(answer),
            Err(Stop::Gone(_)) if tries < TRIES => {}
            Err(Stop::Gone(error) | Stop::For(error)) => return Err(error),
        }
    }
}

struct Answering<'a> {
    moment: &'a Moment,
    query: &'a Query<'a>,
    resolution: Resolution,
    step_ms: i64,
    folds: BTreeMap<Box<str>, Fold>,
    /// In all of them.
    points: usize,
    broken: u32,
}

impl<'a> Answering<'a> {
    fn of(moment: &'a Moment, query: &'a Query<'a>) -> Result<Self, Stop> {
        let span = query.to_ms.checked_sub(query.from_ms).filter(|span| *span > 0);
        let span = span.ok_or(Stop::For(StoreError::Span))?;
        let points = i64::from(query.points.max(1));
        let wished = span / points + i64::from(span % points > 0);
        let fine = wished < MINUTE_MS && moment.has_raw(query);
        let raw = fine && (span < LONG_MS || !moment.is_much(query)?);
        let (resolution, step_ms) = if raw {
            (Resolution::Raw, wished)
        } else {
            let whole = wished / MINUTE_MS + i64::from(wished % MINUTE_MS > 0);
            (Resolution::Minute, whole.saturating_mul(MINUTE_MS))
        };
        Ok(Self { moment, query, resolution, step_ms, folds: BTreeMap::new(), points: 0, broken: 0 })
    }

    fn run(mut self) -> Result<Answer, Stop> {
        let kind = match self.resolution {
            Resolution::Raw => Kind::Raw,
            Resolution::Minute => Kind::Minutes,
        };
        let from = self.from();
        for (segment, entry) in self.moment.entries(kind) {
            if entry.last < from || entry.first >= self.query.to_ms {
                continue;
            }
            match segment.block(entry) {
                Ok(block) => self.block(block)?,
                Err(ReadError::Broken) => self.broken += 1,
                Err(error) => return Err(Stop::of(segment, error)),
            }
        }
        for (name, samples) in self.moment.chunks().filter(|(name, _)| name.starts_with(self.query.prefix)) {
            match self.resolution {
                Resolution::Raw => self.samples(name, &samples)?,
                Resolution::Minute => self.points(name, &minutes(&samples))?,
            }
        }
        let lines = self.folds.into_iter().map(|(name, fold)| Line { name: name.into(), points: fold.finish() });
        let lines = lines.filter(|line| !line.points.is_empty()).collect();
        Ok(Answer { resolution: self.resolution, step_ms: self.step_ms, lines, broken: self.broken })
    }

    fn from(&self) -> i64 {
        match self.resolution {
            Resolution::Raw => self.query.from_ms,
            Resolution::Minute => floor(self.query.from_ms, MINUTE_MS),
        }
    }

    fn block(&mut self, mut block: Block) -> Result<(), Stop> {
        let prefix = self.query.prefix;
        let wanted: Vec<Placed> =
            block.series.iter().filter(|placed| placed.name.starts_with(prefix)).cloned().collect();
        for placed in wanted {
            let read = match self.resolution {
                Resolution::Raw => {
                    let samples = block.raw(&placed);
                    samples.map(|samples| self.samples(&placed.name, &samples))
                }
                Resolution::Minute => {
                    let points = block.minutes(&placed);
                    points.map(|points| self.points(&placed.name, &points))
                }
            };
            match read {
                Some(done) => done?,
                None => self.broken += 1,
            }
        }
        Ok(())
    }

    fn samples(&mut self, name: &str, samples: &[(i64, f64)]) -> Result<(), Stop> {
        let (from, to) = (self.from(), self.query.to_ms);
        let begin = samples.partition_point(|sample| sample.0 < from);
        let wanted = samples.iter().skip(begin).take_while(|sample| sample.0 < to);
        self.fold(name, wanted.map(|&(at, value)| Point::of_sample(at, value)))
    }

    fn points(&mut self, name: &str, points: &[Point]) -> Result<(), Stop> {
        let (from, to) = (self.from(), self.query.to_ms);
        let begin = points.partition_point(|point| point.at_ms < from);
        self.fold(name, points.iter().skip(begin).take_while(|point| point.at_ms < to).copied())
    }

    fn fold(&mut self, name: &str, points: impl Iterator<Item = Point>) -> Result<(), Stop> {
        if !self.folds.contains_key(name) {
            self.folds.insert(name.into(), Fold::new(self.step_ms));
        }
        let Some(fold) = self.folds.get_mut(name) else { return Ok(()) };
        let before = fold.len();
        points.for_each(|point| fold.add(&point));
        self.points += fold.len() - before;
        if self.points > MOST_POINTS { Err(Stop::For(StoreError::TooLarge)) } else { Ok(()) }
    }
}
