use eirene_core::scheduler::{Job, JobState};
use eirene_core::{Scope, SessionState};
use eirene_services::actor::Via;
use eirene_services::error::AppError;
use eirene_services::sessions::IdempotencyKey;
use eirene_services::testing::SubmitMood;

use super::*;

#[tokio::test]
async fn a_start_becomes_one_job_of_the_size_asked_for() {
    let engine = Engine::new().await;
    let id = engine.start().await;
    engine.submit().await;
    engine.submit().await;
    let row = engine.row(id).await;
    let scheduler = engine.test.scheduler.state();
    assert_eq!(scheduler.submits.len(), 1);
    let (person, spec) = &scheduler.submits[0];
    assert_eq!((person.as_str(), spec.name.as_str()), ("ada", row.marker.as_str()));
    assert_eq!((spec.nodes, spec.cpus, spec.memory_mib, spec.walltime_min), (1, 2, 2048, 60));
    assert_eq!(row.job, Some(scheduler.jobs[0].identity.clone()));
    let files = engine.test.launcher.job_files();
    assert_eq!((files.len(), files[0].session, files[0].restart_count), (1, id, 0));
    let bind = eirene_core::job_file::Bind {
        source: "/data".into(),
        target: "/data".into(),
        writable: false,
        optional: false,
    };
    assert_eq!(files[0].app.binds, [bind], "what the configuration says every session sees");
    assert_eq!((&spec.account, &spec.qos), (&None, &None), "the person's own defaults");
    let secret = &files[0].secret;
    assert!(!format!("{spec:?}").contains(secret.as_str()), "the secret is in the file alone");
    let job_file = format!("/home/ada/.eirene/sessions/{id}/job.json");
    assert!(spec.environment.contains(&("EIRENE_JOB_FILE".into(), job_file)));
}

#[tokio::test]
async fn a_session_sees_its_persons_spaces_that_are_there_and_nobody_elses() {
    use eirene_core::{Space, SpaceId, SpaceKind, SpaceOwner, SpaceState};
    use eirene_services::spaces::testing::{a_space, person};

    let engine = Engine::new().await;
    let add = async |name: &str, root: &str, owner: SpaceOwner, writable: bool, state: SpaceState| {
        let (id, name, root) = (SpaceId::generate(), name.parse().unwrap(), root.parse().unwrap());
        let space = Space { id, name, root, writable, state, kind: SpaceKind::Project, ..a_space(owner) };
        engine.test.app.db.insert_space(space, &[]).await.unwrap();
    };
    let group = |name: &str| SpaceOwner::Group(name.parse().unwrap());
    let grace = engine.test.person("grace", 2002, eirene_core::Role::Researcher).await;
    let there = SpaceState::Present;
    add("scratch-ada", "scratch", person(engine.ada.user.id, "ada"), true, there).await;
    add("scratch-grace", "scratch", person(grace.user.id, "grace"), true, there).await;
    add("stars", "project", group("physics"), true, there).await;
    add("moons", "project", group("chemistry"), true, there).await;
    add("data", "project", SpaceOwner::Everybody, false, there).await;
    add("old", "project", group("physics"), true, SpaceState::Retired).await;
    add("new", "project", group("physics"), true, SpaceState::Wanted).await;
    add("lost", "no-root-any-more", group("physics"), true, there).await;
    engine.test.groups.add("ada", "physics");
    engine.start().await;
    engine.submit().await;
    let files = engine.test.launcher.job_files();
    let mut binds: Vec<_> = files[0].app.binds[1..]
        .iter()
        .map(|bind| (bind.source.as_str(), bind.target.as_str(), bind.writable, bind.optional))
        .collect();
    binds.sort_unstable();
    assert_eq!(
        binds,
        [
            ("/b/project/data", "/project/data", false, true),
            ("/b/project/stars", "/project/stars", true, true),
            ("/n/scratch/scratch-ada", "/scratch", true, true),
        ]
    );
}

