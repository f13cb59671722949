//! What the tests share: random numbers, every schedule there is, and a plain executor that knows nothing of the verifier.

use std::collections::VecDeque;

use eirene_train_schedule::{Algorithm, Collective, Lengths, Schedule, Space, Span, Step, algorithms};

/// Random numbers that can be had again: SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// From `EIRENE_TEST_SEED`, else always the same.
    pub(crate) fn new(salt: u64) -> Self {
        Self(seed().wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

pub(crate) fn seed() -> u64 {
    std::env::var("EIRENE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20)
}

pub(crate) fn deep() -> bool {
    std::env::var("EIRENE_TEST_DEEP").is_ok_and(|deep| deep == "1")
}

/// Different ways in which ranks can lie on nodes.
pub(crate) fn nodes(ranks: u32) -> Vec<Vec<u32>> {
    vec![
        vec![7; ranks as usize],
        (0..ranks).collect(),
        (0..ranks).map(|rank| rank % 2).collect(),
        (0..ranks).map(|rank| rank / 2).collect(),
        (0..ranks).map(|rank| 9 - rank.min(7) / 3).collect(),
        (0..ranks).map(|rank| u32::from(rank > 0)).collect(),
    ]
}

/// Every algorithm there is for a collective, some with odd parameters.
pub(crate) fn every(collective: Collective, ranks: u32) -> Vec<Algorithm> {
    let mut list: Vec<Algorithm> =
        nodes(ranks).iter().flat_map(|nodes| algorithms(collective, ranks, nodes, true)).collect();
    for segments in [1, 3, 5] {
        match collective {
            Collective::AllReduce => list.push(Algorithm::SegmentedRing { segments }),
            Collective::Broadcast { .. } => list.push(Algorithm::Chain { segments }),
            Collective::Reduce { .. } => {
                list.extend([1, 3, 100].map(|chain| Algorithm::ChainBinomial { chain, segments }));
            }
            _ => {}
        }
        if matches!(
            collective,
            Collective::AllReduce | Collective::Broadcast { .. } | Collective::ReduceScatter | Collective::AllGather
        ) {
            list.extend(nodes(ranks).into_iter().map(|nodes| Algorithm::TwoLevel { nodes, segments }));
        }
        if collective != Collective::Barrier {
            list.push(Algorithm::Direct { segments });
        }
    }
    list.sort();
    list.dedup();
    list
}

/// Lengths around a number of elements, uneven where they may be.
pub(crate) fn lengths(collective: Collective, ranks: u32, around: u64, random: &mut Random) -> Lengths {
    let mut blocks = || (0..ranks).map(|_| random.next() % (around + 2)).collect::<Vec<_>>();
    match collective {
        Collective::AllReduce | Collective::Broadcast { .. } | Collective::Reduce { .. } => Lengths::Whole(around),
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather { .. } | Collective::Scatter { .. } => {
            Lengths::Blocks(blocks())
        }
        Collective::AllToAll => Lengths::Pairs((0..ranks).map(|_| blocks()).collect()),
        Collective::Barrier => Lengths::Nothing,
    }
}

/// What can be reduced in a test.
pub(crate) trait Number: Copy + PartialEq + std::fmt::Debug {
    fn random(random: &mut Random) -> Self;
    /// What undefined memory has in it.
    fn garbage(random: &mut Random) -> Self;
    fn plus(self, other: Self) -> Self;
    /// Something that must happen exactly once, and behind all additions.
    fn finish(self) -> Self;
}

impl Number for u64 {
    fn random(random: &mut Random) -> Self {
        random.next()
    }

    fn garbage(random: &mut Random) -> Self {
        random.next()
    }

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    fn finish(self) -> Self {
        self.rotate_left(17) ^ 0x5555_aaaa_3333_cccc
    }
}

impl Number for f64 {
    fn random(random: &mut Random) -> Self {
        (random.next() >> 11) as f64 / 1e12 - 4000.0
    }

    fn garbage(_random: &mut Random) -> Self {
        f64::NAN
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn finish(self) -> Self {
        self / 7.0
    }
}

/// How many elements each of a rank's chunks in a space has, as ir.rs says.
fn cuts(schedule: &Schedule, lengths: &Lengths, rank: usize, space: Space) -> Vec<usize> {
    let split = |elements: u64, pieces: u32| -> Vec<usize> {
        let (mut left, mut cuts) = (elements as usize, Vec::new());
        for pieces_left in (1..=pieces as usize).rev() {
            cuts.push(left.div_ceil(pieces_left));
            left -= left.div_ceil(pieces_left);
        }
        cuts
    };
    let ranks = schedule.ranks;
    let longer = if schedule.input_chunks > schedule.output_chunks { Space::Input } else { Space::Output };
    let space = if space == Space::Scratch { longer } else { space };
    let chunks = if space == Space::Input { schedule.input_chunks } else { schedule.output_chunks };
    match lengths {
        Lengths::Whole(elements) => split(*elements, chunks),
        Lengths::Blocks(blocks) if space == longer => {
            blocks.iter().flat_map(|elements| split(*elements, chunks / ranks)).collect()
        }
        Lengths::Blocks(blocks) => split(blocks[rank], chunks),
        Lengths::Pairs(pairs) if space == Space::Input => {
            pairs[rank].iter().flat_map(|elements| split(*elements, chunks / ranks)).collect()
        }
        Lengths::Pairs(pairs) => pairs.iter().flat_map(|row| split(row[rank], chunks / ranks)).collect(),
        Lengths::Nothing => Vec::new(),
    }
}

/// A rank's memory: where its spaces begin, where chunks begin in them, and what is there.
struct Memory<T> {
    starts: [usize; 3],
    offsets: [Vec<usize>; 3],
    data: Vec<T>,
}

impl<T: Number> Memory<T> {
    fn range(&self, span: &Span) -> Result<std::ops::Range<usize>, String> {
        let space = span.space as usize;
        let offset = |chunk: u32| self.offsets[space].get(chunk as usize).copied().ok_or("beyond the space");
        let start = self.starts[space] + offset(span.chunks.start)?;
        Ok(start..(self.starts[space] + offset(span.chunks.end)?).max(start))
    }
}

/// A message under way: copied when it was sent, or read where it lies when it is taken.
struct Message<T> {
    copied: Option<Vec<T>>,
    place: std::ops::Range<usize>,
}

/// How an execution goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mode {
    pub(crate) in_place: bool,
    /// Messages leave only when they are taken.
    pub(crate) unbuffered: bool,
}

pub(crate) const MODES: [Mode; 4] = [
    Mode { in_place: false, unbuffered: false },
    Mode { in_place: false, unbuffered: true },
    Mode { in_place: true, unbuffered: false },
    Mode { in_place: true, unbuffered: true },
];

pub(crate) struct Run<'a, T> {
    schedule: &'a Schedule,
    mode: Mode,
    memories: Vec<Memory<T>>,
    queues: Vec<Vec<VecDeque<Message<T>>>>,
    at: Vec<usize>,
    /// The step behind the fence a rank has come to last.
    fences: Vec<usize>,
    begun: Vec<bool>,
}

impl<'a, T: Number> Run<'a, T> {
    /// Executes a schedule for some inputs, the ranks in a random order; the answer is every rank's output.
    pub(crate) fn execute(
        schedule: &'a Schedule,
        lengths: &Lengths,
        inputs: &[Vec<T>],
        mode: Mode,
        random: &mut Random,
    ) -> Result<Vec<Vec<T>>, String> {
        let ranks = schedule.ranks as usize;
        let memories: Vec<Memory<T>> =
            (0..ranks).map(|rank| memory(schedule, lengths, rank, &inputs[rank], mode.in_place, random)).collect();
        let queues = (0..ranks).map(|_| (0..ranks).map(|_| VecDeque::new()).collect()).collect();
        let mut run = Self {
            schedule,
            mode,
            memories,
            queues,
            at: vec![0; ranks],
            fences: vec![0; ranks],
            begun: vec![false; ranks],
        };
        run.all(random)?;
        let outputs = run.memories.iter().map(|memory| {
            let (start, length) = (memory.starts[1], memory.offsets[1].last().copied().unwrap_or(0));
            memory.data[start..start + length].to_vec()
        });
        for (memory, input) in run.memories.iter().zip(inputs) {
            if !mode.in_place && memory.data[memory.starts[0]..memory.starts[0] + input.len()] != input[..] {
                return Err("the input was written".to_owned());
            }
        }
        Ok(outputs.collect())
    }

    fn all(&mut self, random: &mut Random) -> Result<(), String> {
        let ranks = self.at.len();
        loop {
            let (first, mut moved, mut ended) = (random.below(ranks), false, true);
            for rank in (0..ranks).map(|distance| (first + distance) % ranks) {
                self.begun[rank] = true;
                let burst = random.below(6);
                for _ in 0..=burst {
                    let Some(step) = self.schedule.programs[rank].get(self.at[rank]) else { break };
                    ended = false;
                    if !self.step(rank, step).map_err(|what| format!("rank {rank}, {step:?}: {what}"))? {
                        break;
                    }
                    moved = true;
                    self.at[rank] += 1;
                }
                let over = self.at[rank] == self.schedule.programs[rank].len();
                if over && self.schedule.collective == Collective::Barrier && self.begun.contains(&false) {
                    return Err(format!("rank {rank} left the barrier early"));
                }
                if moved && random.below(3) == 0 {
                    break;
                }
            }
            if ended && (0..ranks).all(|rank| self.at[rank] == self.schedule.programs[rank].len()) {
                let left = self.queues.iter().flatten().any(|queue| !queue.is_empty());
                return if left { Err("a message was not taken".to_owned()) } else { Ok(()) };
            }
            if !moved && !ended {
                return Err("all wait".to_owned());
            }
        }
    }

    fn still_sent(&self, rank: usize, place: &std::ops::Range<usize>) -> bool {
        let meets = |message: &Message<T>| message.place.start < place.end && place.start < message.place.end;
        self.mode.unbuffered && self.queues[rank].iter().flatten().any(meets)
    }

    fn take(&mut self, from: usize, to: usize) -> Vec<T> {
        let message = self.queues[from][to].pop_front().unwrap();
        message.copied.unwrap_or_else(|| self.memories[from].data[message.place].to_vec())
    }

    /// Whether the step could be done.
    fn step(&mut self, rank: usize, step: &Step) -> Result<bool, String> {
        let ranks = self.at.len();
        let known =
            |peer: u32| if (peer as usize) < ranks { Ok(peer as usize) } else { Err("no such rank".to_owned()) };
        match step {
            Step::Copy { from, to } => {
                let (from, to) = (self.memories[rank].range(from)?, self.memories[rank].range(to)?);
                if from != to {
                    if self.still_sent(rank, &to) {
                        return Ok(false);
                    }
                    let data = self.memories[rank].data[from].to_vec();
                    self.write(rank, to, &data)?;
                }
            }
            Step::Send { to, what } => {
                let place = self.memories[rank].range(what)?;
                if !place.is_empty() || what.chunks.is_empty() {
                    let copied = (!self.mode.unbuffered).then(|| self.memories[rank].data[place.clone()].to_vec());
                    self.queues[rank][known(*to)?].push_back(Message { copied, place });
                }
            }
            Step::Receive { from, into } => {
                let place = self.memories[rank].range(into)?;
                if !place.is_empty() || into.chunks.is_empty() {
                    if self.queues[known(*from)?][rank].is_empty() || self.still_sent(rank, &place) {
                        return Ok(false);
                    }
                    let data = self.take(*from as usize, rank);
                    self.write(rank, place, &data)?;
                }
            }
            Step::Combine { from, own, into, finish } => {
                let (own, into) = (self.memories[rank].range(own)?, self.memories[rank].range(into)?);
                if into.is_empty() {
                    return Ok(true);
                }
                for peer in from {
                    if self.queues[known(*peer)?][rank].is_empty() {
                        return Ok(false);
                    }
                }
                if self.still_sent(rank, &into) {
                    return Ok(false);
                }
                let mut parts: Vec<(usize, Vec<T>)> = vec![(rank, self.memories[rank].data[own].to_vec())];
                for peer in from {
                    parts.push((*peer as usize, self.take(*peer as usize, rank)));
                }
                let sum = reduce(parts, *finish)?;
                self.write(rank, into, &sum)?;
            }
            Step::Fence => {
                self.fences[rank] = self.at[rank] + 1;
                let passed = |rank: usize| {
                    let program = &self.schedule.programs[rank];
                    let reached = self.at[rank] + usize::from(self.fences[rank] == self.at[rank] + 1);
                    program[..reached].iter().filter(|step| **step == Step::Fence).count()
                };
                let mine = passed(rank);
                return Ok((0..ranks).all(|other| passed(other) >= mine));
            }
            Step::RemoteCombine { from, chunks, into, at, finish } => {
                let mut parts = Vec::new();
                for peer in from {
                    let memory = &self.memories[known(*peer)?];
                    let place = memory.range(&Span { space: Space::Input, chunks: chunks.clone() })?;
                    parts.push((*peer as usize, memory.data[place].to_vec()));
                }
                let sum = reduce(parts, *finish)?;
                for peer in into {
                    let end = at + chunks.end - chunks.start;
                    let place = self.memories[known(*peer)?].range(&Span { space: Space::Output, chunks: *at..end })?;
                    self.write(*peer as usize, place, &sum)?;
                }
            }
            Step::RemoteCopy { of, from, to } => {
                let data = {
                    let memory = &self.memories[known(*of)?];
                    memory.data[memory.range(from)?].to_vec()
                };
                let place = self.memories[rank].range(to)?;
                self.write(rank, place, &data)?;
            }
        }
        Ok(true)
    }

    fn write(&mut self, rank: usize, place: std::ops::Range<usize>, data: &[T]) -> Result<(), String> {
        if place.len() != data.len() {
            return Err(format!("{} elements for a place of {}", data.len(), place.len()));
        }
        self.memories[rank].data[place].copy_from_slice(data);
        Ok(())
    }
}

fn reduce<T: Number>(mut parts: Vec<(usize, Vec<T>)>, finish: bool) -> Result<Vec<T>, String> {
    parts.sort_by_key(|(rank, _)| *rank);
    let mut parts = parts.into_iter();
    let (_, mut sum) = parts.next().ok_or("nothing to combine")?;
    for (_, part) in parts {
        if part.len() != sum.len() {
            return Err("parts of different lengths".to_owned());
        }
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = sum.plus(part));
    }
    if finish {
        for sum in &mut sum {
            *sum = sum.finish();
        }
    }
    Ok(sum)
}

/// The spaces of a rank, the input filled.
fn memory<T: Number>(
    schedule: &Schedule,
    lengths: &Lengths,
    rank: usize,
    input: &[T],
    in_place: bool,
    random: &mut Random,
) -> Memory<T> {
    let offsets = [Space::Input, Space::Output, Space::Scratch].map(|space| {
        let mut offsets = vec![0];
        for length in cuts(schedule, lengths, rank, space) {
            offsets.push(offsets.last().unwrap() + length);
        }
        offsets
    });
    let [inputs, outputs, scratch] = [0, 1, 2].map(|space: usize| offsets[space].last().copied().unwrap());
    let own = |long: &Vec<usize>, short: &Vec<usize>| long[rank * (short.len() - 1)];
    let root = schedule.collective.root();
    let (first, second) = match schedule.collective {
        // Where only the root has both, the others have two memories.
        Collective::Reduce { .. } | Collective::Gather { .. } | Collective::Scatter { .. }
            if root != Some(rank as u32) =>
        {
            (0, inputs)
        }
        _ if !in_place => (0, inputs),
        Collective::ReduceScatter | Collective::Scatter { .. } => (0, own(&offsets[0], &offsets[1])),
        Collective::AllGather | Collective::Gather { .. } => (own(&offsets[1], &offsets[0]), 0),
        _ => (0, 0),
    };
    let mut data: Vec<T> = (0..inputs + outputs + scratch).map(|_| T::garbage(random)).collect();
    data[first..first + input.len()].copy_from_slice(input);
    Memory { starts: [first, second, inputs + outputs], offsets, data }
}

/// Random inputs for a call; ranks that have none get none.
pub(crate) fn inputs<T: Number>(schedule: &Schedule, lengths: &Lengths, random: &mut Random) -> Vec<Vec<T>> {
    let length = |rank: usize| match (schedule.collective, lengths) {
        (Collective::Broadcast { root } | Collective::Scatter { root }, _) if root as usize != rank => 0,
        _ => cuts(schedule, lengths, rank, Space::Input).iter().sum(),
    };
    (0..schedule.ranks as usize).map(|rank| (0..length(rank)).map(|_| T::random(random)).collect()).collect()
}

/// What every rank should get; none where its output is not touched.
pub(crate) fn oracle<T: Number>(collective: Collective, lengths: &Lengths, inputs: &[Vec<T>]) -> Vec<Option<Vec<T>>> {
    let ranks = inputs.len();
    let sum = || -> Vec<T> {
        let mut sum = inputs[0].clone();
        for input in &inputs[1..] {
            sum.iter_mut().zip(input).for_each(|(sum, part)| *sum = sum.plus(*part));
        }
        if ranks > 1 {
            for sum in &mut sum {
                *sum = sum.finish();
            }
        }
        sum
    };
    let block = |all: &[T], lengths: &[u64], index: usize| -> Vec<T> {
        let start = lengths[..index].iter().sum::<u64>() as usize;
        all[start..start + lengths[index] as usize].to_vec()
    };
    let only = |root: u32, what: &dyn Fn() -> Vec<T>| {
        (0..ranks).map(|rank| (rank == root as usize).then(what)).collect::<Vec<_>>()
    };
    match (collective, lengths) {
        (Collective::AllReduce, _) => vec![Some(sum()); ranks],
        (Collective::Reduce { root }, _) => only(root, &sum),
        (Collective::Broadcast { root }, _) => vec![Some(inputs[root as usize].clone()); ranks],
        (Collective::ReduceScatter, Lengths::Blocks(blocks)) => {
            let sum = sum();
            (0..ranks).map(|rank| Some(block(&sum, blocks, rank))).collect()
        }
        (Collective::Scatter { root }, Lengths::Blocks(blocks)) => {
            (0..ranks).map(|rank| Some(block(&inputs[root as usize], blocks, rank))).collect()
        }
        (Collective::AllGather, _) => vec![Some(inputs.concat()); ranks],
        (Collective::Gather { root }, _) => only(root, &|| inputs.concat()),
        (Collective::AllToAll, Lengths::Pairs(pairs)) => (0..ranks)
            .map(|to| Some((0..ranks).flat_map(|from| block(&inputs[from], &pairs[from], to)).collect()))
            .collect(),
        (Collective::Barrier, _) => vec![Some(Vec::new()); ranks],
        _ => panic!("lengths do not suit"),
    }
}
