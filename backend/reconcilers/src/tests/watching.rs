use eirene_core::Clock as _;
use eirene_core::SessionState;
use eirene_core::job_usage::JobStart;
use eirene_core::scheduler::{Job, JobState};

use super::*;

#[tokio::test]
async fn a_session_goes_from_queued_to_running_and_running_is_said_by_the_agent() {
    let mut engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.tick().await;
    assert_eq!(
        (engine.row(id).await.state, engine.reason(id).await.as_str()),
        (SessionState::Queued, "waiting_for_resources")
    );
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    let row = engine.row(id).await;
    assert_eq!((row.state, row.nodes.len()), (SessionState::Starting, 1));
    engine.pass(60).await;
    assert_eq!(engine.row(id).await.state, SessionState::Starting);
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    engine.tick().await;
    let row = engine.row(id).await;
    assert_eq!((row.state, row.reason), (SessionState::Running, None));
}

#[tokio::test]
async fn an_agent_may_be_faster_than_the_poller() {
    let mut engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    let row = engine.row(id).await;
    assert_eq!((row.state, row.nodes.len()), (SessionState::Running, 0));
    // This look is older than what the agent said.
    engine.tick().await;
    assert_eq!(engine.row(id).await.state, SessionState::Running);
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    assert_eq!(engine.row(id).await.nodes.len(), 1);
}

#[tokio::test]
async fn a_scheduler_that_is_away_sets_flags_and_nothing_else() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let before = engine.row(id).await;
    engine.test.scheduler.state().reachable = false;
    engine.tick().await;
    assert!(!engine.row(id).await.undetermined, "one lost answer is looked over");
    engine.tick().await;
    let away = engine.row(id).await;
    assert!(away.undetermined);
    for _ in 0..30 {
        engine.pass(60).await;
    }
    let later = engine.row(id).await;
    assert_eq!((later.state, &later.nodes, later.version), (before.state, &before.nodes, away.version));
    engine.test.scheduler.state().reachable = true;
    engine.tick().await;
    let back = engine.row(id).await;
    assert!(!back.undetermined);
    assert_eq!(back.state, SessionState::Running);
}

#[tokio::test]
async fn a_session_ends_as_its_job_ended() {
    for (ended, state, code) in [
        (JobState::Cancelled, SessionState::Ended, "cancelled"),
        (JobState::TimedOut, SessionState::Ended, "walltime_reached"),
        (JobState::NodeFailed, SessionState::Failed, "node_failed"),
        (JobState::Failed, SessionState::Failed, "job_failed"),
        (JobState::OutOfMemory, SessionState::Failed, "out_of_memory"),
    ] {
        let mut engine = Engine::new().await;
        let id = engine.running().await;
        engine.test.scheduler.job_becomes(ended);
        engine.tick().await;
        let row = engine.row(id).await;
        assert_eq!((row.state, engine.reason(id).await.as_str()), (state, code));
        assert!(row.ended_at.is_some());
        let log = engine.test.app.logs.read(&engine.ada, eirene_core::JobKind::Session, id).await.unwrap();
        assert_eq!(log.contains("the last words"), state == SessionState::Failed, "{log}");
    }
}

#[tokio::test]
async fn a_requeued_job_gets_a_new_secret_and_starts_anew() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.change_job(|job| {
        job.restart_count = 1;
        job.state = JobState::Pending;
        job.nodes.clear();
    });
    engine.tick().await;
    let row = engine.row(id).await;
    assert_eq!((row.state, row.restart_count, row.nodes.len()), (SessionState::Queued, 1, 0));
    let files = engine.test.launcher.job_files();
    assert_eq!((files.len(), files[1].restart_count), (2, 1));
    assert_ne!(files[0].secret, files[1].secret);
    engine.tick().await;
    assert_eq!(engine.test.launcher.job_files().len(), 2, "one secret for one restart");
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    assert_eq!(engine.row(id).await.state, SessionState::Starting);
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Running);
}

#[tokio::test]
async fn a_requeue_waits_for_a_launcher_that_is_away() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    *engine.test.launcher.refusal.lock().unwrap() = Some("away");
    engine.test.scheduler.change_job(|job| {
        job.restart_count = 1;
        job.state = JobState::Pending;
    });
    engine.test.clock.advance_s(1);
    engine.poller.look().await;
    assert!(engine.observe.run().await.is_err(), "the trouble is shown");
    assert_eq!(engine.row(id).await.restart_count, 0);
    *engine.test.launcher.refusal.lock().unwrap() = None;
    engine.tick().await;
    assert_eq!(engine.row(id).await.restart_count, 1);
}

