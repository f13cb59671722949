//! Spaces and the storage over HTTP: what programs rely on, and what they may not reach.

use eirene_core::SpaceOwner;
use eirene_core::storage::Limit;
use eirene_services::spaces::quotas::QuotaRound;
use eirene_services::spaces::testing::a_space;
use eirene_services::testing::StorageMood;

use super::*;

/// What a path can be asked with, the methods that change something among them.
const VERBS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

impl Server {
    async fn ask_json(&self, path: &str, person: &Person) -> Value {
        let answer = self.portal(Ask::get(path).bearer(person)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.json()
    }

    /// Looks at ada's home.
    async fn look(&self, ada: &Person) {
        let home = self.test.app.spaces.get(&ada.actor, &"home".parse().unwrap()).await.unwrap();
        self.test.app.spaces.look_at(&home.space, &mut QuotaRound::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_home_is_listed_with_what_it_uses_and_no_number_is_made_up() {
    let server = Server::start().await;
    let ada = server.ada().await;
    let list = server.ask_json("/api/v1/spaces", &ada).await;
    let home = &list["items"][0];
    assert_eq!((&home["name"], &home["kind"], &home["owner"]), (&"home-ada".into(), &"home".into(), &"ada".into()));
    assert!(home.get("usage").is_none(), "nobody has looked yet");
    assert_eq!((&list["next"], &home["trend"]["days_of_samples"]), (&Value::Null, &0.into()));

    server.look(&ada).await;
    let usage = server.ask_json("/api/v1/spaces/home", &ada).await["usage"].clone();
    assert_eq!((&usage["source"], &usage["missing"]), (&"file_system".into(), &"not_enabled".into()));
    assert!(usage.get("used_bytes").is_none() && usage["free_bytes"].as_u64().unwrap() > 0);

    server.test.storage.state().directory = Some((90, Limit::At(100)));
    server.look(&ada).await;
    let usage = server.ask_json("/api/v1/spaces/home-ada", &ada).await["usage"].clone();
    assert_eq!((&usage["used_bytes"], &usage["limit_bytes"]), (&90.into(), &100.into()));
    assert_eq!((&usage["level"], usage.get("missing")), (&"warning".into(), None));
    let samples = server.ask_json("/api/v1/spaces/home/usage?days=1", &ada).await;
    assert_eq!(samples["items"][0]["used_bytes"], 90);

    server.test.storage.state().mood = StorageMood::Away;
    server.look(&ada).await;
    let home = server.ask_json("/api/v1/spaces/home", &ada).await;
    assert_eq!((&home["undetermined"], &home["reason"]["code"]), (&true.into(), &"storage_away".into()));
    assert_eq!(home["usage"]["used_bytes"], 90, "what was seen before");
}

#[tokio::test]
async fn anothers_space_is_by_every_verb_what_a_space_that_is_not_there_is() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    server.ask_json("/api/v1/spaces", &ada).await;
    let physics = a_space(SpaceOwner::Group("physics".parse().unwrap()));
    server.test.app.db.insert_space(physics, &[]).await.unwrap();
    for below in ["", "/usage", "/old-files"] {
        for verb in VERBS {
            let ask = async |name: &str| {
                let path = format!("/api/v1/spaces/{name}{below}");
                let answer = server.portal(Ask::new(verb, &path).bearer(&grace).json(&serde_json::json!({}))).await;
                let mut body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
                if let Some(body) = body.as_object_mut() {
                    body.remove("request_id");
                }
                (answer.status, body)
            };
            let nothing = ask("not-there").await;
            assert!(nothing.0.is_client_error(), "{verb}: {nothing:?}");
            for hidden in ["home-ada", "physics"] {
                assert_eq!(ask(hidden).await, nothing, "{verb} {hidden}{below}");
            }
        }
        let path = format!("/api/v1/spaces/home-ada{below}");
        assert_eq!(server.portal(Ask::get(&path).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
    }
    let listed = server.ask_json("/api/v1/spaces", &grace).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "her own home: {listed}");
    let all = server.portal(Ask::get("/api/v1/spaces?all=true").bearer(&grace)).await;
    assert_eq!((all.status, all.json()["code"].as_str()), (StatusCode::FORBIDDEN, Some("not_admin")));
}

#[tokio::test]
async fn an_admin_pages_through_everybodys_spaces() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    for person in [&ada, &grace, &admin] {
        server.ask_json("/api/v1/spaces", person).await;
    }
    let first = server.ask_json("/api/v1/spaces?all=true&limit=2", &admin).await;
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|space| space["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["home-ada", "home-grace"]);
    let next = first["next"].as_str().unwrap();
    let second = server.ask_json(&format!("/api/v1/spaces?all=true&limit=2&cursor={next}"), &admin).await;
    assert_eq!((names(&second), &second["next"]), (vec!["home-root-admin".to_owned()], &Value::Null));
}

#[tokio::test]
async fn bad_questions_are_refused_with_their_field() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    for (path, field) in [
        ("/api/v1/spaces?all=maybe", "all"),
        ("/api/v1/spaces?limit=0", "limit"),
        ("/api/v1/spaces?cursor=A", "cursor"),
        ("/api/v1/spaces?path=x", "path"),
        ("/api/v1/spaces/home/usage?days=0", "days"),
        ("/api/v1/spaces/home/usage?days=401", "days"),
    ] {
        let answer = server.portal(Ask::get(path).bearer(&ada)).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (StatusCode::UNPROCESSABLE_ENTITY, vec![field.to_owned()]),
            "{path}"
        );
    }
    for (path, field) in [
        ("/api/v1/storage/quotas?first=2&last=1", "last"),
        ("/api/v1/storage/quotas?first=0&last=65536", "last"),
        ("/api/v1/storage/quotas?of=everybody", "of"),
        ("/api/v1/storage/quotas?first=-1", "first"),
    ] {
        let answer = server.portal(Ask::get(path).bearer(&admin)).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (StatusCode::UNPROCESSABLE_ENTITY, vec![field.to_owned()]),
            "{path}"
        );
    }
}

#[tokio::test]
async fn admins_see_the_storage_and_a_refusal_is_a_state_and_no_number() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let before = server.ask_json("/api/v1/storage", &admin).await;
    assert!(before.get("as_of").is_none() && before.get("capabilities").is_none());
    server.test.app.storage.look().await;
    let seen = server.ask_json("/api/v1/storage", &admin).await;
    assert_eq!((&seen["adapter"], &seen["roots"][0]["name"]), (&"fake".into(), &"scratch".into()));
    assert_eq!(seen["capabilities"]["pools"], serde_json::json!({"can": "no", "why": "not_supported"}));
    assert_eq!(seen["findings"], serde_json::json!([]));
    assert_eq!((&seen["roots"][0]["total_files"], &seen["roots"][0]["free_files"]), (&1000.into(), &500.into()));

