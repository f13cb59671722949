//! What is made of files for people: previews, archives and what was in them, by the real file process and by one that lies.

use std::collections::BTreeMap;
use std::io::Read as _;

use eirene_core::Username;
use eirene_files_protocol::{
    Answer as Said, Channel, FromFiles, Moment, Outcome, Part, Piece, Previewed, Shown, ToFiles, Version,
};
use eirene_services::testing::FilesStandIn;
use serde_json::json;

use super::files::{HOME, euid, opened, real};
use super::*;

#[tokio::test]
async fn a_file_is_shown_as_text_and_numbers_and_never_as_a_document() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    let long = "<script>alert(1)</script>é\n".repeat(20_000);
    let notebook = json!({"nbformat": 4, "cells": [
        {"cell_type": "markdown", "source": ["# <img onerror=x>"]},
        {"cell_type": "code", "execution_count": 3, "source": "x", "outputs": [
            {"data": {"text/html": "<script>alert(1)</script>", "image/png": "aGVsbG8=", "text/plain": "x"}},
            {"execution_count": 3, "data": {
                "text/html": "<table><thead><tr><th>a</th></tr></thead><tr><td onclick=alert(1)>&lt;i&gt;</td></tr></table>",
                "text/plain": "x",
            }},
        ]},
    ]});
    std::fs::write(home.join("page.html"), &long).unwrap();
    std::fs::write(home.join("table.csv"), "a;b\n1;2\n").unwrap();
    std::fs::write(home.join("book.ipynb"), notebook.to_string()).unwrap();
    std::fs::write(home.join("picture.svg"), b"GIF89a\x03\x00\x02\x00").unwrap();
    std::fs::write(home.join("binary"), [0xAB, 0, 1]).unwrap();
    std::fs::create_dir(home.join("d")).unwrap();
    let preview = async |path: &str| {
        let answer = server.get(&ada, &format!("/files/preview?path={path}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(answer.header("cache-control"), "private, no-store");
        answer.json()
    };
    let first = preview("page.html").await;
    assert_eq!((&first["path"], &first["size_bytes"]), (&"page.html".into(), &long.len().into()));
    assert_eq!(first["shown"]["encoding"], "utf-8");
    let tag = server.portal(Ask::new("HEAD", &format!("{HOME}/files/content?path=page.html")).bearer(&ada)).await;
    assert_eq!(first["etag"], tag.header("etag"));
    let mut text = String::new();
    for page in 0.. {
        let shown = preview(&format!("page.html&page={page}")).await["shown"].take();
        assert_eq!(shown["kind"], "text");
        text.push_str(shown["text"].as_str().unwrap());
        if shown["cut"] == false {
            break;
        }
    }
    assert!(text == long);
    let table = preview("table.csv").await;
    assert_eq!(table["shown"], json!({"kind": "table", "rows": [["a", "b"], ["1", "2"]], "cut": false}));
    let outputs = json!([
        {"kind": "picture", "media_type": "image/png", "base64": "aGVsbG8="},
        {"kind": "omitted", "media_type": "text/html"},
        {"kind": "text", "text": "x"},
        {"kind": "table", "number": 3, "rows": [["a"], ["<i>"]], "heads": 1},
    ]);
    let cells = json!([
        {"kind": "markdown", "source": "# <img onerror=x>", "outputs": []},
        {"kind": "code", "number": 3, "source": "x", "outputs": outputs},
    ]);
    assert_eq!(preview("book.ipynb").await["shown"], json!({"kind": "notebook", "cells": cells, "cut": false}));
    let picture = json!({"kind": "picture", "media_type": "image/gif", "width": 3, "height": 2});
    assert_eq!(preview("picture.svg").await["shown"], picture, "by its content, not by its name");
    assert_eq!(preview("binary").await["shown"], json!({"kind": "bytes", "head": "ab0001"}));
    for (query, status, code) in [
        ("path=none", 404, "no_such_path"),
        ("path=d", 409, "is_a_directory"),
        ("path=.eirene", 403, "reserved"),
        ("path=page.html&page=2000", 422, "invalid"),
        ("path=binary&page=1", 422, "invalid"),
        ("path=binary&page=-1", 422, "invalid"),
        ("path=binary&page=4294967296", 422, "invalid"),
        ("", 422, "invalid"),
    ] {
        let answer = server.get(&ada, &format!("/files/preview?{query}")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["code"]),
            (status, &code.into()),
            "{query}: {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn a_person_looks_at_so_many_files_at_once_and_no_more() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::write(home.join("a"), "x").unwrap();
    let places: Vec<_> = (0..4).map(|_| server.test.app.files.place_to_look(ada.actor.user.id).unwrap()).collect();
    let refused = server.get(&ada, "/files/preview?path=a").await;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "5"));
    assert_eq!(refused.json()["code"], "files_busy");
    drop(places);
    for _ in 0..8 {
        assert_eq!(server.get(&ada, "/files/preview?path=a").await.status, StatusCode::OK);
    }
}

