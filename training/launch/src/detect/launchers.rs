//! The variables of all launchers but SLURM's.

use crate::detect::claim::{Claim, malformed, needed, number};
use crate::detect::slurm;
use crate::environment::Environment;
use crate::error::Error;
use crate::launch::Starter;
use crate::variables;

/// The variable that every launcher sets first, for messages.
pub(super) fn first_variable(starter: Starter) -> &'static str {
    match starter {
        Starter::Run | Starter::Alone => variables::RANK,
        Starter::Pmix => "PMIX_RANK",
        Starter::Pmi => "PMI_RANK",
        Starter::OpenMpi => "OMPI_COMM_WORLD_RANK",
        Starter::Slurm => "SLURM_PROCID",
        Starter::Torchrun => "RANK",
    }
}

/// `eirene-train run`.
pub(super) fn run(environment: &Environment) -> Result<Option<Claim>, Error> {
    let Some(rank) = number(environment, variables::RANK)? else { return Ok(None) };
    let size = needed(environment, variables::SIZE, &format!("{} is {rank}", variables::RANK))?;
    let evidence = format!("{}={rank}, {}={size}", variables::RANK, variables::SIZE);
    let mut claim = Claim::new(Starter::Run, rank, size, evidence);
    claim.local_rank = number(environment, variables::LOCAL_RANK)?;
    claim.local_size = number(environment, variables::LOCAL_SIZE)?;
    claim.node = number(environment, variables::NODE)?;
    if let Some(list) = environment.get(variables::NODES) {
        claim.nodes = eirene_hostlist::expand(list)
            .map_err(|_| malformed(variables::NODES, list, "must be a host list like `c[1-4]`"))?;
    }
    environment.get(variables::WORLD).unwrap_or_default().clone_into(&mut claim.world);
    Ok(Some(claim))
}

/// PMIx: `srun --mpi=pmix`, `mpirun`, `prterun`. It tells the rank and the namespace; the size is told by whoever serves it.
pub(super) fn pmix(environment: &Environment) -> Result<Option<Claim>, Error> {
    let (Some(rank), Some(namespace)) = (number(environment, "PMIX_RANK")?, environment.get("PMIX_NAMESPACE")) else {
        return Ok(None);
    };
    let by_slurm = namespace.starts_with("slurm.pmix.");
    let slurm = if by_slurm { slurm::step(environment)? } else { None };
    let (size_variable, size) = match slurm.as_ref() {
        Some(slurm) => ("the step's tasks", slurm.size),
        None => size_under_pmix(environment, rank)?,
    };
    let evidence = format!("PMIX_RANK={rank}, PMIX_NAMESPACE={namespace}, {size_variable}={size}");
    let mut claim = Claim::new(Starter::Pmix, rank, size, evidence);
    claim.by_slurm = by_slurm;
    if let Some(slurm) = slurm {
        where_slurm_says(&mut claim, &slurm);
    } else {
        claim.local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK")?;
        claim.local_size = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE")?;
        claim.world = format!("pmix-{namespace}");
    }
    Ok(Some(claim))
}

fn size_under_pmix(environment: &Environment, rank: u32) -> Result<(&'static str, u32), Error> {
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", variables::SIZE] {
        if let Some(size) = number(environment, variable)? {
            return Ok((variable, size));
        }
    }
    Err(Error::Missing {
        found: format!("PMIX_RANK is {rank}"),
        variable: variables::SIZE,
        cure: "this launcher does not tell how many ranks there are: set it to their number",
    })
}

/// PMI 1 and 2: MPICH's and Intel's `mpiexec`, `srun --mpi=pmi2`.
pub(super) fn pmi(environment: &Environment) -> Result<Option<Claim>, Error> {
    let Some(rank) = number(environment, "PMI_RANK")? else { return Ok(None) };
    let size = needed(environment, "PMI_SIZE", &format!("PMI_RANK is {rank}"))?;
    let mut claim = Claim::new(Starter::Pmi, rank, size, format!("PMI_RANK={rank}, PMI_SIZE={size}"));
    let job = environment.get("PMI_JOBID");
    // SLURM's server names its job `3.0`, as SLURM does; MPICH's own launcher may run within a step too.
    let slurm = slurm::step(environment)
        .unwrap_or_default()
        .filter(|slurm| job.is_some_and(|job| slurm.world.starts_with(&format!("slurm-{job}"))));
    if let Some(slurm) = slurm {
        claim.by_slurm = true;
        where_slurm_says(&mut claim, &slurm);
        return Ok(Some(claim));
    }
    claim.local_rank = number(environment, "MPI_LOCALRANKID")?;
    claim.local_size = number(environment, "MPI_LOCALNRANKS")?;
    claim.world = match job {
        Some(job) => format!("pmi-{job}"),
        None => environment.get(variables::WORLD).unwrap_or_default().to_owned(),
    };
    // One node: all ranks descend from one proxy of the launcher's.
    if let (true, true, Some(parent)) = (claim.world.is_empty(), claim.is_one_node(), environment.parent()) {
        claim.world = format!("pmi-under-{parent}");
    }
    Ok(Some(claim))
}

