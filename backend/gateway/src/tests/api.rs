//! The API: what it promises, and what it answers to those who mean it no good.

use std::time::Duration;

use eirene_core::JobKind;
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;

fn start(body: &Value) -> Ask {
    Ask::new("POST", "/api/v1/sessions").json(body)
}

fn wish() -> Value {
    json!({"app": "jupyterlab", "image": "jupyter", "cpus": 2, "memory_mib": 2048})
}

impl Server {
    async fn rows(&self) -> usize {
        let mut rows = 0;
        for kind in [JobKind::Session, JobKind::Run] {
            let all = eirene_database::StateFilter::All;
            rows += self.test.app.db.sessions_of(kind, None, all, None, 100).await.unwrap().len();
        }
        rows
    }
}

/// Reads a stream until `wanted` is in it.
async fn read_until(body: &mut Incoming, wanted: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(wanted) {
            let frame = body.frame().await.expect("the stream goes on").unwrap();
            text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
        }
    };
    assert!(timeout(PATIENCE, read).await.is_ok(), "`{wanted}` did not come; there was: {text}");
    text
}

#[tokio::test]
async fn a_session_is_started_shown_and_stopped() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let made = server.portal(start(&wish()).bearer(&ada)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let session = made.json();
    let path = made.header("location").to_owned();
    assert_eq!(path, format!("/api/v1/sessions/{}", session["id"].as_str().unwrap()));
    assert_eq!((session["state"].as_str(), session["owner"].as_str()), (Some("queued"), Some("ada")));
    assert_eq!(session["resources"]["walltime_min"], 60);
    assert_eq!(session["url"], format!("http://{}/", host(session["id"].as_str().unwrap().parse().unwrap())));
    assert!(session["created_at"].as_str().unwrap().ends_with('Z'));
    assert!(session.get("reason").is_none() && session.get("slurm_job_id").is_none());

    assert_eq!(server.portal(Ask::get(&path).bearer(&ada)).await.json()["id"], session["id"]);
    let list = server.portal(Ask::get("/api/v1/sessions?live=true").bearer(&ada)).await.json();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["next"]), (1, &Value::Null));
    for _ in 0..2 {
        let stopped = server.portal(Ask::new("DELETE", &path).bearer(&ada)).await;
        assert_eq!((stopped.status, stopped.json()["state"].as_str()), (StatusCode::ACCEPTED, Some("stopping")));
    }
}

#[tokio::test]
async fn a_request_that_says_nothing_gets_what_the_document_promises() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let made = server.portal(start(&json!({})).bearer(&ada)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let made = made.json();
    let document = server.portal(Ask::get("/api/v1/openapi.json")).await.json();
    let fields = &document["components"]["schemas"]["NewSession"]["properties"];
    for field in ["app", "image"] {
        assert_eq!(made[field], fields[field]["default"], "{field}");
    }
    for field in ["nodes", "cpus", "memory_mib", "gpus", "walltime_min"] {
        assert_eq!(made["resources"][field], fields[field]["default"], "{field}");
    }
    let asked = (&made["app"], &made["image"], &made["resources"]);
    let resources = json!({"nodes": 1, "cpus": 2, "memory_mib": 2048, "gpus": 0, "walltime_min": 60});
    assert_eq!(asked, (&json!("jupyterlab"), &json!("jupyter"), &resources));
    // The start form begins with the same.
    let form = server.portal(Ask::get("/sessions/new").cookie(&ada)).await.body;
    for (name, value) in [("cpus", "2"), ("memory_gib", "2"), ("hours", "1"), ("minutes", "0"), ("nodes", "1")] {
        let field = form.split(&format!("name=\"{name}\"")).nth(1).unwrap().split('>').next().unwrap();
        assert!(field.contains(&format!("value=\"{value}\"")), "{name}: {field}");
    }
    assert!(
        form.contains("<option value=\"jupyter\" selected>") && form.contains("<option value=\"jupyterlab\" selected>")
    );
}