#[tokio::test]
async fn a_scratch_is_filled_from_and_emptied_to_the_persons_spaces_and_nobody_elses() {
    use eirene_core::{Space, SpaceId, SpaceKind, SpaceOwner};
    use eirene_services::spaces::testing::{a_space, person};

    let engine = Engine::new().await;
    let add = async |name: &str, root: &str, owner: SpaceOwner| {
        let (id, name, root) = (SpaceId::generate(), name.parse().unwrap(), root.parse().unwrap());
        let space = Space { id, name, root, kind: SpaceKind::Project, ..a_space(owner) };
        engine.test.app.db.insert_space(space, &[]).await.unwrap();
    };
    let grace = engine.test.person("grace", 2002, eirene_core::Role::Researcher).await;
    add("scratch-ada", "scratch", person(engine.ada.user.id, "ada")).await;
    add("scratch-grace", "scratch", person(grace.user.id, "grace")).await;
    add("stars", "project", SpaceOwner::Group("physics".parse().unwrap())).await;
    add("moons", "project", SpaceOwner::Group("chemistry".parse().unwrap())).await;
    add("data", "project", SpaceOwner::Everybody).await;
    engine.test.groups.add("ada", "physics");
    let asked = |from: &str, to: &str| eirene_services::sessions::StartSession {
        scratch: serde_json::from_value(serde_json::json!({
            "kind": "node", "stage_in": [{"from": from, "to": "in"}], "stage_out": [{"from": "out", "to": to}],
        }))
        .unwrap(),
        ..TestApp::wish()
    };
    let refused =
        async |from: &str, to: &str| match engine.test.app.sessions.start(&engine.ada, asked(from, to), None).await {
            Err(AppError::Invalid(errors)) => {
                errors.into_iter().map(|error| error.message).collect::<Vec<String>>().join("; ")
            }
            other => panic!("{from} {to}: {other:?}"),
        };
    // Somebody else's and what is nowhere are told alike.
    let nowhere = refused("nowhere:a", "home:b").await;
    for theirs in ["scratch-grace", "moons"] {
        let said = refused(&format!("{theirs}:a"), "home:b").await;
        assert_eq!(said, nowhere.replace("nowhere", theirs));
        assert_eq!(refused("home:a", &format!("{theirs}:b")).await, said);
    }
    assert!(refused("stars:a", "data:b").await.contains("there to be read"));
    assert!(engine.test.app.db.live_sessions().await.unwrap().is_empty(), "nothing was started");
    engine.test.app.sessions.start(&engine.ada, asked("data:a", "stars:b"), None).await.unwrap();
    engine.test.app.sessions.start(&engine.ada, asked("home:a", "scratch:b"), None).await.unwrap();
    engine.submit().await;
    let mut places: Vec<Vec<(String, String)>> = engine
        .test
        .launcher
        .job_files()
        .iter()
        .map(|file| {
            let spaces = &file.app.scratch.as_ref().unwrap().spaces;
            spaces.iter().map(|(name, path)| (name.to_string(), path.clone())).collect()
        })
        .collect();
    places.sort();
    let at = |name: &str, path: &str| (name.to_owned(), path.to_owned());
    assert_eq!(
        places,
        [
            vec![at("data", "/b/project/data"), at("stars", "/b/project/stars")],
            vec![at("scratch", "/n/scratch/scratch-ada")],
        ]
    );
}

#[tokio::test]
async fn a_user_database_that_is_away_holds_up_a_submit_and_takes_no_space_from_it() {
    let engine = Engine::new().await;
    let group = eirene_core::SpaceOwner::Group("physics".parse().unwrap());
    let space = eirene_services::spaces::testing::a_space(group);
    engine.test.app.db.insert_space(space, &[]).await.unwrap();
    engine.test.groups.go_away();
    let id = engine.start().await;
    engine.submit().await;
    let row = engine.row(id).await;
    assert_eq!((row.state, row.reason.unwrap().code.as_str()), (SessionState::Queued, "people_away"));
    assert!(engine.test.launcher.job_files().is_empty());
}

#[tokio::test]
async fn account_and_qos_are_the_configurations_where_the_session_names_none() {
    let mut engine = Engine::new().await;
    let mut config = (*engine.test.app.config).clone();
    config.slurm.account = Some("interactive".parse().unwrap());
    config.slurm.qos = Some("short".parse().unwrap());
    engine.test.app = engine.test.app.with(|services| services.config = std::sync::Arc::new(config));
    let mut row = eirene_services::testing::session("ada");
    row.project = Some("physics".parse().unwrap());
    let spec = |session: &eirene_core::Session| {
        crate::submit::job_spec(&engine.test.app, session, "/home/ada/.eirene/sessions/x")
    };
    let named = |spec: &eirene_core::scheduler::JobSpec| {
        (spec.account.as_ref().map(ToString::to_string), spec.qos.as_ref().map(ToString::to_string))
    };
    assert_eq!(named(&spec(&row)), (Some("physics".into()), Some("short".into())));
    row.project = None;
    assert_eq!(named(&spec(&row)), (Some("interactive".into()), Some("short".into())));
}

