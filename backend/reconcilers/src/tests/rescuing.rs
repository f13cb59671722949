//! What a killed job left is brought back once, whoever is killed meanwhile, and what cannot be is given up and said.

use eirene_core::launcher::LauncherRequest;
use eirene_core::scheduler::JobState;
use eirene_core::scratch::{brought_out, not_brought_out};
use eirene_core::{KeptOn, ScratchPhase, ScratchState, SessionState};
use eirene_services::testing::SubmitMood;
use jiff::SignedDuration;

use super::super::scratch_rescue::MOST_LOGS;
use super::*;

const DAY_S: i64 = 24 * 3600;

fn wish(lists: &str) -> eirene_services::sessions::StartSession {
    eirene_services::sessions::StartSession { scratch: Some(serde_json::from_str(lists).unwrap()), ..TestApp::wish() }
}

const OUT: &str = r#"{"kind":"node","stage_out":[{"from":"out","to":"home:kept"}]}"#;
const ON_DEMAND: &str = r#"{"kind":"beeond","stage_out":[{"from":"out","to":"home:kept"}]}"#;

impl Engine {
    /// Where file systems over the nodes of jobs are offered.
    async fn with_beeond() -> Self {
        let mut test = TestApp::new().await;
        let mut config = (*test.app.config).clone();
        config.scratch.beeond = Some("/mnt/beeond".into());
        test.rebuild(config);
        let ada = test.ada().await;
        Self::over(test, ada)
    }

    /// Every job's own log ends so.
    fn job_log_ends(&self, words: &str) {
        *self.test.launcher.job_log.lock().unwrap() = format!("worked\n[eirene] {words}\n");
    }

    /// A session that is over, on this many nodes, and what its agent said last of its scratch.
    async fn left(&mut self, lists: &str, phase: Option<ScratchPhase>) -> SessionId {
        let id = self.test.app.sessions.start(&self.ada, wish(lists), None).await.unwrap().0.id;
        let nodes = || vec!["c1".parse().unwrap()];
        self.test.app.sessions.change(id, |session| session.nodes = nodes()).await.unwrap();
        if let Some(phase) = phase {
            self.test.app.sessions.scratch_said(id, ScratchState::new(0, phase, vec![])).await.unwrap();
        }
        self.test.app.sessions.change(id, |session| session.state = SessionState::Failed).await.unwrap();
        self.poller.look().await;
        id
    }

    /// A minute passes, then the cluster is looked at, and what was left is looked after.
    async fn rescue(&mut self) {
        self.test.clock.advance_s(60);
        self.poller.look().await;
        self.rescue.run().await.unwrap();
        self.adopt.run().await.unwrap();
    }

    /// Makes the nodes of the last look take jobs, or not.
    fn nodes_are(&self, available: bool) {
        let mut snapshot = (*self.test.app.cluster.snapshot()).clone();
        let mut nodes = (*snapshot.nodes).clone();
        for node in &mut nodes {
            node.available = available;
        }
        snapshot.nodes = std::sync::Arc::new(nodes);
        self.test.app.cluster.publish(snapshot);
    }

    /// Whose jobs' logs were read, the first of them first.
    fn logs_read(&self) -> Vec<SessionId> {
        let calls = self.test.launcher.calls.lock().unwrap();
        let log = |call: &LauncherRequest| match call {
            LauncherRequest::ReadJobLog { session, .. } => Some(*session),
            _ => None,
        };
        calls.iter().filter_map(log).collect()
    }

    fn submitted(&self) -> usize {
        self.test.scheduler.state().submits.len()
    }

    async fn scratch(&self, id: SessionId) -> ScratchState {
        self.row(id).await.scratch_state.unwrap()
    }

