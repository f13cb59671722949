use eirene_core::scheduler::{Job, JobState};
use eirene_core::{Desired, Reason, SessionState};
use eirene_monitoring::{Batch, Confinement, NodeName, Sample};
use eirene_services::runs::StartRun;
use eirene_services::sessions::agent::AppOutcome;
use eirene_words::say;

use super::*;

impl Engine {
    async fn start_run(&self) -> SessionId {
        self.start_run_as(TestApp::run_wish()).await
    }

    async fn start_run_as(&self, wish: StartRun) -> SessionId {
        self.test.app.runs.start(&self.ada, wish, None).await.unwrap().0.id
    }

    /// A run with a job that has begun and an agent that said so.
    async fn running_run(&mut self) -> SessionId {
        let id = self.start_run().await;
        self.submit().await;
        self.test.scheduler.job_becomes(JobState::Running);
        self.tick().await;
        self.test.app.sessions.agent_ready(id).await.unwrap();
        id
    }

    async fn requeue(&self, id: SessionId) -> SessionId {
        self.test.app.runs.requeue(&self.ada, id, None).await.unwrap().0.id
    }

    fn submits(&self) -> usize {
        self.test.scheduler.state().submits.len()
    }

    async fn end(&self, id: SessionId) -> (SessionState, String, Option<i32>) {
        let row = self.row(id).await;
        (row.state, row.reason.map(|reason| reason.code).unwrap_or_default(), row.exit_status)
    }
}

#[tokio::test]
async fn a_run_becomes_a_job_whose_file_says_what_to_run() {
    let mut engine = Engine::new().await;
    let id = engine.start_run().await;
    engine.submit().await;
    let files = engine.test.launcher.job_files();
    assert_eq!((files.len(), files[0].session), (1, id));
    assert_eq!(
        (files[0].app.app.as_str(), files[0].app.run.clone()),
        ("run", Some(eirene_services::testing::program()))
    );
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    assert_eq!(engine.reason(id).await, "program_starting");
    engine.start().await;
    engine.submit().await;
    assert_eq!(engine.test.launcher.job_files()[1].app.run, None, "a session has its app");
}

#[tokio::test]
async fn a_run_ends_as_its_program_did() {
    use SessionState::{Ended, Failed};
    for (outcome, job, expected) in [
        (Some(AppOutcome::Ended), JobState::Completed, (Ended, "program_ended", Some(0))),
        (Some(AppOutcome::Failed(3)), JobState::Failed, (Failed, "program_failed", Some(3))),
        (Some(AppOutcome::Failed(3)), JobState::Completed, (Failed, "program_failed", Some(3))),
        (Some(AppOutcome::WalltimeReached), JobState::Completed, (Failed, "time_too_short", None)),
        (Some(AppOutcome::NeverReady(120)), JobState::Failed, (Failed, "never_ready", None)),
        (Some(AppOutcome::NotStarted(None)), JobState::Failed, (Failed, "agent_failed", None)),
        (None, JobState::Completed, (Ended, "program_ended", None)),
        (None, JobState::TimedOut, (Failed, "time_too_short", None)),
        (None, JobState::Cancelled, (Ended, "cancelled", None)),
        (None, JobState::OutOfMemory, (Failed, "out_of_memory", None)),
    ] {
        let mut engine = Engine::new().await;
        let id = engine.running_run().await;
        if let Some(outcome) = outcome {
            engine.test.app.sessions.app_exited(id, outcome).await.unwrap();
        }
        engine.test.scheduler.job_becomes(job);
        engine.tick().await;
        let (state, code, status) = engine.end(id).await;
        assert_eq!((state, code.as_str(), status), expected);
        let text = engine.row(id).await.reason.unwrap().text;
        assert!(!text.contains("app"), "a run has a program, no app: {text}");
    }
}

#[tokio::test]
async fn a_program_that_a_signal_ended_has_failed_and_the_scheduler_may_say_why() {
    for (job, expected) in [
        (JobState::Completed, "program_failed"),
        (JobState::Failed, "program_failed"),
        (JobState::OutOfMemory, "out_of_memory"),
        (JobState::NodeFailed, "node_failed"),
    ] {
        let mut engine = Engine::new().await;
        let id = engine.running_run().await;
        engine.test.app.sessions.program_killed(id, 137).await.unwrap();
        engine.test.scheduler.job_becomes(job);
        engine.tick().await;
        assert_eq!(engine.end(id).await, (SessionState::Failed, expected.to_owned(), Some(137)));
    }
}

