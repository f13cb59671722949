//! Executes a schedule with symbols.

use std::collections::VecDeque;

use super::flaw::{Fault, Flaw};
use super::set::RankSet;
use crate::geometry::{Geometry, Layout};
use crate::ir::{Collective, Rank, Schedule, Space, Span, Step};

/// What a chunk has in it.
#[derive(Clone)]
struct Value<S> {
    /// Which chunk of the whole collective it is (a part of).
    class: u32,
    /// In which way the contributions were combined.
    form: u64,
    finished: bool,
    /// Whose contributions it has.
    set: S,
}

/// A message under way. Its content is where the sender has it: nobody may change it before it is taken.
struct Message<S> {
    step: usize,
    place: Place,
    depth: u32,
    heard: Option<S>,
}

/// A span in a rank's memory.
#[derive(Clone, Copy)]
struct Place {
    rank: Rank,
    start: u32,
    count: u32,
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

/// What a rank waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Nothing,
    Message(Rank),
    Sends,
    Fence,
}

enum Progress {
    Done,
    Blocked(Wait),
}

pub(super) struct Machine<'a, S> {
    schedule: &'a Schedule,
    geometry: Geometry,
    in_place: bool,
    layouts: Vec<Layout>,
    memory: Vec<Vec<Option<Value<S>>>>,
    /// For each chunk, how many unfinished sends read it.
    sending: Vec<Vec<u32>>,
    touched: Vec<Vec<Touched>>,
    queues: Vec<VecDeque<Message<S>>>,
    at: Vec<usize>,
    waits: Vec<Wait>,
    ready: Vec<Rank>,
    depth: Vec<u32>,
    /// For barriers: of whose coming each rank knows.
    heard: Vec<S>,
    /// Ranks touch each other's memory.
    remote: bool,
    fences: u32,
    epoch: u32,
    arrived: u32,
}

impl<'a, S: RankSet> Machine<'a, S> {
    pub(super) fn new(schedule: &'a Schedule, geometry: Geometry, in_place: bool) -> Self {
        let ranks = schedule.ranks;
        let fences = schedule.programs.first().map_or(0, |program| fences(program)) as u32;
        let layouts: Vec<Layout> = (0..ranks).map(|rank| geometry.layout(rank, in_place)).collect();
        let reduces = schedule.collective.reduces();
        let memory = (0..ranks).zip(&layouts).map(|(rank, layout)| {
            let mut memory = vec![None; layout.all as usize];
            let set = S::one(rank, ranks);
            for chunk in 0..geometry.chunks(rank, Space::Input) {
                let class = geometry.class(rank, Space::Input, chunk);
                let value = Value { class, form: leaf(rank), finished: reduces && ranks == 1, set: set.clone() };
                memory[(layout.start(Space::Input) + chunk) as usize] = Some(value);
            }
            memory
        });
        let memory = memory.collect();
        let remote = schedule.programs.iter().flatten().any(is_remote);
        let touches = |layout: &Layout| vec![Touched::default(); if remote { layout.all as usize } else { 0 }];
        let touched = layouts.iter().map(touches).collect();
        let sending = layouts.iter().map(|layout| vec![0; layout.all as usize]).collect();
        let count = ranks as usize;
        Self {
            schedule,
            geometry,
            in_place,
            layouts,
            memory,
            sending,
            touched,
            queues: (0..count * count).map(|_| VecDeque::new()).collect(),
            at: vec![0; count],
            waits: vec![Wait::Nothing; count],
            ready: (0..ranks).rev().collect(),
            depth: vec![0; count],
            heard: (0..ranks).map(|rank| S::one(rank, ranks)).collect(),
            remote,
            fences,
            epoch: 0,
            arrived: 0,
        }
    }

    /// Runs everything; the depth of the critical path is the answer.
    pub(super) fn run(mut self) -> Result<u32, Flaw> {
        self.kinds()?;
        while let Some(rank) = self.ready.pop() {
            while let Some(step) = self.schedule.programs[rank as usize].get(self.at[rank as usize]) {
                match self.step(rank, step).map_err(|fault| self.flaw(rank, fault))? {
                    Progress::Done => self.at[rank as usize] += 1,
                    Progress::Blocked(wait) => {
                        self.waits[rank as usize] = wait;
                        break;
                    }
                }
            }
        }
        self.all_ended()?;
        (0..self.schedule.ranks).try_for_each(|rank| self.result(rank))?;
        Ok(self.depth.iter().copied().max().unwrap_or(0))
    }

