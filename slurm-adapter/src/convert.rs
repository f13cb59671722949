//! From the JSON of SLURM's data parsers to our types.
//!
//! What we must know of a job is required; a job of somebody else's that cannot be read is left out, one of ours makes the whole
//! answer untrustworthy, because leaving it out would say that it is gone.

use std::collections::BTreeMap;

use eirene_core::Username;
use eirene_core::scheduler::{
    Account, Job, JobIdentity, JobState, Node, NodeGpus, Partition, PartitionAccess, SchedulerError, SchedulerResult,
};
use jiff::Timestamp;

use crate::identity::is_ours;
use crate::text::{Gres, parse_gres, parse_hostlist, parse_tres};
use crate::wire::{
    AccountedJob, AccountedJobs, ExitCode, Jobs, Nodes, Number, PartitionList, Partitions, PersonAccounts, TresCount,
    WireJob, WireNode, WirePartition,
};
use crate::{reasons, state};

/// Jobs of slurmctld.
pub(crate) fn jobs(cluster: &str, listed: &[WireJob]) -> SchedulerResult<Vec<Job>> {
    let mut jobs = Vec::with_capacity(listed.len());
    for wire in listed {
        match job(cluster, wire) {
            Ok(job) => jobs.push(job),
            Err(what) if is_ours(&wire.name.0) => return Err(SchedulerError::Malformed { what }),
            Err(what) => tracing::debug!(what, "left out a job that could not be read"),
        }
    }
    Ok(jobs)
}

/// One job of slurmctld, which must be in the answer.
pub(crate) fn one_job(cluster: &str, answer: &Jobs, id: u32) -> SchedulerResult<Job> {
    let wire = answer.jobs.iter().find(|job| job.job_id.value == Some(i64::from(id)));
    let malformed = |what| SchedulerError::Malformed { what };
    job(cluster, wire.ok_or_else(|| malformed(format!("job {id} is not in the answer about it")))?).map_err(malformed)
}

/// A job of slurmctld; says what about it cannot be read.
pub(crate) fn job(cluster: &str, wire: &WireJob) -> Result<Job, String> {
    let id = u32_of(wire.job_id).filter(|id| *id > 0).ok_or("a job has no number")?;
    let missing = |what: &str| format!("job {id} has no {what} that can be read");
    let state = state::job_state(&wire.job_state.0).ok_or_else(|| missing("state"))?;
    Ok(Job {
        identity: JobIdentity {
            cluster: cluster.to_owned(),
            id,
            submitted_at: time(wire.submit_time).ok_or_else(|| missing("submit time"))?,
        },
        name: wire.name.0.clone(),
        uid: u32_of(wire.user_id).ok_or_else(|| missing("user id"))?,
        state,
        word: wire.job_state.0.join("+"),
        reason: reasons::of_job(state, &wire.state_reason.0, &wire.state_description.0),
        partition: wire.partition.0.clone(),
        nodes: node_names(&wire.nodes.0).ok_or_else(|| missing("list of nodes"))?,
        restart_count: u32_of(wire.restart_cnt).unwrap_or(0),
        started_at: time(wire.start_time),
        ends_at: time(wire.end_time).filter(|_| state != JobState::Pending),
        preempted_at: time(wire.preempt_time),
        exit_code: exit_code(state, wire.exit_code),
        gpus: job_gpus(wire),
    })
}

/// What SLURM counts for a job: once it has nodes what it has, before what it requests. It is for show only, so what cannot be read hides no job.
pub(crate) fn job_tres(wire: &WireJob) -> Vec<(String, u64)> {
    let tres = [&wire.tres_alloc_str, &wire.tres_req_str].into_iter().find(|text| !text.0.is_empty());
    tres.map(|text| parse_tres(&text.0)).unwrap_or_default()
}

