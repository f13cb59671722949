//! Collectives for ranks on several nodes: little goes between nodes, the rest within.
//!
//! Allreduce, where all nodes have equally many ranks: reduce-scatter within the node, a ring between the ranks of the same number on all
//! nodes, allgather within the node. So all ranks of a node share its link, and 2n(N−1)/N leaves a node of N, which is the least possible
//! (Patarasuk and Yuan, 2009, with nodes as ranks). Where nodes differ, one rank of each leads: the same bytes, through one rank.
//!
//! Broadcast: between the leaders a binomial tree, or for several segments a chain; from each leader to its node.
//!
//! Allgather and reduce-scatter: each block crosses to, or from, each other node once. For every block of the others a node has a carrier,
//! so that its ranks share the work, however many they are.

use std::collections::BTreeMap;
use std::ops::Range;

use super::broadcast::{children, parent};
use super::draft::{Draft, before, combine, copy, input, one, output, receive, scratch, send, share};
use crate::ir::{Rank, Span, Step};

/// The ranks of each node.
fn members(nodes: &[u32]) -> Vec<Vec<Rank>> {
    let mut members: BTreeMap<u32, Vec<Rank>> = BTreeMap::new();
    for (rank, node) in (0..).zip(nodes) {
        members.entry(*node).or_default().push(rank);
    }
    members.into_values().collect()
}

/// A rank's place: number of the node, number within it.
fn place(members: &[Vec<Rank>], rank: Rank) -> (usize, usize) {
    let find = |(node, list): (usize, &Vec<Rank>)| Some((node, list.iter().position(|member| *member == rank)?));
    members.iter().enumerate().find_map(find).unwrap_or_default()
}

/// Segments go through the levels one behind the other. In each turn a rank does one thing for every segment that is under way, the newest
/// first, and what it waits for was sent a turn before. So there is always more on its way between the nodes than what is waited for, and the
/// wire never stands still while somebody turns round.
pub(super) fn allreduce(nodes: &[u32], segments: u32) -> Draft {
    let members = members(nodes);
    let widest = members.iter().map(Vec::len).max().unwrap_or(1) as u32;
    let size = widest * members.len() as u32;
    let even = members.iter().all(|list| list.len() as u32 == widest);
    let stages = stages(even, members.len() as u32);
    Draft::whole(nodes.len() as u32, segments * size, |rank| {
        let (node, index) = place(&members, rank);
        let seat = Seat { members: &members, node, index: index as u32, rank, even };
        let mut program = Vec::new();
        for turn in 0..segments + stages.len() as u32 {
            for (behind, stage) in (0..).zip(&stages) {
                let segment = turn.checked_sub(behind).filter(|segment| *segment < segments);
                if let Some(segment) = segment {
                    seat.act(*stage, &mut program, &(segment * size..(segment + 1) * size));
                }
            }
        }
        program
    })
}

/// What is done with a segment, one turn after the other. What is sent in one stage is received in the next, everywhere, and the stages of a
/// turn have the same order on every rank: so both sides of a pair see the messages between them in the same order.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Neighbours' blocks to them.
    Give,
    /// The own block from all neighbours. Where one leads, the others send him theirs.
    Collect,
    /// The leader has all blocks from the others.
    Lead,
    /// A step of the ring between nodes: what the node behind has sent in the step before comes in, and what follows from it goes out.
    Ring(u32),
    /// The others take what the leader gives them and pass it on.
    PassOn,
    /// What the others of the node have comes in.
    Gather,
}

/// All stages, in order. The first step of the ring is done with the stage before it, the last one gives the result to the node.
fn stages(even: bool, nodes: u32) -> Vec<Stage> {
    let before = if even { vec![Stage::Give, Stage::Collect] } else { vec![Stage::Give, Stage::Collect, Stage::Lead] };
    let after = if even { vec![Stage::Gather] } else { vec![Stage::PassOn, Stage::Gather] };
    before.into_iter().chain((1..=last_step(nodes)).map(Stage::Ring)).chain(after).collect()
}

/// Steps of a ring in which a node receives: to combine, then to copy. A ring of one has none.
fn last_step(nodes: u32) -> u32 {
    2 * (nodes - 1)
}

/// Where a rank sits, and what it does in each stage for the chunks of a segment.
struct Seat<'a> {
    members: &'a [Vec<Rank>],
    node: usize,
    index: u32,
    rank: Rank,
    even: bool,
}