    /// Either messages or memory, and the same fences everywhere.
    fn kinds(&self) -> Result<(), Flaw> {
        for (rank, program) in (0..).zip(&self.schedule.programs) {
            let mixed = program.iter().position(|step| self.remote && is_message(step));
            let flaw = |step, fault| Flaw { rank: Some(rank), step, in_place: self.in_place, fault };
            if let Some(step) = mixed {
                return Err(flaw(Some(step), Fault::Mixed));
            }
            let has = fences(program);
            if has != self.fences as usize {
                return Err(flaw(None, Fault::Fences { has, others: self.fences as usize }));
            }
        }
        Ok(())
    }

    fn flaw(&self, rank: Rank, fault: Fault) -> Flaw {
        Flaw { rank: Some(rank), step: Some(self.at[rank as usize]), in_place: self.in_place, fault }
    }

    fn step(&mut self, rank: Rank, step: &Step) -> Result<Progress, Fault> {
        match step {
            Step::Copy { from, to } => {
                let (from, to) = (self.place(rank, from)?, self.writable(rank, to)?);
                apart(from, to)?;
                if from.start == to.start {
                    return self.same(from, to).map(|()| Progress::Done);
                }
                if self.still_sent(to) {
                    return Ok(Progress::Blocked(Wait::Sends));
                }
                self.copy(rank, from, to)?;
            }
            Step::Send { to, what } => {
                self.peer(rank, *to)?;
                let place = self.message(rank, what)?;
                for index in 0..place.count {
                    self.value(place, index)?;
                    self.sending[rank as usize][(place.start + index) as usize] += 1;
                }
                let depth = self.depth[rank as usize] + 1;
                let heard = self.is_barrier().then(|| self.heard[rank as usize].clone());
                let step = self.at[rank as usize];
                let queue = self.queue(rank, *to);
                self.queues[queue].push_back(Message { step, place, depth, heard });
                if self.waits[*to as usize] == Wait::Message(rank) {
                    self.wake(*to);
                }
            }
            Step::Receive { from, into } => {
                self.peer(rank, *from)?;
                let into = self.message(rank, into)?;
                if into.space == Space::Input && into.count > 0 {
                    return Err(Fault::WritesInput);
                }
                let Some(message) = self.queues[self.queue(*from, rank)].front() else {
                    return Ok(Progress::Blocked(Wait::Message(*from)));
                };
                let place = message.place;
                if place.count != into.count {
                    return Err(Fault::Count { from: place.count, into: into.count });
                }
                if self.still_sent(into) {
                    return Ok(Progress::Blocked(Wait::Sends));
                }
                self.copy(rank, place, into)?;
                self.take(*from, rank);
            }
            Step::Combine { from, own, into, finish } => return self.combine(rank, from, own, into, *finish),
            Step::Fence => return Ok(self.fence(rank)),
            Step::RemoteCombine { from, chunks, into, at, finish } => {
                let places = |space, start: u32, list: &[Rank]| -> Result<Vec<Place>, Fault> {
                    let end = start.saturating_add(chunks.end.saturating_sub(chunks.start));
                    list.iter().map(|of| self.place(*of, &Span { space, chunks: start..end })).collect()
                };
                self.ranks(from)?;
                self.ranks(into)?;
                if !from.contains(&rank) {
                    return Err(Fault::Ranks);
                }
                let (inputs, outputs) = (places(Space::Input, chunks.start, from)?, places(Space::Output, *at, into)?);
                for output in &outputs {
                    if let Ok(index) = from.binary_search(&output.rank) {
                        apart(inputs[index], *output)?;
                    }
                }
                let count = chunks.end - chunks.start;
                let results = self.reduce(rank, &inputs, count, *finish)?;
                for output in outputs {
                    self.write(rank, output, results.clone())?;
                }
            }
            Step::RemoteCopy { of, from, to } => {
                self.peer(rank, *of)?;
                if from.space == Space::Scratch {
                    return Err(Fault::Peer(*of));
                }
                let (from, to) = (self.place(*of, from)?, self.writable(rank, to)?);
                self.copy(rank, from, to)?;
            }
        }
        Ok(Progress::Done)
    }

