//! Whose space it is, by which scopes it is reached, and whether it is there.

use std::os::unix::fs::MetadataExt as _;

use eirene_core::space::MadeAt;
use eirene_core::storage::Identity;
use eirene_core::{Space, SpaceOwner, SpaceState};
use eirene_services::spaces::testing::a_space;

use super::*;

#[tokio::test]
async fn dot_dot_is_refused_before_the_process_is_asked() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    for path in ["..", "../x", "a/../../x", "a/..", ".", "./a", "/etc/passwd", "a//b", "a/", "a\0b"] {
        for (method, place, body) in about(path) {
            let answer = server.send_json(&ada, method, &place, &body).await;
            assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{method} {place} {path:?}: {}", answer.body);
            assert_eq!(answer.json()["code"], "invalid");
        }
    }
    assert_eq!(server.started(), 0);
}

#[tokio::test]
async fn anothers_space_is_not_found_whatever_is_asked_of_it() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "secret").unwrap();
    let (grace, admin) = (server.grace().await, server.admin().await);
    assert_eq!(server.get(&ada, "/files").await.status, StatusCode::OK);
    let before = server.started();
    for path in ["a", "none", "..", ""] {
        for (method, place, body) in about(path) {
            for person in [&grace, &admin] {
                for name in ["home-ada", "not-there"] {
                    let place = format!("/api/v1/spaces/{name}{place}");
                    let answer = server.portal(Ask::new(method, &place).bearer(person).json(&body)).await;
                    assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {place}: {}", answer.body);
                    assert_eq!(answer.json()["code"], "not_found", "{method} {place}");
                }
            }
        }
    }
    assert_eq!(server.started(), before);
    assert_eq!(std::fs::read(home.join("a")).unwrap(), b"secret");
}

#[tokio::test]
async fn nothing_goes_into_anothers_space_and_nobody_touches_anothers_trash() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let (grace, admin) = (server.grace().await, server.admin().await);
    let own = ["grace", "root-admin"].map(|name| server.test.directory.path().join("home").join(name));
    for own in &own {
        std::fs::create_dir_all(own).unwrap();
        std::fs::write(own.join("x"), "own").unwrap();
    }
    std::fs::write(home.join("a"), "hers").unwrap();
    let thrown = server.send_json(&ada, "POST", "/files/trash", &json!({"paths": ["a"]})).await;
    let id = thrown.json()["items"][0]["id"].as_str().unwrap().to_owned();
    let before = server.started();
    for name in ["home-ada", "not-there"] {
        let into = json!({"items": [{"path": "x", "to": "x"}], "to_space": name});
        let trash = format!("/api/v1/spaces/{name}/trash");
        for (method, place, body) in [
            ("POST", format!("{HOME}/files/copy"), &into),
            ("POST", format!("{HOME}/files/move"), &into),
            ("GET", trash.clone(), &json!({})),
            ("DELETE", trash.clone(), &json!({})),
            ("DELETE", format!("{trash}/{id}"), &json!({})),
            ("POST", format!("{trash}/{id}/restore"), &json!({})),
        ] {
            for person in [&grace, &admin] {
                let answer = server.portal(Ask::new(method, &place).bearer(person).json(body)).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {place} {body}: {}", answer.body);
                assert_eq!(answer.json()["code"], "not_found", "{method} {place} {body}");
            }
        }
    }
    assert_eq!(server.started(), before);
    for person in [&grace, &admin] {
        let begun = server.portal(Ask::get("/api/v1/operations").bearer(person)).await.json();
        assert_eq!(begun["items"], json!([]));
    }
    assert!(!home.join("x").exists() && own.iter().all(|own| own.join("x").exists()));
    assert_eq!(server.get(&ada, "/trash").await.json()["items"][0]["id"], id.as_str());
}