impl Seat<'_> {
    fn own_node(&self) -> &[Rank] {
        &self.members[self.node]
    }

    /// The other ranks of the node with their numbers, those behind this one first.
    fn neighbours(&self) -> impl Iterator<Item = (u32, Rank)> {
        let count = self.own_node().len() as u32;
        (1..count)
            .map(move |distance| (self.index + distance) % count)
            .map(|index| (index, self.own_node()[index as usize]))
    }

    /// The block of the rank of a number within this node.
    fn block_of(&self, chunks: &Range<u32>, index: u32) -> Range<u32> {
        share(chunks.clone(), self.own_node().len() as u32, index)
    }

    fn block(&self, chunks: &Range<u32>) -> Range<u32> {
        self.block_of(chunks, self.index)
    }

    /// Does what a stage is for.
    fn act(&self, stage: Stage, program: &mut Vec<Step>, chunks: &Range<u32>) {
        match stage {
            Stage::Give => self.give(program, chunks),
            Stage::Collect => {
                self.collect(program, chunks);
                match self.leader() {
                    _ if self.even => self.ring_start(program, chunks),
                    Some(leader) => program.push(send(leader, output(self.block(chunks)))),
                    None => {}
                }
            }
            Stage::Lead => {
                if self.leader().is_none() {
                    self.gather(program, chunks);
                    self.ring_start(program, chunks);
                }
            }
            Stage::Ring(step) => {
                if self.even || self.leader().is_none() {
                    self.ring(program, chunks, step);
                }
            }
            Stage::PassOn => self.pass_on(program, chunks),
            Stage::Gather if self.even => self.gather(program, chunks),
            Stage::Gather => self.rest(program, chunks),
        }
    }

    /// Neighbours' blocks to them.
    fn give(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        program.extend(self.neighbours().map(|(index, to)| send(to, input(self.block_of(chunks, index)))));
    }

    /// The own block from all neighbours.
    fn collect(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        let from: Vec<Rank> = self.own_node().iter().copied().filter(|member| *member != self.rank).collect();
        if !from.is_empty() {
            let own = self.block(chunks);
            program.push(combine(from, input(own.clone()), output(own), self.members.len() == 1));
        }
    }

    /// The own block to all neighbours; by one who leads, first theirs.
    fn spread(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        if !self.even {
            program.extend(self.neighbours().map(|(index, to)| send(to, output(self.block_of(chunks, index)))));
        }
        program.extend(self.neighbours().map(|(_, to)| send(to, output(self.block(chunks)))));
    }

    /// Their blocks from all neighbours.
    fn gather(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        program.extend(self.neighbours().map(|(index, from)| receive(from, output(self.block_of(chunks, index)))));
    }

    /// Ranks of this number on the nodes before and behind this one.
    fn across(&self) -> (Rank, Rank) {
        let (count, node) = (self.members.len(), self.node);
        let of = |node: usize| self.members[node % count][self.index as usize];
        (of(node + count - 1), of(node + 1))
    }

    /// The part that begins at a node, of what this rank sends round the nodes.
    fn part(&self, chunks: &Range<u32>, node: u32) -> Range<u32> {
        let all = if self.even { self.block(chunks) } else { chunks.clone() };
        share(all, self.members.len() as u32, node)
    }

    /// What a rank has before anything came from other nodes.
    fn local(&self, part: Range<u32>) -> Span {
        if self.own_node().len() > 1 { output(part) } else { input(part) }
    }

    /// The first message of the ring between nodes; without other nodes, its end.
    fn ring_start(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        if self.members.len() > 1 {
            program.push(send(self.across().1, self.local(self.part(chunks, self.node as u32))));
        } else {
            self.spread(program, chunks);
        }
    }

    /// A step of the ring between nodes, from 1: what comes in, and what goes out because of it.
    fn ring(&self, program: &mut Vec<Step>, chunks: &Range<u32>, step: u32) {
        let (count, node) = (self.members.len() as u32, self.node as u32);
        let (left, right) = self.across();
        let part = self.part(chunks, before(node, step, count));
        if step < count {
            let (own, into) = (self.local(part.clone()), output(part.clone()));
            program.push(combine(vec![left], own, into, step == count - 1));
        } else {
            program.push(receive(left, output(part.clone())));
        }
        if step < last_step(count) {
            program.push(send(right, output(part)));
        } else {
            self.spread(program, chunks);
        }
    }

    fn leader(&self) -> Option<Rank> {
        (self.index > 0).then(|| self.own_node()[0])
    }

    /// The others take theirs and pass it on.
    fn pass_on(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        if let Some(leader) = self.leader() {
            program.push(receive(leader, output(self.block(chunks))));
            program.push(receive(leader, output(self.block_of(chunks, 0))));
            let others = self.neighbours().filter(|(_, to)| *to != leader);
            program.extend(others.map(|(_, to)| send(to, output(self.block(chunks)))));
        }
    }

    /// The others take each other's.
    fn rest(&self, program: &mut Vec<Step>, chunks: &Range<u32>) {
        if let Some(leader) = self.leader() {
            let others = self.neighbours().filter(|(_, from)| *from != leader);
            program.extend(others.map(|(index, from)| receive(from, output(self.block_of(chunks, index)))));
        }
    }
}

/// For blocks that each rank has one of: who gives a block of another node to this node's ranks, or collects it from them.
struct Carriers {
    members: Vec<Vec<Rank>>,
    /// For each owner of a block, the carrier on each node; at home, the owner.
    carriers: Vec<Vec<Rank>>,
}

impl Carriers {
    fn new(nodes: &[u32]) -> Self {
        let members = members(nodes);
        let carriers = (0..).zip(nodes).map(|(owner, _)| {
            let (home, index) = place(&members, owner);
            let carrier =
                |(node, list): (usize, &Vec<Rank>)| if node == home { owner } else { list[index % list.len()] };
            members.iter().enumerate().map(carrier).collect()
        });
        let carriers = carriers.collect();
        Self { members, carriers }
    }

