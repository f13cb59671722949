//! What is made, moved, thrown away and permitted, and long work.

use super::*;

#[tokio::test]
async fn things_are_made_moved_copied_thrown_away_brought_back_and_deleted() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "one").unwrap();
    std::fs::write(home.join("b"), "two").unwrap();
    let made = server.send_json(&ada, "POST", "/files/directories", &json!({"path": "d/e", "parents": true})).await;
    assert_eq!((made.status, &made.json()["made"]), (StatusCode::CREATED, &true.into()), "{}", made.body);

    let items = json!([{"path": "a", "to": "d/a"}, {"path": "none", "to": "d/none"}, {"path": "b", "to": "d/a"}]);
    let moved = server.send_json(&ada, "POST", "/files/move", &json!({"items": items})).await;
    assert_eq!(moved.status, StatusCode::OK, "{}", moved.body);
    assert_eq!(moved.json()["items"], json!([{"path": "d/a"}]));
    let refused = &moved.json()["refused"];
    assert_eq!((&refused[0]["code"], &refused[1]["code"]), (&"no_such_path".into(), &"exists".into()));
    let nothing = server.send_json(&ada, "POST", "/files/move", &json!({"items": [{"path": "b", "to": "d/a"}]})).await;
    assert_eq!((nothing.status, &nothing.json()["code"]), (StatusCode::CONFLICT, &"exists".into()));
    let kept = json!({"items": [{"path": "b", "to": "d/a"}], "on_conflict": "keep_both"});
    let kept = server.send_json(&ada, "POST", "/files/move", &kept).await;
    assert_eq!(kept.json()["items"], json!([{"path": "d/a (2)"}]), "{}", kept.body);

    let copied = server.send_json(&ada, "POST", "/files/copy", &json!({"items": [{"path": "d", "to": "f"}]})).await;
    let copied = server.over(&ada, &copied).await;
    assert_eq!((&copied["state"], &copied["kind"]), (&"done".into(), &"copy".into()), "{copied}");
    assert_eq!(std::fs::read(home.join("f/a (2)")).unwrap(), b"two");

    let thrown = server.send_json(&ada, "POST", "/files/trash", &json!({"paths": ["d", "none"]})).await;
    assert_eq!((thrown.status, thrown.json()["refused"][0]["code"].as_str()), (StatusCode::OK, Some("no_such_path")));
    let id = thrown.json()["items"][0]["id"].as_str().unwrap().to_owned();
    assert!(!home.join("d").exists());
    let trash = server.get(&ada, "/trash").await.json();
    assert_eq!((&trash["items"][0]["id"], &trash["items"][0]["path"]), (&id.as_str().into(), &"d".into()));
    let back = server.send_json(&ada, "POST", &format!("/trash/{id}/restore"), &json!({"to": "g"})).await;
    assert_eq!((back.status, back.json()), (StatusCode::OK, json!({"path": "g"})), "{}", back.body);
    assert_eq!(std::fs::read(home.join("g/a")).unwrap(), b"one");

    let unsure = server.send_json(&ada, "POST", "/files/delete", &json!({"paths": ["g"], "sure": false})).await;
    assert_eq!(unsure.fields(), ["sure"]);
    let deleted = server.send_json(&ada, "POST", "/files/delete", &json!({"paths": ["g", "none"], "sure": true})).await;
    let deleted = server.over(&ada, &deleted).await;
    assert_eq!((&deleted["state"], &deleted["progress"]["refused"][0]["path"]), (&"done".into(), &"none".into()));
    assert!(!home.join("g").exists() && home.join("f").exists());
    let nothing = server.send_json(&ada, "POST", "/files/delete", &json!({"paths": ["none"], "sure": true})).await;
    let nothing = server.over(&ada, &nothing).await;
    assert_eq!((&nothing["state"], &nothing["problem"]["code"]), (&"failed".into(), &"no_such_path".into()));

    server.send_json(&ada, "POST", "/files/trash", &json!({"paths": ["f"]})).await;
    let emptied = server.portal(Ask::new("DELETE", &format!("{HOME}/trash")).bearer(&ada)).await;
    assert_eq!(server.over(&ada, &emptied).await["state"], "done");
    assert_eq!(server.get(&ada, "/trash").await.json()["items"], json!([]));
    let listed = server.portal(Ask::get("/api/v1/operations?limit=2").bearer(&ada)).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(listed["items"][0]["id"], emptied.json()["id"], "the newest first");
    assert!(listed["next"].is_string());

    // What was done is in the audit log, by verb, space and number.
    let query = eirene_services::audit::AuditQuery { limit: 200, ..Default::default() };
    let events = server.test.app.audit.list(&server.admin().await.actor, query).await.unwrap();
    let files: Vec<_> = events.iter().filter(|event| event.action.starts_with("files.")).collect();
    assert!(files.iter().any(|event| event.action == "files.delete" && event.details["count"] == 1), "{files:?}");
    for event in files {
        assert_eq!(event.target, "home-ada");
        let told = event.details.to_string();
        assert!(!told.contains("none") && !told.contains("d/a") && !told.contains("\"f\""), "{told}");
    }
}

