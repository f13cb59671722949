//! What a run may be, being like a session, doing it again, and that nobody else gets at it.

use std::collections::BTreeSet;

use eirene_core::{Role, ScratchKind, SessionState};
use futures_util::StreamExt as _;

use super::*;
use crate::actor::Via;
use crate::sessions::StartSession;
use crate::testing::{self, TestApp, entry};

fn fields(change: impl Fn(&mut RunProgram, &mut Resources)) -> Vec<String> {
    let (mut program, mut resources) = (testing::program(), testing::small());
    change(&mut program, &mut resources);
    wrong_program(&program, &resources).into_iter().map(|error| error.field).collect()
}

fn code<T>(answer: Result<T, AppError>) -> &'static str {
    match answer {
        Err(AppError::Conflict { code, .. } | AppError::Forbidden { code, .. }) => code,
        Err(AppError::NotFound) => "not_found",
        Err(AppError::Hidden) => "hidden",
        Err(AppError::Invalid(_)) => "invalid",
        Err(other) => panic!("{other}"),
        Ok(_) => "done",
    }
}

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { key: name.into(), body_sha256: "requeue".into() }
}

/// What is wrong, by field.
fn wrong<T>(answer: Result<T, AppError>) -> Vec<FieldError> {
    match answer {
        Err(AppError::Invalid(errors)) => errors,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

/// A wish that leaves everything to this session.
fn like(session: SessionId) -> StartRun {
    StartRun { like: Some(session), image: None, size: RunSize::Parts(SizeParts::default()), ..TestApp::run_wish() }
}

/// A session with all that a run can have of it, and with what it cannot.
fn rich_wish() -> StartSession {
    StartSession {
        project: Some("optics".parse().unwrap()),
        resources: Resources {
            partition: Some("main".parse().unwrap()),
            gpus: 2,
            gpu_type: Some("a100".parse().unwrap()),
            walltime_min: 240,
            ..testing::small()
        },
        scratch: Some(ScratchSpec { kind: ScratchKind::Node, size_mib: None, stage_in: vec![], stage_out: vec![] }),
        ..TestApp::wish()
    }
}

/// What has happened to the row since.
async fn is_over(test: &TestApp, id: SessionId) {
    let ended = test.app.sessions.change(id, |run| run.state = SessionState::Ended).await.unwrap();
    assert!(ended.is_some());
}

#[test]
fn what_cannot_be_run_is_named_by_its_field() {
    assert_eq!(fields(|_, _| {}), Vec::<String>::new());
    assert_eq!(fields(|program, _| program.ranks = None), Vec::<String>::new());
    assert_eq!(fields(|program, _| program.file = "data/".into()), ["file"]);
    assert_eq!(fields(|program, _| program.arguments = vec!["\0".into()]), ["arguments"]);
    assert_eq!(fields(|program, _| program.ranks = Some(0)), ["ranks"]);
    assert_eq!(fields(|program, _| program.file = "a.ipynb".into()), ["arguments"]);
    assert_eq!(
        fields(|program, _| (program.file, program.arguments) = ("a.ipynb".into(), vec![])),
        ["ranks"],
        "the notebook's cells start ranks"
    );
}

#[test]
fn there_are_no_more_ranks_than_processors() {
    assert_eq!(fields(|program, size| (program.ranks, size.nodes) = (Some(4), 2)), Vec::<String>::new());
    assert_eq!(fields(|program, size| (program.ranks, size.nodes) = (Some(5), 2)), ["ranks"]);
    let most = |program: &mut RunProgram, size: &mut Resources| {
        program.ranks = Some(u32::MAX);
        (size.nodes, size.cpus) = (100_000, 100_000);
    };
    assert_eq!(fields(most), Vec::<String>::new(), "the product does not overflow");
    let program = RunProgram { ranks: Some(9), ..testing::program() };
    let error = wrong_program(&program, &testing::small()).remove(0);
    assert_eq!(
        error.message,
        "9 ranks are more than the 2 processors of 1 × 2: ask for 2 at most, or for more nodes or CPUs"
    );
}

#[test]
fn a_run_without_a_name_is_called_like_its_file() {
    let name = |file: &str| name_of(&RunProgram { file: file.into(), ..testing::program() }).to_string();
    assert_eq!(name("a/b/train.py"), "train.py");
    assert_eq!(name(&format!("{}.py", "ü".repeat(100))), "ü".repeat(80));
    assert_eq!(name("a/ .ipynb"), ".ipynb");
    assert_eq!(name("a/  "), "run");
}

#[tokio::test]
async fn a_run_is_its_owners_and_the_admins() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (grace, root) =
        (test.person("grace", 2002, Role::Researcher).await, test.person("root", 2003, Role::Admin).await);
    let runs = &test.app.runs;
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    let id = run.id;
    assert_eq!(code(runs.get(&grace, id).await), "hidden");
    assert_eq!(code(runs.cancel(&grace, id).await), "hidden");
    assert_eq!(code(runs.requeue(&grace, id, None).await), "hidden");
    assert_eq!(code(runs.read_log(&grace, id, None).await), "hidden");
    assert_eq!(code(runs.read_log(&grace, id, Some(0)).await), "hidden");
    assert_eq!(code(runs.follow_log(&grace, id, None).await.map(drop)), "hidden");
    assert_eq!(code(test.app.events.subscribe(&grace, Some((JobKind::Run, id)), None).await.map(drop)), "hidden");
    assert_eq!(test.row(id).await, run, "nothing was changed");
    assert_eq!(runs.get(&root, id).await.unwrap().id, id);
    assert_eq!(code(runs.requeue(&root, id, None).await), "not_owner");
    let all = |all| ListSessions { all, live_only: false, cursor: None, limit: 10 };
    assert_eq!(runs.list(&root, all(true)).await.unwrap().items.len(), 1);
    assert_eq!(runs.list(&root, all(false)).await.unwrap().items.len(), 0);
    assert_eq!(code(runs.list(&grace, all(true)).await), "not_admin");
    assert_eq!(runs.cancel(&root, id).await.unwrap().state, SessionState::Stopping);
    let events = test.audited().await;
    let seen: BTreeSet<(String, String)> = events.into_iter().map(|event| (event.actor, event.action)).collect();
    let expected = [("ada", "run.start"), ("root", "run.view"), ("root", "run.cancel")];
    assert_eq!(seen, expected.map(|(actor, action)| (actor.to_owned(), action.to_owned())).into());
}

#[tokio::test]
async fn a_token_needs_the_scopes_of_sessions() {
    let test = TestApp::new().await;
    let mut ada = test.ada().await;
    let runs = &test.app.runs;
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    ada.via = Via::Token { id: eirene_core::TokenId::generate(), scopes: vec![Scope::SessionsRead] };
    assert_eq!(code(runs.get(&ada, run.id).await), "done");
    assert_eq!(code(runs.start(&ada, TestApp::run_wish(), None).await), "insufficient_scope");
    assert_eq!(code(runs.cancel(&ada, run.id).await), "insufficient_scope");
    assert_eq!(code(runs.requeue(&ada, run.id, None).await), "insufficient_scope");
    ada.via = Via::Token { id: eirene_core::TokenId::generate(), scopes: vec![Scope::SessionsWrite] };
    assert_eq!(code(runs.get(&ada, run.id).await), "insufficient_scope");
    assert_eq!(code(runs.read_log(&ada, run.id, Some(0)).await), "insufficient_scope");
    assert_eq!(code(runs.read_log(&ada, run.id, None).await), "insufficient_scope");
}

#[tokio::test]
async fn neither_is_ever_taken_for_the_other() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (runs, sessions) = (&test.app.runs, &test.app.sessions);
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    let (session, _) = sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    assert_eq!(code(sessions.get(&ada, run.id).await), "not_found");
    assert_eq!(code(sessions.stop(&ada, run.id).await), "not_found");
    assert_eq!(code(runs.get(&ada, session.id).await), "not_found");
    assert_eq!(code(runs.cancel(&ada, session.id).await), "not_found");
    assert_eq!(code(runs.requeue(&ada, session.id, None).await), "not_found");
    assert_eq!(code(test.app.logs.read(&ada, JobKind::Session, run.id).await), "not_found");
    assert_eq!(code(runs.read_log(&ada, session.id, None).await), "not_found");
    // Nobody gets to a run's app, because it has none.
    assert_eq!(code(test.app.access.begin_handover(&ada, run.id).await), "not_found");
    assert!(!test.app.access.may_connect(&ada.user, run.id).await.unwrap());
    assert!(test.app.access.session(run.id).await.unwrap().is_none());
}