#[tokio::test]
async fn a_token_sees_itself_and_with_its_scope_the_owners_others() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let new = NewToken { name: "small".into(), scopes: Some(vec![Scope::Read]), expires_in_s: Some(60) };
    let small = server.test.app.tokens.create(&ada.actor, new).await.unwrap();
    let own = format!("/api/v1/tokens/{}", small.token.id);
    let with = |path: &str| Ask::get(path).with("authorization", &format!("Bearer {}", small.secret.expose()));
    let shown = server.portal(with(&own)).await;
    assert_eq!(
        (shown.status, &shown.json()["name"], &shown.json()["scopes"]),
        (StatusCode::OK, &json!("small"), &json!(["read"]))
    );
    assert!(shown.json().get("token").is_none() && !shown.body.contains(small.secret.expose()));
    assert_eq!(server.portal(Ask::get(&own).bearer(&ada)).await.json()["id"], shown.json()["id"]);
    assert_eq!(server.portal(Ask::get(&own).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
    let other = server.portal(Ask::get("/api/v1/tokens").bearer(&ada)).await.json()["items"][1]["id"].clone();
    let other = server.portal(with(&format!("/api/v1/tokens/{}", other.as_str().unwrap()))).await;
    assert_eq!((other.status, &other.json()["code"]), (StatusCode::FORBIDDEN, &json!("insufficient_scope")));
}

#[tokio::test]
async fn lists_come_in_pages_without_gaps() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let mut wanted = Vec::new();
    for _ in 0..5 {
        wanted.insert(0, server.session(&ada).await.id.to_string());
    }
    let (mut got, mut path) = (Vec::new(), "/api/v1/sessions?limit=2".to_owned());
    loop {
        let page = server.portal(Ask::get(&path).bearer(&ada)).await.json();
        got.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/sessions?limit=2&cursor={next}");
    }
    assert_eq!(got, wanted);
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_session() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let ask = |person: &Person, body: &Value| start(body).bearer(person).with("idempotency-key", "k1");
    let first = server.portal(ask(&ada, &wish())).await.json()["id"].clone();
    // Spelled differently, meant alike.
    let spelled = Ask::new("POST", "/api/v1/sessions")
        .bearer(&ada)
        .with("idempotency-key", "k1")
        .with("content-type", "application/json");
    let again = server
        .portal(spelled.body(r#" {"memory_mib":2048, "image":"jupyter","cpus":2,"app":"jupyterlab","nodes":1}"#))
        .await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::CREATED, &first));
    let mut other = wish();
    other["cpus"] = json!(3);
    let conflict = server.portal(ask(&ada, &other)).await;
    assert_eq!(
        (conflict.status, conflict.json()["code"].as_str()),
        (StatusCode::CONFLICT, Some("idempotency_key_reused"))
    );
    assert_ne!(server.portal(ask(&grace, &wish())).await.json()["id"], first, "keys are one's own");
    for bad in ["", &"x".repeat(256), "ä", "a key", "a\tkey"] {
        let mut request = start(&wish()).bearer(&ada).to(PORTAL);
        request.headers_mut().insert("idempotency-key", http::HeaderValue::from_bytes(bad.as_bytes()).unwrap());
        assert_eq!(server.send(request).await.fields(), ["Idempotency-Key"], "{bad:?}");
    }
    assert_eq!(server.rows().await, 2);
}