/// GPUs of a job on all its nodes, by type. SLURM counts them, or their types, only where `AccountingStorageTRES` says so: elsewhere what the job
/// has been given on its nodes counts, or what it requests.
fn job_gpus(wire: &WireJob) -> Vec<(String, u32)> {
    let counted = gpus(job_tres(wire).iter().map(|(name, count)| (name.as_str(), *count)));
    if !counted.is_empty() && counted.iter().all(|(gpu_type, _)| !gpu_type.is_empty()) {
        return counted;
    }
    let given = gres_gpus(wire.gres_detail.0.iter().map(|text| (text.clone(), 1)));
    let (nodes, tasks) = (u32_of(wire.node_count).unwrap_or(1).max(1), u32_of(wire.tasks).unwrap_or(1).max(1));
    // A request may be made in several ways at once, which then say the same.
    let requests = [
        (&wire.tres_per_job, 1),
        (&wire.tres_per_node, nodes),
        (&wire.tres_per_socket, nodes),
        (&wire.tres_per_task, tasks),
    ];
    let requested = requests.into_iter().map(|(text, times)| gres_gpus([(text.0.replace('=', ":"), times)]));
    std::iter::once(given).chain(requested).find(|gpus| !gpus.is_empty()).unwrap_or(counted)
}

/// GPUs in lists of GRES, each so many times.
fn gres_gpus(lists: impl IntoIterator<Item = (String, u32)>) -> Vec<(String, u32)> {
    let mut gpus = BTreeMap::<String, u32>::new();
    for (text, times) in lists {
        for gres in parse_gres(&text).into_iter().filter(|gres| gres.kind == "gpu" && gres.count > 0) {
            let count = u32::try_from(gres.count).unwrap_or(u32::MAX).saturating_mul(times);
            let sum = gpus.entry(gres.of_type).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    gpus.into_iter().collect()
}

/// The accounts of `person` on the cluster that has answered, for several may share a database; the default one first, then by name, and each once for
/// each partition of its own. What cannot be read as a name is left out.
pub(crate) fn accounts(answer: &PersonAccounts, person: &Username) -> Vec<Account> {
    let is_here = |cluster: &str| answer.cluster().is_empty() || cluster == answer.cluster();
    let of_person = answer.associations.iter().filter(|association| association.user.0 == person.as_str());
    let of_person = of_person.filter(|association| is_here(&association.cluster.0));
    let mut accounts: Vec<Account> = of_person
        .filter_map(|association| {
            let partition = match association.partition.0.as_str() {
                "" => None,
                name => Some(name.parse().ok()?),
            };
            let name = association.account.0.parse().ok()?;
            Some(Account { name, partition, is_default: association.is_default.unwrap_or_default() })
        })
        .collect();
    accounts.sort_by(|a, b| (!a.is_default, &a.name, &a.partition).cmp(&(!b.is_default, &b.name, &b.partition)));
    accounts.dedup();
    accounts
}

/// Names of the owners in an answer of the accounting database.
pub(crate) fn owners(answer: &AccountedJobs) -> Vec<String> {
    let mut owners = answer.jobs.iter().map(|job| owner(job).to_owned()).collect::<Vec<_>>();
    owners.sort_unstable();
    owners.dedup();
    owners
}

fn owner(job: &AccountedJob) -> &str {
    if job.user.0.is_empty() { &job.association.user.0 } else { &job.user.0 }
}

/// Jobs of the accounting database with this very name, submitted in `since_s` (Unix seconds) or later, newest first; `uid_of`
/// knows the owners. A job whose owner is no user any more can be nobody's session, so it is left out.
pub(crate) fn accounted_jobs(
    cluster: &str,
    answer: &AccountedJobs,
    name: &str,
    since_s: i64,
    uid_of: impl Fn(&str) -> Option<u32>,
) -> SchedulerResult<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut ownerless = 0_u32;
    for wire in answer.jobs.iter().filter(|job| job.name.0 == name) {
        let owner = owner(wire);
        if owner.is_empty() {
            return Err(SchedulerError::Malformed { what: "an accounted job has no owner that can be read".into() });
        }
        let Some(uid) = uid_of(owner) else {
            ownerless += 1;
            continue;
        };
        let job = accounted_job(cluster, wire, uid).map_err(|what| SchedulerError::Malformed { what })?;
        if job.identity.submitted_at.as_second() >= since_s {
            jobs.push(job);
        }
    }
    if ownerless > 0 {
        tracing::debug!(ownerless, "left out accounted jobs whose owners are no users any more");
    }
    jobs.sort_by_key(|job| std::cmp::Reverse((job.identity.submitted_at, job.restart_count, job.identity.id)));
    Ok(jobs)
}

fn accounted_job(cluster: &str, wire: &AccountedJob, uid: u32) -> Result<Job, String> {
    let id = u32_of(wire.job_id).filter(|id| *id > 0).ok_or("an accounted job has no number")?;
    let missing = |what: &str| format!("accounted job {id} has no {what} that can be read");
    let state = state::job_state(&wire.state.current.0).ok_or_else(|| missing("state"))?;
    let tres = if wire.tres.allocated.is_empty() { &wire.tres.requested } else { &wire.tres.allocated };
    let name_of = |count: &TresCount| match count.name.0.as_str() {
        "" => count.kind.0.clone(),
        name => format!("{}/{name}", count.kind.0),
    };
    let counts = tres.iter().filter_map(|count| Some((name_of(count), count.count.unsigned()?))).collect::<Vec<_>>();
    Ok(Job {
        identity: JobIdentity {
            cluster: cluster.to_owned(),
            id,
            submitted_at: time(wire.time.submission).ok_or_else(|| missing("submit time"))?,
        },
        name: wire.name.0.clone(),
        uid,
        state,
        word: wire.state.current.0.join("+"),
        reason: reasons::of_job(state, &wire.state.reason.0, ""),
        partition: wire.partition.0.clone(),
        nodes: node_names(&wire.nodes.0).ok_or_else(|| missing("list of nodes"))?,
        restart_count: u32_of(wire.restart_cnt).unwrap_or(0),
        started_at: time(wire.time.start),
        ends_at: time(wire.time.end).filter(|_| state.is_final()),
        preempted_at: None,
        exit_code: exit_code(state, wire.exit_code),
        gpus: gpus(counts.iter().map(|(name, count)| (name.as_str(), *count))),
    })
}

/// Nodes; one that cannot be named, or is only planned for the future, is left out.
pub(crate) fn nodes(answer: &Nodes) -> Vec<Node> {
    answer.nodes.iter().filter_map(node).collect()
}

/// From here on a number of 32 bits stands for none, where a parser writes it out.
const NO_VALUE: u32 = u32::MAX - 1;

fn node(wire: &WireNode) -> Option<Node> {
    let words = [wire.state.0.as_slice(), wire.state_flags.0.as_slice()].concat();
    let (state, available) = state::node_state(&words)?;
    let gpus = node_gpus(&wire.gres.0, &wire.gres_used.0);
    let used = parse_tres(&wire.tres_used.0);
    let used = |name: &str| used.iter().find(|(have, _)| have == name).map(|(_, count)| *count);
    Some(Node {
        name: wire.name.0.parse().ok()?,
        available,
        state: state.to_owned(),
        reason: Some(crate::refusals::tame(&wire.reason.0)).filter(|reason| !reason.is_empty()),
        cpus: u32_of(wire.cpus).unwrap_or(0),
        cpus_allocated: u32_of(wire.alloc_cpus).or_else(|| used("cpu")?.try_into().ok()).unwrap_or(0),
        cpu_load: u32_of(wire.cpu_load).filter(|load| *load < NO_VALUE),
        memory_mib: wire.real_memory.unsigned().unwrap_or(0),
        memory_allocated_mib: wire.alloc_memory.unsigned().or_else(|| used("mem")).unwrap_or(0),
        has_counted_gpus: gpus.is_empty()
            || wire.tres.0.is_empty()
            || parse_tres(&wire.tres.0).iter().any(|(name, _)| name.starts_with("gres/gpu")),
        gpus,
        is_planned: words.iter().any(|word| word == "PLANNED"),
        partitions: wire.partitions.0.iter().filter_map(|name| name.parse().ok()).collect(),
    })
}

fn node_gpus(gres: &str, gres_used: &str) -> Vec<NodeGpus> {
    let of_gpu = |text: &str| parse_gres(text).into_iter().filter(|gres| gres.kind == "gpu");
    let count = |gres: &Gres| u32::try_from(gres.count).unwrap_or(u32::MAX);
    let mut gpus = Vec::<NodeGpus>::new();
    for gres in of_gpu(gres) {
        let count = count(&gres);
        match gpus.iter_mut().find(|gpus| gpus.gpu_type == gres.of_type) {
            Some(gpus) => gpus.total = gpus.total.saturating_add(count),
            None => gpus.push(NodeGpus { gpu_type: gres.of_type, total: count, allocated: 0 }),
        }
    }
    for gres in of_gpu(gres_used) {
        let mut left = count(&gres);
        // Used ones of a type that the node does not have by this name are some of those that it has.
        let named = gpus.iter().any(|gpus| gpus.gpu_type == gres.of_type);
        for gpus in gpus.iter_mut().filter(|gpus| !named || gpus.gpu_type == gres.of_type) {
            let taken = left.min(gpus.total.saturating_sub(gpus.allocated));
            gpus.allocated = gpus.allocated.saturating_add(taken);
            left -= taken;
        }
    }
    gpus
}

/// Partitions; one that cannot be named is left out. `default` is the default partition, where the JSON does not say it.
pub(crate) fn partitions(answer: &Partitions, default: Option<&str>) -> Vec<Partition> {
    answer.partitions.iter().filter_map(|wire| partition(wire, default)).collect()
}

/// Whether the JSON says which partition is the default one: data parsers do from v0.0.45 on.
pub(crate) fn names_default(answer: &Partitions) -> bool {
    answer.partitions.iter().any(is_default)
}

fn is_default(wire: &WirePartition) -> bool {
    wire.flags.0.iter().any(|flag| flag.eq_ignore_ascii_case("default"))
}

fn partition(wire: &WirePartition, default: Option<&str>) -> Option<Partition> {
    let limit = |number: Number| if number.infinite { None } else { u32_of(number) };
    Some(Partition {
        name: wire.name.0.parse().ok()?,
        is_default: is_default(wire) || default == Some(&wire.name.0),
        available: wire.partition.state.0.iter().any(|word| word == "UP"),
        max_walltime_min: limit(wire.maximums.time.0),
        max_nodes: limit(wire.maximums.nodes),
        nodes: parse_hostlist(&wire.nodes.configured.0).unwrap_or_default(),
        access: PartitionAccess {
            groups: listed(&wire.groups.allowed.0),
            by_account: [&wire.accounts, &wire.qos]
                .into_iter()
                .any(|PartitionList { allowed, deny }| !listed(&allowed.0).is_empty() || !listed(&deny.0).is_empty()),
        },
    })
}

/// Names of a list; none where it is for all.
fn listed(text: &str) -> Vec<String> {
    match text.trim() {
        "(null)" => Vec::new(),
        text if text.eq_ignore_ascii_case("all") => Vec::new(),
        text => text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect(),
    }
}

pub(crate) fn u32_of(number: Number) -> Option<u32> {
    number.value.and_then(|value| u32::try_from(value).ok())
}

fn time(number: Number) -> Option<Timestamp> {
    number.value.filter(|second| *second > 0).and_then(|second| Timestamp::from_second(second).ok())
}

pub(crate) fn node_names(text: &str) -> Option<Vec<eirene_core::NodeName>> {
    match text.trim() {
        "" | "(null)" | "None assigned" => Some(Vec::new()),
        text => parse_hostlist(text).ok(),
    }
}

/// Exit status of a job that is over; 128 and the signal when a signal ended it, as a shell says it.
fn exit_code(state: JobState, code: ExitCode) -> Option<i32> {
    let code = match code.signal {
        Some(signal) => signal.checked_add(128),
        None => code.return_code,
    };
    code.filter(|_| state.is_final()).and_then(|code| i32::try_from(code).ok())
}

/// GPUs by type out of TRES counts; what has no type of its own is under `""`.
fn gpus<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, u32)> {
    let mut all = 0;
    let mut typed = Vec::new();
    for (name, count) in counts {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match name.strip_prefix("gres/gpu") {
            Some("") => all = count,
            Some(rest) => typed.extend(rest.strip_prefix(':').map(|gpu_type| (gpu_type.to_owned(), count))),
            None => {}
        }
    }
    let named = typed.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
    if all > named {
        typed.push((String::new(), all - named));
    }
    typed.retain(|(_, count)| *count > 0);
    typed
}