#[tokio::test]
async fn runs_have_a_limit_of_their_own() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let runs = &test.app.runs;
    let mut last = None;
    for _ in 0..4 {
        last = Some(runs.start(&ada, TestApp::run_wish(), None).await.unwrap().0);
    }
    assert_eq!(code(runs.start(&ada, TestApp::run_wish(), None).await), "too_many_runs");
    assert_eq!(code(test.app.sessions.start(&ada, TestApp::wish(), None).await), "done");
    // What is repeated makes room for what repeats it.
    let last = last.unwrap().id;
    let (again, _) = runs.requeue(&ada, last, None).await.unwrap();
    assert_eq!(code(runs.start(&ada, TestApp::run_wish(), None).await), "too_many_runs");
    is_over(&test, last).await;
    is_over(&test, again.id).await;
    assert_eq!(code(runs.start(&ada, TestApp::run_wish(), None).await), "done");
}

#[tokio::test]
async fn a_requeue_has_everything_as_it_was_and_happens_once() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let runs = &test.app.runs;
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    is_over(&test, run.id).await;
    // Even if the image was given another file since, or its name is gone.
    test.app.db.retire_image(&"jupyter".parse().unwrap(), &entry()).await.unwrap();
    let (again, is_new) = runs.requeue(&ada, run.id, Some(key("k"))).await.unwrap();
    assert!(is_new && again.id != run.id && again.marker != run.marker);
    assert_eq!((again.requeue_of, again.state, &again.reason), (Some(run.id), SessionState::Queued, &None));
    let same = |run: &Session| {
        (run.program.clone(), run.name.clone(), run.image.clone(), run.image_path.clone(), run.resources.clone())
    };
    assert_eq!(same(&again), same(&run));
    let (replayed, is_new) = runs.requeue(&ada, run.id, Some(key("k"))).await.unwrap();
    assert_eq!((replayed.id, is_new), (again.id, false));
    assert_eq!(code(runs.requeue(&ada, run.id, None).await), "already_requeued");
    assert_eq!(code(runs.requeue(&ada, again.id, Some(key("k2"))).await), "done");
}

