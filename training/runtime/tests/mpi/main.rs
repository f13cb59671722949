//! Worlds on real processes with the MPIs that are installed: MPI's own collectives, MPI between pretended nodes, launchers that meet the wrong
//! library, and ranks that end.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../mpi/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Installed, Kind, Outcome, assert_within, deep, installed, run_rank, sample};

const BY_MPI: (&str, &str) = ("EIRENE_TRAIN_TRANSPORT", "mpi");
const OWN: (&str, &str) = ("EIRENE_TRAIN_ALGORITHM", "mpi");
const OWN_MESSAGES: (&str, &str) = ("EIRENE_TRAIN_ALGORITHM", "p2p=mpi");

/// Runs `mpi_rank` with these words as so many ranks, or without a launcher. What the ranks say comes before what the launcher says.
fn run_file(launcher: Option<(&Installed, u32)>, words: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut outcome = run_rank(launcher, &[&["mpi_rank", file.path().to_str().unwrap()], words].concat(), environment);
    outcome.output.insert_str(0, &std::fs::read_to_string(file.path()).unwrap());
    outcome
}

fn run(installed: &Installed, ranks: u32, words: &[&str], environment: &[(&str, &str)]) -> Outcome {
    run_file(Some((installed, ranks)), words, environment)
}

/// Every MPI where the wheels' are there too, else one.
fn every_or_one(salt: u32) -> Vec<Installed> {
    sample(installed(), if std::env::var_os("EIRENE_TEST_MPI_WHEELS").is_some() { usize::MAX } else { 1 }, salt)
}

/// How many ranks to try with which MPI: `usual` with every MPI, and each of `others` with one. What a collective does depends on how many ranks there
/// are, and what carries it on the MPI; all pairs of the two take most of an hour on two cores, where ranks that wait spin.
fn worlds(usual: u32, others: &[u32], salt: u32) -> Vec<(u32, Installed)> {
    let all = every_or_one(salt);
    let one = |(n, ranks): (usize, &u32)| (*ranks, all[(n + salt as usize) % all.len()].clone());
    let others: Vec<_> = others.iter().enumerate().map(one).collect();
    all.iter().map(|installed| (usual, installed.clone())).chain(others).collect()
}

/// The same launcher, told to let the other ranks be when one has failed: they are to say what they see.
fn patient(installed: &Installed) -> Installed {
    let mut patient = installed.clone();
    let words: &[&str] = match installed.kind {
        Kind::Orte => &["--enable-recovery"],
        Kind::Prrte => &["--runtime-options", "recoverable"],
        Kind::Hydra => &["-disable-auto-cleanup"],
    };
    patient.launcher.splice(1..1, words.iter().map(Into::into));
    patient
}

/// Under its own launcher a library is found without being named, where it is the first choice.
fn with<'a>(installed: &'a Installed, more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> = more.to_vec();
    if !installed.found {
        pairs.push(("EIRENE_TRAIN_MPI", installed.library.to_str().unwrap()));
    }
    pairs
}

fn fine(outcome: &Outcome, installed: &Installed, ranks: u32, nodes: usize) {
    assert_eq!(outcome.code, Some(0), "{installed:?} with {ranks} ranks:\n{}", outcome.output);
    for rank in 0..ranks {
        let line = format!("ok rank {rank} of {ranks} on {nodes} nodes, MPI's own: {}", installed.name);
        assert_eq!(outcome.lines(&line), 1, "`{line}` is not once in:\n{}", outcome.output);
    }
    assert_eq!(outcome.lines(installed.abi), ranks as usize, "{} is not in:\n{}", installed.abi, outcome.output);
}

/// All ranks said these words. None has waited for a late rank to the end of its time: a run may not last so long.
fn told(outcome: &Outcome, ranks: usize, words: &[&str]) {
    assert_eq!(outcome.lines("ok rank"), 0, "{}", outcome.output);
    let errors = outcome.errors();
    assert_eq!(errors.len(), ranks, "{}", outcome.output);
    for (_, text) in errors {
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
    }
}

