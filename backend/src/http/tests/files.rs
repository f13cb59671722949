//! Files over HTTP, against the real file process over a directory of the test.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use eirene_core::launcher::LauncherRequest;
use eirene_core::space::MadeAt;
use eirene_core::storage::Identity;
use eirene_core::{Space, SpaceOwner, SpaceState, Username};
use eirene_files_protocol::{Channel, FromFiles, Hello, Open, OpenedSpace};
use serde_json::json;

use super::*;
use crate::services::spaces::testing::a_space;
use crate::testing::FilesStandIn;

pub(super) const HOME: &str = "/api/v1/spaces/home";

/// Whoever the file process of a test is.
pub(super) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The real file process, in a thread of its own, which it confines.
pub(super) fn real() -> FilesStandIn {
    Arc::new(|_: Username, channel: Channel| {
        let _ = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
    })
}

/// What a stand-in of a file process says first: that it is whoever runs the tests, and that each space is there.
pub(super) fn opened(open: &Open) -> FromFiles {
    let spaces = open.spaces.iter().map(|space| OpenedSpace { number: space.number, problem: None }).collect();
    FromFiles::Hello(Hello { uid: euid(), landlock: None, spaces })
}

impl Server {
    /// Ada, with a home of the test's and this as its file process.
    pub(super) async fn ada_at_home(&self, process: FilesStandIn) -> (Person, PathBuf) {
        let home = self.test.directory.path().join("home/ada");
        std::fs::create_dir_all(&home).unwrap();
        *self.test.launcher.files.lock().unwrap() = Some(process);
        (self.person("ada", euid(), Role::Researcher).await, home)
    }

    /// A program of this person's with these scopes alone.
    pub(super) async fn with_scopes(&self, person: &Person, scopes: &[Scope]) -> Person {
        let new = NewToken { name: "some".into(), scopes: Some(scopes.to_vec()), expires_in_s: None };
        let token = self.test.app.tokens.create(&person.actor, new).await.unwrap().secret.expose().to_owned();
        Person { actor: person.actor.clone(), cookie: Secret::generate(), token }
    }

    pub(super) async fn get(&self, person: &Person, path: &str) -> Answer {
        self.portal(Ask::get(&format!("{HOME}{path}")).bearer(person)).await
    }

    pub(super) async fn send_json(&self, person: &Person, method: &str, path: &str, body: &Value) -> Answer {
        self.portal(Ask::new(method, &format!("{HOME}{path}")).bearer(person).json(body)).await
    }

