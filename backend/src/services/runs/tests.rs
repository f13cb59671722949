//! What a run may be, doing it again, and that nobody else gets at it.

use std::collections::BTreeSet;

use eirene_core::{Role, SessionState};
use futures_util::StreamExt as _;

use super::*;
use crate::services::actor::Via;
use crate::testing::{self, TestApp};

fn fields(change: impl Fn(&mut StartRun)) -> Vec<String> {
    let mut wish = TestApp::run_wish();
    change(&mut wish);
    wrong_program(&wish.program, &wish.resources).into_iter().map(|error| error.field).collect()
}

fn code<T>(answer: Result<T, AppError>) -> &'static str {
    match answer {
        Err(AppError::Conflict { code, .. } | AppError::Forbidden { code, .. }) => code,
        Err(AppError::NotFound) => "not_found",
        Err(AppError::Invalid(_)) => "invalid",
        Err(other) => panic!("{other}"),
        Ok(_) => "done",
    }
}

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { key: name.into(), body_sha256: "requeue".into() }
}

/// What has happened to the row since.
async fn is_over(test: &TestApp, id: SessionId) {
    let ended = test.app.sessions.change(id, |run| run.state = SessionState::Ended).await.unwrap();
    assert!(ended.is_some());
}

#[test]
fn what_cannot_be_run_is_named_by_its_field() {
    assert_eq!(fields(|_| {}), Vec::<String>::new());
    assert_eq!(fields(|wish| wish.program.ranks = None), Vec::<String>::new());
    assert_eq!(fields(|wish| wish.program.file = "data/".into()), ["file"]);
    assert_eq!(fields(|wish| wish.program.arguments = vec!["\0".into()]), ["arguments"]);
    assert_eq!(fields(|wish| wish.program.ranks = Some(0)), ["ranks"]);
    assert_eq!(fields(|wish| wish.program.file = "a.ipynb".into()), ["arguments"]);
    assert_eq!(
        fields(|wish| (wish.program.file, wish.program.arguments) = ("a.ipynb".into(), vec![])),
        ["ranks"],
        "the notebook's cells start ranks"
    );
}

#[test]
fn there_are_no_more_ranks_than_processors() {
    assert_eq!(fields(|wish| (wish.program.ranks, wish.resources.nodes) = (Some(4), 2)), Vec::<String>::new());
    assert_eq!(fields(|wish| (wish.program.ranks, wish.resources.nodes) = (Some(5), 2)), ["ranks"]);
    let most = |wish: &mut StartRun| {
        wish.program.ranks = Some(u32::MAX);
        (wish.resources.nodes, wish.resources.cpus) = (100_000, 100_000);
    };
    assert_eq!(fields(most), Vec::<String>::new(), "the product does not overflow");
    let wish = TestApp::run_wish();
    let program = RunProgram { ranks: Some(9), ..wish.program };
    let error = wrong_program(&program, &wish.resources).remove(0);
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
    assert_eq!(code(runs.get(&grace, id).await), "not_found");
    assert_eq!(code(runs.cancel(&grace, id).await), "not_found");
    assert_eq!(code(runs.requeue(&grace, id, None).await), "not_found");
    assert_eq!(code(runs.read_log(&grace, id, None).await), "not_found");
    assert_eq!(code(runs.read_log(&grace, id, Some(0)).await), "not_found");
    assert_eq!(code(runs.follow_log(&grace, id, None).await.map(drop)), "not_found");
    assert_eq!(code(test.app.events.subscribe(&grace, Some((JobKind::Run, id)), None).await.map(drop)), "not_found");
    assert_eq!(test.row(id).await, run, "nothing was changed");
    assert_eq!(runs.get(&root, id).await.unwrap().id, id);
    assert_eq!(code(runs.requeue(&root, id, None).await), "not_owner");
    let all = |all| ListSessions { all, live_only: false, cursor: None, limit: 10 };
    assert_eq!(runs.list(&root, all(true)).await.unwrap().items.len(), 1);
    assert_eq!(runs.list(&root, all(false)).await.unwrap().items.len(), 0);
    assert_eq!(code(runs.list(&grace, all(true)).await), "not_admin");
    assert_eq!(runs.cancel(&root, id).await.unwrap().state, SessionState::Stopping);
    let events = test.app.db.audit_events(None, 100, None, None).await.unwrap();
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
    test.app.db.retire_image(&"jupyter".parse().unwrap()).await.unwrap();
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
