use eirene_core::launcher::Cause;
use eirene_core::scheduler::{CallAs, JobState};
use eirene_core::{JobKind, Role, SessionState};
use eirene_services::error::AppError;
use eirene_services::sessions::agent::AppOutcome;
use eirene_services::testing::SubmitMood;

use super::*;

impl Engine {
    async fn ask_to_stop(&self, id: SessionId) {
        self.test.app.sessions.stop(&self.ada, id).await.unwrap();
        self.stop.run().await.unwrap();
    }

    fn cancels(&self) -> Vec<(CallAs, u32)> {
        self.test.scheduler.state().cancels.clone()
    }
}

fn as_ada() -> CallAs {
    CallAs::Person("ada".parse().unwrap())
}

#[tokio::test]
async fn a_session_that_was_never_submitted_ends_at_once() {
    let engine = Engine::new().await;
    let id = engine.start().await;
    engine.ask_to_stop(id).await;
    assert_eq!(engine.row(id).await.state, SessionState::Ended);
    engine.submit().await;
    assert!(engine.test.scheduler.state().submits.is_empty());
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_as_its_owner() {
    let mut engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.tick().await;
    engine.ask_to_stop(id).await;
    assert_eq!(engine.cancels(), [(as_ada(), 101)]);
    let about_it = Cause { request: None, session: Some(id) };
    assert_eq!(engine.test.scheduler.state().causes, [about_it; 2], "the submit and the cancel");
    assert_eq!(engine.row(id).await.state, SessionState::Stopping);
    engine.tick().await;
    assert_eq!((engine.row(id).await.state, engine.reason(id).await.as_str()), (SessionState::Ended, "stopped"));
    let again = engine.test.app.sessions.stop(&engine.ada, id).await.unwrap();
    assert_eq!(again.state, SessionState::Ended);
}

#[tokio::test]
async fn a_person_the_scheduler_no_longer_knows_is_cancelled_for() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.state().person_may_cancel = false;
    engine.ask_to_stop(id).await;
    assert_eq!(engine.cancels(), [(CallAs::Service, 101)]);
}

#[tokio::test]
async fn a_cancel_that_was_not_answered_is_repeated() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.state().reachable = false;
    engine.test.app.sessions.stop(&engine.ada, id).await.unwrap();
    assert!(engine.stop.run().await.is_err());
    engine.tick().await;
    engine.tick().await;
    assert_eq!(engine.row(id).await.state, SessionState::Stopping);
    engine.test.scheduler.state().reachable = true;
    engine.stop.run().await.unwrap();
    assert!(engine.cancels().is_empty(), "not in a hurry");
    engine.pass(5).await;
    engine.stop.run().await.unwrap();
    engine.tick().await;
    assert_eq!(engine.row(id).await.state, SessionState::Ended);
}

#[tokio::test]
async fn a_stop_while_the_submits_answer_is_lost_still_ends_the_job() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
    let id = engine.start().await;
    engine.submit().await;
    engine.ask_to_stop(id).await;
    assert_eq!(engine.row(id).await.state, SessionState::Stopping, "there may be a job");
    engine.tick().await;
    engine.stop.run().await.unwrap();
    assert_eq!(engine.cancels(), [(as_ada(), 101)]);
    engine.tick().await;
    assert_eq!(engine.row(id).await.state, SessionState::Ended);
}

#[tokio::test]
async fn a_stop_after_a_submit_that_left_nothing_ends_when_that_is_sure() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::NothingHappens;
    let id = engine.start().await;
    engine.submit().await;
    engine.ask_to_stop(id).await;
    engine.tick().await;
    engine.stop.run().await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Stopping);
    engine.pass(30).await;
    engine.stop.run().await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Ended);
    assert!(engine.cancels().is_empty());
}

#[tokio::test]
async fn only_owner_and_admin_may_stop() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let grace = engine.test.person("grace", 2002, Role::Researcher).await;
    let admin = engine.test.person("root-of-all", 2003, Role::Admin).await;
    let sessions = &engine.test.app.sessions;
    assert!(matches!(sessions.stop(&grace, id).await, Err(AppError::Hidden)));
    assert!(matches!(sessions.get(&grace, id).await, Err(AppError::Hidden)));
    assert!(matches!(engine.test.app.logs.read(&grace, JobKind::Session, id).await, Err(AppError::Hidden)));
    assert!(matches!(
        engine.test.app.events.subscribe(&grace, Some((JobKind::Session, id)), None).await,
        Err(AppError::Hidden)
    ));
    assert_eq!(sessions.stop(&admin, id).await.unwrap().state, SessionState::Stopping);
    engine.stop.run().await.unwrap();
    assert_eq!(engine.cancels(), [(as_ada(), 101)], "as the owner, not as the admin");
}

