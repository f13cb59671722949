//! From what the ranks said to a verdict: nothing else is looked at, so every illness can be tried out in words.
//!
//! What is slow is so beside the median of the others, and by much: two nodes on one busy machine must pass. Sick is what hangs, dies, loses or
//! changes data, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Finding, Link, Node, State, Verdict, shown};
use super::words::{Memory, Pair, Why, Word, Words};
use super::{ALL, LIMIT};
use crate::finding::bytes;

/// How many times slower than the others a node may compute, and read memory.
const SLOWER: f64 = 2.5;
const SLOWER_MEMORY: f64 = 4.0;
/// How many times slower than the others a link may be.
const SLOWER_LINK: f64 = 5.0;
/// Gigabytes a second below which a link is slow whatever others are: a quarter of gigabit Ethernet.
const SLOW_LINK: f64 = 0.03;
/// Microseconds that a message may take; where the others are ten times quicker, the lesser.
const LATE: f64 = 20_000.0;
const LATER: f64 = 2_000.0;
const TIMES_LATER: f64 = 10.0;
/// Seconds that clocks may differ.
const CLOCK: f64 = 5.0;
/// Bytes below which a job's memory is as good as full.
const LITTLE: u64 = 256 << 20;

/// What one rank has said.
#[derive(Default)]
struct Heard<'a> {
    here: bool,
    memory: Option<&'a Memory>,
    processor: Option<f64>,
    met: bool,
    received: Vec<(u32, u64)>,
    wrong_sums: u64,
    failed: Option<(Why, &'a [u32], &'a str)>,
    done: bool,
}

impl Heard<'_> {
    /// It has said its last word.
    fn is_over(&self) -> bool {
        self.done || self.failed.is_some()
    }

    /// What it was at when it was last heard.
    fn doing(&self) -> &'static str {
        match self {
            Self { met: false, .. } => "the nodes looked for each other",
            Self { memory: None, .. } => "its memory was tried",
            Self { processor: None, .. } => "its processor was tried",
            _ => "the links were tried",
        }
    }
}

/// What is wrong with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Wrong,
    Dead,
    Slow,
    Late,
    Clock,
}

/// A link that is not as it should be.
struct Bad {
    ends: (u32, u32),
    trouble: Trouble,
    fact: String,
}

/// Everything while it is judged.
struct Judging<'a> {
    names: Vec<String>,
    ranks: BTreeMap<u32, Heard<'a>>,
    pairs: BTreeMap<(u32, u32), &'a Pair>,
    bad: Vec<Bad>,
    findings: Vec<(State, BTreeSet<u32>, String)>,
}

/// Judges what was heard of the nodes of these names, of which the ranks may know better.
pub fn judge(words: &Words, expected: &[String]) -> Verdict {
    let mut ranks: BTreeMap<u32, Heard<'_>> = BTreeMap::new();
    let (mut names, mut pairs): (Vec<String>, BTreeMap<_, _>) = (expected.to_vec(), BTreeMap::new());
    let mut own = BTreeMap::new();
    for said in &words.all {
        let heard = ranks.entry(said.rank).or_default();
        match &said.word {
            Word::Here { nodes, node } => {
                heard.here = true;
                own.insert(said.rank as usize, node);
                if !nodes.is_empty() {
                    names.clone_from(nodes);
                }
            }
            Word::Memory(memory) => heard.memory = Some(memory),
            Word::Processor { milliseconds } => heard.processor = Some(*milliseconds),
            Word::Met => heard.met = true,
            Word::Link(pair) => drop(pairs.insert((said.rank, pair.with), pair)),
            Word::Received { with, wrong } => heard.received.push((*with, *wrong)),
            Word::Sum { wrong, .. } => heard.wrong_sums = *wrong,
            Word::Failed { why, with, text } => heard.failed = Some((*why, with, text)),
            Word::Done => heard.done = true,
        }
    }
    if names.is_empty() {
        names.extend(own.values().map(|name| (*name).clone()));
    }
    let known = u32::try_from(names.len()).unwrap_or(u32::MAX);
    for rank in 0..known {
        ranks.entry(rank).or_default();
    }
    // What no node of this run can have said is not judged.
    ranks.retain(|rank, _| *rank < known);
    pairs.retain(|(low, high), _| low < high && *high < known);
    let mut judging = Judging { names, ranks, pairs, bad: Vec::new(), findings: Vec::new() };
    judging.silence(&words.ended);
    judging.failures();
    judging.nodes();
    judging.links();
    judging.gather();
    judging.verdict()
}

