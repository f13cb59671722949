//! Whether a launcher and a library can meet, told before MPI_Init, which would hang, end the process, or come
//! up as many worlds of one. Pure: what was seen comes in by [`Surroundings`], what was opened by [`Identity`].

use std::time::Duration;

use crate::environment::{Environment, Launcher, Promise, Surroundings};
use crate::library::{Family, Identity, Pmix};

/// A launcher and a library that cannot meet. Every text names both and the cure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Several tasks, and no way for them to find each other.
    #[error(
        "{launcher} started {tasks} tasks ({variable}={tasks}), but neither PMIx nor PMI reaches this process: {library} would come up as {tasks} worlds of one; {cure}"
    )]
    NoProcessManager {
        /// Who started.
        launcher: &'static str,
        /// How many.
        tasks: u32,
        /// The variable that says so.
        variable: &'static str,
        /// The library.
        library: String,
        /// What helps.
        cure: &'static str,
    },
    /// The launcher speaks a protocol that the library does not.
    #[error("{launcher} speaks {spoken}, which {library} does not: {consequence}; {cure}")]
    ForeignLauncher {
        /// Who started.
        launcher: String,
        /// Its protocol.
        spoken: &'static str,
        /// The library.
        library: String,
        /// What would happen.
        consequence: String,
        /// What helps.
        cure: &'static str,
    },
    /// The library would end the process in MPI_Init.
    #[error("SLURM started this task without PMIx, and {library} ends a process where it finds that; {cure}")]
    EndsProcess {
        /// The library.
        library: String,
        /// What helps.
        cure: &'static str,
    },
    /// PMIx versions that share no protocol.
    #[error(
        "the launcher's PMIx {server} and the PMIx {client} of {library} share no protocol (the launcher offers {offered}); use an MPI with a newer PMIx, or start it with this library's own mpirun"
    )]
    PmixVersions {
        /// The launcher's version.
        server: String,
        /// The library's version.
        client: String,
        /// The library.
        library: String,
        /// The variables offered.
        offered: String,
    },
    /// The launcher's PMIx server cannot be reached from here.
    #[error(
        "the launcher's PMIx server {server} cannot be reached by {library} from this process ({why}); a container must share the host's network and pass PMIX_* and {directory} through, or start with `srun --mpi=pmi2`, or set EIRENE_TRAIN_MPI=none"
    )]
    PmixHidden {
        /// Version and address.
        server: String,
        /// The library.
        library: String,
        /// What is missing.
        why: String,
        /// The directory the server keeps for its clients.
        directory: String,
    },
    /// The connection to the launcher was closed on the way.
    #[error(
        "the launcher gave {library} the connection {variable}={descriptor}, but that descriptor is not open here; a wrapper or container on the way closed it: let it pass descriptors on, or set EIRENE_TRAIN_MPI=none"
    )]
    PmiClosed {
        /// The library.
        library: String,
        /// `PMI_FD`.
        variable: &'static str,
        /// Its number.
        descriptor: i32,
    },
    /// MPI came up with another size than promised.
    #[error(
        "{promised} tasks were asked for ({by}), but {library} came up with a world of {found}: launcher and library did not meet; start with this library's own mpirun or with `srun --mpi=pmix`, or choose the launcher's library by EIRENE_TRAIN_MPI"
    )]
    WorldSize {
        /// Tasks promised.
        promised: u32,
        /// Who says so.
        by: String,
        /// MPI_Comm_size.
        found: u32,
        /// The library.
        library: String,
    },
    /// MPI_Init hangs where launcher and library differ.
    #[error(
        "MPI_Init of {library} has not returned after {waited:?}, and {doubt}; use the MPI that belongs to the launcher (EIRENE_TRAIN_MPI=PATH), or start with this library's own mpirun"
    )]
    Stuck {
        /// The library.
        library: String,
        /// How long.
        waited: Duration,
        /// In what they differ.
        doubt: String,
    },
}

