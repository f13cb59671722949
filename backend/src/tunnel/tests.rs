//! Agents at the door, over real TLS: those that belong there, and those that do not.

mod scratch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use eirene_core::secret::Secret;
use eirene_core::{Clock as _, JobKind, Role, Session, SessionId, SessionState};
use eirene_tunnel::handshake::{self, Credential, HandshakeError, Hello};
use eirene_tunnel::message::{self, FromAgent, FromPortal, NodeReport, NodeState, StepReport};
use eirene_tunnel::{Acceptor, Limits, StreamKind, TunnelStream};
use futures_util::StreamExt as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use super::{NoTunnel, TunnelIdentity, listen};
use crate::services::actor::Actor;
use crate::services::events::EventKind;
use crate::testing::TestApp;

/// A portal that awaits agents, and one session whose agent may come.
struct Door {
    test: TestApp,
    ada: Actor,
    address: SocketAddr,
    pin: String,
    session: Session,
    secret: Secret,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.test.app.shutdown.cancel();
    }
}

/// Compares the certificate with the pin, as agents do.
#[derive(Debug)]
struct Pinned(String, WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let same = HEXLOWER.encode(&Sha256::digest(certificate.as_ref())) == self.0;
        if same { Ok(ServerCertVerified::assertion()) } else { Err(rustls::Error::General("another key".into())) }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.1)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.1.supported_schemes()
    }
}

impl Door {
    async fn open() -> Self {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
        Self::before(test, ada, session).await
    }

    /// With a run in the session's place.
    async fn open_for_run() -> Self {
        let test = TestApp::new().await;
        let ada = test.ada().await;
        let (run, _) = test.app.runs.start(&ada, TestApp::run_wish(), None).await.unwrap();
        Self::before(test, ada, run).await
    }

    async fn before(test: TestApp, ada: Actor, session: Session) -> Self {
        let secret = Secret::generate();
        test.app.db.set_job_secret(session.id, 0, &secret.hash()).await.unwrap();
        let identity = TunnelIdentity::load_or_make(test.directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        listen(&test.app, listener, &identity, &TaskTracker::new()).unwrap();
        Self { ada, address, pin: identity.pin().to_owned(), session, secret, test }
    }

    async fn dial(&self, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned(self.pin.clone(), algorithms)))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("eirene-tunnel").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    fn hello(&self) -> Hello {
        Hello {
            version: eirene_tunnel::VERSION,
            session: self.session.id,
            credential: Credential::JobSecret(self.secret.expose().to_owned()),
            slurm_job_id: 7,
            restart_count: 0,
            node: "c1".into(),
            uid: 2001,
            agent_version: "test".into(),
        }
    }

    /// Says hello; the key that was given, or the code of the refusal and whether it is permanent.
    async fn introduce(&self, hello: &Hello) -> Result<(TlsStream<TcpStream>, Option<String>), (String, bool)> {
        let mut io = self.dial(eirene_tunnel::ALPN).await.unwrap();
        match handshake::introduce(&mut io, hello).await {
            Ok((key, _)) => Ok((io, key)),
            Err(HandshakeError::Refused { code, permanent, .. }) => Err((code, permanent)),
            Err(error) => panic!("{error}"),
        }
    }

    async fn refusal(&self, change: impl FnOnce(&mut Hello)) -> (String, bool) {
        let mut hello = self.hello();
        change(&mut hello);
        self.introduce(&hello).await.map(|_| ()).expect_err("it should have been refused")
    }

    /// An agent that is let in and answers; `Agent::control` is its side of the control stream.
    async fn agent(&self) -> (Agent, String) {
        let (mut io, key) = self.introduce(&self.hello()).await.unwrap();
        handshake::confirm(&mut io).await.unwrap();
        (Agent::start(io).await, key.unwrap())
    }

