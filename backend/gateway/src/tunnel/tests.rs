//! Agents at the door, over real TLS: those that belong there, and those that do not.

mod admission;
mod control;
mod scratch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use eirene_core::secret::Secret;
use eirene_core::{JobKind, Session, SessionState};
use eirene_services::actor::Actor;
use eirene_services::events::{EventKind, Fact};
use eirene_services::testing::{PATIENCE, TestApp};
use eirene_tunnel::handshake::{self, Credential, HandshakeError, Hello};
use eirene_tunnel::message::{self, FromAgent, FromPortal};
use eirene_tunnel::{Acceptor, Limits, StreamKind, TunnelStream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use super::{TunnelContext, TunnelIdentity, listen};

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
        listen(&TunnelContext::from(&test.app), listener, &identity, &TaskTracker::new()).unwrap();
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
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
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

fn exited(status: Option<i32>, code: Option<&str>) -> FromAgent {
    FromAgent::Exited { status, code: code.map(str::to_owned), text: code.map(|_| "it was\nnot good".into()) }
}

fn stopping(why: message::StopCause) -> FromAgent {
    FromAgent::Stopping { why }
}

fn log(text: &str) -> FromAgent {
    FromAgent::Log { offset: 0, text: text.into() }
}
