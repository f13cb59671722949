//! What schedules move, against the formulas; and what the model predicts from it.

use crate::common::{Random, every, lengths};
use eirene_train_schedule::{
    Algorithm, Collective, Costs, Counts, Lengths, Link, Step, Verified, chain_segments, cut, generate, predict, verify,
};

fn verified(collective: Collective, algorithm: &Algorithm, ranks: u32) -> Verified {
    verify(generate(collective, algorithm, ranks).unwrap()).unwrap()
}

fn count(collective: Collective, algorithm: &Algorithm, ranks: u32, lengths: &Lengths) -> Counts {
    Counts::of(&verified(collective, algorithm, ranks), lengths).unwrap()
}

#[test]
fn ring_and_direct_allreduce_send_2n_p_minus_1_over_p() {
    for p in 2..=16_u32 {
        let n = u64::from(p) * 120;
        let wanted = 2 * n * (u64::from(p) - 1) / u64::from(p);
        for algorithm in [
            Algorithm::Ring,
            Algorithm::SegmentedRing { segments: 4 },
            Algorithm::Direct { segments: 1 },
            Algorithm::Direct { segments: 8 },
        ] {
            let counts = count(Collective::AllReduce, &algorithm, p, &Lengths::Whole(n));
            for rank in 0..p {
                assert_eq!(counts.sent(rank).elements, wanted, "{algorithm:?} {p}");
                assert_eq!(counts.received(rank).elements, wanted, "{algorithm:?} {p}");
                assert_eq!(counts.reduced(rank), n / u64::from(p) * u64::from(p - 1), "{algorithm:?} {p}");
            }
        }
        let ring = count(Collective::AllReduce, &Algorithm::Ring, p, &Lengths::Whole(n));
        assert_eq!(ring.sent(0).messages, 2 * u64::from(p - 1));
        assert_eq!(ring.pair(0, 1), ring.sent(0));
        // Also where p does not divide n, the sum over all ranks is exact.
        let odd = count(Collective::AllReduce, &Algorithm::Ring, p, &Lengths::Whole(n + 1));
        assert_eq!(odd.total().elements, 2 * (n + 1) * u64::from(p - 1));
    }
}

#[test]
fn halving_doubling_is_as_good_as_the_ring_for_powers_of_two() {
    for p in [2, 4, 8, 16, 32_u32] {
        let n = u64::from(p) * 30;
        let counts = count(Collective::AllReduce, &Algorithm::HalvingDoubling, p, &Lengths::Whole(n));
        for rank in 0..p {
            assert_eq!(counts.sent(rank).elements, 2 * n * u64::from(p - 1) / u64::from(p));
            assert_eq!(counts.sent(rank).messages, 2 * u64::from(p.ilog2()));
        }
        let doubling = count(Collective::AllReduce, &Algorithm::Doubling, p, &Lengths::Whole(n));
        assert_eq!(doubling.sent(1).elements, n * u64::from(p.ilog2()));
    }
}

#[test]
fn two_levels_never_wait_for_the_only_message_on_the_wire() {
    for (width, count_of_nodes) in [(1, 2), (2, 2), (2, 3), (3, 4)] {
        let ranks = width * count_of_nodes;
        let nodes: Vec<u32> = (0..ranks).map(|rank| rank / width).collect();
        let algorithm = Algorithm::TwoLevel { nodes: nodes.clone(), segments: 6 };
        let schedule = verified(Collective::AllReduce, &algorithm, ranks);
        for rank in 0..ranks {
            let is_far = |other: &u32| nodes[*other as usize] != nodes[rank as usize];
            // All ranks do the same: what this one has sent and not got back is what is under way.
            let (mut sent, mut got, mut alone) = (0, 0, 0);
            for step in schedule.program(rank) {
                match step {
                    Step::Send { to, .. } if is_far(to) => sent += 1,
                    Step::Receive { from, .. } if is_far(from) => {
                        alone += u32::from(sent - got < 2);
                        got += 1;
                    }
                    Step::Combine { from, .. } if from.iter().any(is_far) => {
                        alone += u32::from(sent - got < 2);
                        got += 1;
                    }
                    _ => {}
                }
            }
            assert_eq!(sent, got);
            assert_eq!(alone, 1, "the last message of all: {width} ranks on each of {count_of_nodes} nodes");
        }
    }
}