    async fn notices(&self) -> Vec<String> {
        let events = self.test.app.db.events_after(0, 10_000).await.unwrap();
        let notices = events.into_iter().filter(|event| event.kind == "notice");
        notices.map(|event| event.data["code"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn what_a_killed_job_left_is_brought_back_by_a_job_of_its_owner_on_that_node() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, Some(ScratchPhase::Ready)).await;
    engine.rescue().await;
    engine.rescue().await;
    let row = engine.row(id).await;
    let kept = &row.scratch_state.as_ref().unwrap().kept[0];
    {
        let scheduler = engine.test.scheduler.state();
        assert_eq!(scheduler.submits.len(), 1);
        let (person, spec) = &scheduler.submits[0];
        let job = kept.rescue.job.as_ref().unwrap();
        assert_eq!((person.as_str(), &spec.name), ("ada", &job.marker));
        assert_ne!(job.marker, row.marker);
        assert_eq!((spec.node.as_ref().unwrap().as_str(), spec.nodes, spec.cpus, spec.gpus), ("c1", 1, 1, 0));
        assert_eq!(spec.script, "#!/bin/sh\nexec \"$EIRENE_AGENT\" rescue \"$EIRENE_LEFT_SCRATCH\"\n");
        let left = format!("/local/eirene-scratch-2001/{id}.0");
        assert!(spec.environment.contains(&("EIRENE_LEFT_SCRATCH".into(), left)), "{:?}", spec.environment);
        assert!(spec.environment.iter().all(|(name, _)| name != "EIRENE_JOB_FILE"));
        assert_eq!(job.identity.as_ref(), Some(&scheduler.jobs[0].identity));
    }
    assert_eq!(engine.notices().await, ["scratch_kept"]);
    assert!(engine.test.app.db.adopted_jobs().await.unwrap().is_empty(), "it is nobody's lost job");
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.rescue().await;
    assert_eq!(engine.scratch(id).await.phase, ScratchPhase::Kept);
    engine.test.scheduler.job_becomes(JobState::Completed);
    engine.rescue().await;
    let done = engine.scratch(id).await;
    assert_eq!(
        (done.phase, done.kept.len(), engine.row(id).await.state),
        (ScratchPhase::Done, 0, SessionState::Failed)
    );
    assert_eq!(engine.notices().await, ["scratch_kept", "scratch_rescued"]);
    engine.rescue().await;
    assert_eq!((engine.submitted(), engine.notices().await.len()), (1, 2), "and that is all");
}

#[tokio::test]
async fn a_scratch_that_was_emptied_or_never_heard_of_needs_nobody() {
    let mut engine = Engine::new().await;
    let done = engine.left(OUT, Some(ScratchPhase::Done)).await;
    let silent = engine.left(OUT, None).await;
    let nothing_owed = engine.left(r#"{"kind":"node"}"#, Some(ScratchPhase::Ready)).await;
    engine.rescue().await;
    assert_eq!(engine.scratch(done).await.phase, ScratchPhase::Done);
    assert_eq!(engine.row(silent).await.scratch_state, None);
    assert_eq!(engine.scratch(nothing_owed).await.phase, ScratchPhase::Kept);
    assert_eq!(engine.submitted(), 1, "its directory is removed");
    assert_eq!(engine.notices().await.len(), 0, "and nobody misses anything");
}

#[tokio::test]
async fn a_node_that_is_down_is_waited_for_and_so_is_a_scheduler() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, Some(ScratchPhase::Emptying)).await;
    engine.nodes_are(false);
    for _ in 0..3 {
        engine.test.clock.advance_s(DAY_S);
        engine.rescue.run().await.unwrap();
    }
    assert_eq!((engine.submitted(), engine.scratch(id).await.kept[0].rescue.failures), (0, 0), "nothing is concluded");
    engine.nodes_are(true);
    engine.test.scheduler.state().reachable = false;
    engine.rescue().await;
    engine.rescue().await;
    assert_eq!(engine.submitted(), 0);
    engine.test.scheduler.state().reachable = true;
    for _ in 0..3 {
        engine.rescue().await;
    }
    assert_eq!(engine.submitted(), 1);
}

#[tokio::test]
async fn a_portal_that_is_killed_at_any_line_of_a_submit_has_one_rescue() {
    for mood in [SubmitMood::AnswerLost, SubmitMood::NothingHappens] {
        for restarts in [false, true] {
            let mut engine = Engine::new().await;
            let id = engine.left(OUT, Some(ScratchPhase::Ready)).await;
            engine.test.scheduler.state().mood = mood;
            engine.rescue().await;
            let first = engine.scratch(id).await.kept[0].rescue.job.clone().unwrap();
            assert_eq!(first.identity, None, "{mood:?}");
            engine.test.scheduler.state().mood = SubmitMood::Good;
            if restarts {
                engine = engine.restarted();
            }
            for _ in 0..4 {
                engine.rescue().await;
            }
            let job = engine.scratch(id).await.kept[0].rescue.job.clone().unwrap();
            assert_eq!(job.marker, first.marker, "{mood:?}");
            let scheduler = engine.test.scheduler.state();
            assert_eq!(scheduler.jobs.len(), 1, "{mood:?}");
            assert_eq!(job.identity.as_ref(), Some(&scheduler.jobs[0].identity), "{mood:?}");
        }
    }
}

#[tokio::test]
async fn a_rescue_that_fails_is_tried_again_ever_more_rarely() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, Some(ScratchPhase::Ready)).await;
    let mut gaps = Vec::new();
    for times in 1..=4 {
        let mut minutes = 0;
        while engine.submitted() < times {
            engine.rescue().await;
            minutes += 1;
            assert!(minutes < 100, "it is not tried again");
        }
        gaps.push(minutes);
        let mut state = engine.test.scheduler.state();
        state.jobs.last_mut().unwrap().state = JobState::Failed;
    }
    assert!(gaps.is_sorted() && gaps[3] > 15, "{gaps:?}");
    assert_eq!(engine.scratch(id).await.phase, ScratchPhase::Kept);
    assert_eq!(engine.notices().await, ["scratch_kept"], "told once");
}