/// Tells before MPI_Init whether the library can meet whoever started this process.
pub fn check(around: &Surroundings, library: &Identity) -> Result<(), Mismatch> {
    let promise = around.environment.promise();
    match promise.launcher {
        Launcher::Pmix => check_pmix(around, library, &promise),
        Launcher::Pmi => check_pmi(around, library, &promise),
        Launcher::OpenMpi => alone(library, &promise, "Open MPI's mpirun", CURE_HIDDEN),
        Launcher::Slurm => alone(library, &promise, "SLURM", CURE_SLURM).and_then(|()| survives(around, library)),
        Launcher::Torchrun => alone(library, &promise, "torchrun", CURE_TORCHRUN),
        Launcher::Nobody => Ok(()),
    }
}

const CURE_SLURM: &str = "start with `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH); a container must pass their variables through; or set EIRENE_TRAIN_MPI=none to do without MPI";
const CURE_HIDDEN: &str = "the PMIX_* variables were taken away on the way here: pass them through the wrapper or container, or set EIRENE_TRAIN_MPI=none to do without MPI";
const CURE_TORCHRUN: &str =
    "torchrun starts no MPI: set EIRENE_TRAIN_MPI=none to do without, or start with mpirun or srun";

/// Nothing helps the ranks to find each other: fine for one.
fn alone(library: &Identity, promise: &Promise, launcher: &'static str, cure: &'static str) -> Result<(), Mismatch> {
    match promise.tasks {
        Some((tasks, variable)) if tasks > 1 => {
            Err(Mismatch::NoProcessManager { launcher, tasks, variable, library: library.to_string(), cure })
        }
        _ => Ok(()),
    }
}

/// Open MPI before 5 looks for SLURM itself, and ends the process where it finds a step without PMIx, even of
/// one task.
fn survives(around: &Surroundings, library: &Identity) -> Result<(), Mismatch> {
    if in_step(&around.environment) && library.family == Family::OpenMpi && library.major() < 5 {
        return Err(Mismatch::EndsProcess { library: library.to_string(), cure: CURE_SLURM });
    }
    Ok(())
}

fn in_step(environment: &Environment) -> bool {
    environment.get("SLURM_STEP_ID").or_else(|| environment.get("SLURM_STEPID")).is_some()
}

/// What follows when the library ignores the launcher; none for one task, who needs nobody.
fn consequence(promise: &Promise) -> Option<String> {
    match promise.tasks {
        Some((1, _)) => None,
        Some((tasks, variable)) => Some(format!("{variable}={tasks} would become {tasks} worlds of one")),
        None => Some("every task would be a world of its own".to_owned()),
    }
}

