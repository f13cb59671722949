//! Allreduce.
//!
//! Ring and its optimality in bytes, 2n(p−1)/p for each rank: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", 2009. Recursive doubling, and halving with doubling after Rabenseifner, also for numbers of ranks that are no power of
//! two: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005. Direct has the ring's bytes
//! in two rounds instead of 2(p−1), which suits ranks that all reach each other equally well.

use super::draft::{Draft, ascending, before, combine, copy, input, one, others, output, receive, scratch, send};
use crate::ir::{Rank, Step};

/// Each rank owns a block, combines it from everybody and sends it to everybody. Of each block, segment s + 1 is on its way while segment s
/// is combined and segment s − 1 collected; both sides of every pair see the messages in the same order.
pub(super) fn direct(ranks: u32, segments: u32) -> Draft {
    Draft::whole(ranks, ranks * segments, |rank| {
        let mut program = Vec::new();
        for turn in 0..segments + 2 {
            if turn < segments {
                program.extend(others(rank, ranks).map(|to| send(to, input(one(to * segments + turn)))));
            }
            if (1..=segments).contains(&turn) {
                let own = one(rank * segments + turn - 1);
                program.push(combine(ascending(rank, ranks), input(own.clone()), output(own.clone()), true));
                program.extend(others(rank, ranks).map(|to| send(to, output(own.clone()))));
            }
            if turn >= 2 {
                program.extend(others(rank, ranks).map(|from| receive(from, output(one(from * segments + turn - 2)))));
            }
        }
        program
    })
}

/// Everybody combines everything. It goes through the scratch because in place nobody may write what he is still sending, and everybody
/// would wait for everybody.
pub(super) fn exchange(ranks: u32) -> Draft {
    Draft::whole(ranks, 1, |rank| {
        let mut program: Vec<Step> = others(rank, ranks).map(|to| send(to, input(one(0)))).collect();
        program.push(combine(ascending(rank, ranks), input(one(0)), scratch(one(0)), true));
        program.push(copy(scratch(one(0)), output(one(0))));
        program
    })
}

/// Each rank owns a block, reads it from everybody's input and writes it to everybody's output.
pub(super) fn shared(ranks: u32) -> Draft {
    Draft::whole(ranks, ranks, |rank| {
        let everybody: Vec<Rank> = (0..ranks).collect();
        let own =
            Step::RemoteCombine { from: everybody.clone(), chunks: one(rank), into: everybody, at: rank, finish: true };
        vec![Step::Fence, own, Step::Fence]
    })
}

/// Blocks go round the ring and collect, then round again complete. What has been combined is sent on at once, segment by segment.
pub(super) fn ring(ranks: u32, segments: u32) -> Draft {
    Draft::whole(ranks, ranks * segments, |rank| {
        let chunk = |block: Rank, segment: u32| one(block * segments + segment);
        let (left, right) = (before(rank, 1, ranks), (rank + 1) % ranks);
        let mut program: Vec<Step> = (0..segments).map(|segment| send(right, input(chunk(rank, segment)))).collect();
        for round in 1..ranks {
            let block = before(rank, round, ranks);
            for segment in 0..segments {
                let place = chunk(block, segment);
                program.push(combine(vec![left], input(place.clone()), output(place.clone()), round == ranks - 1));
                program.push(send(right, output(place)));
            }
        }
        for round in 0..ranks - 1 {
            let block = before(rank, round, ranks);
            for segment in 0..segments {
                program.push(receive(left, output(chunk(block, segment))));
                if round < ranks - 2 {
                    program.push(send(right, output(chunk(block, segment))));
                }
            }
        }
        program
    })
}

/// Whole buffers between partners at distances 1, 2, 4, … Ranks beyond the largest power of two give theirs to a partner first and get the
/// result from it. Output and scratch are written in turn, so that nobody writes what he is still sending.
pub(super) fn doubling(ranks: u32) -> Draft {
    let core = largest_power(ranks);
    let extra = ranks - core;
    let rounds = core.ilog2();
    Draft::whole(ranks, 1, |rank| {
        let all = || one(0);
        if rank >= core {
            return vec![send(rank - core, input(all())), receive(rank - core, output(all()))];
        }
        let mut program = Vec::new();
        let mut here = input(all());
        if rank < extra {
            let first = if rounds.is_multiple_of(2) { output(all()) } else { scratch(all()) };
            program.push(combine(vec![rank + core], here, first.clone(), false));
            here = first;
        }
        for round in 0..rounds {
            let partner = rank ^ (1 << round);
            let next = if here == scratch(all()) { output(all()) } else { scratch(all()) };
            program.push(send(partner, here.clone()));
            program.push(combine(vec![partner], here, next.clone(), round == rounds - 1));
            here = next;
        }
        if here == scratch(all()) {
            program.push(copy(here, output(all())));
        }
        if rank < extra {
            program.push(send(rank + core, output(all())));
        }
        program
    })
}

/// Halves, quarters, … to partners at distances p/2, p/4, …, then back. Where ranks are too many for a power of two, the first of them pair
/// up: both combine one half of the two, one of them goes on with both halves.
pub(super) fn halving_doubling(ranks: u32) -> Draft {
    let core = largest_power(ranks);
    let pairs = ranks - core;
    let half = core / 2;
    let rank_of = |place: u32| if place < pairs { 2 * place } else { place + pairs };
    Draft::whole(ranks, core, |rank| {
        let paired = rank < 2 * pairs;
        let mut program = Vec::new();
        if paired && !rank.is_multiple_of(2) {
            let even = rank - 1;
            program.push(send(even, input(0..half)));
            program.push(combine(vec![even], input(half..core), output(half..core), false));
            program.push(send(even, output(half..core)));
            program.push(receive(even, output(0..core)));
            return program;
        }
        if paired {
            program.push(send(rank + 1, input(half..core)));
            program.push(combine(vec![rank + 1], input(0..half), output(0..half), false));
            program.push(receive(rank + 1, output(half..core)));
        }
        let place = if paired { rank / 2 } else { rank - pairs };
        let mut here = 0..core;
        let mut distance = half;
        while distance > 0 {
            let partner = rank_of(place ^ distance);
            let (low, high) = (here.start..here.start + distance, here.start + distance..here.end);
            let (keep, give) = if place & distance == 0 { (low, high) } else { (high, low) };
            let own = if paired || distance < half { output } else { input };
            program.push(send(partner, own(give)));
            program.push(combine(vec![partner], own(keep.clone()), output(keep.clone()), distance == 1));
            here = keep;
            distance /= 2;
        }
        for round in 0..core.ilog2() {
            let distance = 1 << round;
            let partner = rank_of(place ^ distance);
            let theirs = here.start ^ distance..(here.start ^ distance) + distance;
            program.push(send(partner, output(here.clone())));
            program.push(receive(partner, output(theirs.clone())));
            here = here.start.min(theirs.start)..here.end.max(theirs.end);
        }
        if paired {
            program.push(send(rank + 1, output(0..core)));
        }
        program
    })
}

fn largest_power(ranks: u32) -> u32 {
    1 << ranks.ilog2()
}
