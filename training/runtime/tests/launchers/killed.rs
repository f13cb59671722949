//! A rank that is killed in the middle of a reduction, under every launcher: all others end within seconds, somebody says which it was, and
//! nothing is left.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::deep::{assert_within, deep};
use crate::launcher::{Kind, Launcher, mpi_s, run, srun_s, wheels};
use crate::slurm::Slurm;
use crate::started::seed;

/// In the deep tests all have ended by then.
const SOON: Duration = Duration::from_secs(5);

fn a_rank_is_killed(launchers: &[Launcher]) {
    for launcher in launchers {
        for ranks in [2, 4] {
            let sizes: &[&str] = if deep() { &["10", "30000", "3000000"] } else { &["3000000"] };
            for elements in sizes {
                let started = launcher.start(ranks, &["endless", elements], &[]);
                let processes = started.processes(ranks);
                let victim = (seed() % u64::from(ranks)) as usize;
                kill(Pid::from_raw(processes[victim]), Signal::SIGKILL).unwrap();
                let killed = Instant::now();
                let named = format!("rank {victim} has ended");
                let longest = match launcher.kind {
                    // It leaves the others be.
                    Kind::SlurmPmix | Kind::SlurmPmi2 | Kind::Slurm => {
                        started.wait_for(&named);
                        SOON
                    }
                    // It looks after its ranks now and then, and takes seconds to end by itself.
                    Kind::Torchrun => {
                        started.wait_for(&named);
                        6 * SOON
                    }
                    Kind::Run | Kind::Orte | Kind::Prrte | Kind::Hydra => SOON,
                };
                let ended = started.end();
                assert_within(longest, killed.elapsed());
                assert_ne!(ended.code, Some(0), "{ended:?}");
                // Launchers may end the others before they get a word out; what they say is about the right one.
                for (_, error) in ended.errors() {
                    assert!(error.contains(&named), "{error}: {ended:?}");
                }
                let said = match launcher.kind {
                    Kind::Run => format!("the run failed: rank {victim} ("),
                    Kind::Orte | Kind::Prrte => format!("rank {victim} "),
                    // It knows processes, not ranks.
                    Kind::Hydra => processes[victim].to_string(),
                    Kind::SlurmPmix | Kind::SlurmPmi2 | Kind::Slurm => format!("task {victim}: Killed"),
                    Kind::Torchrun => format!("rank      : {victim} "),
                };
                assert!(ended.text.contains(&said) || ended.text.contains(&named), "`{said}` is not in {ended:?}");
            }
        }
    }
}

#[test]
fn a_rank_that_is_killed_under_our_own_run_is_named_and_nothing_is_left() {
    a_rank_is_killed(&[run()]);
}

#[test]
fn a_rank_that_is_killed_under_open_mpi_or_mpich_is_told_and_nothing_is_left() {
    a_rank_is_killed(&mpi_s());
}

#[test]
fn a_rank_that_is_killed_under_slurm_is_named_by_the_others_and_nothing_is_left() {
    let slurm = Slurm::start(1);
    a_rank_is_killed(&srun_s(&slurm.conf));
}

#[test]
#[ignore = "needs torchrun and the MPIs from wheels; part of the deep tests"]
fn a_rank_that_is_killed_under_torchrun_or_a_launcher_from_a_wheel_is_told_and_nothing_is_left() {
    a_rank_is_killed(&wheels());
}

#[test]
fn ctrl_c_ends_a_run_and_nothing_is_left() {
    for ranks in [2, 4] {
        let started = run().start(ranks, &["endless", "30000"], &[]);
        started.processes(ranks);
        // As a terminal does it: to the launcher, which is alone in its group.
        kill(Pid::from_raw(started.pid().cast_signed()), Signal::SIGINT).unwrap();
        let interrupted = Instant::now();
        let ended = started.end();
        assert_within(SOON, interrupted.elapsed());
        assert_eq!(ended.code, Some(130), "{ended:?}");
    }
}
