//! The verifier catches what is wrong: mistakes of every kind by name, and thousands at random.

use crate::common::{MODES, Random, Run, deep, every, inputs, lengths, oracle, seed};
use eirene_train_schedule::{Algorithm, Collective, Fault, Schedule, Space, Span, Step, generate, verify};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const ALL: Collective = Collective::AllReduce;

fn mutant(collective: Collective, algorithm: &Algorithm, ranks: u32, change: impl FnOnce(&mut Schedule)) -> Fault {
    let mut schedule = generate(collective, algorithm, ranks).unwrap();
    verify(schedule.clone()).unwrap();
    change(&mut schedule);
    let flaw = verify(schedule).map(|_| ()).expect_err("the mistake was not seen");
    assert!(!flaw.to_string().is_empty());
    flaw.fault
}

fn ring(change: impl FnOnce(&mut Schedule)) -> Fault {
    mutant(ALL, &Algorithm::Ring, 4, change)
}

/// The first step of a kind.
fn find(program: &[Step], kind: impl Fn(&Step) -> bool) -> usize {
    program.iter().position(kind).unwrap()
}

#[test]
fn a_step_left_out() {
    let ranks = 4;
    for step in 0..generate(ALL, &Algorithm::Ring, ranks).unwrap().programs[2].len() {
        ring(|schedule| drop(schedule.programs[2].remove(step)));
    }
    let lost = ring(|schedule| drop(schedule.programs[2].pop()));
    assert!(matches!(lost, Fault::Unreceived { to: 2 }), "{lost:?}");
    let waits = ring(|schedule| drop(schedule.programs[2].remove(0)));
    assert!(!matches!(waits, Fault::Unreceived { .. }), "{waits:?}");
    // The same step left out everywhere leaves the messages in order, but not the results.
    let everywhere = ring(|schedule| schedule.programs.iter_mut().for_each(|program| program.truncate(6)));
    assert!(matches!(everywhere, Fault::Unwritten { .. }), "{everywhere:?}");
}

#[test]
fn steps_in_the_wrong_order() {
    // Two blocks sent the wrong way round.
    let swapped = ring(|schedule| {
        let program = &mut schedule.programs[1];
        let sends: Vec<usize> = (0..program.len()).filter(|step| matches!(program[*step], Step::Send { .. })).collect();
        program.swap(sends[0], sends[1]);
    });
    assert!(matches!(swapped, Fault::Undefined { .. } | Fault::Class { .. } | Fault::Twice { .. }), "{swapped:?}");
}

#[test]
fn the_wrong_partner() {
    let send = |to| {
        ring(move |schedule| {
            if let Step::Send { to: peer, .. } = &mut schedule.programs[0][0] {
                *peer = to;
            }
        })
    };
    assert_eq!(send(0), Fault::Peer(0));
    assert_eq!(send(4), Fault::Peer(4));
    assert!(matches!(send(2), Fault::Deadlock | Fault::Unreceived { .. } | Fault::Class { .. }));
}

#[test]
fn the_wrong_chunk() {
    let what = |chunks: std::ops::Range<u32>| {
        ring(move |schedule| {
            if let Step::Send { what, .. } = &mut schedule.programs[0][0] {
                what.chunks = chunks;
            }
        })
    };
    // The chunks have the same length for some buffers, and not for others.
    assert!(matches!(what(1..2), Fault::Class { .. }));
    assert_eq!(what(0..2), Fault::Count { from: 2, into: 1 });
    assert_eq!(what(4..5), Fault::Bounds { space: Space::Input, end: 5, has: 4 });
    assert_eq!(what(2..2), Fault::Token);
}

#[test]
fn a_contribution_counted_twice() {
    let whole = |space| Span { space, chunks: 0..1 };
    let twice = mutant(ALL, &Algorithm::Exchange, 2, |schedule| {
        for (rank, program) in (0..).zip(&mut schedule.programs) {
            let from = vec![1 - rank];
            *program = vec![
                Step::Send { to: 1 - rank, what: whole(Space::Input) },
                Step::Send { to: 1 - rank, what: whole(Space::Input) },
                Step::Combine {
                    from: from.clone(),
                    own: whole(Space::Input),
                    into: whole(Space::Scratch),
                    finish: false,
                },
                Step::Combine { from, own: whole(Space::Scratch), into: whole(Space::Output), finish: true },
            ];
        }
    });
    assert!(matches!(twice, Fault::Twice { class: 0, .. }), "{twice:?}");
    let own = mutant(ALL, &Algorithm::Direct { segments: 1 }, 2, |schedule| {
        let program = &mut schedule.programs[0];
        let combine = find(program, |step| matches!(step, Step::Combine { .. }));
        if let Step::Combine { from, .. } = &mut program[combine] {
            from.insert(0, 0);
        }
    });
    assert_eq!(own, Fault::Ranks);
}