#[tokio::test]
async fn what_could_not_be_copied_is_not_tried_again_at_once() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, None).await;
    let kept = vec![KeptOn::new("c1".parse().unwrap(), Some("no room".into()))];
    engine.test.app.sessions.scratch_said(id, ScratchState::new(0, ScratchPhase::Kept, kept)).await.unwrap();
    engine.rescue().await;
    assert_eq!((engine.submitted(), engine.notices().await.len()), (0, 1));
    engine.test.clock.advance_s(300);
    engine.rescue().await;
    assert_eq!(engine.submitted(), 1);
}

#[tokio::test]
async fn after_a_week_it_is_given_up_and_said() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, Some(ScratchPhase::Ready)).await;
    engine.rescue().await;
    assert_eq!(engine.submitted(), 1);
    // Its node went down when it was its turn.
    engine.test.clock.advance_s(7 * DAY_S);
    engine.rescue().await;
    engine.rescue().await;
    assert_eq!(engine.scratch(id).await.phase, ScratchPhase::Lost);
    assert_eq!(engine.notices().await, ["scratch_kept", "scratch_lost"]);
    assert_eq!((engine.submitted(), engine.test.scheduler.state().cancels.len()), (1, 1), "nothing waits any more");
    assert_eq!(engine.test.app.db.sessions_with_scratch_left(10).await.unwrap(), []);
}

#[tokio::test]
async fn a_file_system_over_the_nodes_of_a_job_is_as_its_epilog_says_in_the_jobs_own_log() {
    for is_out in [true, false] {
        for last in [ScratchPhase::Ready, ScratchPhase::Emptying, ScratchPhase::Kept] {
            let mut engine = Engine::with_beeond().await;
            let id = engine.left(ON_DEMAND, Some(last)).await;
            engine.job_log_ends(&brought_out(&format!("{id}.1")));
            engine.rescue().await;
            engine.rescue().await;
            assert_eq!(engine.scratch(id).await.phase, last, "its epilog is at it");
            assert_eq!((engine.submitted(), engine.notices().await.len()), (0, 0), "no job comes for it");
            let name = format!("{id}.0");
            engine.job_log_ends(&if is_out { brought_out(&name) } else { not_brought_out(&name) });
            engine.rescue().await;
            engine.rescue().await;
            let (done, lost) = ((ScratchPhase::Done, "scratch_rescued"), (ScratchPhase::Lost, "scratch_lost"));
            let (phase, notice) = if is_out { done } else { lost };
            assert_eq!(engine.scratch(id).await.phase, phase, "{last}");
            assert_eq!(engine.notices().await, [notice], "{last}");
            assert_eq!(engine.submitted(), 0);
            assert_eq!(engine.test.app.db.sessions_with_scratch_left(10).await.unwrap(), []);
        }
    }
}