    async fn row(&self) -> Session {
        self.test.row(self.session.id).await
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    async fn until_state(&self, state: SessionState) {
        self.until(state.as_str(), async || self.row().await.state == state).await;
    }
}

struct Agent {
    control: BufReader<TunnelStream>,
    apps: tokio::sync::mpsc::UnboundedReceiver<TunnelStream>,
    moving: tokio::task::JoinHandle<()>,
}

impl Agent {
    async fn start(io: TlsStream<TcpStream>) -> Self {
        let mut acceptor = Acceptor::start(io, Limits::default()).await.unwrap();
        let (StreamKind::Control, control) = acceptor.accept().await.unwrap().unwrap() else {
            panic!("the control stream comes first")
        };
        let (sender, apps) = tokio::sync::mpsc::unbounded_channel();
        let moving = tokio::spawn(async move {
            while let Ok(Some((_, stream))) = acceptor.accept().await {
                let _ = sender.send(stream);
            }
        });
        Self { control: BufReader::new(control), apps, moving }
    }

    async fn say(&mut self, message: &FromAgent) {
        message::write(&mut self.control, message).await.unwrap();
    }

    async fn told(&mut self) -> Option<FromPortal> {
        message::read(&mut self.control, &mut Vec::new()).await.unwrap()
    }
}

#[tokio::test]
async fn an_agent_comes_in_says_ready_and_its_app_is_reached() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    assert_eq!(agent.told().await, Some(FromPortal::SendLog { offset: 0 }));
    door.until_state(SessionState::Starting).await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    let mut stream = door.test.app.tunnels.open_app(door.session.id).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut app = agent.apps.recv().await.unwrap();
    let mut bytes = [0; 4];
    app.read_exact(&mut bytes).await.unwrap();
    app.write_all(&bytes).await.unwrap();
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"ping");
    let nobody = door.test.app.tunnels.open_app(SessionId::generate()).await;
    assert!(matches!(nobody, Err(NoTunnel)));
}

#[tokio::test]
async fn a_secret_may_be_exchanged_again_until_the_agent_has_confirmed() {
    let door = Door::open().await;
    let (lost, first) = door.introduce(&door.hello()).await.unwrap();
    drop(lost);
    let (mut io, second) = door.introduce(&door.hello()).await.unwrap();
    assert_ne!(first, second);
    handshake::confirm(&mut io).await.unwrap();
    let _agent = Agent::start(io).await;
    assert_eq!(door.refusal(|_| {}).await, ("unknown".into(), false), "the secret is void");
    let stale = first.unwrap();
    assert_eq!(door.refusal(|hello| hello.credential = Credential::TunnelKey(stale)).await.0, "unknown");
}

#[tokio::test]
async fn a_tunnel_key_opens_the_door_again_and_the_newest_connection_counts() {
    let door = Door::open().await;
    let (old, key) = door.agent().await;
    let again = Hello { credential: Credential::TunnelKey(key), ..door.hello() };
    let (mut io, given) = door.introduce(&again).await.unwrap();
    assert_eq!(given, None);
    handshake::confirm(&mut io).await.unwrap();
    let mut new = Agent::start(io).await;
    tokio::time::timeout(Duration::from_secs(20), old.moving).await.expect("the old one is closed").unwrap();
    let _stream = door.test.app.tunnels.open_app(door.session.id).await.unwrap();
    assert!(new.apps.recv().await.is_some());
}

#[tokio::test]
async fn a_key_whose_confirmation_was_lost_still_opens() {
    let door = Door::open().await;
    let (io, key) = door.introduce(&door.hello()).await.unwrap();
    drop(io);
    let again = Hello { credential: Credential::TunnelKey(key.unwrap()), ..door.hello() };
    let (mut io, _) = door.introduce(&again).await.unwrap();
    handshake::confirm(&mut io).await.unwrap();
    let _agent = Agent::start(io).await;
    door.until("connected", async || door.test.app.tunnels.is_live(door.session.id)).await;
}