#[test]
fn mpi_s_own_collectives_agree_with_plain_loops() {
    for (ranks, installed) in worlds(3, if deep() { &[2, 4] } else { &[] }, 1) {
        let nodes = if ranks == 3 { "aba" } else { "aaaa" };
        let outcome = run(&installed, ranks, &["collectives", nodes], &with(&installed, &[BY_MPI, OWN]));
        fine(&outcome, &installed, ranks, if ranks == 3 { 2 } else { 1 });
    }
}

#[test]
fn schedules_over_mpi_agree_with_plain_loops() {
    for (ranks, installed) in if deep() { worlds(3, &[2, 4], 2) } else { worlds(2, &[], 2) } {
        let nodes = ["ab", "aab", "abab"][ranks as usize - 2];
        let outcome = run(&installed, ranks, &["collectives", nodes], &with(&installed, &[]));
        fine(&outcome, &installed, ranks, 2);
    }
}

#[test]
fn messages_over_mpi_find_their_receives() {
    for installed in sample(installed(), 2, 3) {
        fine(&run(&installed, 3, &["transfers", "abc"], &with(&installed, &[])), &installed, 3, 3);
    }
}

#[test]
fn on_one_node_mpi_is_left_alone_unless_it_is_asked_for() {
    for installed in sample(installed(), 1, 4) {
        let outcome = run(&installed, 2, &["join"], &with(&installed, &[]));
        assert_eq!((outcome.code, outcome.lines("on 1 nodes, no MPI")), (Some(0), 2), "{}", outcome.output);
        fine(&run(&installed, 2, &["join"], &with(&installed, &[BY_MPI])), &installed, 2, 1);
    }
}

#[test]
fn a_world_without_a_library_does_without_or_says_so() {
    for installed in sample(installed(), 1, 5) {
        let none = ("EIRENE_TRAIN_MPI", "none");
        let outcome = run(&installed, 2, &["transfers", "ab"], &[none]);
        assert_eq!((outcome.code, outcome.lines("on 2 nodes, no MPI")), (Some(0), 2), "{}", outcome.output);
        let outcome = run(&patient(&installed), 2, &["join"], &[none, BY_MPI]);
        told(&outcome, 2, &["rank 0", "EIRENE_TRAIN_MPI=none", "EIRENE_TRAIN_TRANSPORT=builtin"]);
    }
}

#[test]
fn encryption_that_mpi_does_not_give_is_refused_with_the_cure() {
    let wanted = ("EIRENE_TRAIN_ENCRYPTION", "on");
    for installed in sample(installed(), 1, 9) {
        let outcome = run(&patient(&installed), 2, &["collectives", "ab"], &with(&installed, &[wanted]));
        told(&outcome, 2, &["EIRENE_TRAIN_ENCRYPTION", "nobody encrypts", "EIRENE_TRAIN_TRANSPORT=builtin"]);
        // In a node nothing goes over MPI.
        fine(&run(&installed, 2, &["join"], &with(&installed, &[wanted, BY_MPI])), &installed, 2, 1);
    }
}

#[test]
fn a_launcher_and_another_s_library_are_an_error_on_every_rank() {
    let all = installed();
    let apart = |one: &Installed, other: &Installed| {
        one.kind != other.kind && (one.kind, other.kind) != (Kind::Orte, Kind::Prrte)
    };
    let pairs: Vec<(&Installed, &Installed)> = all
        .iter()
        .flat_map(|launcher| all.iter().map(move |library| (launcher, library)))
        .filter(|(launcher, library)| apart(launcher, library))
        .collect();
    for (launcher, library) in sample(pairs, 4, 6) {
        let name = ("EIRENE_TRAIN_MPI", library.library.to_str().unwrap());
        for nodes in ["aa", "ab"] {
            let transport = if nodes == "aa" { vec![name, BY_MPI] } else { vec![name] };
            let outcome = run(&patient(launcher), 2, &["join", nodes], &transport);
            let spoken = if launcher.kind == Kind::Hydra { "PMI" } else { "PMIx" };
            told(&outcome, 2, &["MPI: rank 0", spoken, library.name, "2 worlds of one", "EIRENE_TRAIN_MPI"]);
        }
    }
}

