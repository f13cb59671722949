//! Uploads against real file processes: this test's own program, started again for each, so that it can be killed.

use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use eirene_core::UploadId;
use eirene_core::file_work::{OnConflict, Upload, UploadState};
use eirene_files_protocol::{Channel, ChannelError};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sha2::Digest as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::app::{App, Ports};
use crate::http::tus::CHUNK_TYPE;
use crate::services::passwords::Passwords;

const KIB: usize = 1024;
const UPLOADS: &str = "/api/v1/spaces/home/uploads";
/// The test that is a file process.
const SERVES: &str = "http::tests::uploads::a_standard_input_that_is_no_channel_is_not_served";

/// Started by itself it finds no channel. Started by the tests below it finds one, and serves it.
#[test]
fn a_standard_input_that_is_no_channel_is_not_served() {
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match Channel::from_descriptor(input) {
        Ok(channel) => {
            let settings = eirene_files::Settings { least_uid: 0, landlock: true };
            eirene_files::serve(channel, &settings).unwrap();
        }
        Err(error) => assert!(matches!(error, ChannelError::NotAChannel), "{error}"),
    }
}

/// What a space gets under it, before its file process is started.
const OF_ITS_OWN: &str =
    r#"mount --make-rprivate / && mount -t tmpfs -o "size=$2,mode=0777" none "$1" && shift 2 && exec "$@""#;

/// A server with ada, whose home is there and whose file processes are real.
struct Bench {
    server: Server,
    ada: Person,
    home: PathBuf,
    started: Arc<Mutex<Vec<u32>>>,
}

impl Bench {
    async fn new() -> Self {
        Self::with(None).await
    }

    /// `size`: her home is a file system of its own, so large, for as long as its file process runs.
    async fn with(size: Option<&'static str>) -> Self {
        let server = Server::start().await;
        let ada = server.person("ada", geteuid().as_raw(), Role::Researcher).await;
        let home = server.test.directory.path().join("home/ada");
        std::fs::create_dir_all(&home).unwrap();
        let started = Arc::new(Mutex::new(Vec::new()));
        let (children, space) = (Arc::clone(&started), home.clone());
        *server.test.launcher.files.lock().unwrap() = Some(Arc::new(move |_, channel| {
            let mut command = match size {
                Some(size) => on_its_own(&space, size),
                None => Command::new(std::env::current_exe().unwrap()),
            };
            command.args([SERVES, "--exact"]).stdin(Stdio::from(channel.into_descriptor()));
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // The other end of the channel is the child's alone.
            drop(command);
            children.lock().unwrap().push(child.id());
            child.wait().unwrap();
        }));
        Self { server, ada, home, started }
    }

    async fn ask(&self, ask: Ask) -> Answer {
        self.server.portal(speaks_only(ask).bearer(&self.ada)).await
    }

    /// Makes an upload; its address.
    async fn make(&self, length: usize, metadata: &[(&str, &str)]) -> String {
        let answer = self.ask(wish(length, metadata)).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.header("location").to_owned()
    }

    async fn patch(&self, upload: &str, offset: usize, bytes: &[u8]) -> Answer {
        self.ask(chunk(upload, offset).body(bytes)).await
    }