    /// The other ranks of a rank's node.
    fn neighbours(&self, rank: Rank) -> Vec<Rank> {
        let (node, _) = place(&self.members, rank);
        self.members[node].iter().copied().filter(|other| *other != rank).collect()
    }

    /// The carriers of a rank's own block on the other nodes.
    fn across(&self, rank: Rank) -> impl Iterator<Item = Rank> {
        self.carriers[rank as usize].iter().copied().filter(move |carrier| *carrier != rank)
    }

    /// Owners on other nodes, each with its carrier on this rank's node.
    fn far(&self, rank: Rank) -> impl Iterator<Item = (Rank, Rank)> {
        let (node, _) = place(&self.members, rank);
        (0..).zip(&self.carriers).map(move |(owner, carriers)| (owner, carriers[node])).filter(|(a, b)| a != b)
    }
}

/// From the owner of a block to its carriers, from them to their nodes.
pub(super) fn allgather(nodes: &[u32], segments: u32) -> Draft {
    let carriers = Carriers::new(nodes);
    let ranks = nodes.len() as u32;
    Draft::new(ranks, (segments, ranks * segments), |rank| {
        let neighbours = carriers.neighbours(rank);
        let mut program = Vec::new();
        for segment in 0..segments {
            let block = |owner: Rank| output(one(owner * segments + segment));
            let all = carriers.across(rank).chain(neighbours.iter().copied());
            program.extend(all.map(|to| send(to, input(one(segment)))));
            program.push(copy(input(one(segment)), block(rank)));
            program.extend(neighbours.iter().map(|from| receive(*from, block(*from))));
            for (owner, carrier) in carriers.far(rank) {
                if carrier == rank {
                    program.push(receive(owner, block(owner)));
                    program.extend(neighbours.iter().map(|to| send(*to, block(owner))));
                } else {
                    program.push(receive(carrier, block(owner)));
                }
            }
        }
        program
    })
}

/// From each node to its carrier of a block, from the carriers to the owner, who combines them with what his node has.
pub(super) fn reduce_scatter(nodes: &[u32], segments: u32) -> Draft {
    let carriers = Carriers::new(nodes);
    let ranks = nodes.len() as u32;
    Draft::new(ranks, (ranks * segments, segments), |rank| {
        let neighbours = carriers.neighbours(rank);
        let mut program = Vec::new();
        for segment in 0..segments {
            let block = |owner: Rank| one(owner * segments + segment);
            let theirs = carriers.far(rank).filter(|(_, carrier)| *carrier != rank);
            program.extend(theirs.map(|(owner, carrier)| send(carrier, input(block(owner)))));
            program.extend(neighbours.iter().map(|owner| send(*owner, input(block(*owner)))));
            for (owner, _) in carriers.far(rank).filter(|(_, carrier)| *carrier == rank) {
                if neighbours.is_empty() {
                    program.push(send(owner, input(block(owner))));
                } else {
                    program.push(combine(neighbours.clone(), input(block(owner)), scratch(block(owner)), false));
                    program.push(send(owner, scratch(block(owner))));
                }
            }
            let mut from: Vec<Rank> = carriers.across(rank).chain(neighbours.iter().copied()).collect();
            from.sort_unstable();
            program.push(combine(from, input(block(rank)), output(one(segment)), true));
        }
        program
    })
}

/// From the root to the leaders, from them to their nodes.
pub(super) fn broadcast(nodes: &[u32], root: Rank, segments: u32) -> Draft {
    let mut members = members(nodes);
    // The root leads its node, and its node comes first.
    members.sort_by_key(|list| !list.contains(&root));
    if let Some(first) = members.first_mut() {
        first.sort_by_key(|rank| *rank != root);
    }
    let leaders: Vec<Rank> = members.iter().filter_map(|list| list.first().copied()).collect();
    let count = leaders.len() as u32;
    Draft::whole(nodes.len() as u32, segments, |rank| {
        let (node, index) = place(&members, rank);
        let above = match node.checked_sub(1) {
            _ if index > 0 => Some(leaders[node]),
            None => None,
            Some(last) if segments > 1 => Some(leaders[last]),
            Some(_) => parent(node as u32).map(|node| leaders[node as usize]),
        };
        let mut below: Vec<Rank> = Vec::new();
        if index == 0 {
            let next = leaders.get(node + 1).copied().filter(|_| segments > 1);
            let tree = children(node as u32, count).map(|node| leaders[node as usize]).filter(|_| segments == 1);
            below.extend(next.into_iter().chain(tree));
            below.extend(&members[node][1..]);
        }
        let have = if rank == root { input } else { output };
        let mut program = Vec::new();
        for segment in 0..segments {
            program.extend(above.map(|from| receive(from, output(one(segment)))));
            program.extend(below.iter().map(|to| send(*to, have(one(segment)))));
        }
        if rank == root {
            program.push(copy(input(0..segments), output(0..segments)));
        }
        program
    })
}
