//! The port to the batch scheduler. Adapters translate; no scheduler word crosses this border.
//!
//! The distinction the whole platform rests on: [`SchedulerError::Unreachable`] says that nothing is known, `Ok(None)` says that
//! the scheduler answered and has no such job. An adapter must never turn the first into the second.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::name::{AccountName, DrainReason, FeatureName, GpuType, NodeName, PartitionName, QosName, Username};
use crate::session::Reason;

/// What tells one job from every other: SLURM uses numbers again, so the number alone does not.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobIdentity {
    /// Cluster.
    pub cluster: String,
    /// Job number.
    pub id: u32,
    /// When it was submitted; a requeue does not change it in our records.
    pub submitted_at: Timestamp,
}

/// What to submit. CPUs, memory and GPUs are per node; there is one task per node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// Job name: the session's marker.
    pub name: String,
    /// Account, when known.
    pub account: Option<AccountName>,
    /// Quality of service, when known.
    pub qos: Option<QosName>,
    /// Partition, or the default.
    pub partition: Option<PartitionName>,
    /// The one node it must have, where that matters.
    pub node: Option<NodeName>,
    /// A feature that all its nodes must have.
    pub feature: Option<FeatureName>,
    /// Number of nodes.
    pub nodes: u32,
    /// CPUs per node.
    pub cpus: u32,
    /// Memory per node, MiB.
    pub memory_mib: u64,
    /// GPUs per node.
    pub gpus: u32,
    /// GPU type, or any.
    pub gpu_type: Option<GpuType>,
    /// Time limit, minutes.
    pub walltime_min: u32,
    /// Whole text of the batch script: a constant of ours, never built from input.
    pub script: String,
    /// Environment of the job, nothing secret; `PATH` is included by the caller.
    pub environment: Vec<(String, String)>,
    /// Working directory.
    pub directory: String,
    /// File for standard output and error.
    pub output: String,
    /// Seconds before the time limit at which the batch shell gets SIGUSR1.
    pub warn_before_end_s: u32,
}

/// Where a job is, in our words. Every state of the scheduler maps to one of these; `word` in [`Job`] keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits (also requeued, held, suspended before its first start).
    Pending,
    /// Has nodes that are still being prepared.
    Configuring,
    /// Runs.
    Running,
    /// Stopped for the moment with its allocation kept or taken away; may go on.
    Suspended,
    /// Its processes are being ended.
    Completing,
    /// Ended with exit status 0.
    Completed,
    /// Ended by a cancel.
    Cancelled,
    /// Ended with another exit status, or could not be launched.
    Failed,
    /// Ended by the time limit.
    TimedOut,
    /// Ended because a node failed.
    NodeFailed,
    /// Ended for want of memory.
    OutOfMemory,
    /// Ended by preemption.
    Preempted,
}

impl JobState {
    /// Whether the job is over.
    pub fn is_final(self) -> bool {
        match self {
            Self::Pending | Self::Configuring | Self::Running | Self::Suspended | Self::Completing => false,
            Self::Completed
            | Self::Cancelled
            | Self::Failed
            | Self::TimedOut
            | Self::NodeFailed
            | Self::OutOfMemory
            | Self::Preempted => true,
        }
    }
}

/// A job as the scheduler shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Identity.
    pub identity: JobIdentity,
    /// Job name, hostile text: anyone may submit a job with any name.
    pub name: String,
    /// POSIX user id of its owner.
    pub uid: u32,
    /// State.
    pub state: JobState,
    /// The scheduler's own word for the state, for logs.
    pub word: String,
    /// Why it waits or ended, in plain words.
    pub reason: Option<Reason>,
    /// Partition.
    pub partition: String,
    /// Nodes of the allocation.
    pub nodes: Vec<NodeName>,
    /// How often it was restarted.
    pub restart_count: u32,
    /// When it started; the scheduler's estimate while it waits.
    pub started_at: Option<Timestamp>,
    /// When its time limit is over, or when it ended.
    pub ends_at: Option<Timestamp>,
    /// When it was chosen to give its nodes to another job; it may have some time left.
    pub preempted_at: Option<Timestamp>,
    /// Exit status of the batch script, once over.
    pub exit_code: Option<i32>,
    /// GPUs on all its nodes, by type (`""` for no type).
    pub gpus: Vec<(String, u32)>,
}

