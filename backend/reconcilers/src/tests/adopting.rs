use eirene_core::scheduler::JobState;
use eirene_core::{Role, SessionState};
use eirene_services::error::AppError;
use eirene_services::testing::{job, session};

use super::*;

#[tokio::test]
async fn a_marked_job_without_a_row_is_shown_and_never_cancelled() {
    let mut engine = Engine::new().await;
    let forgotten = session("ada");
    engine.test.scheduler.state().jobs.push(job(&forgotten, 77, JobState::Running));
    let mut unmarked = job(&forgotten, 78, JobState::Running);
    unmarked.name = "mine".into();
    engine.test.scheduler.state().jobs.push(unmarked);
    let admin = engine.test.person("root-of-all", 2003, Role::Admin).await;
    for _ in 0..5 {
        engine.pass(600).await;
        engine.adopt.run().await.unwrap();
        engine.stop.run().await.unwrap();
        engine.ready.run().await.unwrap();
    }
    let adopted = engine.test.app.sessions.adopted(&admin).await.unwrap();
    assert_eq!(adopted.iter().map(|job| (job.job_id, job.uid)).collect::<Vec<_>>(), [(77, 2001)]);
    assert!(matches!(engine.test.app.sessions.adopted(&engine.ada).await, Err(AppError::Forbidden { .. })));
    assert!(engine.test.scheduler.state().cancels.is_empty());
    engine.test.scheduler.state().jobs[0].state = JobState::Completed;
    engine.tick().await;
    engine.adopt.run().await.unwrap();
    assert!(engine.test.app.sessions.adopted(&admin).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_row_from_before_the_submit_finds_the_job_that_was_submitted_since() {
    let engine = Engine::new().await;
    let id = engine.start().await;
    // The row as the backup has it: nothing was submitted. The job as it is: submitted, and running.
    let row = engine.row(id).await;
    engine.test.scheduler.state().jobs.push(job(&row, 77, JobState::Running));
    engine.test.clock.advance_s(3600);
    let mut engine = engine.restarted();
    // Before anything was looked at, and after.
    engine.submit().await;
    engine.tick().await;
    engine.submit().await;
    engine.tick().await;
    let row = engine.row(id).await;
    assert_eq!((row.job.map(|job| job.id), row.state), (Some(77), SessionState::Starting));
    assert!(engine.test.scheduler.state().submits.is_empty());
}

#[tokio::test]
async fn a_row_that_waited_when_the_portal_ended_is_submitted_once_it_is_sure_that_it_was_not() {
    let engine = Engine::new().await;
    let id = engine.start().await;
    engine.test.clock.advance_s(1);
    let mut engine = engine.restarted();
    for _ in 0..30 {
        engine.submit().await;
        engine.tick().await;
    }
    assert!(engine.row(id).await.job.is_some());
    assert_eq!(engine.test.scheduler.state().submits.len(), 1);
}

#[tokio::test]
async fn a_job_that_was_requeued_since_the_backup_gets_a_new_secret_and_time_to_come_back() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.change_job(|job| job.restart_count = 1);
    engine.test.clock.advance_s(3600);
    let mut engine = engine.restarted();
    for _ in 0..10 {
        engine.pass(10).await;
        engine.adopt.run().await.unwrap();
        engine.ready.run().await.unwrap();
        engine.stop.run().await.unwrap();
    }
    let files = engine.test.launcher.job_files();
    assert_eq!(files.last().map(|file| (file.session, file.restart_count)), Some((id, 1)), "for the agent to read");
    assert_eq!(engine.row(id).await.state, SessionState::Starting);
    assert!(engine.test.scheduler.state().cancels.is_empty());
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Running);
}

#[tokio::test]
async fn a_row_that_names_an_older_job_is_linked_to_the_one_that_lives() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let row = engine.row(id).await;
    engine.test.scheduler.state().jobs = vec![job(&row, 200, JobState::Running)];
    engine.test.clock.advance_s(1);
    engine.poller.look().await;
    engine.adopt.run().await.unwrap();
    engine.observe.run().await.unwrap();
    let row = engine.row(id).await;
    assert_eq!((row.job.map(|job| job.id), row.state), (Some(200), SessionState::Running));
}

#[tokio::test]
async fn a_copied_marker_on_somebody_elses_job_is_neither_linked_nor_adopted() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let admin = engine.test.person("root-of-all", 2003, Role::Admin).await;
    let mut copied = job(&engine.row(id).await, 300, JobState::Running);
    copied.uid = 2002;
    engine.test.scheduler.state().jobs.push(copied);
    engine.tick().await;
    engine.adopt.run().await.unwrap();
    assert_eq!(engine.row(id).await.job.map(|job| job.id), Some(101));
    assert!(engine.test.app.sessions.adopted(&admin).await.unwrap().is_empty());
}