/// What its agent says of its node's memory, as a share of what it may have.
async fn says_memory(engine: &Engine, id: SessionId, share: f64) {
    let node = engine.row(id).await.nodes[0].clone();
    let sample = |name: &str, value| Sample { series: name.parse().unwrap(), value };
    let samples = vec![sample("memory_bytes", share * 1e9), sample("memory_limit_bytes", 1e9)];
    let node = NodeName::try_from(node.as_str()).unwrap();
    let batch = Batch { node, at: engine.test.app.clock.now(), confinement: Confinement::None, held: None, samples };
    let mut ingest = engine.test.app.samples.ingest(id);
    ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
}

#[tokio::test]
async fn a_kill_without_a_word_is_of_memory_where_memory_was_full_and_only_there() {
    let killed = |exit_code| {
        move |job: &mut Job| {
            job.state = JobState::Failed;
            job.exit_code = Some(exit_code);
            job.reason = Some(Reason::new("signalled", say("job.signalled")));
        }
    };
    for (memory, exit_code, expected) in [
        (Some(1.2), 137, "out_of_memory"),
        (Some(0.91), 137, "out_of_memory"),
        (Some(0.5), 137, "signalled"),
        (Some(1.2), 143, "signalled"),
        (None, 137, "signalled"),
    ] {
        let mut engine = Engine::new().await;
        engine.test.app.samples.open().unwrap();
        let id = engine.running_run().await;
        if let Some(memory) = memory {
            says_memory(&engine, id, memory).await;
        }
        engine.test.scheduler.change_job(killed(exit_code));
        engine.tick().await;
        let (state, code, _) = engine.end(id).await;
        assert_eq!((state, code.as_str()), (SessionState::Failed, expected), "{memory:?} {exit_code}");
    }
    let mut engine = Engine::new().await;
    let id = engine.running_run().await;
    engine.test.scheduler.change_job(killed(137));
    engine.tick().await;
    assert_eq!(engine.end(id).await.1, "signalled", "without the samples nothing is concluded");
}

#[tokio::test]
async fn a_preempted_run_goes_back_to_the_queue_and_starts_again() {
    let mut engine = Engine::new().await;
    let id = engine.running_run().await;
    engine.test.app.sessions.program_killed(id, 143).await.unwrap();
    engine.test.scheduler.change_job(|job| {
        job.restart_count = 1;
        job.state = JobState::Pending;
        job.nodes.clear();
    });
    engine.tick().await;
    assert_eq!((engine.row(id).await.state, engine.row(id).await.restart_count), (SessionState::Queued, 1));
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.tick().await;
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    assert_eq!(engine.row(id).await.state, SessionState::Running);
    let files = engine.test.launcher.job_files();
    assert_eq!((files.len(), files[1].restart_count), (2, 1));
    assert_eq!(files[1].app.run, files[0].app.run, "the same program again");
    assert_ne!(files[0].secret, files[1].secret);
    assert_eq!(engine.submits(), 1, "it is the scheduler that starts it again");
    engine.test.scheduler.job_becomes(JobState::Completed);
    engine.tick().await;
    let ended = (SessionState::Ended, "program_ended".to_owned(), None);
    assert_eq!(engine.end(id).await, ended, "how the first start ended says nothing");
}

#[tokio::test]
async fn what_repeats_a_run_is_not_submitted_before_that_one_is_over() {
    let mut engine = Engine::new().await;
    let first = engine.running_run().await;
    let second = engine.requeue(first).await;
    assert_eq!(
        (engine.row(first).await.desired, engine.reason(second).await.as_str()),
        (Desired::Ended, "earlier_run")
    );
    engine.submit().await;
    let mut engine = engine.restarted();
    engine.pass(120).await;
    engine.submit().await;
    assert_eq!(engine.submits(), 1, "the first still has its job");
    engine.stop.run().await.unwrap();
    engine.submit().await;
    assert_eq!((engine.submits(), engine.row(second).await.state), (1, SessionState::Queued), "it is being cancelled");
    engine.tick().await;
    assert_eq!(engine.row(first).await.state, SessionState::Ended);
    engine.pass(30).await;
    engine.submit().await;
    assert_eq!(engine.submits(), 2);
    let row = engine.row(second).await;
    assert!(row.job.is_some() && row.reason.is_none(), "{row:?}");
}