    fn combine(&mut self, rank: Rank, from: &[Rank], own: &Span, into: &Span, finish: bool) -> Result<Progress, Fault> {
        self.ranks(from)?;
        if from.contains(&rank) {
            return Err(Fault::Ranks);
        }
        let (own, into) = (self.place(rank, own)?, self.writable(rank, into)?);
        apart(own, into)?;
        let mut parts = Vec::with_capacity(from.len() + 1);
        for peer in from {
            let Some(message) = self.queues[self.queue(*peer, rank)].front() else {
                return Ok(Progress::Blocked(Wait::Message(*peer)));
            };
            parts.push(message.place);
        }
        parts.insert(from.partition_point(|peer| *peer < rank), own);
        if let Some(part) = parts.iter().find(|part| part.count != into.count) {
            return Err(Fault::Count { from: part.count, into: into.count });
        }
        if self.still_sent(into) {
            return Ok(Progress::Blocked(Wait::Sends));
        }
        let results = self.reduce(rank, &parts, into.count, finish)?;
        self.write(rank, into, results)?;
        for peer in from {
            self.take(*peer, rank);
        }
        Ok(Progress::Done)
    }

    /// Reduces some parts, which are in rank order.
    fn reduce(&mut self, rank: Rank, parts: &[Place], count: u32, finish: bool) -> Result<Vec<Value<S>>, Fault> {
        if !self.schedule.collective.reduces() {
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
                if let Some(lacks) = sum.set.missing(self.schedule.ranks) {
                    return Err(Fault::FinishedEarly { class: sum.class, lacks });
                }
                sum.finished = true;
            }
            results.push(sum);
        }
        Ok(results)
    }

    fn fence(&mut self, rank: Rank) -> Progress {
        let ranks = self.schedule.ranks;
        if self.waits[rank as usize] == Wait::Fence {
            // Woken by the last who came.
            self.waits[rank as usize] = Wait::Nothing;
            return Progress::Done;
        }
        self.arrived += 1;
        if self.arrived < ranks {
            return Progress::Blocked(Wait::Fence);
        }
        self.arrived = 0;
        self.epoch += 1;
        let depth = self.depth.iter().copied().max().unwrap_or(0) + 1;
        self.depth.fill(depth);
        if self.is_barrier()
            && let Some(all) = self.heard.iter().cloned().reduce(|a, b| a.union(&b))
        {
            self.heard.fill(all);
        }
        self.ready.extend((0..ranks).filter(|other| *other != rank));
        Progress::Done
    }

    fn is_barrier(&self) -> bool {
        self.schedule.collective == Collective::Barrier
    }

    fn queue(&self, from: Rank, to: Rank) -> usize {
        from as usize * self.schedule.ranks as usize + to as usize
    }

    fn wake(&mut self, rank: Rank) {
        self.waits[rank as usize] = Wait::Nothing;
        self.ready.push(rank);
    }

    /// Takes the next message; its sender may write again what it sent.
    fn take(&mut self, from: Rank, to: Rank) {
        let queue = self.queue(from, to);
        let Some(message) = self.queues[queue].pop_front() else { return };
        for index in 0..message.place.count {
            self.sending[from as usize][(message.place.start + index) as usize] -= 1;
        }
        self.depth[to as usize] = self.depth[to as usize].max(message.depth);
        if let Some(heard) = message.heard {
            self.heard[to as usize] = self.heard[to as usize].union(&heard);
        }
        if self.waits[from as usize] == Wait::Sends {
            self.wake(from);
        }
    }

    fn peer(&self, rank: Rank, peer: Rank) -> Result<(), Fault> {
        if peer >= self.schedule.ranks || peer == rank { Err(Fault::Peer(peer)) } else { Ok(()) }
    }

    /// A list of ranks: some, ascending.
    fn ranks(&self, list: &[Rank]) -> Result<(), Fault> {
        if let Some(beyond) = list.iter().find(|rank| **rank >= self.schedule.ranks) {
            return Err(Fault::Peer(*beyond));
        }
        if list.is_empty() || !list.is_sorted_by(|a, b| a < b) { Err(Fault::Ranks) } else { Ok(()) }
    }

    fn message(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
        if self.is_barrier() != span.chunks.is_empty() {
            return Err(Fault::Token);
        }
        if self.is_barrier() {
            return Ok(Place { rank, start: 0, count: 0, space: span.space, chunk: 0 });
        }
        self.place(rank, span)
    }

    fn place(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
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

    fn writable(&self, rank: Rank, span: &Span) -> Result<Place, Fault> {
        if span.space == Space::Input { Err(Fault::WritesInput) } else { self.place(rank, span) }
    }

    fn still_sent(&self, place: Place) -> bool {
        let sending = &self.sending[place.rank as usize];
        (0..place.count).any(|index| sending[(place.start + index) as usize] > 0)
    }

    fn value(&self, place: Place, index: u32) -> Result<&Value<S>, Fault> {
        let value = self.memory[place.rank as usize][(place.start + index) as usize].as_ref();
        value.ok_or(Fault::Undefined { of: place.rank, space: place.space, chunk: place.chunk + index })
    }

    fn copy(&mut self, rank: Rank, from: Place, to: Place) -> Result<(), Fault> {
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
    fn same(&self, from: Place, to: Place) -> Result<(), Fault> {
        for index in 0..from.count {
            let has = self.value(from, index)?.class;
            let into = self.geometry.class(to.rank, to.space, to.chunk + index);
            if has != into {
                return Err(Fault::Class { from: has, into });
            }
        }
        Ok(())
    }

    fn write(&mut self, rank: Rank, to: Place, values: Vec<Value<S>>) -> Result<(), Fault> {
        for (index, value) in (0..).zip(values) {
            self.touch(rank, to, index, true)?;
            let class = self.geometry.class(to.rank, to.space, to.chunk + index);
            if class != value.class {
                return Err(Fault::Class { from: value.class, into: class });
            }
            self.memory[to.rank as usize][(to.start + index) as usize] = Some(value);
        }
        Ok(())
    }

    /// Notes that a rank touches memory, and finds races.
    fn touch(&mut self, rank: Rank, place: Place, index: u32, writes: bool) -> Result<(), Fault> {
        if !self.remote {
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

    /// Every program has come to its end and every message has been taken.
    fn all_ended(&self) -> Result<(), Flaw> {
        let flaw = |rank, step, fault| Flaw { rank: Some(rank), step: Some(step), in_place: self.in_place, fault };
        for (rank, program) in (0..).zip(&self.schedule.programs) {
            if self.at[rank as usize] < program.len() {
                return Err(flaw(rank, self.at[rank as usize], Fault::Deadlock));
            }
        }
        for (index, queue) in self.queues.iter().enumerate() {
            if let Some(message) = queue.front() {
                let (from, to) = (index / self.schedule.ranks as usize, index % self.schedule.ranks as usize);
                return Err(flaw(from as Rank, message.step, Fault::Unreceived { to: to as Rank }));
            }
        }
        Ok(())
    }

    /// A rank's output is what it should be.
    fn result(&self, rank: Rank) -> Result<(), Flaw> {
        let flaw = |fault| Flaw { rank: Some(rank), step: None, in_place: self.in_place, fault };
        if self.is_barrier() {
            let unheard = self.heard[rank as usize].missing(self.schedule.ranks);
            return unheard.map_or(Ok(()), |unheard| Err(flaw(Fault::Unheard { unheard })));
        }
        for chunk in 0..self.geometry.chunks(rank, Space::Output) {
            self.chunk(rank, chunk).map_err(flaw)?;
        }
        Ok(())
    }

    fn chunk(&self, rank: Rank, chunk: u32) -> Result<(), Fault> {
        let ranks = self.schedule.ranks;
        let output = self.layouts[rank as usize].start(Space::Output);
        let Some(value) = &self.memory[rank as usize][(output + chunk) as usize] else {
            return Err(Fault::Unwritten { chunk });
        };
        if value.class != self.geometry.class(rank, Space::Output, chunk) {
            return Err(Fault::Elsewhere { chunk });
        }
        let block = self.geometry.block();
        let origin = match self.schedule.collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => root,
            Collective::AllGather | Collective::Gather { .. } | Collective::AllToAll => chunk / block,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter | Collective::Barrier => {
                if let Some(lacks) = value.set.missing(ranks) {
                    return Err(Fault::Lacks { chunk, lacks });
                }
                if !value.finished {
                    return Err(Fault::Unfinished { chunk });
                }
                let first = (self.schedule.collective == Collective::AllReduce)
                    .then(|| self.memory[0][(self.layouts[0].start(Space::Output) + chunk) as usize].as_ref())
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
fn apart(from: Place, to: Place) -> Result<(), Fault> {
    if from.count != to.count {
        return Err(Fault::Count { from: from.count, into: to.count });
    }
    let meet = from.rank == to.rank && from.start < to.start + to.count && to.start < from.start + from.count;
    if meet && from.start != to.start { Err(Fault::Overlap) } else { Ok(()) }
}

fn is_message(step: &Step) -> bool {
    matches!(step, Step::Send { .. } | Step::Receive { .. } | Step::Combine { .. })
}

fn is_remote(step: &Step) -> bool {
    matches!(step, Step::Fence | Step::RemoteCombine { .. } | Step::RemoteCopy { .. })
}

fn fences(program: &[Step]) -> usize {
    program.iter().filter(|step| **step == Step::Fence).count()
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
