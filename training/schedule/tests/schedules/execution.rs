//! Every algorithm of every collective, executed with numbers, against a plain computation.

use crate::common::{MODES, Number, Random, Run, every, inputs, lengths, oracle};
use eirene_train_schedule::{Collective, generate, verify};

fn roots(collective: Collective, ranks: u32) -> Vec<u32> {
    if collective.root().is_some() { vec![0, ranks / 2, ranks - 1] } else { vec![0] }
}

#[test]
fn every_schedule_does_what_its_collective_says() {
    let mut random = Random::new(1);
    let mut executed = 0;
    for ranks in 1..=9_u32 {
        for collective in Collective::all(0) {
            let mut roots = roots(collective, ranks);
            roots.dedup();
            for collective in roots.into_iter().map(|root| with_root(collective, root)) {
                for algorithm in every(collective, ranks) {
                    let verified = verify(generate(collective, &algorithm, ranks).unwrap()).unwrap();
                    let schedule = verified.schedule();
                    let around = [0, 1, u64::from(ranks) - 1, u64::from(ranks) + 1, 7, 64, 1009];
                    for around in around {
                        let lengths = lengths(collective, ranks, around, &mut random);
                        let inputs = inputs::<u64>(schedule, &lengths, &mut random);
                        let wanted = oracle(collective, &lengths, &inputs);
                        for mode in MODES.into_iter().filter(|mode| verified.in_place() || !mode.in_place) {
                            // The long ones take turns.
                            if around > 64 && random.below(4) > 0 {
                                continue;
                            }
                            let got = Run::execute(schedule, &lengths, &inputs, mode, &mut random);
                            let got = got.unwrap_or_else(|what| {
                                panic!("{collective:?} {algorithm:?} {lengths:?} {mode:?}: {what}")
                            });
                            for (rank, wanted) in wanted.iter().enumerate() {
                                if let Some(wanted) = wanted {
                                    assert!(
                                        *wanted == got[rank],
                                        "{collective:?} {algorithm:?} {lengths:?} {mode:?}: rank {rank} of {ranks}"
                                    );
                                }
                            }
                            executed += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(executed > 20_000, "{executed}");
}

#[test]
fn reductions_of_floats_are_near_and_the_same_bits_on_all_ranks() {
    let mut random = Random::new(2);
    for ranks in 2..=9 {
        for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce { root: 1 }] {
            for algorithm in every(collective, ranks) {
                let verified = verify(generate(collective, &algorithm, ranks).unwrap()).unwrap();
                let lengths = lengths(collective, ranks, 50, &mut random);
                let inputs = inputs::<f64>(verified.schedule(), &lengths, &mut random);
                let wanted = oracle(collective, &lengths, &inputs);
                let mode = MODES[random.below(MODES.len())];
                let got = Run::execute(verified.schedule(), &lengths, &inputs, mode, &mut random).unwrap();
                for (wanted, got) in wanted.iter().zip(&got) {
                    for (wanted, got) in wanted.iter().flatten().zip(got) {
                        assert!((wanted - got).abs() < 1e-9, "{collective:?} {algorithm:?}: {wanted} {got}");
                    }
                }
                if collective == Collective::AllReduce {
                    let bits = |output: &Vec<f64>| output.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                    assert!(got.iter().all(|output| bits(output) == bits(&got[0])), "{algorithm:?}");
                }
            }
        }
    }
}

#[test]
fn the_executor_sees_what_the_verifier_should() {
    // A test of the test: an executor that let everything pass would prove nothing.
    let mut random = Random::new(3);
    let mut schedule = generate(Collective::AllReduce, &eirene_train_schedule::Algorithm::Ring, 3).unwrap();
    let lengths = lengths(Collective::AllReduce, 3, 10, &mut random);
    let inputs = inputs::<u64>(&schedule, &lengths, &mut random);
    schedule.programs[1].pop();
    assert!(Run::execute(&schedule, &lengths, &inputs, MODES[0], &mut random).is_err());
    assert_ne!(1_u64.finish(), 1);
}

fn with_root(collective: Collective, root: u32) -> Collective {
    Collective::all(root)
        .into_iter()
        .find(|other| std::mem::discriminant(other) == std::mem::discriminant(&collective))
        .unwrap()
}
