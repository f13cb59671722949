//! Uploads that are interrupted, by whatever it may be, and what is there when they go on.

use tokio::io::AsyncReadExt as _;

use super::*;

#[tokio::test]
async fn an_upload_goes_on_after_the_portal_and_the_file_process_were_killed() {
    let bench = Bench::new().await;
    let bytes = content(3000 * KIB);
    let upload = bench
        .make(bytes.len(), &[("path", "runs/one/big.bin"), ("sha256", &sha256(&bytes)), ("parents", "true")])
        .await;
    let bench = Bench { home: bench.home.join("runs/one"), ..bench };
    let first = bench.patch(&upload, 0, &bytes[..1000 * KIB]).await;
    assert_eq!((first.status, first.header("upload-offset")), (StatusCode::NO_CONTENT, "1024000"), "{}", first.body);
    assert!(first.header("upload-expires").ends_with("GMT") && first.header("eirene-path").is_empty());

    let mut sending = bench.begin(&upload, 1000 * KIB, 2000 * KIB, &bytes[1000 * KIB..1700 * KIB]).await;
    bench.wait_until("more arrives", |bench| bench.arrived() == 1700 * KIB as u64).await;
    bench.kill_file_process();
    let mut answer = String::new();
    sending.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("storage_away"), "{answer}");

    let bench = bench.restart().await;
    let at = bench.offset(&upload).await;
    assert!((1000 * KIB..=1700 * KIB).contains(&at), "{at}");
    let last = bench.patch(&upload, at, &bytes[at..]).await;
    assert_eq!(
        (last.status, last.header("eirene-path")),
        (StatusCode::NO_CONTENT, "runs/one/big.bin"),
        "{}",
        last.body
    );
    assert!(std::fs::read(bench.home.join("big.bin")).unwrap() == bytes);
    assert_eq!(bench.names(), ["big.bin"], "nothing else is left");
    let bench = bench.restart().await;
    let seen = bench.ask(Ask::new("HEAD", &upload)).await;
    assert_eq!((seen.header("upload-offset"), seen.header("eirene-path")), ("3072000", "runs/one/big.bin"));
    assert_eq!((seen.header("upload-length"), seen.header("cache-control")), ("3072000", "no-store"));
    assert!(bench.started.lock().unwrap().len() >= 2);
}

#[tokio::test]
async fn what_a_client_sent_before_it_went_counts() {
    let bench = Bench::new().await;
    let bytes = content(900 * KIB);
    let upload = bench.make(bytes.len(), &[("path", "a")]).await;
    let sending = bench.begin(&upload, 0, bytes.len(), &bytes[..600 * KIB]).await;
    bench.wait_until("it arrives", |bench| bench.arrived() == 600 * KIB as u64).await;
    drop(sending);
    let rest = bench.go_on(&upload, 600 * KIB, &bytes[600 * KIB..]).await;
    assert_eq!((rest.status, rest.header("eirene-path")), (StatusCode::NO_CONTENT, "a"), "{}", rest.body);
    assert!(std::fs::read(bench.home.join("a")).unwrap() == bytes);
}

/// Nobody has the disk for it, and it takes none: what came before is a hole in a file system that is in memory.
#[tokio::test]
async fn an_upload_of_fifty_gibibytes_goes_on_near_its_end_and_its_end_can_be_had() {
    const WHOLE: usize = 50 << 30;
    let bench = Bench::with(Some("64g")).await;
    let upload = bench.make(WHOLE, &[("path", "large")]).await;
    // Where only the file process looks.
    let process = *bench.started.lock().unwrap().last().unwrap();
    let home = PathBuf::from(format!("/proc/{process}/root{}", bench.home.display()));
    let bench = Bench { home, ..bench };
    let begin = WHOLE - 1024 * KIB;
    bench.pretend(begin as u64, &[(0, "the first"), ((4 << 30) - 6, "across the border")]);
    assert_eq!(bench.offset(&upload).await, begin);
    let seen = bench.ask(Ask::new("HEAD", &upload)).await;
    assert_eq!(seen.header("upload-length"), "53687091200");

    let last = "0123456789abcdef".repeat(64 * KIB);
    let (first, rest) = last.as_bytes().split_at(300 * KIB);
    // The first of them is what 32 bits make of the right one.
    for wrong in [begin % (1 << 32), begin - (1 << 32), begin - 1, begin + 1] {
        let answer = bench.patch(&upload, wrong, first).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (409, &"offset_differs".into()), "{wrong}");
        assert_eq!(answer.header("upload-offset"), begin.to_string());
    }
    let beyond = bench.patch(&upload, begin, format!("{last}x").as_bytes()).await;
    assert_eq!((beyond.status.as_u16(), &beyond.json()["code"]), (413, &"too_large".into()));
    // The connection breaks off in the middle.
    let sending = bench.begin(&upload, begin, last.len(), first).await;
    let until = begin + first.len();
    bench.wait_until("it arrives", |bench| bench.arrived() == until as u64).await;
    drop(sending);
    let done = bench.go_on(&upload, until, rest).await;
    assert_eq!((done.status, done.header("eirene-path")), (StatusCode::NO_CONTENT, "large"), "{}", done.body);
    assert_eq!(done.header("upload-offset"), "53687091200");
    assert_eq!(std::fs::metadata(bench.home.join("large")).unwrap().len(), WHOLE as u64);

    let of = |method: &str, what: &str| {
        Ask::new(method, &format!("/api/v1/spaces/home/files/{what}?path=large")).bearer(&bench.ada)
    };
    let entry = bench.server.portal(of("GET", "entry")).await;
    assert_eq!(entry.json()["size_bytes"], 53_687_091_200_u64, "{}", entry.body);
    let head = bench.server.portal(of("HEAD", "content")).await;
    assert_eq!((head.status, head.header("content-length")), (StatusCode::OK, "53687091200"));
    for (range, text, part) in [
        (format!("bytes={begin}-"), last.as_str(), "bytes 53686042624-53687091199/53687091200"),
        ("bytes=-6".to_owned(), "abcdef", "bytes 53687091194-53687091199/53687091200"),
        ("bytes=53687091196-99999999999".to_owned(), "cdef", "bytes 53687091196-53687091199/53687091200"),
        ("bytes=4294967290-4294967306".to_owned(), "across the border", "bytes 4294967290-4294967306/53687091200"),
        ("bytes=0-8".to_owned(), "the first", "bytes 0-8/53687091200"),
    ] {
        let answer = bench.server.portal(of("GET", "content").with("range", &range)).await;
        assert_eq!((answer.status, answer.header("content-range")), (StatusCode::PARTIAL_CONTENT, part), "{range}");
        assert!(answer.body == text, "{range}");
    }
    let beyond = bench.server.portal(of("GET", "content").with("range", "bytes=53687091200-")).await;
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */53687091200")
    );
}