#[tokio::test]
async fn of_two_requeues_at_once_one_is_made() {
    let test = TestApp::new().await;
    test.app.cluster.publish(testing::snapshot(vec![]));
    let ada = test.ada().await;
    let runs = &test.app.runs;
    // As many as ada may have: the one that is repeated makes room for one.
    let mut made = Vec::new();
    for _ in 0..test.app.config.limits.live_runs {
        made.push(runs.start(&ada, TestApp::run_wish(), None).await.unwrap().0.id);
    }
    let (one, other) = tokio::join!(runs.requeue(&ada, made[0], None), runs.requeue(&ada, made[0], None));
    let (one, other) = if one.is_ok() { (one, other) } else { (other, one) };
    assert!(one.unwrap().1);
    assert_eq!(code(other), "already_requeued");

    for id in &made[1..3] {
        is_over(&test, *id).await;
    }
    let again = || runs.requeue(&ada, made[1], Some(key("k")));
    let (one, other) = tokio::join!(again(), again());
    let ((one, one_is_new), (other, other_is_new)) = (one.unwrap(), other.unwrap());
    assert_eq!((one.id, one_is_new), (other.id, !other_is_new), "the same run, and new to one of the two");
}

#[tokio::test]
async fn a_run_like_a_session_has_its_very_file_its_project_and_its_size() {
    let test = TestApp::new().await;
    test.app.cluster.publish(testing::snapshot(vec![]));
    let ada = test.ada().await;
    let (runs, sessions) = (&test.app.runs, &test.app.sessions);
    let (session, _) = sessions.start(&ada, rich_wish(), None).await.unwrap();
    test.replace_image("/images/b.sif").await;
    let (run, is_new) = runs.start(&ada, like(session.id), None).await.unwrap();
    assert!(is_new);
    let same = |row: &Session| (row.image.clone(), row.image_path.clone(), row.project.clone(), row.resources.clone());
    assert_eq!(same(&run), same(&session));
    assert_eq!((run.kind(), run.name.as_str(), run.requeue_of), (JobKind::Run, "train.py", None));
    assert_eq!(run.scratch, None, "a scratch is filled and emptied for one alone");
    assert_eq!(test.row(session.id).await, session, "nothing happens to the session");
    // Over, and its image gone from the catalogue: as with a requeue, it is still what it was.
    is_over(&test, session.id).await;
    test.app.db.retire_image(&session.image, &entry()).await.unwrap();
    let (later, _) = runs.start(&ada, like(session.id), None).await.unwrap();
    assert_eq!(same(&later), same(&session));
    let (again, _) = runs.requeue(&ada, later.id, None).await.unwrap();
    assert_eq!(same(&again), same(&session));
    let unlike = StartRun { like: None, ..like(session.id) };
    assert_eq!(wrong(runs.start(&ada, unlike, None).await).remove(0).field, "image", "by its name there is none");
}

