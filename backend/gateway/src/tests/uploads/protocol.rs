//! What is asked for, answered and refused, and of whom.

use super::*;

#[tokio::test]
async fn what_lies_about_its_offset_its_sum_or_its_size_changes_nothing() {
    let bench = Bench::new().await;
    let bytes = content(64 * KIB);
    let upload = bench.make(bytes.len(), &[("path", "a")]).await;
    let half = bytes.len() / 2;
    assert_eq!(bench.patch(&upload, 0, &bytes[..half]).await.status, StatusCode::NO_CONTENT);
    let sum = |algorithm: &str, bytes: &[u8]| {
        let sum = match algorithm {
            "crc32" => crc32fast::hash(bytes).to_be_bytes().to_vec(),
            "sha1" => vec![0; 20],
            _ => sha2::Sha256::digest(bytes).to_vec(),
        };
        format!("{algorithm} {}", BASE64.encode(&sum))
    };
    let rest = &bytes[half..];
    let lies = [
        (chunk(&upload, 0).body(&bytes[..half]), 409, "offset_differs"),
        (chunk(&upload, half + 1).body(&rest[1..]), 409, "offset_differs"),
        (chunk(&upload, half).body(&bytes[..]), 413, "too_large"),
        (chunk(&upload, half).with("upload-checksum", &sum("sha256", b"")).body(rest), 460, "checksum_differs"),
        (chunk(&upload, half).with("upload-checksum", &sum("crc32", b"")).body(rest), 460, "checksum_differs"),
        (chunk(&upload, half).with("upload-checksum", &sum("sha1", b"")).body(rest), 460, "checksum_differs"),
        (chunk(&upload, half).with("upload-checksum", "md5 AAAA").body(rest), 400, "bad_header"),
        (Ask::new("PATCH", &upload).with("upload-offset", "0").body(rest), 415, "unsupported_media_type"),
    ];
    for (ask, status, code) in lies {
        let answer = bench.ask(ask).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (status, &code.into()));
        assert_eq!(answer.header("tus-resumable"), "1.0.0");
        if matches!(code, "offset_differs" | "checksum_differs") {
            assert_eq!(answer.header("upload-offset"), half.to_string(), "it says where to go on");
        }
        assert_eq!((bench.offset(&upload).await, bench.arrived()), (half, half as u64), "{code}");
    }
    let other = bench.server.portal(Ask::new("HEAD", &upload).with("tus-resumable", "0.2.2").bearer(&bench.ada)).await;
    assert_eq!((other.status, other.header("tus-version")), (StatusCode::PRECONDITION_FAILED, "1.0.0"));
    let (next, last) = rest.split_at(half / 2);
    let good = bench.ask(chunk(&upload, half).with("upload-checksum", &sum("crc32", next)).body(next)).await;
    assert_eq!(good.status, StatusCode::NO_CONTENT, "{}", good.body);
    let at = half + next.len();
    let good = bench.ask(chunk(&upload, at).with("upload-checksum", &sum("sha256", last)).body(last)).await;
    assert_eq!((good.status, good.header("eirene-path")), (StatusCode::NO_CONTENT, "a"), "{}", good.body);
}

#[tokio::test]
async fn a_name_that_is_taken_is_dealt_with_as_was_wished() {
    let bench = Bench::new().await;
    std::fs::write(bench.home.join("a.txt"), "old").unwrap();
    let refused = bench.ask(wish(3, &[("path", "a.txt")])).await;
    assert_eq!((refused.status, &refused.json()["code"]), (StatusCode::CONFLICT, &"exists".into()));
    assert!(bench.server.test.app.db.open_uploads(bench.ada.actor.user.id).await.unwrap().is_empty());
    assert_eq!(bench.names(), ["a.txt"]);
    for (on_conflict, path) in [("keep_both", "a%20%282%29.txt"), ("replace", "a.txt")] {
        let upload = bench.make(3, &[("path", "a.txt"), ("on_conflict", on_conflict)]).await;
        let whole = bench.patch(&upload, 0, b"new").await;
        assert_eq!((whole.status, whole.header("eirene-path")), (StatusCode::NO_CONTENT, path), "{}", whole.body);
    }
    assert_eq!(std::fs::read_to_string(bench.home.join("a.txt")).unwrap(), "new");
    // Taken only meanwhile: all bytes are there, and no one is told that it is done.
    let upload = bench.make(3, &[("path", "b")]).await;
    std::fs::write(bench.home.join("b"), "faster").unwrap();
    let late = bench.patch(&upload, 0, b"new").await;
    assert_eq!((late.status, &late.json()["code"]), (StatusCode::CONFLICT, &"exists".into()));
    assert_eq!(bench.ask(Ask::new("HEAD", &upload)).await.status, StatusCode::CONFLICT);
    std::fs::remove_file(bench.home.join("b")).unwrap();
    let seen = bench.ask(Ask::new("HEAD", &upload)).await;
    assert_eq!((seen.status, seen.header("eirene-path")), (StatusCode::OK, "b"));
}

