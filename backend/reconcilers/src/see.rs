//! What a job in the snapshot means for its session or run: pure rules, from one row and one job to the next row.
//!
//! *Running* is never concluded here. News that is older than what is known is let go by: a job that waits while its agent has already been
//! heard of can only be an old look, because a restart makes the restart count grow.

use std::collections::BTreeSet;

use eirene_core::scheduler::{Job, JobState};
use eirene_core::{Desired, JobKind, Reason, Session, SessionState};
use jiff::Timestamp;

use eirene_services::sessions::change::advance;
use eirene_services::sessions::reasons;

/// The status of what SIGKILL has ended, as shells say it.
const KILLED: i32 = 137;

/// Why a job waits that has nothing but its turn to wait for.
const ITS_TURN: [&str; 4] = ["not_before", "not_considered_yet", "priority", "waiting_for_resources"];

/// Changes `session` to what `job` says.
pub(super) fn see(session: &mut Session, job: &Job) {
    if session.state.is_final() || job.restart_count < session.restart_count {
        return;
    }
    session.undetermined = false;
    if lost_the_app(session, job) {
        session.state = SessionState::Stopping;
        session.desired = Desired::Ended;
        session.reason = Some(reasons::node_failed());
        return;
    }
    match job.state {
        JobState::Pending => waiting(session, job),
        JobState::Configuring => allocated(session, job, |_| reasons::nodes_preparing()),
        JobState::Running => allocated(session, job, reasons::starting),
        JobState::Suspended => {
            allocated(session, job, reasons::starting);
            if session.state != SessionState::Stopping {
                session.reason = Some(reasons::suspended());
            }
        }
        // Its processes are being ended; how it ended is said when they are.
        JobState::Completing => {}
        JobState::Completed
        | JobState::Cancelled
        | JobState::Failed
        | JobState::TimedOut
        | JobState::NodeFailed
        | JobState::OutOfMemory
        | JobState::Preempted => finish(session, job),
    }
}

/// Whether it was killed without anybody saying why, so that it may have been its memory. SLURM's `OverMemoryKill` does that, and so does a kernel
/// whose control groups SLURM does not look at.
pub(super) fn may_be_memory(session: &Session, job: &Job) -> bool {
    let was_killed = [job.exit_code, session.exit_status].contains(&Some(KILLED));
    let why = ["signalled", "job_failed", "app_failed", "program_failed"];
    session.state == SessionState::Failed && was_killed && has_code(session, &why)
}

/// Whether the scheduler has taken the first node, on which agent and app are, out of a job that goes on without it. A job of several nodes
/// survives the loss of one: of this one it is only an allocation that nobody uses any more.
fn lost_the_app(session: &Session, job: &Job) -> bool {
    let lives = matches!(session.state, SessionState::Starting | SessionState::Running);
    let first = session.nodes.first().filter(|_| lives && session.nodes.len() > 1 && !job.nodes.is_empty());
    first.is_some_and(|first| !job.nodes.contains(first)) && !job.state.is_final()
}

/// A restart: back to the queue, whatever was known of the allocation before is over.
pub(super) fn restart(session: &mut Session, job: &Job) {
    if session.state.is_final() || job.restart_count <= session.restart_count {
        return;
    }
    // Its last moments were seen, or the scheduler still remembers.
    let preempted = has_code(session, &["giving_way"])
        || job.preempted_at.zip(session.started_at).is_some_and(|(preempted, started)| preempted >= started);
    session.restart_count = job.restart_count;
    session.exit_status = None;
    session.nodes.clear();
    session.started_at = None;
    session.ends_at = None;
    session.start_estimate = None;
    if advance(session, SessionState::Queued) || session.state == SessionState::Queued {
        session.reason = Some(if preempted { reasons::preempted(session.kind()) } else { reasons::requeued() });
    }
}

/// How often the job of a session was restarted, by all that accounting has of it: not every version of its answers has a number for that, but each
/// start is an entry of its own. What was put back into the queue after the start that is known is none that is counted already. That it began later
/// than is known says nothing: nodes that had to be switched on do that. Where no start is known, as since it was last put back, all but the first count.
pub(super) fn restarts(session: &Session, accounted: &[Job]) -> u32 {
    let begun: BTreeSet<Timestamp> = accounted.iter().map(|job| job.identity.submitted_at).collect();
    let (before, later) = match session.started_at {
        Some(known) => (session.restart_count, begun.iter().filter(|at| **at > known).count()),
        None => (0, begun.len().saturating_sub(1)),
    };
    // Accounting may have forgotten the first ones.
    session.restart_count.max(before.saturating_add(u32::try_from(later).unwrap_or(u32::MAX)))
}

