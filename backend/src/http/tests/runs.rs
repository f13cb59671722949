//! Runs over the API, and that no way leads to an app they do not have.

use serde_json::json;

use super::*;

fn start(body: &Value) -> Ask {
    Ask::new("POST", "/api/v1/runs").json(body)
}

fn wish() -> Value {
    json!({"file": "work/train.py", "arguments": ["--lr", "0.1"], "ranks": 4, "nodes": 2, "cpus": 2, "memory_mib": 2048})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = wish();
    body[key] = value;
    body
}

#[tokio::test]
async fn a_run_is_started_shown_requeued_and_cancelled() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let made = server.portal(start(&wish()).bearer(&ada)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let path = made.header("location").to_owned();
    let mut run = made.json();
    assert_eq!(path, format!("/api/v1/runs/{}", run["id"].as_str().unwrap()));
    run["id"].take();
    run["created_at"].take();
    let expected = json!({
        "id": null, "created_at": null, "name": "train.py", "owner": "ada", "file": "work/train.py",
        "arguments": ["--lr", "0.1"], "ranks": 4, "preflight": true, "image": "jupyter", "state": "queued",
        "undetermined": false, "nodes": [], "restart_count": 0, "version": 1,
        "resources": {"nodes": 2, "cpus": 2, "memory_mib": 2048, "gpus": 0, "walltime_min": 60},
    });
    assert_eq!(run, expected, "there is no address of an app");
    let list = server.portal(Ask::get("/api/v1/runs?live=true").bearer(&ada)).await.json();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["next"]), (1, &Value::Null));

    let requeue = || Ask::new("POST", &format!("{path}/requeue")).bearer(&ada).with("idempotency-key", "k");
    let again = server.portal(requeue()).await;
    assert_eq!(again.status, StatusCode::CREATED, "{}", again.body);
    assert_eq!(again.json()["requeue_of"], path.rsplit('/').next().unwrap());
    assert_eq!(again.json()["reason"]["code"], "earlier_run");
    assert_eq!(server.portal(requeue()).await.json()["id"], again.json()["id"]);
    let other_key = server.portal(Ask::new("POST", &format!("{path}/requeue")).bearer(&ada)).await;
    assert_eq!((other_key.status, &other_key.json()["code"]), (StatusCode::CONFLICT, &json!("already_requeued")));
    let reused = server.portal(start(&wish()).bearer(&ada).with("idempotency-key", "k")).await;
    assert_eq!((reused.status, &reused.json()["code"]), (StatusCode::CONFLICT, &json!("idempotency_key_reused")));
    let next = again.header("location").to_owned();
    for _ in 0..2 {
        let cancelled = server.portal(Ask::new("DELETE", &next).bearer(&ada)).await;
        assert_eq!((cancelled.status, &cancelled.json()["state"]), (StatusCode::ACCEPTED, &json!("stopping")));
    }
}

#[tokio::test]
async fn a_notebooks_run_says_where_the_executed_notebook_will_be() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let made = server.portal(start(&json!({"file": "a/b.ipynb"})).bearer(&ada)).await.json();
    assert_eq!(made["executed_notebook"], format!("a/b.run-{}.ipynb", made["id"].as_str().unwrap()));
    assert!(made.get("ranks").is_none(), "{made}");
}

