//! Making spaces over HTTP: what an admin says and hears.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_space_is_wished_for_changed_taken_away_and_brought_back() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let send = async |method: &str, path: &str, body: Value| {
        let answer = server.portal(Ask::new(method, path).bearer(&admin).json(&body)).await;
        (answer.status.as_u16(), answer.json())
    };
    let wish = json!({"root": "project", "name": "stars", "group": "physics", "expires_at": "2027-01-01T00:00:00Z"});
    let (status, made) = send("POST", "/api/v1/spaces", wish.clone()).await;
    assert_eq!(
        (status, &made["state"], &made["group"], &made["hint"]),
        (201, &"wanted".into(), &"physics".into(), &"usual".into())
    );
    assert_eq!(send("POST", "/api/v1/spaces", wish).await.0, 409, "the name is taken");
    for space in server.test.app.making.to_do().await.unwrap() {
        server.test.app.making.step(&space).await.unwrap();
    }
    let path = "/api/v1/spaces/stars";
    let made = server.portal(Ask::get(path).bearer(&admin)).await.json();
    assert_eq!((&made["state"], &made["mounted_at"]), (&"present".into(), &"/project/stars".into()));
    let (status, changed) = send("PATCH", path, json!({"title": "Stars", "hint": "small_files"})).await;
    assert_eq!((status, &changed["title"], &changed["hint"]), (200, &"Stars".into(), &"small_files".into()));
    assert_eq!(changed["expires_at"], "2027-01-01T00:00:00Z", "what is left out stays");
    for none in [json!(null), json!(""), json!("  ")] {
        let (_, titled) = send("PATCH", path, json!({"title": "Suns"})).await;
        let (status, untitled) = send("PATCH", path, json!({"title": none})).await;
        assert_eq!((status, &titled["title"], &untitled["title"]), (200, &"Suns".into(), &"stars".into()));
    }
    send("PATCH", path, json!({"title": "Stars"})).await;
    let (_, changed) = send("PATCH", path, json!({"expires_at": null})).await;
    assert!(changed.get("expires_at").is_none() && changed["title"] == "Stars", "{changed}");
    assert_eq!(server.portal(Ask::new("DELETE", path).bearer(&admin)).await.status.as_u16(), 202);
    for space in server.test.app.making.to_do().await.unwrap() {
        server.test.app.making.step(&space).await.unwrap();
    }
    let (status, report) = send("POST", &format!("{path}/policy?dry_run=true"), json!({})).await;
    assert_eq!((status, &report["outcome"]), (200, &"nothing".into()), "it is kept for a month");
    let (status, retired) = send("POST", &format!("{path}/restore"), json!({})).await;
    assert_eq!((status, &retired["state"]), (202, &"retired".into()));
    assert!(retired["remove_after"].as_str() > retired["retired_at"].as_str());
    server.test.storage.state().spread_over(2);
    server.test.storage.state().keeps_stripes = false;
    let wish = json!({"root": "project", "name": "moons", "group": "physics", "hint": "large_sequential"});
    assert_eq!(send("POST", "/api/v1/spaces", wish).await.1["hint_state"], "wanted");
    for space in server.test.app.making.to_do().await.unwrap() {
        server.test.app.making.step(&space).await.unwrap();
    }
    let moons = server.portal(Ask::get("/api/v1/spaces/moons").bearer(&admin)).await.json();
    assert_eq!((&moons["state"], &moons["hint_state"]), (&"present".into(), &"not_applied".into()), "{moons}");
    assert!(moons["hint_text"].as_str().is_some_and(|said| said.contains("not there")), "{moons}");
    for (wrong, field) in [
        (json!({"root": "project", "name": "../etc"}), "name"),
        (json!({"root": "/etc", "name": "x"}), "root"),
        (json!({"root": "project", "name": "x", "group": "a b"}), "group"),
        (json!({"root": "project", "name": "x", "title": "a\nb"}), "title"),
        (json!({"root": "project", "name": "x", "path": "/etc"}), "path"),
    ] {
        let (status, problem) = send("POST", "/api/v1/spaces", wrong).await;
        assert_eq!((status, &problem["errors"][0]["field"]), (422, &field.into()), "{problem}");
    }
}