#[tokio::test]
async fn who_does_not_belong_there_stays_out() {
    let door = Door::open().await;
    let refused = |code: &str, permanent| (code.to_owned(), permanent);
    let other = Secret::generate().expose().to_owned();
    assert_eq!(door.refusal(|h| h.session = SessionId::generate()).await, refused("unknown", false));
    assert_eq!(door.refusal(|h| h.credential = Credential::JobSecret(other.clone())).await, refused("unknown", false));
    assert_eq!(door.refusal(|h| h.credential = Credential::TunnelKey(other.clone())).await, refused("unknown", false));
    let as_key = door.secret.expose().to_owned();
    assert_eq!(door.refusal(|h| h.credential = Credential::TunnelKey(as_key)).await, refused("unknown", false));
    assert_eq!(door.refusal(|h| h.uid = 2002).await, refused("other_user", true));
    assert_eq!(door.refusal(|h| h.version = 99).await, refused("wrong_version", false));
    assert_eq!(door.refusal(|h| h.restart_count = 1).await, refused("new_restart", false));
    let row = door.row().await;
    assert_eq!((row.state, row.version), (SessionState::Queued, 1), "nothing was changed by any of them");
    assert!(!door.test.app.tunnels.is_live(door.session.id));
}

/// How many were refused for this reason, by this counter: from the first time it is asked on, and others are refused in this process, too.
fn counted(what: &str, reason: &str) -> u64 {
    let name = format!("eirene_{what}_refused_total{{reason=\"{reason}\"}} ");
    let text = crate::http::health::counted();
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn who_is_refused_is_counted_by_the_reason() {
    let counted = |reason: &str| counted("agent_connections", reason);
    let (unknown, other_user) = (counted("unknown"), counted("other_user"));
    let door = Door::open().await;
    for _ in 0..3 {
        let forged = Credential::TunnelKey(Secret::generate().expose().to_owned());
        assert_eq!(door.refusal(|hello| hello.credential = forged).await.0, "unknown");
    }
    assert_eq!(door.refusal(|hello| hello.uid = 2002).await.0, "other_user");
    assert!(counted("unknown") >= unknown + 3, "{}", counted("unknown"));
    assert!(counted("other_user") > other_user, "{}", counted("other_user"));
    // A secret that was good, until its agent had a key.
    let (_agent, _) = door.agent().await;
    let unknown = counted("unknown");
    assert_eq!(door.refusal(|_| {}).await, ("unknown".into(), false));
    assert!(counted("unknown") > unknown, "{}", counted("unknown"));
}

#[tokio::test]
async fn a_secret_of_ones_own_opens_no_other_session_and_what_is_said_of_it_is_not_kept() {
    let door = Door::open().await;
    let (app, now) = (&door.test.app, door.test.clock.now());
    app.samples.open().unwrap();
    let says = |node: &str| {
        let batch = format!(r#"{{"n":"{node}","t":{},"c":"none","s":[["cpu_seconds",1]]}}"#, now.as_millisecond());
        FromAgent::Samples { batch }
    };
    let on = async |session: SessionId, node: &str| {
        app.sessions.change(session, |session| session.nodes = vec![node.parse().unwrap()]).await.unwrap();
    };
    // Two whose agents are awaited as ada's is: grace's, and another of ada's.
    let grace = door.test.person("grace", 2002, Role::Researcher).await;
    let (graces, _) = app.sessions.start(&grace, TestApp::wish(), None).await.unwrap();
    let (second, _) = app.sessions.start(&door.ada, TestApp::wish(), None).await.unwrap();
    on(door.session.id, "c1").await;
    on(graces.id, "c2").await;
    let mut hellos = Vec::new();
    for session in [&graces, &second] {
        let secret = Secret::generate();
        app.db.set_job_secret(session.id, 0, &secret.hash()).await.unwrap();
        let credential = Credential::JobSecret(secret.expose().to_owned());
        hellos.push(Hello { session: session.id, uid: session.owner_uid, credential, ..door.hello() });
    }
    let own = hellos[0].clone();

    let unknown = counted("agent_connections", "unknown");
    let mut tried = 0;
    for hello in &hellos {
        for uid in [hello.uid, door.session.owner_uid] {
            let forged = Hello { session: door.session.id, uid, ..hello.clone() };
            let refused = door.introduce(&forged).await.map(|_| ()).expect_err("it is another's session");
            assert_eq!(refused, ("unknown".to_owned(), false));
            tried += 1;
        }
    }
    // One that goes on as if it were in talks to nobody.
    let mut io = door.dial(eirene_tunnel::ALPN).await.unwrap();
    let forged = Hello { session: door.session.id, ..own.clone() };
    let refused = handshake::introduce(&mut io, &forged).await;
    assert!(matches!(refused, Err(HandshakeError::Refused { .. })), "{refused:?}");
    let _ = handshake::confirm(&mut io).await;
    let _ = message::write(&mut io, &says("c1")).await;
    assert_eq!(io.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    tried += 1;

    // In by its own door, its key opens no other, and what it says of another's node is refused.
    let (mut io, key) = door.introduce(&own).await.unwrap();
    handshake::confirm(&mut io).await.unwrap();
    let mut agent = Agent::start(io).await;
    let by_key = Hello { session: door.session.id, credential: Credential::TunnelKey(key.unwrap()), ..own.clone() };
    assert_eq!(door.introduce(&by_key).await.map(|_| ()), Err(("unknown".to_owned(), false)));
    tried += 1;
    assert!(counted("agent_connections", "unknown") >= unknown + tried, "each is counted");
    let of_another = counted("samples_batches", "node");
    agent.say(&says("c1")).await;
    agent.say(&says("c2")).await;
    let has = async |session: SessionId| !app.samples.last(session).await.unwrap().is_empty();
    door.until("what it says of its own node is kept", async || has(graces.id).await).await;
    assert!(counted("samples_batches", "node") > of_another);
    assert!(!has(door.session.id).await, "nothing is known of ada's");
    assert!(!app.tunnels.is_live(door.session.id));
    let row = door.row().await;
    assert_eq!(row.state, SessionState::Queued, "her agent has not come");
}

#[tokio::test]
async fn an_agent_of_another_job_an_older_restart_or_an_ended_session_stays_out() {
    let door = Door::open().await;
    let job = crate::testing::job(&door.session, 9, eirene_core::scheduler::JobState::Running).identity;
    door.test.app.sessions.change(door.session.id, |s| s.job = Some(job.clone())).await.unwrap();
    assert_eq!(door.refusal(|_| {}).await, ("other_job".into(), false));
    let next = Secret::generate();
    door.test.app.db.set_job_secret(door.session.id, 1, &next.hash()).await.unwrap();
    assert_eq!(door.refusal(|h| h.slurm_job_id = 9).await, ("unknown".into(), false));
    let with_next = |h: &mut Hello| {
        (h.slurm_job_id, h.restart_count) = (9, 0);
        h.credential = Credential::JobSecret(next.expose().to_owned());
    };
    assert_eq!(door.refusal(with_next).await, ("old_restart".into(), true));
    door.test.app.sessions.change(door.session.id, |s| s.state = SessionState::Ended).await.unwrap();
    let over = |h: &mut Hello| {
        with_next(h);
        h.restart_count = 1;
    };
    assert_eq!(door.refusal(over).await, ("session_over".into(), true));
}

#[tokio::test]
async fn noise_at_the_door_harms_nobody() {
    let door = Door::open().await;
    // No TLS, the wrong protocol, a frame of 4 GiB, nonsense, and a crowd that never says anything.
    let mut plain = TcpStream::connect(door.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut wrong = match door.dial(b"h2").await {
        Ok(io) => io,
        Err(_) => door.dial(eirene_tunnel::ALPN).await.unwrap(),
    };
    let _ = wrong.write_all(&u32::MAX.to_be_bytes()).await;
    let mut long = door.dial(eirene_tunnel::ALPN).await.unwrap();
    long.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
    assert_eq!(long.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    let mut nonsense = door.dial(eirene_tunnel::ALPN).await.unwrap();
    nonsense.write_all(b"\0\0\0\x03{x}").await.unwrap();
    assert_eq!(nonsense.read(&mut [0; 1]).await.unwrap_or(0), 0, "it is put out");
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(door.address).await.unwrap());
    }
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
}

#[tokio::test]
async fn an_agent_that_breaks_the_rules_loses_its_tunnel_and_nothing_else() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    agent.control.write_all(&vec![b'x'; message::MAX_LINE + 1]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), agent.moving).await.expect("the tunnel is closed").unwrap();
    assert_eq!(door.row().await.state, SessionState::Running);
    door.until("gone", async || !door.test.app.tunnels.is_live(door.session.id)).await;
}

#[tokio::test]
async fn the_log_arrives_and_is_bounded_in_what_one_message_may_hold() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.say(&FromAgent::Log { offset: 0, text: "first line\n".into() }).await;
    agent.say(&FromAgent::Log { offset: 0, text: "first line\nsecond line\n".into() }).await;
    let logs = &door.test.app.logs;
    door.until("logged", async || {
        logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap().contains("second")
    })
    .await;
    assert_eq!(logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap(), "first line\nsecond line\n");
}

