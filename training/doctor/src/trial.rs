//! Really trying: the chosen MPI is started, and two ranks meet on this node, share memory and add numbers up.
//!
//! Both happen in children with a time limit. The MPI is started in place of this process, so under a launcher every one of its tasks has
//! to run the doctor.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use eirene_train_launch::{Environment, Launch};
use eirene_train_mpi::Identity;
use eirene_train_runtime::{Call, DType, Options, ReduceOp, World};
use serde_json::json;

use crate::child::{self, Ended, Ending};
use crate::finding::{Finding, Section};
use crate::library::{self, Started};

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The chosen MPI, and how its start went; none where there is none to start.
    pub(crate) mpi: Option<(Identity, Started)>,
    /// How the two ranks fared; none where another task of the launcher tries it.
    pub(crate) ranks: Option<Ended>,
}

/// How long an MPI may take to start alone.
const ALONE: Duration = Duration::from_secs(3);
/// How long it may take with other tasks, who come as late as their doctors do.
const TOGETHER: Duration = Duration::from_secs(20);
/// How long two ranks may take, on a machine that has much else to do.
const MEETING: Duration = Duration::from_secs(30);

impl Facts {
    pub(crate) fn look(
        program: &[OsString],
        look: &[OsString],
        mpi: Option<&Identity>,
        prefix: Option<&Path>,
        launch: Option<&Launch>,
    ) -> Self {
        let limit = if launch.is_some_and(|launch| launch.size > 1) { TOGETHER } else { ALONE };
        let mpi = mpi.map(|identity| (identity.clone(), library::start(look, &identity.path, prefix, limit)));
        let is_first = launch.is_none_or(|launch| launch.rank == 0);
        let ranks = is_first.then(|| {
            // On this node: in a session its agent would start them on others as well, or refuse while a step runs.
            let run = ["run", "--here", "-n", "2", "--no-labels", "--"].map(OsString::from);
            child::run(&[program, &run, look, &["rank".into()]].concat(), &[], MEETING)
        });
        Self { mpi, ranks }
    }
}

/// Numbers that each of the two ranks gives: enough to go through shared memory in several pieces.
const ELEMENTS: usize = 1 << 18;

/// The part of a rank: joins, adds up, leaves.
///
/// # Errors
/// What went wrong, in words.
#[expect(unsafe_code, reason = "the buffer outlives the call")]
pub(crate) fn rank(environment: &Environment) -> Result<serde_json::Value, String> {
    let begun = std::time::Instant::now();
    let launch = Launch::detect(environment).map_err(|error| error.to_string())?;
    let options = Options { timeout: MEETING, ..Options::default() };
    let world = World::join(&launch, &options).map_err(|error| error.to_string())?;
    let group = world.everybody(MEETING).map_err(|error| error.to_string())?;
    let met = begun.elapsed();
    let own = (world.rank() + 1).cast_signed();
    let mut numbers = vec![own; ELEMENTS];
    let address = numbers.as_mut_ptr() as usize;
    let call = Call::all_reduce(address, address, ELEMENTS, DType::I32, ReduceOp::Sum);
    // SAFETY: the buffer lives as long, and nobody else uses it.
    unsafe { group.run(&call, MEETING) }.map_err(|error| error.to_string())?;
    let sum = (world.size() * (world.size() + 1) / 2).cast_signed();
    let wrong = numbers.iter().filter(|number| **number != sum).count();
    world.leave();
    if wrong > 0 {
        return Err(format!("{wrong} of {ELEMENTS} sums are wrong"));
    }
    Ok(json!({"rank": world.rank(), "size": world.size(), "met_ms": met.as_millis() as u64}))
}

/// What to make of it.
pub(crate) fn judge(facts: &Facts) -> Section {
    let mpi = facts.mpi.as_ref().map(|(identity, started)| judge_mpi(identity, started));
    let ranks = facts.ranks.as_ref().map(judge_ranks);
    let findings = mpi.into_iter().flatten().chain(ranks).collect();
    Section { name: "trial", title: "really tried", findings }
}

