//! The listeners: accepting, TLS with a certificate that is read again when it changes, and an orderly end.
//!
//! What is answered is decided in [`crate::http::service`]; here is only how connections come and go.

mod progress;

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::progress::Progress;
use crate::app::App;
use crate::config::{Config, Network};
use crate::http::host::session_within;
use crate::http::{self, HttpService};
use crate::places::{Place, Places};
use crate::workers::WorkerId;

/// Connections at once.
const MOST_CONNECTIONS: usize = 8192;
/// Connections at once of one address, or one IPv6 network; our own proxies may have all.
const MOST_OF_ONE: usize = 512;
/// How long a write may wait for the other side to read anything.
const WRITE_WAIT: Duration = Duration::from_mins(1);
/// Time for a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Time for the head of a request, from when the one before it on the connection was answered. Clients keep a quiet connection for as long as 90 s
/// (Go, reqwest) and use it again: it is theirs to end, since a request that crosses with our end of it is lost.
const HEAD_WAIT: Duration = Duration::from_mins(2);
/// Most that is read at once, and so the longest head of a request. Uploads are faster the larger it is; so is what each of many connections may
/// have the portal keep before it is known whose it is.
const MAX_BUFFER: usize = 128 * 1024;
/// How often the certificate's files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Most of what a connection says first that is looked at.
const MOST_PEEKED: usize = 4096;
/// Time for a connection to say anything before it is given a place without.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Pause after an accept that failed, for want of descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The certificate, as it is now.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<TlsFiles>,
    acceptor: TlsAcceptor,
}

struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: Current,
}

#[derive(Clone)]
struct Current(Arc<RwLock<Arc<CertifiedKey>>>);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current(…)")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// TLS as configured; none when the portal speaks plain HTTP.
    pub fn from_config(config: &Config) -> anyhow::Result<Option<Self>> {
        let (Some(certificate), Some(key)) = (&config.server.tls_cert, &config.server.tls_key) else { return Ok(None) };
        let current = Current(Arc::new(RwLock::new(Arc::new(read_certificate(certificate, key)?))));
        let mut server = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(current.clone()));
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        let shared = TlsFiles { certificate: certificate.clone(), key: key.clone(), current };
        Ok(Some(Self { shared: Arc::new(shared), acceptor: TlsAcceptor::from(Arc::new(server)) }))
    }

    /// Reads the files again when they change and on SIGHUP. A pair that is no good leaves the old one in use.
    pub async fn reload_until(self, shutdown: CancellationToken) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        let mut seen = self.modified();
        loop {
            let asked = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = hangup.recv() => true,
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            let modified = self.modified();
            if !asked && modified == seen {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    seen = modified;
                    tracing::info!("The certificate was read again");
                }
                Err(error) => tracing::warn!(error = format!("{error:#}"), "The new certificate is not used"),
            }
        }
    }

    fn reload(&self) -> anyhow::Result<()> {
        let pair = read_certificate(&self.shared.certificate, &self.shared.key)?;
        *self.shared.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
        Ok(())
    }

    fn modified(&self) -> [Option<SystemTime>; 2] {
        [&self.shared.certificate, &self.shared.key]
            .map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
    }
}

/// Reads a chain and its key, and checks that they belong together.
pub fn read_certificate(certificate: &Path, key: &Path) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("`{}` is no certificate chain", certificate.display()))?;
    let key_der = PrivateKeyDer::from_pem_file(key).with_context(|| format!("`{}` is no key", key.display()))?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key_der, &provider).context("certificate and key do not belong together")
}

/// Accepts until eirened ends, and lets `service` answer.
pub async fn serve(app: App, service: HttpService, listener: TcpListener, tls: Option<Tls>, tracker: TaskTracker) {
    let limits = Limits { of_one: Places::new(MOST_OF_ONE), write_wait: WRITE_WAIT };
    serve_within(limits, app, service, listener, tls, tracker).await;
}

/// An address has as many connections as it may have.
#[derive(Debug)]
struct TooMany;

/// What one peer may take up.
struct Limits {
    of_one: Places<IpAddr>,
    write_wait: Duration,
}

impl Limits {
    /// A place for a connection from `peer`; none for one that is not counted.
    fn admit(&self, peer: IpAddr, trusted: &[Network]) -> Result<Option<Place<IpAddr>>, TooMany> {
        if trusted.iter().any(|network| network.contains(peer)) {
            return Ok(None);
        }
        let whole = match peer {
            // Whoever has one address of a network there has them all.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            IpAddr::V4(_) => peer,
        };
        self.of_one.take(whole).map(Some).ok_or(TooMany)
    }
}

