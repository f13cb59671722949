//! What nobody can make grow, or keep, by asking often or for long.

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn a_verb_that_somebody_made_up_is_counted_with_all_others() {
    let server = Server::start().await;
    for verb in ["ZORK", "PLUGH", "GET"] {
        server.portal(Ask::new(verb, "/login")).await;
    }
    let metrics = server.portal(Ask::get("/metrics")).await.body;
    assert!(!metrics.contains("ZORK") && !metrics.contains("PLUGH"), "{metrics}");
    assert!(metrics.contains("method=\"OTHER\"") && metrics.contains("method=\"GET\""), "{metrics}");
}

#[tokio::test]
async fn many_who_ask_whether_we_are_ready_cost_the_launcher_one_connection() {
    let server = Server::start().await;
    let launcher = tokio::net::UnixListener::bind(&server.test.app.config.launcher.socket).unwrap();
    let ask = || async {
        let all = futures_util::future::join_all((0..10).map(|_| server.portal(Ask::get("/readyz")))).await;
        assert!(all.iter().all(|answer| answer.body.contains("ok   launcher\n")));
        let mut connections = 0;
        while launcher.accept().now_or_never().is_some() {
            connections += 1;
        }
        connections
    };
    assert_eq!(ask().await, 1);
    assert_eq!(ask().await, 0, "the answer is still good");
    server.test.clock.advance_s(2);
    assert_eq!(ask().await, 1, "it is no longer");
}

#[tokio::test]
async fn a_request_the_app_has_not_answered_ends_with_the_right_to_it() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await.id;
    let asked = server.app(session, Ask::get("/never").bearer(&ada));
    let disabled = async {
        while server.apps.opened() == 0 {
            tokio::task::yield_now().await;
        }
        server.test.app.db.replace_password(ada.actor.user.id, "another", None, &entry()).await.unwrap();
        server.test.app.access.sweep().await;
    };
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(asked, disabled) }).await.expect("it still waits");
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_person_follows_so_many_things_at_once_and_others_are_not_kept_from_it() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.session(&ada).await.id;
    let log = format!("/api/v1/sessions/{session}/logs?follow=true");
    let asks = [Ask::get("/live/events").cookie(&ada), Ask::get("/api/v1/events").bearer(&ada)];
    let asks = asks.into_iter().chain([Ask::get(&log).bearer(&ada), Ask::get(&log).bearer(&ada)]).cycle();
    let mut streams = vec![];
    for ask in asks.clone().take(32) {
        let stream = server.open(ask.to(PORTAL)).await;
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    for ask in asks.take(3) {
        let refused = server.portal(ask).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refused.json()["code"], "too_many_streams");
    }
    assert_eq!(server.open(Ask::get("/live/events").cookie(&grace).to(PORTAL)).await.status(), StatusCode::OK);
    streams.pop();
    let again = async {
        while server.open(Ask::get("/live/events").cookie(&ada).to(PORTAL)).await.status() != StatusCode::OK {}
    };
    timeout(PATIENCE, again).await.expect("its place is not free again");
}
