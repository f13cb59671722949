//! The real agent binary against a portal in this process and a container engine that is a small script: start, ready, streams,
//! a portal that goes away, every way to end.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use eirene_core::SessionId;
use eirene_core::job_file::{AppSpec, JobFile};
use eirene_core::run::RunProgram;
use eirene_tunnel::handshake::{self, Confirm, Credential, Greeting, Hello};
use eirene_tunnel::message::{self, FromAgent, FromPortal, StopCause};
use eirene_tunnel::{Limits, Opener, StreamKind, TunnelStream};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const WITHIN: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_hours(1);

/// A run that saves when it is warned, and then ends with status 9.
const SAVES: &str =
    "#!/bin/sh\necho \"run $1 in $PWD\"\ntrap 'echo saving; exit 9' TERM\nwhile :; do sleep 0.05; done\n";

/// Stands in for Apptainer: answers HTTP on the socket of the directory bound to `/run/eirene`, as told by `BEHAVIOUR` beside it.
const ENGINE: &str = r#"#!/usr/bin/env python3
import os, signal, socket, subprocess, sys, time
directory = next(a for a in sys.argv if a.endswith(":/run/eirene:rw"))[len("--bind="):-len(":/run/eirene:rw")]
behaviour = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "BEHAVIOUR")).read().strip()
print("engine started", flush=True)
if behaviour == "fail":
    sys.exit(7)
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if behaviour == "orphan":
    pid = subprocess.Popen(["sh", "-c", "setsid sleep 1000 & echo $!"], stdout=subprocess.PIPE).stdout.readline().decode().strip()
    print("orphan", pid, flush=True)
if behaviour == "silent":
    time.sleep(1000)
if behaviour == "run":
    with socket.socket(socket.AF_UNIX) as guard:
        guard.connect(os.path.join(directory, "guard.sock"))
    program = subprocess.Popen(sys.argv[sys.argv.index("--") + 1:], cwd=next(a for a in sys.argv if a.startswith("--pwd="))[6:])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.stdin.buffer.raw.read(1) == b"w":
        print("warned", flush=True)
        program.terminate()
    sys.exit(program.wait())
server = socket.socket(socket.AF_UNIX)
server.bind(os.path.join(directory, "app.sock"))
server.listen(50)
while True:
    peer, _ = server.accept()
    asked = peer.recv(65536)
    if asked.startswith(b"GET /quit"):
        sys.exit(0)
    peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
    peer.close()
"#;

struct Portal {
    acceptor: TlsAcceptor,
    listener: TcpListener,
    pin: String,
}

