//! The portal and the job of these tests, and the script that stands in for Apptainer.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use eirene_core::SessionId;
use eirene_core::job_file::{AppSpec, JobFile};
use eirene_core::run::RunProgram;
use eirene_core::scratch::JobScratch;
use eirene_core::trace::TraceContext;
use eirene_tunnel::handshake::{self, Confirm, Credential, Greeting, Hello};
use eirene_tunnel::message::{self, FromAgent, FromPortal};
use eirene_tunnel::{Limits, Opener, StreamKind, TunnelStream};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) const WITHIN: Duration = Duration::from_mins(2);
pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// Stands in for Apptainer: answers HTTP on the socket of the directory bound to `/run/eirene`, as told by `BEHAVIOUR` beside it.
const ENGINE: &str = r#"#!/usr/bin/env python3
import os, signal, socket, subprocess, sys, threading, time
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
    local = [a[len("--bind="):-len(":/local:rw")] for a in sys.argv if a.endswith(":/local:rw")]
    os.environ["LOCAL"] = os.path.realpath(local[0]) if local else ""
    variables = open(next(a for a in sys.argv if a.startswith("--env-file="))[len("--env-file="):]).read()
    print("variables", [line for line in variables.split("\n") if "SCRATCH" in line], flush=True)
    command = sys.argv[sys.argv.index("--") + 1:]
    if not command:
        # Held ready on another node.
        open(os.environ["LOCAL"] + "/log", "w").write("log of another node")
        sys.stdin.buffer.raw.read(1)
        sys.exit(0)
    program = subprocess.Popen(command, cwd=next(a for a in sys.argv if a.startswith("--pwd="))[6:])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def warn():
        if sys.stdin.buffer.raw.read(1) == b"w":
            print("warned", flush=True)
            program.terminate()
    threading.Thread(target=warn, daemon=True).start()
    status = program.wait()
    sys.stdout.flush()
    os._exit(status)
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

/// Stands in for srun: runs the agent's words here, in the directory and under the name of the node that is meant.
const SRUN: &str = r#"#!/usr/bin/env python3
import os, sys
node = next(a for a in sys.argv if a.startswith("--nodelist="))[len("--nodelist="):]
words = sys.argv[next(i for i, a in enumerate(sys.argv) if a.endswith("eirene-agent")):]
home = os.path.dirname(os.path.abspath(__file__))
os.chdir(os.path.join(home, node))
os.environ.update(SLURMD_NODENAME=node, SLURM_JOB_ID="7", HOME=home)
os.execv(words[0], words)
"#;

pub(crate) struct Portal {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) listener: TcpListener,
    pub(crate) pin: String,
}