#[tokio::test]
async fn permissions_are_set_in_words_digits_and_lists() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("d")).unwrap();
    std::fs::write(home.join("d/a"), "x").unwrap();
    let set = async |body: Value| server.send_json(&ada, "PUT", "/files/permissions", &body).await;
    let shared = set(json!({"path": "d/a", "share": "group_reads"})).await;
    assert_eq!((shared.status, &shared.json()["mode"]), (StatusCode::OK, &"rw-r-----".into()), "{}", shared.body);
    assert_eq!((&shared.json()["share"], &shared.json()["mine"]), (&"group_reads".into(), &true.into()));
    let digits = set(json!({"path": "d/a", "mode": "0600"})).await;
    assert_eq!(digits.json()["mode_digits"], "0600", "{}", digits.body);
    let below = set(json!({"path": "d", "share": "private", "recursive": true})).await;
    assert_eq!(server.over(&ada, &below).await["state"], "done");
    let shown = server.get(&ada, "/files/permissions?path=d").await.json();
    assert_eq!((&shown["mode"], &shown["share"]), (&"rwx------".into(), &"private".into()));
    for (body, field) in [
        (json!({"path": "d/a"}), "share"),
        (json!({"path": "d/a", "share": "private", "mode": "0600"}), "share"),
        (json!({"path": "d/a", "mode": "4755"}), "mode"),
        (json!({"path": "d/a", "acl": [{"who": "user:ada", "may": "rwx"}]}), "acl[0]"),
        (json!({"mode": "0600"}), "path"),
    ] {
        let answer = set(body.clone()).await;
        assert_eq!(answer.fields(), [field], "{body}: {}", answer.body);
    }
}

#[tokio::test]
async fn what_is_searched_and_measured_is_kept_with_its_operation() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let grace = server.grace().await;
    std::fs::create_dir_all(home.join("d/e")).unwrap();
    for name in ["one.txt", "d/two.txt", "d/e/three.txt", "d/four.bin"] {
        std::fs::write(home.join(name), "x").unwrap();
    }
    for (field, size) in
        [("min_bytes", json!((1_u64 << 60) + 1)), ("max_bytes", json!(u64::MAX)), ("min_bytes", json!(-1))]
    {
        let answer = server.send_json(&ada, "POST", "/files/search", &json!({"name": "x", field: size})).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{field} {size}: {}", answer.body);
    }
    let search = server.send_json(&ada, "POST", "/files/search", &json!({"path": "d", "name": "*.txt"})).await;
    let search = server.over(&ada, &search).await;
    assert_eq!((&search["state"], &search["progress"]["found"]), (&"done".into(), &2.into()), "{search}");
    let results = format!("/api/v1/operations/{}/results", search["id"].as_str().unwrap());
    let mut found = Vec::new();
    let mut next = String::new();
    loop {
        let page = server.portal(Ask::get(&format!("{results}?limit=1{next}")).bearer(&ada)).await.json();
        found.extend(page["items"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    found.sort();
    assert_eq!(found, ["d/e/three.txt", "d/two.txt"]);
    assert_eq!(server.portal(Ask::get(&results).bearer(&grace)).await.status, StatusCode::NOT_FOUND);

    let scan = server.send_json(&ada, "POST", "/scan", &json!({})).await;
    let scan = server.over(&ada, &scan).await;
    assert_eq!((&scan["state"], &scan["progress"]["complete"]), (&"done".into(), &true.into()), "{scan}");
    let results = format!("/api/v1/operations/{}/results", scan["id"].as_str().unwrap());
    let measured = server.portal(Ask::get(&results).bearer(&ada)).await.json();
    let paths: Vec<_> = measured["items"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert!(["", "d", "d/e"].iter().all(|path| paths.contains(path)), "{paths:?}");
}