#[tokio::test]
async fn a_scratch_is_in_the_job_file_and_its_end_has_time_of_its_own() {
    let engine = Engine::new().await;
    let lists = r#"{"kind":"node","stage_in":[{"from":"home:a","to":"a"}],"stage_out":[{"from":"b","to":"home:b"}]}"#;
    let wish = || eirene_services::sessions::StartSession {
        scratch: Some(serde_json::from_str(lists).unwrap()),
        ..TestApp::wish()
    };
    let (session, _) = engine.test.app.sessions.start(&engine.ada, wish(), None).await.unwrap();
    engine.submit().await;
    let file = engine.test.launcher.job_files()[0].app.scratch.clone().unwrap();
    assert_eq!((Some(&file.wanted), file.base.as_str(), file.reserve_s), (session.scratch.as_ref(), "/local", 600));
    let spec = engine.test.scheduler.state().submits[0].1.clone();
    assert_eq!((spec.warn_before_end_s, spec.feature), (120 + 600, None), "an hour is warned of two minutes before");
    let mut row = session;
    row.scratch = Some(serde_json::from_str(r#"{"kind":"beeond"}"#).unwrap());
    let spec = crate::submit::job_spec(&engine.test.app, &row, "/home/ada/.eirene/sessions/x");
    assert_eq!(spec.feature.map(|feature| feature.to_string()).as_deref(), Some("beeond"));
    assert_eq!(spec.warn_before_end_s, 120, "nothing is copied back");
}

#[tokio::test]
async fn two_starts_with_one_key_are_one_session_even_at_the_limit() {
    let engine = Engine::new().await;
    let (app, ada) = (&engine.test.app, &engine.ada);
    let key = |body: &str| Some(IdempotencyKey { key: "k".into(), body_sha256: body.into() });
    let (one, two) = tokio::join!(
        app.sessions.start(ada, TestApp::wish(), key("b")),
        app.sessions.start(ada, TestApp::wish(), key("b"))
    );
    let ((one, first), (two, second)) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id, two.id);
    assert!(first != second, "one of them is new");
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().submits.len(), 1);
    let other = app.sessions.start(ada, TestApp::wish(), key("c")).await;
    assert!(matches!(other, Err(AppError::Conflict { code: "idempotency_key_reused", .. })));
    for _ in 1..3 {
        engine.start().await;
    }
    let over = app.sessions.start(ada, TestApp::wish(), None).await;
    assert!(matches!(over, Err(AppError::Conflict { code: "too_many_sessions", .. })));
    let again = app.sessions.start(ada, TestApp::wish(), key("b")).await.unwrap();
    assert_eq!((again.0.id, again.1), (one.id, false), "the same request has the same answer");
}

#[tokio::test]
async fn starts_at_once_do_not_pass_the_limit_together() {
    let engine = Engine::new().await;
    let (app, ada) = (&engine.test.app, &engine.ada);
    let starts = (0..9).map(|_| app.sessions.start(ada, TestApp::wish(), None));
    let answers = futures_util::future::join_all(starts).await;
    let most = app.config.limits.live_sessions as usize;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), most);
    let refused =
        |answer: &Result<_, AppError>| matches!(answer, Err(AppError::Conflict { code: "too_many_sessions", .. }));
    assert_eq!(answers.iter().filter(|answer| refused(answer)).count(), 9 - most);
}

#[tokio::test]
async fn who_may_not_start_starts_nothing() {
    let engine = Engine::new().await;
    let sessions = &engine.test.app.sessions;
    let mut reader = engine.ada.clone();
    reader.via = Via::Token { id: eirene_core::TokenId::generate(), scopes: vec![Scope::Read] };
    let refused = sessions.start(&reader, TestApp::wish(), None).await;
    assert!(matches!(refused, Err(AppError::Forbidden { code: "insufficient_scope", .. })));
    let mut nobody = engine.ada.clone();
    nobody.user.uid = None;
    let refused = sessions.start(&nobody, TestApp::wish(), None).await;
    assert!(matches!(refused, Err(AppError::Forbidden { code: "no_cluster_user", .. })));
    let mut wish = TestApp::wish();
    wish.image = "nothing".parse().unwrap();
    wish.resources.gpus = 1_000_000_000;
    let Err(AppError::Invalid(errors)) = sessions.start(&engine.ada, wish, None).await else { panic!("accepted") };
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["gpus", "image"]);
    assert!(engine.test.app.db.live_sessions().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_lost_answer_is_found_again_and_not_repeated() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
    let id = engine.start().await;
    engine.submit().await;
    assert_eq!(engine.row(id).await.job, None);
    assert_eq!(engine.reason(id).await, "submit_undetermined");
    engine.tick().await;
    engine.submit().await;
    let job = engine.test.scheduler.state().jobs[0].identity.clone();
    assert_eq!(engine.row(id).await.job, Some(job));
    assert_eq!(engine.test.scheduler.state().submits.len(), 1);
}