/// The end of a session whose job neither scheduler nor accounting knows.
pub(super) fn vanish(session: &mut Session) {
    conclude(session, SessionState::Failed, Some(reasons::vanished()));
}

/// The end of a session that was to end and has no job.
pub(super) fn end_without_job(session: &mut Session) {
    conclude(session, SessionState::Ended, Some(reasons::stopped()));
}

fn waiting(session: &mut Session, job: &Job) {
    if session.state != SessionState::Queued {
        return;
    }
    session.start_estimate = job.started_at;
    // That it waits for its turn again is said by what put it back, and why that was.
    let said = has_code(session, &["preempted", "requeued"])
        && job.reason.as_ref().is_some_and(|reason| ITS_TURN.contains(&reason.code.as_str()));
    if job.reason.is_some() && !said {
        session.reason.clone_from(&job.reason);
    }
}

fn allocated(session: &mut Session, job: &Job, starting: fn(JobKind) -> Reason) {
    // A node that fails is taken out of the job. It stays among the session's, or its page could not say that it is lost.
    if !job.nodes.iter().all(|node| session.nodes.contains(node)) {
        session.nodes.clone_from(&job.nodes);
    }
    session.started_at = job.started_at.or(session.started_at);
    session.ends_at = job.ends_at.or(session.ends_at);
    session.start_estimate = None;
    if session.state == SessionState::Queued {
        advance(session, SessionState::Starting);
    }
    let silent = has_code(session, &["agent_silent"]);
    if session.state == SessionState::Starting && !silent {
        session.reason = Some(starting(session.kind()));
    }
    if session.state == SessionState::Running && has_code(session, &["suspended", "giving_way"]) {
        session.reason = None;
    }
    let lives = matches!(session.state, SessionState::Starting | SessionState::Running);
    // What the scheduler remembers may be of an earlier start.
    let gives_way = job.preempted_at.is_some_and(|at| job.started_at.is_none_or(|started| at >= started));
    if lives && gives_way && session.desired == Desired::Running {
        session.reason = Some(reasons::giving_way(session.kind()));
    }
}

fn has_code(session: &Session, codes: &[&str]) -> bool {
    session.reason.as_ref().is_some_and(|reason| codes.contains(&reason.code.as_str()))
}

fn finish(session: &mut Session, job: &Job) {
    let ran = session.state != SessionState::Queued || !job.nodes.is_empty();
    if ran {
        session.started_at = job.started_at.or(session.started_at);
        if !job.nodes.is_empty() {
            session.nodes.clone_from(&job.nodes);
        }
    }
    session.ended_at = job.ends_at.filter(|end| *end >= session.created_at);
    let (state, reason) = judge(session, job);
    conclude(session, state, Some(reason));
}

fn conclude(session: &mut Session, state: SessionState, reason: Option<Reason>) {
    let (state, reason) = match reasons::verdict(session) {
        Some(state) => (state, session.reason.clone()),
        None if session.desired == Desired::Ended => (SessionState::Ended, Some(reasons::stopped())),
        None => (state, reason),
    };
    session.state = state;
    session.reason = reason;
    session.undetermined = false;
    session.start_estimate = None;
}