#[tokio::test]
async fn bad_input_is_refused_by_field_and_leaves_nothing_behind() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let before = server.test.app.db.audit_events(None, 100, None, Some("session.start")).await.unwrap().len();
    let hostile =
        ["'; DROP TABLE sessions; --", "$(id)", "<script>alert(1)</script>", "a\u{0}b", "../../etc", "-x", "", " "];
    for field in ["app", "image", "project", "partition", "gpu_type"] {
        for text in hostile {
            let mut body = wish();
            body[field] = json!(text);
            let answer = server.portal(start(&body).bearer(&ada)).await;
            assert_eq!((answer.status.as_u16(), answer.fields()), (422, vec![field.to_owned()]), "{field}: {text:?}");
        }
    }
    for (field, value) in [
        ("name", json!("a\u{0}b")),
        ("name", json!("a\nb")),
        ("name", json!("x".repeat(81))),
        ("name", json!(7)),
        ("nodes", json!(0)),
        ("nodes", json!(-1)),
        ("nodes", json!("2")),
        ("nodes", json!(1_000_000_000)),
        ("cpus", json!(1.5)),
        ("cpus", json!(null)),
        ("cpus", json!(u64::MAX)),
        ("memory_mib", json!(0)),
        ("memory_mib", json!(1e30)),
        ("gpus", json!(1_000_000_000)),
        ("gpus", json!([1])),
        ("walltime_min", json!(0)),
        ("walltime_min", json!(4_294_967_296_u64)),
        ("image", json!("unknown")),
        ("app", json!("unknown")),
        ("partition", json!("nowhere")),
        ("user", json!("root")),
        ("uid", json!(0)),
        ("__proto__", json!({})),
    ] {
        let mut body = wish();
        body[field] = value.clone();
        let answer = server.portal(start(&body).bearer(&ada)).await;
        assert_eq!((answer.status.as_u16(), answer.fields()), (422, vec![field.to_owned()]), "{field}: {value}");
    }
    let json = |text: &str| {
        Ask::new("POST", "/api/v1/sessions").bearer(&ada).with("content-type", "application/json").body(text)
    };
    for (ask, status) in [
        (json("{"), 400),
        (json(""), 400),
        (json("\u{0}"), 400),
        (json("[1, 2]"), 422),
        (json("null"), 422),
        (json("\"text\""), 422),
        (json(&"[".repeat(50_000)), 400),
        (json(&format!("{{\"name\": \"{}\"}}", "x".repeat(1_000_000))), 413),
        (json(&"x".repeat(6_000_000)), 413),
        (Ask::new("POST", "/api/v1/sessions").bearer(&ada).body(wish().to_string()), 415),
        (Ask::new("POST", "/api/v1/sessions").bearer(&ada).with("content-type", FORM).body("app=jupyterlab"), 415),
        (Ask::get("/api/v1/sessions?limit=0").bearer(&ada), 422),
        (Ask::get("/api/v1/sessions?limit=x").bearer(&ada), 422),
        (Ask::get("/api/v1/sessions?limit=1&limit=2").bearer(&ada), 422),
        (Ask::get("/api/v1/sessions?cursor=%27%3B--").bearer(&ada), 422),
        (Ask::get("/api/v1/sessions?unknown=1").bearer(&ada), 422),
        (Ask::get(&format!("/api/v1/sessions?cursor={}", "x".repeat(57_500))).bearer(&ada), 414),
        (Ask::get(&format!("/api/v1/sessions/{}", "x".repeat(57_500))), 414),
        (Ask::get("/api/v1/sessions/x").bearer(&ada), 404),
        (Ask::get("/api/v1/sessions/%00").bearer(&ada), 404),
        (Ask::get("/api/v1/sessions/%ff").bearer(&ada), 404),
        (Ask::get("/api/v1/sessions/00000000000000000000000000000000").bearer(&ada), 404),
        (Ask::get("/api/v1/nothing").bearer(&ada), 404),
        (Ask::new("PUT", "/api/v1/sessions").bearer(&ada), 405),
        (Ask::new("TRACE", "/api/v1/me").bearer(&ada), 405),
    ] {
        let shown = format!("{} {}", ask.method, ask.path);
        let answer = server.portal(ask).await;
        assert_eq!(answer.status.as_u16(), status, "{shown}: {}", answer.body);
        assert_eq!(answer.header("content-type"), "application/problem+json", "{shown}");
    }
    assert_eq!(server.rows().await, 0);
    assert_eq!(server.test.app.db.audit_events(None, 100, None, Some("session.start")).await.unwrap().len(), before);
}

#[tokio::test]
async fn a_problem_says_what_programs_and_people_need() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let mut body = wish();
    body["cpus"] = json!(0);
    body["gpu_type"] = json!("a100");
    let answer = server.portal(start(&body).bearer(&ada)).await;
    let mut problem = answer.json();
    let id = problem["request_id"].take();
    assert_eq!(id.as_str(), Some(answer.header("x-request-id")));
    insta::assert_json_snapshot!(problem, @r#"
    {
      "code": "invalid",
      "detail": "2 fields are wrong",
      "errors": [
        {
          "field": "cpus",
          "message": "must be between 1 and 100000"
        },
        {
          "field": "gpu_type",
          "message": "a GPU type needs at least one GPU"
        }
      ],
      "request_id": null,
      "status": 422,
      "title": "Unprocessable Entity",
      "type": "about:blank"
    }
    "#);
    let wrong_verb = server.portal(Ask::new("PUT", "/api/v1/me").bearer(&ada)).await;
    assert!(wrong_verb.header("allow").contains("GET"));
}