    server.test.storage.state().mood = StorageMood::Away;
    server.test.app.storage.look().await;
    let away = server.ask_json("/api/v1/storage", &admin).await;
    assert_eq!(
        (&away["findings"][0]["code"], &away["findings"][0]["severity"]),
        (&"mount_stale".into(), &"broken".into())
    );
    assert!(away["roots"][0].get("free_bytes").is_none());
    let quotas = server.portal(Ask::get("/api/v1/storage/quotas").bearer(&admin)).await;
    assert_eq!((quotas.status, quotas.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "10"));

    server.test.storage.state().mood = StorageMood::Refuses;
    let refused = server.ask_json("/api/v1/storage/quotas", &admin).await;
    assert_eq!((&refused["items"], &refused["missing"]), (&serde_json::json!([]), &"refused".into()));
    server.test.storage.state().mood = StorageMood::Good;
    let none = server.ask_json("/api/v1/storage/quotas", &admin).await;
    assert_eq!(none["missing"], "not_supported");
    server.test.storage.state().users = Some((5, Limit::Unlimited));
    let two = server.ask_json("/api/v1/storage/quotas?of=group&first=7&last=8", &admin).await;
    assert_eq!(two["items"].as_array().unwrap().len(), 2);
    let quota = &two["items"][0];
    assert_eq!((&quota["id"], &quota["used_bytes"], &quota["unlimited"]), (&7.into(), &5.into(), &true.into()));
    assert!(quota.get("limit_bytes").is_none() && quota["missing"] == "not_enabled", "{quota}");
}