#[tokio::test]
async fn an_epilog_that_says_nothing_is_waited_for_as_long_as_one_can_take() {
    let mut engine = Engine::with_beeond().await;
    let id = engine.left(ON_DEMAND, Some(ScratchPhase::Ready)).await;
    let nothing_owed = engine.left(r#"{"kind":"beeond"}"#, Some(ScratchPhase::Ready)).await;
    engine.test.clock.advance_s(2 * 3600);
    engine.rescue().await;
    assert_eq!(engine.scratch(id).await.phase, ScratchPhase::Ready);
    assert_eq!(engine.scratch(nothing_owed).await.phase, ScratchPhase::Done, "nobody has to be waited for");
    engine.test.clock.advance_s(3600);
    engine.rescue().await;
    assert_eq!(engine.scratch(id).await.phase, ScratchPhase::Lost);
    assert_eq!(engine.notices().await, ["scratch_lost"]);
}

#[tokio::test]
async fn a_log_is_looked_at_the_more_rarely_the_longer_its_job_is_over() {
    let mut engine = Engine::with_beeond().await;
    let id = engine.left(ON_DEMAND, Some(ScratchPhase::Ready)).await;
    let (mut looks, mut minutes) = (vec![], 0);
    while engine.scratch(id).await.phase != ScratchPhase::Lost {
        engine.rescue().await;
        minutes += 1;
        if engine.logs_read().len() > looks.len() {
            looks.push(minutes);
        }
        assert!(minutes < 300, "it has no end");
    }
    let gaps: Vec<_> = looks.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(gaps.is_sorted() && gaps[..5] == [1; 5] && gaps.last() == Some(&10), "{gaps:?}");
    assert!((180..=190).contains(&minutes), "{minutes}");
    assert_eq!(engine.notices().await, ["scratch_lost"]);
    engine.rescue().await;
    assert_eq!(engine.logs_read().len(), looks.len(), "and that is all");
}

#[tokio::test]
async fn of_many_logs_few_are_looked_at_in_one_run_and_all_have_their_turn() {
    let mut engine = Engine::with_beeond().await;
    let mut left = Vec::new();
    for _ in 0..MOST_LOGS + 5 {
        left.push(engine.left(ON_DEMAND, Some(ScratchPhase::Ready)).await);
    }
    engine.rescue().await;
    let first = engine.logs_read();
    assert_eq!(first.len(), MOST_LOGS);
    engine.rescue().await;
    let second = engine.logs_read().split_off(MOST_LOGS);
    assert_eq!(second.len(), MOST_LOGS);
    let others: Vec<_> = left.iter().filter(|id| !first.contains(id)).collect();
    assert!(others.len() == 5 && others.iter().all(|id| second.contains(id)), "{others:?}");
    // One that is never heard of makes nobody wait for ever.
    *engine.test.launcher.job_log.lock().unwrap() = brought_out(&format!("{}.0", others[0]));
    for _ in 0..5 {
        engine.rescue().await;
    }
    assert_eq!(engine.scratch(*others[0]).await.phase, ScratchPhase::Done);
    assert_eq!(engine.scratch(first[0]).await.phase, ScratchPhase::Ready);
}

#[tokio::test]
async fn a_launcher_that_is_away_costs_no_attempt_and_a_home_that_refuses_does() {
    let mut engine = Engine::new().await;
    let id = engine.left(OUT, Some(ScratchPhase::Ready)).await;
    *engine.test.launcher.refusal.lock().unwrap() = Some("away");
    engine.test.clock.advance_s(60);
    assert!(engine.rescue.run().await.is_err());
    let before = engine.scratch(id).await.kept[0].rescue.clone();
    assert_eq!((before.failures, before.job), (0, None));
    *engine.test.launcher.refusal.lock().unwrap() = Some("failed");
    engine.rescue().await;
    let after = engine.scratch(id).await.kept[0].rescue.clone();
    let now = eirene_core::Clock::now(&engine.test.clock);
    assert_eq!((after.failures, after.not_before), (1, Some(now + SignedDuration::from_mins(5))));
    *engine.test.launcher.refusal.lock().unwrap() = None;
    assert_eq!(engine.submitted(), 0);
}