#[tokio::test]
async fn what_runs_on_the_nodes_is_told_to_who_may_see_the_session_and_forgotten_with_the_agent() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    let nodes = &door.test.app.nodes;
    let change = door.test.app.sessions.change(door.session.id, |session| session.nodes = vec!["c1".parse().unwrap()]);
    change.await.unwrap();
    let mut events =
        door.test.app.events.subscribe(&door.ada, Some((JobKind::Session, door.session.id)), None).await.unwrap();
    let report = NodeReport { name: "c1".into(), state: NodeState::Ready, text: None };
    let step = StepReport { number: 1, command: "python3 train.py".into(), ranks: 2, nodes: vec!["c1".into()] };
    agent.say(&FromAgent::Nodes { nodes: vec![report], steps: vec![step] }).await;
    let told = async || nodes.of(&door.row().await).first().is_some_and(|node| !node.steps.is_empty());
    door.until("told", told).await;
    let event = async { while events.next().await.is_some_and(|event| event.kind != EventKind::Nodes) {} };
    tokio::time::timeout(Duration::from_secs(20), event).await.expect("an event");
    drop(agent);
    door.until("forgotten", async || nodes.of(&door.row().await)[0].state.is_none()).await;
}

#[tokio::test]
async fn what_cannot_be_noted_ends_the_connection_so_that_it_is_said_again() {
    for word in [FromAgent::Ready, exited(Some(0), None)] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        door.until_state(SessionState::Starting).await;
        door.test.app.db.close().await;
        agent.say(&word).await;
        tokio::time::timeout(Duration::from_secs(20), agent.moving).await.expect("the tunnel is closed").unwrap();
        let heard = async {
            while let Some(_order) = message::read::<FromPortal>(&mut agent.control, &mut Vec::new()).await? {}
            Ok(())
        };
        let heard: Result<(), std::io::Error> = heard.await;
        assert!(heard.is_err(), "a clean end would say that it was noted");
    }
}

