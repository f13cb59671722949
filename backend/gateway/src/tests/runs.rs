//! Runs over the API, and that no way leads to an app they do not have.

use eirene_core::scheduler::Account;
use eirene_core::{Image, ImageId, Role, Scope};
use serde_json::json;

use super::files::real;
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
async fn a_file_that_cannot_be_run_is_refused_at_once() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("work")).unwrap();
    for (name, mode) in [("work/train.py", 0o600), ("work/start", 0o700), ("work/notes", 0o600)] {
        std::fs::write(home.join(name), "").unwrap();
        std::fs::set_permissions(home.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("/opt/of/the/image.py", home.join("work/link.py")).unwrap();
    let home_path = home.to_str().unwrap();
    let refused = async |person: &Person, file: &str| {
        let answer = server.portal(start(&json!({"file": file})).bearer(person)).await;
        // How many there may be is asked last.
        if answer.status == StatusCode::CREATED || answer.json()["code"] == "too_many_runs" {
            return String::new();
        }
        assert_eq!(answer.fields(), ["file"], "{}", answer.body);
        answer.body
    };
    let run = server.portal(start(&json!({"file": "work/train.py"})).bearer(&ada)).await.header("location").to_owned();
    // What leads out of the home is the image's, or the agent's to find out.
    for file in ["work/train.py", "~/work/train.py", "work/start", "work/link.py", "/opt/a.py", "../a.py"] {
        assert_eq!(refused(&ada, file).await, "", "{file}");
    }
    assert_eq!(refused(&ada, &format!("{home_path}/work/train.py")).await, "");
    for (file, said) in [
        ("work/trian.py", "there is no file `work/trian.py`"),
        ("~/train.py", "there is no file `train.py`"),
        ("work", "`work` is a directory"),
        ("work/notes", "chmod +x"),
    ] {
        let body = refused(&ada, file).await;
        assert!(body.contains(said), "{file}: {body}");
    }
    let absolute = format!("{home_path}/work/none.ipynb");
    assert!(refused(&ada, &absolute).await.contains("work/none.ipynb"));
    // A token that may not read files hears nothing of them.
    let blind = server.with_scopes(&ada, &[Scope::Read, Scope::SessionsRead, Scope::SessionsWrite]).await;
    assert_eq!(refused(&blind, "work/trian.py").await, "");
    std::fs::remove_file(home.join("work/train.py")).unwrap();
    let again = server.portal(Ask::new("POST", &format!("{run}/requeue")).bearer(&ada)).await;
    assert_eq!(again.fields(), ["file"], "{}", again.body);
    // Where the file process does not answer, nothing is known.
    *server.test.launcher.files.lock().unwrap() = None;
    let grace = server.person("grace", 2002, Role::Researcher).await;
    assert_eq!(refused(&grace, "work/trian.py").await, "");
}

#[tokio::test]
async fn a_project_of_others_is_refused_by_field() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let projects = async || server.portal(Ask::get("/api/v1/me").bearer(&ada)).await.json()["projects"].take();
    assert_eq!(projects().await, json!([]));
    let account = |name: &str, is_default| Account { name: name.parse().unwrap(), partition: None, is_default };
    server.test.scheduler.state().accounts = vec![account("optics", true), account("maps", false)];
    server.test.clock.advance_s(60);
    assert_eq!(projects().await, json!(["optics", "maps"]));
    let session = |project: &str| {
        let body = json!({"image": "jupyter", "app": "jupyterlab", "project": project});
        Ask::new("POST", "/api/v1/sessions").json(&body)
    };
    for ask in [session("stars"), start(&with("project", json!("stars")))] {
        let answer = server.portal(ask.bearer(&ada)).await;
        assert_eq!(answer.fields(), ["project"], "{}", answer.body);
        assert!(answer.body.contains("choose one of optics, maps"), "{}", answer.body);
    }
    let made = server.portal(session("maps").bearer(&ada)).await;
    assert_eq!((made.status, &made.json()["project"]), (StatusCode::CREATED, &json!("maps")));
    // The run is like the session, in a project that the person has left since.
    server.test.scheduler.state().accounts = vec![account("optics", true)];
    server.test.clock.advance_s(60);
    let like = with("like", made.json()["id"].clone());
    assert_eq!(server.portal(start(&like).bearer(&ada)).await.fields(), ["project"]);
    let page = server.portal(Ask::get("/sessions/new").page().cookie(&ada)).await.body;
    assert!(!page.contains("name=\"project\""), "one project is no choice");
    server.test.scheduler.state().accounts.push(account("maps", false));
    server.test.clock.advance_s(60);
    for path in ["/sessions/new", "/runs/new"] {
        let page = server.portal(Ask::get(path).page().cookie(&ada)).await.body;
        assert!(page.contains("name=\"project\"") && page.contains("<option value=\"maps\""), "{page}");
    }
    let from = format!("/sessions/new?from={}", made.json()["id"].as_str().unwrap());
    let page = server.portal(Ask::get(&from).page().cookie(&ada)).await.body;
    assert!(page.contains("<option value=\"maps\" selected"), "{page}");
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
async fn a_notebooks_log_has_the_lines_of_as_many_ranks_as_its_cells_have_room_for() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let body = json!({"file": "a.ipynb", "nodes": 2, "cpus": 2});
    let id = server.portal(start(&body).bearer(&ada)).await.json()["id"].as_str().unwrap().to_owned();
    let log =
        async |rank: u32| server.portal(Ask::get(&format!("/api/v1/runs/{id}/logs?rank={rank}")).bearer(&ada)).await;
    assert_eq!(log(3).await.status, StatusCode::OK);
    let none = log(4).await;
    assert_eq!(none.fields(), ["rank"]);
    assert!(none.body.contains("the ranks of this run are 0 to 3"), "{}", none.body);
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
async fn a_run_like_a_session_has_of_it_what_the_body_leaves_out() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let wish = json!({"project": "optics", "partition": "main", "nodes": 2, "cpus": 4, "gpus": 1, "walltime_min": 90});
    let session = server.portal(Ask::new("POST", "/api/v1/sessions").json(&wish).bearer(&ada)).await;
    assert_eq!(session.status, StatusCode::CREATED, "{}", session.body);
    let session = server.test.row(session.json()["id"].as_str().unwrap().parse().unwrap()).await;
    server.test.replace_image("/images/b.sif").await;
    let started = async |body: Value, key: &str| {
        let answer = server.portal(start(&body).bearer(&ada).with("idempotency-key", key)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{body}: {}", answer.body);
        server.test.row(answer.json()["id"].as_str().unwrap().parse().unwrap()).await
    };
    let like = json!({"file": "train.py", "like": session.id});
    let run = started(like.clone(), "k1").await;
    assert_eq!((&run.image, &run.image_path), (&session.image, &session.image_path), "the file that it had");
    assert_eq!((&run.project, &run.resources), (&session.project, &session.resources));
    assert_eq!(started(like, "k1").await.id, run.id);
    let given = json!({
        "file": "train.py", "like": session.id, "image": "jupyter", "project": "maps", "partition": null, "cpus": 2, "gpus": 0,
    });
    let run = started(given, "k2").await;
    assert_eq!((run.image_path.as_str(), run.project), ("/images/b.sif", Some("maps".parse().unwrap())));
    let expected = eirene_core::Resources { cpus: 2, gpus: 0, ..session.resources.clone() };
    assert_eq!(run.resources, expected, "null is left out, a number is given");

    // The session is a part of what the key is of; defaults are meant, whether they are said or not.
    let plain = json!({"file": "train.py"});
    for key in ["k1", "k2"] {
        let reused = server.portal(start(&plain).bearer(&ada).with("idempotency-key", key)).await;
        assert_eq!((reused.status, &reused.json()["code"]), (StatusCode::CONFLICT, &json!("idempotency_key_reused")));
    }
    let run = started(plain, "k3").await;
    let document = server.portal(Ask::get("/api/v1/openapi.json")).await.json();
    let mut said = json!({"file": "train.py"});
    for field in ["image", "nodes", "cpus", "memory_mib", "gpus", "walltime_min"] {
        said[field] = document["components"]["schemas"]["NewRun"]["properties"][field]["default"].clone();
    }
    assert_eq!(started(said, "k3").await.id, run.id);
    assert_eq!((run.image_path.as_str(), run.resources), ("/images/b.sif", testing::small()));
}

#[tokio::test]
async fn what_one_cannot_be_like_is_refused_in_the_same_words() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let (theirs, run) = (server.session(&grace).await.id, server.run(&ada).await.id);
    let mut refused = Vec::new();
    for (person, like) in [
        (&ada, theirs.to_string()),
        (&admin, theirs.to_string()),
        (&ada, run.to_string()),
        (&ada, SessionId::generate().to_string()),
        (&ada, "../../etc".to_owned()),
        (&ada, String::new()),
    ] {
        let answer = server.portal(start(&json!({"file": "a.py", "like": like})).bearer(person)).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{like}: {}", answer.body);
        refused.push(answer.json()["errors"].clone());
    }
    let expected = json!([{"field": "like", "message": "no session of yours has this id"}]);
    assert!(refused.iter().all(|errors| *errors == expected), "{refused:?}");
    let number = server.portal(start(&with("like", json!(7))).bearer(&ada)).await;
    assert_eq!((number.status, number.fields()), (StatusCode::UNPROCESSABLE_ENTITY, vec!["like".to_owned()]));
    let list = server.portal(Ask::get("/api/v1/runs?all=true").bearer(&admin)).await.json();
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

#[tokio::test]
async fn a_run_is_started_looked_at_requeued_and_cancelled_on_pages() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let page = async |path: &str| {
        let answer = server.portal(Ask::get(path).cookie(&ada).page()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    };
    assert!(page("/runs").await.contains("href=\"/runs/new\""));
    let form = page("/runs/new").await;
    assert!(form.contains("name=\"preflight\" value=\"on\" checked"), "{form}");
    let fields = [
        ("file", "work/train.py"),
        ("arguments", "--lr\r\n0.1; $(id)\r\n"),
        ("ranks", "2"),
        ("preflight", "on"),
        ("name", ""),
        ("image", "jupyter"),
        ("nodes", "1"),
        ("cpus", "2"),
        ("memory_gib", "2"),
        ("gpu_type", "none"),
        ("hours", "1"),
        ("minutes", "0"),
        ("key", "form-key"),
    ];
    let send = async |fields: &[(&str, &str)]| server.portal(Ask::new("POST", "/runs").form(&ada, fields)).await;
    let made = send(&fields).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.body);
    let path = made.header("location").to_owned();
    assert_eq!(send(&fields).await.header("location"), path, "two clicks are one start");
    let id: SessionId = path.rsplit('/').next().unwrap().parse().unwrap();
    let row = server.test.row(id).await;
    let program = row.program.clone().unwrap();
    assert_eq!(
        (program.arguments.as_slice(), program.ranks, program.preflight),
        (&["--lr".into(), "0.1; $(id)".into()][..], Some(2), true)
    );

    server.test.app.logs.append(id, Bytes::from_static(b"[0] zero <b>\n[1] one\n")).await.unwrap();
    let shown = page(&path).await;
    assert!(
        shown.contains("[0] zero &lt;b&gt;")
            && shown.contains(&format!("data-log=\"/live/runs/{id}/logs?follow=true\""))
    );
    let of_one = page(&format!("{path}?rank=1")).await;
    assert!(of_one.contains(">one\n</pre>") && of_one.contains("logs?follow=true&amp;rank=1"), "{of_one}");
    assert_eq!(page(&format!("{path}/log?rank=0")).await, "zero <b>\n");
    assert!(page(&format!("{path}?rank=")).await.contains("[1] one"), "an empty field is all ranks");
    for wrong in ["?rank=2", "?rank=x", "?rank=-1"] {
        let answer = server.portal(Ask::get(&format!("{path}{wrong}")).cookie(&ada).page()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    }
    assert!(page("/runs").await.contains(&path));
    assert!(!page("/").await.contains(&path) && !page("/sessions").await.contains(&path), "sessions are sessions");

    assert!(page(&format!("{path}/requeue")).await.contains("once it has ended"));
    let requeue = async || server.portal(Ask::new("POST", &format!("{path}/requeue")).form(&ada, &[])).await;
    let later = requeue().await.header("location").to_owned();
    assert!(later.ends_with("?done=requeued"), "{later}");
    assert_eq!(requeue().await.header("location"), later, "whoever presses twice gets there too");
    let later = later.split('?').next().unwrap().to_owned();
    assert!(page(&path).await.contains(&format!("href=\"{later}\"")));
    assert!(page(&later).await.contains(&format!("href=\"{path}\"")));
    let gone = server.portal(Ask::get(&format!("{path}/requeue")).cookie(&ada).page()).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "it was requeued already");

    assert!(page(&format!("{later}/cancel")).await.contains("Its program is ended"));
    let cancelled = server.portal(Ask::new("POST", &format!("{later}/cancel")).form(&ada, &[])).await;
    assert_eq!(cancelled.header("location"), format!("{later}?done=cancelling"));
    let again = page(&format!("/runs/new?from={id}")).await;
    assert!(again.contains("--lr\n0.1; $(id)</textarea>"), "{again}");
}