async fn serve_within(
    limits: Limits,
    app: App,
    service: HttpService,
    listener: TcpListener,
    tls: Option<Tls>,
    tracker: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = app.shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "A connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let peer = peer.ip().to_canonical();
        let Ok(own_place) = limits.admit(peer, &app.config.server.trusted_proxies) else {
            tracing::debug!(%peer, "An address has too many connections");
            continue;
        };
        // Small answers must not wait for the other side's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let (service, tls, app, carrying) = (service.clone(), tls.clone(), app.clone(), tracker.clone());
        let write_wait = limits.write_wait;
        tracker.spawn(async move {
            let worker = tokio::select! {
                () = app.shutdown.cancelled() => return,
                worker = home(&app, &stream) => worker,
            };
            let Some(worker) = worker else { return };
            let shutdown = app.shutdown.clone();
            let carry = move |stream| async move {
                connection(service, Progress::new(stream, write_wait), peer, tls, shutdown).await;
                drop((place, own_place));
            };
            if let Err(error) = app.workers.hand_over(worker, &carrying, stream, carry) {
                tracing::warn!(%error, "A connection could not be handed over");
            }
        });
    }
}

/// The worker for a connection: the one that has the tunnel of the session asked for first (its host name is in the `Host` header or, with TLS, in the
/// client's hello, RFC 6066, section 3, which is not encrypted), or else, of those for sessions or
/// for the portal, the one whose turn it is. None for a connection that ended. What is found out here decides about nothing but
/// the place: whoever says something else later is served there as well.
async fn home(app: &App, stream: &TcpStream) -> Option<WorkerId> {
    let mut first = [0; MOST_PEEKED];
    let Ok(said) = tokio::time::timeout(FIRST_WAIT, stream.peek(&mut first)).await else {
        return Some(app.workers.next_for_portal());
    };
    let said = first.get(..said.ok()?).filter(|said| !said.is_empty())?;
    let Some(session) = session_within(said, &app.config.server.apps_domain) else {
        return Some(app.workers.next_for_portal());
    };
    Some(app.tunnels.worker(session).unwrap_or_else(|| app.workers.next_for_session()))
}

async fn connection(
    service: HttpService,
    stream: Progress<TcpStream>,
    peer: IpAddr,
    tls: Option<Tls>,
    shutdown: CancellationToken,
) {
    let Some(tls) = tls else { return exchange(service, stream, peer, shutdown).await };
    match tokio::time::timeout(HANDSHAKE_WAIT, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => exchange(service, stream, peer, shutdown).await,
        Ok(Err(error)) => tracing::debug!(%error, "A TLS handshake failed"),
        Err(_) => tracing::debug!("A TLS handshake took too long"),
    }
}

async fn exchange<S>(service: HttpService, stream: S, peer: IpAddr, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .half_close(false)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service.connection(peer))
        .with_upgrades();
    tokio::pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        () = shutdown.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "A connection ended early");
    }
}

