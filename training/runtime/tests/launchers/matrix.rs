//! Every launcher with every MPI library: the ranks meet, or each of them says by name why they cannot. Never a hang, never as many worlds of
//! one.

use std::path::PathBuf;

use crate::launcher::{Kind, Launcher, mpi_s, run, srun_s, wheels, wheels_root};
use crate::slurm::Slurm;

/// A rank says what is wrong after this many milliseconds at most: what is more has waited for the limit of a minute. Three seconds are meant,
/// which the patience in `mpi/src/start.rs` sees to; a busy machine takes its time.
const SOON_MS: u64 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    OpenMpi4,
    OpenMpi5,
    Mpich4,
    Mpich5,
    /// MPICH 5 by the standard ABI.
    Standard,
}

/// What a launcher and a library come to.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// One world.
    Meet,
    /// An error with these words in it, beside the library's name.
    Refused(&'static [&'static str]),
}

impl Library {
    const ALL: [Self; 5] = [Self::OpenMpi4, Self::OpenMpi5, Self::Mpich4, Self::Mpich5, Self::Standard];

    /// What it calls itself.
    fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 => "Open MPI 4",
            Self::OpenMpi5 => "Open MPI 5",
            Self::Mpich4 => "MPICH 4",
            Self::Mpich5 | Self::Standard => "MPICH 5",
        }
    }

    fn abi(self) -> &'static str {
        match self {
            Self::OpenMpi4 | Self::OpenMpi5 => "Open MPI's ABI",
            Self::Mpich4 | Self::Mpich5 => "MPICH's ABI",
            Self::Standard => "the standard MPI ABI",
        }
    }

    fn file(self) -> PathBuf {
        let wheels = wheels_root().join("lib");
        match self {
            // By the system's loader.
            Self::OpenMpi4 => "libmpi.so.40".into(),
            Self::Mpich4 => "libmpich.so.12".into(),
            Self::OpenMpi5 => wheels.join("libmpi.so.40"),
            Self::Mpich5 => wheels.join("libmpi.so.12"),
            Self::Standard => wheels.join("libmpi_abi.so.1"),
        }
    }
}

/// The table: who meets whom, and what is said where they do not.
fn expected(launcher: Kind, library: Library) -> Outcome {
    let foreign_to_pmix = Outcome::Refused(&["PMIx", "worlds of one", "_MPI"]);
    let foreign_to_pmi = Outcome::Refused(&["PMI", "worlds of one", "_MPI"]);
    match (launcher, library) {
        // Open MPI 4 does not find its own launcher in Open MPI 5's.
        (Kind::Orte | Kind::Prrte | Kind::SlurmPmix, Library::Mpich4 | Library::Mpich5 | Library::Standard)
        | (Kind::Prrte, Library::OpenMpi4) => foreign_to_pmix,
        (Kind::Hydra | Kind::SlurmPmi2, Library::OpenMpi4 | Library::OpenMpi5) => foreign_to_pmi,
        (Kind::Orte | Kind::Prrte | Kind::SlurmPmix | Kind::Hydra | Kind::SlurmPmi2, _) => Outcome::Meet,
        (Kind::Slurm, Library::OpenMpi4) => Outcome::Refused(&["SLURM", "--mpi=pmix"]),
        (Kind::Slurm, _) => Outcome::Refused(&["SLURM_", "worlds of one", "--mpi=pmix"]),
        (Kind::Run | Kind::Torchrun, _) => Outcome::Refused(&["WORLD_SIZE=2", "worlds of one"]),
    }
}