fn check_pmix(around: &Surroundings, library: &Identity, promise: &Promise) -> Result<(), Mismatch> {
    let environment = &around.environment;
    if matches!(library.pmix, Pmix::Absent) {
        // A launcher may offer both; PMI does as well.
        if library.pmi && environment.get("PMI_RANK").is_some() {
            return check_pmi(around, library, promise);
        }
        // Even one task is refused: MPICH 5 ends the process where it sees a PMIx that it was not built for.
        let consequence = consequence(promise).unwrap_or_else(|| "it may end the process at its start".to_owned());
        let (launcher, cure) = if in_step(environment)
            && environment.get("PRTE_LAUNCHED").is_none()
            && environment.get("OMPI_COMM_WORLD_SIZE").is_none()
        {
            (
                "SLURM (srun --mpi=pmix)",
                "start with `srun --mpi=pmi2`, or use an MPI that knows PMIx, such as Open MPI (EIRENE_TRAIN_MPI=PATH)",
            )
        } else {
            (
                "Open MPI's mpirun",
                "start with this library's own mpiexec, or use the launcher's Open MPI (EIRENE_TRAIN_MPI=PATH)",
            )
        };
        return Err(Mismatch::ForeignLauncher {
            launcher: launcher.to_owned(),
            spoken: "PMIx",
            library: library.to_string(),
            consequence,
            cure,
        });
    }
    // PRRTE alone (without `--personality ompi`) is nothing to Open MPI 4, nor is the Open MPI 5 that it comes with.
    if environment.get("PRTE_LAUNCHED").is_some() && library.family == Family::OpenMpi && library.major() < 5 {
        let Some(consequence) = consequence(promise) else { return Ok(()) };
        return Err(Mismatch::ForeignLauncher {
            launcher: "Open MPI 5's mpirun".to_owned(),
            spoken: "PMIx through PRRTE",
            library: library.to_string(),
            consequence,
            cure: "start with this library's own mpirun, or use the launcher's Open MPI 5 (EIRENE_TRAIN_MPI=PATH)",
        });
    }
    let offers: Vec<(&str, &str)> = environment.starting_with("PMIX_SERVER_URI").collect();
    let server = environment.get("PMIX_VERSION").unwrap_or("of unknown version");
    let directory = environment.get("PMIX_SERVER_TMPDIR").unwrap_or("its directory");
    let hidden = |address: &str, why: String| Mismatch::PmixHidden {
        server: format!("{server} {address}").trim_end().to_owned(),
        library: library.to_string(),
        why,
        directory: directory.to_owned(),
    };
    if offers.is_empty() {
        return Err(hidden("", "PMIX_RANK is set, but no PMIX_SERVER_URI".to_owned()));
    }
    let understood: Vec<&(&str, &str)> = offers.iter().filter(|(name, _)| understands(&library.pmix, name)).collect();
    if understood.is_empty() {
        return Err(Mismatch::PmixVersions {
            server: server.to_owned(),
            client: library.pmix.to_string(),
            library: library.to_string(),
            offered: offers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        });
    }
    let Some(listening) = &around.listening else { return Ok(()) };
    let ports: Vec<(&str, u16)> = understood.iter().filter_map(|(_, uri)| Some((*uri, port(uri)?))).collect();
    match ports.first() {
        Some((uri, port)) if !ports.iter().any(|(_, port)| listening.contains(port)) => {
            Err(hidden(uri, format!("nobody listens on port {port} in this network namespace")))
        }
        _ => Ok(()),
    }
}

/// Whether a PMIx client looks at this variable. Version 1 knew one socket, version 2.0 its first TCP form;
/// from 2.1 on each keeps what came before.
fn understands(client: &Pmix, variable: &str) -> bool {
    let Pmix::Version(major, minor) = *client else { return true };
    match variable {
        "PMIX_SERVER_URI" | "PMIX_SERVER_URI2USOCK" => major <= 2,
        "PMIX_SERVER_URI2" => major >= 2,
        "PMIX_SERVER_URI21" => (major, minor) >= (2, 1),
        "PMIX_SERVER_URI3" => major >= 3,
        "PMIX_SERVER_URI4" => major >= 4,
        "PMIX_SERVER_URI41" => (major, minor) >= (4, 1),
        _ => false,
    }
}

/// The port of `namespace.rank;tcp4://address:port`.
fn port(uri: &str) -> Option<u16> {
    let (_, address) = uri.split_once(';')?;
    let (scheme, rest) = address.split_once("://")?;
    if !scheme.starts_with("tcp") {
        return None;
    }
    rest.rsplit_once(':')?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn check_pmi(around: &Surroundings, library: &Identity, promise: &Promise) -> Result<(), Mismatch> {
    let environment = &around.environment;
    if !library.pmi {
        let Some(consequence) = consequence(promise) else { return survives(around, library) };
        let (launcher, cure) = if in_step(environment) && environment.get("MPI_LOCALNRANKS").is_none() {
            (
                "SLURM (srun --mpi=pmi2)",
                "start with `srun --mpi=pmix`, or use an MPI that knows PMI, such as MPICH (EIRENE_TRAIN_MPI=PATH)",
            )
        } else {
            (
                "MPICH's mpiexec (Hydra)",
                "start with this library's own mpirun, or use the launcher's MPICH (EIRENE_TRAIN_MPI=PATH)",
            )
        };
        return Err(Mismatch::ForeignLauncher {
            launcher: launcher.to_owned(),
            spoken: "PMI",
            library: library.to_string(),
            consequence,
            cure,
        });
    }
    let Some(open) = &around.descriptors else { return Ok(()) };
    match environment.get("PMI_FD").and_then(|text| text.parse().ok()) {
        Some(descriptor) if !open.contains(&descriptor) => {
            Err(Mismatch::PmiClosed { library: library.to_string(), variable: "PMI_FD", descriptor })
        }
        _ => Ok(()),
    }
}

/// In what launcher and library differ without it being sure that they cannot meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) text: String,
    /// Neighbouring major versions of PMIx talk to each other, so a slow start is likely just slow; farther ones
    /// were never promised to.
    pub(crate) grave: bool,
}