fn judge_mpi(identity: &Identity, started: &Started) -> Vec<Finding> {
    const ID: &str = "trial.mpi";
    const CURE: &str = "start with this library's own mpirun, choose the launcher's library by EIRENE_TRAIN_MPI=PATH, or do without MPI by EIRENE_TRAIN_MPI=none";
    match started {
        Started::Well { rank, size, threads, cuda, took, ended } => {
            let fact =
                format!("{} started: rank {rank} of {size}, threads: {threads}, after {took:.1?}", identity.name);
            let mut findings = vec![if *ended {
                Finding::ok(ID, fact)
            } else {
                let cure = "runs work, but may hang at their end: look for a newer version of this MPI, or set EIRENE_TRAIN_MPI=none";
                Finding::warning(ID, format!("{fact}, but did not end well"), cure)
            }
            .with(json!({"rank": rank, "size": size, "threads": threads}))];
            if let Some(cuda) = cuda {
                let fact = if *cuda {
                    "it says that it takes memory of GPUs; whether it was built for this driver shows at run time only"
                } else {
                    "it does not take memory of GPUs"
                };
                findings.push(Finding::ok("trial.cuda", fact).with(*cuda));
            }
            findings
        }
        Started::Refused(why) => {
            let (fact, cure) = why.split_once("; ").unwrap_or((why, CURE));
            vec![Finding::problem(ID, fact, cure)]
        }
        Started::Ended(how) => {
            vec![Finding::problem(ID, format!("{identity} does not start: the process that tried it {how}"), CURE)]
        }
    }
}

fn judge_ranks(ended: &Ended) -> Finding {
    const ID: &str = "trial.ranks";
    const CURE: &str = "see the problems above; `eirene-train run -n 2` with a program of yours shows more";
    if ended.ending == Ending::Code(0) {
        let fact = format!(
            "two ranks met, shared memory and added up {ELEMENTS} numbers right, in {:.1?} with their start",
            ended.took
        );
        return Finding::ok(ID, fact);
    }
    let words = ended.last_words();
    let colon = if words.is_empty() { "" } else { ": " };
    Finding::problem(ID, format!("a run of two ranks on this node failed: it {}{colon}{words}", ended.ending), CURE)
}

#[cfg(test)]
mod tests {
    use eirene_train_mpi::{Abi, Family, Pmix};

    use super::*;
    use crate::finding::Level;

    fn identity() -> Identity {
        Identity {
            abi: Abi::OpenMpi,
            family: Family::OpenMpi,
            name: "Open MPI 4.1.4".to_owned(),
            standard: (3, 1),
            path: "/lib/libmpi.so.40".into(),
            pmix: Pmix::Version(4, 2),
            pmi: false,
        }
    }

    #[test]
    fn a_start_that_fails_is_a_problem_with_its_cure() {
        let ended = judge_mpi(&identity(), &Started::Ended("was killed by signal 11".to_owned()));
        assert_eq!(ended[0].level, Level::Problem);
        assert!(ended[0].fact.contains("Open MPI 4.1.4") && ended[0].fact.contains("signal 11"), "{ended:?}");
        let refused = judge_mpi(&identity(), &Started::Refused("4 tasks, a world of 1; start with srun".to_owned()));
        assert_eq!(refused[0].cure.as_deref(), Some("start with srun"));
        let well =
            |ended, cuda| Started::Well { rank: 0, size: 1, threads: "multiple".into(), cuda, took: ALONE, ended };
        assert_eq!(judge_mpi(&identity(), &well(false, None))[0].level, Level::Warning);
        assert_eq!(judge_mpi(&identity(), &well(true, Some(true))).len(), 2);
    }

    #[test]
    fn ranks_that_fail_say_their_last_words() {
        let script = ["sh", "-c", "echo 'rank 1 did not come' >&2; exit 2"].map(OsString::from);
        let finding = judge_ranks(&child::run(&script, &[], ALONE));
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.fact.ends_with("ended with code 2: rank 1 did not come"), "{finding:?}");
    }

    #[test]
    fn a_rank_alone_adds_up_right() {
        assert_eq!(rank(&Environment::new([("HOME", "/")], "c1", 0)).unwrap()["size"], 1);
    }
}