#[test]
fn finished_too_early_too_often_or_never() {
    let set = |at: usize, to: bool| {
        ring(move |schedule| {
            let program = &mut schedule.programs[1];
            let combines: Vec<usize> =
                (0..program.len()).filter(|step| matches!(program[*step], Step::Combine { .. })).collect();
            if let Step::Combine { finish, .. } = &mut program[combines[at]] {
                *finish = to;
            }
        })
    };
    assert!(matches!(set(0, true), Fault::FinishedEarly { .. }));
    assert!(matches!(set(2, false), Fault::Unfinished { .. }));
}

#[test]
fn waiting_in_a_circle() {
    // Everybody receives before sending.
    let circle = mutant(Collective::AllGather, &Algorithm::Ring, 3, |schedule| {
        schedule.programs.iter_mut().for_each(|program| {
            let receive = find(program, |step| matches!(step, Step::Receive { .. }));
            let receive = program.remove(receive);
            program.insert(0, receive);
        });
    });
    assert_eq!(circle, Fault::Deadlock);
    // Everybody writes what he is still sending: right with buffers, and only with them.
    let mut exchange = generate(ALL, &Algorithm::Exchange, 3).unwrap();
    exchange.scratch_chunks = 0;
    for program in &mut exchange.programs {
        program.pop();
        if let Some(Step::Combine { into, .. }) = program.last_mut() {
            into.space = Space::Output;
        }
    }
    let flaw = verify(exchange).unwrap_err();
    assert_eq!((flaw.fault, flaw.in_place), (Fault::Deadlock, true));
}

#[test]
fn a_fence_left_out() {
    for collective in [ALL, Collective::AllGather, Collective::Broadcast { root: 1 }, Collective::ReduceScatter] {
        let one = mutant(collective, &Algorithm::Shared, 3, |schedule| drop(schedule.programs[0].remove(0)));
        assert!(matches!(one, Fault::Fences { .. }));
        let first = mutant(collective, &Algorithm::Shared, 3, |schedule| {
            schedule.programs.iter_mut().for_each(|program| drop(program.remove(0)));
        });
        assert!(matches!(first, Fault::Unfenced { .. }), "{first:?}");
        let last = mutant(collective, &Algorithm::Shared, 3, |schedule| {
            schedule.programs.iter_mut().for_each(|program| drop(program.pop()));
        });
        assert!(matches!(last, Fault::Unfenced { .. }), "{last:?}");
    }
    let barrier = mutant(Collective::Barrier, &Algorithm::Dissemination, 3, |schedule| {
        schedule.programs.iter_mut().for_each(Vec::clear);
    });
    assert!(matches!(barrier, Fault::Unheard { .. }));
}

#[test]
fn a_race() {
    // Two ranks write the same block.
    let both = mutant(ALL, &Algorithm::Shared, 3, |schedule| {
        if let Step::RemoteCombine { chunks, at, .. } = &mut schedule.programs[1][1] {
            (*chunks, *at) = (0..1, 0);
        }
    });
    assert!(matches!(both, Fault::Race { .. }), "{both:?}");
    // Everybody reads the root's output, which the root writes between the same fences: right if the root is quick, and only then.
    let reads = [0, 1, 2].map(|root| {
        mutant(Collective::Broadcast { root }, &Algorithm::Shared, 3, |schedule| {
            for step in schedule.programs.iter_mut().flatten() {
                if let Step::RemoteCopy { from, .. } = step {
                    from.space = Space::Output;
                }
            }
        })
    });
    assert!(reads.iter().all(|fault| matches!(fault, Fault::Race { .. } | Fault::Undefined { .. })), "{reads:?}");
    assert!(reads.iter().any(|fault| matches!(fault, Fault::Race { .. })), "{reads:?}");
    let mixed = mutant(ALL, &Algorithm::Ring, 3, |schedule| {
        schedule.programs.iter_mut().for_each(|program| program.push(Step::Fence));
    });
    assert_eq!(mixed, Fault::Mixed);
}