#[tokio::test]
async fn a_scratch_is_taken_as_it_is_asked_for_and_what_is_wrong_with_it_is_named() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let asked = |scratch: serde_json::Value| {
        let mut body = wish();
        body["scratch"] = scratch;
        start(&body).bearer(&ada)
    };
    let lists = json!({
        "kind": "node", "size_mib": 100,
        "stage_in": [{"from": "home:data", "to": "in"}],
        "stage_out": [{"from": "out", "to": "home:kept", "on": "success"}],
    });
    let made = server.portal(asked(lists.clone())).await;
    assert_eq!((made.status, &made.json()["scratch"]), (StatusCode::CREATED, &lists), "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.portal(Ask::get(&format!("/api/v1/sessions/{id}")).bearer(&ada)).await.json()["scratch"], lists);
    assert!(server.portal(start(&wish()).bearer(&ada)).await.json().get("scratch").is_none());
    for (scratch, field) in [
        (json!({"kind": "disk"}), "scratch.kind"),
        (json!({"kind": "beeond"}), "scratch.kind"),
        (json!({"kind": "node", "size_mib": 0}), "scratch.size_mib"),
        (json!({"kind": "node", "sise_mib": 1}), "sise_mib"),
        (json!({"kind": "node", "stage_in": [{"from": "project:x", "to": "x"}]}), "scratch.stage_in"),
        (json!({"kind": "node", "stage_out": [{"from": "x", "to": "scratch-grace:x"}]}), "scratch.stage_out"),
        (json!({"kind": "node", "stage_in": [{"from": "home:../grace", "to": "x"}]}), "scratch.stage_in[0].from"),
        (json!({"kind": "node", "stage_in": [{"from": "/etc", "to": "x"}]}), "scratch.stage_in[0].from"),
        (json!({"kind": "node", "stage_out": [{"from": "x", "to": "home:/etc"}]}), "scratch.stage_out[0].to"),
    ] {
        let shown = scratch.to_string();
        let refused = server.portal(asked(scratch)).await;
        assert_eq!(
            (refused.status.as_u16(), refused.fields()),
            (422, vec![field.to_owned()]),
            "{shown}: {}",
            refused.body
        );
    }
    assert_eq!(server.rows().await, 2);
}

#[tokio::test]
async fn a_name_is_shown_as_it_is_and_never_as_markup() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let mut body = wish();
    body["name"] = json!("<script>alert('x')</script>");
    let made = server.portal(start(&body).bearer(&ada)).await;
    assert_eq!(made.status, StatusCode::CREATED);
    for path in ["/".to_owned(), format!("/sessions/{}", made.json()["id"].as_str().unwrap())] {
        let page = server.portal(Ask::get(&path).cookie(&ada)).await;
        assert!(page.body.contains("&lt;script&gt;alert"), "{path}");
        assert!(!page.body.contains("<script>alert"), "{path}");
    }
}

