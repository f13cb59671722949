//! Files as the portal's pages reach them: by the log-in's cookie, from a page of ours, with the log-in's form token, and by nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use eirene_api::live;
use eirene_http::extract::FORM_HEADER;
use serde_json::json;

use super::files::real;
use super::*;

const HOME: &str = "/live/spaces/home";

impl Ask {
    /// As a page of the portal's asks by script.
    pub(super) fn script(self, person: &Person) -> Self {
        let token = logins::form_token(&person.cookie);
        self.with("origin", PORTAL_ORIGIN).with(FORM_HEADER, &token).cookie(person)
    }
}

/// A directory to be made.
fn make(name: &str) -> Ask {
    Ask::new("POST", &format!("{HOME}/files/directories")).json(&json!({"path": name}))
}

#[tokio::test]
async fn a_page_lists_changes_and_waits_by_its_log_in_alone() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "abc").unwrap();
    let listed = server.portal(Ask::get(&format!("{HOME}/files")).cookie(&ada)).await;
    assert_eq!((listed.status, &listed.json()["items"][0]["name"]), (StatusCode::OK, &"a".into()), "{}", listed.body);
    let content = server.portal(Ask::get(&format!("{HOME}/files/content?path=a")).cookie(&ada)).await;
    assert_eq!((content.status, content.body.as_str()), (StatusCode::OK, "abc"));
    assert_eq!(content.header("content-security-policy"), "sandbox; default-src 'none'");
    let made = server.portal(make("d").script(&ada)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert!(home.join("d").is_dir());

    let copy = json!({"items": [{"path": "a", "to": "d/b"}]});
    let accepted = server.portal(Ask::new("POST", &format!("{HOME}/files/copy")).json(&copy).script(&ada)).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
    let place = accepted.header("location").to_owned();
    assert!(place.starts_with("/live/operations/"), "{place}");
    loop {
        let operation = server.portal(Ask::get(&place).cookie(&ada)).await.json();
        if !matches!(operation["state"].as_str(), Some("waiting" | "running")) {
            assert_eq!(operation["state"], "done");
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(std::fs::read(home.join("d/b")).unwrap(), b"abc");
}

#[tokio::test]
async fn an_upload_is_found_again_on_the_side_it_came_by() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let speaks = |method: &str, path: &str| Ask::new(method, path).with("tus-resumable", "1.0.0").script(&ada);
    let wish = speaks("POST", &format!("{HOME}/uploads")).with("upload-length", "3");
    let created = server.portal(wish.with("upload-metadata", "path dXA=")).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.body);
    let place = created.header("location").to_owned();
    assert!(place.starts_with("/live/uploads/"), "{place}");
    assert_eq!(server.portal(speaks("HEAD", &place)).await.header("upload-offset"), "0");
    let chunk = speaks("PATCH", &place).with("content-type", "application/offset+octet-stream");
    let done = server.portal(chunk.with("upload-offset", "0").body("abc")).await;
    assert_eq!((done.status, done.header("tus-resumable")), (StatusCode::NO_CONTENT, "1.0.0"), "{}", done.body);
    assert_eq!(std::fs::read(home.join("up")).unwrap(), b"abc");
}

#[tokio::test]
async fn without_this_log_ins_form_token_nothing_is_changed() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let grace = server.grace().await;
    let elsewhere = server.sign_in(ada.actor.user.clone()).await;
    let good = logins::form_token(&ada.cookie);
    let others = [&grace.cookie, &elsewhere.cookie].map(logins::form_token);
    let ask = |tokens: &[&str]| {
        let ask = make("d").with("origin", PORTAL_ORIGIN).cookie(&ada);
        tokens.iter().fold(ask, |ask, token| ask.with(FORM_HEADER, token))
    };
    let (of_grace, of_another) = (others[0].as_str(), others[1].as_str());
    let wrong: [&[&str]; 7] = [&[], &[""], &["x"], &[of_grace], &[of_another], &[&ada.token], &[&good, &good]];
    for tokens in wrong {
        let answer = server.portal(ask(tokens)).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (StatusCode::FORBIDDEN, &"form_token".into()),
            "{tokens:?}"
        );
    }
    for (method, path) in [("DELETE", "/trash"), ("PUT", "/files/permissions"), ("POST", "/uploads")] {
        let bare = Ask::new(method, &format!("{HOME}{path}")).with("origin", PORTAL_ORIGIN).cookie(&ada);
        let answer = server.portal(bare).await;
        assert_eq!(answer.json()["code"], "form_token", "{method} {path}");
    }
    let in_body = Ask::new("POST", &format!("{HOME}/files/directories")).form(&ada, &[("path", "d")]);
    assert_eq!(server.portal(in_body).await.status, StatusCode::FORBIDDEN, "a token in the body is none");
    assert!(!home.join("d").exists() && server.started() == 0, "nobody was asked for anything");
    assert_eq!(server.portal(ask(&[&good])).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn another_site_neither_changes_nor_reads() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let session = server.session(&ada).await.id;
    let app = format!("http://{}", host(session));
    let token = logins::form_token(&ada.cookie);
    for origin in [None, Some("null"), Some(app.as_str()), Some("https://evil.example")] {
        let ask = make("d").with(FORM_HEADER, &token).cookie(&ada);
        let ask = origin.into_iter().fold(ask, |ask, origin| ask.with("origin", origin));
        let answer = server.portal(ask).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (StatusCode::FORBIDDEN, &"foreign_origin".into()),
            "{origin:?}"
        );
    }
    assert!(!home.join("d").exists());
    let list = || Ask::get(&format!("{HOME}/files")).cookie(&ada);
    for (name, value) in [("origin", app.as_str()), ("sec-fetch-site", "same-site"), ("sec-fetch-site", "cross-site")] {
        let answer = server.portal(list().with(name, value)).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(server.portal(list().with("sec-fetch-site", site)).await.status, StatusCode::OK, "{site}");
    }
}