#[tokio::test]
async fn an_admin_sets_limits_and_each_try_is_written_down() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let put = async |path: &str, body: Value| {
        server.portal(Ask::new("PUT", &format!("/api/v1/storage{path}")).bearer(&admin).json(&body)).await
    };
    let none = put("/quotas/user/2001", serde_json::json!({"limit_bytes": 5})).await;
    assert_eq!((none.status, none.json()["code"].as_str()), (StatusCode::CONFLICT, Some("not_supported")));
    {
        let mut storage = server.test.storage.state();
        (storage.users, storage.defaults) = (Some((3, Limit::Unlimited)), Some(Limit::At(7)));
    }
    let set = put("/quotas/user/2001", serde_json::json!({"limit_bytes": 100, "pool": 1})).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
    let quota = &set.json()["items"][0];
    assert_eq!((&quota["id"], &quota["limit_bytes"]), (&2001.into(), &100.into()));
    let set = put("/quotas/group/7", serde_json::json!({"limit_bytes": "unlimited"})).await;
    assert_eq!(set.json()["items"][0]["unlimited"], true);

    let defaults = server.ask_json("/api/v1/storage/default-quotas/1", &admin).await;
    assert_eq!(defaults, serde_json::json!({"user_bytes": 7, "group_bytes": "unlimited"}));
    let defaults = put("/default-quotas/1", serde_json::json!({"limit_bytes": 9})).await;
    assert_eq!(defaults.json()["user_bytes"], 9);

    server.test.storage.state().mood = StorageMood::Away;
    let away = put("/quotas/user/2001", serde_json::json!({"limit_bytes": 1})).await;
    assert_eq!((away.status, away.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "10"));
    for (path, body, status) in [
        ("/quotas/user/2001", serde_json::json!({}), 422),
        ("/quotas/user/2001", serde_json::json!({"limit_bytes": -1}), 422),
        ("/quotas/user/2001", serde_json::json!({"limit_bytes": "much"}), 422),
        ("/quotas/user/2001", serde_json::json!({"limit": 1}), 422),
        ("/quotas/everybody/1", serde_json::json!({"limit_bytes": 1}), 404),
        ("/quotas/user/-1", serde_json::json!({"limit_bytes": 1}), 404),
    ] {
        assert_eq!(put(path, body.clone()).await.status, status, "{path} {body}");
    }
    let written = server.test.app.db.audit_events(None, 10, None, Some("storage.set_limits")).await.unwrap();
    let written = written.iter().rev().map(|e| (e.target.as_str(), e.outcome.as_str()));
    let (begun, ended): (Vec<_>, Vec<_>) = written.partition(|(_, outcome)| *outcome == "begun");
    let expected = [
        ("user:2001", "failed"),
        ("user:2001", "ok"),
        ("group:7", "ok"),
        ("user:default", "ok"),
        ("user:2001", "failed"),
    ];
    assert_eq!(ended, expected);
    assert_eq!(begun, expected.map(|(target, _)| (target, "begun")));
}