impl Portal {
    async fn open() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["portal".to_owned()]).unwrap();
        let der = made.cert.der().clone();
        let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let pin = HEXLOWER.encode(&Sha256::digest(der.as_ref()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![der], key)
            .unwrap();
        config.alpn_protocols = vec![eirene_tunnel::ALPN.to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { acceptor: TlsAcceptor::from(Arc::new(config)), listener, pin }
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Waits for an agent and hears its hello.
    async fn hear(&self) -> (Hello, TlsStream<TcpStream>) {
        let hearing = async {
            let mut stream = loop {
                let (stream, _) = self.listener.accept().await.unwrap();
                // A broken attempt is the agent's to repeat.
                if let Ok(stream) = self.acceptor.accept(stream).await {
                    break stream;
                }
            };
            let hello: Hello = handshake::receive(&mut stream).await.unwrap();
            (hello, stream)
        };
        tokio::time::timeout(WITHIN, hearing).await.unwrap()
    }

    /// Waits for an agent and refuses it, after `first` was done; the answer is what the agent showed.
    async fn refuse(&self, permanent: bool, first: impl FnOnce()) -> Credential {
        let (hello, mut stream) = self.hear().await;
        first();
        let refused = Greeting::Refused { code: "over".into(), text: "the session is over".into(), permanent };
        handshake::send(&mut stream, &refused).await.unwrap();
        hello.credential
    }

    /// Waits for an agent and answers its hello.
    async fn welcome(&self, tunnel_key: Option<&str>) -> (Hello, Opener) {
        let (hello, mut stream) = self.hear().await;
        tokio::time::timeout(WITHIN, async {
            let greeting = Greeting::Welcome { tunnel_key: tunnel_key.map(ToOwned::to_owned), heartbeat_s: 1 };
            handshake::send(&mut stream, &greeting).await.unwrap();
            assert!(handshake::receive::<Confirm>(&mut stream).await.unwrap().confirmed);
            let (opener, driver) = Opener::start(stream, Limits::default()).await.unwrap();
            tokio::spawn(driver);
            (hello, opener)
        })
        .await
        .unwrap()
    }
}

struct Control {
    read: BufReader<ReadHalf<TunnelStream>>,
    line: Vec<u8>,
    write: WriteHalf<TunnelStream>,
}

impl Control {
    async fn open(opener: &Opener) -> Self {
        let (read, write) = tokio::io::split(opener.open(StreamKind::Control).await.unwrap());
        Self { read: BufReader::new(read), line: Vec::new(), write }
    }

    async fn wait_for(&mut self, wanted: impl Fn(&FromAgent) -> bool) -> FromAgent {
        tokio::time::timeout(WITHIN, async {
            loop {
                let said = message::read(&mut self.read, &mut self.line).await.unwrap().unwrap();
                if wanted(&said) {
                    return said;
                }
            }
        })
        .await
        .unwrap()
    }

    /// Waits for the last word and notes it.
    async fn last_word(&mut self) -> FromAgent {
        let said = self.wait_for(|said| matches!(said, FromAgent::Exited { .. })).await;
        self.write.shutdown().await.unwrap();
        said
    }

    async fn tell(&mut self, order: FromPortal) {
        message::write(&mut self.write, &order).await.unwrap();
    }
}

struct Job {
    _directory: tempfile::TempDir,
    home: PathBuf,
    file: JobFile,
    session: SessionId,
    child: Child,
}

impl Job {
    fn start(portal: &Portal, behaviour: &str, pin: Option<&str>, ready_within_s: u32) -> Self {
        Self::start_with(portal, behaviour, pin, ready_within_s, None, HOUR)
    }

    /// A run of this script, which lies in the home, in a job whose time limit is over after `ends_in`.
    fn start_run(portal: &Portal, script: &str, ends_in: Duration) -> Self {
        let run = RunProgram { file: "tool".into(), arguments: vec!["a b".into()], ranks: None, preflight: true };
        Self::start_with(portal, "run", None, 20, Some((run, script)), ends_in)
    }

    fn start_with(
        portal: &Portal,
        behaviour: &str,
        pin: Option<&str>,
        ready_within_s: u32,
        run: Option<(RunProgram, &str)>,
        ends_in: Duration,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().to_owned();
        let write = |name: &str, text: &str, mode: u32| {
            let path = home.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let image = write("image.sif", "", 0o644);
        write("apptainer", ENGINE, 0o755);
        write("BEHAVIOUR", behaviour, 0o644);
        if let Some((run, script)) = run.as_ref().filter(|(_, script)| !script.is_empty()) {
            write(&run.file, script, 0o755);
        }
        let session = SessionId::generate();
        let file = JobFile {
            session,
            restart_count: 0,
            secret: "the-secret".into(),
            portal: portal.address(),
            portal_pin: pin.unwrap_or(&portal.pin).to_owned(),
            app: AppSpec {
                app: "jupyterlab".parse().unwrap(),
                image_path: image.to_str().unwrap().to_owned(),
                gpus: false,
                binds: Vec::new(),
                origin: "http://x.apps.eirene.localhost".into(),
                ready_within_s,
                run: run.map(|(run, _)| run),
                scratch: None,
            },
        };
        let ends_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + ends_in;
        let job_file = write("job.json", &serde_json::to_string(&file).unwrap(), 0o600);
        let child = Command::new(env!("CARGO_BIN_EXE_eirene-agent"))
            .args(["run", "--job-file"])
            .arg(job_file)
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:{}", home.display(), std::env::var("PATH").unwrap()))
            .env("HOME", &home)
            .env("SLURM_JOB_ID", "7")
            .env("SLURM_JOB_END_TIME", ends_at.as_secs().to_string())
            .env("SLURMD_NODENAME", "c1")
            .stdout(std::fs::File::create(home.join("job.log")).unwrap())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { _directory: directory, home, file, session, child }
    }

    /// Replaces the job file, as the launcher does.
    fn write_file(&self, mode: u32, edit: impl FnOnce(&mut JobFile)) {
        let mut file = self.file.clone();
        edit(&mut file);
        let fresh = self.home.join("job.json.new");
        std::fs::write(&fresh, serde_json::to_string(&file).unwrap()).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(fresh, self.home.join("job.json")).unwrap();
    }

    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/eirene-{}/{}.0/inside/app.sock", nix::unistd::geteuid(), self.session))
    }

    /// What the agent's one child is doing, as proc(5) has it.
    fn state_of_child(&self) -> Option<char> {
        let agent = self.child.id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", children.trim())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    async fn exit(&mut self) -> i32 {
        let status = tokio::time::timeout(WITHIN, self.child.wait()).await.unwrap().unwrap();
        let left = PathBuf::from(format!("/tmp/eirene-{}/{}.0", nix::unistd::geteuid(), self.session));
        assert!(!left.exists(), "the runtime directory is gone");
        status.code().unwrap()
    }

    /// Waits until its log holds `text`.
    async fn logged(&self, text: &str) {
        let there = async {
            while !self.log().contains(text) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WITHIN, there).await.unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("job.log")).unwrap()
    }
}

