//! Why a session or a run is where it is, where it is us and not the scheduler who says so.

use eirene_core::{JobKind, Reason, Sentence, Session, SessionState};
use eirene_words::{say, say_with};

/// Written down while a session is on its way to its end: how it is to be judged there.
const FAILED: &[&str] = &[
    "never_ready",
    "app_failed",
    "program_failed",
    "agent_failed",
    "node_failed",
    "time_too_short",
    "scratch_unavailable",
    "stage_in_failed",
    "stage_out_failed",
];
const ENDED: &[&str] = &["app_ended", "program_ended", "walltime_reached"];

/// The final state a session's reason already decides, if it does.
pub fn verdict(session: &Session) -> Option<SessionState> {
    let code = session.reason.as_ref()?.code.as_str();
    if FAILED.contains(&code) {
        return Some(SessionState::Failed);
    }
    ENDED.contains(&code).then_some(SessionState::Ended)
}

/// What the portal has found out and not the agent: the job may go on without it.
const SEEN_FROM_OUTSIDE: &[&str] = &["node_failed"];
const STOPPED: &str = "stopped";

/// Whether the agent has said how what it ran ended, so that it is about to end its job by itself.
pub fn ends_by_itself(session: &Session) -> bool {
    let told = |reason: &Reason| !SEEN_FROM_OUTSIDE.contains(&reason.code.as_str());
    verdict(session).is_some() && session.reason.as_ref().is_some_and(told)
}

/// Whether the agent says so before it has brought out what is to be kept of a scratch; all other ends it says afterwards.
pub fn is_said_before_copying(session: &Session) -> bool {
    session.reason.as_ref().is_some_and(|reason| ["walltime_reached", "time_too_short"].contains(&reason.code.as_str()))
}

/// Whether a run was ended as its owner asked, and its agent waits for its job to be cancelled.
pub fn awaits_cancel(session: &Session) -> bool {
    session.kind() == JobKind::Run && session.reason.as_ref().is_some_and(|reason| reason.code == STOPPED)
}

/// The reason with this code, in the catalogue's words for it.
fn because(code: &str) -> Reason {
    because_with(code, &[])
}

fn because_with(code: &str, values: &[(&str, &str)]) -> Reason {
    Reason::new(code, say_with(&format!("reason.{code}"), values))
}

/// What can go wrong with a session's fast scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScratchTrouble {
    /// There is none on one of its nodes.
    Unavailable,
    /// Something could not be copied to it, so nothing was started.
    NotFilled,
    /// Something could not be copied from it.
    NotEmptied,
}

impl ScratchTrouble {
    /// The one that the agent means by this code.
    pub fn of(code: &str) -> Option<Self> {
        [Self::Unavailable, Self::NotFilled, Self::NotEmptied].into_iter().find(|trouble| trouble.code() == code)
    }

    /// Its code, the same here and there.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unavailable => "scratch_unavailable",
            Self::NotFilled => "stage_in_failed",
            Self::NotEmptied => "stage_out_failed",
        }
    }
}

/// SLURM cannot be reached.
pub fn scheduler_away() -> Reason {
    because("scheduler_unreachable")
}

/// It is not known whether the job was submitted.
pub fn submit_unsure() -> Reason {
    because("submit_undetermined")
}

/// The launcher cannot be reached.
pub fn launcher_away() -> Reason {
    because("launcher_unreachable")
}

/// The user database cannot be reached.
pub fn people_away() -> Reason {
    because("people_away")
}

/// The home cannot be written to; `text` says why.
pub fn home_trouble(text: &str) -> Reason {
    because_with("home_unwritable", &[("text", text)])
}

/// The person is not known on the cluster; `text` says why.
pub fn no_person(text: &str) -> Reason {
    because_with("no_cluster_user", &[("text", text)])
}

/// App or program is being started.
pub fn starting(kind: JobKind) -> Reason {
    match kind {
        JobKind::Session => because("app_starting"),
        JobKind::Run => because("program_starting"),
    }
}