#[tokio::test]
async fn a_run_like_a_session_is_started_from_its_page() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let session = server.session(&ada).await;
    let (db, like) = (&server.test.app.db, session.id.to_string());
    let page = async |path: &str| {
        let answer = server.portal(Ask::get(path).cookie(&ada).page()).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    };
    let href = format!("/runs/new?like={like}");
    assert!(page(&format!("/sessions/{like}")).await.contains(&format!("href=\"{href}\"")));
    server.test.replace_image("/images/b.sif").await;
    let known = db.image_by_name(&session.image).await.unwrap().unwrap();
    let other =
        Image { id: ImageId::generate(), name: "pytorch".parse().unwrap(), path: "/images/c.sif".into(), ..known };
    db.insert_image(&other, &entry()).await.unwrap();
    let tells = |form: &str| {
        form.contains(&format!("name=\"like\" value=\"{like}\"")) && form.contains("size of session “a session”")
    };
    let chosen = "<option value=\"jupyter\" selected>";
    let form = page(&href).await;
    assert!(tells(&form) && form.contains(chosen), "{form}");
    assert!(!tells(&page("/runs/new").await), "only where it is asked for");

    let send = async |key: &str, file: &str, image: &str| {
        let fields = [
            ("like", like.as_str()),
            ("file", file),
            ("image", image),
            ("nodes", "1"),
            ("cpus", "4"),
            ("memory_gib", "2"),
            ("hours", "1"),
            ("key", key),
        ];
        server.portal(Ask::new("POST", "/runs").form(&ada, &fields)).await
    };
    let started = async |key: &str, image: &str| {
        let answer = send(key, "train.py", image).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.body);
        server.test.row(answer.header("location").rsplit('/').next().unwrap().parse().unwrap()).await
    };
    let run = started("k1", "jupyter").await;
    assert_eq!((run.image_path.as_str(), run.resources.cpus), ("/images/a.sif", 4), "its very file");
    assert_eq!(started("k1", "jupyter").await.id, run.id, "two clicks are one start");
    assert_eq!(started("k2", "pytorch").await.image_path, "/images/c.sif", "another image is the catalogue's");
    let wrong = send("k3", "", "jupyter").await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(tells(&wrong.body), "{}", wrong.body);
    // Also where the catalogue has no image of that name any more.
    db.retire_image(&session.image, &entry()).await.unwrap();
    assert!(page(&href).await.contains(chosen));
    assert_eq!(started("k4", "jupyter").await.image_path, "/images/a.sif");
}

