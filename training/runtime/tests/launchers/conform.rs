//! Every collective under every launcher, against plain loops.

use crate::deep::deep;
use crate::launcher::{Kind, Launcher, mpi_s, run, srun_s, wheels, wheels_root};
use crate::slurm::Slurm;
use crate::started::seed;

/// Algorithms that are asked for, one row a run; the first row asks for none.
const ALGORITHMS: [&str; 6] = [
    "",
    "allreduce=ring;broadcast=binomial;reduce=binomial;reduce-scatter=ring;allgather=ring;all-to-all=pairwise;gather=direct:4;scatter=direct:4",
    "allreduce=ring:4;broadcast=chain:4;reduce=chain-binomial:2:8;reduce-scatter=pairwise;allgather=bruck;all-to-all=direct:4",
    "allreduce=halving-doubling;broadcast=scatter-allgather;reduce-scatter=direct:16;allgather=direct:4;all-to-all=direct:1",
    "allreduce=doubling;broadcast=direct:8;reduce=direct:8;reduce-scatter=direct:4;allgather=doubling;gather=direct:1;scatter=direct:1",
    "allreduce=exchange;broadcast=chain:128;reduce=chain-binomial:8:32;barrier=dissemination",
];

/// So many cases of each collective with every launcher, one after the other.
fn hold(launchers: &[Launcher], each: &str) {
    for (number, launcher) in launchers.iter().enumerate() {
        let counts: Vec<u32> = if deep() { (1..=5).collect() } else { vec![2 + ((seed() + number as u64) % 3) as u32] };
        for ranks in counts {
            // By our own transport, and by what is chosen where nobody says.
            let ways: &[&str] = if deep() { &["builtin", "auto"] } else { &[["builtin", "auto"][number % 2]] };
            for way in ways {
                let variables = [("EIRENE_TRAIN_TRANSPORT", *way)];
                let ended = launcher.start(ranks, &["cases", &seed().to_string(), each], &variables).end();
                ended.assert_right(ranks, " cases right");
            }
        }
    }
}

fn few() -> &'static str {
    if deep() { "60" } else { "10" }
}

#[test]
fn collectives_hold_under_our_own_run_by_every_algorithm() {
    for (number, algorithms) in ALGORITHMS.iter().enumerate() {
        let counts = if deep() { vec![2, 3, 4, 5] } else { vec![2 + ((seed() + number as u64) % 3) as u32] };
        for ranks in counts {
            let started =
                run().start(ranks, &["cases", &seed().to_string(), few()], &[("EIRENE_TRAIN_ALGORITHM", algorithms)]);
            let ended = started.end();
            ended.assert_right(ranks, " cases right");
            let wanted = if algorithms.is_empty() { "allreduce of 4000 bytes" } else { "asked for by `allreduce=" };
            let serves = !algorithms.contains("doubling") || ranks.is_power_of_two();
            assert!(!serves || ended.text.contains(wanted), "{}", ended.text);
        }
    }
}

#[test]
fn collectives_hold_under_the_launchers_of_open_mpi_and_mpich() {
    hold(&mpi_s(), few());
}

#[test]
fn collectives_hold_under_slurm_in_its_three_ways() {
    let slurm = Slurm::start(1);
    hold(&srun_s(&slurm.conf), few());
}

/// MPI does every collective itself, and carries messages.
fn hold_by(launcher: &Launcher, library: &str, own: &str) {
    let ranks = if deep() { 4 } else { 2 + (seed() % 3) as u32 };
    let variables =
        [("EIRENE_TRAIN_MPI", library), ("EIRENE_TRAIN_TRANSPORT", "mpi"), ("EIRENE_TRAIN_ALGORITHM", "mpi")];
    let ended = launcher.start(ranks, &["cases", &seed().to_string(), few()], &variables).end();
    ended.assert_right(ranks, " cases right");
    assert!(ended.text.contains(own), "{own} is not in: {}", ended.text);
}

#[test]
fn collectives_hold_by_open_mpi_under_slurm_s_pmix() {
    let slurm = Slurm::start(1);
    let pmix = srun_s(&slurm.conf).into_iter().find(|launcher| launcher.kind == Kind::SlurmPmix).unwrap();
    hold_by(&pmix, "libmpi.so.40", "MPI's own: Open MPI 4");
}

#[test]
#[ignore = "needs the MPIs from wheels; tests/run runs it"]
fn collectives_hold_by_the_standard_abi_of_mpi_5() {
    let hydra = wheels().into_iter().find(|launcher| launcher.kind == Kind::Hydra).unwrap();
    let library = wheels_root().join("lib/libmpi_abi.so.1");
    hold_by(&hydra, library.to_str().unwrap(), "in the standard MPI ABI");
}

#[test]
#[ignore = "needs torchrun and the MPIs from wheels; tests/run runs it"]
fn collectives_hold_under_torchrun_and_the_launchers_from_wheels() {
    hold(&wheels(), few());
}

#[test]
#[ignore = "minutes; part of the deep tests"]
fn every_case_there_is_holds_on_two_and_three_ranks() {
    for ranks in [2, 3] {
        run().start(ranks, &["cases", "1", "all"], &[]).end().assert_right(ranks, " cases right");
    }
}