/// Open MPI's `mpirun`, where its PMIx does not show (a container that lets only some variables through).
pub(super) fn open_mpi(environment: &Environment) -> Result<Option<Claim>, Error> {
    let Some(rank) = number(environment, "OMPI_COMM_WORLD_RANK")? else { return Ok(None) };
    let size = needed(environment, "OMPI_COMM_WORLD_SIZE", &format!("OMPI_COMM_WORLD_RANK is {rank}"))?;
    let evidence = format!("OMPI_COMM_WORLD_RANK={rank}, OMPI_COMM_WORLD_SIZE={size}");
    let mut claim = Claim::new(Starter::OpenMpi, rank, size, evidence);
    claim.local_rank = number(environment, "OMPI_COMM_WORLD_LOCAL_RANK")?;
    claim.local_size = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE")?;
    claim.world = environment
        .get("OMPI_MCA_ess_base_jobid")
        .or_else(|| environment.get("PMIX_NAMESPACE"))
        .map(|job| format!("openmpi-{job}"))
        .or_else(|| environment.get(variables::WORLD).map(str::to_owned))
        .unwrap_or_default();
    Ok(Some(claim))
}

/// How many agents torchrun has, one a node, where torchrun started us (and not a person who set the same names).
pub(super) fn torchrun_agents(environment: &Environment) -> Result<Option<u32>, Error> {
    if environment.get("TORCHELASTIC_RUN_ID").is_none() {
        return Ok(None);
    }
    Ok(Some(number(environment, "GROUP_WORLD_SIZE")?.unwrap_or(1)))
}

/// torchrun, or whoever sets the same names by hand. A lone RANK may mean anything and says nothing.
pub(super) fn torchrun(environment: &Environment) -> Result<Option<Claim>, Error> {
    if environment.get("RANK").is_none() || environment.get("WORLD_SIZE").is_none() {
        return Ok(None);
    }
    let (Some(rank), Some(size)) = (number(environment, "RANK")?, number(environment, "WORLD_SIZE")?) else {
        return Ok(None);
    };
    let mut claim = Claim::new(Starter::Torchrun, rank, size, format!("RANK={rank}, WORLD_SIZE={size}"));
    claim.local_rank = number(environment, "LOCAL_RANK")?;
    claim.local_size = number(environment, "LOCAL_WORLD_SIZE")?;
    claim.node = number(environment, "GROUP_RANK")?;
    claim.node_count = torchrun_agents(environment)?.filter(|agents| *agents > 1 || claim.local_size == Some(size));
    let life = ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"];
    let life: Vec<&str> = life.iter().filter_map(|variable| environment.get(variable)).collect();
    claim.world = match environment.get(variables::WORLD) {
        Some(world) => world.to_owned(),
        None if life.is_empty() => String::new(),
        None => format!("torchrun-{}", life.join("-")),
    };
    Ok(Some(claim))
}

/// What a launcher left of itself in this process although none can be read in full: as an error that names what is there, what is
/// missing and the cure. Without it, each of several tasks would be a world of one.
pub(super) fn remains(environment: &Environment) -> Result<Option<Error>, Error> {
    const CURE: &str = "a wrapper or container on the way keeps it back, and each task would be a world of its own: pass all the \
                        launcher's variables on; or, if one process is meant, set EIRENE_TRAIN_STARTER=alone or unset what is left";
    const SIZES: [(&str, &str); 3] = [
        (variables::SIZE, variables::RANK),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("PMI_SIZE", "PMI_RANK"),
    ];
    let missing = |found, variable| Some(Error::Missing { found, variable, cure: CURE });
    if let (Some(rank), None) = (number(environment, "PMIX_RANK")?, environment.get("PMIX_NAMESPACE")) {
        return Ok(missing(format!("PMIX_RANK is {rank}"), "PMIX_NAMESPACE"));
    }
    for (size, rank) in SIZES {
        if let (Some(tasks @ 2..), None) = (number(environment, size)?, environment.get(rank)) {
            return Ok(missing(format!("{size} is {tasks}"), rank));
        }
    }
    Ok(slurm::hidden_step(environment)?.and_then(|(found, variable)| missing(found, variable)))
}

/// Nobody: a world of one.
pub(super) fn alone(environment: &Environment) -> Claim {
    let mut claim = Claim::new(Starter::Alone, 0, 1, "no launcher's variables are set".to_owned());
    claim.local_rank = Some(0);
    claim.local_size = Some(1);
    "alone".clone_into(&mut claim.world);
    if !environment.hostname().is_empty() {
        claim.nodes.push(environment.hostname().to_owned());
    }
    if let Some(job) = slurm::job(environment) {
        claim.remarks.push(format!(
            "this is the script or shell of SLURM's job {job}, not a task of a step: start ranks by `srun` or `eirene-train run`"
        ));
    }
    claim
}

fn where_slurm_says(claim: &mut Claim, slurm: &Claim) {
    claim.local_rank = slurm.local_rank;
    claim.local_size = slurm.local_size;
    claim.node = slurm.node;
    claim.node_count = slurm.node_count;
    claim.nodes.clone_from(&slurm.nodes);
    claim.world.clone_from(&slurm.world);
}