#[tokio::test]
async fn pages_start_nothing_like_what_is_not_ones_own() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let (session, run) = (server.session(&ada).await.id, server.run(&ada).await.id);
    for (person, like) in [
        (&grace, session.to_string()),
        (&admin, session.to_string()),
        (&ada, run.to_string()),
        (&ada, SessionId::generate().to_string()),
        (&ada, "nonsense".to_owned()),
    ] {
        let form = server.portal(Ask::get(&format!("/runs/new?like={like}")).cookie(person).page()).await;
        assert_eq!(form.status, StatusCode::NOT_FOUND, "{like}");
        let fields = [("file", "a.py"), ("image", "jupyter"), ("memory_gib", "2"), ("hours", "1"), ("like", &*like)];
        let sent = server.portal(Ask::new("POST", "/runs").form(person, &fields)).await;
        assert_eq!(sent.status, StatusCode::NOT_FOUND, "{like}");
    }
    let looked = server.portal(Ask::get(&format!("/sessions/{session}")).cookie(&admin).page()).await;
    assert_eq!(looked.status, StatusCode::OK);
    assert!(!looked.body.contains("/runs/new"), "an admin looks: {}", looked.body);
    let list = server.portal(Ask::get("/api/v1/runs?all=true").bearer(&admin)).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "only the one that was put there");
}