#[tokio::test]
async fn a_last_word_that_was_noted_is_answered_with_a_clean_end() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.told().await;
    agent.say(&exited(Some(3), None)).await;
    agent.control.shutdown().await.unwrap();
    assert_eq!(agent.told().await, None);
    assert_eq!(door.row().await.reason.map(|reason| reason.code).as_deref(), Some("app_failed"));
}

#[tokio::test]
async fn an_agent_that_comes_and_goes_does_not_keep_the_poller_busy() {
    let door = Door::open().await;
    let (woken, bell) = (Arc::new(std::sync::atomic::AtomicU32::new(0)), door.test.app.nudges.clone());
    let counter = Arc::clone(&woken);
    tokio::spawn(async move {
        loop {
            bell.poll().notified().await;
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let begun = std::time::Instant::now();
    let (mut agent, key) = door.agent().await;
    for _ in 0..10 {
        for _ in 0..3 {
            agent.say(&exited(Some(0), None)).await;
        }
        drop(agent.control);
        agent.moving.abort();
        door.until("gone", async || !door.test.app.tunnels.is_live(door.session.id)).await;
        let again = Hello { credential: Credential::TunnelKey(key.clone()), ..door.hello() };
        let (mut io, _) = door.introduce(&again).await.unwrap();
        handshake::confirm(&mut io).await.unwrap();
        agent = Agent::start(io).await;
    }
    let most = 3 + u32::try_from(begun.elapsed().as_secs() / 5).unwrap();
    let times = woken.load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=most).contains(&times), "{times} times");
}

#[tokio::test]
async fn a_stop_is_told_and_the_end_closes_all_streams() {
    let door = Door::open().await;
    let (mut agent, _) = door.agent().await;
    agent.told().await;
    agent.say(&FromAgent::Ready).await;
    door.until_state(SessionState::Running).await;
    let tunnels = &door.test.app.tunnels;
    let revoked = tunnels.revoked(door.session.id);
    assert!(tunnels.stop(door.session.id));
    assert!(matches!(agent.told().await, Some(FromPortal::Stop { .. })));
    assert!(!revoked.is_cancelled());
    tunnels.close(door.session.id);
    assert!(revoked.is_cancelled() && tunnels.revoked(door.session.id).is_cancelled());
    tokio::time::timeout(Duration::from_secs(20), agent.moving).await.expect("the tunnel is closed").unwrap();
}

#[tokio::test]
async fn an_app_that_ended_is_judged_by_its_status_unless_a_signal_ended_it() {
    for (messages, state, code) in [
        (vec![exited(Some(0), None)], SessionState::Stopping, Some("app_ended")),
        (vec![exited(Some(3), None)], SessionState::Stopping, Some("app_failed")),
        (vec![exited(None, Some("never_ready"))], SessionState::Stopping, Some("never_ready")),
        (vec![exited(None, Some("image_missing"))], SessionState::Stopping, Some("agent_failed")),
        (vec![exited(None, Some("scratch_unavailable"))], SessionState::Stopping, Some("scratch_unavailable")),
        (vec![exited(None, Some("stage_in_failed"))], SessionState::Stopping, Some("stage_in_failed")),
        (vec![stopping(message::StopCause::Walltime)], SessionState::Stopping, Some("walltime_reached")),
        (vec![stopping(message::StopCause::Signal), exited(Some(1), None), log("end")], SessionState::Running, None),
        (vec![exited(None, None), exited(Some(143), None), log("end")], SessionState::Running, None),
    ] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        let waits_for_log = messages.len() > 1;
        for message in &messages {
            agent.say(message).await;
        }
        if waits_for_log {
            let logs = &door.test.app.logs;
            door.until("all heard", async || {
                logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap() == "end"
            })
            .await;
        }
        door.until_state(state).await;
        assert_eq!(door.row().await.reason.map(|reason| reason.code).as_deref(), code);
    }
}