/// A run waits until the one it repeats is over.
pub fn earlier_run() -> Reason {
    because("earlier_run")
}

/// SLURM prepares the nodes.
pub fn nodes_preparing() -> Reason {
    because("nodes_preparing")
}

/// SLURM has suspended the job.
pub fn suspended() -> Reason {
    because("suspended")
}

/// SLURM has put the job back into the queue.
pub fn requeued() -> Reason {
    because("requeued")
}

/// The agent has not been heard for a while.
pub fn agent_silent() -> Reason {
    because("agent_silent")
}

/// App or program was not ready within `limit_s` seconds.
pub fn never_ready(kind: JobKind, limit_s: u32) -> Reason {
    let values = [("seconds", &*limit_s.to_string())];
    match kind {
        JobKind::Session => because_with("never_ready", &values),
        JobKind::Run => Reason::new("never_ready", say_with("reason.program_never_ready", &values)),
    }
}

/// The person has stopped it.
pub fn stopped() -> Reason {
    because(STOPPED)
}

/// App or program ended by itself, and well.
pub fn ended(kind: JobKind) -> Reason {
    match kind {
        JobKind::Session => because("app_ended"),
        JobKind::Run => because("program_ended"),
    }
}

/// App or program ended with an exit status other than 0.
pub fn failed(kind: JobKind, status: i32) -> Reason {
    let values = [("status", &*status.to_string())];
    match kind {
        JobKind::Session => because_with("app_failed", &values),
        JobKind::Run => because_with("program_failed", &values),
    }
}

/// The time is over. That is how sessions end; a run has not done what it was to do.
pub fn walltime_reached(kind: JobKind) -> Reason {
    match kind {
        JobKind::Session => because("walltime_reached"),
        JobKind::Run => because("time_too_short"),
    }
}

/// The job was cancelled outside of the portal.
pub fn cancelled() -> Reason {
    because("cancelled")
}

/// A node of the job failed.
pub fn node_failed() -> Reason {
    because("node_failed")
}

/// The job used more memory than it had.
pub fn out_of_memory() -> Reason {
    because("out_of_memory")
}

/// Another job is about to take the nodes.
pub fn giving_way(kind: JobKind) -> Reason {
    match kind {
        JobKind::Session => because("giving_way"),
        JobKind::Run => Reason::new("giving_way", say("reason.program_giving_way")),
    }
}

/// Another job took the nodes, and this one waits for its turn again.
pub fn preempted(kind: JobKind) -> Reason {
    match kind {
        JobKind::Session => because("preempted"),
        JobKind::Run => Reason::new("preempted", say("reason.program_preempted")),
    }
}

/// Another job took the nodes, and that was the end of this one.
pub fn preempted_for_good() -> Reason {
    Reason::new("preempted", say("reason.preempted_for_good"))
}

/// The job failed, with this exit status of its script where that is known.
pub fn job_failed(exit_code: Option<i32>) -> Reason {
    match exit_code {
        Some(code) => Reason::new("job_failed", say_with("reason.job_failed_status", &[("status", &code.to_string())])),
        None => because("job_failed"),
    }
}

/// SLURM does not know the job any more.
pub fn vanished() -> Reason {
    because("job_vanished")
}

/// The job could not be submitted.
pub fn submit_failed() -> Reason {
    because("submit_failed")
}

/// The fast scratch could not be made, filled, or emptied; `text` is the agent's, with the node or the path.
pub(crate) fn scratch_trouble(trouble: ScratchTrouble, text: &str) -> Reason {
    because_with(trouble.code(), &[("text", text)])
}

/// The agent gave up on app or program; it says why or it does not.
pub fn agent_failed(kind: JobKind, text: Option<&str>) -> Reason {
    match (text, kind) {
        (Some(text), _) => Reason::new("agent_failed", Sentence::from_elsewhere(text)),
        (None, JobKind::Session) => because("agent_failed"),
        (None, JobKind::Run) => Reason::new("agent_failed", say("reason.program_not_started")),
    }
}
