//! Why a session is where it is, where it is us and not the scheduler who says so.

use eirene_core::{Reason, Sentence, Session, SessionState};
use eirene_words::say_with;

/// Written down while a session is on its way to its end: how it is to be judged there.
const FAILED: &[&str] = &["never_ready", "app_failed", "agent_failed", "node_failed"];
const ENDED: &[&str] = &["app_ended", "walltime_reached"];

/// The final state a session's reason already decides, if it does.
pub(crate) fn verdict(session: &Session) -> Option<SessionState> {
    let code = session.reason.as_ref()?.code.as_str();
    if FAILED.contains(&code) {
        return Some(SessionState::Failed);
    }
    ENDED.contains(&code).then_some(SessionState::Ended)
}

/// The reason with this code, in the catalogue's words for it.
fn because(code: &str) -> Reason {
    because_with(code, &[])
}

fn because_with(code: &str, values: &[(&str, &str)]) -> Reason {
    Reason::new(code, say_with(&format!("reason.{code}"), values))
}

pub(crate) fn scheduler_away() -> Reason {
    because("scheduler_unreachable")
}

pub(crate) fn submit_unsure() -> Reason {
    because("submit_undetermined")
}

pub(crate) fn launcher_away() -> Reason {
    because("launcher_unreachable")
}

pub(crate) fn home_trouble(text: &str) -> Reason {
    because_with("home_unwritable", &[("text", text)])
}

pub(crate) fn no_person(text: &str) -> Reason {
    because_with("no_cluster_user", &[("text", text)])
}

pub(crate) fn app_starting() -> Reason {
    because("app_starting")
}

pub(crate) fn nodes_preparing() -> Reason {
    because("nodes_preparing")
}

pub(crate) fn suspended() -> Reason {
    because("suspended")
}

pub(crate) fn requeued() -> Reason {
    because("requeued")
}

pub(crate) fn agent_silent() -> Reason {
    because("agent_silent")
}

pub(crate) fn never_ready(limit_s: u32) -> Reason {
    because_with("never_ready", &[("seconds", &limit_s.to_string())])
}

pub(crate) fn stopped() -> Reason {
    because("stopped")
}

pub(crate) fn app_ended() -> Reason {
    because("app_ended")
}

pub(crate) fn app_failed(code: i32) -> Reason {
    because_with("app_failed", &[("status", &code.to_string())])
}

pub(crate) fn walltime_reached() -> Reason {
    because("walltime_reached")
}

pub(crate) fn cancelled() -> Reason {
    because("cancelled")
}

pub(crate) fn node_failed() -> Reason {
    because("node_failed")
}

pub(crate) fn out_of_memory() -> Reason {
    because("out_of_memory")
}

pub(crate) fn preempted() -> Reason {
    because("preempted")
}

pub(crate) fn job_failed(exit_code: Option<i32>) -> Reason {
    match exit_code {
        Some(code) => Reason::new("job_failed", say_with("reason.job_failed_status", &[("status", &code.to_string())])),
        None => because("job_failed"),
    }
}

pub(crate) fn vanished() -> Reason {
    because("job_vanished")
}

pub(crate) fn submit_failed() -> Reason {
    because("submit_failed")
}

/// The agent gave up on the app; it says why or it does not.
pub(crate) fn agent_failed(text: Option<&str>) -> Reason {
    match text {
        Some(text) => Reason::new("agent_failed", Sentence::from_elsewhere(text.to_owned())),
        None => because("agent_failed"),
    }
}
