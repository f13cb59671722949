//! Real ranks on the MPIs that are installed: messages, collectives, and launchers that meet the wrong library.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::net::TcpListener;
use std::time::Duration;

use common::{Installed, Kind, Outcome, assert_within, deep, installed, run_rank, sample};

fn run(launcher: Option<(&Installed, u32)>, what: &str, environment: &[(&str, &str)]) -> Outcome {
    let outcome = run_rank(launcher, &["rank", what], environment);
    assert!(outcome.left.is_empty(), "{:?} are left of {what}", outcome.left);
    outcome
}

fn fine(outcome: &Outcome, installed: &Installed, ranks: u32) {
    assert_eq!(outcome.code, Some(0), "{installed:?} with {ranks} ranks:\n{}", outcome.output);
    for rank in 0..ranks {
        let line = format!("ok rank {rank} of {ranks} {}", installed.name);
        assert_eq!(outcome.lines(&line), 1, "`{line}` is not once in:\n{}", outcome.output);
    }
    assert_eq!(outcome.lines(installed.abi), ranks as usize, "{} is not in:\n{}", installed.abi, outcome.output);
}

/// Under its own launcher a library is found without being named, where it is the first choice.
fn environment(installed: &Installed) -> Vec<(&'static str, &str)> {
    if installed.found { Vec::new() } else { vec![("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap())] }
}

/// In the deep tests what is wrong is said within this many milliseconds.
const SOON_MS: u64 = 3000;

/// Runs it once. The deep tests run it until it says within three seconds what is wrong, five times at most: the machine may have other things to do.
fn said_soon(run: impl Fn() -> Outcome) -> Outcome {
    if !deep() {
        return run();
    }
    let mut took = Vec::new();
    loop {
        let outcome = run();
        match outcome.errors().iter().map(|(took, _)| *took).max() {
            Some(slowest) if slowest > SOON_MS && took.len() < 4 => took.push(slowest),
            slowest => {
                assert!(
                    slowest.is_none_or(|slowest| slowest <= SOON_MS),
                    "{took:?} and {slowest:?} ms: {}",
                    outcome.output
                );
                return outcome;
            }
        }
    }
}

/// All ranks failed with a text that has these words.
fn refused(outcome: &Outcome, ranks: usize, words: &[&str]) {
    assert!(outcome.code.is_some_and(|code| code != 0), "{:?}:\n{}", outcome.code, outcome.output);
    assert_eq!(outcome.lines("ok rank"), 0, "{}", outcome.output);
    let errors = outcome.errors();
    // A launcher may end the other ranks at the first that fails.
    assert!((1..=ranks).contains(&errors.len()), "{}", outcome.output);
    for (_, text) in errors {
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
    }
}

/// Messages and collectives on this many ranks, of one library or, deep, of all.
fn hold(ranks: u32) {
    for installed in sample(installed(), 1, ranks) {
        let outcome = run(Some((&installed, ranks)), "all", &environment(&installed));
        fine(&outcome, &installed, ranks);
    }
}

#[test]
fn messages_and_collectives_hold_alone() {
    hold(1);
}

#[test]
fn messages_and_collectives_hold_on_two_ranks() {
    hold(2);
}

#[test]
fn messages_and_collectives_hold_on_three_ranks() {
    hold(3);
}

#[test]
fn messages_and_collectives_hold_on_four_ranks() {
    hold(4);
}

#[test]
fn one_call_at_a_time_is_enough() {
    for installed in sample(installed(), 1, 11) {
        let outcome = run(Some((&installed, 2)), "serialized", &environment(&installed));
        fine(&outcome, &installed, 2);
        assert_eq!(outcome.lines("threads Serialized"), 2, "{}", outcome.output);
    }
}

#[test]
fn an_mpi_that_somebody_else_started_is_taken_part_in_and_left_alone() {
    for installed in sample(installed(), 2, 12) {
        fine(&run(Some((&installed, 2)), "guest", &environment(&installed)), &installed, 2);
    }
}

#[test]
fn mpi_ends_with_its_last_user() {
    for installed in sample(installed(), 2, 13) {
        fine(&run(Some((&installed, 2)), "in-use", &environment(&installed)), &installed, 2);
    }
}

#[test]
fn abort_ends_every_rank_with_its_code() {
    for installed in sample(installed(), 2, 14) {
        let outcome = run(Some((&installed, 3)), "abort", &environment(&installed));
        assert_eq!(outcome.code, Some(7), "{installed:?}:\n{}", outcome.output);
        assert_eq!(outcome.lines("ok rank"), 0, "{}", outcome.output);
    }
}

#[test]
fn an_mpi_that_is_given_up_is_not_waited_for() {
    for installed in sample(installed(), 2, 19) {
        let outcome = run(Some((&installed, 2)), "forsake", &environment(&installed));
        // Launchers call a rank that leaves without MPI_Finalize a failure, and may end the other for it.
        assert!(outcome.lines("ok rank") >= 1, "{installed:?}: {}", outcome.output);
        assert!(outcome.errors().is_empty(), "{}", outcome.output);
        assert_within(Duration::from_secs(20), outcome.took);
    }
}

#[test]
fn one_process_without_a_launcher_is_a_world_of_one() {
    for installed in sample(installed(), 3, 15) {
        let library = installed.library.to_str().unwrap();
        fine(&run(None, "start", &[("EIRENE_TRAIN_MPI", library)]), &installed, 1);
    }
}

#[test]
fn a_launcher_and_another_s_library_meet_or_say_why_not() {
    let all = installed();
    let pairs: Vec<(&Installed, &Installed)> =
        all.iter().flat_map(|launcher| all.iter().map(move |library| (launcher, library))).collect();
    for (launcher, library) in sample(pairs, 6, 16) {
        let environment = [("EIRENE_TRAIN_MPI", library.library.to_str().unwrap())];
        let outcome = said_soon(|| run(Some((launcher, 2)), "start", &environment));
        let meet = launcher.kind == library.kind || (launcher.kind, library.kind) == (Kind::Orte, Kind::Prrte);
        if meet {
            fine(&outcome, library, 2);
        } else {
            let spoken = if launcher.kind == Kind::Hydra { "PMI" } else { "PMIx" };
            refused(&outcome, 2, &[spoken, library.name, "2 worlds of one", "EIRENE_TRAIN_MPI"]);
        }
    }
}

#[test]
fn a_step_of_several_tasks_without_pmi_is_refused_by_every_library() {
    for installed in sample(installed(), 2, 17) {
        let library = ("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap());
        let step = [library, ("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "1")];
        refused(
            &said_soon(|| run(None, "start", &step)),
            1,
            &["SLURM_NTASKS=4", installed.name, "--mpi=pmix", "EIRENE_TRAIN_MPI=none"],
        );
        let torchrun = [library, ("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost")];
        refused(&said_soon(|| run(None, "start", &torchrun)), 1, &["torchrun", "WORLD_SIZE=2", installed.name]);
    }
}

#[test]
fn a_closed_or_wrong_pmi_connection_is_said_by_name() {
    for installed in installed().into_iter().filter(|installed| installed.kind == Kind::Hydra) {
        let library = ("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap());
        let closed = [library, ("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        refused(&said_soon(|| run(None, "start", &closed)), 1, &["PMI_FD=77", installed.name, "not open"]);
        // The descriptor is open, but nobody serves it: MPICH ends the process inside MPI_Init. Our word is there.
        let deaf = run(None, "start", &[library, ("PMI_FD", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        assert!(deaf.code.is_some_and(|code| code != 0), "{}", deaf.output);
        assert_eq!(deaf.lines("MPI_Init ended this process"), 1, "{}", deaf.output);
        assert!(deaf.output.contains("EIRENE_TRAIN_MPI=none"), "{}", deaf.output);
    }
}

/// A PMIx server that listens and never answers, as one of another version may do.
fn mute(version: &str) -> (TcpListener, Vec<(&'static str, String)>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("x.0;tcp4://{}", server.local_addr().unwrap());
    let mut pairs: Vec<(&str, String)> =
        ["PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI3", "PMIX_SERVER_URI4", "PMIX_SERVER_URI41"]
            .into_iter()
            .map(|name| (name, address.clone()))
            .collect();
    for (name, value) in [
        ("PMIX_RANK", "0"),
        ("PMIX_NAMESPACE", "x"),
        ("PMIX_VERSION", version),
        ("PMIX_SECURITY_MODE", "native"),
        ("PMIX_GDS_MODULE", "hash"),
        ("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
    ] {
        pairs.push((name, value.to_owned()));
    }
    (server, pairs)
}

#[test]
fn a_pmix_server_that_does_not_answer_is_an_error_and_the_process_ends() {
    for installed in installed().into_iter().filter(|installed| installed.kind != Kind::Hydra) {
        let (_server, pairs) = mute("9.1.0");
        let mut environment: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.push(("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap()));
        let outcome = said_soon(|| run(None, "start", &environment));
        // Open MPI 5 waits for the server; Open MPI 4 takes itself for alone.
        let words: &[&str] = match installed.kind {
            Kind::Prrte => &["MPI_Init", "9.1.0", "has not returned after 2.3s", "EIRENE_TRAIN_MPI"],
            Kind::Orte | Kind::Hydra => &["OMPI_COMM_WORLD_SIZE=2", "world of 1"],
        };
        refused(&outcome, 1, &[words, &[installed.name]].concat());
        if installed.kind == Kind::Prrte {
            // A neighbouring version is given all the time there is, and then named as well.
            environment.push(("PMIX_VERSION", "4.2.2"));
            environment.push(("EIRENE_TEST_LIMIT_MS", "700"));
            refused(&run(None, "start", &environment), 1, &["has not returned after 700ms", "4.2.2", installed.name]);
        }
    }
}

#[test]
fn a_pmix_server_that_nobody_runs_is_said_before_the_start() {
    for installed in installed().into_iter().filter(|installed| installed.kind != Kind::Hydra) {
        let (server, pairs) = mute("4.2.2");
        drop(server);
        let mut environment: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.push(("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap()));
        refused(
            &said_soon(|| run(None, "start", &environment)),
            1,
            &["PMIx server 4.2.2", "nobody listens", installed.name],
        );
    }
}

#[test]
fn mpi_can_be_switched_off_and_misnamed() {
    let outcome = run(None, "open", &[("EIRENE_TRAIN_MPI", "none")]);
    refused(&outcome, 1, &["switched off by `EIRENE_TRAIN_MPI=none`"]);
    refused(
        &run(None, "open", &[("EIRENE_TRAIN_MPI", "/nowhere/libmpi.so")]),
        1,
        &["/nowhere/libmpi.so", "does not open"],
    );
    refused(&run(None, "open", &[("EIRENE_TRAIN_MPI", "libm.so.6")]), 1, &["libm.so.6", "no function MPI_Init_thread"]);
}

#[test]
fn a_library_that_is_loaded_already_is_taken() {
    for installed in sample(installed(), 2, 18) {
        let outcome = run(None, "open", &[("LD_PRELOAD", installed.library.to_str().unwrap())]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.output);
        let expected = format!("opened {}", installed.name);
        assert!(outcome.output.contains(&expected) && outcome.output.contains(installed.abi), "{}", outcome.output);
    }
}