#[test]
fn two_levels_send_2n_nodes_minus_1_over_nodes_out_of_each_node() {
    for (width, count_of_nodes) in [(1, 3), (2, 2), (4, 2), (3, 4), (8, 3)] {
        let ranks = width * count_of_nodes;
        let nodes: Vec<u32> = (0..ranks).map(|rank| rank / width).collect();
        let n = u64::from(ranks) * 16 * 6;
        for segments in [1, 4] {
            let algorithm = Algorithm::TwoLevel { nodes: nodes.clone(), segments };
            let counts = count(Collective::AllReduce, &algorithm, ranks, &Lengths::Whole(n));
            let wanted = 2 * n * u64::from(count_of_nodes - 1) / u64::from(count_of_nodes);
            for node in 0..count_of_nodes {
                assert_eq!(counts.leaving(&nodes, node).elements, wanted);
            }
            assert_eq!(counts.between(&nodes).elements, wanted * u64::from(count_of_nodes));
            // All ranks of a node carry the same share.
            for rank in 0..ranks {
                let own: u64 = (0..ranks)
                    .filter(|to| nodes[*to as usize] != nodes[rank as usize])
                    .map(|to| counts.pair(rank, to).elements)
                    .sum();
                assert_eq!(own, wanted / u64::from(width));
            }
        }
    }
    // Nodes with different numbers of ranks: the same, through one rank of each.
    let nodes = vec![0, 0, 0, 1, 1, 2];
    let algorithm = Algorithm::TwoLevel { nodes: nodes.clone(), segments: 2 };
    let counts = count(Collective::AllReduce, &algorithm, 6, &Lengths::Whole(1800));
    assert!((0..3).all(|node| counts.leaving(&nodes, node).elements == 2 * 1800 * 2 / 3));
    // A flat ring over two nodes of two, every second link between nodes, sends 1.5 n over each.
    let alternate = [0, 0, 1, 1];
    let flat = count(Collective::AllReduce, &Algorithm::Ring, 4, &Lengths::Whole(1000));
    assert_eq!(flat.leaving(&alternate, 0).elements, 1500);
    // Each block of an allgather comes once to each other node, each of a reduce-scatter once from it.
    let blocks = Lengths::Blocks(vec![10, 0, 30, 7, 50, 13]);
    for segments in [1, 3] {
        let algorithm = Algorithm::TwoLevel { nodes: nodes.clone(), segments };
        for collective in [Collective::AllGather, Collective::ReduceScatter] {
            assert_eq!(count(collective, &algorithm, 6, &blocks).between(&nodes).elements, 2 * 110);
        }
    }
    // Broadcast brings everything to each other node once.
    for segments in [1, 5] {
        let algorithm = Algorithm::TwoLevel { nodes: nodes.clone(), segments };
        let counts = count(Collective::Broadcast { root: 4 }, &algorithm, 6, &Lengths::Whole(1003));
        assert_eq!(counts.between(&nodes).elements, 2 * 1003);
        assert_eq!(counts.total().elements, 5 * 1003);
    }
}

#[test]
fn collectives_that_only_move_move_no_more_than_they_must() {
    let mut random = Random::new(5);
    for p in 1..=9_u32 {
        let n = 1003;
        for algorithm in every(Collective::Broadcast { root: 0 }, p) {
            let counts = count(Collective::Broadcast { root: 0 }, &algorithm, p, &Lengths::Whole(n));
            assert!((1..p).all(|rank| counts.received(rank).elements == n), "{algorithm:?} {p}");
            assert_eq!(counts.received(0).elements, 0);
        }
        let blocks: Vec<u64> = (0..p).map(|_| random.next() % 100).collect();
        let all: u64 = blocks.iter().sum();
        for algorithm in every(Collective::AllGather, p) {
            let counts = count(Collective::AllGather, &algorithm, p, &Lengths::Blocks(blocks.clone()));
            for rank in 0..p {
                assert_eq!(counts.received(rank).elements, all - blocks[rank as usize], "{algorithm:?} {p}");
            }
        }
        for algorithm in every(Collective::ReduceScatter, p) {
            let counts = count(Collective::ReduceScatter, &algorithm, p, &Lengths::Blocks(blocks.clone()));
            assert_eq!(counts.total().elements, all * u64::from(p - 1), "{algorithm:?} {p}");
            assert_eq!((0..p).map(|rank| counts.reduced(rank)).sum::<u64>(), all * u64::from(p - 1));
        }
        let pairs: Vec<Vec<u64>> = (0..p).map(|_| (0..p).map(|_| random.next() % 50).collect()).collect();
        for algorithm in every(Collective::AllToAll, p) {
            let counts = count(Collective::AllToAll, &algorithm, p, &Lengths::Pairs(pairs.clone()));
            for (from, to) in (0..p).flat_map(|from| (0..p).map(move |to| (from, to))).filter(|(a, b)| a != b) {
                assert_eq!(counts.pair(from, to).elements, pairs[from as usize][to as usize], "{algorithm:?} {p}");
            }
        }
    }
}

#[test]
fn messages_without_elements_are_not_counted_but_tokens_are() {
    let counts = count(Collective::AllReduce, &Algorithm::Direct { segments: 1 }, 4, &Lengths::Whole(1));
    // Only block 0 has an element: three come to rank 0, three go from it.
    assert_eq!((counts.total().messages, counts.total().elements), (6, 6));
    let barrier = count(Collective::Barrier, &Algorithm::Dissemination, 5, &Lengths::Nothing);
    assert_eq!((barrier.total().messages, barrier.total().elements), (15, 0));
}