pub(crate) fn doubt(environment: &Environment, library: &Identity) -> Option<Doubt> {
    if environment.promise().launcher != Launcher::Pmix {
        return None;
    }
    let server = environment.get("PMIX_VERSION")?;
    let major: u32 = server.split('.').next()?.parse().ok()?;
    match library.pmix {
        Pmix::Version(own, _) if own != major => Some(Doubt {
            text: format!("the launcher's PMIx is {server}, the library's {}", library.pmix),
            grave: own.abs_diff(major) > 1,
        }),
        Pmix::Version(..) | Pmix::Unknown | Pmix::Absent => None,
    }
}

/// Holds what MPI says of the world's size against what was promised: the number of tasks or, where only that
/// is known, a rank that such a world does not have.
pub(crate) fn check_size(
    expected: Option<u32>,
    promise: &Promise,
    found: u32,
    library: &Identity,
) -> Result<(), Mismatch> {
    let (promised, by) = match (expected, promise.tasks, promise.rank) {
        (Some(expected), _, _) if expected != found => (expected, "the caller".to_owned()),
        (None, Some((tasks, variable)), _) if tasks != found => (tasks, format!("{variable}={tasks}")),
        (None, None, Some((rank, variable))) if rank >= found => {
            (rank.saturating_add(1), format!("at least, by {variable}={rank}"))
        }
        _ => return Ok(()),
    };
    Err(Mismatch::WorldSize { promised, by, found, library: library.to_string() })
}