#[test]
fn a_step_whose_pmi_is_hidden_is_an_error_on_every_rank() {
    for installed in sample(installed(), 2, 7) {
        let library = installed.library.to_str().unwrap();
        // A job of this test's own: its ranks meet by the step's name.
        let job = std::process::id().to_string();
        let slurm =
            [("SLURM_JOB_ID", job.as_str()), ("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_NNODES", "1")];
        let step = [&slurm[..], &[BY_MPI, ("EIRENE_TRAIN_MPI", library)]].concat();
        let ranks: Vec<_> = ["0", "1"]
            .map(|rank| {
                let mut step: Vec<(&str, String)> =
                    step.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
                step.push(("SLURM_PROCID", rank.to_owned()));
                std::thread::spawn(move || {
                    let step: Vec<(&str, &str)> = step.iter().map(|(name, value)| (*name, value.as_str())).collect();
                    run_file(None, &["join"], &step)
                })
            })
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect();
        for outcome in ranks {
            told(&outcome, 1, &["MPI: rank 0", "SLURM_NTASKS=2", installed.name, "--mpi=pmix"]);
        }
    }
}

#[test]
fn a_rank_that_has_left_is_named() {
    for installed in sample(installed(), 1, 8) {
        for environment in [with(&installed, &[]), with(&installed, &[OWN])] {
            let outcome = run(&patient(&installed), 3, &["left", "abb"], &environment);
            // A world that has failed ends without MPI, which launchers call a failure: what the ranks found counts.
            assert_eq!(outcome.lines("found rank"), 2, "{installed:?}: {}", outcome.output);
            assert_eq!(outcome.lines("panicked"), 0, "{}", outcome.output);
        }
    }
}

