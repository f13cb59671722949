//! Many starts at once, and starts while somebody is asked who never answers.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use super::*;

/// How many sessions are asked for, and how many requests for them are on their way at once.
const MANY: usize = 500;
const AT_ONCE: usize = 200;

fn start(key: &str) -> Ask {
    let body = json!({"app": "jupyterlab", "image": "jupyter", "cpus": 1, "memory_mib": 512, "walltime_min": 30});
    Ask::new("POST", "/api/v1/sessions").json(&body).with("idempotency-key", key)
}

#[tokio::test]
async fn of_500_starts_at_once_all_are_taken_and_none_twice() {
    let mut test = TestApp::new().await;
    let mut config = (*test.app.config).clone();
    config.limits.live_sessions = u32::try_from(MANY).unwrap();
    test.rebuild(config);
    let server = Server::serve(test).await;
    let ada = server.ada().await;

    // Each is asked for twice, as a client does that has heard no answer.
    let asks: Vec<Ask> = (0..2 * MANY).map(|n| start(&format!("key-{}", n % MANY)).bearer(&ada)).collect();
    let answers: Vec<Answer> =
        stream::iter(asks).map(|ask| server.portal(ask)).buffer_unordered(AT_ONCE).collect().await;
    for answer in &answers {
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }
    let ids: BTreeSet<String> = answers.iter().map(|answer| answer.json()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), MANY);
    assert_eq!(server.test.app.db.live_sessions().await.unwrap().len(), MANY);
    let audited = server.test.app.db.audit_events(None, 2000, None, Some("session.start")).await.unwrap();
    assert_eq!(audited.len(), MANY, "each is in the audit log once");

    let more = server.portal(start("one-more").bearer(&ada)).await;
    assert_eq!((more.status, &more.json()["code"]), (StatusCode::CONFLICT, &json!("too_many_sessions")));
}

#[tokio::test]
async fn nobody_waits_for_the_groups_of_another_person() {
    let test = TestApp::new().await;
    test.groups.add("ada", "physics");
    let mut waiting = test.groups.hang("grace");
    let server = Server::serve(test).await;
    // A partition that is not for everybody has people's groups asked for.
    let mut cluster = testing::snapshot(vec![]);
    Arc::make_mut(&mut cluster.partitions)[0].access.groups = vec!["physics".into()];
    server.test.app.cluster.publish(cluster);
    let (ada, grace) = (server.ada().await, server.grace().await);

    let mut hers = pin!(server.portal(start("hers").bearer(&grace)));
    tokio::select! {
        answer = &mut hers => panic!("{}", answer.body),
        waits = waiting.wait_for(|waiting| *waiting > 0) => { waits.unwrap(); }
    }
    let made = tokio::time::timeout(PATIENCE, server.portal(start("anothers").bearer(&ada))).await;
    let made = made.expect("nobody waits for grace's groups");
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
}