fn judge(session: &Session, job: &Job) -> (SessionState, Reason) {
    use SessionState::{Ended, Failed};
    let kind = session.kind();
    let status = session.exit_status.filter(|status| *status != 0);
    match job.state {
        // A program that a signal ended: had the scheduler known why, it would have said so.
        JobState::Completed | JobState::Failed if let Some(status) = status => (Failed, reasons::failed(kind, status)),
        JobState::Completed => (Ended, reasons::ended(kind)),
        JobState::Cancelled => (Ended, reasons::cancelled()),
        JobState::TimedOut => match kind {
            JobKind::Session => (Ended, reasons::walltime_reached(kind)),
            JobKind::Run => (Failed, reasons::walltime_reached(kind)),
        },
        JobState::NodeFailed => (Failed, reasons::node_failed()),
        JobState::OutOfMemory => (Failed, reasons::out_of_memory()),
        JobState::Preempted => (Failed, reasons::preempted_for_good()),
        JobState::Failed
        | JobState::Pending
        | JobState::Configuring
        | JobState::Running
        | JobState::Suspended
        | JobState::Completing => (Failed, job.reason.clone().unwrap_or_else(|| reasons::job_failed(job.exit_code))),
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Sentence;
    use eirene_services::testing::{job, session};

    use super::*;

    fn after(state: SessionState, desired: Desired, reason: Option<Reason>, seen: JobState) -> (SessionState, String) {
        let mut session = session("ada");
        (session.state, session.desired, session.reason) = (state, desired, reason);
        let job = job(&session, 7, seen);
        see(&mut session, &job);
        (session.state, session.reason.map_or(String::new(), |reason| reason.code))
    }

    #[test]
    fn running_is_never_concluded_and_old_news_takes_nothing_back() {
        use SessionState::{Queued, Running, Starting, Stopping};
        for (state, seen, next) in [
            (Queued, JobState::Pending, Queued),
            (Queued, JobState::Configuring, Starting),
            (Queued, JobState::Running, Starting),
            (Starting, JobState::Running, Starting),
            (Starting, JobState::Pending, Starting),
            (Running, JobState::Pending, Running),
            (Running, JobState::Running, Running),
            (Running, JobState::Completing, Running),
            (Stopping, JobState::Running, Stopping),
            (Stopping, JobState::Pending, Stopping),
        ] {
            assert_eq!(after(state, Desired::Running, None, seen).0, next, "{state} {seen:?}");
        }
    }

    #[test]
    fn how_it_ended_depends_on_the_wish_and_on_what_the_agent_said() {
        use SessionState::{Ended, Failed, Queued, Running, Stopping};
        let never = Some(reasons::never_ready(JobKind::Session, 120));
        for (state, desired, reason, seen, next, code) in [
            (Running, Desired::Running, None, JobState::Cancelled, Ended, "cancelled"),
            (Running, Desired::Running, None, JobState::TimedOut, Ended, "walltime_reached"),
            (Running, Desired::Running, None, JobState::Completed, Ended, "app_ended"),
            (Running, Desired::Running, None, JobState::Failed, Failed, "job_failed"),
            (Running, Desired::Running, None, JobState::NodeFailed, Failed, "node_failed"),
            (Running, Desired::Running, None, JobState::OutOfMemory, Failed, "out_of_memory"),
            (Queued, Desired::Running, None, JobState::Cancelled, Ended, "cancelled"),
            (Stopping, Desired::Ended, None, JobState::Cancelled, Ended, "stopped"),
            (Stopping, Desired::Ended, None, JobState::Failed, Ended, "stopped"),
            (Stopping, Desired::Ended, never.clone(), JobState::Cancelled, Failed, "never_ready"),
            (
                Stopping,
                Desired::Ended,
                Some(reasons::failed(JobKind::Session, 3)),
                JobState::Completed,
                Failed,
                "app_failed",
            ),
            (
                Stopping,
                Desired::Ended,
                Some(reasons::walltime_reached(JobKind::Session)),
                JobState::Completed,
                Ended,
                "walltime_reached",
            ),
            (Failed, Desired::Running, never, JobState::Running, Failed, "never_ready"),
        ] {
            assert_eq!(after(state, desired, reason, seen), (next, code.to_owned()), "{state} {seen:?}");
        }
    }

    #[test]
    fn a_job_that_goes_on_without_its_first_node_has_lost_the_app() {
        let after = |nodes: &[&str], seen: &[&str]| {
            let mut session = session("ada");
            session.state = SessionState::Running;
            session.nodes = nodes.iter().map(|name| name.parse().unwrap()).collect();
            let mut job = job(&session, 7, JobState::Running);
            job.nodes = seen.iter().map(|name| name.parse().unwrap()).collect();
            see(&mut session, &job);
            (session.state, session.desired, session.reason.map(|reason| reason.code))
        };
        let lost = (SessionState::Stopping, Desired::Ended, Some("node_failed".to_owned()));
        let well = (SessionState::Running, Desired::Running, None);
        assert_eq!(after(&["c1", "c2"], &["c2"]), lost);
        assert_eq!(after(&["c1", "c2"], &["c1"]), well, "the notebook goes on");
        assert_eq!(after(&["c1", "c2"], &["c1", "c2"]), well);
        assert_eq!(after(&["c1"], &["c2"]), well, "a restart is not seen here");
        assert_eq!(after(&["c1", "c2"], &[]), well, "an answer without nodes says nothing");
    }

    #[test]
    fn a_session_gives_way_waits_again_and_says_why_as_long_as_it_does() {
        let second = |second: i64| jiff::Timestamp::from_second(second).unwrap();
        let code = |session: &Session| session.reason.clone().map_or(String::new(), |reason| reason.code);
        for seen_before in [true, false] {
            let mut session = session("ada");
            (session.state, session.started_at) = (SessionState::Running, Some(second(100)));
            let mut taken = job(&session, 7, JobState::Running);
            (taken.started_at, taken.preempted_at) = (Some(second(100)), Some(second(200)));
            if seen_before {
                see(&mut session, &taken);
                assert_eq!((session.state, code(&session).as_str()), (SessionState::Running, "giving_way"));
            }
            (taken.state, taken.started_at, taken.restart_count) = (JobState::Pending, None, 1);
            taken.reason = Some(Reason::new("not_before", Sentence::from_elsewhere("Later.")));
            restart(&mut session, &taken);
            see(&mut session, &taken);
            assert_eq!((session.state, code(&session).as_str()), (SessionState::Queued, "preempted"));
            taken.reason = Some(Reason::new("held_by_operator", Sentence::from_elsewhere("Held.")));
            see(&mut session, &taken);
            assert_eq!(code(&session), "held_by_operator", "what needs somebody's help is told");
            // The scheduler still remembers the preemption of the earlier start.
            (taken.state, taken.started_at, taken.reason) = (JobState::Running, Some(second(300)), None);
            see(&mut session, &taken);
            assert_eq!((session.state, code(&session).as_str()), (SessionState::Starting, "app_starting"));
            session.started_at = Some(second(300));
            (taken.state, taken.restart_count) = (JobState::Pending, 2);
            restart(&mut session, &taken);
            assert_eq!(code(&session), "requeued", "this time an operator did it");
        }
    }

    #[test]
    fn restarts_are_counted_by_accounting_whether_or_not_the_start_before_was_seen() {
        let second = |second: i64| jiff::Timestamp::from_second(second).unwrap();
        // When the job was put into the queue, by accounting, and what is known: restarts, and when the last start was, if it was seen.
        for (queued, known, started, restarts) in [
            (&[0][..], 0, None, 0),
            (&[0, 200], 0, None, 1),
            (&[0, 200], 1, None, 1),
            (&[0, 200, 400], 1, None, 2),
            (&[0, 200, 400], 1, Some(300), 2),
            (&[0, 200, 400], 0, Some(100), 2),
            (&[0, 200, 200], 1, Some(300), 1),
            // Entries of one start, as of a job that gave back nodes, are one; and what was forgotten does not make it fewer.
            (&[0, 200, 200], 1, None, 1),
            (&[400], 2, None, 2),
            (&[], 3, None, 3),
        ] {
            let mut session = session("ada");
            (session.restart_count, session.started_at) = (known, started.map(second));
            let entry = |at: &i64| {
                let mut job = job(&session, 7, JobState::Completed);
                job.identity.submitted_at = second(*at);
                job
            };
            let accounted: Vec<Job> = queued.iter().map(entry).collect();
            assert_eq!(super::restarts(&session, &accounted), restarts, "{queued:?} {known} {started:?}");
        }
    }

    #[test]
    fn a_job_that_goes_on_after_all_gives_way_no_more() {
        let mut session = session("ada");
        session.state = SessionState::Running;
        let mut job = job(&session, 7, JobState::Running);
        job.preempted_at = job.started_at;
        see(&mut session, &job);
        assert!(has_code(&session, &["giving_way"]));
        job.preempted_at = None;
        see(&mut session, &job);
        assert_eq!(session.reason, None);
    }

    #[test]
    fn a_node_that_a_job_has_lost_stays_among_the_session_s_until_a_restart() {
        let mut session = session("ada");
        session.state = SessionState::Running;
        let mut job = job(&session, 7, JobState::Running);
        let mut after = |restarts, seen: &[&str]| {
            job.restart_count = restarts;
            job.nodes = seen.iter().map(|name| name.parse().unwrap()).collect();
            restart(&mut session, &job);
            see(&mut session, &job);
            session.nodes.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(after(0, &["c1", "c2"]), ["c1", "c2"]);
        assert_eq!(after(0, &["c1"]), ["c1", "c2"]);
        assert_eq!(after(1, &["c1"]), ["c1"], "another start has other nodes");
        assert_eq!(after(1, &["c2", "c3"]), ["c2", "c3"]);
    }

    #[test]
    fn a_restart_goes_back_to_the_queue_and_an_older_look_changes_nothing() {
        let mut session = session("ada");
        session.state = SessionState::Running;
        let mut requeued = job(&session, 7, JobState::Pending);
        requeued.restart_count = 1;
        restart(&mut session, &requeued);
        assert_eq!((session.state, session.restart_count), (SessionState::Queued, 1));
        let before = session.clone();
        see(&mut session, &job(&before, 7, JobState::Cancelled));
        assert_eq!(session, before);
    }
}