/// A process that answers everything with this preview.
fn shows(pieces: Vec<Piece>, shown: Shown) -> FilesStandIn {
    Arc::new(move |_: Username, channel: Channel| {
        let mut buffer = Vec::new();
        let say = |frame: FromFiles| channel.send(&frame.encode().unwrap(), None).unwrap();
        while let Ok(Some(packet)) = channel.receive(&mut buffer) {
            match ToFiles::decode(packet.bytes).unwrap() {
                ToFiles::Open(open) => say(opened(&open)),
                ToFiles::Request(number, _) => {
                    let moment = Moment { seconds: i64::MAX, nanoseconds: u32::MAX };
                    let version = Version { device: 1, inode: 2, bytes: u64::MAX, modified: moment, changed: moment };
                    let previewed = Previewed { version, shown: shown.clone() };
                    say(FromFiles::More(number, Part::Preview(pieces.clone())));
                    say(FromFiles::Reply(number, Outcome::Done(Said::Previewed(previewed))));
                }
                ToFiles::Cancel(_) => {}
            }
        }
    })
}

#[tokio::test]
async fn a_preview_that_is_not_what_it_says_is_none() {
    let svg = || Shown::Picture { media: "image/svg+xml".into(), size: None };
    let evil = [
        (vec![Piece::Output], Shown::Notebook { cut: false }),
        (vec![Piece::Text("x".into())], Shown::Table { cut: false }),
        (vec![], svg()),
        (vec![], Shown::Bytes { head: "<script>".into() }),
    ];
    for (pieces, shown) in evil {
        let server = Server::start().await;
        let (ada, _) = server.ada_at_home(shows(pieces, shown.clone())).await;
        let answer = server.get(&ada, "/files/preview?path=a").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (500, &"files_failed".into()), "{shown:?}");
    }
    // Numbers that cannot be are left out or said as they are.
    let server = Server::start().await;
    let (ada, _) = server.ada_at_home(shows(vec![Piece::Row(vec!["x".into()])], Shown::Table { cut: true })).await;
    let answer = server.get(&ada, "/files/preview?path=a").await.json();
    assert_eq!((&answer["modified_at"], &answer["size_bytes"]), (&Value::Null, &u64::MAX.into()));
    assert_eq!(answer["shown"]["rows"], json!([["x"]]));
}

#[tokio::test]
async fn a_zip_is_read_by_others_and_names_what_it_leaves_out() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir_all(home.join("d/e")).unwrap();
    std::fs::create_dir(home.join(".eirene")).unwrap();
    std::fs::write(home.join(".eirene/secret"), "secret").unwrap();
    std::fs::write(home.join("d/a"), "text").unwrap();
    std::os::unix::fs::symlink("a", home.join("d/link")).unwrap();
    let unzip = async |query: &str| {
        let ask = Ask::get(&format!("{HOME}/files/archive?format=zip{query}")).bearer(&ada).to(PORTAL);
        let response = server.open(ask).await;
        assert_eq!(response.status(), StatusCode::OK, "{query}");
        let name = response.headers()["content-disposition"].to_str().unwrap().to_owned();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
        let mut found = BTreeMap::new();
        for number in 0..archive.len() {
            let mut entry = archive.by_index(number).unwrap();
            let name = entry.name().unwrap().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(name, text);
        }
        (name, found)
    };
    let (name, found) = unzip("&path=d").await;
    assert!(name.contains("filename=\"d.zip\""), "{name}");
    let expected = [("d/", ""), ("d/SKIPPED.txt", "1 left out\nlink: not_supported\n"), ("d/a", "text"), ("d/e/", "")];
    let expected: Vec<_> = expected.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    let (name, found) = unzip("").await;
    assert!(name.contains("filename=\"home-ada.zip\""), "{name}");
    assert!(found.contains_key("home-ada/d/a") && found.values().all(|text| text != "secret"));
}

