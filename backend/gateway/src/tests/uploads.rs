//! Uploads against real file processes: this test's own program, started again for each, so that it can be killed. Here is what the tests share.

mod clearing;
mod going_on;
mod protocol;

use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use eirene_api::tus::CHUNK_TYPE;
use eirene_core::UploadId;
use eirene_core::file_work::{OnConflict, Upload, UploadState};
use eirene_files_protocol::{Channel, ChannelError};
use eirene_services::app::{App, Ports};
use eirene_services::passwords::Passwords;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sha2::Digest as _;
use tokio::io::AsyncWriteExt as _;

use super::*;

const KIB: usize = 1024;
const UPLOADS: &str = "/api/v1/spaces/home/uploads";
/// The test that is a file process.
const SERVES: &str = "tests::uploads::a_standard_input_that_is_no_channel_is_not_served";

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
            traces: eirene_services::traces::Traces::default(),
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