impl Judging<'_> {
    fn name(&self, rank: u32) -> String {
        self.names.get(rank as usize).cloned().unwrap_or_else(|| format!("node {rank}"))
    }

    fn all(&self) -> BTreeSet<u32> {
        self.ranks.keys().copied().collect()
    }

    fn find(&mut self, state: State, rank: u32, fact: impl Into<String>) {
        self.findings.push((state, [rank].into(), fact.into()));
    }

    fn sick_link(&mut self, one: u32, other: u32, trouble: Trouble, fact: impl Into<String>) {
        let ends = (one.min(other), one.max(other));
        let is_known = self.bad.iter().any(|bad| bad.ends == ends && bad.trouble <= trouble);
        if one != other && ends.1 < self.ranks.len() as u32 && !is_known {
            self.bad.push(Bad { ends, trouble, fact: fact.into() });
        }
    }

    /// Nodes that never began, or were not heard to the end.
    fn silence(&mut self, ended: &BTreeSet<u32>) {
        let silent: BTreeSet<u32> =
            self.ranks.iter().filter(|(_, heard)| !heard.is_over()).map(|(rank, _)| *rank).collect();
        let died = self.ranks.values().filter_map(|heard| match heard.failed {
            Some((Why::Died, with, _)) => Some(with),
            _ => None,
        });
        let dead: BTreeSet<u32> = died.flatten().chain(ended).copied().filter(|rank| silent.contains(rank)).collect();
        // Launchers end all others when one rank dies: who is known to have died first is to blame.
        let blamed = if dead.is_empty() { silent } else { dead.clone() };
        if blamed.len() > 1 && blamed.len() == self.ranks.len() {
            let doing = self.ranks.values().map(Heard::doing).next().unwrap_or_default();
            let fact =
                format!("no node came to the end of the preflight within {} s; on the first {doing}", LIMIT.as_secs());
            // Nobody can be blamed, and a machine may be as busy as that.
            self.findings.push((State::Slow, self.all(), fact));
            return;
        }
        for rank in blamed {
            let heard = &self.ranks[&rank];
            let fact = match heard.here {
                _ if dead.contains(&rank) => format!("its process was ended while {}", heard.doing()),
                true => format!("it stopped answering while {}", heard.doing()),
                false => format!("nothing began there within {} s", LIMIT.as_secs()),
            };
            self.find(State::Sick, rank, fact);
        }
    }

    /// What ranks went no further for.
    fn failures(&mut self) {
        let failed: Vec<(u32, Why, Vec<u32>, String)> = self
            .ranks
            .iter()
            .filter_map(|(rank, heard)| {
                heard.failed.map(|(why, with, text)| (*rank, why, with.to_vec(), text.to_owned()))
            })
            .collect();
        let is_over = |judging: &Self, rank: u32| judging.ranks.get(&rank).is_some_and(Heard::is_over);
        let (mut met_nobody, hangs) = (false, !self.findings.is_empty());
        for (rank, why, with, text) in &failed {
            match (why, with.as_slice()) {
                // Ranks that came are all told the same; what the missing themselves say is the other side of it.
                (Why::Absent, missing) if !met_nobody => {
                    met_nobody = true;
                    let alive: Vec<u32> = missing.iter().copied().filter(|missing| is_over(self, *missing)).collect();
                    self.unreached(*rank, &alive);
                }
                (Why::Link, [one, other]) => {
                    self.sick_link(*one, *other, Trouble::Dead, "no connection is made");
                }
                (Why::Link, [other]) => self.sick_link(*rank, *other, Trouble::Dead, format!("it broke: {text}")),
                // Where one hangs, those who wait for it are waited for by others, and no link is to blame.
                (Why::Late, [other]) if !hangs && is_over(self, *other) => {
                    self.sick_link(*rank, *other, Trouble::Dead, "data stopped moving in the midst of it");
                }
                _ => {}
            }
        }
        if !hangs && failed.iter().any(|(_, why, ..)| *why == Why::Over) {
            let fact = format!("not everything could be tried within {} s", ALL.as_secs());
            self.findings.push((State::Slow, self.all(), fact));
        }
        let own: Vec<_> = failed.iter().filter(|(_, why, ..)| *why == Why::Own).collect();
        if own.len() > 1 && own.len() == self.ranks.len() {
            // No illness of a node's: whether a program can do without is its own to find out.
            self.findings.push((State::Slow, self.all(), format!("the links could not be tried: {}", own[0].3)));
        } else {
            for (rank, _, _, text) in own {
                self.find(State::Sick, *rank, text.clone());
            }
        }
        if let (Some((.., text)), true, true) = (failed.first(), self.findings.is_empty(), self.bad.is_empty()) {
            self.findings.push((State::Sick, self.all(), text.clone()));
        }
    }

    /// Nodes that are well and that the others have not met.
    fn unreached(&mut self, by: u32, missing: &[u32]) {
        const FACT: &str = "the others do not reach it over the network";
        match missing {
            [] => {}
            [one] if self.ranks.len() == 2 => {
                self.sick_link(by, *one, Trouble::Dead, "neither reaches the other over the network");
            }
            // Nobody has met it: it is the one that is not reached.
            all if all.len() > 1 && all.len() + 1 == self.ranks.len() => self.find(State::Sick, by, FACT),
            some => {
                for rank in some {
                    self.find(State::Sick, *rank, FACT);
                }
            }
        }
    }

    fn nodes(&mut self) {
        let mut found = Vec::new();
        for (rank, heard) in &self.ranks {
            let rank = *rank;
            if let Some(memory) = heard.memory {
                if let Some(problem) = &memory.problem {
                    found.push((State::Sick, rank, problem.clone()));
                }
                if memory.wrong > 0 {
                    let all = memory.bytes / 8;
                    found.push((
                        State::Sick,
                        rank,
                        format!("memory gave back {} of {all} words other than they were written", memory.wrong),
                    ));
                }
                if let Some(room) = memory.room.filter(|room| *room < LITTLE) {
                    found.push((State::Slow, rank, format!("only {} of memory are left to this job", bytes(room))));
                }
            }
            let speeds = |heard: &Heard<'_>| heard.memory.map(|memory| memory.speed).filter(|speed| *speed > 0.0);
            if let (Some(own), Some(others)) = (speeds(heard), self.others(rank, speeds))
                && own * SLOWER_MEMORY < others
            {
                found.push((
                    State::Slow,
                    rank,
                    format!("memory is read at {own:.1} GB/s, that of the others at {others:.1} GB/s"),
                ));
            }
            if let (Some(own), Some(others)) = (heard.processor, self.others(rank, |heard| heard.processor))
                && own > SLOWER * others
            {
                found.push((
                    State::Slow,
                    rank,
                    format!("it computes {:.1} times slower than the others", own / others),
                ));
            }
            if heard.wrong_sums > 0 {
                found.push((State::Sick, rank, format!("{} sums of an allreduce were wrong there", heard.wrong_sums)));
            }
        }
        let wrong: BTreeSet<u32> =
            self.ranks.iter().filter(|(_, heard)| heard.wrong_sums > 0).map(|(rank, _)| *rank).collect();
        let everywhere = wrong.len() == self.ranks.len();
        for (state, rank, fact) in found {
            // Where all got wrong sums it is not told whose numbers were bad.
            if everywhere && fact.contains("allreduce") {
                continue;
            }
            self.find(state, rank, fact);
        }
        if everywhere && !wrong.is_empty() {
            self.findings.push((State::Sick, wrong, "sums of an allreduce were wrong on all of them".to_owned()));
        }
    }

    /// The median of what the other ranks have measured.
    fn others(&self, rank: u32, of: impl Fn(&Heard<'_>) -> Option<f64>) -> Option<f64> {
        median(self.ranks.iter().filter(|(other, _)| **other != rank).filter_map(|(_, heard)| of(heard)).collect())
    }

    fn links(&mut self) {
        let received: Vec<(u32, u32, u64)> = self
            .ranks
            .iter()
            .flat_map(|(rank, heard)| heard.received.iter().map(|(with, wrong)| (*rank, *with, *wrong)))
            .filter(|(_, _, wrong)| *wrong > 0)
            .collect();
        for (rank, with, wrong) in received {
            self.sick_link(rank, with, Trouble::Wrong, format!("{wrong} words arrived other than they were sent"));
        }
        let pairs = self.pairs.clone();
        for (ends, pair) in &pairs {
            let speed = pair.out.min(pair.back);
            let others = |of: fn(&Pair) -> f64| {
                let others: Vec<f64> =
                    pairs.iter().filter(|(other, _)| *other != ends).map(|(_, pair)| of(pair)).collect();
                (others.len() > 1).then(|| median(others)).flatten()
            };
            let beside = others(|pair| pair.out.min(pair.back));
            let later = others(|pair| pair.latency);
            let beside_others = beside.map(|others| format!(", the others {}", shown(others))).unwrap_or_default();
            let mut find = |trouble, fact| self.sick_link(ends.0, ends.1, trouble, fact);
            if pair.wrong > 0 {
                find(Trouble::Wrong, format!("{} words arrived other than they were sent", pair.wrong));
            }
            if speed < SLOW_LINK || beside.is_some_and(|others| speed * SLOWER_LINK < others) {
                find(Trouble::Slow, format!("it moves {}{beside_others}", shown(speed)));
            }
            let limit = if later.is_some_and(|others| pair.latency > TIMES_LATER * others) { LATER } else { LATE };
            if pair.latency > limit {
                find(Trouble::Late, format!("a message takes {:.1} ms", pair.latency / 1e3));
            }
            if pair.clock.abs() > CLOCK {
                find(Trouble::Clock, format!("the clocks at its ends differ by {:.1} s", pair.clock.abs()));
            }
        }
    }

    /// Says of a node what is true of all its links and of no other.
    fn gather(&mut self) {
        let mut troubles: Vec<Trouble> = self.bad.iter().map(|bad| bad.trouble).collect();
        troubles.sort_unstable();
        troubles.dedup();
        for trouble in troubles {
            let bad: BTreeSet<(u32, u32)> =
                self.bad.iter().filter(|bad| bad.trouble == trouble).map(|bad| bad.ends).collect();
            let of = |rank: u32| bad.iter().filter(move |ends| ends.0 == rank || ends.1 == rank).count();
            let measured = |rank: u32| self.pairs.keys().filter(move |ends| ends.0 == rank || ends.1 == rank).count();
            let is_cause = |rank: &u32| of(*rank) > 1 && of(*rank) >= measured(*rank) && of(*rank) < self.pairs.len();
            let Some(rank) = self.all().into_iter().filter(is_cause).max_by_key(|rank| of(*rank)) else { continue };
            let (its, rest): (Vec<Bad>, Vec<Bad>) = std::mem::take(&mut self.bad)
                .into_iter()
                .partition(|bad| bad.trouble == trouble && (bad.ends.0 == rank || bad.ends.1 == rank));
            self.bad = rest;
            let fact = format!("all its links are bad; of the first: {}", its[0].fact);
            self.find(state(trouble), rank, fact);
        }
    }

    fn verdict(self) -> Verdict {
        let mut nodes: Vec<Node> = self.ranks.iter().map(|(rank, heard)| self.node(*rank, heard)).collect();
        let mut exclude: BTreeSet<u32> = BTreeSet::new();
        let mut findings = Vec::new();
        for (state, ranks, fact) in &self.findings {
            let names: Vec<String> = ranks.iter().map(|rank| self.name(*rank)).collect();
            if let (State::Sick, [rank]) = (*state, ranks.iter().copied().collect::<Vec<_>>().as_slice()) {
                exclude.insert(*rank);
            }
            for rank in ranks {
                let node = &mut nodes[*rank as usize];
                node.state = node.state.max(*state);
            }
            findings.push(Finding { state: *state, nodes: names, link: false, fact: fact.clone() });
        }
        // Of a sick link one end is left out: the one that others complain of as well, else the one that is not the first node.
        let mut sick: Vec<(u32, u32)> =
            self.bad.iter().filter(|bad| state(bad.trouble) == State::Sick).map(|bad| bad.ends).collect();
        sick.retain(|ends| !exclude.contains(&ends.0) && !exclude.contains(&ends.1));
        while let Some(first) = sick.first() {
            let count = |rank: u32| sick.iter().filter(|ends| ends.0 == rank || ends.1 == rank).count();
            let ends = sick.iter().flat_map(|ends| [ends.0, ends.1]);
            let worst = ends.max_by_key(|rank| (count(*rank), *rank)).unwrap_or(first.1);
            exclude.insert(worst);
            sick.retain(|ends| ends.0 != worst && ends.1 != worst);
        }
        let mut links: BTreeMap<(u32, u32), Link> =
            self.pairs.iter().map(|(ends, pair)| (*ends, self.link(*ends, Some(pair)))).collect();
        for bad in &self.bad {
            let link = links.entry(bad.ends).or_insert_with(|| self.link(bad.ends, None));
            link.state = link.state.max(state(bad.trouble));
            let names = vec![self.name(bad.ends.0), self.name(bad.ends.1)];
            findings.push(Finding { state: state(bad.trouble), nodes: names, link: true, fact: bad.fact.clone() });
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.state));
        if exclude.len() >= nodes.len() {
            exclude.clear();
        }
        let exclude = exclude.into_iter().map(|rank| self.name(rank)).collect();
        let state = findings.iter().map(|finding| finding.state).max().unwrap_or(State::Ok);
        Verdict { state, nodes, links: links.into_values().collect(), findings, exclude }
    }

    fn node(&self, rank: u32, heard: &Heard<'_>) -> Node {
        Node {
            name: self.name(rank),
            state: State::Ok,
            memory_gb_per_s: heard.memory.map(|memory| memory.speed),
            free_bytes: heard.memory.and_then(|memory| memory.room),
            processor_ms: heard.processor,
        }
    }

    fn link(&self, ends: (u32, u32), pair: Option<&Pair>) -> Link {
        Link {
            nodes: [self.name(ends.0), self.name(ends.1)],
            state: State::Ok,
            there_gb_per_s: pair.map(|pair| pair.out),
            back_gb_per_s: pair.map(|pair| pair.back),
            latency_us: pair.map(|pair| pair.latency),
        }
    }
}

fn state(trouble: Trouble) -> State {
    match trouble {
        Trouble::Wrong | Trouble::Dead => State::Sick,
        Trouble::Slow | Trouble::Late | Trouble::Clock => State::Slow,
    }
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests;
