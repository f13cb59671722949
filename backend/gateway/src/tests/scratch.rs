//! How a scratch is, as programs and pages show it, to its session's owner and to nobody else.

use eirene_core::{KeptOn, RescueJob, ScratchPhase, ScratchState, SessionState};
use eirene_services::nodes::{Reporter, Share};
use eirene_tunnel::message::{Amount, ScratchReport};
use serde_json::json;

use super::*;

/// A session of hers that is being set up on two nodes.
async fn starting(server: &Server, ada: &Person, kind: &str, mut body: Value) -> Session {
    body["scratch"] = json!({"kind": "node", "stage_in": [{"from": "home:data", "to": "in"}]});
    let made = server.portal(Ask::new("POST", &format!("/api/v1/{kind}")).json(&body).bearer(ada)).await;
    let id: SessionId = made.json()["id"].as_str().unwrap().parse().unwrap();
    let change = server.test.app.sessions.change(id, |session| {
        session.state = SessionState::Starting;
        session.nodes = vec!["c1".parse().unwrap(), "c2".parse().unwrap()];
    });
    change.await.unwrap().unwrap()
}

async fn said(server: &Server, id: SessionId, phase: ScratchPhase, kept: Vec<KeptOn>) {
    let said = ScratchState::new(0, phase, kept);
    server.test.app.sessions.scratch_said(id, said).await.unwrap();
}

/// Its agent has copied a quarter.
fn copying(server: &Server, id: SessionId) -> Reporter {
    let agent = server.test.app.nodes.open(id);
    let amount = |gib: u64| Amount { bytes: gib << 30, files: gib };
    let node =
        |name: &str| ScratchReport { name: name.to_owned(), copied: amount(1), total: None, kept: false, text: None };
    agent.note_copied(Some((Share::of(amount(3), Some(amount(12))), vec![node("c1"), node("d7")])));
    agent
}

#[tokio::test]
async fn a_scratch_that_is_filled_is_shown_to_its_owner_alone() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    for (kind, body) in [("sessions", json!({})), ("runs", json!({"file": "a.py"}))] {
        let id = starting(&server, &ada, kind, body).await.id;
        let path = format!("/api/v1/{kind}/{id}");
        let shown = async || server.portal(Ask::get(&path).bearer(&ada)).await.json()["scratch_state"].take();
        assert_eq!(shown().await, Value::Null, "nothing was said yet");
        said(&server, id, ScratchPhase::Filling, vec![]).await;
        assert_eq!(shown().await, json!({"state": "filling"}));
        let agent = copying(&server, id);
        let (gib, all) = (1_u64 << 30, 3_u64 << 30);
        let expected = json!({
            "state": "filling",
            "copied": {"bytes": all, "files": 3, "total_bytes": 4 * all, "total_files": 12},
            "nodes": [{"node": "c1", "copied": {"bytes": gib, "files": 1}}],
        });
        assert_eq!(shown().await, expected);
        let line = "Copying 3\u{a0}GiB of 12\u{a0}GiB to the nodes’ scratch.";
        for page in [format!("/{kind}/{id}"), format!("/fragments/{kind}/{id}")] {
            let answer = server.portal(Ask::get(&page).cookie(&ada)).await;
            assert!(answer.body.contains(line) && answer.body.contains("width=\"25%\""), "{page}: {}", answer.body);
            assert_eq!(server.portal(Ask::get(&page).cookie(&grace)).await.status, StatusCode::NOT_FOUND, "{page}");
        }
        assert_eq!(server.portal(Ask::get(&path).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
        drop(agent);
        assert_eq!(shown().await, json!({"state": "filling"}), "nobody says any more how far it is");
        said(&server, id, ScratchPhase::Ready, vec![]).await;
        assert!(!server.portal(Ask::get(&format!("/{kind}/{id}")).cookie(&ada)).await.body.contains("nodes’ scratch"));
    }
}

#[tokio::test]
async fn what_is_kept_is_named_after_the_end_and_never_as_markup() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let id = starting(&server, &ada, "sessions", json!({})).await.id;
    let kept = KeptOn::new("c2".parse().unwrap(), Some("no room for `<b>`".into()));
    said(&server, id, ScratchPhase::Kept, vec![kept]).await;
    server.test.app.sessions.change(id, |session| session.state = SessionState::Failed).await.unwrap();
    let shown = server.portal(Ask::get(&format!("/api/v1/sessions/{id}")).bearer(&ada)).await.json();
    assert_eq!(
        shown["scratch_state"]["kept_on"],
        json!([{"node": "c2", "text": "no room for `<b>`", "rescuing": false}])
    );
    let page = server.portal(Ask::get(&format!("/sessions/{id}")).cookie(&ada)).await.body;
    assert!(page.contains("is still on c2") && page.contains("No room for “&lt;b&gt;”."), "{page}");
    assert!(page.contains("data-events"), "it changes yet");
    let job = || RescueJob { marker: "eirene-secret".into(), begun_at: testing::start_time(), identity: None };
    let begin = server.test.app.sessions.change(id, |session| {
        session.scratch_state.as_mut().unwrap().kept[0].rescue.job = Some(job());
    });
    begin.await.unwrap();
    let shown = server.portal(Ask::get(&format!("/api/v1/sessions/{id}")).bearer(&ada)).await;
    assert_eq!(shown.json()["scratch_state"]["kept_on"][0]["rescuing"], true);
    assert!(!shown.body.contains("eirene-secret"), "the mark of its job is nobody's business");
    let page = server.portal(Ask::get(&format!("/sessions/{id}")).cookie(&ada)).await.body;
    assert!(page.contains("is being brought back from c2"), "{page}");
}