#[tokio::test]
async fn what_could_not_be_kept_of_a_scratch_is_told_however_the_session_was_ended() {
    for why in [None, Some(message::StopCause::Walltime), Some(message::StopCause::Request)] {
        let door = Door::open().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        for word in why.map(stopping).into_iter().chain([exited(Some(0), Some("stage_out_failed"))]) {
            agent.say(&word).await;
        }
        let told = async || door.row().await.reason.is_some_and(|reason| reason.code == "stage_out_failed");
        door.until("it is told", told).await;
        let version = door.row().await.version;
        agent.say(&exited(Some(0), Some("stage_out_failed"))).await;
        agent.say(&log("end")).await;
        let heard =
            async || door.test.app.logs.read(&door.ada, JobKind::Session, door.session.id).await.unwrap() == "end";
        door.until("all heard", heard).await;
        let row = door.row().await;
        assert_eq!((row.version, row.state), (version, SessionState::Stopping), "what is noted is noted");
        assert!(row.reason.unwrap().text.starts_with("Not everything that was to be kept"));
    }
}

#[tokio::test]
async fn how_a_runs_program_ended_is_kept_also_when_a_signal_ended_it() {
    for (status, state, code) in [
        (0, SessionState::Stopping, Some("program_ended")),
        (3, SessionState::Stopping, Some("program_failed")),
        (137, SessionState::Running, None),
    ] {
        let door = Door::open_for_run().await;
        let (mut agent, _) = door.agent().await;
        agent.say(&FromAgent::Ready).await;
        door.until_state(SessionState::Running).await;
        agent.say(&exited(Some(status), None)).await;
        door.until("its status is kept", async || door.row().await.exit_status == Some(status)).await;
        let row = door.row().await;
        assert_eq!((row.state, row.reason.map(|reason| reason.code).as_deref()), (state, code));
    }
}

fn exited(status: Option<i32>, code: Option<&str>) -> FromAgent {
    FromAgent::Exited { status, code: code.map(str::to_owned), text: code.map(|_| "it was\nnot good".into()) }
}

fn stopping(why: message::StopCause) -> FromAgent {
    FromAgent::Stopping { why }
}

fn log(text: &str) -> FromAgent {
    FromAgent::Log { offset: 0, text: text.into() }
}
