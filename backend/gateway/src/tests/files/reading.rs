//! Lists, bytes, archives and checksums.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::*;

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