#[tokio::test]
async fn same_looking_is_said_and_who_something_belongs_to_has_a_name() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    for name in ["Data", "data", "caf\u{e9}", "cafe\u{301}", "other"] {
        std::fs::write(home.join(name), name).unwrap();
    }
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    // A name that is looked up for the first time may come with the next answer.
    let listed = loop {
        let listed = server.get(&ada, "/files").await.json();
        if listed["items"][0]["owner"].is_string() {
            break listed;
        }
    };
    let said = listed["items"].as_array().unwrap().iter().map(|entry| {
        assert_eq!((&entry["owner"], &entry["uid"]), (&user.as_str().into(), &euid().into()));
        (entry["name"].as_str().unwrap(), entry["same_looking"] == true)
    });
    let expected = [("Data", true), ("cafe\u{301}", true), ("caf\u{e9}", true), ("data", true), ("other", false)];
    assert_eq!(said.collect::<Vec<_>>(), expected, "they stay two");
    let filtered = server.get(&ada, "/files?filter=other").await.json();
    assert_eq!(filtered["items"][0].get("same_looking"), None);
    for path in ["/files/entry?path=data", "/files/permissions?path=data"] {
        assert_eq!(server.get(&ada, path).await.json()["owner"], user.as_str(), "{path}");
    }
    let line = format!("user:{}", euid());
    let acl = json!([
        {"who": "owner", "may": "rw-"},
        {"who": line, "may": "r--", "name": "somebody else"},
        {"who": "owning_group", "may": "---"},
        {"who": "other", "may": "---"},
    ]);
    let set = server.send_json(&ada, "PUT", "/files/permissions", &json!({"path": "data", "acl": acl})).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
    assert_eq!(set.json()["acl"][1], json!({"who": line, "may": "r--", "name": user}));
}

#[tokio::test]
async fn an_archive_is_unpacked_and_what_was_refused_is_named() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("d")).unwrap();
    std::fs::write(home.join("d/a"), "text").unwrap();
    for (format, name) in [("tar", "a.tar"), ("zip", "a.zip")] {
        let ask = Ask::get(&format!("{HOME}/files/archive?path=d&format={format}")).bearer(&ada).to(PORTAL);
        let bytes = server.open(ask).await.into_body().collect().await.unwrap().to_bytes();
        std::fs::write(home.join(name), bytes).unwrap();
        let wish = json!({"path": name, "to": format!("from {name}")});
        let done = server.send_json(&ada, "POST", "/files/extract", &wish).await;
        let done = server.over(&ada, &done).await;
        assert_eq!((&done["state"], &done["kind"]), (&"done".into(), &"extract".into()), "{done}");
        assert_eq!((&done["request"]["path"], &done["progress"]["path"]), (&wish["path"], &wish["to"]));
        assert_eq!((&done["progress"]["entries"], &done["progress"]["bytes"]), (&2.into(), &4.into()));
        assert_eq!(std::fs::read(home.join(format!("from {name}/d/a"))).unwrap(), b"text");
        let again = server.send_json(&ada, "POST", "/files/extract", &wish).await;
        let again = server.over(&ada, &again).await;
        assert_eq!((&again["state"], &again["problem"]["code"]), (&"failed".into(), &"exists".into()));
    }
    // The name of its one member, made to climb: the checksum of a tar's head is a sum.
    let mut evil = std::fs::read(home.join("a.tar")).unwrap();
    let at = evil.windows(3).rposition(|bytes| bytes == b"d/a").unwrap();
    let sum = |head: &[u8]| head[..148].iter().chain(&head[156..512]).map(|byte| u32::from(*byte)).sum::<u32>() + 256;
    evil[at..at + 4].copy_from_slice(b"../a");
    let sum = format!("{:06o}\0 ", sum(&evil[at..at + 512]));
    evil[at + 148..at + 156].copy_from_slice(sum.as_bytes());
    std::fs::write(home.join("evil.tar"), evil).unwrap();
    let done = server.send_json(&ada, "POST", "/files/extract", &json!({"path": "evil.tar", "to": "x/y"})).await;
    assert_eq!(server.over(&ada, &done).await["problem"]["code"], "no_such_path");
    let done = server.send_json(&ada, "POST", "/files/extract", &json!({"path": "evil.tar", "to": "x"})).await;
    let done = server.over(&ada, &done).await;
    let refused = &done["progress"]["skipped"][0];
    assert_eq!((&done["progress"]["skipped_in_all"], &refused["path"]), (&1.into(), &"../a".into()), "{done}");
    assert_eq!(refused["code"], "unsafe_member");
    assert!(!home.join("a").exists());
    std::fs::write(home.join("text"), "no archive").unwrap();
    let none = server.send_json(&ada, "POST", "/files/extract", &json!({"path": "text", "to": "z"})).await;
    assert_eq!(server.over(&ada, &none).await["problem"]["code"], "not_an_archive");
    assert!(!home.join("z").exists());

    let query = eirene_services::audit::AuditQuery { limit: 50, ..Default::default() };
    let events = server.test.app.audit.list(&server.admin().await.actor, query).await.unwrap();
    let told = events.iter().find(|event| event.action == "files.extract").unwrap();
    assert_eq!((told.target.as_str(), &told.details["count"]), ("home-ada", &1.into()));
    assert!(!told.details.to_string().contains(".tar"), "by verb, space and number");
}