/// Which family of libraries the environment asks for, to look there first.
pub(crate) fn wanted(around: &Surroundings) -> Option<Family> {
    let environment = &around.environment;
    match environment.promise().launcher {
        Launcher::Pmix | Launcher::OpenMpi => Some(Family::OpenMpi),
        Launcher::Pmi => Some(Family::Mpich),
        Launcher::Slurm | Launcher::Torchrun | Launcher::Nobody => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::abi::Abi;

    fn open_mpi(pmix: Pmix) -> Identity {
        Identity {
            abi: Abi::OpenMpi,
            family: Family::OpenMpi,
            name: "Open MPI 4.1.4".to_owned(),
            standard: (3, 1),
            path: "/lib/libmpi.so.40".into(),
            pmix,
            pmi: false,
        }
    }

    fn mpich() -> Identity {
        Identity {
            abi: Abi::Mpich,
            family: Family::Mpich,
            name: "MPICH 4.0.2".to_owned(),
            standard: (4, 0),
            path: "/lib/libmpich.so.12".into(),
            pmix: Pmix::Absent,
            pmi: true,
        }
    }

    fn around(pairs: &[(&str, &str)]) -> Surroundings {
        Surroundings {
            environment: pairs.iter().copied().collect(),
            listening: Some(BTreeSet::from([4000])),
            descriptors: Some(BTreeSet::from([0, 1, 2, 9])),
            ..Surroundings::default()
        }
    }

    const PMIX: &[(&str, &str)] = &[
        ("PMIX_RANK", "0"),
        ("PMIX_NAMESPACE", "x"),
        ("PMIX_VERSION", "4.2.2"),
        ("PMIX_SERVER_URI2", "x.0;tcp4://127.0.0.1:4000"),
        ("PMIX_SERVER_URI41", "x.0;tcp4://127.0.0.1:4000"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
    ];
    const HYDRA: &[(&str, &str)] = &[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "9"), ("MPI_LOCALNRANKS", "2")];

    fn says(result: &Result<(), Mismatch>, words: &[&str]) {
        let text = result.as_ref().unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
    }

    #[test]
    fn a_launcher_and_its_own_library_meet() {
        assert_eq!(check(&around(PMIX), &open_mpi(Pmix::Version(4, 2))), Ok(()));
        assert_eq!(check(&around(PMIX), &open_mpi(Pmix::Unknown)), Ok(()));
        assert_eq!(check(&around(HYDRA), &mpich()), Ok(()));
        assert_eq!(check(&around(&[]), &mpich()), Ok(()));
    }

    #[test]
    fn mpirun_of_open_mpi_and_an_mpich_are_told_apart() {
        says(
            &check(&around(PMIX), &mpich()),
            &["Open MPI's mpirun", "PMIx", "MPICH 4.0.2", "2 worlds of one", "mpiexec"],
        );
    }

    #[test]
    fn hydra_and_an_open_mpi_are_told_apart() {
        says(
            &check(&around(HYDRA), &open_mpi(Pmix::Version(4, 2))),
            &["Hydra", "PMI", "Open MPI 4.1.4", "2 worlds of one", "own mpirun"],
        );
    }

    #[test]
    fn one_task_needs_nobody() {
        let mut pairs = HYDRA.to_vec();
        pairs.push(("PMI_SIZE", "1"));
        assert_eq!(check(&around(&pairs), &open_mpi(Pmix::Unknown)), Ok(()));
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "1")];
        assert_eq!(check(&around(&step), &mpich()), Ok(()));
        let five = Identity { name: "Open MPI 5.0.11".to_owned(), ..open_mpi(Pmix::Version(5, 0)) };
        assert_eq!(check(&around(&step), &five), Ok(()));
    }

    #[test]
    fn open_mpi_4_is_kept_from_ending_the_process_in_a_step_without_pmix() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "1")];
        says(&check(&around(&step), &open_mpi(Pmix::Version(4, 2))), &["SLURM", "Open MPI 4.1.4", "srun --mpi=pmix"]);
        let pmi2 = [("SLURM_STEPID", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
        says(&check(&around(&pmi2), &open_mpi(Pmix::Version(4, 2))), &["without PMIx", "Open MPI 4.1.4"]);
    }

    #[test]
    fn even_one_task_under_pmix_needs_a_library_that_knows_it() {
        let mut pairs = PMIX.to_vec();
        pairs.push(("OMPI_COMM_WORLD_SIZE", "1"));
        says(&check(&around(&pairs), &mpich()), &["Open MPI's mpirun", "MPICH 4.0.2", "may end the process"]);
    }

    #[test]
    fn a_step_without_pmi_or_pmix_is_an_error_with_its_cure() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "8")];
        says(
            &check(&around(&step), &open_mpi(Pmix::Version(4, 2))),
            &[
                "SLURM",
                "SLURM_NTASKS=8",
                "Open MPI 4.1.4",
                "8 worlds of one",
                "srun --mpi=pmix",
                "EIRENE_TRAIN_MPI=none",
            ],
        );
        let torchrun = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x")];
        says(&check(&around(&torchrun), &mpich()), &["torchrun", "WORLD_SIZE=2", "MPICH"]);
        let hidden = [("OMPI_COMM_WORLD_SIZE", "2")];
        says(&check(&around(&hidden), &open_mpi(Pmix::Unknown)), &["mpirun", "PMIX_*", "2 worlds of one"]);
    }

    #[test]
    fn an_mpich_in_a_pmix_step_is_sent_to_pmi2() {
        let mut pairs = PMIX[..5].to_vec();
        pairs.extend([("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2")]);
        says(&check(&around(&pairs), &mpich()), &["srun --mpi=pmix", "MPICH 4.0.2", "`srun --mpi=pmi2`"]);
    }

    #[test]
    fn an_unknown_number_of_tasks_is_no_excuse() {
        says(&check(&around(&PMIX[..5]), &mpich()), &["a world of its own"]);
    }

    #[test]
    fn pmix_versions_without_a_common_protocol_are_named() {
        let pairs = [
            ("PMIX_RANK", "0"),
            ("PMIX_VERSION", "9.0.1"),
            ("PMIX_SERVER_URI9", "x.0;tcp4://127.0.0.1:4000"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ];
        says(
            &check(&around(&pairs), &open_mpi(Pmix::Version(4, 2))),
            &["PMIx 9.0.1", "PMIx 4.2", "Open MPI 4.1.4", "PMIX_SERVER_URI9"],
        );
        let old = [("PMIX_RANK", "0"), ("PMIX_SERVER_URI", "x.0;/tmp/s"), ("PMIX_VERSION", "1.2")];
        says(&check(&around(&old), &open_mpi(Pmix::Version(4, 2))), &["PMIx 1.2", "PMIx 4.2"]);
        let newer = [("PMIX_RANK", "0"), ("PMIX_SERVER_URI41", "x.0;tcp4://127.0.0.1:4000")];
        says(&check(&around(&newer), &open_mpi(Pmix::Version(3, 2))), &["PMIx 3.2"]);
    }

    #[test]
    fn a_pmix_server_behind_another_network_is_named() {
        let mut seen = around(PMIX);
        seen.listening = Some(BTreeSet::new());
        says(
            &check(&seen, &open_mpi(Pmix::Version(4, 2))),
            &["4.2.2", "127.0.0.1:4000", "port 4000", "share the host's network"],
        );
        seen.listening = None;
        assert_eq!(check(&seen, &open_mpi(Pmix::Version(4, 2))), Ok(()));
        let bare = [("PMIX_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        says(&check(&around(&bare), &open_mpi(Pmix::Unknown)), &["no PMIX_SERVER_URI"]);
    }

    #[test]
    fn a_closed_pmi_descriptor_is_named() {
        let mut seen = around(HYDRA);
        seen.descriptors = Some(BTreeSet::from([0, 1, 2]));
        says(&check(&seen, &mpich()), &["MPICH 4.0.2", "PMI_FD=9", "not open"]);
    }

    #[test]
    fn doubt_is_about_major_versions_and_grave_where_they_are_far_apart() {
        let environment: Environment = PMIX.iter().copied().collect();
        assert_eq!(doubt(&environment, &open_mpi(Pmix::Version(4, 0))), None);
        assert_eq!(doubt(&environment, &open_mpi(Pmix::Unknown)), None);
        let near = doubt(&environment, &open_mpi(Pmix::Version(5, 0))).unwrap();
        assert!(near.text.contains("4.2.2") && near.text.contains("5.0") && !near.grave, "{near:?}");
        assert!(doubt(&environment, &open_mpi(Pmix::Version(2, 1))).unwrap().grave);
    }

    #[test]
    fn a_world_of_another_size_names_both_sizes() {
        let identity = mpich();
        let size = |expected, pairs: &[(&str, &str)], found| {
            check_size(expected, &pairs.iter().copied().collect::<Environment>().promise(), found, &identity)
        };
        assert_eq!(size(None, &[], 1), Ok(()));
        assert_eq!(size(None, HYDRA, 2), Ok(()));
        assert_eq!(size(Some(3), &[], 3), Ok(()));
        says(&size(None, HYDRA, 1), &["2 tasks", "PMI_SIZE", "world of 1", "MPICH 4.0.2"]);
        says(&size(Some(3), HYDRA, 2), &["3 tasks", "the caller", "world of 2"]);
        says(&size(None, &[("PMIX_RANK", "1")], 1), &["PMIX_RANK=1", "world of 1"]);
        assert_eq!(size(None, &[("PMIX_RANK", "0")], 1), Ok(()));
    }

    #[test]
    fn open_mpi_4_under_open_mpi_5_s_mpirun_is_named() {
        let mut pairs = PMIX.to_vec();
        pairs.push(("PRTE_LAUNCHED", "1"));
        says(&check(&around(&pairs), &open_mpi(Pmix::Version(4, 2))), &["Open MPI 5's mpirun", "Open MPI 4.1.4"]);
        let five = Identity { name: "Open MPI 5.0.11".to_owned(), ..open_mpi(Pmix::Version(5, 0)) };
        assert_eq!(check(&around(&pairs), &five), Ok(()));
    }
}