    /// Goes on where somebody went away: until that is known, they are still the one who writes.
    async fn go_on(&self, upload: &str, offset: usize, bytes: &[u8]) -> Answer {
        loop {
            let answer = self.patch(upload, offset, bytes).await;
            if answer.status != StatusCode::LOCKED {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn offset(&self, upload: &str) -> usize {
        let answer = self.ask(Ask::new("HEAD", upload)).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.headers);
        answer.header("upload-offset").parse().unwrap()
    }

    /// Begins to send more bytes than it does.
    async fn begin(&self, upload: &str, offset: usize, all: usize, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.server.address).await.unwrap();
        let head = format!(
            "PATCH {upload} HTTP/1.1\r\nhost: {PORTAL}\r\nauthorization: Bearer {}\r\ntus-resumable: 1.0.0\r\ncontent-type: {CHUNK_TYPE}\r\n\
             upload-offset: {offset}\r\ncontent-length: {all}\r\nconnection: close\r\n\r\n",
            self.ada.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.home).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// What is not whole yet.
    fn unfinished(&self) -> Option<PathBuf> {
        let is_data = |name: &String| name.strip_prefix(".eirene-upload-").is_some_and(|id| !id.contains('.'));
        self.names().into_iter().find(is_data).map(|name| self.home.join(name))
    }

    /// Bytes that lie in what is not whole yet.
    fn arrived(&self) -> u64 {
        self.unfinished().map_or(0, |path| std::fs::metadata(path).unwrap().len())
    }

    /// Has an upload of which nothing came look as if so many bytes had: a hole with these texts in it, and both slots of its sidecar say so.
    fn pretend(&self, bytes: u64, texts: &[(u64, &str)]) {
        const SLOT: usize = 4096;
        const CHECK: usize = 16;
        let data = self.unfinished().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&data).unwrap();
        file.set_len(bytes).unwrap();
        for (at, text) in texts {
            file.write_all_at(text.as_bytes(), *at).unwrap();
        }
        let sidecar = self.home.join(format!("{}.json", data.file_name().unwrap().to_str().unwrap()));
        let slots = std::fs::read(&sidecar).unwrap();
        let slots = slots.chunks(SLOT).map(|slot| {
            let known = std::str::from_utf8(&slot[CHECK..]).unwrap().trim_end();
            let mut known = known.replace("\"offset\":0,", &format!("\"offset\":{bytes},")).into_bytes();
            known.resize(SLOT - CHECK, b'\n');
            let sum = sha2::Sha256::digest(&known);
            [HEXLOWER.encode(&sum[..CHECK / 2]).as_bytes(), &known].concat()
        });
        std::fs::write(&sidecar, slots.collect::<Vec<_>>().concat()).unwrap();
    }

    async fn wait_until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(Duration::from_mins(1), async {
            while !is(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        assert!(waited.await.is_ok(), "{what}");
    }

    /// Looks once an hour for what is over.
    async fn clear_for(&self, hours: u32) {
        for _ in 0..hours {
            self.server.test.clock.advance_s(60 * 60);
            self.server.test.app.uploads.clear(Duration::from_mins(1)).await.unwrap();
        }
    }

    fn kill_file_process(&self) {
        let last = *self.started.lock().unwrap().last().unwrap();
        kill_process(Pid::from_raw(i32::try_from(last).unwrap()).unwrap(), Signal::KILL).unwrap();
    }

    /// Everything the portal had in memory is gone: another one over the same database.
    async fn restart(self) -> Self {
        let Self { server, ada, home, started } = self;
        server.test.app.file_processes.close();
        let test = server.test;
        let ports = Ports {
            db: test.app.db.clone(),
            clock: Arc::new(test.clock.clone()),
            scheduler: Arc::new(test.scheduler.clone()),
            launcher: Arc::new(test.launcher.clone()),
            storage: Arc::new(test.storage.clone()),
            groups: Arc::new(test.groups.clone()),
            history: None,
            traces: crate::traces::Traces::default(),
        };
        let app = App::build(Arc::clone(&test.app.config), ports, Passwords::for_tests().unwrap());
        Self { server: Server::serve(TestApp { app, ..test }).await, ada, home, started }
    }
}

/// The program in a mount namespace where the home is a file system of its own.
fn on_its_own(home: &std::path::Path, size: &str) -> Command {
    let (uid, gid) = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut command = Command::new("unshare");
    let root: &[&str] = if uid == 0 { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    command.args(root).args(["--", "sh", "-c", OF_ITS_OWN, "sh"]).arg(home).arg(size);
    if uid != 0 {
        command.args(["unshare", "--user", &format!("--map-user={uid}"), &format!("--map-group={gid}")]);
    }
    command.arg(std::env::current_exe().unwrap());
    command
}

fn speaks_only(ask: Ask) -> Ask {
    ask.with("tus-resumable", "1.0.0")
}

/// A request that any verb of the protocol takes.
pub(super) fn speaks(ask: Ask) -> Ask {
    let ask = speaks_only(ask).with("content-type", CHUNK_TYPE).with("upload-offset", "0");
    ask.with("upload-length", "1").with("upload-metadata", "path dXBsb2Fk")
}

/// An upload of this person's that was finished.
pub(super) async fn finished(server: &Server, owner: &Person) -> UploadId {
    let home = server.test.app.spaces.list(&owner.actor).await.unwrap()[0].space.id;
    let now = server.test.clock.now();
    let upload = Upload {
        id: UploadId::generate(),
        user: owner.actor.user.id,
        space: home,
        directory: b"data".to_vec(),
        file_name: b"a".to_vec(),
        length: Some(7),
        checksum: None,
        on_conflict: OnConflict::KeepBoth,
        state: UploadState::Finished,
        final_name: Some("a (2)\r\nx: y".into()),
        created_at: now,
        last_seen_at: now,
        expires_at: now + Duration::from_hours(1),
    };
    server.test.app.db.insert_upload(&upload).await.unwrap();
    upload.id
}

fn wish(length: usize, metadata: &[(&str, &str)]) -> Ask {
    let metadata = metadata.iter().map(|(key, value)| format!("{key} {}", BASE64.encode(value.as_bytes())));
    let metadata: Vec<String> = metadata.collect();
    Ask::new("POST", UPLOADS).with("upload-length", &length.to_string()).with("upload-metadata", &metadata.join(","))
}

fn chunk(upload: &str, offset: usize) -> Ask {
    Ask::new("PATCH", upload).with("content-type", CHUNK_TYPE).with("upload-offset", &offset.to_string())
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&sha2::Sha256::digest(bytes))
}

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
async fn what_lies_about_its_offset_its_sum_or_its_size_changes_nothing() {
    let bench = Bench::new().await;
    let bytes = content(64 * KIB);
    let upload = bench.make(bytes.len(), &[("path", "a")]).await;
    let half = bytes.len() / 2;
    assert_eq!(bench.patch(&upload, 0, &bytes[..half]).await.status, StatusCode::NO_CONTENT);
    let sum = |algorithm: &str, bytes: &[u8]| {
        let sum = match algorithm {
            "sha1" => return format!("sha1 {}", BASE64.encode(&[0; 20])),
            _ => sha2::Sha256::digest(bytes),
        };
        format!("{algorithm} {}", BASE64.encode(&sum))
    };
    let rest = &bytes[half..];
    let lies = [
        (chunk(&upload, 0).body(&bytes[..half]), 409, "offset_differs"),
        (chunk(&upload, half + 1).body(&rest[1..]), 409, "offset_differs"),
        (chunk(&upload, half).body(&bytes[..]), 413, "too_large"),
        (chunk(&upload, half).with("upload-checksum", &sum("sha256", b"")).body(rest), 460, "checksum_differs"),
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
    let good = bench.ask(chunk(&upload, half).with("upload-checksum", &sum("sha256", rest)).body(rest)).await;
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
    assert_eq!((offered.header("tus-resumable"), offered.header("tus-checksum-algorithm")), ("1.0.0", "sha256,sha1"));
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

#[tokio::test]
async fn what_nobody_went_on_with_is_removed_once_that_is_certain() {
    let bench = Bench::new().await;
    let (uploads, db) = (bench.server.test.app.uploads.clone(), bench.server.test.app.db.clone());
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    let (id, long) = (upload.rsplit('/').next().unwrap().parse().unwrap(), Duration::from_mins(1));
    bench.clear_for(30).await;
    assert_eq!(bench.names().len(), 2, "it is not over");
    bench.server.test.clock.advance_s(8 * 24 * 60 * 60);
    let gone = bench.ask(Ask::new("HEAD", &upload)).await;
    assert_eq!(gone.status, StatusCode::GONE, "it is over, and still there");
    uploads.clear(long).await.unwrap();
    bench.clear_for(23).await;
    assert_eq!(bench.names().len(), 2, "a clock that jumped may stay wrong until somebody sees to it");
    bench.server.test.clock.advance_s(-2 * 60 * 60);
    uploads.clear(long).await.unwrap();
    bench.clear_for(23).await;
    assert_eq!(bench.names().len(), 2, "nor is one right that went back");
    // Nobody answers: nothing is known.
    bench.server.test.app.file_processes.close();
    let files = bench.server.test.launcher.files.lock().unwrap().take();
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_some() && bench.names().len() == 2);
    *bench.server.test.launcher.files.lock().unwrap() = files;
    let bench = bench.restart().await;
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_none(), "another portal knows what was counted");
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[tokio::test]
async fn restarts_cost_uploads_that_are_over_the_time_in_between_and_no_more() {
    let bench = Bench::new().await;
    let db = bench.server.test.app.db.clone();
    let upload = bench.make(10, &[("path", "a")]).await;
    assert_eq!(bench.patch(&upload, 0, b"12345").await.status, StatusCode::NO_CONTENT);
    let id = upload.rsplit('/').next().unwrap().parse().unwrap();
    bench.clear_for(30).await;
    // A clock that jumped while no portal was there.
    bench.server.test.clock.advance_s(8 * 24 * 60 * 60);
    let bench = bench.restart().await;
    bench.clear_for(20).await;
    assert!(db.upload(id).await.unwrap().is_some(), "19 hours are between the looks");
    let bench = bench.restart().await;
    bench.clear_for(5).await;
    assert!(db.upload(id).await.unwrap().is_some(), "23 are counted");
    bench.clear_for(1).await;
    assert!(db.upload(id).await.unwrap().is_none());
    assert_eq!(bench.names(), Vec::<String>::new());
}