/// The variable by which a library is named.
fn named(library: &str) -> [(&'static str, &str); 1] {
    [("EIRENE_TRAIN_MPI", library)]
}

fn check(launcher: &Launcher, library: Library) -> Result<(), String> {
    let file = library.file();
    let ended = launcher.start(2, &["library"], &named(file.to_str().unwrap())).end();
    let wrong = |what: &str| Err(format!("{} with {library:?}: {what}\n{}", launcher.name, ended.text));
    match expected(launcher.kind, library) {
        Outcome::Meet => {
            for rank in 0..2 {
                let line = format!("rank {rank} of 2: {}", library.name());
                let said = |said: &&str| said.contains(&line) && said.contains(library.abi());
                if ended.text.lines().filter(said).count() != 1 {
                    return wrong(&format!("`{line} … by {}` is not said once", library.abi()));
                }
            }
            if ended.code != Some(0) {
                return wrong("did not end well");
            }
            // Every collective as the library does it.
            let variables = [
                &named(file.to_str().unwrap())[..],
                &[("EIRENE_TRAIN_TRANSPORT", "mpi"), ("EIRENE_TRAIN_ALGORITHM", "mpi")],
            ];
            let ended = launcher.start(2, &["cases", "1", "3"], &variables.concat()).end();
            ended.assert_right(2, " cases right");
            let own = format!("MPI's own: {}", library.name());
            if ended.text.contains(&own) { Ok(()) } else { Err(format!("{own} is not in: {}", ended.text)) }
        }
        Outcome::Refused(words) => {
            if ended.text.contains(" of 1: ") || ended.text.contains(" of 2: ") {
                return wrong("came up");
            }
            // A launcher may end the other at the first that fails.
            if ended.code == Some(0) || !(1..=2).contains(&ended.errors().len()) {
                return wrong("is not refused");
            }
            for (took, error) in ended.errors() {
                if took > SOON_MS {
                    return wrong(&format!("took {took} ms"));
                }
                if let Some(word) = words.iter().chain([&library.name()]).find(|word| !error.contains(*word)) {
                    return wrong(&format!("`{word}` is not in: {error}"));
                }
            }
            // A world that is to go by this library is refused as well, on all ranks.
            let variables = [&named(file.to_str().unwrap())[..], &[("EIRENE_TRAIN_TRANSPORT", "mpi")]];
            let world = launcher.start(2, &["cases", "1", "1"], &variables.concat()).end();
            if world.code == Some(0) || world.text.contains("cases right") || world.errors().is_empty() {
                return Err(format!("{} with {library:?}: a world of it came up:\n{}", launcher.name, world.text));
            }
            if let Some((took, error)) = world.errors().into_iter().find(|(took, _)| *took > SOON_MS) {
                return Err(format!("{} with {library:?}: took {took} ms to say: {error}", launcher.name));
            }
            Ok(())
        }
    }
}

fn all_libraries(launchers: &[Launcher]) {
    let mut problems = Vec::new();
    for launcher in launchers {
        // No library at all: the ranks meet by themselves.
        let none = launcher.start(2, &["cases", "1", "1"], &named("none")).end();
        none.assert_right(2, " cases right");
        problems.extend(Library::ALL.into_iter().filter_map(|library| check(launcher, library).err()));
    }
    assert!(problems.is_empty(), "{} cells are not as the table says:\n{}", problems.len(), problems.join("\n\n"));
}

#[test]
#[ignore = "needs the MPIs from wheels; part of the deep tests"]
fn our_own_run_and_every_library_say_why_they_do_not_meet() {
    all_libraries(&[run()]);
}

#[test]
#[ignore = "needs the MPIs from wheels; part of the deep tests"]
fn the_launchers_of_open_mpi_and_mpich_meet_every_library_or_say_why_not() {
    all_libraries(&mpi_s());
}

#[test]
#[ignore = "needs the MPIs from wheels; part of the deep tests"]
fn slurm_in_its_three_ways_meets_every_library_or_says_why_not() {
    let slurm = Slurm::start(1);
    all_libraries(&srun_s(&slurm.conf));
}

#[test]
#[ignore = "needs torchrun and the MPIs from wheels; part of the deep tests"]
fn torchrun_and_the_launchers_from_wheels_meet_every_library_or_say_why_not() {
    all_libraries(&wheels());
}