#[test]
fn the_input_or_a_foreign_output_written() {
    let input = ring(|schedule| {
        let program = &mut schedule.programs[1];
        let receive = find(program, |step| matches!(step, Step::Receive { .. }));
        if let Step::Receive { into, .. } = &mut program[receive] {
            into.space = Space::Input;
        }
    });
    assert_eq!(input, Fault::WritesInput);
    let output = mutant(Collective::Reduce { root: 0 }, &Algorithm::Binomial, 4, |schedule| {
        for step in &mut schedule.programs[2] {
            match step {
                Step::Combine { into: span, .. } | Step::Send { what: span, .. } => span.space = Space::Output,
                _ => {}
            }
        }
    });
    assert!(matches!(output, Fault::Bounds { space: Space::Output, has: 0, .. }), "{output:?}");
}

#[test]
fn results_that_could_differ_in_the_last_bits() {
    // Each combines two pairs in an order of its own: the same contributions, not the same number.
    let whole = |space| Span { space, chunks: 0..1 };
    let programs = (0..3_u32).map(|rank| {
        let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
        let combine =
            |from, own, into, finish| Step::Combine { from: vec![from], own: whole(own), into: whole(into), finish };
        vec![
            Step::Send { to: next, what: whole(Space::Input) },
            Step::Send { to: last, what: whole(Space::Input) },
            combine(next, Space::Input, Space::Scratch, false),
            combine(last, Space::Scratch, Space::Output, true),
        ]
    });
    let schedule = Schedule {
        collective: ALL,
        algorithm: Algorithm::Exchange,
        ranks: 3,
        input_chunks: 1,
        output_chunks: 1,
        scratch_chunks: 1,
        programs: programs.collect(),
    };
    assert_eq!(verify(schedule).unwrap_err().fault, Fault::Diverges { chunk: 0 });
}

#[test]
fn tables_that_do_not_fit() {
    let tables = |change: fn(&mut Schedule)| mutant(Collective::ReduceScatter, &Algorithm::Ring, 3, change);
    for change in [
        (|schedule| schedule.ranks = 4) as fn(&mut Schedule),
        |schedule| schedule.ranks = 0,
        |schedule| schedule.input_chunks = 4,
        |schedule| schedule.output_chunks = 0,
        |schedule| schedule.scratch_chunks = 1,
        |schedule| schedule.collective = ALL,
        |schedule| schedule.collective = Collective::Scatter { root: 3 },
        |schedule| schedule.ranks = 5000,
    ] {
        assert!(matches!(tables(change), Fault::Tables(_)));
    }
}

