//! Nodes out of service and back: who may, what is written down, and what their past tells.

use std::time::Duration;

use eirene_core::{Role, SessionState};
use futures_util::FutureExt as _;

use super::*;
use crate::testing::{TestApp, snapshot};

fn c1() -> NodeName {
    "c1".parse().unwrap()
}

fn fan() -> DrainReason {
    "the fan".parse().unwrap()
}

/// Somebody who runs the platform, and a cluster that was seen.
async fn with_admin() -> (TestApp, Actor) {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2003, Role::Admin).await;
    test.app.cluster.publish(snapshot(vec![]));
    (test, admin)
}

/// What the poller sees of the scheduler now.
async fn seen(test: &TestApp) {
    test.clock.advance_s(10);
    let nodes = Arc::new(test.app.scheduler.nodes().await.unwrap());
    let asked_at = Some(test.app.clock.now());
    test.app.cluster.publish(crate::cluster::Snapshot { asked_at, nodes, ..snapshot(vec![]) });
}

async fn written(test: &TestApp) -> Vec<(String, String, String)> {
    let events = test.audited().await;
    events.into_iter().map(|event| (event.action, event.target, event.outcome)).collect()
}

fn code(error: AppError) -> &'static str {
    match error {
        AppError::Forbidden { code, .. } | AppError::Conflict { code, .. } => code,
        AppError::NotFound => "not_found",
        AppError::Unavailable { .. } => "unavailable",
        error => panic!("{error:?}"),
    }
}

/// State and reason of each change, newest first.
async fn past(test: &TestApp, admin: &Actor) -> Vec<(String, Option<String>)> {
    let history = test.app.upkeep.history(admin, &c1()).await.unwrap();
    assert!(history.is_sorted_by(|newer, older| newer.at > older.at));
    history.into_iter().map(|change| (change.state, change.reason)).collect()
}

#[tokio::test]
async fn an_admin_drains_and_resumes_and_it_is_written_down() {
    let (test, admin) = with_admin().await;
    test.app.upkeep.drain(&admin, &c1(), &fan()).await.unwrap();
    let drained = test.scheduler.state().nodes[0].clone();
    assert_eq!((drained.available, drained.reason.as_deref()), (false, Some("the fan (eirene: root-admin)")));
    test.app.upkeep.resume(&admin, &c1()).await.unwrap();
    assert!(test.scheduler.state().nodes[0].available);
    let line = |action: &str, outcome: &str| (action.to_owned(), "c1".to_owned(), outcome.to_owned());
    let [drain, resume] = ["node.drain", "node.resume"];
    let expected = [line(resume, "ok"), line(resume, "begun"), line(drain, "ok"), line(drain, "begun")];
    assert_eq!(written(&test).await, expected);
}

#[tokio::test]
async fn a_change_that_cannot_be_recorded_is_not_made() {
    let (test, admin) = with_admin().await;
    test.app.db.close().await;
    assert_eq!(code(test.app.upkeep.drain(&admin, &c1(), &fan()).await.unwrap_err()), "unavailable");
    assert!(test.scheduler.state().nodes[0].available);
}

#[tokio::test]
async fn whoever_is_no_admin_changes_nothing_and_learns_nothing() {
    let (test, _) = with_admin().await;
    let ada = test.ada().await;
    let upkeep = &test.app.upkeep;
    assert_eq!(code(upkeep.drain(&ada, &c1(), &fan()).await.unwrap_err()), "not_admin");
    assert_eq!(code(upkeep.resume(&ada, &c1()).await.unwrap_err()), "not_admin");
    assert_eq!(code(upkeep.history(&ada, &c1()).await.unwrap_err()), "not_admin");
    assert_eq!(code(upkeep.look(&ada, &c1()).await.unwrap_err()), "not_admin");
    assert!(test.scheduler.state().nodes.iter().all(|node| node.available));
}

#[tokio::test]
async fn only_a_node_that_was_seen_is_asked_for() {
    let (test, admin) = with_admin().await;
    for name in ["c9", "all", "ALL"] {
        let node = name.parse().unwrap();
        assert_eq!(code(test.app.upkeep.drain(&admin, &node, &fan()).await.unwrap_err()), "not_found", "{name}");
        assert_eq!(code(test.app.upkeep.resume(&admin, &node).await.unwrap_err()), "not_found", "{name}");
        assert_eq!(code(test.app.upkeep.history(&admin, &node).await.unwrap_err()), "not_found", "{name}");
    }
    assert_eq!(written(&test).await, []);
}

#[tokio::test]
async fn a_scheduler_that_does_not_let_us_or_is_away_is_told_apart_and_written_down() {
    let (test, admin) = with_admin().await;
    test.scheduler.state().may_change_nodes = false;
    assert_eq!(code(test.app.upkeep.drain(&admin, &c1(), &fan()).await.unwrap_err()), "node_not_permitted");
    test.scheduler.state().reachable = false;
    assert_eq!(code(test.app.upkeep.resume(&admin, &c1()).await.unwrap_err()), "unavailable");
    let line = |action: &str, outcome: &str| (action.to_owned(), "c1".to_owned(), outcome.to_owned());
    let [drain, resume] = ["node.drain", "node.resume"];
    let expected = [line(resume, "failed"), line(resume, "begun"), line(drain, "failed"), line(drain, "begun")];
    assert_eq!(written(&test).await, expected);
}

