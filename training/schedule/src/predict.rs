//! About how long a schedule takes.
//!
//! Hockney's model ("The communication challenge for MPP: Intel Paragon and Meiko CS-2", 1994) with Rabenseifner's γ for reductions: a
//! message of m bytes takes α + βm and a rank sends one after the other, as it receives them; reducing m bytes takes γm. Ranks of a node
//! share the node's link to the others. The programs are executed with times in place of data. It is a guide to what is worth measuring,
//! not a measurement.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use crate::geometry::Lengths;
use crate::ir::{Rank, Space, Span, Step};
use crate::verify::Verified;

/// A way between ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Seconds for a message of any length.
    pub latency: f64,
    /// Seconds for each byte.
    pub per_byte: f64,
}

/// What things cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Within a node.
    pub inside: Link,
    /// Between nodes; all ranks of a node share it.
    pub between: Link,
    /// Seconds for each byte that is reduced into others.
    pub reduce: f64,
    /// Seconds for each byte that is copied within a rank.
    pub copy: f64,
}

/// Predicts the seconds until the last rank is through, input and output apart; none where the lengths do not suit the collective or not
/// every rank has a node.
pub fn predict(
    schedule: &Verified,
    lengths: &Lengths,
    element_bytes: u64,
    nodes: &[u32],
    costs: &Costs,
) -> Option<f64> {
    let ranks = schedule.ranks() as usize;
    if nodes.len() != ranks {
        return None;
    }
    let bytes = schedule.geometry().elements(lengths)?.into_iter().map(|elements| elements * element_bytes).collect();
    let simulation = Simulation {
        schedule,
        bytes,
        sends_empty: lengths.sends_empty(schedule.collective()),
        nodes,
        costs,
        at: vec![0; ranks],
        clock: vec![0.0; ranks],
        queues: HashMap::new(),
        busy: HashMap::new(),
        sent: vec![HashMap::new(); ranks],
        waiting: vec![false; ranks],
        fenced: Vec::new(),
        ready: (0..schedule.ranks()).map(|rank| Reverse((Time(0.0), rank))).collect(),
    };
    Some(simulation.run())
}

/// The number of segments with which a chain of ranks is fastest: n/s with s = √(nα / ((p − 2)β)), the minimum of (p − 2 + n/s)(α + sβ).
pub fn chain_segments(bytes: u64, ranks: u32, link: Link) -> u32 {
    if ranks < 3 || bytes == 0 || link.latency <= 0.0 {
        return 1;
    }
    let segments = (bytes as f64 * f64::from(ranks - 2) * link.per_byte / link.latency).sqrt();
    segments.round().clamp(1.0, f64::from(crate::generate::MAX_SEGMENTS)) as u32
}

/// Seconds, ordered.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One direction of what sends or receives one message at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Port {
    RankOut(Rank),
    RankIn(Rank),
    NodeOut(u32),
    NodeIn(u32),
}

struct Simulation<'a> {
    schedule: &'a Verified,
    /// Of each class.
    bytes: Vec<u64>,
    sends_empty: bool,
    nodes: &'a [u32],
    costs: &'a Costs,
    at: Vec<usize>,
    clock: Vec<f64>,
    /// When messages arrive.
    queues: HashMap<(Rank, Rank), VecDeque<f64>>,
    busy: HashMap<Port, f64>,
    /// For each rank, until when its chunks are being sent.
    sent: Vec<HashMap<(Space, u32), f64>>,
    /// Who waits for a message.
    waiting: Vec<bool>,
    fenced: Vec<Rank>,
    ready: BinaryHeap<Reverse<(Time, Rank)>>,
}