#[tokio::test]
async fn bad_input_is_named_by_field_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let good = json!({"file": "a.ipynb"});
    let notebook = |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        body
    };
    for (body, field) in [
        (json!({}), "file"),
        (with("file", json!("")), "file"),
        (with("file", json!("a\nb")), "file"),
        (with("file", json!("a/")), "file"),
        (with("file", json!("x".repeat(5000))), "file"),
        (with("file", json!(["a"])), "file"),
        (with("arguments", json!("--lr 0.1")), "arguments"),
        (with("arguments", json!(["a\u{0}"])), "arguments"),
        (with("arguments", json!(vec!["x"; 257])), "arguments"),
        (with("arguments", json!([1])), "arguments[0]"),
        (with("ranks", json!(0)), "ranks"),
        (with("ranks", json!(5)), "ranks"),
        (with("ranks", json!(-1)), "ranks"),
        (with("ranks", json!("two")), "ranks"),
        (with("preflight", json!("yes")), "preflight"),
        (with("image", json!("nothing")), "image"),
        (with("image", json!("../x")), "image"),
        (with("nodes", json!(99)), "nodes"),
        (with("name", json!("a\u{7}")), "name"),
        (with("app", json!("jupyterlab")), "app"),
        (with("command", json!("sh -c id")), "command"),
        (notebook("arguments", json!(["x"])), "arguments"),
        (notebook("ranks", json!(2)), "ranks"),
    ] {
        let answer = server.portal(start(&body).bearer(&ada)).await;
        assert_eq!(answer.status.as_u16(), 422, "{body}: {}", answer.body);
        assert!(answer.fields().contains(&field.to_owned()), "{body}: {}", answer.body);
    }
    let rank = server.portal(Ask::get(&format!("/api/v1/runs/{}/logs?rank=2", server.run(&ada).await.id)).bearer(&ada));
    assert_eq!(rank.await.fields(), ["rank"]);
    let list = server.portal(Ask::get("/api/v1/runs").bearer(&ada)).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "only the one that was put there");
    assert_eq!(server.test.app.db.audit_events(None, 9, None, Some("run.start")).await.unwrap().len(), 0);
}

#[tokio::test]
async fn sessions_and_runs_are_apart_on_every_address() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let (session, run) = (server.session(&ada).await.id, server.run(&ada).await.id);
    let ids = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let sessions = server.portal(Ask::get("/api/v1/sessions").bearer(&ada)).await.json();
    let runs = server.portal(Ask::get("/api/v1/runs").bearer(&ada)).await.json();
    assert_eq!((ids(&sessions), ids(&runs)), (vec![session.to_string()], vec![run.to_string()]));
    for path in ["", "/events", "/logs"] {
        for (noun, id) in [("sessions", run), ("runs", session)] {
            let answer = server.portal(Ask::get(&format!("/api/v1/{noun}/{id}{path}")).bearer(&ada)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{noun}{path}");
        }
    }
    for ask in [
        Ask::new("DELETE", &format!("/api/v1/sessions/{run}")),
        Ask::new("DELETE", &format!("/api/v1/runs/{session}")),
        Ask::new("POST", &format!("/api/v1/runs/{session}/requeue")),
    ] {
        let shown = format!("{} {}", ask.method, ask.path);
        assert_eq!(server.portal(ask.bearer(&ada)).await.status, StatusCode::NOT_FOUND, "{shown}");
    }
    for path in ["", "/log", "/stop", "/open"] {
        let answer = server.portal(Ask::get(&format!("/sessions/{run}{path}")).cookie(&ada).page()).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn no_way_leads_to_an_app_of_a_run() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let run = server.run(&ada).await.id;
    // Even if something answered there.
    server.apps.run(run);
    let opened = server.portal(Ask::get(&format!("/open?session={run}")).cookie(&ada).page()).await;
    assert_eq!(opened.status, StatusCode::NOT_FOUND);
    assert!(server.test.app.access.begin_handover(&ada.actor, run).await.is_err());
    let session = server.session(&ada).await.id;
    let code = server.test.app.access.begin_handover(&ada.actor, session).await.unwrap();
    assert!(server.test.app.access.finish_handover(&code, run).await.is_err(), "a session's code opens no run");
    let of_session = server.enter(&ada, session).await;
    for ask in [
        Ask::get("/lab").bearer(&ada),
        Ask::get("/lab").app_cookie(&of_session),
        Ask::get("/lab").cookie(&ada),
        Ask::get("/lab").bearer(&ada).with("connection", "upgrade").with("upgrade", "websocket"),
    ] {
        let answer = server.app(run, ask).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.body);
    }
    assert_eq!(server.apps.opened(), 0);
}