#[tokio::test]
async fn events_arrive_and_are_taken_up_again() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let stream = server.open(Ask::get("/api/v1/events").bearer(&ada).to(PORTAL)).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut body = stream.into_body();
    server.portal(start(&wish()).bearer(&grace)).await;
    let id = server.portal(start(&wish()).bearer(&ada)).await.json()["id"].as_str().unwrap().to_owned();
    let text = read_until(&mut body, &id).await;
    assert!(!text.contains("\"owner\":\"grace\""), "{text}");
    let number = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).map(|id| id.parse::<i64>().unwrap());
    drop(body);

    server.portal(Ask::new("DELETE", &format!("/api/v1/sessions/{id}")).bearer(&ada)).await;
    let number = number.unwrap_or(0).to_string();
    for path in ["/api/v1/events".to_owned(), format!("/api/v1/sessions/{id}/events")] {
        let ask = Ask::get(&path).bearer(&ada).with("last-event-id", &number);
        let mut again = server.open(ask.to(PORTAL)).await.into_body();
        read_until(&mut again, "\"state\":\"stopping\"").await;
    }
    let bad = Ask::get("/api/v1/events").bearer(&ada).with("last-event-id", "x'; --");
    assert_eq!(server.portal(bad).await.fields(), ["Last-Event-ID"]);
    let foreign = server.portal(Ask::get(&format!("/api/v1/sessions/{id}/events")).bearer(&grace)).await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
    assert_eq!(server.portal(Ask::get("/api/v1/events?all=true").bearer(&ada)).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn kept_events_are_facts_and_shown_as_things_are() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let made = server.portal(start(&wish()).bearer(&ada)).await.json();
    let db = &server.test.app.db;
    let kept = db.events_after(0, 10).await.unwrap();
    let [first] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(first.data, json!({"id": made["id"], "version": 1}));
    // Earlier versions kept what they showed.
    let shown = json!({"id": made["id"], "name": "as it was", "state": "starting"});
    let (session, owner, at) = (first.session, first.owner, first.at);
    for _ in 0..3 {
        db.append_event(session, owner, "state", &shown, at).await.unwrap();
    }
    // What is gone, and what makes no sense, is left out.
    for (kind, id) in [("alert", "01890000-0000-7000-8000-000000000000"), ("operation", "x"), ("state", "x")] {
        db.append_event(None, owner, kind, &json!({"id": id}), at).await.unwrap();
    }
    db.append_event(None, owner, "state", &json!({"name": "of nothing"}), at).await.unwrap();
    db.append_event(None, owner, "notice", &json!({"code": "end"}), at).await.unwrap();
    let ask = Ask::get("/api/v1/events").bearer(&ada).with("last-event-id", &first.id.to_string());
    let text = read_until(&mut server.open(ask.to(PORTAL)).await.into_body(), "\"code\":\"end\"").await;
    let data: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(data, [made, json!({"code": "end"})]);
}

#[tokio::test]
async fn a_log_is_read_and_followed() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    let session = server.session(&ada).await.id;
    let logs = &server.test.app.logs;
    logs.append(session, Bytes::from_static(b"first line\n")).await.unwrap();
    let path = format!("/api/v1/sessions/{session}/logs");
    let whole = server.portal(Ask::get(&path).bearer(&ada)).await;
    assert_eq!((whole.body.as_str(), whole.header("content-type")), ("first line\n", "text/plain; charset=utf-8"));
    let mut body = server.open(Ask::get(&format!("{path}?follow=true")).bearer(&ada).to(PORTAL)).await.into_body();
    read_until(&mut body, "first line\n").await;
    logs.append(session, Bytes::from_static(b"second line\n")).await.unwrap();
    read_until(&mut body, "second line\n").await;
    logs.close(session);
    assert!(timeout(PATIENCE, body.collect()).await.is_ok(), "the log continues after the session ended");
    assert_eq!(server.portal(Ask::get(&path).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn people_are_managed_by_admins_alone() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let users = server.portal(Ask::get("/api/v1/users?limit=1").bearer(&admin)).await.json();
    assert_eq!((users["items"][0]["username"].as_str(), users["next"].as_str()), (Some("ada"), Some("ada")));
    let rest = server.portal(Ask::get("/api/v1/users?cursor=ada").bearer(&admin)).await.json();
    assert_eq!(rest["items"][0]["username"], "root-admin");
    let create = |body: &Value| Ask::new("POST", "/api/v1/users").bearer(&admin).json(body);
    for (body, field) in [
        (json!({"username": "No Such'Name"}), "username"),
        (json!({"username": "nobody-of-that-name"}), "username"),
        (json!({"username": "daemon"}), "username"),
        (json!({"username": "x", "role": "god"}), "role"),
        (json!({"username": "x", "uid": 0}), "uid"),
    ] {
        let answer = server.portal(create(&body)).await;
        assert_eq!((answer.status.as_u16(), answer.fields()), (422, vec![field.to_owned()]), "{body}: {}", answer.body);
    }
    let made = server.portal(create(&json!({"username": "second", "role": "admin"}))).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!((made.json()["uid"].clone(), made.json()["password"].as_str().unwrap().len()), (Value::Null, 20));
    let twice = server.portal(create(&json!({"username": "second", "role": "admin"}))).await;
    assert_eq!((twice.status, twice.json()["code"].as_str()), (StatusCode::CONFLICT, Some("username_taken")));
    let log = server.portal(Ask::get("/api/v1/audit?action=user.create&limit=1").bearer(&admin)).await.json();
    assert_eq!(
        (log["items"][0]["actor"].as_str(), log["items"][0]["target"].as_str()),
        (Some("root-admin"), Some("second"))
    );
    let refused = server.portal(Ask::get("/api/v1/audit").bearer(&ada)).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (StatusCode::FORBIDDEN, Some("not_admin")));
}