#[tokio::test]
async fn a_change_whose_request_ends_on_the_way_is_written_down_all_the_same() {
    let (test, admin) = with_admin().await;
    let line = |action: &str, outcome: &str| (action.to_owned(), "c1".to_owned(), outcome.to_owned());
    let until = async |expected: (String, String, String)| {
        while written(&test).await.first() != Some(&expected) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    // The browser goes as soon as it has asked.
    assert!(test.app.upkeep.drain(&admin, &c1(), &fan()).now_or_never().is_none());
    until(line("node.drain", "ok")).await;
    assert!(!test.scheduler.state().nodes[0].available);
    assert!(test.app.upkeep.resume(&admin, &c1()).now_or_never().is_none());
    until(line("node.resume", "ok")).await;
    test.scheduler.state().reachable = false;
    assert!(test.app.upkeep.resume(&admin, &c1()).now_or_never().is_none());
    until(line("node.resume", "failed")).await;
    assert_eq!(written(&test).await.len(), 6);
}

#[tokio::test]
async fn each_change_is_kept_once_also_over_a_restart() {
    let (mut test, admin) = with_admin().await;
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 2, "both nodes are new");
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 0);
    test.app.upkeep.drain(&admin, &c1(), &fan()).await.unwrap();
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 0, "it was not seen yet");
    seen(&test).await;
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 1);
    let config = (*test.app.config).clone();
    test.rebuild(config);
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 0, "nobody has looked yet");
    seen(&test).await;
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 0, "it is what was written down");
    test.scheduler.state().nodes.remove(0);
    seen(&test).await;
    assert_eq!(test.app.upkeep.note_history().await.unwrap(), 1);
    let row = |state: &str, reason: Option<&str>| (state.to_owned(), reason.map(str::to_owned));
    let expected = [row(GONE, None), row("drained", Some("the fan (eirene: root-admin)")), row(IN_SERVICE, None)];
    assert_eq!(past(&test, &admin).await, expected, "its past is there when it is gone");
}

#[tokio::test]
async fn nothing_follows_from_a_cluster_that_was_not_seen() {
    let (test, _) = with_admin().await;
    test.app.upkeep.note_history().await.unwrap();
    let whole = snapshot(vec![]);
    for broken in [
        crate::cluster::Snapshot { reachable: false, nodes: Arc::default(), ..whole.clone() },
        crate::cluster::Snapshot { nodes: Arc::default(), ..whole.clone() },
        crate::cluster::Snapshot::default(),
    ] {
        test.app.cluster.publish(broken);
        assert_eq!(test.app.upkeep.note_history().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_node_tells_what_is_on_it() {
    let (test, admin) = with_admin().await;
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    assert!(test.app.upkeep.look(&admin, &c1()).await.unwrap().sessions.is_empty());
    let runs = Session { nodes: vec![c1()], state: SessionState::Running, ..test.row(session.id).await };
    assert!(test.app.db.update_session(&runs, None).await.unwrap());
    let looked = test.app.upkeep.look(&admin, &c1()).await.unwrap();
    assert_eq!(looked.node.unwrap().name, c1());
    assert_eq!(looked.sessions.iter().map(|session| session.id).collect::<Vec<_>>(), [session.id]);
}

fn node(available: bool, state: &str, reason: &str) -> Node {
    let reason = Some(reason.to_owned());
    Node { available, state: state.to_owned(), reason, ..snapshot(vec![]).nodes[0].clone() }
}

#[test]
fn work_that_comes_and_goes_is_no_change_and_a_clock_put_back_does_not_turn_the_past_around() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut last = Known::new();
    let mut step = |node: Node, second| {
        let found = changes(&last, &[node], at(second));
        last.extend(found.iter().map(|change| (change.node.clone(), change.clone())));
        found.into_iter().map(|change| (change.state, change.reason, change.at)).collect::<Vec<_>>()
    };
    assert_eq!(step(node(true, "idle", ""), 100), [(IN_SERVICE.to_owned(), None, at(100))]);
    assert_eq!(step(node(true, "mixed", " "), 110), []);
    assert_eq!(step(node(true, "allocated", ""), 120), []);
    let hostile = step(node(false, "draining", "a\nb\u{1b}[2J"), 50);
    let after = Timestamp::from_microsecond(100_000_001).unwrap();
    assert_eq!(hostile, [("draining".to_owned(), Some("a b\u{fffd}[2J".to_owned()), after)]);
    assert_eq!(
        step(node(false, "drained", "a b\u{fffd}[2J"), 130),
        [("drained".to_owned(), Some("a b\u{fffd}[2J".to_owned()), at(130))]
    );
    let long = step(node(false, "drained", &"x".repeat(9_000)), 140);
    assert_eq!(long[0].1.as_ref().unwrap().chars().count(), 300);
}