#[test]
fn lengths_that_do_not_suit_are_refused() {
    let ring = verified(Collective::AllReduce, &Algorithm::Ring, 3);
    assert_eq!(Counts::of(&ring, &Lengths::Blocks(vec![1, 2, 3])), None);
    let gather = verified(Collective::AllGather, &Algorithm::Ring, 3);
    assert_eq!(Counts::of(&gather, &Lengths::Blocks(vec![1, 2])), None);
}

#[test]
fn cut_is_even_and_whole() {
    for (n, pieces) in [(0, 3), (1, 3), (10, 3), (12, 4), (1003, 64)] {
        let parts: Vec<_> = (0..pieces).map(|index| cut(n, pieces, index)).collect();
        assert_eq!((parts[0].start, parts[pieces as usize - 1].end), (0, n));
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        let lengths = parts.iter().map(|part| part.end - part.start);
        assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
    }
}

const ONE: Link = Link { latency: 1e-5, per_byte: 1e-9 };
const COSTS: Costs = Costs { inside: ONE, between: ONE, reduce: 0.0, copy: 0.0 };

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn predictions_are_the_formulas_where_there_are_formulas() {
    for p in [2, 3, 5, 8_u32] {
        let (nodes, steps) = (vec![0; p as usize], f64::from(p - 1));
        let n = u64::from(p) * 64 * 1000;
        let time = |collective, algorithm: Algorithm| {
            predict(&verified(collective, &algorithm, p), &Lengths::Whole(n), 4, &nodes, &COSTS).unwrap()
        };
        let bytes = 4.0 * n as f64;
        let ring = 2.0 * steps * (ONE.latency + ONE.per_byte * bytes / f64::from(p));
        assert!(near(time(Collective::AllReduce, Algorithm::Ring), ring), "{p}");
        for segments in [1, 4, 64] {
            let s = f64::from(segments);
            let chain = (steps - 1.0 + s) * (ONE.latency + ONE.per_byte * bytes / s);
            let got = time(Collective::Broadcast { root: 0 }, Algorithm::Chain { segments });
            assert!(near(got, chain), "{p} {segments}: {got} {chain}");
        }
        if p == 8 {
            let tree = 3.0 * (ONE.latency + ONE.per_byte * bytes);
            assert!(near(time(Collective::Broadcast { root: 3 }, Algorithm::Binomial), tree));
            let halving = 2.0 * (3.0 * ONE.latency + ONE.per_byte * bytes * 7.0 / 8.0);
            assert!(near(time(Collective::AllReduce, Algorithm::HalvingDoubling), halving));
        }
    }
}

#[test]
fn the_best_number_of_segments_is_the_best_one_predicted() {
    for (p, bytes) in [(4, 1 << 20), (8, 1 << 22), (16, 1 << 24)] {
        let nodes = vec![0; p as usize];
        let time = |segments: u32| {
            let chain = verified(Collective::Broadcast { root: 0 }, &Algorithm::Chain { segments }, p);
            predict(&chain, &Lengths::Whole(bytes), 1, &nodes, &COSTS).unwrap()
        };
        let best = chain_segments(bytes, p, ONE);
        assert!(best > 4, "{best}");
        for other in [1, best / 2, best - best / 4, best + best / 4, best * 2] {
            assert!(time(best) <= time(other) * 1.0001, "{p} {bytes}: {best} {other}");
        }
    }
    assert_eq!(chain_segments(1 << 30, 2, ONE), 1);
    assert_eq!(chain_segments(0, 9, ONE), 1);
}

#[test]
fn between_slow_links_two_levels_are_predicted_to_win() {
    let nodes = [0, 0, 1, 1];
    let costs = Costs {
        inside: Link { latency: 1e-6, per_byte: 1e-10 },
        between: Link { latency: 5e-5, per_byte: 8e-9 },
        reduce: 1e-10,
        copy: 1e-10,
    };
    let time = |algorithm: Algorithm| {
        let schedule = verified(Collective::AllReduce, &algorithm, 4);
        predict(&schedule, &Lengths::Whole(25_000_000), 4, &nodes, &costs).unwrap()
    };
    let ratio = time(Algorithm::Ring) / time(Algorithm::TwoLevel { nodes: nodes.to_vec(), segments: 4 });
    assert!((1.35..1.6).contains(&ratio), "{ratio}");
}

#[test]
fn everything_can_be_predicted() {
    let mut random = Random::new(6);
    for p in [1, 2, 5, 8_u32] {
        let nodes: Vec<u32> = (0..p).map(|rank| rank / 2).collect();
        for collective in Collective::all(p - 1) {
            for algorithm in every(collective, p) {
                let schedule = verified(collective, &algorithm, p);
                let lengths = lengths(collective, p, 100, &mut random);
                let time = predict(&schedule, &lengths, 8, &nodes, &COSTS).unwrap();
                assert!(time.is_finite() && (p == 1 || time > 0.0), "{collective:?} {algorithm:?} {p}: {time}");
            }
        }
    }
    assert_eq!(
        predict(&verified(Collective::AllReduce, &Algorithm::Ring, 3), &Lengths::Whole(1), 4, &[0], &COSTS),
        None
    );
}