#[tokio::test]
async fn first_bytes_may_come_with_the_wish_and_a_whole_that_is_not_what_was_said_is_no_file() {
    let bench = Bench::new().await;
    let first = wish(5, &[("path", "a")]).with("content-type", CHUNK_TYPE).body("he");
    let made = bench.ask(first).await;
    assert_eq!((made.status, made.header("upload-offset")), (StatusCode::CREATED, "2"), "{}", made.body);
    let upload = made.header("location").to_owned();
    assert_eq!(bench.patch(&upload, 2, b"llo").await.status, StatusCode::NO_CONTENT);
    assert_eq!(std::fs::read_to_string(bench.home.join("a")).unwrap(), "hello");

    let empty = bench.ask(wish(0, &[("path", "b")])).await;
    assert_eq!((empty.status, empty.header("eirene-path")), (StatusCode::CREATED, "b"));
    assert_eq!(std::fs::metadata(bench.home.join("b")).unwrap().len(), 0);

    let forged = wish(5, &[("path", "c"), ("sha256", &sha256(b"hello"))]);
    let forged = bench.ask(forged.with("content-type", CHUNK_TYPE).body("HELLO")).await;
    assert_eq!((forged.status.as_u16(), &forged.json()["code"]), (460, &"checksum_differs".into()));
    let mut names = bench.names();
    names.sort();
    assert_eq!(names, ["a", "b"], "nothing is left of what was forged");
}

#[tokio::test]
async fn an_upload_that_is_ended_leaves_nothing() {
    let bench = Bench::new().await;
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    assert_eq!(bench.names().len(), 2);
    assert_eq!(bench.ask(Ask::new("DELETE", &upload)).await.status, StatusCode::NO_CONTENT);
    assert_eq!(bench.names(), Vec::<String>::new());
    for verb in ["HEAD", "DELETE"] {
        assert_eq!(bench.ask(Ask::new(verb, &upload)).await.status, StatusCode::NOT_FOUND, "{verb}");
    }
}

#[tokio::test]
async fn anothers_upload_is_what_an_upload_that_is_not_there_is() {
    let bench = Bench::new().await;
    let upload = bench.make(10, &[("path", "a")]).await;
    let (grace, admin) = (bench.server.grace().await, bench.server.admin().await);
    let nothing = format!("/api/v1/uploads/{}", UploadId::generate());
    for person in [&grace, &admin] {
        for verb in ["HEAD", "PATCH", "DELETE", "OPTIONS"] {
            let ask = |path: &str| bench.server.portal(speaks(Ask::new(verb, path)).bearer(person).body("x"));
            let (theirs, none) = (ask(&upload).await, ask(&nothing).await);
            assert_eq!(theirs.status, none.status, "{verb}");
            assert!(verb == "OPTIONS" || theirs.status == StatusCode::NOT_FOUND, "{verb}");
        }
        let into = Ask::new("POST", "/api/v1/spaces/home-ada/uploads");
        let into = bench.server.portal(speaks(into).bearer(person)).await;
        assert_eq!(into.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(bench.offset(&upload).await, 0);
    let new = NewToken { name: "reads".into(), scopes: Some(vec![Scope::FilesRead]), expires_in_s: None };
    let reads = bench.server.test.app.tokens.create(&bench.ada.actor, new).await.unwrap();
    for (verb, path) in
        [("POST", UPLOADS), ("OPTIONS", UPLOADS), ("HEAD", &*upload), ("PATCH", &upload), ("DELETE", &upload)]
    {
        let ask = speaks(Ask::new(verb, path)).with("authorization", &format!("Bearer {}", reads.secret.expose()));
        assert_eq!(bench.server.portal(ask).await.status, StatusCode::FORBIDDEN, "{verb}");
    }
}

#[tokio::test]
async fn what_is_offered_is_said() {
    let bench = Bench::new().await;
    let offered = bench.server.portal(Ask::new("OPTIONS", UPLOADS).bearer(&bench.ada)).await;
    assert_eq!((offered.status, offered.header("tus-version")), (StatusCode::NO_CONTENT, "1.0.0"));
    assert_eq!(
        (offered.header("tus-resumable"), offered.header("tus-checksum-algorithm")),
        ("1.0.0", "crc32,sha256,sha1")
    );
    assert!(offered.header("tus-extension").contains("termination"));
    assert!(bench.started.lock().unwrap().is_empty(), "nothing was started for that");
}

#[tokio::test]
async fn a_hostile_name_goes_through_as_it_is_and_into_no_header_as_it_is() {
    let bench = Bench::new().await;
    let name = "<img src=x>\r\nX-Evil: 1\u{202e}\"';--";
    let upload = bench.make(1, &[("path", name)]).await;
    let whole = bench.patch(&upload, 0, b"x").await;
    assert_eq!(whole.status, StatusCode::NO_CONTENT, "{}", whole.body);
    assert!(whole.headers.get("x-evil").is_none() && whole.header("eirene-path").starts_with("%3Cimg"));
    assert_eq!(bench.names(), [name]);
}