async fn get(opener: &Opener) -> String {
    let mut stream = opener.open(StreamKind::App).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(WITHIN, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

fn is_ready(said: &FromAgent) -> bool {
    *said == FromAgent::Ready
}

#[tokio::test]
async fn it_starts_says_ready_forwards_and_stops_when_asked() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (hello, opener) = portal.welcome(Some("key")).await;
    assert_eq!((hello.session, hello.slurm_job_id, hello.node.as_str()), (job.session, 7, "c1"));
    assert_eq!(hello.credential, Credential::JobSecret("the-secret".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    control.tell(FromPortal::SendLog { offset: 0 }).await;
    assert!(get(&opener).await.ends_with("hello"));
    let log = control.wait_for(|said| matches!(said, FromAgent::Log { .. })).await;
    assert_eq!(log, FromAgent::Log { offset: 0, text: "engine started\n".into() });
    control.wait_for(|said| *said == FromAgent::Heartbeat).await;
    control.tell(FromPortal::Stop { grace_s: 5 }).await;
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Request }).await;
    assert!(matches!(control.last_word().await, FromAgent::Exited { code: None, .. }));
    assert_eq!(job.exit().await, 0);
    assert!(!job.log().contains("the-secret"));
}

#[tokio::test]
async fn a_run_is_ready_once_it_has_begun_is_warned_and_ends_with_its_own_status() {
    let portal = Portal::open().await;
    let mut job = Job::start_run(&portal, SAVES, Duration::from_mins(2));
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.logged("run a b in ").await;
    job.signal(nix::sys::signal::Signal::SIGUSR1);
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Walltime }).await;
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(9), code: None, text: None });
    assert_eq!(job.exit().await, 9);
    let log = job.log();
    assert!(log.contains(&format!("run a b in {}", job.home.display())) && log.contains("saving"), "{log}");
    assert!(log.contains("warned") && log.contains("the program ended with status 9"), "{log}");
}