#[tokio::test]
async fn pages_say_in_words_what_is_not_known_and_warn_where_room_is_short() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let page = async |person: &Person, path: &str| {
        let answer = server.portal(Ask::get(path).cookie(person)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    };
    let words = eirene_words::words();
    assert!(page(&ada, "/spaces").await.contains(&words.get("my_spaces.never")));
    server.look(&ada).await;
    let list = page(&ada, "/spaces").await;
    assert!(list.contains(&words.get("my_spaces.silent")) && list.contains(&words.get("my_spaces.why.not_enabled")));
    assert!(list.contains("href=\"/spaces/home-ada/files\"") && list.contains("href=\"/spaces/home-ada/sizes\""));
    assert!(!page(&ada, "/").await.contains("href=\"/spaces\">See"), "there is room, as far as anybody knows");

    server.test.storage.state().directory = Some((96, Limit::At(100)));
    server.look(&ada).await;
    let one = page(&ada, "/spaces/home-ada").await;
    assert!(one.contains("96\u{a0}bytes of 100\u{a0}bytes") && one.contains(&words.get("my_spaces.level.critical")));
    assert!(one.contains("<polyline") && one.contains("data-live=\"/fragments/spaces/home-ada\""));
    assert!(page(&ada, "/").await.contains("Little room is left in Home."));
    assert!(page(&ada, "/sessions/new").await.contains(&words.get("my_spaces.dashboard_link")));
    assert!(page(&ada, "/fragments/spaces/home-ada").await.starts_with("<section"));

    // For others there is none; an admin sees what it uses, and no way into it.
    for path in ["/spaces/home-ada", "/fragments/spaces/home-ada"] {
        assert_eq!(server.portal(Ask::get(path).cookie(&grace)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert!(!page(&grace, "/spaces").await.contains("home-ada"));
    let seen = page(&admin, "/spaces/home-ada").await;
    assert!(seen.contains("96\u{a0}bytes") && !seen.contains("/spaces/home-ada/files"));
    assert!(!seen.contains("/spaces/home-ada/sizes"));

    server.test.storage.state().mood = StorageMood::Away;
    server.look(&ada).await;
    let away = page(&ada, "/spaces").await;
    assert!(away.contains("96\u{a0}bytes") && away.contains("what is shown was seen before"));
}

#[tokio::test]
async fn members_see_what_their_groups_may_use_and_no_other_groups() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    server.test.groups.add("ada", "physics");
    server.test.storage.state().users = Some((96, Limit::At(100)));
    server.test.clock.advance_s(11 * 60);
    server.test.app.storage.look().await;
    let limits = server.ask_json("/api/v1/me/group-limits", &ada).await;
    let limit = serde_json::json!({"group": "physics", "level": "critical", "used_bytes": 96, "limit_bytes": 100});
    assert_eq!(limits, serde_json::json!({"items": [limit], "next": null}));
    assert_eq!(server.ask_json("/api/v1/me/group-limits", &grace).await["items"], serde_json::json!([]));
    let page = async |person: &Person, path: &str| server.portal(Ask::get(path).cookie(person)).await.body;
    let words = eirene_words::words();
    for path in ["/spaces", "/fragments/spaces"] {
        let hers = page(&ada, path).await;
        assert!(hers.contains(">physics</h3>") && hers.contains(&words.get("my_spaces.level.critical")), "{hers}");
        assert!(hers.contains("96\u{a0}bytes of 100\u{a0}bytes"), "{hers}");
        let others = page(&grace, path).await;
        assert!(!others.contains("physics") && !others.contains(&words.get("my_spaces.group_limits_text")), "{others}");
    }
    server.test.clock.advance_s(5 * 60);
    server.test.storage.state().mood = StorageMood::Away;
    let away = server.portal(Ask::get("/api/v1/me/group-limits").bearer(&ada)).await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE, "{}", away.body);
    let shown = page(&ada, "/spaces").await;
    assert!(shown.contains(&words.get("my_spaces.group_limits_unknown")) && shown.contains("home-ada"), "{shown}");
}

#[tokio::test]
async fn admins_have_a_page_of_the_storage_whatever_it_can_tell() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let page = async || server.portal(Ask::get("/admin/storage").cookie(&admin)).await.body;
    let words = eirene_words::words();
    assert!(page().await.contains(&words.get("storage_page.never")));
    server.test.app.storage.look().await;
    server.look(&ada).await;
    let shown = page().await;
    for key in ["no_findings", "not_of_this", "nobody_counts"] {
        assert!(shown.contains(&words.get(&format!("storage_page.{key}"))), "{key}: {shown}");
    }
    server.test.storage.state().directory = Some((99, Limit::At(100)));
    server.look(&ada).await;
    server.test.storage.state().mood = StorageMood::Away;
    server.test.app.storage.look().await;
    let shown = page().await;
    assert!(shown.contains(&words.get("storage_page.broken")) && shown.contains("does not answer"), "{shown}");
    assert!(shown.contains("href=\"/spaces/home-ada\"") && !shown.contains(&words.get("storage_page.nobody_counts")));
    assert_eq!(server.portal(Ask::get("/admin/storage").cookie(&ada)).await.status, StatusCode::NOT_FOUND);
}