#[tokio::test]
async fn bytes_of_a_token_that_is_revoked_are_taken_no_longer() {
    let bench = Bench::new().await;
    let upload = bench.make(300 * KIB, &[("path", "a")]).await;
    let mut sending = bench.begin(&upload, 0, 300 * KIB, &content(100 * KIB)).await;
    bench.wait_until("it arrives", |bench| bench.arrived() == 100 * KIB as u64).await;
    let db = &bench.server.test.app.db;
    let tokens = db.tokens_of(bench.ada.actor.user.id).await.unwrap();
    bench.server.test.app.tokens.delete(&bench.ada.actor, tokens[0].id).await.unwrap();
    let mut answer = String::new();
    sending.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204") && answer.contains("upload-offset: 102400"), "{answer}");
    assert_eq!(bench.ask(Ask::new("HEAD", &upload)).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn of_two_writers_one_wins() {
    let bench = Bench::new().await;
    let bytes = content(300 * KIB);
    let upload = bench.make(bytes.len(), &[("path", "a")]).await;
    let mut sending = bench.begin(&upload, 0, bytes.len(), &bytes[..100 * KIB]).await;
    bench.wait_until("it arrives", |bench| bench.arrived() == 100 * KIB as u64).await;
    let second = bench.patch(&upload, 0, &[0; KIB]).await;
    assert_eq!((second.status, &second.json()["code"]), (StatusCode::LOCKED, &"locked".into()));
    assert_eq!(second.header("tus-resumable"), "1.0.0");
    sending.write_all(&bytes[100 * KIB..]).await.unwrap();
    let mut answer = String::new();
    sending.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(std::fs::read(bench.home.join("a")).unwrap() == bytes);
}

#[tokio::test]
async fn a_full_disk_is_said_and_what_came_stays() {
    let bench = Bench::with(Some("2m")).await;
    let at_once = bench.ask(wish(3000 * KIB, &[("path", "huge")])).await;
    assert_eq!((at_once.status.as_u16(), &at_once.json()["code"]), (507, &"no_space".into()));
    let other = bench.make(1500 * KIB + 1, &[("path", "other")]).await;
    let bytes = content(1000 * KIB);
    let upload = bench.make(bytes.len(), &[("path", "a"), ("sha256", &sha256(&bytes))]).await;
    assert_eq!(bench.patch(&other, 0, &content(1500 * KIB)).await.status, StatusCode::NO_CONTENT);
    let full = bench.patch(&upload, 0, &bytes).await;
    assert_eq!((full.status.as_u16(), &full.json()["code"]), (507, &"no_space".into()));
    let at: usize = full.header("upload-offset").parse().unwrap();
    assert!(at > 0 && at < bytes.len(), "{at}");
    assert_eq!(bench.offset(&upload).await, at);
    assert_eq!(bench.ask(Ask::new("DELETE", &other)).await.status, StatusCode::NO_CONTENT);
    let rest = bench.patch(&upload, at, &bytes[at..]).await;
    assert_eq!((rest.status, rest.header("eirene-path")), (StatusCode::NO_CONTENT, "a"), "{}", rest.body);
}