/// A small change somewhere, as a careless hand would make it.
fn change(schedule: &mut Schedule, random: &mut Random) {
    let ranks = schedule.programs.len();
    let rank = random.below(ranks);
    let length = schedule.programs[rank].len();
    if length == 0 {
        return;
    }
    let (at, other) = (random.below(length), random.below(length));
    let chunks = schedule.output_chunks.max(schedule.input_chunks).max(1) as usize;
    let peer = random.below(ranks) as u32;
    match random.below(12) {
        0 => drop(schedule.programs[rank].remove(at)),
        1 => schedule.programs[rank].swap(at, other),
        2 => schedule.programs[rank].swap(at, (at + 1) % length),
        3 => {
            let step = schedule.programs[rank][at].clone();
            schedule.programs[rank].insert(other, step);
        }
        4 => {
            let step = schedule.programs[rank].remove(at);
            let to = random.below(length);
            schedule.programs[rank].insert(to, step);
        }
        5 => schedule.programs.swap(rank, peer as usize),
        6 => {
            // The same slip on every rank.
            schedule
                .programs
                .iter_mut()
                .filter(|program| at < program.len())
                .for_each(|program| drop(program.remove(at)));
        }
        7 => {
            for program in &mut schedule.programs {
                let length = program.len();
                if length > 0 {
                    program.swap(at % length, other % length);
                }
            }
        }
        _ => {
            let (first, second) = (random.below(chunks) as u32, random.below(4) as u32);
            let space = [Space::Input, Space::Output, Space::Scratch][random.below(3)];
            let (shift, which) = (random.below(3), random.below(2));
            let span = |span: &mut Span| match shift {
                0 => span.space = space,
                1 => span.chunks = first..first + second,
                _ => span.chunks = first..first + (span.chunks.end - span.chunks.start),
            };
            let list = |list: &mut Vec<u32>| {
                if which == 0 {
                    list.push(peer);
                    list.sort_unstable();
                    list.dedup();
                } else if !list.is_empty() {
                    list.remove(peer as usize % list.len());
                }
            };
            if space == Space::Scratch {
                schedule.scratch_chunks = chunks as u32;
            }
            match &mut schedule.programs[rank][at] {
                Step::Send { to, .. } if which == 0 => *to = peer,
                Step::Receive { from, .. } if which == 0 => *from = peer,
                Step::Send { what: place, .. } | Step::Receive { into: place, .. } => span(place),
                Step::Copy { from, to } => span(if which == 0 { from } else { to }),
                Step::Combine { from, own, into, finish } => match random.below(4) {
                    0 => list(from),
                    1 => span(own),
                    2 => span(into),
                    _ => *finish = !*finish,
                },
                Step::RemoteCombine { from, chunks, into, at, finish } => match random.below(5) {
                    0 => list(from),
                    1 => list(into),
                    2 => *chunks = first..first + 1,
                    3 => *at = first,
                    _ => *finish = !*finish,
                },
                Step::RemoteCopy { of, from, to } => match random.below(3) {
                    0 => *of = peer,
                    1 => span(from),
                    _ => span(to),
                },
                Step::Fence => drop(schedule.programs[rank].remove(at)),
            }
        }
    }
}

/// Executes what the verifier let through, in all modes; it must be right every time.
fn must_be_right(schedule: &Schedule, in_place: bool, random: &mut Random) {
    for mode in MODES.into_iter().filter(|mode| in_place || !mode.in_place) {
        for around in [3, 17] {
            let lengths = lengths(schedule.collective, schedule.ranks, around, random);
            let inputs = inputs::<u64>(schedule, &lengths, random);
            let wanted = oracle(schedule.collective, &lengths, &inputs);
            let got = Run::execute(schedule, &lengths, &inputs, mode, random)
                .unwrap_or_else(|what| panic!("{what} in {mode:?} for {lengths:?}: {schedule:#?}"));
            for (rank, wanted) in wanted.iter().enumerate() {
                let right = wanted.as_ref().is_none_or(|wanted| *wanted == got[rank]);
                assert!(right, "rank {rank} in {mode:?} for {lengths:?}: {schedule:#?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if deep() { 1_000_000 } else { 10_000 },
        rng_seed: RngSeed::Fixed(seed()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_let_through_is_right(seed in any::<u64>(), ranks in 2_u32..=6, slips in 1_usize..=3) {
        let mut random = Random::new(seed);
        let collective = Collective::all(random.below(ranks as usize) as u32)[random.below(9)];
        let algorithms = every(collective, ranks);
        let algorithm = &algorithms[random.below(algorithms.len())];
        let mut schedule = generate(collective, algorithm, ranks).unwrap();
        for _ in 0..slips {
            change(&mut schedule, &mut random);
        }
        if let Ok(verified) = verify(schedule) {
            must_be_right(verified.schedule(), verified.in_place(), &mut random);
        }
    }
}

/// How the changes fare: most are mistakes, some are not; if either were never so, the property above would say little.
#[test]
fn some_changes_are_harmless_and_most_are_not() {
    let mut random = Random::new(7);
    let (mut harmless, mut all) = (0, 0);
    for _ in 0..1000 {
        let collective = Collective::all(1)[random.below(9)];
        let algorithms = every(collective, 4);
        let mut schedule = generate(collective, &algorithms[random.below(algorithms.len())], 4).unwrap();
        let before = schedule.programs.clone();
        change(&mut schedule, &mut random);
        if schedule.programs != before {
            all += 1;
            harmless += u32::from(verify(schedule).is_ok());
        }
    }
    assert!(harmless > all / 100 && harmless < all / 3, "{harmless} of {all}");
}
