//! SLURM's own variables, as `srun` sets them for each task of a step.
//!
//! A batch script and the shell of `salloc` see some of the same names, with the numbers of the whole job, but are no tasks of
//! several: they are one process, started by nobody that counts. A task whose step's number was lost on the way (a container that passes only
//! some variables) is not taken for one.

use crate::detect::claim::{Claim, malformed, needed, number};
use crate::environment::Environment;
use crate::error::Error;
use crate::launch::Starter;

/// Step numbers from here on are SLURM's own: the batch script, the interactive and the extern step.
const FIRST_OWN_STEP: u32 = 0xffff_fff0;

/// What SLURM says of a task of a step.
pub(super) fn step(environment: &Environment) -> Result<Option<Claim>, Error> {
    let Some(job) = job(environment) else { return Ok(None) };
    let step = number(environment, "SLURM_STEP_ID")?.or(number(environment, "SLURM_STEPID")?);
    let Some(step) = step.filter(|step| *step < FIRST_OWN_STEP) else { return Ok(None) };

    let rank = needed(environment, "SLURM_PROCID", &format!("this is in step {step} of SLURM's job {job}"))?;
    let (size_variable, size) = match number(environment, "SLURM_STEP_NUM_TASKS")? {
        Some(size) => ("SLURM_STEP_NUM_TASKS", size),
        None => ("SLURM_NTASKS", needed(environment, "SLURM_NTASKS", &format!("SLURM_PROCID is {rank}"))?),
    };
    let mut claim = Claim::new(Starter::Slurm, rank, size, format!("SLURM_PROCID={rank}, {size_variable}={size}"));
    claim.local_rank = number(environment, "SLURM_LOCALID")?;
    claim.node = number(environment, "SLURM_NODEID")?;
    claim.node_count = number(environment, "SLURM_STEP_NUM_NODES")?.or(number(environment, "SLURM_NNODES")?);
    claim.nodes = nodes(environment)?;
    claim.local_size = local_size(environment, claim.node)?;
    claim.world = world(environment, job, step);
    Ok(Some(claim))
}

/// What makes this process a task of a step whose number is not there: a rank other than 0, which no batch script has, or the step's own
/// number of tasks. As what was found, and which variable is missing.
pub(super) fn hidden_step(environment: &Environment) -> Result<Option<(String, &'static str)>, Error> {
    let missing = if job(environment).is_none() { "SLURM_JOB_ID" } else { "SLURM_STEP_ID" };
    let step = number(environment, "SLURM_STEP_ID")?.or(number(environment, "SLURM_STEPID")?);
    if missing == "SLURM_STEP_ID" && step.is_some() {
        return Ok(None);
    }
    let rank = number(environment, "SLURM_PROCID")?.filter(|rank| *rank > 0);
    let tasks = number(environment, "SLURM_STEP_NUM_TASKS")?.filter(|tasks| *tasks > 1);
    let found = match (rank, tasks) {
        (Some(rank), _) => match number(environment, "SLURM_NTASKS")? {
            Some(tasks) => format!("SLURM_PROCID is {rank} (SLURM_NTASKS={tasks}), which no batch script has"),
            None => format!("SLURM_PROCID is {rank}, which no batch script has"),
        },
        (None, Some(tasks)) => format!("SLURM_STEP_NUM_TASKS is {tasks}, which no batch script has"),
        (None, None) => return Ok(None),
    };
    Ok(Some((found, missing)))
}

/// The number of the job that this process belongs to, as a task or as its script or shell.
pub(super) fn job(environment: &Environment) -> Option<&str> {
    environment.get("SLURM_JOB_ID").or_else(|| environment.get("SLURM_JOBID"))
}

fn nodes(environment: &Environment) -> Result<Vec<String>, Error> {
    let Some(list) = environment.get("SLURM_STEP_NODELIST") else { return Ok(Vec::new()) };
    eirene_hostlist::expand(list)
        .map_err(|_| malformed("SLURM_STEP_NODELIST", list, "must be a host list like `c[1-4]`"))
}

/// How many tasks this node has: `2(x3),1` are three nodes with two and one with one.
fn local_size(environment: &Environment, node: Option<u32>) -> Result<Option<u32>, Error> {
    let (Some(counts), Some(node)) = (environment.get("SLURM_STEP_TASKS_PER_NODE"), node) else { return Ok(None) };
    let wrong = || malformed("SLURM_STEP_TASKS_PER_NODE", counts, "must be counts like `2(x3),1`, one for each node");
    let all = eirene_hostlist::counts(counts).map_err(|_| wrong())?;
    all.get(node as usize).copied().map(Some).ok_or_else(wrong)
}

/// Job and step, and what tells a requeued job's step 0 from its first life's.
fn world(environment: &Environment, job: &str, step: u32) -> String {
    let mut world = format!("slurm-{job}.{step}");
    for variable in ["SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME"] {
        if let Some(value) = environment.get(variable) {
            world.push('-');
            world.push_str(value);
        }
    }
    world
}