/// One look at the scheduler's jobs: ours one by one, everybody's as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jobs {
    /// Jobs whose names begin like ours.
    pub ours: Vec<Job>,
    /// Everybody's jobs, ours among them.
    pub queue: Queue,
}

/// Everybody's jobs as numbers, without names and owners. Each task of a job array and each part of a heterogeneous job is a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// Jobs that have nodes, by partition.
    pub running: BTreeMap<String, u32>,
    /// Jobs that wait, by the partitions they name: one, or several with commas between them.
    pub waiting: BTreeMap<String, Waiting>,
    /// What running jobs give back, by node and by when they end at the latest. What has no end, and what is suspended, is not included.
    pub releases: BTreeMap<NodeName, BTreeMap<Timestamp, Amount>>,
    /// When the first job that waits for a node is expected to start there.
    pub planned: BTreeMap<NodeName, Timestamp>,
}

/// Jobs that wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number of jobs.
    pub jobs: u32,
    /// GPUs they request, by type (`""` for no type).
    pub gpus: BTreeMap<String, u32>,
}

/// Resources of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amount {
    /// CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// GPUs by type (`""` for no type).
    pub gpus: BTreeMap<String, u32>,
}

impl Queue {
    /// Counts `tasks` jobs like this one. `cpus` and `memory_mib` are those of all its nodes together, which are taken to have equal shares.
    pub fn count(&mut self, job: &Job, tasks: u32, cpus: u32, memory_mib: u64) {
        match job.state {
            JobState::Pending => {
                let waiting = self.waiting.entry(job.partition.clone()).or_default();
                waiting.jobs = waiting.jobs.saturating_add(tasks);
                for (gpu_type, count) in &job.gpus {
                    let gpus = waiting.gpus.entry(gpu_type.clone()).or_default();
                    *gpus = gpus.saturating_add(count.saturating_mul(tasks));
                }
            }
            JobState::Running | JobState::Configuring | JobState::Completing => {
                let running = self.running.entry(job.partition.clone()).or_default();
                *running = running.saturating_add(tasks);
                self.release(job, cpus, memory_mib);
            }
            // A suspended job may continue at any time, for as long as it has left.
            _ => {}
        }
    }

    fn release(&mut self, job: &Job, cpus: u32, memory_mib: u64) {
        let Some(at) = job.ends_at.and_then(whole_minute) else { return };
        let Ok(nodes) = u32::try_from(job.nodes.len()) else { return };
        for (number, node) in (0_u32..).zip(&job.nodes) {
            let share = |all: u32| all / nodes + u32::from(number < all % nodes);
            let amount = self.releases.entry(node.clone()).or_default().entry(at).or_default();
            amount.cpus = amount.cpus.saturating_add(share(cpus));
            amount.memory_mib = amount.memory_mib.saturating_add(memory_mib / u64::from(nodes));
            for (gpu_type, count) in &job.gpus {
                let gpus = amount.gpus.entry(gpu_type.clone()).or_default();
                *gpus = gpus.saturating_add(share(*count));
            }
        }
    }

    /// Jobs that have nodes in the partitions for which this holds.
    pub fn running_in(&self, is_meant: impl Fn(&str) -> bool) -> u32 {
        let meant = self.running.iter().filter(|(partition, _)| is_meant(partition));
        meant.fold(0, |sum, (_, jobs)| sum.saturating_add(*jobs))
    }

    /// What waits for at least one of the partitions for which this holds.
    pub fn waiting_in(&self, is_meant: impl Fn(&str) -> bool) -> Waiting {
        let mut sum = Waiting::default();
        for (_, waiting) in self.waiting.iter().filter(|(named, _)| named.split(',').any(&is_meant)) {
            sum.jobs = sum.jobs.saturating_add(waiting.jobs);
            for (gpu_type, count) in &waiting.gpus {
                let gpus = sum.gpus.entry(gpu_type.clone()).or_default();
                *gpus = gpus.saturating_add(*count);
            }
        }
        sum
    }
}