#[tokio::test]
async fn a_session_that_never_becomes_ready_is_ended_with_its_reason() {
    let mut engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    engine.ready.run().await.unwrap();
    engine.pass(120).await;
    engine.ready.run().await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Starting, "the agent has the first word");
    engine.pass(60).await;
    engine.ready.run().await.unwrap();
    engine.stop.run().await.unwrap();
    assert!(engine.cancels().is_empty(), "if its agent said so, it is ending its job");
    engine.pass(engine.test.app.config.agent.stop_within_s.into()).await;
    engine.stop.run().await.unwrap();
    assert_eq!(engine.cancels(), [(as_ada(), 101)]);
    engine.tick().await;
    assert_eq!((engine.row(id).await.state, engine.reason(id).await.as_str()), (SessionState::Failed, "never_ready"));
}

#[tokio::test]
async fn a_scratch_may_take_its_time_to_be_filled() {
    let mut engine = Engine::new().await;
    let lists = r#"{"kind":"node","stage_in":[{"from":"home:a","to":"a"}],"stage_out":[{"from":"b","to":"home:b"}]}"#;
    let wish = eirene_services::sessions::StartSession {
        scratch: Some(serde_json::from_str(lists).unwrap()),
        ..TestApp::wish()
    };
    let id = engine.test.app.sessions.start(&engine.ada, wish, None).await.unwrap().0.id;
    engine.submit().await;
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    engine.ready.run().await.unwrap();
    engine.pass(3000).await;
    engine.ready.run().await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Starting, "it may still be filled");
}

#[tokio::test]
async fn nodes_that_are_being_prepared_are_given_the_time_they_need() {
    let mut engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.scheduler.job_becomes(JobState::Configuring);
    for _ in 0..5 {
        engine.pass(120).await;
        engine.ready.run().await.unwrap();
    }
    assert_eq!(engine.row(id).await.state, SessionState::Starting);
    // The scheduler's clock says it began long ago; ours has only now seen it run.
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    engine.ready.run().await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Starting);
}

#[tokio::test]
async fn a_number_that_is_somebody_elses_job_by_now_is_not_cancelled() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.state().person_may_cancel = false;
    engine.test.scheduler.change_job(|job| (job.name, job.uid) = ("hers".into(), 2002));
    engine.ask_to_stop(id).await;
    engine.pass(60).await;
    engine.stop.run().await.unwrap();
    assert!(engine.cancels().is_empty());
}

#[tokio::test]
async fn a_second_job_of_one_session_ends_with_it() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    let late = eirene_services::testing::job(&engine.row(id).await, 150, JobState::Pending);
    engine.test.scheduler.state().jobs.push(late);
    engine.tick().await;
    engine.adopt.run().await.unwrap();
    assert!(engine.cancels().is_empty(), "which of the two has the agent is not known");
    engine.ask_to_stop(id).await;
    assert_eq!(engine.cancels(), [(as_ada(), 101), (as_ada(), 150)]);
}

#[tokio::test]
async fn what_the_agent_says_about_the_end_decides_how_it_is_judged() {
    for (outcome, job, state, code) in [
        (AppOutcome::Ended, JobState::Completed, SessionState::Ended, "app_ended"),
        (AppOutcome::Failed(3), JobState::Failed, SessionState::Failed, "app_failed"),
        (AppOutcome::NeverReady(120), JobState::Completed, SessionState::Failed, "never_ready"),
        (AppOutcome::WalltimeReached, JobState::Completed, SessionState::Ended, "walltime_reached"),
        (AppOutcome::NotStarted(Some("no such image".into())), JobState::Failed, SessionState::Failed, "agent_failed"),
    ] {
        let mut engine = Engine::new().await;
        let id = engine.running().await;
        engine.test.app.sessions.app_exited(id, outcome).await.unwrap();
        assert_eq!(engine.row(id).await.state, SessionState::Stopping);
        engine.test.scheduler.job_becomes(job);
        engine.tick().await;
        assert_eq!((engine.row(id).await.state, engine.reason(id).await.as_str()), (state, code));
    }
}

#[tokio::test]
async fn an_agent_that_says_anything_after_the_end_changes_nothing() {
    let mut engine = Engine::new().await;
    let id = engine.running().await;
    engine.test.scheduler.job_becomes(JobState::Cancelled);
    engine.tick().await;
    let over = engine.row(id).await;
    let sessions = &engine.test.app.sessions;
    sessions.agent_ready(id).await.unwrap();
    sessions.app_exited(id, AppOutcome::Failed(1)).await.unwrap();
    sessions.agent_silent(id).await.unwrap();
    assert_eq!(engine.row(id).await, over);
}