#[tokio::test]
async fn a_run_whose_file_is_not_there_says_so() {
    let portal = Portal::open().await;
    let run = RunProgram { file: "gone.py".into(), arguments: Vec::new(), ranks: None, preflight: true };
    let mut job = Job::start_with(&portal, "run", None, 20, Some((run, "")), HOUR);
    let (_, opener) = portal.welcome(Some("key")).await;
    let said = Control::open(&opener).await.last_word().await;
    let FromAgent::Exited { code: Some(code), text: Some(text), .. } = said else { panic!("{said:?}") };
    assert_eq!((code.as_str(), text.as_str()), ("not_started", "there is no file `gone.py` in the home directory"));
    assert_eq!(job.exit().await, 3);
}

#[tokio::test]
async fn a_run_that_makes_room_for_another_job_leaves_its_own_to_the_scheduler() {
    let portal = Portal::open().await;
    let mut job = Job::start_run(&portal, SAVES, HOUR);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.logged("run a b in ").await;
    job.signal(nix::sys::signal::Signal::SIGUSR1);
    job.logged("waits for the scheduler to take the nodes").await;
    // Had it said that it is over, the portal would have ended the job.
    let said = |said: &FromAgent| matches!(said, FromAgent::Stopping { .. } | FromAgent::Exited { .. });
    job.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(control.wait_for(said).await, FromAgent::Stopping { why: StopCause::Signal });
    assert_eq!(control.last_word().await, FromAgent::Exited { status: Some(9), code: None, text: None });
    job.exit().await;
}

#[tokio::test]
async fn a_portal_that_restarts_is_dialled_again_with_the_tunnel_key() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    drop((control, opener));
    let (hello, opener) = portal.welcome(None).await;
    assert_eq!(hello.credential, Credential::TunnelKey("key".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    assert!(get(&opener).await.ends_with("hello"));
    job.signal(nix::sys::signal::Signal::SIGTERM);
    control.wait_for(|said| *said == FromAgent::Stopping { why: StopCause::Signal }).await;
    control.last_word().await;
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn an_app_that_fails_says_its_status() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "fail", None, 20);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    let said = control.last_word().await;
    assert_eq!(said, FromAgent::Exited { status: Some(7), code: None, text: None });
    assert_eq!(job.exit().await, 7);
}

#[tokio::test]
async fn an_app_that_never_answers_is_ended_with_a_reason() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "silent", None, 1);
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    let said = control.last_word().await;
    assert!(matches!(&said, FromAgent::Exited { code: Some(code), .. } if code == "never_ready"), "{said:?}");
    assert_eq!(job.exit().await, 3);
}

#[tokio::test]
async fn what_does_not_end_is_killed_and_orphans_are_swept() {
    for behaviour in ["stubborn", "orphan"] {
        let portal = Portal::open().await;
        let mut job = Job::start(&portal, behaviour, None, 20);
        let (_, opener) = portal.welcome(Some("key")).await;
        let mut control = Control::open(&opener).await;
        control.wait_for(is_ready).await;
        control.tell(FromPortal::Stop { grace_s: 1 }).await;
        control.last_word().await;
        assert_eq!(job.exit().await, 0, "{behaviour}");
        if let Some(orphan) = job.log().lines().find_map(|line| line.strip_prefix("orphan ").map(ToOwned::to_owned)) {
            assert!(!PathBuf::from(format!("/proc/{orphan}")).exists(), "the orphan {orphan} lives");
        } else {
            assert_eq!(behaviour, "stubborn");
        }
    }
}

#[tokio::test]
async fn a_portal_with_another_key_learns_nothing() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", Some(&"00".repeat(32)), 20);
    let (stream, _) = tokio::time::timeout(WITHIN, portal.listener.accept()).await.unwrap().unwrap();
    let accepted = portal.acceptor.accept(stream).await;
    if let Ok(mut stream) = accepted {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes).await;
        assert!(read.is_err() || bytes.is_empty(), "{} bytes", bytes.len());
    }
    job.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn a_refusal_for_good_ends_the_job() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    portal.refuse(true, || {}).await;
    assert_eq!(job.exit().await, 4);
    assert!(job.log().contains("the session is over"));
}