/// The next whole minute, so that what ends together is one number.
fn whole_minute(at: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(at.as_second().checked_add(59)?.div_euclid(60).checked_mul(60)?).ok()
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// Whether it takes jobs now.
    pub available: bool,
    /// State in plain words: `idle`, `mixed`, `allocated`, `down`, `drained`, `draining`, `reserved`, `powering down`,
    /// `rebooting`, `unknown`.
    pub state: String,
    /// The operator's reason where it is down or drained.
    pub reason: Option<String>,
    /// CPUs.
    pub cpus: u32,
    /// CPUs allocated.
    pub cpus_allocated: u32,
    /// Load as the node's own operating system counts it, in hundredths: 100 keeps one CPU busy. None where nobody says it.
    pub cpu_load: Option<u32>,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Memory allocated, MiB.
    pub memory_allocated_mib: u64,
    /// GPUs by type: total and allocated.
    pub gpus: Vec<NodeGpus>,
    /// Whether the scheduler's accounting counts these GPUs too; true where there are none.
    pub has_counted_gpus: bool,
    /// Whether the scheduler keeps it for a job that waits, so that only what ends before that one starts is started there.
    pub is_planned: bool,
    /// Partitions it belongs to.
    pub partitions: Vec<PartitionName>,
}

/// GPUs of one type on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpus {
    /// Type; empty when the cluster does not name one.
    pub gpu_type: String,
    /// How many there are.
    pub total: u32,
    /// How many are allocated.
    pub allocated: u32,
}

/// A partition of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Name.
    pub name: PartitionName,
    /// Whether jobs go here when they name none.
    pub is_default: bool,
    /// Whether it takes jobs.
    pub available: bool,
    /// Longest time limit, minutes; none means no limit.
    pub max_walltime_min: Option<u32>,
    /// Most nodes a job may have; none means no limit.
    pub max_nodes: Option<u32>,
    /// Nodes.
    pub nodes: Vec<NodeName>,
    /// Whose jobs it takes.
    pub access: PartitionAccess,
}

/// Whose jobs a partition takes, as far as the scheduler says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionAccess {
    /// Only people in one of these groups; none is everybody.
    pub groups: Vec<String>,
    /// Whether accounts or qualities of service are named whose jobs it takes, or does not. Which ones a person has is not known.
    pub by_account: bool,
}

/// Why the scheduler did not do it. Variants are what a caller decides on.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// No answer, or none that can be trusted: nothing is known about the outcome.
    #[error("the scheduler cannot be reached: {what}")]
    Unreachable {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The scheduler answered and refused; trying the same again is useless.
    #[error("the scheduler refused: {}", reason.text)]
    Refused {
        /// Why, in plain words.
        reason: Reason,
    },
    /// The scheduler answered that it does not accept who we are.
    #[error("the scheduler did not accept our identity: {what}")]
    Unauthorised {
        /// What it said.
        what: String,
    },
    /// The scheduler answered that the cluster keeps no accounting database: what it says itself about its jobs is all there is. Only
    /// [`Scheduler::accounted_jobs`] says this, and never because an answer is late or missing.
    #[error("the cluster keeps no accounting database")]
    NoAccounting,
    /// The scheduler is too old for us, so it was not asked.
    #[error("{what}")]
    Unsupported {
        /// Its version, why that is too old, and what to do.
        what: String,
    },
    /// The answer could not be understood: nothing is known about the outcome.
    #[error("the scheduler's answer was not understood: {what}")]
    Malformed {
        /// What was wrong with it.
        what: String,
    },
}

impl SchedulerError {
    /// Whether the outcome is unknown, so that nothing may be concluded.
    pub fn is_undetermined(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Malformed { .. } | Self::Unauthorised { .. } | Self::Unsupported { .. }
        )
    }
}

/// Result of asking the scheduler.
pub type SchedulerResult<T> = Result<T, SchedulerError>;

/// Who a scheduler call is made as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallAs {
    /// The platform's service account: reads everything, cancels on the operator's behalf.
    Service,
    /// A person.
    Person(Username),
}

/// The reason that is kept with a drained node. It ends with who asked: to the scheduler that is always the service account.
pub fn signed_reason(reason: &DrainReason, by: &Username) -> String {
    format!("{reason}{SIGNATURE_BEGIN}{by}{SIGNATURE_END}")
}

const SIGNATURE_BEGIN: &str = " (eirene: ";
const SIGNATURE_END: &str = ")";