impl Portal {
    pub(crate) async fn open() -> Self {
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

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Waits for an agent and hears its hello.
    pub(crate) async fn hear(&self) -> (Hello, TlsStream<TcpStream>) {
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
    pub(crate) async fn refuse(&self, permanent: bool, first: impl FnOnce()) -> Credential {
        let (hello, mut stream) = self.hear().await;
        first();
        let refused = Greeting::Refused { code: "over".into(), text: "the session is over".into(), permanent };
        handshake::send(&mut stream, &refused).await.unwrap();
        hello.credential
    }

    /// Waits for an agent and answers its hello.
    pub(crate) async fn welcome(&self, tunnel_key: Option<&str>) -> (Hello, Opener) {
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

pub(crate) struct Control {
    read: BufReader<ReadHalf<TunnelStream>>,
    line: Vec<u8>,
    write: WriteHalf<TunnelStream>,
}

impl Control {
    /// Begins as the portal does: it says from where on it wants the log.
    pub(crate) async fn open(opener: &Opener) -> Self {
        let mut control = Self::open_silently(opener).await;
        control.tell(FromPortal::SendLog { offset: 0 }).await;
        control
    }

    pub(crate) async fn open_silently(opener: &Opener) -> Self {
        let (read, write) = tokio::io::split(opener.open(StreamKind::Control).await.unwrap());
        Self { read: BufReader::new(read), line: Vec::new(), write }
    }

    pub(crate) async fn hear(&mut self) -> FromAgent {
        tokio::time::timeout(WITHIN, message::read(&mut self.read, &mut self.line)).await.unwrap().unwrap().unwrap()
    }

    pub(crate) async fn wait_for(&mut self, wanted: impl Fn(&FromAgent) -> bool) -> FromAgent {
        tokio::time::timeout(WITHIN, async {
            loop {
                let said = self.hear().await;
                if wanted(&said) {
                    return said;
                }
            }
        })
        .await
        .unwrap()
    }

    /// Waits for the last word and notes it.
    pub(crate) async fn last_word(&mut self) -> FromAgent {
        let said = self.wait_for(|said| matches!(said, FromAgent::Exited { .. })).await;
        self.write.shutdown().await.unwrap();
        said
    }

    pub(crate) async fn tell(&mut self, order: FromPortal) {
        message::write(&mut self.write, &order).await.unwrap();
    }
}

pub(crate) struct Job {
    _directory: tempfile::TempDir,
    pub(crate) home: PathBuf,
    pub(crate) file: JobFile,
    pub(crate) session: SessionId,
    pub(crate) child: Child,
}

impl Job {
    pub(crate) fn start(portal: &Portal, behaviour: &str, pin: Option<&str>, ready_within_s: u32) -> Self {
        Self::start_with(portal, behaviour, pin, ready_within_s, None, HOUR, |_, _, _| ())
    }

    /// A run of this script, which lies in the home, in a job whose time limit is over after `ends_in`.
    pub(crate) fn start_run(portal: &Portal, script: &str, ends_in: Duration) -> Self {
        let run = RunProgram { file: "tool".into(), arguments: vec!["a b".into()], ranks: None, preflight: true };
        Self::start_with(portal, "run", None, 20, Some((run, script)), ends_in, |_, _, _| ())
    }

    /// The same with a scratch on a disk of its own, as `scratch` makes it of the home, with each node's disk in it, and the disk's path on every
    /// node; `nodes` is SLURM's list of the job's nodes.
    pub(crate) fn start_in_scratch(
        portal: &Portal,
        script: &str,
        ends_in: Duration,
        nodes: &str,
        scratch: impl FnOnce(&Path, &str) -> JobScratch,
    ) -> Self {
        let run = RunProgram { file: "tool".into(), arguments: Vec::new(), ranks: None, preflight: true };
        Self::start_with(portal, "run", None, 20, Some((run, script)), ends_in, |home, app, command| {
            // Each node's processes have a working directory of their own, so that one path means another disk on each.
            for node in ["c1", "c2"] {
                std::fs::create_dir_all(home.join(node).join("disk")).unwrap();
            }
            std::fs::create_dir(home.join("data")).unwrap();
            std::fs::write(home.join("data/a"), "alpha").unwrap();
            app.scratch = Some(scratch(home, "/proc/self/cwd/disk"));
            command.current_dir(home.join("c1")).env("SLURM_JOB_NODELIST", nodes);
        })
    }

    pub(crate) fn start_with(
        portal: &Portal,
        behaviour: &str,
        pin: Option<&str>,
        ready_within_s: u32,
        run: Option<(RunProgram, &str)>,
        ends_in: Duration,
        edit: impl FnOnce(&Path, &mut AppSpec, &mut Command),
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
        write("srun", SRUN, 0o755);
        write("BEHAVIOUR", behaviour, 0o644);
        if let Some((run, script)) = run.as_ref().filter(|(_, script)| !script.is_empty()) {
            write(&run.file, script, 0o755);
        }
        let session = SessionId::generate();
        let mut file = JobFile {
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
            trace: Some(TraceContext::of_session(session, true).to_string()),
        };
        let ends_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + ends_in;
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirene-agent"));
        command.env_clear();
        edit(&home, &mut file.app, &mut command);
        let job_file = write("job.json", &serde_json::to_string(&file).unwrap(), 0o600);
        let child = command
            .args(["run", "--job-file"])
            .arg(job_file)
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
    pub(crate) fn write_file(&self, mode: u32, edit: impl FnOnce(&mut JobFile)) {
        let mut file = self.file.clone();
        edit(&mut file);
        let fresh = self.home.join("job.json.new");
        std::fs::write(&fresh, serde_json::to_string(&file).unwrap()).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(fresh, self.home.join("job.json")).unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/eirene-{}/{}.0/inside/app.sock", nix::unistd::geteuid(), self.session))
    }

    /// What the agent's one child is doing, as proc(5) has it.
    pub(crate) fn state_of_child(&self) -> Option<char> {
        let agent = self.child.id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
        let stats =
            children.split_whitespace().filter_map(|child| std::fs::read_to_string(format!("/proc/{child}/stat")).ok());
        // Where GPUs are looked after, who does that is another one.
        let app = stats.into_iter().find(|stat| !stat.contains("(eirene-gpu)"))?;
        app.rsplit_once(") ")?.1.chars().next()
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }

    pub(crate) async fn exit(&mut self) -> i32 {
        let status = tokio::time::timeout(WITHIN, self.child.wait()).await.unwrap().unwrap();
        let left = PathBuf::from(format!("/tmp/eirene-{}/{}.0", nix::unistd::geteuid(), self.session));
        assert!(!left.exists(), "the runtime directory is gone");
        status.code().unwrap()
    }

    /// Waits until its log holds `text`.
    pub(crate) async fn logged(&self, text: &str) {
        let there = async {
            while !self.log().contains(text) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WITHIN, there).await.unwrap();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("job.log")).unwrap()
    }
}

pub(crate) async fn get(opener: &Opener) -> String {
    let mut stream = opener.open(StreamKind::App).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(WITHIN, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

pub(crate) fn is_ready(said: &FromAgent) -> bool {
    *said == FromAgent::Ready
}
