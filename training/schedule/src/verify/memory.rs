//! The symbolic memory of all ranks.

use super::flaw::Fault;
use super::set::RankSet;
use crate::geometry::{Geometry, Layout};
use crate::ir::{Collective, Rank, Schedule, Space, Span};

/// What a chunk has in it.
#[derive(Clone)]
pub(super) struct Value<S> {
    /// Which chunk of the whole collective it is (a part of).
    class: u32,
    /// In which way the contributions were combined.
    form: u64,
    /// Nothing may be added any more.
    finished: bool,
    /// Whose contributions it has.
    set: S,
}

/// A span in a rank's memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) start: u32,
    pub(super) count: u32,
    space: Space,
    chunk: u32,
}

/// Who touched a chunk last, between which fences.
#[derive(Clone, Copy, Default)]
struct Touched {
    wrote: Option<(u32, Rank)>,
    read: Option<(u32, Rank)>,
    also: Option<(u32, Rank)>,
}

/// What lies where.
pub(super) struct Memory<S> {
    collective: Collective,
    ranks: u32,
    geometry: Geometry,
    layouts: Vec<Layout>,
    values: Vec<Vec<Option<Value<S>>>>,
    /// For each chunk, how many unfinished sends read it.
    sending: Vec<Vec<u32>>,
    /// Only where ranks touch each other's memory.
    touched: Vec<Vec<Touched>>,
    fences: u32,
    /// How many fences have been passed.
    pub(super) epoch: u32,
}

impl<S: RankSet> Memory<S> {
    /// Inputs filled, the rest undefined. `fences` is none where ranks do not touch each other's memory.
    pub(super) fn new(schedule: &Schedule, geometry: Geometry, in_place: bool, fences: Option<u32>) -> Self {
        let ranks = schedule.ranks;
        let layouts: Vec<Layout> = (0..ranks).map(|rank| geometry.layout(rank, in_place)).collect();
        let finished = schedule.collective.reduces() && ranks == 1;
        let values = (0..ranks).zip(&layouts).map(|(rank, layout)| {
            let mut values = vec![None; layout.all as usize];
            let set = S::one(rank, ranks);
            for chunk in 0..geometry.chunks(rank, Space::Input) {
                let class = geometry.class(rank, Space::Input, chunk);
                let value = Value { class, form: leaf(rank), finished, set: set.clone() };
                values[(layout.start(Space::Input) + chunk) as usize] = Some(value);
            }
            values
        });
        let values = values.collect();
        let touches = |layout: &Layout| vec![Touched::default(); layout.all as usize];
        Self {
            collective: schedule.collective,
            ranks,
            geometry,
            values,
            sending: layouts.iter().map(|layout| vec![0; layout.all as usize]).collect(),
            touched: if fences.is_some() { layouts.iter().map(touches).collect() } else { Vec::new() },
            layouts,
            fences: fences.unwrap_or_default(),
            epoch: 0,
        }
    }

    /// A span that is sent or received; a barrier's has no chunks.
    pub(super) fn message(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
        let barrier = self.geometry.classes() == 0;
        if barrier != span.chunks.is_empty() {
            return Err(Fault::Token);
        }
        if barrier {
            return Ok(Place { rank, start: 0, count: 0, space: span.space, chunk: 0 });
        }
        self.place(rank, span)
    }

    /// Where a span lies, if it may be.
    pub(super) fn place(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
        let has = self.geometry.chunks(rank, span.space);
        if span.chunks.end > has {
            return Err(Fault::Bounds { space: span.space, end: span.chunks.end, has });
        }
        if span.chunks.is_empty() {
            return Err(Fault::Token);
        }
        let start = self.layouts[rank as usize].start(span.space) + span.chunks.start;
        let count = span.chunks.end - span.chunks.start;
        Ok(Place { rank, start, count, space: span.space, chunk: span.chunks.start })
    }

    /// As [`Memory::place`], for what is written.
    pub(super) fn writable(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
        if span.space == Space::Input { Err(Fault::WritesInput) } else { self.place(rank, span) }
    }

    /// Whether an unfinished send reads any of it.
    pub(super) fn still_sent(&self, place: Place) -> bool {
        let sending = &self.sending[place.rank as usize];
        (0..place.count).any(|index| sending[(place.start + index) as usize] > 0)
    }

    /// A send begins: its chunks must have a content, and keep it.
    pub(super) fn hold(&mut self, place: Place) -> Result<(), Fault> {
        for index in 0..place.count {
            self.value(place, index)?;
            self.sending[place.rank as usize][(place.start + index) as usize] += 1;
        }
        Ok(())
    }

    /// A send has ended.
    pub(super) fn release(&mut self, place: Place) {
        for index in 0..place.count {
            self.sending[place.rank as usize][(place.start + index) as usize] -= 1;
        }
    }

    fn value(&self, place: Place, index: u32) -> Result<&Value<S>, Fault> {
        let value = self.values[place.rank as usize][(place.start + index) as usize].as_ref();
        value.ok_or(Fault::Undefined { of: place.rank, space: place.space, chunk: place.chunk + index })
    }

    pub(super) fn copy(&mut self, rank: Rank, from: Place, to: Place) -> Result<(), Fault> {
        if from.count != to.count {
            return Err(Fault::Count { from: from.count, into: to.count });
        }
        let mut values = Vec::with_capacity(from.count as usize);
        for index in 0..from.count {
            self.touch(rank, from, index, false)?;
            values.push(self.value(from, index)?.clone());
        }
        self.write(rank, to, values)
    }