/// Serves the metrics on a listener of their own.
pub async fn serve_metrics(app: App, listener: TcpListener) {
    let shutdown = app.shutdown.clone();
    let served = axum::serve(listener, http::metrics_router(app)).with_graceful_shutdown(shutdown.cancelled_owned());
    if let Err(error) = served.await {
        tracing::warn!(%error, "The metrics are no longer served");
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::SessionId;
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;
    use crate::testing::{PATIENCE, TestApp};
    use crate::workers::Workers;

    /// A portal with these limits; its connections' tasks, and itself.
    async fn start(most: usize, write_wait: Duration) -> (TestApp, SocketAddr, TaskTracker) {
        let test = TestApp::new().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limits, tracker) = (Limits { of_one: Places::new(most), write_wait }, TaskTracker::new());
        let service = http::service(test.app.clone());
        tokio::spawn(serve_within(limits, test.app.clone(), service, listener, None, tracker.clone()));
        (test, address, tracker)
    }

    const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: eirene.localhost:8080\r\n\r\n";

    /// A connection that was answered; none when it was closed instead.
    async fn answered(address: SocketAddr) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(ASK).await.ok()?;
        let read = timeout(PATIENCE, stream.read(&mut [0; 4096])).await.unwrap();
        matches!(read, Ok(count) if count > 0).then_some(stream)
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_no_more() {
        let (_test, address, _) = start(2, WRITE_WAIT).await;
        let (first, second) = (answered(address).await, answered(address).await);
        assert!(first.is_some() && second.is_some());
        assert!(answered(address).await.is_none(), "a third");
        drop(first);
        let again = async { while answered(address).await.is_none() {} };
        timeout(PATIENCE, again).await.expect("its place is not free again");
    }

    #[tokio::test]
    async fn who_asks_and_does_not_read_is_let_go_and_who_is_quiet_is_not() {
        let (_test, address, tracker) = start(9, Duration::from_millis(100)).await;
        let mut quiet = answered(address).await.unwrap();
        let (_unread, mut asks) = TcpStream::connect(address).await.unwrap().into_split();
        // Answers without end, until the connection breaks.
        let asking = async { while asks.write_all(ASK).await.is_ok() {} };
        timeout(PATIENCE, asking).await.expect("it is still open");
        assert!(!tracker.is_empty(), "the quiet one is");
        quiet.write_all(ASK).await.unwrap();
        assert!(quiet.read(&mut [0; 4096]).await.unwrap() > 0);
    }

    #[tokio::test]
    async fn an_address_as_long_as_a_head_can_be_is_refused_in_our_words() {
        let (_test, address, _) = start(9, WRITE_WAIT).await;
        // What is longer than any address may be is refused before it is read as one.
        let long = "x".repeat(usize::from(u16::MAX) - 1024);
        for (path, body) in [("/api/v1/me", "\"uri_too_long\""), ("/", "longer than 56 KiB")] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let asks =
                format!("GET {path}?{long} HTTP/1.1\r\nhost: eirene.localhost:8080\r\nconnection: close\r\n\r\n");
            stream.write_all(asks.as_bytes()).await.unwrap();
            let mut answer = String::new();
            timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 414 ") && answer.contains(body), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_connection_gets_a_worker_of_its_kind() {
        let test = TestApp::new().await;
        let (workers, threads) = Workers::start().unwrap();
        let app = test.app.with_workers(workers);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let session =
            format!("GET / HTTP/1.1\r\nhost: {}.{}\r\n\r\n", SessionId::generate(), app.config.server.apps_domain);
        for (said, of_session) in [(ASK, false), (session.as_bytes(), true)] {
            for _ in 0..=app.workers.count() {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                client.write_all(said).await.unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                let worker = home(&app, &stream).await.unwrap();
                assert_eq!(worker.index() < app.workers.for_sessions(), of_session, "{worker:?}");
            }
        }
        threads.end();
    }

    #[test]
    fn a_network_counts_as_one_and_a_trusted_proxy_not_at_all() {
        let limits = Limits { of_one: Places::new(1), write_wait: WRITE_WAIT };
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let admit = |peer: &str| limits.admit(peer.parse().unwrap(), &trusted);
        let held = [admit("10.0.0.1"), admit("10.0.0.1"), admit("2001:db8::1"), admit("198.51.100.1")];
        assert!(held.iter().all(Result::is_ok));
        assert!(admit("2001:db8::ffff:1").is_err());
        assert!(admit("198.51.100.1").is_err());
        assert!(admit("2001:db8:0:1::1").is_ok() && admit("198.51.100.2").is_ok());
    }

    fn make_pair(directory: &Path) {
        let made = rcgen::generate_simple_self_signed(vec!["eirene.example.org".to_owned()]).unwrap();
        std::fs::write(directory.join("c.pem"), made.cert.pem()).unwrap();
        std::fs::write(directory.join("k.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_new_certificate_is_used_and_a_bad_one_is_not() {
        // Another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        make_pair(dir.path());
        let text = format!(
            "[server]\nportal_url = \"https://e.example.org\"\napps_domain = \"apps.example.org\"\n\
             tls_cert = {:?}\ntls_key = {:?}\n[tunnel]\nadvertise = \"a:1\"\n",
            dir.path().join("c.pem"),
            dir.path().join("k.pem")
        );
        let tls = Tls::from_config(&Config::from_text(&text).unwrap()).unwrap().unwrap();
        let current = || tls.shared.current.0.read().unwrap().cert[0].to_vec();
        let first = current();
        make_pair(dir.path());
        tls.reload().unwrap();
        let second = current();
        assert_ne!(first, second);
        let other = rcgen::generate_simple_self_signed(vec!["eirene.example.org".to_owned()]).unwrap();
        std::fs::write(dir.path().join("k.pem"), other.signing_key.serialize_pem()).unwrap();
        assert!(tls.reload().is_err(), "the key belongs to another certificate");
        assert_eq!(current(), second);
    }
}