#[tokio::test]
async fn a_token_reaches_files_only_by_its_scopes() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "x").unwrap();
    let none = server.with_scopes(&ada, &[Scope::Read, Scope::SessionsRead, Scope::SessionsWrite]).await;
    let reads = server.with_scopes(&ada, &[Scope::FilesRead]).await;
    for (method, place, body) in about("a") {
        let is_read = method == "GET" || ["/files/search", "/scan"].contains(&place.as_str());
        let answer = server.send_json(&none, method, &place, &body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {place}: {}", answer.body);
        assert_eq!(answer.json()["code"], "insufficient_scope");
        let answer = server.send_json(&reads, method, &place, &body).await;
        assert_eq!(answer.status == StatusCode::FORBIDDEN, !is_read, "{method} {place}: {}", answer.body);
    }
    let listed = server.portal(Ask::get("/api/v1/operations").bearer(&none)).await;
    assert_eq!(listed.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_lies_at_a_spaces_path_and_is_not_what_was_made_is_not_written_to() {
    let mut test = TestApp::new().await;
    let projects = test.directory.path().join("projects");
    let mut config = (*test.app.config).clone();
    let root = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "project").unwrap();
    root.path.clone_from(&projects);
    test.rebuild(config);
    let server = Server::serve(test).await;
    let (ada, _) = server.ada_at_home(real()).await;
    server.test.groups.add("ada", "physics");
    std::fs::create_dir_all(projects.join("physics")).unwrap();
    let inode = std::fs::metadata(projects.join("physics")).unwrap().ino();
    let identity = Identity {
        kind: "nfs4".into(),
        source: "nas:/projects".into(),
        root_inode: None,
        marker: None,
        fs_id: 1,
        mount_id: 1,
    };
    let made_at = |inode| Some(MadeAt { inode, identity: identity.clone() });
    let physics = a_space(SpaceOwner::Group("physics".parse().unwrap()));
    let physics = Space { made_at: made_at(inode + 1), ..physics };
    let physics = server.test.app.db.insert_space(physics, &[]).await.unwrap();
    let make = async || {
        let ask = Ask::new("POST", "/api/v1/spaces/physics/files/directories").bearer(&ada);
        server.portal(ask.json(&json!({"path": "new"}))).await
    };
    let refused = make().await;
    assert_eq!((refused.status, &refused.json()["code"]), (StatusCode::SERVICE_UNAVAILABLE, &"storage_gone".into()));
    assert!(!projects.join("physics/new").exists());
    let now = Space { made_at: made_at(inode), ..physics };
    assert!(server.test.app.db.update_space(&now, &[]).await.unwrap());
    let made = make().await;
    assert!(made.status.is_success(), "{}", made.body);
    assert!(projects.join("physics/new").exists());
}

#[tokio::test]
async fn a_space_that_may_only_be_read_or_is_not_there_says_so_before_any_process() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    let data = Space { name: "data".parse().unwrap(), ..a_space(SpaceOwner::Everybody) };
    server.test.app.db.insert_space(data, &[]).await.unwrap();
    let physics = || a_space(SpaceOwner::Group("physics".parse().unwrap()));
    let old = Space { name: "old".parse().unwrap(), state: SpaceState::Retired, ..physics() };
    for space in [physics(), old] {
        server.test.app.db.insert_space(space, &[]).await.unwrap();
    }
    let ask = async |name: &str, method: &str, place: &str, body: &Value| {
        let path = format!("/api/v1/spaces/{name}{place}");
        let answer = server.portal(Ask::new(method, &path).bearer(&ada).json(body)).await;
        (answer.status.as_u16(), answer.json()["code"].as_str().unwrap_or_default().to_owned())
    };
    for (method, place, body) in about("a") {
        assert_eq!(ask("physics", method, &place, &body).await, (404, "not_found".into()), "no member: {place}");
    }
    server.test.groups.add("ada", "physics");
    // Her groups are known for a minute.
    server.test.clock.advance_s(120);
    for (method, place, body) in about("a") {
        assert_eq!(ask("old", method, &place, &body).await, (409, "space_not_present".into()), "{method} {place}");
        let is_read = method == "GET" || ["/files/search", "/scan"].contains(&place.as_str());
        if !is_read {
            assert_eq!(ask("data", method, &place, &body).await, (403, "read_only".into()), "{method} {place}");
        }
    }
    let into = serde_json::json!({"items": [{"path": "a", "to": "b"}], "to_space": "data"});
    for place in ["/files/copy", "/files/move"] {
        assert_eq!(ask("home", "POST", place, &into).await, (403, "read_only".into()), "{place}");
    }
    assert_eq!(server.started(), 0);

    // The root of this space is not configured, so there is no place for it.
    let nowhere = ask("physics", "GET", "/files", &Value::Null).await;
    assert_eq!(nowhere, (503, "storage_gone".into()));
    server.test.groups.go_away();
    server.test.clock.advance_s(120);
    assert_eq!(ask("physics", "GET", "/files", &Value::Null).await, (503, "unavailable".into()), "neither yes nor no");
    assert_eq!(ask("home", "GET", "/files", &Value::Null).await.0, 200);
}