#[tokio::test]
async fn a_requeue_that_was_cut_off_before_it_asked_the_first_to_end_is_made_good() {
    let mut engine = Engine::new().await;
    let first = engine.running_run().await;
    let second = engine.requeue(first).await;
    // As if killed between the two: the second is there, the first was asked nothing.
    let unasked = |run: &mut Session| run.desired = Desired::Running;
    engine.test.app.sessions.change(first, unasked).await.unwrap();
    let mut engine = engine.restarted();
    engine.submit().await;
    assert_eq!(engine.row(first).await.desired, Desired::Ended);
    engine.tick().await;
    engine.stop.run().await.unwrap();
    engine.tick().await;
    engine.pass(30).await;
    engine.submit().await;
    assert_eq!((engine.submits(), engine.row(second).await.job.is_some()), (2, true));
}

#[tokio::test]
async fn a_requeue_of_what_still_waits_waits_for_all_before_it() {
    let mut engine = Engine::new().await;
    let first = engine.running_run().await;
    let second = engine.requeue(first).await;
    let third = engine.requeue(second).await;
    // The second was never submitted, so it is over before the first is.
    engine.test.scheduler.state().reachable = false;
    let _ = engine.stop.run().await;
    engine.test.scheduler.state().reachable = true;
    assert_eq!(
        (engine.row(second).await.state, engine.row(first).await.state.is_final()),
        (SessionState::Ended, false)
    );
    engine.submit().await;
    assert_eq!((engine.submits(), engine.reason(third).await.as_str()), (1, "earlier_run"));
    engine.pass(10).await;
    engine.stop.run().await.unwrap();
    engine.tick().await;
    engine.submit().await;
    assert_eq!((engine.submits(), engine.row(third).await.job.is_some()), (2, true));
}

#[tokio::test]
async fn a_waiting_repetition_can_be_cancelled_and_the_first_ends_all_the_same() {
    let mut engine = Engine::new().await;
    let first = engine.running_run().await;
    let second = engine.requeue(first).await;
    engine.test.app.runs.cancel(&engine.ada, second).await.unwrap();
    engine.stop.run().await.unwrap();
    engine.tick().await;
    engine.submit().await;
    for id in [first, second] {
        assert_eq!(engine.end(id).await, (SessionState::Ended, "stopped".to_owned(), None));
    }
    assert_eq!(engine.submits(), 1);
}

#[tokio::test]
async fn what_ended_by_itself_is_not_cancelled_unless_its_job_stays() {
    for outcome in [
        AppOutcome::Ended,
        AppOutcome::Failed(3),
        AppOutcome::NeverReady(120),
        AppOutcome::WalltimeReached,
        AppOutcome::NotStarted(None),
    ] {
        let mut engine = Engine::new().await;
        let id = engine.running_run().await;
        engine.test.app.sessions.app_exited(id, outcome.clone()).await.unwrap();
        engine.stop.run().await.unwrap();
        engine.tick().await;
        engine.stop.run().await.unwrap();
        assert!(engine.test.scheduler.state().cancels.is_empty(), "{outcome:?}: SLURM is to say how it ended");
        engine.pass(engine.test.app.config.agent.stop_within_s.into()).await;
        engine.stop.run().await.unwrap();
        assert_eq!(engine.test.scheduler.state().cancels.len(), 1, "{outcome:?}: its allocation is given back");
    }
}

#[tokio::test]
async fn a_stopped_run_is_cancelled_once_its_agent_has_ended_the_program() {
    let mut engine = Engine::new().await;
    let id = engine.running_run().await;
    let sessions = engine.test.app.sessions.clone();
    sessions.program_stopped(id).await.unwrap();
    assert_eq!(engine.end(id).await, (SessionState::Running, String::new(), None), "nobody has asked");
    engine.test.app.runs.cancel(&engine.ada, id).await.unwrap();
    sessions.program_stopped(id).await.unwrap();
    engine.stop.run().await.unwrap();
    assert_eq!(engine.test.scheduler.state().cancels.len(), 1);
    engine.tick().await;
    assert_eq!(engine.end(id).await, (SessionState::Ended, "stopped".to_owned(), None));
}
