//! Who started us: every launcher's variables are read into a [`Claim`], the first in a fixed order is believed, and what the
//! others say must not contradict it.
//!
//! Order: our own `run`, PMIx, PMI (1 and 2), Open MPI's variables, SLURM's, torchrun's, nobody. One exception: torchrun's agents are
//! themselves started by somebody (`srun torchrun …`), so where it is in play it is the innermost and is believed, once the
//! number of its agents agrees with the number of tasks that the outer launcher started.

mod claim;
mod launchers;
mod slurm;

use crate::environment::Environment;
use crate::error::Error;
use crate::launch::{Launch, Mpi, Starter, Transport};
use crate::meeting;
use crate::variables;

pub(crate) use claim::{Claim, parse};

/// What is said in every contradiction that somebody may want to overrule.
const OVERRULE: &str = "or say whom to believe by EIRENE_TRAIN_STARTER";

impl Launch {
    /// Finds out who started this process, as which rank of how many, and where the ranks meet. Reads nothing but `environment`;
    /// touches no file.
    ///
    /// # Errors
    /// [`Error::Malformed`] for garbage in a variable that counts, [`Error::Missing`] where a launcher left something out,
    /// [`Error::Contradiction`] where two of them cannot both be right: never a world of another size than was asked for.
    pub fn detect(environment: &Environment) -> Result<Self, Error> {
        let transport = Transport::asked(environment)?;
        let (claim, remarks) = match forced(environment)? {
            Some(starter) => (claimed_by(starter, environment)?, vec![format!("{} says so", variables::STARTER)]),
            None => believed(environment)?,
        };
        claim.check()?;
        let mpi = mpi(&claim, transport)?;
        let (place, secret) = meeting::place(&claim, environment)?;
        let directory = meeting::directory(&claim, environment);
        Ok(Self {
            starter: claim.starter,
            rank: claim.rank,
            size: claim.size,
            local_rank: claim.local_rank,
            local_size: claim.local_size,
            node: claim.node,
            nodes: claim.nodes,
            world: claim.world,
            mpi,
            place,
            secret,
            directory,
            own_directory: meeting::own_directory(environment),
            uid: environment.uid(),
            evidence: claim.evidence,
            remarks: claim.remarks.into_iter().chain(remarks).collect(),
        })
    }
}

/// Whom a person said to believe.
fn forced(environment: &Environment) -> Result<Option<Starter>, Error> {
    let Some(value) = environment.get(variables::STARTER) else { return Ok(None) };
    if value == "auto" {
        return Ok(None);
    }
    let expected = "must be `auto`, `run`, `pmix`, `pmi`, `openmpi`, `slurm`, `torchrun` or `alone`";
    Starter::from_word(value).map(Some).ok_or_else(|| Error::Malformed {
        variable: variables::STARTER.to_owned(),
        value: value.to_owned(),
        expected,
    })
}

/// What one launcher claims, for those that a person named.
fn claimed_by(starter: Starter, environment: &Environment) -> Result<Claim, Error> {
    if let Some(claim) = read(starter, environment)? {
        return Ok(claim);
    }
    if let (Starter::Slurm, Some((found, variable))) = (starter, slurm::hidden_step(environment)?) {
        return Err(Error::Missing { found, variable, cure: "pass all of SLURM's variables into the container" });
    }
    Err(Error::Missing {
        found: format!("{} is `{}`", variables::STARTER, starter.word()),
        variable: launchers::first_variable(starter),
        cure: "start the program by that launcher, or unset EIRENE_TRAIN_STARTER",
    })
}

fn read(starter: Starter, environment: &Environment) -> Result<Option<Claim>, Error> {
    match starter {
        Starter::Run => launchers::run(environment),
        Starter::Pmix => launchers::pmix(environment),
        Starter::Pmi => launchers::pmi(environment),
        Starter::OpenMpi => launchers::open_mpi(environment),
        Starter::Slurm => slurm::step(environment),
        Starter::Torchrun => launchers::torchrun(environment),
        Starter::Alone => Ok(Some(launchers::alone(environment))),
    }
}

/// The claim that counts, and remarks about those that do not.
fn believed(environment: &Environment) -> Result<(Claim, Vec<String>), Error> {
    let agents = launchers::torchrun_agents(environment)?;
    let torchrun = if agents.is_some() { launchers::torchrun(environment)? } else { None };
    let outer = first_of_order(environment, torchrun.is_none())?;
    match (torchrun, agents) {
        (Some(inner), Some(agents)) => under_torchrun(inner, agents, outer),
        _ => Ok((outer.0, outer.1)),
    }
}

