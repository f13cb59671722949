//! Refusals are in the audit log; the person who is refused sees no difference.

use std::time::Duration;

use eirene_core::audit::AuditEvent;
use serde_json::json;

use super::*;

impl Server {
    /// The lines of refused requests, oldest first, once there are `many`.
    async fn refused(&self, many: usize) -> Vec<AuditEvent> {
        let there = async {
            loop {
                let mut lines = self.test.app.db.audit_events(None, 50, None, Some("http.request")).await.unwrap();
                if lines.len() >= many {
                    lines.reverse();
                    return lines;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(testing::PATIENCE, there).await.expect("a refusal is not in the log")
    }
}

fn said(line: &AuditEvent) -> (&str, &str, &str, &str) {
    let reason = line.details["reason"].as_str().unwrap();
    (line.actor.as_str(), line.target.as_str(), line.outcome.as_str(), reason)
}

#[tokio::test]
async fn who_asks_for_what_is_not_theirs_is_recorded_with_the_route() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.session(&ada).await;
    let own = |what: &str| format!("/api/v1/sessions/{}{what}", session.id);
    assert_eq!(server.portal(Ask::get(&own("")).bearer(&ada)).await.status, StatusCode::OK);

    let missing = format!("/api/v1/sessions/{}", eirene_core::SessionId::generate());
    let nothing = server.portal(Ask::get(&missing).bearer(&grace)).await;
    let hidden = server.portal(Ask::get(&own("")).bearer(&grace)).await;
    let shown = |answer: &Answer| {
        let mut problem = answer.json();
        problem["request_id"].take();
        (answer.status, problem)
    };
    assert_eq!(shown(&hidden), shown(&nothing), "nobody can tell what is hidden from what is not there");
    server.refused(1).await;
    assert_eq!(server.portal(Ask::new("DELETE", &own("")).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
    server.refused(2).await;
    assert_eq!(server.portal(Ask::get("/admin/audit").cookie(&grace)).await.status, StatusCode::NOT_FOUND);
    server.refused(3).await;
    assert_eq!(server.portal(Ask::get("/api/v1/audit").bearer(&grace)).await.status, StatusCode::FORBIDDEN);
    server.refused(4).await;
    // Nobody has asked yet who sends this, and strangers could send any number.
    let foreign = Ask::new("POST", "/logout").with("origin", "https://elsewhere.example").cookie(&ada);
    assert_eq!(server.portal(foreign).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.portal(Ask::get(&format!("/sessions/{}/open", session.id)).cookie(&grace)).await.status, 404);

    let lines = server.refused(5).await;
    let expected = [
        ("grace", "GET /api/v1/sessions/{id}", "refused", "hidden"),
        ("grace", "DELETE /api/v1/sessions/{id}", "refused", "hidden"),
        ("grace", "GET /admin/audit", "refused", "hidden"),
        ("grace", "GET /api/v1/audit", "refused", "not_admin"),
        ("grace", "GET /sessions/{id}/open", "refused", "hidden"),
    ];
    assert_eq!(lines.iter().map(said).collect::<Vec<_>>(), expected);
    assert!(lines.iter().all(|line| line.address.is_some() && line.request_id.is_some()));
}

#[tokio::test]
async fn repeated_refusals_are_one_more_line_that_counts_them() {
    let server = Server::start().await;
    let grace = server.grace().await;
    for _ in 0..30 {
        assert_eq!(server.portal(Ask::get("/api/v1/audit").bearer(&grace)).await.status, StatusCode::FORBIDDEN);
    }
    let first = server.refused(1).await;
    assert_eq!((first.len(), &first[0].details), (1, &json!({"reason": "not_admin"})));
    let audit = &server.test.app.audit;
    audit.record_ended_refusals().await;
    assert_eq!(server.refused(1).await.len(), 1, "their window has not ended");
    server.test.clock.advance_s(600);
    audit.record_ended_refusals().await;
    let lines = server.refused(2).await;
    let at = first[0].at.to_string();
    let counted = json!({"reason": "not_admin", "times": 29, "since": at, "until": at});
    assert_eq!((lines.len(), &lines[1].details), (2, &counted));
}
