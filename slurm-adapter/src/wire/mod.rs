//! The JSON of SLURM's data parsers, as far as we read it. Fields are lenient in form ([`lenient`]) and may be missing or new; what
//! a missing field means is decided in [`crate::convert`].

mod lenient;

use lenient::{Minutes, Text, Words, keys, structure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use lenient::{ExitCode, Number, list, only};

/// A failure that an answer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// SLURM's number; none when it gave none.
    pub(crate) number: Option<i64>,
    /// What it said.
    pub(crate) said: String,
}

/// An answer that may report failures.
pub(crate) trait Answer: DeserializeOwned + Send + 'static {
    /// The failures it reports.
    fn errors(&self) -> Vec<Failure>;
}

pub(crate) fn failures(errors: &[WireError]) -> Vec<Failure> {
    let failure = |error: &WireError| Failure {
        number: error.error_number.value,
        said: format!("{}: {}", error.description.0, error.error.0),
    };
    errors.iter().map(failure).collect()
}

/// What every answer may carry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Envelope {
    #[serde(deserialize_with = "list")]
    errors: Vec<WireError>,
    #[serde(deserialize_with = "structure")]
    meta: Meta,
    #[serde(deserialize_with = "list")]
    pings: Vec<Ping>,
    #[serde(deserialize_with = "list")]
    status: Vec<KillStatus>,
    job_id: Number,
    #[serde(deserialize_with = "structure")]
    result: SubmitResult,
}

impl Answer for Envelope {
    fn errors(&self) -> Vec<Failure> {
        let killed = self.status.iter().map(|status| (status.error.code.value, &status.error.message.0));
        let submitted = std::iter::once((self.result.error_code.value, &self.result.error.0));
        let coded = killed
            .chain(submitted)
            .filter(|(number, _)| number.is_some_and(|number| number != 0))
            .map(|(number, said)| Failure { number, said: said.clone() });
        failures(&self.errors).into_iter().chain(coded).collect()
    }
}

impl Envelope {
    /// SLURM's version in words, when one of its controllers answers.
    pub(crate) fn version_if_up(&self) -> Option<String> {
        let up = self.pings.iter().any(|ping| ping.responding || ping.pinged.0 == "UP");
        up.then(|| format!("SLURM {}", self.meta.slurm.release.0).trim_end().to_owned())
    }

    /// The number of the job that a submit made.
    pub(crate) fn submitted_id(&self) -> Option<u32> {
        let id = self.job_id.value.or(self.result.job_id.value);
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireError {
    error_number: Number,
    error: Text,
    description: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(alias = "Slurm", deserialize_with = "structure")]
    slurm: MetaSlurm,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetaSlurm {
    release: Text,
    cluster: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ping {
    pinged: Text,
    responding: bool,
}

/// One job's outcome of a cancel, since v0.0.42.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KillStatus {
    #[serde(deserialize_with = "structure")]
    error: KillError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KillError {
    code: Number,
    message: Text,
}

/// Outcome of a submit up to v0.0.41.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SubmitResult {
    job_id: Number,
    error_code: Number,
    error: Text,
}

/// The paths of an API description.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiDescription {
    #[serde(deserialize_with = "keys")]
    pub(crate) paths: Vec<String>,
}

/// A list of jobs from slurmctld.
#[derive(Debug, Deserialize)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<WireJob>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Jobs {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireJob {
    pub(crate) job_id: Number,
    pub(crate) name: Text,
    pub(crate) user_id: Number,
    pub(crate) job_state: Words,
    pub(crate) state_reason: Text,
    pub(crate) state_description: Text,
    pub(crate) partition: Text,
    pub(crate) nodes: Text,
    pub(crate) restart_cnt: Number,
    pub(crate) submit_time: Number,
    pub(crate) start_time: Number,
    pub(crate) end_time: Number,
    pub(crate) preempt_time: Number,
    pub(crate) exit_code: ExitCode,
    pub(crate) tres_alloc_str: Text,
    pub(crate) tres_req_str: Text,
    pub(crate) tres_per_job: Text,
    pub(crate) tres_per_node: Text,
    pub(crate) tres_per_socket: Text,
    pub(crate) tres_per_task: Text,
    /// What it has been given on each of its nodes.
    pub(crate) gres_detail: Words,
    pub(crate) node_count: Number,
    pub(crate) tasks: Number,
    /// Tasks of a job array that wait, which are one record.
    pub(crate) array_task_string: Text,
    /// Nodes that SLURM expects to start it on.
    pub(crate) scheduled_nodes: Text,
}