#[tokio::test]
async fn what_is_given_goes_before_what_the_session_has() {
    let test = TestApp::new().await;
    test.app.cluster.publish(testing::snapshot(vec![]));
    let ada = test.ada().await;
    let (runs, sessions) = (&test.app.runs, &test.app.sessions);
    let (session, _) = sessions.start(&ada, rich_wish(), None).await.unwrap();
    test.replace_image("/images/b.sif").await;
    let given = StartRun {
        image: Some(session.image.clone()),
        project: Some("maps".parse().unwrap()),
        size: RunSize::Parts(SizeParts { cpus: Some(4), gpus: Some(0), ..SizeParts::default() }),
        ..like(session.id)
    };
    let (run, _) = runs.start(&ada, given, None).await.unwrap();
    assert_eq!(run.image_path, "/images/b.sif", "an image that is named is the catalogue's");
    assert_eq!(run.project, Some("maps".parse().unwrap()));
    let expected = Resources { cpus: 4, gpus: 0, gpu_type: None, ..session.resources.clone() };
    assert_eq!(run.resources, expected, "a type of GPUs goes with the last of them");

    let whole = StartRun { size: RunSize::Whole(testing::small()), ..like(session.id) };
    let (run, _) = runs.start(&ada, whole, None).await.unwrap();
    assert_eq!((run.resources, run.image_path), (testing::small(), session.image_path.clone()));

    for (parts, field) in [
        (SizeParts { nodes: Some(99), ..SizeParts::default() }, "nodes"),
        (SizeParts { gpu_type: Some("h200".parse().unwrap()), ..SizeParts::default() }, "gpu_type"),
        (SizeParts { partition: Some("long".parse().unwrap()), ..SizeParts::default() }, "gpu_type"),
        (SizeParts { cpus: Some(1), ..SizeParts::default() }, "ranks"),
        (SizeParts { memory_mib: Some(0), ..SizeParts::default() }, "memory_mib"),
        (SizeParts { walltime_min: Some(0), ..SizeParts::default() }, "walltime_min"),
    ] {
        let wish = StartRun { size: RunSize::Parts(parts), ..like(session.id) };
        assert_eq!(wrong(runs.start(&ada, wish, None).await).remove(0).field, field);
    }
    assert_eq!(test.app.db.audit_events(None, 9, None, Some("run.start")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_run_is_like_nothing_but_a_session_of_ones_own() {
    let test = TestApp::new().await;
    let mut ada = test.ada().await;
    let (grace, root) =
        (test.person("grace", 2002, Role::Researcher).await, test.person("root", 2003, Role::Admin).await);
    let (runs, sessions) = (&test.app.runs, &test.app.sessions);
    let (theirs, _) = sessions.start(&grace, TestApp::wish(), None).await.unwrap();
    let (own, _) = sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    for (actor, id) in [(&ada, theirs.id), (&root, theirs.id), (&ada, run.id), (&ada, SessionId::generate())] {
        assert_eq!(wrong(runs.start(actor, like(id), None).await), [no_session()], "the same in all cases");
        assert_eq!(code(runs.model(actor, id).await), "not_found");
    }
    assert_eq!(runs.model(&ada, own.id).await.unwrap(), own);
    let everybodys = ListSessions { all: true, live_only: false, cursor: None, limit: 10 };
    assert_eq!(runs.list(&root, everybodys).await.unwrap().items, [run], "nothing was left behind");
    assert_eq!(test.app.db.audit_events(None, 9, Some("root"), None).await.unwrap().len(), 0);

    ada.via = Via::Token { id: eirene_core::TokenId::generate(), scopes: vec![Scope::SessionsRead] };
    assert_eq!(code(runs.start(&ada, like(own.id), None).await), "insufficient_scope");
    ada.via = Via::Token { id: eirene_core::TokenId::generate(), scopes: vec![Scope::SessionsWrite] };
    assert_eq!(code(runs.model(&ada, own.id).await), "insufficient_scope");
    assert_eq!(code(runs.start(&ada, like(own.id), None).await), "done");
}

#[tokio::test]
async fn the_log_of_one_rank_is_read_and_followed() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (runs, logs) = (&test.app.runs, &test.app.logs);
    let (run, _) = runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
    logs.append(run.id, "nodes are well\n[0] zero\n[1] on".into()).await.unwrap();
    let mut followed = runs.follow_log(&ada, run.id, Some(1)).await.unwrap();
    for piece in ["e\n[0] nothing\n", "[", "1", "] two\n"] {
        logs.append(run.id, piece.into()).await.unwrap();
    }
    logs.close(run.id);
    let mut text = Vec::new();
    while let Some(piece) = followed.next().await {
        assert!(!piece.is_empty());
        text.extend_from_slice(&piece);
    }
    assert_eq!(text, b"one\ntwo\n");
    assert_eq!(runs.read_log(&ada, run.id, Some(1)).await.unwrap(), "one\ntwo\n");
    assert_eq!(runs.read_log(&ada, run.id, Some(0)).await.unwrap(), "zero\nnothing\n");
    assert!(runs.read_log(&ada, run.id, None).await.unwrap().starts_with("nodes are well\n[0] zero\n"));
    assert_eq!(code(runs.read_log(&ada, run.id, Some(2)).await), "invalid");
    let mut wish = TestApp::run_wish();
    wish.program.ranks = None;
    let (single, _) = runs.start(&ada, wish, None).await.unwrap();
    assert_eq!(code(runs.read_log(&ada, single.id, Some(0)).await), "invalid");
}
