//! Why a session is where it is, where it is us and not the scheduler who says so.

use eirene_core::{Reason, Session, SessionState};

/// Written down while a session is on its way to its end: how it is to be judged there.
const FAILED: &[&str] = &["never_ready", "app_failed", "agent_failed"];
const ENDED: &[&str] = &["app_ended", "walltime_reached"];

/// The final state a session's reason already decides, if it does.
pub(crate) fn verdict(session: &Session) -> Option<SessionState> {
    let code = session.reason.as_ref()?.code.as_str();
    if FAILED.contains(&code) {
        return Some(SessionState::Failed);
    }
    ENDED.contains(&code).then_some(SessionState::Ended)
}

pub(crate) fn scheduler_away() -> Reason {
    Reason::new("scheduler_unreachable", "The scheduler does not answer; the session is submitted as soon as it does.")
}

pub(crate) fn submit_unsure() -> Reason {
    Reason::new("submit_undetermined", "The scheduler's answer was lost; we are looking whether it took the job.")
}

pub(crate) fn launcher_away() -> Reason {
    Reason::new(
        "launcher_unreachable",
        "A part of the platform does not answer; the session is submitted as soon as it does.",
    )
}

pub(crate) fn home_trouble(text: &str) -> Reason {
    let text =
        format!("The session's file could not be written to your home directory ({text}). Is it full or missing?");
    Reason::new("home_unwritable", text)
}

pub(crate) fn no_person(text: &str) -> Reason {
    Reason::new("no_cluster_user", format!("Your account cannot run jobs on this cluster: {text}."))
}

pub(crate) fn app_starting() -> Reason {
    Reason::new("app_starting", "The resources are yours; the app is being started.")
}

pub(crate) fn nodes_preparing() -> Reason {
    Reason::new("nodes_preparing", "The nodes are being prepared.")
}

pub(crate) fn suspended() -> Reason {
    Reason::new("suspended", "The scheduler has suspended the job; it may go on later.")
}

pub(crate) fn requeued() -> Reason {
    Reason::new(
        "requeued",
        "The scheduler put the job back into the queue; the session starts anew when its turn comes.",
    )
}

pub(crate) fn agent_silent() -> Reason {
    Reason::new("agent_silent", "The session's node has not been heard of for a while; it may come back.")
}

pub(crate) fn never_ready(limit_s: u32) -> Reason {
    let text =
        format!("The app was not ready within {limit_s} seconds, so its resources were released. The log may say why.");
    Reason::new("never_ready", text)
}

pub(crate) fn stopped() -> Reason {
    Reason::new("stopped", "The session was stopped as asked.")
}

pub(crate) fn app_ended() -> Reason {
    Reason::new("app_ended", "The app ended by itself.")
}

pub(crate) fn app_failed(code: i32) -> Reason {
    Reason::new("app_failed", format!("The app ended with exit status {code}. The log may say why."))
}

pub(crate) fn walltime_reached() -> Reason {
    Reason::new("walltime_reached", "The time asked for is over.")
}

pub(crate) fn cancelled() -> Reason {
    Reason::new("cancelled", "The job was cancelled in the scheduler, not from the portal.")
}

pub(crate) fn node_failed() -> Reason {
    Reason::new("node_failed", "A node of the session failed. Start a new one; files in your home directory are kept.")
}

pub(crate) fn out_of_memory() -> Reason {
    Reason::new("out_of_memory", "The session used more memory than it asked for. Ask for more next time.")
}

pub(crate) fn preempted() -> Reason {
    Reason::new("preempted", "The scheduler took the resources away for a more important job.")
}

pub(crate) fn job_failed(exit_code: Option<i32>) -> Reason {
    let text = match exit_code {
        Some(code) => format!("The job ended with exit status {code} before it was stopped. The log may say why."),
        None => "The job ended before it was stopped. The log may say why.".into(),
    };
    Reason::new("job_failed", text)
}

pub(crate) fn vanished() -> Reason {
    Reason::new("job_vanished", "Neither the scheduler nor its accounting knows the job any more.")
}
