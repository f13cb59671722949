//! Executes a schedule with symbols.

use std::collections::VecDeque;

use super::flaw::{Fault, Flaw};
use super::memory::{Memory, Place, apart};
use super::set::RankSet;
use crate::geometry::Geometry;
use crate::ir::{Collective, Rank, Schedule, Space, Span, Step};

/// A message under way. Its content is where the sender has it: nobody may change it before it is taken.
struct Message<S> {
    step: usize,
    place: Place,
    depth: u32,
    heard: Option<S>,
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
    memory: Memory<S>,
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
    /// How many ranks stand at the next fence.
    arrived: u32,
}

impl<'a, S: RankSet> Machine<'a, S> {
    pub(super) fn new(schedule: &'a Schedule, geometry: Geometry, in_place: bool) -> Self {
        let ranks = schedule.ranks;
        let fences = schedule.programs.first().map_or(0, |program| fences(program)) as u32;
        let remote = schedule.programs.iter().flatten().any(is_remote);
        let count = ranks as usize;
        Self {
            schedule,
            geometry,
            in_place,
            memory: Memory::new(schedule, geometry, in_place, remote.then_some(fences)),
            queues: (0..count * count).map(|_| VecDeque::new()).collect(),
            at: vec![0; count],
            waits: vec![Wait::Nothing; count],
            ready: (0..ranks).rev().collect(),
            depth: vec![0; count],
            heard: (0..ranks).map(|rank| S::one(rank, ranks)).collect(),
            remote,
            fences,
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
                let (from, to) = (self.memory.place(rank, from)?, self.memory.writable(rank, to)?);
                apart(from, to)?;
                if from.start == to.start {
                    return self.memory.same(from, to).map(|()| Progress::Done);
                }
                if self.memory.still_sent(to) {
                    return Ok(Progress::Blocked(Wait::Sends));
                }
                self.memory.copy(rank, from, to)?;
            }
            Step::Send { to, what } => {
                self.peer(rank, *to)?;
                let place = self.memory.message(rank, what)?;
                self.memory.hold(place)?;
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
                if !self.is_barrier() {
                    self.memory.writable(rank, into)?;
                }
                let into = self.memory.message(rank, into)?;
                let Some(message) = self.queues[self.queue(*from, rank)].front() else {
                    return Ok(Progress::Blocked(Wait::Message(*from)));
                };
                let place = message.place;
                if place.count != into.count {
                    return Err(Fault::Count { from: place.count, into: into.count });
                }
                if self.memory.still_sent(into) {
                    return Ok(Progress::Blocked(Wait::Sends));
                }
                self.memory.copy(rank, place, into)?;
                self.take(*from, rank);
            }
            Step::Combine { from, own, into, finish } => return self.combine(rank, from, own, into, *finish),
            Step::Fence => return Ok(self.fence(rank)),
            Step::RemoteCombine { from, chunks, into, at, finish } => {
                let places = |space, start: u32, list: &[Rank]| -> Result<Vec<Place>, Fault> {
                    let end = start.saturating_add(chunks.end.saturating_sub(chunks.start));
                    list.iter().map(|of| self.memory.place(*of, &Span { space, chunks: start..end })).collect()
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
                let results = self.memory.reduce(rank, &inputs, count, *finish)?;
                for output in outputs {
                    self.memory.write(rank, output, results.clone())?;
                }
            }
            Step::RemoteCopy { of, from, to } => {
                self.peer(rank, *of)?;
                if from.space == Space::Scratch {
                    return Err(Fault::Peer(*of));
                }
                let (from, to) = (self.memory.place(*of, from)?, self.memory.writable(rank, to)?);
                self.memory.copy(rank, from, to)?;
            }
        }
        Ok(Progress::Done)
    }

    fn combine(&mut self, rank: Rank, from: &[Rank], own: &Span, into: &Span, finish: bool) -> Result<Progress, Fault> {
        self.ranks(from)?;
        if from.contains(&rank) {
            return Err(Fault::Ranks);
        }
        let (own, into) = (self.memory.place(rank, own)?, self.memory.writable(rank, into)?);
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
        if self.memory.still_sent(into) {
            return Ok(Progress::Blocked(Wait::Sends));
        }
        let results = self.memory.reduce(rank, &parts, into.count, finish)?;
        self.memory.write(rank, into, results)?;
        for peer in from {
            self.take(*peer, rank);
        }
        Ok(Progress::Done)
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
        self.memory.epoch += 1;
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
        self.memory.release(message.place);
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
            self.memory.result(rank, chunk).map_err(flaw)?;
        }
        Ok(())
    }
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