#[tokio::test]
async fn a_kill_between_submit_and_store_makes_no_second_job() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
    let id = engine.start().await;
    engine.submit().await;
    let mut engine = {
        engine.test.scheduler.state().mood = SubmitMood::Good;
        engine.tick().await;
        engine.restarted()
    };
    engine.submit().await;
    assert!(engine.row(id).await.job.is_some());
    engine.pass(60).await;
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().jobs.len(), 1);
    assert_eq!(engine.test.launcher.job_files().len(), 1, "the secret of the job that runs is not replaced");
}

#[tokio::test]
async fn a_job_that_is_quicker_than_the_search_for_it_is_found_all_the_same() {
    let engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
    let id = engine.start().await;
    engine.submit().await;
    let mut engine = engine.restarted();
    // It began while there was no portal, and its agent is there before the first look at the scheduler.
    engine.test.scheduler.job_becomes(JobState::Running);
    engine.test.app.sessions.agent_ready(id).await.unwrap();
    engine.submit().await;
    assert_eq!(engine.row(id).await.job, None, "nothing was looked at");
    engine.tick().await;
    engine.submit().await;
    engine.tick().await;
    let row = engine.row(id).await;
    assert_eq!(row.job, Some(engine.test.scheduler.state().jobs[0].identity.clone()));
    assert_eq!((row.state, row.nodes.len()), (SessionState::Running, 1));
    assert_eq!(engine.test.scheduler.state().submits.len(), 1);
}

#[tokio::test]
async fn a_job_that_began_and_is_gone_before_it_was_found_ends_its_session() {
    for remembered in [true, false] {
        let engine = Engine::new().await;
        engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
        let id = engine.start().await;
        engine.submit().await;
        engine.test.app.sessions.agent_ready(id).await.unwrap();
        let jobs = std::mem::take(&mut engine.test.scheduler.state().jobs);
        if remembered {
            let over = jobs.into_iter().map(|job| Job { state: JobState::Completed, ..job });
            engine.test.scheduler.state().accounted.extend(over);
        }
        let mut engine = engine.restarted();
        let states = async |engine: &mut Engine, seconds: u32| {
            for _ in 0..seconds {
                engine.tick().await;
                engine.submit().await;
            }
            engine.tick().await;
            engine.row(id).await.state
        };
        assert_eq!(states(&mut engine, 10).await, SessionState::Running, "a lost submit may be on its way");
        if remembered {
            assert_eq!(states(&mut engine, 20).await, SessionState::Ended);
        } else {
            assert_eq!(states(&mut engine, 40).await, SessionState::Running, "its agent may come back");
            assert_eq!(states(&mut engine, 40).await, SessionState::Failed);
            assert_eq!(engine.reason(id).await, "job_vanished");
        }
        assert_eq!(engine.test.scheduler.state().submits.len(), 1);
    }
}

#[tokio::test]
async fn a_submit_that_left_nothing_is_repeated_only_when_both_lists_say_so() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::NothingHappens;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.scheduler.state().mood = SubmitMood::Good;
    engine.tick().await;
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().submits.len(), 1, "it may still be on its way");
    engine.test.scheduler.state().accounting_reachable = false;
    engine.pass(30).await;
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().submits.len(), 1, "accounting has not been asked");
    engine.test.scheduler.state().accounting_reachable = true;
    engine.tick().await;
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().submits.len(), 2);
    let row = engine.row(id).await;
    assert_eq!(row.job, Some(engine.test.scheduler.state().jobs[0].identity.clone()));
    assert_eq!(row.state, SessionState::Queued);
}