/// The first claim in the order, checked against those behind it; nobody's where none left anything.
fn first_of_order(environment: &Environment, with_torchrun: bool) -> Result<(Claim, Vec<String>), Error> {
    const ORDER: [Starter; 6] =
        [Starter::Run, Starter::Pmix, Starter::Pmi, Starter::OpenMpi, Starter::Slurm, Starter::Torchrun];
    let mut found: Option<Claim> = None;
    let mut remarks = Vec::new();
    for starter in ORDER {
        if starter == Starter::Torchrun && !with_torchrun {
            continue;
        }
        let claim = match (read(starter, environment), &found) {
            (Ok(claim), _) => claim,
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                remarks.push(format!("{starter} not asked: {error}"));
                None
            }
        };
        match (claim, &found) {
            (None, _) => {}
            (Some(claim), None) => found = Some(claim),
            (Some(claim), Some(first)) => remarks.extend(agree(first, &claim)?),
        }
    }
    let claim = match found {
        Some(claim) => claim,
        None if with_torchrun => match launchers::remains(environment)? {
            Some(error) => return Err(error),
            None => launchers::alone(environment),
        },
        // torchrun is the innermost, and knows its ranks.
        None => launchers::alone(environment),
    };
    Ok((claim, remarks))
}

/// Whether two claims can both be true; a remark where they can although they differ.
fn agree(first: &Claim, behind: &Claim) -> Result<Option<String>, Error> {
    let same = first.size == behind.size && first.rank == behind.rank;
    if same {
        return Ok(None);
    }
    let contradiction = |cure: &str| Error::Contradiction {
        one: first.says(),
        other: behind.says(),
        cure: format!("{cure}, {OVERRULE}={} (or ={})", first.starter.word(), behind.starter.word()),
    };
    match (first.starter, behind.starter) {
        // Others' variables are taken from the ranks that `run` starts, so these were set further in.
        (Starter::Run, _) => Err(contradiction("start the ranks by one launcher, not by one inside the other")),
        // SLURM's own PMIx and PMI: one launcher with two voices.
        (Starter::Pmix | Starter::Pmi, Starter::Slurm) if first.by_slurm => {
            Err(contradiction("the step's variables were changed on the way: start by a fresh `srun`"))
        }
        // `mpirun` starts its helpers by `srun`, one a node: fewer tasks than ranks. More tasks than ranks are several worlds.
        (Starter::Pmix | Starter::Pmi | Starter::OpenMpi, Starter::Slurm) if behind.size > first.size => {
            Err(contradiction(
                "every task of the step would be a world of its own: start by `srun --mpi=pmix` alone, or by `mpirun` alone",
            ))
        }
        (Starter::Pmix | Starter::Pmi | Starter::OpenMpi, Starter::Slurm) => {
            Ok(Some(format!("SLURM's step of {} only carries {}", behind.size, first.starter)))
        }
        (Starter::Pmix, Starter::Pmi | Starter::OpenMpi) | (Starter::Pmi, Starter::OpenMpi) => {
            Err(contradiction("one of them was started inside the other: use one"))
        }
        (_, Starter::Torchrun) => Err(contradiction("unset RANK and WORLD_SIZE if they mean something else")),
        (
            Starter::Pmix | Starter::Pmi | Starter::OpenMpi | Starter::Slurm | Starter::Torchrun | Starter::Alone,
            Starter::Run | Starter::Pmix | Starter::Pmi | Starter::OpenMpi | Starter::Slurm | Starter::Alone,
        ) => Err(contradiction("use one launcher")),
    }
}

/// torchrun is the innermost: its agents are the outer launcher's tasks.
fn under_torchrun(inner: Claim, agents: u32, outer: (Claim, Vec<String>)) -> Result<(Claim, Vec<String>), Error> {
    let (outer, mut remarks) = outer;
    if outer.starter == Starter::Run || (outer.size > 1 && outer.size != agents) {
        return Err(Error::Contradiction {
            one: outer.says(),
            other: format!(
                "{}, from {agents} agent{} (GROUP_WORLD_SIZE)",
                inner.says(),
                if agents == 1 { "" } else { "s" }
            ),
            cure: format!("start one torchrun a node and tell it of the others by --nnodes, {OVERRULE}=torchrun"),
        });
    }
    if outer.starter != Starter::Alone {
        remarks.push(format!("{} started torchrun's agents", outer.starter));
    }
    Ok((inner, remarks))
}

/// Whether an MPI is to be used: where one started us, unless a person said otherwise.
fn mpi(claim: &Claim, transport: Transport) -> Result<Mpi, Error> {
    match (claim.starter, transport) {
        (Starter::Pmix | Starter::Pmi | Starter::OpenMpi, Transport::Auto) => Ok(Mpi::WhereThere),
        (Starter::Pmix | Starter::Pmi | Starter::OpenMpi | Starter::Slurm | Starter::Alone, Transport::Mpi) => {
            Ok(Mpi::Must)
        }
        (_, Transport::Builtin)
        | (Starter::Run | Starter::Slurm | Starter::Torchrun | Starter::Alone, Transport::Auto) => Ok(Mpi::Never),
        (Starter::Run | Starter::Torchrun, Transport::Mpi) => Err(Error::Contradiction {
            one: format!("{} is `mpi`", variables::TRANSPORT),
            other: format!("{} starts no MPI: every rank would be a world of one", claim.starter),
            cure: format!("start by mpirun or `srun --mpi=pmix`, or unset {}", variables::TRANSPORT),
        }),
    }
}