#[tokio::test]
async fn strangers_hear_ready_and_the_listed_why_not() {
    let server = Server::start().await;
    assert_eq!(server.portal(Ask::get("/healthz")).await.body, "ok\n");
    let ready = server.portal(Ask::get("/readyz")).await;
    assert_eq!(ready.status, StatusCode::OK);
    assert!(ready.body.contains("ok   database\n") && ready.body.contains("ok   slurm\n"), "{}", ready.body);
    assert!(ready.body.contains("AWAY launcher: takes no connections"), "{}", ready.body);
    assert!(ready.body.contains("ok   samples\n"), "{}", ready.body);
    // Ends at once, and closes their store.
    let over = CancellationToken::new();
    over.cancel();
    server.test.app.samples.clone().keep(over).await;
    let socket = tokio::net::UnixListener::bind(&server.test.app.config.launcher.socket).unwrap();
    server.test.clock.advance_s(2);
    let ready = server.portal(Ask::get("/readyz")).await;
    assert!(ready.body.contains("ok   launcher\n"), "{}", ready.body);
    assert!(ready.body.contains("AWAY samples: are not kept"), "{}", ready.body);
    drop(socket);
    let metrics = server.portal(Ask::get("/metrics")).await;
    assert_eq!(metrics.status, StatusCode::OK);
    assert!(metrics.body.contains("eirene_http_requests_total"), "{}", metrics.body);
    let cluster = server.portal(Ask::get("/readyz")).await;
    assert!(cluster.header("content-type").starts_with("text/plain"));
    // What came through a proxy that is not listed comes from anybody.
    let stranger = server.portal(Ask::get("/readyz").with("x-forwarded-for", "198.51.100.1")).await;
    assert_eq!((stranger.status, stranger.body.as_str()), (StatusCode::OK, "ready\n"));
}

#[tokio::test]
async fn that_no_collector_takes_traces_is_told_with_all_else() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = eirene_services::config::Traces {
        url: Some("http://127.0.0.1:1".into()),
        ..eirene_services::config::Traces::default()
    };
    let (traces, exporter) = eirene_services::traces::Traces::new(&config).unwrap();
    let server = Server::serve(TestApp::with_traces(traces).await).await;
    let ready = async || {
        // The last report is good for so long.
        server.test.clock.advance_s(2);
        server.portal(Ask::get("/readyz")).await
    };
    assert!(ready().await.body.contains("ok   traces\n"), "nothing was to be sent so far");
    let over = CancellationToken::new();
    let sends = tokio::spawn(exporter.unwrap().run(over.clone()));
    server.portal(Ask::get("/login")).await;
    let told = async {
        while !ready().await.body.contains("AWAY traces: are not taken") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, told).await.expect("it is never told");
    assert_eq!(ready().await.status, StatusCode::OK, "the portal goes on");
    over.cancel();
    sends.await.unwrap();
}

#[tokio::test]
async fn a_form_of_a_megabyte_is_refused_before_it_is_read_and_is_not_shown_again() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let much = "x".repeat(1_000_000);
    for path in ["/sessions", "/sessions/check", "/fragments/check", "/account/tokens", "/account/password"] {
        let answer = server.portal(Ask::new("POST", path).form(&ada, &[("name", &much)])).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        assert!(answer.body.len() < 100_000, "{path}");
    }
    let log_in = Ask::new("POST", "/login").with("content-type", FORM).with("origin", PORTAL_ORIGIN);
    let answer = server.portal(log_in.body(format!("username=ada&password={much}"))).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(server.rows().await, 0);
}