#[tokio::test]
async fn a_form_with_mistakes_is_shown_again_as_typed() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let fields = [
        ("file", "a.ipynb"),
        ("arguments", "<b>'x'"),
        ("ranks", "2"),
        ("image", "jupyter"),
        ("memory_gib", "2"),
        ("hours", "1"),
    ];
    let answer = server.portal(Ask::new("POST", "/runs").form(&ada, &fields)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body.contains("&lt;b&gt;") && !answer.body.contains("<b>'x'"), "{}", answer.body);
    assert!(answer.body.contains("A notebook takes no arguments."), "{}", answer.body);
    assert!(!answer.body.contains("name=\"preflight\" value=\"on\" checked"), "unticked stays unticked");
    let much = "x".repeat(1_000_000);
    let answer = server.portal(Ask::new("POST", "/runs").form(&ada, &[("arguments", &much)])).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let list = server.portal(Ask::get("/api/v1/runs").bearer(&ada)).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn nobody_else_gets_at_a_run_on_pages_and_an_admin_starts_nothing() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let id = server.run(&ada).await.id;
    for path in ["", "/log", "/cancel", "/requeue", "?rank=0"] {
        let answer = server.portal(Ask::get(&format!("/runs/{id}{path}")).cookie(&grace).page()).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert!(!server.portal(Ask::get("/runs").cookie(&grace)).await.body.contains(&id.to_string()));
    let from = server.portal(Ask::get(&format!("/runs/new?from={id}")).cookie(&grace).page()).await;
    assert_eq!(from.status, StatusCode::NOT_FOUND);
    for path in [format!("/live/runs/{id}/logs?follow=true"), format!("/live/runs/{id}/events")] {
        assert_eq!(server.portal(Ask::get(&path).cookie(&grace)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let all = server.portal(Ask::get("/admin/runs").cookie(&admin).page()).await.body;
    assert!(all.contains(&format!("/runs/{id}/cancel")) && !all.contains("/runs/new"), "{all}");
    let looked = server.portal(Ask::get(&format!("/runs/{id}")).cookie(&admin).page()).await;
    assert!(looked.body.contains("belongs to ada") && !looked.body.contains("/requeue"), "{}", looked.body);
    let session = server.session(&ada).await.id;
    for path in [format!("/runs/{session}"), format!("/live/runs/{session}/logs"), format!("/runs/new?from={session}")]
    {
        assert_eq!(server.portal(Ask::get(&path).cookie(&ada).page()).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}
