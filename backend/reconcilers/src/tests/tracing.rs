//! What the trace of a session says of its job file.

use http::StatusCode;
use jiff::SignedDuration;
use uuid::Uuid;

use eirene_services::testing::start_time;
use eirene_services::traces::Answered;
use eirene_services::traces::testing::{Collector, config, sent, traces};

use super::*;

#[tokio::test]
async fn a_session_that_is_asked_for_over_http_is_traced_and_its_job_file_says_so() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let test = TestApp::with_traces(traces.clone()).await;
    let ada = test.ada().await;
    let id = Uuid::now_v7().simple().to_string();
    let ada = Actor { request_id: Some(id.clone()), ..ada };
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let begins = start_time();
    traces.answered(&Answered {
        request: &id,
        method: "POST",
        route: "/api/v1/sessions",
        session: None,
        status: StatusCode::CREATED,
        begins,
        ends: begins + SignedDuration::from_millis(20),
    });
    let files = JobFiles::new(&test.app, "pin");
    files.issue(&session, 0).await.unwrap();
    let file = test.launcher.job_files().pop().unwrap();
    assert_eq!(file.trace, traces.context(session.id).map(|context| context.to_string()));
    test.app.sessions.agent_ready(session.id).await.unwrap();
    sent(exporter).await;
    let spans = collector.spans();
    assert!(spans.iter().all(|(_, span)| span["traceId"] == session.id.to_string()), "{spans:?}");
    let names: Vec<_> = spans.iter().map(|(_, span)| span["name"].as_str().unwrap()).collect();
    let expected =
        ["POST /api/v1/sessions", "launcher.write_job_file", "session.queued", "session.starting", "session.start"];
    assert_eq!(names, expected);
}
