//! Sessions: interactive allocations, with what is wanted and what was seen kept apart. A run is one without a browser: a program in the
//! app's place.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::word_enum;
use crate::id::{SessionId, UserId};
use crate::name::{AppName, GpuType, ImageName, NodeName, PartitionName, ProjectName, SessionName, Username};
use crate::run::RunProgram;
use crate::scheduler::JobIdentity;
use crate::scratch::ScratchSpec;
use crate::scratch_state::ScratchState;
use crate::sentence::Sentence;

word_enum! {
    /// Where a session is on its way.
    SessionState {
        /// Submitted, or about to be; waits for its allocation.
        Queued = "queued",
        /// Has its allocation; the app is not ready yet.
        Starting = "starting",
        /// The agent said that the app answers.
        Running = "running",
        /// Was asked to stop, or its time is over; the allocation is not yet gone.
        Stopping = "stopping",
        /// Over, as wanted.
        Ended = "ended",
        /// Over, not as wanted; the reason says why.
        Failed = "failed",
    }
}

impl SessionState {
    /// Whether nothing will happen to the session any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ended | Self::Failed)
    }

    /// Whether a session may go from `self` to `next`.
    pub fn may_become(self, next: Self) -> bool {
        use SessionState::{Ended, Failed, Queued, Running, Starting, Stopping};
        match (self, next) {
            (Queued, Starting | Stopping | Ended | Failed)
            // A requeue sends an allocation back to the queue.
            | (Starting, Running | Queued | Stopping | Ended | Failed)
            | (Running, Queued | Starting | Stopping | Ended | Failed)
            | (Stopping, Ended | Failed) => true,
            (a, b) => a == b,
        }
    }
}

word_enum! {
    /// What the owner wants of a session.
    Desired {
        /// It should run.
        Running = "running",
        /// It should be over.
        Ended = "ended",
    }
}

/// Why a session is where it is: a stable code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[non_exhaustive]
pub struct Reason {
    /// Stable, lower-case with underscores, for example `waiting_for_resources`.
    pub code: String,
    /// One plain sentence, with advice where there is some.
    pub text: String,
}

impl Reason {
    /// A reason from its two parts.
    pub fn new(code: impl Into<String>, text: Sentence) -> Self {
        Self { code: code.into(), text: text.into() }
    }
}

/// What a session asks the cluster for. CPUs, memory and GPUs are **per node**.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Partition, or the cluster's default.
    pub partition: Option<PartitionName>,
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
    /// Longest time the allocation may last, minutes.
    pub walltime_min: u32,
}

/// The app of every run; no image has to offer it.
pub const RUN_APP: &str = "run";

/// What a row of [`Session`] is to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// A session: its app is opened in a browser.
    Session,
    /// A run: its program is carried out and nobody opens it.
    Run,
}

/// A session, or a run, as the platform knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Id.
    pub id: SessionId,
    /// Owner's id.
    pub owner: UserId,
    /// Owner's name.
    pub owner_name: Username,
    /// Owner's POSIX user id when the session was made.
    pub owner_uid: u32,
    /// What the owner calls it.
    pub name: SessionName,
    /// App; [`RUN_APP`] for a run.
    pub app: AppName,
    /// What a run carries out; none is a session.
    pub program: Option<RunProgram>,
    /// The run that this one repeats: it is not submitted before that one is over.
    pub requeue_of: Option<SessionId>,
    /// The exit status of a run's program, once the agent has said it.
    pub exit_status: Option<i32>,
    /// The fast scratch it asked for.
    pub scratch: Option<ScratchSpec>,
    /// How that scratch is, once its agent has said it.
    pub scratch_state: Option<ScratchState>,
    /// Image, by name.
    pub image: ImageName,
    /// The SIF file it runs, as the compute nodes see it: a new version of the image does not change a session.
    pub image_path: String,
    /// Project, when one was chosen.
    pub project: Option<ProjectName>,
    /// What was asked for.
    pub resources: Resources,
    /// What the owner wants.
    pub desired: Desired,
    /// What was seen.
    pub state: SessionState,
    /// Whether the scheduler cannot be asked at the moment, so that `state` is the last known.
    pub undetermined: bool,
    /// Why it is there.
    pub reason: Option<Reason>,
    /// Unguessable job name by which a submit whose answer was lost is found again.
    pub marker: String,
    /// When a submit was last begun; set before the scheduler is asked.
    pub submit_begun_at: Option<Timestamp>,
    /// The job, once known.
    pub job: Option<JobIdentity>,
    /// How often the scheduler has restarted the job.
    pub restart_count: u32,
    /// Nodes of the allocation.
    pub nodes: Vec<NodeName>,
    /// When the scheduler expects to start it, where it says so.
    pub start_estimate: Option<Timestamp>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its allocation began.
    pub started_at: Option<Timestamp>,
    /// When its walltime is over.
    pub ends_at: Option<Timestamp>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// Grows with every change; lists and pages use it to tell old from new.
    pub version: i64,
}

impl Session {
    /// Whether it is over, and there is something to do or to tell about its scratch.
    pub fn has_scratch_left(&self) -> bool {
        self.state.is_final() && self.scratch_state.as_ref().is_some_and(ScratchState::is_open)
    }

    /// What this row is to people.
    pub fn kind(&self) -> JobKind {
        if self.program.is_some() { JobKind::Run } else { JobKind::Session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_states_stay() {
        for &from in SessionState::ALL {
            for &to in SessionState::ALL {
                if from.is_final() {
                    assert_eq!(from.may_become(to), from == to, "{from} → {to}");
                }
                if to == SessionState::Failed && !from.is_final() {
                    assert!(from.may_become(to), "failed is reached from any: {from}");
                }
            }
        }
    }
}