/// Takes a [`signed_reason`] apart; none where the text is not one.
pub fn read_signed_reason(text: &str) -> Option<(DrainReason, Username)> {
    let (reason, by) = text.strip_suffix(SIGNATURE_END)?.rsplit_once(SIGNATURE_BEGIN)?;
    Some((reason.parse().ok()?, by.parse().ok()?))
}

/// An account under which a person may submit: an association of SLURM's accounting database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: AccountName,
    /// The only partition in which that holds; none where it holds in all.
    pub partition: Option<PartitionName>,
    /// Whether jobs are the account's that name none.
    pub is_default: bool,
}

/// The batch scheduler.
#[async_trait]
pub trait Scheduler: Send + Sync + 'static {
    /// Whether the scheduler answers, and its version in words.
    async fn ping(&self) -> SchedulerResult<String>;

    /// Submits as `person`. An error for which [`SchedulerError::is_undetermined`] holds may hide a job that exists.
    async fn submit(&self, person: &Username, spec: &JobSpec) -> SchedulerResult<JobIdentity>;

    /// All jobs the scheduler remembers whose name begins like ours, and everybody's as numbers, in one call.
    async fn jobs(&self) -> SchedulerResult<Jobs>;

    /// One job by its number; `Ok(None)` only when the scheduler itself said that it has none.
    async fn job(&self, id: u32) -> SchedulerResult<Option<Job>>;

    /// Jobs with this name in the accounting database, submitted at or after `since`; newest first. A cluster without
    /// such a database is [`SchedulerError::NoAccounting`].
    async fn accounted_jobs(&self, name: &str, since: Timestamp) -> SchedulerResult<Vec<Job>>;

    /// The accounts under which `person` may submit, each as often as it has partitions of its own. A cluster without an accounting database is
    /// [`SchedulerError::NoAccounting`].
    async fn accounts(&self, person: &Username) -> SchedulerResult<Vec<Account>>;

    /// Cancels; a job that is already over or unknown is no error.
    async fn cancel(&self, as_: &CallAs, id: u32) -> SchedulerResult<()>;

    /// All nodes.
    async fn nodes(&self) -> SchedulerResult<Vec<Node>>;

    /// Has a node take no more jobs; those it runs go on. `reason` and who asked are kept with the node, in the words of
    /// [`signed_reason`]. On a node that is drained already it changes the reason. It is asked as the service account: a person's own
    /// account may not. Where that one may not either, it is [`SchedulerError::Refused`] with code `node_not_permitted`; a node that the
    /// scheduler does not have is `node_unknown`.
    async fn drain_node(&self, node: &NodeName, reason: &DrainReason, by: &Username) -> SchedulerResult<()>;

    /// Has a drained or down node take jobs again. Refusals as above; a node that is neither may be refused as `node_not_drained`.
    async fn resume_node(&self, node: &NodeName) -> SchedulerResult<()>;

    /// All partitions.
    async fn partitions(&self) -> SchedulerResult<Vec<Partition>>;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_signed_reason_comes_apart_again(reason in "[ -~ä]{1,60}", by in "[a-z][a-z0-9]{0,20}") {
            let Ok(reason) = reason.parse::<DrainReason>() else { return Ok(()) };
            let by = by.parse::<Username>().unwrap();
            prop_assert_eq!(read_signed_reason(&signed_reason(&reason, &by)), Some((reason, by)));
        }

        #[test]
        fn any_text_is_read_without_harm(text in any::<String>()) {
            if let Some((reason, by)) = read_signed_reason(&text) {
                prop_assert_eq!(signed_reason(&reason, &by), text);
            }
        }
    }

    #[test]
    fn only_the_last_signature_counts() {
        let (reason, by) = read_signed_reason("fan (eirene: ada) (eirene: grace)").unwrap();
        assert_eq!((reason.as_str(), by.as_str()), ("fan (eirene: ada)", "grace"));
        for text in [
            "fan",
            "fan (eirene: )",
            "fan (eirene: ada) ",
            " (eirene: ada)",
            "two\nlines (eirene: ada)",
            "(eirene: ada)",
        ] {
            assert_eq!(read_signed_reason(text), None, "{text:?}");
        }
    }
}