#[tokio::test]
async fn a_cluster_without_accounting_is_believed_after_a_minute() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().accounting = false;
    engine.test.scheduler.state().mood = SubmitMood::NothingHappens;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.scheduler.state().mood = SubmitMood::Good;
    for _ in 0..20 {
        engine.tick().await;
        engine.submit().await;
    }
    assert_eq!(engine.test.scheduler.state().submits.len(), 1, "not yet");
    for _ in 0..60 {
        engine.tick().await;
        engine.submit().await;
    }
    assert_eq!(engine.test.scheduler.state().submits.len(), 2);
    engine.test.scheduler.state().jobs.clear();
    for _ in 0..90 {
        engine.tick().await;
    }
    assert_eq!(engine.reason(id).await, "job_vanished");
}

#[tokio::test]
async fn a_submit_that_leaves_nothing_again_and_again_is_tried_ever_more_rarely() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::NothingHappens;
    engine.start().await;
    for _ in 0..600 {
        engine.submit().await;
        engine.pass(2).await;
    }
    let submits = engine.test.scheduler.state().submits.len();
    assert!((5..12).contains(&submits), "{submits} in twenty minutes");
}

#[tokio::test]
async fn a_marker_on_somebody_elses_job_is_not_believed() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::AnswerLost;
    let id = engine.start().await;
    engine.submit().await;
    engine.test.scheduler.change_job(|job| job.uid = 2002);
    engine.tick().await;
    engine.submit().await;
    assert_eq!(engine.row(id).await.job, None);
}

#[tokio::test]
async fn a_refusal_ends_the_session_with_the_schedulers_reason() {
    let engine = Engine::new().await;
    engine.test.scheduler.state().mood = SubmitMood::Refuses;
    let id = engine.start().await;
    engine.submit().await;
    assert_eq!(engine.row(id).await.state, SessionState::Failed);
    assert_eq!(engine.reason(id).await, "no_account");
    engine.submit().await;
    assert_eq!(engine.test.scheduler.state().submits.len(), 1);
}

#[tokio::test]
async fn a_full_home_is_tried_again_and_then_named() {
    let engine = Engine::new().await;
    *engine.test.launcher.refusal.lock().unwrap() = Some("failed");
    let id = engine.start().await;
    engine.submit().await;
    assert_eq!(engine.row(id).await.state, SessionState::Queued);
    assert_eq!(engine.reason(id).await, "home_unwritable");
    engine.test.clock.advance_s(60);
    engine.submit().await;
    assert_eq!(engine.row(id).await.state, SessionState::Queued);
    engine.test.clock.advance_s(60);
    engine.submit().await;
    assert_eq!(engine.row(id).await.state, SessionState::Failed);
    assert_eq!(engine.reason(id).await, "home_unwritable");
    assert!(engine.test.scheduler.state().submits.is_empty());
}

#[tokio::test]
async fn a_launcher_that_is_away_is_waited_for() {
    let engine = Engine::new().await;
    *engine.test.launcher.refusal.lock().unwrap() = Some("away");
    let id = engine.start().await;
    for _ in 0..10 {
        engine.submit().await;
    }
    assert_eq!(
        (engine.row(id).await.state, engine.reason(id).await.as_str()),
        (SessionState::Queued, "launcher_unreachable")
    );
    *engine.test.launcher.refusal.lock().unwrap() = None;
    engine.submit().await;
    assert!(engine.row(id).await.job.is_some());
}

#[tokio::test]
async fn a_person_the_cluster_does_not_know_is_told_so_at_once() {
    let engine = Engine::new().await;
    *engine.test.launcher.refusal.lock().unwrap() = Some("unknown_person");
    let id = engine.start().await;
    engine.submit().await;
    assert_eq!(
        (engine.row(id).await.state, engine.reason(id).await.as_str()),
        (SessionState::Failed, "no_cluster_user")
    );
}

#[tokio::test]
async fn a_scheduler_that_is_away_is_not_asked_and_the_session_says_so() {
    let mut engine = Engine::new().await;
    engine.test.scheduler.state().reachable = false;
    engine.tick().await;
    engine.tick().await;
    let id = engine.start().await;
    engine.submit().await;
    assert_eq!(engine.reason(id).await, "scheduler_unreachable");
    assert_eq!(engine.row(id).await.submit_begun_at, None);
    engine.test.scheduler.state().reachable = true;
    engine.tick().await;
    engine.submit().await;
    assert!(engine.row(id).await.job.is_some());
    assert_eq!(engine.test.scheduler.state().jobs[0].state, JobState::Pending);
}