    /// The operation that was accepted, once it is over.
    pub(super) async fn over(&self, person: &Person, accepted: &Answer) -> Value {
        assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.body);
        let place = accepted.header("location").to_owned();
        loop {
            let answer = self.portal(Ask::get(&place).bearer(person)).await;
            let operation = answer.json();
            if !matches!(operation["state"].as_str(), Some("waiting" | "running")) {
                return operation;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How often a file process was asked for.
    pub(super) fn started(&self) -> usize {
        let calls = self.test.launcher.calls.lock().unwrap();
        calls.iter().filter(|call| matches!(call, LauncherRequest::OpenFiles { .. })).count()
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_directory_is_listed_in_pages_and_names_are_as_they_lie_there() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    for (name, bytes) in [("a", 3), ("b", 1), ("B", 2), (".hidden", 9)] {
        std::fs::write(home.join(name), vec![0; bytes]).unwrap();
    }
    std::fs::write(home.join(OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    std::fs::create_dir(home.join(".eirene")).unwrap();
    let whole = server.get(&ada, "/files").await;
    assert_eq!(whole.status, StatusCode::OK, "{}", whole.body);
    let whole = whole.json();
    assert_eq!(names(&whole), ["B", "a", "b", "caf\u{fffd}"]);
    assert_eq!(whole["directory"]["entries"], 4);
    assert_eq!((&whole["directory"]["writable"], &whole["directory"]["path"]), (&true.into(), &"".into()));
    assert_eq!(whole["items"][1]["size_bytes"], 3);
    assert_eq!((&whole["items"][1]["kind"], &whole["items"][1]["mine"]), (&"file".into(), &true.into()));
    let raw = whole["items"][3]["raw_path"].as_str().unwrap();
    let odd = server.get(&ada, &format!("/files/entry?raw_path={raw}")).await;
    assert_eq!((odd.status, &odd.json()["size_bytes"]), (StatusCode::OK, &1.into()), "{}", odd.body);

    let hidden = server.get(&ada, "/files?hidden=true&sort=size&order=desc").await.json();
    assert_eq!(names(&hidden), [".hidden", "a", "B", "caf\u{fffd}", "b"], "the platform's own is not listed");
    let filtered = server.get(&ada, "/files?filter=B").await.json();
    assert_eq!(names(&filtered), ["B", "b"]);
    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = server.get(&ada, &format!("/files?limit=2{next}")).await.json();
        paged.extend(names(&page).iter().map(|name| (*name).to_owned()));
        match page["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(paged, ["B", "a", "b", "caf\u{fffd}"]);
    for (path, field) in [
        ("/files?limit=0", "limit"),
        ("/files?limit=1001", "limit"),
        ("/files?cursor=1.a", "cursor"),
        ("/files?sort=owner", "sort"),
        ("/files?order=up", "order"),
        ("/files?hidden=yes", "hidden"),
        ("/files?path=a&raw_path=YQ", "raw_path"),
        ("/files?x=1", "x"),
        ("/files/content", "path"),
        ("/files/archive?format=rar", "format"),
    ] {
        let answer = server.get(&ada, path).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {}", answer.body);
        assert_eq!(answer.fields(), [field], "{path}");
    }
}

#[tokio::test]
async fn what_the_file_system_says_has_a_status_and_a_code() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("file"), "x").unwrap();
    std::fs::create_dir_all(home.join(".eirene/sessions")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("out")).unwrap();
    for (path, status, code) in [
        ("/files?path=none", 404, "no_such_path"),
        ("/files?path=file", 409, "not_a_directory"),
        ("/files/content?path=.eirene", 403, "reserved"),
        ("/files/content?path=.eirene/sessions", 403, "reserved"),
        ("/files/archive?path=none", 404, "no_such_path"),
        ("/files/content?path=out", 403, "leads_out"),
        ("/files?path=out", 403, "leads_out"),
    ] {
        let answer = server.get(&ada, path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["code"].as_str()),
            (status, Some(code)),
            "{path}: {}",
            answer.body
        );
    }
    let link = server.get(&ada, "/files/entry?path=out").await.json();
    assert_eq!(link["link"], json!({"target": "/etc/passwd", "inside": false}));
    let archive = server.get(&ada, "/files/archive").await;
    assert_eq!(archive.status, StatusCode::OK);
    assert!(archive.body.contains("home-ada/file") && !archive.body.contains("sessions"));
}

#[tokio::test]
async fn a_file_comes_whole_and_in_parts() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("ten"), "0123456789").unwrap();
    std::fs::write(home.join("none"), "").unwrap();
    let ask = |method: &str, path: &str| Ask::new(method, &format!("{HOME}/files/content?path={path}")).bearer(&ada);
    let whole = server.portal(ask("GET", "ten")).await;
    assert_eq!((whole.status, whole.body.as_str()), (StatusCode::OK, "0123456789"));
    assert_eq!((whole.header("content-length"), whole.header("accept-ranges")), ("10", "bytes"));
    assert!(whole.header("last-modified").ends_with(" GMT"), "{}", whole.header("last-modified"));
    let tag = whole.header("etag").to_owned();
    let head = server.portal(ask("HEAD", "ten")).await;
    assert_eq!((head.status, head.header("content-length"), head.header("etag")), (StatusCode::OK, "10", tag.as_str()));
    assert!(head.body.is_empty());

    for (range, body, part) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-1", "9", "bytes 9-9/10"),
        ("bytes=0-99", "0123456789", "bytes 0-9/10"),
    ] {
        let answer = server.portal(ask("GET", "ten").with("range", range).with("if-range", &tag)).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::PARTIAL_CONTENT, body), "{range}");
        assert_eq!((answer.header("content-range"), answer.header("etag")), (part, tag.as_str()));
    }
    let beyond = server.portal(ask("GET", "ten").with("range", "bytes=10-")).await;
    assert_eq!((beyond.status, beyond.header("content-range")), (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */10"));
    assert_eq!(beyond.json()["code"], "out_of_range");
    let known = server.portal(ask("GET", "ten").with("if-none-match", &tag)).await;
    assert_eq!((known.status, known.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    let empty = server.portal(ask("GET", "none")).await;
    assert_eq!((empty.status, empty.header("content-length")), (StatusCode::OK, "0"));

    std::fs::write(home.join("ten"), "abcdefghij").unwrap();
    let changed = server.portal(ask("GET", "ten").with("range", "bytes=2-4").with("if-range", &tag)).await;
    assert_eq!((changed.status, changed.body.as_str()), (StatusCode::OK, "abcdefghij"), "parts of two files are none");
    let changed = server.portal(ask("GET", "ten").with("if-match", &tag)).await;
    assert_eq!(changed.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn every_byte_of_a_space_is_an_attachment_in_a_sandbox() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let page = "<!doctype html><script>alert(1)</script>";
    for name in ["page.html", "picture.svg", "book.ipynb", "style.css", "script.js", "text.txt"] {
        std::fs::write(home.join(name), page).unwrap();
        let content = format!("{HOME}/files/content?path={name}");
        let archive = format!("{HOME}/files/archive?path={name}");
        let zip = format!("{archive}&format=zip");
        for ask in [
            Ask::get(&content),
            Ask::new("HEAD", &content),
            Ask::get(&content).with("range", "bytes=0-9").with("accept", "text/html"),
            Ask::get(&archive),
            Ask::new("HEAD", &archive),
            Ask::get(&zip),
            Ask::new("HEAD", &zip),
        ] {
            let answer = server.portal(ask.bearer(&ada)).await;
            assert!(answer.status.is_success(), "{name}: {}", answer.body);
            assert_eq!(answer.header("content-type"), "application/octet-stream", "{name}");
            assert!(answer.header("content-disposition").starts_with("attachment; filename="), "{name}");
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
            assert_eq!(answer.header("content-security-policy"), "sandbox; default-src 'none'");
            assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
            assert_eq!(answer.header("cache-control"), "private, no-store");
        }
    }
    let missing = server.get(&ada, "/files/content?path=none.html").await;
    assert_eq!(missing.header("content-type"), "application/problem+json");
}

#[tokio::test]
async fn a_checksum_is_worked_out_where_it_is_asked_for() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "123456789").unwrap();
    std::fs::create_dir(home.join("d")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("out")).unwrap();
    let entry = server.get(&ada, "/files/entry?path=a&checksum=sha256").await.json();
    assert_eq!(entry["sha256"], "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
    assert_eq!(entry["etag"], server.get(&ada, "/files/entry?path=a").await.json()["etag"]);
    assert!(server.get(&ada, "/files/entry?path=a").await.json().get("sha256").is_none());
    for (query, status, code) in [
        ("path=d&checksum=sha256", 409, "is_a_directory"),
        ("path=none&checksum=sha256", 404, "no_such_path"),
        ("path=out&checksum=sha256", 403, "leads_out"),
        ("path=a&checksum=md5", 422, "invalid"),
        ("checksum=sha256", 422, "invalid"),
    ] {
        let answer = server.get(&ada, &format!("/files/entry?{query}")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["code"]),
            (status, &code.into()),
            "{query}: {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn several_things_come_as_one_archive() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir_all(home.join("d/sub")).unwrap();
    for name in ["d/a\n", "d/sub/a", "d/b", "other"] {
        std::fs::write(home.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", home.join("d/out")).unwrap();
    let two = server.get(&ada, "/files/archive?path=d/a%0A&raw_path=ZC9zdWI").await;
    assert_eq!(two.status, StatusCode::OK, "{}", two.body);
    assert!(two.header("content-disposition").contains("\"d.tar\""), "{}", two.header("content-disposition"));
    assert!(two.body.contains("sub/a") && two.body.contains("a\n\0") && !two.body.contains("d/b"), "{:?}", two.body);
    let head = format!("{HOME}/files/archive?path=d/b&path=other&format=zip");
    let head = server.portal(Ask::new("HEAD", &head).bearer(&ada)).await;
    assert!(head.status.is_success() && head.header("content-disposition").contains("\"d.zip\""));

    for (query, status, says) in [
        ("path=d/b&path=gone", 404, "`gone`: there is nothing at this path"),
        ("path=d/b&path=.eirene-trash", 403, "`.eirene-trash`: this belongs to the platform"),
        ("path=d/sub/a&path=other&path=sub/a", 422, "`a`"),
        ("path=d/b&path=../ada/other", 422, "path[1]"),
        ("path=d/b&path=", 422, "path[1]"),
        ("path=d/b&raw_path=Li4", 422, "raw_path[0]"),
    ] {
        let answer = server.get(&ada, &format!("/files/archive?{query}")).await;
        assert_eq!(answer.status.as_u16(), status, "{query}: {}", answer.body);
        assert!(answer.body.contains(says), "{query}: {}", answer.body);
    }
    let many: String = (0..501).fold(String::new(), |all, number| all + &format!("&path={number}"));
    let answer = server.get(&ada, &format!("/files/archive?{}", &many[1..])).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    // What leads out is left out, whatever else is asked for.
    let out = server.get(&ada, "/files/archive?path=d/b&path=d/out").await;
    assert!(out.status == StatusCode::OK && !out.body.contains("root:"), "{}", out.body);
}

#[tokio::test]
async fn a_header_cannot_be_split_by_a_name() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let evil = ["x\r\nSet-Cookie: a=b", "\"; filename=\"run.exe", "\u{202e}gpj.exe", "a\u{7f}\u{1b}[31m", "ä/b"];
    for name in evil.map(|name| name.replace('/', "-")) {
        std::fs::write(home.join(&name), "x").unwrap();
        let path = serde_html_form::to_string([("path", name.as_str())]).unwrap();
        for place in ["content", "archive"] {
            let answer = server.get(&ada, &format!("/files/{place}?{path}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{name:?}: {}", answer.body);
            assert_eq!(answer.header("set-cookie"), "");
            let said = answer.headers.get("content-disposition").unwrap().to_str().unwrap();
            assert!(said.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{said:?}");
            assert_eq!(said.matches('"').count(), 2, "{said}");
        }
        let entry = server.get(&ada, &format!("/files/entry?{path}")).await.json();
        assert_eq!(entry["name"], name.as_str(), "names come back as they are");
    }
}

/// Every request about a path, with that path in it.
pub(super) fn about(path: &str) -> Vec<(&'static str, String, Value)> {
    let query = serde_html_form::to_string([("path", path)]).unwrap();
    let get = |place: &str| ("GET", format!("/files{place}?{query}"), json!({}));
    vec![
        get(""),
        get("/entry"),
        get("/content"),
        get("/archive"),
        ("GET", format!("/files/archive?{query}&path=b"), json!({})),
        ("GET", format!("/files/entry?{query}&checksum=sha256"), json!({})),
        get("/preview"),
        get("/permissions"),
        ("POST", "/files/directories".into(), json!({"path": path})),
        ("POST", "/files/move".into(), json!({"items": [{"path": path, "to": "b"}]})),
        ("POST", "/files/move".into(), json!({"items": [{"path": "a", "to": path}]})),
        ("POST", "/files/copy".into(), json!({"items": [{"path": path, "to": "b"}]})),
        ("POST", "/files/copy".into(), json!({"items": [{"path": "a", "to": path}]})),
        ("POST", "/files/extract".into(), json!({"path": path, "to": "e"})),
        ("POST", "/files/extract".into(), json!({"path": "a", "to": path})),
        ("POST", "/files/trash".into(), json!({"paths": [path]})),
        ("POST", "/files/delete".into(), json!({"paths": [path], "sure": true})),
        ("POST", "/files/search".into(), json!({"path": path, "name": "x"})),
        ("POST", "/scan".into(), json!({"path": path})),
        ("PUT", "/files/permissions".into(), json!({"path": path, "mode": "0600"})),
        ("POST", format!("/trash/{}/restore", "0".repeat(32)), json!({"to": path})),
    ]
}

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
    let query = crate::services::audit::AuditQuery { limit: 200, ..Default::default() };
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
    let physics = server.test.app.db.insert_space(physics).await.unwrap();
    let make = async || {
        let ask = Ask::new("POST", "/api/v1/spaces/physics/files/directories").bearer(&ada);
        server.portal(ask.json(&json!({"path": "new"}))).await
    };
    let refused = make().await;
    assert_eq!((refused.status, &refused.json()["code"]), (StatusCode::SERVICE_UNAVAILABLE, &"storage_gone".into()));
    assert!(!projects.join("physics/new").exists());
    let now = Space { made_at: made_at(inode), ..physics };
    assert!(server.test.app.db.update_space(&now).await.unwrap());
    let made = make().await;
    assert!(made.status.is_success(), "{}", made.body);
    assert!(projects.join("physics/new").exists());
}

#[tokio::test]
async fn a_space_that_may_only_be_read_or_is_not_there_says_so_before_any_process() {
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(real()).await;
    let data = Space { name: "data".parse().unwrap(), ..a_space(SpaceOwner::Everybody) };
    server.test.app.db.insert_space(data).await.unwrap();
    let physics = || a_space(SpaceOwner::Group("physics".parse().unwrap()));
    let old = Space { name: "old".parse().unwrap(), state: SpaceState::Retired, ..physics() };
    for space in [physics(), old] {
        server.test.app.db.insert_space(space).await.unwrap();
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