/// Threads that compute, four for every core, until this is dropped.
struct Computing {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Computing {
    fn begin() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let compute = |is_over: Arc<AtomicBool>| while !is_over.load(Ordering::Relaxed) {};
        let threads = (0..4 * cores).map(|_| Arc::clone(&is_over)).map(|it| std::thread::spawn(move || compute(it)));
        Self { threads: threads.collect(), is_over }
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Open MPI lets others run at every question whether something is done, here as it does by itself with more ranks than cores; each of those
/// that compute takes a time slice then. Whoever asks a thousand times before it looks around hears of nothing for seconds.
#[test]
#[ignore = "keeps all cores busy and measures time; part of the deep tests"]
fn a_rank_that_has_left_is_named_beside_programs_that_compute() {
    let _computing = Computing::begin();
    for installed in sample(installed(), 1, 18) {
        let environment = with(&installed, &[OWN, ("OMPI_MCA_mpi_yield_when_idle", "1")]);
        let outcome = run(&patient(&installed), 3, &["left", "abb"], &environment);
        assert_eq!(outcome.lines("found rank"), 2, "{installed:?}: {}", outcome.output);
        assert_eq!(outcome.lines("panicked"), 0, "{}", outcome.output);
    }
}

/// So many ranks found what they were to find, and no other panicked.
fn found(installed: &Installed, ranks: usize, words: &[&str], environment: &[(&str, &str)]) {
    let outcome = run(&patient(installed), 3, words, environment);
    // A world that has failed ends without MPI, which launchers call a failure: what the ranks found counts.
    assert_eq!(
        outcome.lines("found rank"),
        ranks,
        "{words:?} with {environment:?} on {installed:?}: {}",
        outcome.output
    );
    assert_eq!(outcome.lines("panicked"), 0, "{words:?} with {environment:?} on {installed:?}: {}", outcome.output);
    assert!(outcome.left.is_empty(), "{:?} are left", outcome.left);
}

#[test]
fn ranks_that_call_something_else_are_named_by_all_whoever_carries_the_call() {
    let differences = ["length", "op", "type", "root", "order", "blocks", "busy"];
    for (salt, difference) in (20..).zip(differences) {
        let words = format!("differ-{difference}");
        for installed in sample(installed(), 1, salt) {
            // MPI's own collectives in a node and between nodes, and our schedules.
            for (nodes, more) in [("aaa", &[BY_MPI, OWN][..]), ("abb", &[OWN]), ("abc", &[])] {
                // A schedule's messages say what they are of; in them nobody runs ahead.
                if more.is_empty() && !["length", "order"].contains(&difference) {
                    continue;
                }
                // Some MPIs end a rank that reads the memory of one that has found it out and is gone: seldom, and only large messages.
                for _ in 0..if deep() && difference == "length" { 40 } else { 1 } {
                    found(&installed, 3, &[&words, nodes], &with(&installed, more));
                }
            }
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    for installed in sample(installed(), 1, 12) {
        for (nodes, more) in [("aaa", &[BY_MPI, OWN][..]), ("abb", &[OWN]), ("abc", &[])] {
            found(&installed, 3, &["absent", nodes], &with(&installed, more));
        }
    }
}

#[test]
fn messages_are_mpi_s_own_where_that_is_asked_for() {
    for installed in sample(installed(), 2, 13) {
        let environment = with(&installed, &[BY_MPI, OWN_MESSAGES]);
        fine(&run(&installed, 3, &["messages", "aaa"], &environment), &installed, 3, 1);
        fine(&run(&installed, 3, &["transfers", "abb"], &environment), &installed, 3, 2);
    }
}

#[test]
fn messages_of_mpi_s_own_that_do_not_fit_or_do_not_come_are_named() {
    for (salt, words) in (14..).zip(["too-long", "too-short", "silent"]) {
        for installed in sample(installed(), 1, salt) {
            let ranks = if words == "silent" { 2 } else { 3 };
            found(&installed, ranks, &[words, "aab"], &with(&installed, &[OWN_MESSAGES]));
        }
    }
    // Hydra, patient or not, may end the others when one that has not called MPI_Finalize is gone.
    let others: Vec<Installed> = installed().into_iter().filter(|installed| installed.kind != Kind::Hydra).collect();
    for installed in sample(others, 1, 17) {
        found(&installed, 2, &["silenced", "aab"], &with(&installed, &[OWN_MESSAGES]));
    }
}

#[test]
fn a_killed_rank_is_named_by_all_others_and_nothing_is_left() {
    for installed in sample(installed(), 1, 10) {
        for environment in [with(&installed, &[]), with(&installed, &[OWN])] {
            let outcome = run(&patient(&installed), 3, &["killed", "abb"], &environment);
            let errors = outcome.errors();
            // Hydra, patient or not, may end the others when one that has not called MPI_Finalize is gone.
            let least = if installed.kind == Kind::Hydra { 0 } else { 2 };
            assert!((least..=2).contains(&errors.len()), "{installed:?}: {}", outcome.output);
            assert_eq!(outcome.lines("ok rank"), 0, "{}", outcome.output);
            for (_, text) in errors {
                let (took, text) = text.strip_prefix("after ").and_then(|text| text.split_once(" ms: ")).unwrap();
                assert_within(Duration::from_secs(5), Duration::from_millis(took.parse().unwrap()));
                assert!(text.contains("rank 2 has ended"), "{text}");
            }
            assert_within(Duration::from_secs(30), outcome.took);
            assert!(outcome.left.is_empty(), "{:?} are left", outcome.left);
        }
    }
}
