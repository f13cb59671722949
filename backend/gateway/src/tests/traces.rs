//! What of the requests that pass the proxy is in the trace of their session.

use eirene_services::traces::testing::{Collector, config, sent, traces};

use super::*;

/// A session of this person whose app has just begun to answer, as its agent says.
async fn begun(server: &Server, owner: &Person) -> SessionId {
    let sessions = &server.test.app.sessions;
    let id = sessions.start(&owner.actor, TestApp::wish(), None).await.unwrap().0.id;
    sessions.agent_ready(id).await.unwrap();
    server.apps.run(id);
    id
}

/// What is told of sessions beyond their start: of which, and what.
fn told(collector: &Collector) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = collector.spans().into_iter().map(|(_, span)| (text(&span["traceId"]), text(&span["name"])));
    all.filter(|(_, name)| name.starts_with("proxy.") || name.starts_with("kernel.")).collect()
}

#[tokio::test]
async fn the_first_answer_to_a_browser_and_the_first_kernel_are_each_told_once() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let server = Server::serve(TestApp::with_traces(traces).await).await;
    let ada = server.ada().await;
    let session = begun(&server, &ada).await;
    let cookie = server.enter(&ada, session).await;
    let own = format!("http://{}", host(session));
    let get = |path: &str| Ask::get(path).app_cookie(&cookie);
    let post = |path: &str| Ask::new("POST", path).app_cookie(&cookie).with("origin", &own);
    let asked = [
        // None of these is a browser that gets through to the app, or starts a kernel.
        (Ask::get("/lab"), 404),
        (Ask::get("/api").bearer(&ada), 200),
        (Ask::new("POST", "/api/terminals").bearer(&ada), 200),
        (Ask::get("/api/kernels").bearer(&ada), 200),
        (get("/lab?refused"), 500),
        (post("/api/kernels?refused"), 500),
        (Ask::new("POST", "/api/kernels").app_cookie(&cookie), 403),
        // Here they are, and again.
        (get("/lab"), 200),
        (get("/static/lab.css"), 200),
        (post("/api/sessions?1"), 200),
        (post("/api/kernels"), 200),
    ];
    for (number, (ask, status)) in asked.into_iter().enumerate() {
        server.test.clock.advance_s(1);
        assert_eq!(server.app(session, ask).await.status.as_u16(), status, "{number}");
    }
    server.test.app.sessions.stop(&ada.actor, session).await.unwrap();
    assert_eq!(server.app(session, get("/lab")).await.status, StatusCode::OK, "the app takes its time to end");
    assert_eq!(server.app(session, post("/api/kernels")).await.status, StatusCode::OK);
    sent(exporter).await;
    let id = session.to_string();
    assert_eq!(told(&collector), [(id.clone(), "proxy.first_response".to_owned()), (id, "kernel.start".to_owned())]);
    // They began when they were asked for: the eighth and the tenth second, as the clock is moved before each.
    let spans = collector.spans();
    let began = |name: &str| {
        let (_, span) = spans.iter().find(|(_, span)| span["name"] == name).unwrap();
        span["startTimeUnixNano"].as_str().unwrap().parse::<i128>().unwrap() - testing::start_time().as_nanosecond()
    };
    let second = 1_000_000_000;
    assert_eq!((began("proxy.first_response"), began("kernel.start")), (8 * second, 10 * second));
}

#[tokio::test]
async fn of_many_kernels_at_once_one_is_told_and_of_a_session_that_stopped_before_none() {
    let collector = Collector::serve(StatusCode::OK, "{}").await;
    let (traces, exporter) = traces(&config(&collector.url));
    let server = Server::serve(TestApp::with_traces(traces).await).await;
    let ada = server.ada().await;
    let (session, stopped) = (begun(&server, &ada).await, begun(&server, &ada).await);
    server.test.app.sessions.stop(&ada.actor, stopped).await.unwrap();
    let kernel = |session| server.app(session, Ask::new("POST", "/api/kernels").bearer(&ada));
    let answers = futures_util::future::join_all((0..8).map(|_| kernel(session))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    assert_eq!(kernel(stopped).await.status, StatusCode::OK);
    sent(exporter).await;
    assert_eq!(told(&collector), [(session.to_string(), "kernel.start".to_owned())]);
}