#[tokio::test]
async fn a_token_is_no_log_in_and_a_log_in_is_no_token() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let read = server.portal(Ask::get(&format!("{HOME}/files")).bearer(&ada)).await;
    assert_eq!(read.header("location"), "/login?next=%2Flive%2Fspaces%2Fhome%2Ffiles");
    let write = make("d").with("origin", PORTAL_ORIGIN).with(FORM_HEADER, &logins::form_token(&ada.cookie));
    assert_eq!(server.portal(write.bearer(&ada)).await.status, StatusCode::UNAUTHORIZED);
    let read = server.portal(Ask::get("/api/v1/spaces/home/files").script(&ada)).await;
    assert_eq!(read.status, StatusCode::UNAUTHORIZED);
    let make = Ask::new("POST", "/api/v1/spaces/home/files/directories").json(&json!({"path": "d"}));
    assert_eq!(server.portal(make.script(&ada)).await.status, StatusCode::UNAUTHORIZED);
    assert!(!home.join("d").exists());
}

/// Everything below a directory: files with what is in them.
fn lies_in(top: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(path) = left.pop() {
        let is_directory = std::fs::symlink_metadata(&path).unwrap().is_dir();
        if is_directory {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.clone(), (!is_directory).then(|| std::fs::read(&path).unwrap()));
    }
    found
}

#[tokio::test]
async fn by_no_route_another_persons_space_upload_and_operation_are_there() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    for name in ["a", "b", "thrown"] {
        std::fs::write(home.join(name), "abc").unwrap();
    }
    let (grace, admin) = (server.grace().await, server.admin().await);
    let thrown = server.send_json(&ada, "POST", "/files/trash", &json!({"paths": ["thrown"]})).await.json();
    let thrown = thrown["items"][0]["id"].as_str().unwrap().to_owned();
    let searched = server.send_json(&ada, "POST", "/files/search", &json!({"name": "a"})).await;
    let searched = server.over(&ada, &searched).await["id"].as_str().unwrap().to_owned();
    let wish = Ask::new("POST", &format!("{HOME}/uploads")).with("tus-resumable", "1.0.0").with("upload-length", "3");
    let upload = server.portal(wish.with("upload-metadata", "path dXA=").script(&ada)).await;
    let upload = upload.header("location").rsplit('/').next().unwrap().to_owned();
    let space = server.test.app.spaces.list(&ada.actor).await.unwrap()[0].space.name.to_string();
    let (before, started) = (lies_in(&home), server.started());
    assert!(before.len() > 6, "what is thrown away and what comes lie there too: {:?}", before.keys());

    let mut asked = 0;
    // The list of one's own operations is for everybody.
    let routes = live::files::ROUTES.iter().chain(live::files::uploads::ROUTES);
    for (method, route) in routes.filter(|(_, route)| *route != "/live/operations") {
        let id = if route.contains("/trash/") {
            &thrown
        } else if route.contains("/operations/") {
            &searched
        } else {
            &upload
        };
        let mut path = route.replace("{space}", &space).replace("{id}", id);
        assert!(!path.contains('{'), "{path}: a route that this test knows nothing of");
        if *method == "GET" && path.contains("/files/") {
            path.push_str("?path=a");
        }
        for person in [&grace, &admin] {
            let ask = Ask::new(method, &path);
            let ask = match *method {
                _ if path.contains("/uploads") => uploads::speaks(ask),
                "POST" | "PUT" => ask.json(&routes::body(&path)),
                _ => ask,
            };
            let answer = server.portal(ask.script(person)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}: {}", answer.body);
            assert!(*method == "HEAD" || answer.json()["code"] == "not_found", "{method} {path}: {}", answer.body);
            asked += 1;
        }
    }
    assert_eq!(asked, 2 * (live::files::ROUTES.len() - 1 + live::files::uploads::ROUTES.len()));
    for person in [&grace, &admin] {
        let listed = server.portal(Ask::get("/live/operations").cookie(person)).await.json();
        assert_eq!(listed["items"], json!([]), "nothing of hers, and nothing was begun");
    }
    assert_eq!((lies_in(&home), server.started()), (before, started));
    let searched = server.portal(Ask::get(&format!("/live/operations/{searched}")).cookie(&ada)).await.json();
    assert_eq!(searched["state"], "done");
    let look = Ask::new("HEAD", &format!("/live/uploads/{upload}")).with("tus-resumable", "1.0.0").script(&ada);
    assert_eq!(server.portal(look).await.header("upload-offset"), "0");
}