#[tokio::test]
async fn key_and_secret_are_shown_in_turn_and_a_new_secret_is_taken() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "serve", None, 20);
    let (secret, key) = (Credential::JobSecret("the-secret".into()), Credential::TunnelKey("key".into()));
    let fresh = Credential::JobSecret("fresh".into());
    assert_eq!(portal.refuse(false, || {}).await, secret);
    drop(portal.welcome(Some("key")).await);
    // Files that are not this agent's, or that others could have written, change nothing.
    let other_session =
        || job.write_file(0o600, |file| (file.secret, file.session) = ("x".into(), SessionId::generate()));
    assert_eq!(portal.refuse(false, other_session).await, key);
    let other_run = || job.write_file(0o600, |file| (file.secret, file.restart_count) = ("x".into(), 1));
    assert_eq!(portal.refuse(false, other_run).await, secret);
    assert_eq!(portal.refuse(false, || job.write_file(0o644, |file| file.secret = "x".into())).await, key);
    assert_eq!(portal.refuse(false, || job.write_file(0o600, |file| file.secret = "fresh".into())).await, secret);
    let remove = || std::fs::remove_file(job.home.join("job.json")).unwrap();
    assert_eq!(portal.refuse(false, remove).await, fresh);
    assert_eq!(portal.refuse(false, || {}).await, key);
    let (hello, opener) = portal.welcome(Some("another key")).await;
    assert_eq!(hello.credential, fresh);
    drop(opener);
    let (hello, opener) = portal.welcome(None).await;
    assert_eq!(hello.credential, Credential::TunnelKey("another key".into()));
    let mut control = Control::open(&opener).await;
    control.wait_for(is_ready).await;
    job.signal(nix::sys::signal::Signal::SIGTERM);
    control.last_word().await;
    assert_eq!(job.exit().await, 0);
}

#[tokio::test]
async fn a_last_word_that_was_not_noted_is_said_again() {
    let portal = Portal::open().await;
    let mut job = Job::start(&portal, "fail", None, 20);
    let last = |said: &FromAgent| *said == FromAgent::Exited { status: Some(7), code: None, text: None };
    let (_, opener) = portal.welcome(Some("key")).await;
    let mut control = Control::open(&opener).await;
    control.wait_for(last).await;
    // The portal could not write it down.
    drop((control, opener));
    let (_, opener) = portal.welcome(None).await;
    assert!(last(&Control::open(&opener).await.last_word().await));
    assert_eq!(job.exit().await, 7);
}

#[tokio::test]
async fn a_signal_counts_before_the_end_that_came_with_it() {
    use nix::sys::signal::Signal;
    // Which of the two is seen first must not be left to chance, so one time says little.
    for _ in 0..6 {
        let portal = Portal::open().await;
        let mut job = Job::start(&portal, "serve", None, 20);
        let (_, opener) = portal.welcome(Some("key")).await;
        let mut control = Control::open(&opener).await;
        control.wait_for(is_ready).await;
        job.signal(Signal::SIGSTOP);
        let mut app = UnixStream::connect(job.socket()).await.unwrap();
        app.write_all(b"GET /quit HTTP/1.0\r\n\r\n").await.unwrap();
        tokio::time::timeout(WITHIN, async {
            while job.state_of_child() != Some('Z') {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        job.signal(Signal::SIGTERM);
        job.signal(Signal::SIGCONT);
        let said = |said: &FromAgent| matches!(said, FromAgent::Stopping { .. } | FromAgent::Exited { .. });
        assert_eq!(control.wait_for(said).await, FromAgent::Stopping { why: StopCause::Signal });
        control.last_word().await;
        assert_eq!(job.exit().await, 0);
    }
}
