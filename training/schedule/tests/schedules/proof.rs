//! Every schedule that can be written is proven, for every number of ranks.

use crate::common::{Random, deep, every, nodes};
use eirene_train_schedule::{Algorithm, Collective, Refused, algorithms, generate, verify};

fn prove(collective: Collective, algorithm: &Algorithm, ranks: u32) {
    let schedule = generate(collective, algorithm, ranks).unwrap();
    if let Err(flaw) = verify(schedule) {
        panic!("{collective:?} by {algorithm:?} for {ranks} ranks: {flaw}");
    }
}

/// All of them with `EIRENE_TEST_DEEP=1`, else a few numbers of ranks, others for another `EIRENE_TEST_SEED`.
#[test]
fn all_algorithms_are_proven_up_to_64_ranks() {
    let mut random = Random::new(4);
    let some: Vec<u32> =
        if deep() { (1..=64).collect() } else { (0..6).map(|_| 1 + random.below(40) as u32).collect() };
    for ranks in some {
        let roots: Vec<u32> = if deep() && ranks <= 16 {
            (0..ranks).collect()
        } else {
            vec![0, ranks - 1, random.below(ranks as usize) as u32]
        };
        for root in roots {
            for collective in Collective::all(root) {
                if root == 0 || collective.root().is_some() {
                    for algorithm in every(collective, ranks) {
                        prove(collective, &algorithm, ranks);
                    }
                }
            }
        }
    }
}

#[test]
fn sets_of_more_than_64_ranks_are_proven_too() {
    let large: &[u32] = if deep() { &[65, 96, 127, 128, 129, 200, 256] } else { &[65, 67] };
    for &ranks in large {
        for collective in Collective::all(ranks - 1) {
            for algorithm in every(collective, ranks) {
                let costly = matches!(&algorithm, Algorithm::Direct { segments } | Algorithm::SegmentedRing { segments } | Algorithm::TwoLevel { segments, .. } if *segments > 2);
                if !costly {
                    prove(collective, &algorithm, ranks);
                }
            }
        }
    }
    if deep() {
        prove(Collective::AllReduce, &Algorithm::Ring, 1024);
        prove(Collective::AllReduce, &Algorithm::HalvingDoubling, 1023);
        prove(Collective::Broadcast { root: 5 }, &Algorithm::Chain { segments: 64 }, 1024);
        prove(Collective::Barrier, &Algorithm::Dissemination, 1024);
    }
}

#[test]
fn depths_are_those_of_the_papers() {
    let depth = |collective, algorithm: Algorithm, ranks| {
        verify(generate(collective, &algorithm, ranks).unwrap()).unwrap().depth()
    };
    let all = Collective::AllReduce;
    for ranks in 2..=17_u32 {
        let log = ranks.next_power_of_two().ilog2();
        assert_eq!(depth(all, Algorithm::Ring, ranks), 2 * (ranks - 1));
        assert_eq!(depth(all, Algorithm::Direct { segments: 1 }, ranks), 2);
        assert_eq!(depth(all, Algorithm::Exchange, ranks), 1);
        assert_eq!(depth(Collective::Barrier, Algorithm::Dissemination, ranks), log);
        assert_eq!(depth(Collective::AllGather, Algorithm::Bruck, ranks), log);
        // Below place p − 1 are as many parents as it has bits.
        let most = (0..ranks).map(u32::count_ones).max().unwrap();
        assert_eq!(depth(Collective::Broadcast { root: 1 }, Algorithm::Binomial, ranks), most);
        if ranks.is_power_of_two() {
            assert_eq!(depth(all, Algorithm::Doubling, ranks), log);
            assert_eq!(depth(all, Algorithm::HalvingDoubling, ranks), 2 * log);
        }
    }
}

#[test]
fn what_is_named_can_be_written_and_nothing_else() {
    for collective in Collective::all(1) {
        for nodes in nodes(4) {
            for algorithm in algorithms(collective, 4, &nodes, false) {
                assert_ne!(algorithm, Algorithm::Shared);
                prove(collective, &algorithm, 4);
            }
        }
    }
    let refused = |collective, algorithm: Algorithm, ranks| generate(collective, &algorithm, ranks).unwrap_err();
    let all = Collective::AllReduce;
    assert!(matches!(refused(all, Algorithm::Bruck, 4), Refused::NotThis { .. }));
    assert!(matches!(refused(all, Algorithm::Bruck, 1), Refused::NotThis { .. }));
    assert_eq!(refused(all, Algorithm::Ring, 0), Refused::Ranks { ranks: 0 });
    assert_eq!(refused(all, Algorithm::Ring, 1025), Refused::Ranks { ranks: 1025 });
    assert_eq!(refused(Collective::Reduce { root: 4 }, Algorithm::Binomial, 4), Refused::Root { root: 4, ranks: 4 });
    assert_eq!(refused(all, Algorithm::Direct { segments: 0 }, 4), Refused::Segments { segments: 0, ranks: 4 });
    assert!(matches!(refused(all, Algorithm::Direct { segments: 4096 }, 1000), Refused::Segments { .. }));
    assert_eq!(
        refused(all, Algorithm::TwoLevel { nodes: vec![0, 1], segments: 1 }, 3),
        Refused::Nodes { given: 2, ranks: 3 }
    );
    assert!(matches!(refused(Collective::AllGather, Algorithm::Doubling, 6), Refused::PowerOfTwo { .. }));
}

#[test]
fn names_say_which_algorithm_is_meant() {
    let nodes = [0, 0, 1, 1];
    for collective in Collective::all(1) {
        let list = algorithms(collective, 4, &nodes, true);
        let names: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(names.iter().filter_map(|name| Algorithm::named(name, &nodes)).collect::<Vec<_>>(), list);
    }
    for wrong in ["", "rings", "direct", "direct/", "direct/x", "direct/1/2", "bruck/1", "chain/-1"] {
        assert_eq!(Algorithm::named(wrong, &nodes), None, "{wrong}");
    }
    assert_eq!(Collective::Reduce { root: 3 }.to_string(), "reduce with root 3");
    assert_eq!(Collective::AllReduce.to_string(), "allreduce");
}