#[tokio::test]
async fn a_start_is_written_down_before_its_session_forgets_it() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let began = engine.row(id).await.started_at.unwrap();
    *engine.test.launcher.refusal.lock().unwrap() = Some("away");
    engine.test.scheduler.change_job(|job| {
        (job.restart_count, job.state, job.started_at) = (1, JobState::Pending, None);
        job.nodes.clear();
    });
    engine.test.clock.advance_s(60);
    engine.poller.look().await;
    assert!(engine.observe.run().await.is_err());
    let over = engine.test.clock.now();
    let start = JobStart { session: id, restart_count: 0, started_at: began, ended_at: over };
    assert_eq!(engine.row(id).await.started_at, Some(began), "the session itself was not changed");
    assert_eq!(engine.test.app.db.job_starts(id).await.unwrap(), [start]);
    let mut engine = engine.restarted();
    *engine.test.launcher.refusal.lock().unwrap() = None;
    engine.tick().await;
    assert_eq!(engine.row(id).await.started_at, None);
    assert_eq!(engine.test.app.db.job_starts(id).await.unwrap(), [start], "it is the same one");
}

#[tokio::test]
async fn a_job_that_was_requeued_and_ended_while_nobody_looked_has_had_two_starts() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let began = engine.row(id).await.started_at.unwrap();
    let again = began + jiff::SignedDuration::from_secs(60);
    engine.test.scheduler.change_job(|job| {
        (job.restart_count, job.state, job.started_at) = (1, JobState::Completed, Some(again));
    });
    engine.pass(600).await;
    let row = engine.row(id).await;
    assert_eq!((row.state, row.restart_count, row.started_at), (SessionState::Ended, 1, Some(again)));
    let start = JobStart { session: id, restart_count: 0, started_at: began, ended_at: again };
    assert_eq!(engine.test.app.db.job_starts(id).await.unwrap(), [start]);
}

#[tokio::test]
async fn starts_of_a_job_the_scheduler_forgot_are_counted_by_its_accounting() {
    // When it was put back into the queue and when it began anew, seconds after the start that is known. It was taken away where it never did, and its
    // nodes had to be switched on where it was never put back.
    for (requeued, anew, restarts) in [(Some(60), Some(200), 1), (Some(60), None, 1), (None, Some(200), 0)] {
        let mut engine = Engine::new().await;
        let id = engine.running().await;
        let began = engine.row(id).await.started_at.unwrap();
        let after = |seconds| began + jiff::SignedDuration::from_secs(seconds);
        let first = engine.test.scheduler.state().jobs.remove(0);
        let mut last = Job { started_at: anew.map(after), ends_at: Some(after(300)), ..first.clone() };
        last.state = if anew.is_some() { JobState::Completed } else { JobState::Cancelled };
        if anew.is_none() {
            last.nodes.clear();
        }
        let mut accounted = vec![last];
        if let Some(at) = requeued {
            accounted[0].identity.submitted_at = after(at);
            accounted.push(Job { state: JobState::Pending, ..first });
        }
        assert!(accounted.iter().all(|job| job.restart_count == 0), "as of a parser that does not tell");
        engine.test.scheduler.state().accounted = accounted;
        engine.pass(600).await;
        let row = engine.row(id).await;
        assert_eq!((row.state, row.restart_count, row.started_at), (SessionState::Ended, restarts, anew.map(after)));
        let start = |at| JobStart { session: id, restart_count: 0, started_at: began, ended_at: after(at) };
        let starts = engine.test.app.db.job_starts(id).await.unwrap();
        assert_eq!(starts, requeued.map(start).into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_job_the_scheduler_forgot_is_judged_by_its_accounting() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let mut job = engine.test.scheduler.state().jobs.remove(0);
    engine.tick().await;
    engine.pass(30).await;
    assert_eq!(engine.row(id).await.state, SessionState::Running, "missing for a while is not gone");
    job.state = JobState::TimedOut;
    engine.test.scheduler.state().accounted = vec![job];
    engine.pass(10).await;
    assert_eq!(
        (engine.row(id).await.state, engine.reason(id).await.as_str()),
        (SessionState::Ended, "walltime_reached")
    );
}

#[tokio::test]
async fn a_job_nobody_knows_is_given_up_late_and_only_when_accounting_was_asked() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.state().jobs.clear();
    engine.test.scheduler.state().accounting_reachable = false;
    engine.test.clock.advance_s(600);
    engine.poller.look().await;
    for _ in 0..3 {
        assert!(engine.observe.run().await.is_err());
        engine.test.clock.advance_s(600);
        engine.poller.look().await;
    }
    assert_eq!(engine.row(id).await.state, SessionState::Running);
    engine.test.scheduler.state().accounting_reachable = true;
    engine.pass(10).await;
    assert_eq!((engine.row(id).await.state, engine.reason(id).await.as_str()), (SessionState::Failed, "job_vanished"));
}

#[tokio::test]
async fn an_agent_that_is_away_is_shown_and_nothing_is_concluded() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.silence.run().await.unwrap();
    assert_eq!(engine.row(id).await.reason, None);
    engine.test.clock.advance_s(31);
    engine.silence.run().await.unwrap();
    engine.tick().await;
    assert_eq!((engine.row(id).await.state, engine.reason(id).await.as_str()), (SessionState::Running, "agent_silent"));
    engine.test.app.sessions.agent_arrived(id).await.unwrap();
    assert_eq!(engine.row(id).await.reason, None);
}