impl Simulation<'_> {
    /// Always goes on with who is furthest behind.
    fn run(mut self) -> f64 {
        while let Some(Reverse((_, rank))) = self.ready.pop() {
            let schedule = self.schedule;
            let Some(step) = schedule.program(rank).get(self.at[rank as usize]) else { continue };
            if self.step(rank, step) {
                self.at[rank as usize] += 1;
                self.ready(rank);
            }
        }
        self.clock.into_iter().fold(0.0, f64::max)
    }

    fn ready(&mut self, rank: Rank) {
        self.ready.push(Reverse((Time(self.clock[rank as usize]), rank)));
    }

    /// Whether it could be done.
    fn step(&mut self, rank: Rank, step: &Step) -> bool {
        let (copy, reduce, inside) = (self.costs.copy, self.costs.reduce, self.costs.inside);
        match step {
            Step::Copy { from, to } => {
                self.wait_for_sends(rank, to);
                self.spend(rank, copy * self.size(rank, from));
            }
            Step::Send { to, what } => {
                if self.is_sent(rank, what) {
                    self.send(rank, *to, what);
                }
            }
            Step::Receive { from, into } => {
                if self.is_sent(rank, into) {
                    if !self.has_come(&[*from], rank) {
                        return false;
                    }
                    self.wait_for_sends(rank, into);
                    self.receive(rank, *from, into);
                }
            }
            Step::Combine { from, into, .. } => {
                if self.is_sent(rank, into) {
                    if !self.has_come(from, rank) {
                        return false;
                    }
                    self.wait_for_sends(rank, into);
                    for peer in from {
                        self.receive(rank, *peer, into);
                    }
                    self.spend(rank, reduce * from.len() as f64 * self.size(rank, into));
                }
            }
            Step::Fence => return self.fence(rank),
            Step::RemoteCombine { from, chunks, into, .. } => {
                let size = self.size(rank, &Span { space: Space::Input, chunks: chunks.clone() });
                let others = |list: &[Rank]| list.iter().filter(|other| **other != rank).count() as f64;
                self.spend(rank, size * (reduce * others(from) + inside.per_byte * others(into)));
            }
            Step::RemoteCopy { to, .. } => self.spend(rank, inside.per_byte * self.size(rank, to)),
        }
        true
    }

    fn spend(&mut self, rank: Rank, seconds: f64) {
        self.clock[rank as usize] += seconds;
    }

    fn size(&self, rank: Rank, span: &Span) -> f64 {
        let geometry = self.schedule.geometry();
        let bytes = |chunk| self.bytes[geometry.class(rank, span.space, chunk) as usize];
        span.chunks.clone().map(bytes).sum::<u64>() as f64
    }

    fn is_sent(&self, rank: Rank, span: &Span) -> bool {
        self.sends_empty || self.size(rank, span) > 0.0
    }

    /// Whether messages of all of them are there; if not, the next message makes the rank try again.
    fn has_come(&mut self, from: &[Rank], to: Rank) -> bool {
        let come = from.iter().all(|from| self.queues.get(&(*from, to)).is_some_and(|queue| !queue.is_empty()));
        self.waiting[to as usize] = !come;
        come
    }

    /// What a message between two ranks costs and which ports it keeps busy.
    fn way(&self, from: Rank, to: Rank) -> (Link, Port, Port) {
        let (out, into) = (self.nodes[from as usize], self.nodes[to as usize]);
        if out == into {
            (self.costs.inside, Port::RankOut(from), Port::RankIn(to))
        } else {
            (self.costs.between, Port::NodeOut(out), Port::NodeIn(into))
        }
    }

    fn free(&self, port: Port) -> f64 {
        self.busy.get(&port).copied().unwrap_or_default()
    }

    fn send(&mut self, rank: Rank, to: Rank, what: &Span) {
        let (link, out, _) = self.way(rank, to);
        let begin = self.clock[rank as usize].max(self.free(out));
        let end = begin + link.latency + link.per_byte * self.size(rank, what);
        self.busy.insert(out, end);
        for chunk in what.chunks.clone() {
            self.sent[rank as usize].insert((what.space, chunk), end);
        }
        self.queues.entry((rank, to)).or_default().push_back(end);
        if self.waiting[to as usize] {
            self.waiting[to as usize] = false;
            self.ready(to);
        }
    }

    fn receive(&mut self, rank: Rank, from: Rank, into: &Span) {
        let (link, _, port) = self.way(from, rank);
        let arrives = self.queues.get_mut(&(from, rank)).and_then(VecDeque::pop_front).unwrap_or_default();
        let done = arrives.max(self.free(port) + link.per_byte * self.size(rank, into));
        self.busy.insert(port, done);
        self.clock[rank as usize] = self.clock[rank as usize].max(done);
    }

    fn wait_for_sends(&mut self, rank: Rank, into: &Span) {
        let sent = &self.sent[rank as usize];
        let until =
            into.chunks.clone().filter_map(|chunk| sent.get(&(into.space, chunk))).fold(0.0, |a, b| f64::max(a, *b));
        self.clock[rank as usize] = self.clock[rank as usize].max(until);
    }

    /// Everybody goes on when the last has come, a logarithmic number of latencies later.
    fn fence(&mut self, rank: Rank) -> bool {
        let ranks = self.schedule.ranks();
        self.fenced.push(rank);
        if self.fenced.len() < ranks as usize {
            return false;
        }
        let rounds = ranks.next_power_of_two().ilog2();
        let last = self.clock.iter().copied().fold(0.0, f64::max) + f64::from(rounds) * self.costs.inside.latency;
        self.clock.fill(last);
        for other in std::mem::take(&mut self.fenced) {
            if other != rank {
                self.at[other as usize] += 1;
                self.ready(other);
            }
        }
        true
    }
}