/// A list of jobs from the accounting database.
#[derive(Debug, Deserialize)]
pub(crate) struct AccountedJobs {
    pub(crate) jobs: Vec<AccountedJob>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for AccountedJobs {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedJob {
    pub(crate) job_id: Number,
    pub(crate) name: Text,
    pub(crate) user: Text,
    #[serde(deserialize_with = "structure")]
    pub(crate) association: Association,
    #[serde(deserialize_with = "structure")]
    pub(crate) state: AccountedState,
    #[serde(deserialize_with = "structure")]
    pub(crate) time: AccountedTime,
    pub(crate) partition: Text,
    pub(crate) nodes: Text,
    pub(crate) restart_cnt: Number,
    pub(crate) exit_code: ExitCode,
    #[serde(deserialize_with = "structure")]
    pub(crate) tres: AccountedTres,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Association {
    pub(crate) user: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedState {
    pub(crate) current: Words,
    pub(crate) reason: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedTime {
    pub(crate) submission: Number,
    pub(crate) start: Number,
    pub(crate) end: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AccountedTres {
    #[serde(deserialize_with = "list")]
    pub(crate) allocated: Vec<TresCount>,
    #[serde(deserialize_with = "list")]
    pub(crate) requested: Vec<TresCount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TresCount {
    #[serde(rename = "type")]
    pub(crate) kind: Text,
    pub(crate) name: Text,
    pub(crate) count: Number,
}

/// A list of who may submit under which account.
#[derive(Debug, Deserialize)]
pub(crate) struct PersonAccounts {
    pub(crate) associations: Vec<WireAssociation>,
    #[serde(default, deserialize_with = "structure")]
    meta: Meta,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl PersonAccounts {
    /// What SLURM calls the cluster that has answered; empty where it does not say.
    pub(crate) fn cluster(&self) -> &str {
        &self.meta.slurm.cluster.0
    }
}

impl Answer for PersonAccounts {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireAssociation {
    pub(crate) cluster: Text,
    pub(crate) user: Text,
    pub(crate) account: Text,
    pub(crate) partition: Text,
    pub(crate) is_default: Option<bool>,
}

/// A list of nodes.
#[derive(Debug, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<WireNode>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Nodes {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireNode {
    pub(crate) name: Text,
    pub(crate) state: Words,
    /// Flags of the state, where they stand apart.
    pub(crate) state_flags: Words,
    pub(crate) reason: Text,
    pub(crate) cpus: Number,
    pub(crate) alloc_cpus: Number,
    /// In hundredths.
    pub(crate) cpu_load: Number,
    pub(crate) real_memory: Number,
    pub(crate) alloc_memory: Number,
    /// What SLURM counts on it.
    pub(crate) tres: Text,
    pub(crate) tres_used: Text,
    pub(crate) gres: Text,
    pub(crate) gres_used: Text,
    pub(crate) partitions: Words,
}

/// A list of partitions.
#[derive(Debug, Deserialize)]
pub(crate) struct Partitions {
    pub(crate) partitions: Vec<WirePartition>,
    #[serde(default, deserialize_with = "list")]
    errors: Vec<WireError>,
}

impl Answer for Partitions {
    fn errors(&self) -> Vec<Failure> {
        failures(&self.errors)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePartition {
    pub(crate) name: Text,
    pub(crate) flags: Words,
    #[serde(deserialize_with = "structure")]
    pub(crate) partition: PartitionState,
    #[serde(deserialize_with = "structure")]
    pub(crate) nodes: PartitionNodes,
    #[serde(deserialize_with = "structure")]
    pub(crate) maximums: PartitionMaximums,
    #[serde(deserialize_with = "structure")]
    pub(crate) groups: PartitionList,
    #[serde(deserialize_with = "structure")]
    pub(crate) accounts: PartitionList,
    #[serde(deserialize_with = "structure")]
    pub(crate) qos: PartitionList,
}

/// Who may, and who may not, of one kind; lists parted by commas.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionList {
    pub(crate) allowed: Text,
    pub(crate) deny: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionState {
    pub(crate) state: Words,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionNodes {
    pub(crate) configured: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PartitionMaximums {
    pub(crate) time: Minutes,
    pub(crate) nodes: Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_new_fields_do_not_spoil_a_job() {
        let job: WireJob = serde_json::from_str(
            r#"{"job_id":7,"name":null,"nodes":["c1","c2"],"partition":3,"exit_code":[],"brand_new":{"a":[1]},"job_state":"RUNNING"}"#,
        )
        .unwrap();
        assert_eq!((job.job_id.value, job.nodes.0.as_str(), job.partition.0.as_str()), (Some(7), "c1,c2", "3"));
    }
}