    /// A copy of chunks to where they are: there must be something, and it must belong there.
    pub(super) fn same(&self, from: Place, to: Place) -> Result<(), Fault> {
        for index in 0..from.count {
            let has = self.value(from, index)?.class;
            let into = self.geometry.class(to.rank, to.space, to.chunk + index);
            if has != into {
                return Err(Fault::Class { from: has, into });
            }
        }
        Ok(())
    }

    pub(super) fn write(&mut self, rank: Rank, to: Place, values: Vec<Value<S>>) -> Result<(), Fault> {
        for (index, value) in (0..).zip(values) {
            self.touch(rank, to, index, true)?;
            let class = self.geometry.class(to.rank, to.space, to.chunk + index);
            if class != value.class {
                return Err(Fault::Class { from: value.class, into: class });
            }
            self.values[to.rank as usize][(to.start + index) as usize] = Some(value);
        }
        Ok(())
    }

    /// Notes that a rank touches memory, and finds races.
    fn touch(&mut self, rank: Rank, place: Place, index: u32, writes: bool) -> Result<(), Fault> {
        if self.touched.is_empty() {
            return Ok(());
        }
        if place.rank != rank && (self.epoch == 0 || self.epoch == self.fences) {
            return Err(Fault::Unfenced { of: place.rank });
        }
        let at = place.start + index;
        let now = self.epoch;
        let touched = &mut self.touched[place.rank as usize][at as usize];
        let other = |mark: Option<(u32, Rank)>| mark.filter(|(epoch, who)| *epoch == now && *who != rank);
        let clash = other(touched.wrote)
            .or_else(|| if writes { other(touched.read).or_else(|| other(touched.also)) } else { None });
        if let Some((_, with)) = clash {
            return Err(Fault::Race { of: place.rank, place: at, with });
        }
        if writes {
            touched.wrote = Some((now, rank));
        } else if other(touched.read).is_some() {
            touched.also = Some((now, rank));
        } else {
            touched.read = Some((now, rank));
        }
        Ok(())
    }

    /// Reduces some parts, which are in rank order.
    pub(super) fn reduce(
        &mut self,
        rank: Rank,
        parts: &[Place],
        count: u32,
        finish: bool,
    ) -> Result<Vec<Value<S>>, Fault> {
        if !self.collective.reduces() {
            return Err(Fault::Combines);
        }
        let mut results: Vec<Value<S>> = Vec::with_capacity(count as usize);
        for index in 0..count {
            let mut sum: Option<Value<S>> = None;
            for part in parts {
                self.touch(rank, *part, index, false)?;
                let value = self.value(*part, index)?;
                if value.finished {
                    return Err(Fault::FinishedBefore { class: value.class });
                }
                match &mut sum {
                    None => sum = Some(Value { form: mix(value.form), ..value.clone() }),
                    Some(sum) => {
                        if sum.class != value.class {
                            return Err(Fault::Class { from: value.class, into: sum.class });
                        }
                        if let Some(of) = sum.set.common(&value.set) {
                            return Err(Fault::Twice { of, class: value.class });
                        }
                        sum.set = sum.set.union(&value.set);
                        sum.form = mix(sum.form ^ value.form.rotate_left(23));
                    }
                }
            }
            let mut sum = sum.ok_or(Fault::Ranks)?;
            if finish {
                if let Some(lacks) = sum.set.missing(self.ranks) {
                    return Err(Fault::FinishedEarly { class: sum.class, lacks });
                }
                sum.finished = true;
            }
            results.push(sum);
        }
        Ok(results)
    }

    /// An output chunk has in the end what it should.
    pub(super) fn result(&self, rank: Rank, chunk: u32) -> Result<(), Fault> {
        let ranks = self.ranks;
        let output = self.layouts[rank as usize].start(Space::Output);
        let Some(value) = &self.values[rank as usize][(output + chunk) as usize] else {
            return Err(Fault::Unwritten { chunk });
        };
        if value.class != self.geometry.class(rank, Space::Output, chunk) {
            return Err(Fault::Elsewhere { chunk });
        }
        let block = self.geometry.block();
        let origin = match self.collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => root,
            Collective::AllGather | Collective::Gather { .. } | Collective::AllToAll => chunk / block,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter | Collective::Barrier => {
                if let Some(lacks) = value.set.missing(ranks) {
                    return Err(Fault::Lacks { chunk, lacks });
                }
                if !value.finished {
                    return Err(Fault::Unfinished { chunk });
                }
                let first = (self.collective == Collective::AllReduce)
                    .then(|| self.values[0][(self.layouts[0].start(Space::Output) + chunk) as usize].as_ref())
                    .flatten();
                return match first {
                    Some(first) if first.form != value.form => Err(Fault::Diverges { chunk }),
                    _ => Ok(()),
                };
            }
        };
        if value.set == S::one(origin, ranks) { Ok(()) } else { Err(Fault::Elsewhere { chunk }) }
    }
}

/// Two spans in one memory are the same or do not meet.
pub(super) fn apart(from: Place, to: Place) -> Result<(), Fault> {
    if from.count != to.count {
        return Err(Fault::Count { from: from.count, into: to.count });
    }
    let meet = from.rank == to.rank && from.start < to.start + to.count && to.start < from.start + from.count;
    if meet && from.start != to.start { Err(Fault::Overlap) } else { Ok(()) }
}

fn leaf(rank: Rank) -> u64 {
    mix(u64::from(rank) + 1)
}

/// A bijection of words that leaves no bit where it was (SplitMix64's).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
