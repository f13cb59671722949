//! The listeners: accepting, TLS with a certificate that is read again when it changes, and an orderly end.
//!
//! What is answered is decided in [`crate::service`]; here is only how connections come and go.

mod progress;

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use eirene_http::crowd::{Crowd, Most};
use eirene_http::host::session_within;
use eirene_services::app::App;
use eirene_services::config::{Config, Network};
use eirene_services::workers::WorkerId;
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
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::progress::Progress;
use crate::{Connection, HttpService};

/// Connections at once: in all; of one address or one IPv6 network where nobody has signed in, and of one person; and with a long head. Our own
/// proxies may have all.
const MOST: Most = Most { in_all: 8192, of_one: 512, long_heads: 64 };
/// How long a write may wait for the other side to read anything.
const WRITE_WAIT: Duration = Duration::from_mins(1);
/// Time for a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Time for the head of a request, from when the one before it on the connection was answered. Clients keep a quiet connection for as long as 90 s
/// (Go, reqwest) and use it again: it is theirs to end, since a request that crosses with our end of it is lost.
const HEAD_WAIT: Duration = Duration::from_mins(2);
/// Most that is read at once, and so the longest head of a request: scripts of a session can have a browser send all its 180 cookies of 4 KiB to every
/// host of the site's domain. What few connections at once may have the portal keep before it is known whose it is: beyond [`progress::LONG_HEAD`]
/// they wait for each other.
const MAX_BUFFER: usize = 1024 * 1024;
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
    let limits = Limits { crowd: Crowd::new(MOST), write_wait: WRITE_WAIT };
    serve_within(limits, app, service, listener, tls, tracker).await;
}

/// What one peer may take up.
struct Limits {
    crowd: Crowd,
    write_wait: Duration,
}

/// By what connections from `peer` are counted; none for our own proxies.
fn counted_by(peer: IpAddr, trusted: &[Network]) -> Option<IpAddr> {
    if trusted.iter().any(|network| network.contains(peer)) {
        return None;
    }
    Some(match peer {
        // A client with one address of an IPv6 network can use all of them.
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        IpAddr::V4(_) => peer,
    })
}

async fn serve_within(
    limits: Limits,
    app: App,
    service: HttpService,
    listener: TcpListener,
    tls: Option<Tls>,
    tracker: TaskTracker,
) {
    loop {
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
        let Some(guest) = limits.crowd.admit(counted_by(peer, &app.config.server.trusted_proxies)) else {
            tracing::debug!(%peer, "There are too many connections");
            continue;
        };
        // Small answers must not wait for the other side's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        let (service, tls, app, carrying) = (service.clone(), tls.clone(), app.clone(), tracker.clone());
        let write_wait = limits.write_wait;
        tracker.spawn(async move {
            let worker = tokio::select! {
                () = app.shutdown.cancelled() => return,
                () = guest.gives_way() => return,
                worker = home(&app, &stream) => worker,
            };
            let Some(worker) = worker else { return };
            let shutdown = app.shutdown.clone();
            let carry = move |stream| async move {
                let stream = Progress::new(stream, write_wait, guest.standing());
                let service = service.connection(peer, Some(guest.standing()));
                tokio::select! {
                    () = guest.gives_way() => tracing::debug!(%peer, "A connection gave way to another"),
                    () = connection(service, stream, tls, shutdown) => {}
                }
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

async fn connection(service: Connection, stream: Progress<TcpStream>, tls: Option<Tls>, shutdown: CancellationToken) {
    let Some(tls) = tls else { return exchange(service, stream, shutdown).await };
    match tokio::time::timeout(HANDSHAKE_WAIT, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => exchange(service, stream, shutdown).await,
        Ok(Err(error)) => tracing::debug!(%error, "A TLS handshake failed"),
        Err(_) => tracing::debug!("A TLS handshake took too long"),
    }
}

async fn exchange<S>(service: Connection, stream: S, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .half_close(false)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service)
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
    let served = axum::serve(listener, crate::metrics_router(app)).with_graceful_shutdown(shutdown.cancelled_owned());
    if let Err(error) = served.await {
        tracing::warn!(%error, "The metrics are no longer served");
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::SessionId;
    use std::net::{Ipv4Addr, SocketAddr};

    use eirene_services::testing::{PATIENCE, TestApp};
    use eirene_services::workers::Workers;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// A portal with these limits; its connections' tasks, and itself.
    async fn start(most: usize, write_wait: Duration) -> (TestApp, SocketAddr, TaskTracker) {
        let test = TestApp::new().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let most = Most { in_all: 9, of_one: most, long_heads: 1 };
        let (limits, tracker) = (Limits { crowd: Crowd::new(most), write_wait }, TaskTracker::new());
        let service = crate::service(test.app.clone());
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

    /// Whether the portal has closed it.
    async fn is_closed(stream: &mut TcpStream) -> bool {
        matches!(timeout(PATIENCE, stream.read(&mut [0; 4096])).await, Ok(Ok(0) | Err(_)))
    }

    #[tokio::test]
    async fn connections_that_trickle_keep_nobody_out() {
        let (_test, address, _) = start(2, WRITE_WAIT).await;
        let mut trickling = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&ASK[..9]).await.unwrap();
            trickling.push(stream);
        }
        let honest = answered(address).await.expect("the oldest gives way");
        assert!(is_closed(&mut trickling[0]).await);
        trickling[1].write_all(&ASK[9..]).await.unwrap();
        assert!(!is_closed(&mut trickling[1]).await, "the other is answered");
        drop(honest);
    }

    /// A request with so many cookies of 4 KiB beside ours.
    fn with_cookies(host: &str, path: &str, ours: &str, count: usize) -> String {
        let bomb = format!("bomb={}; ", "x".repeat(4080)).repeat(count);
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncookie: {bomb}{ours}\r\n\r\n")
    }

    #[tokio::test]
    async fn a_browser_with_all_the_cookies_it_can_have_gets_every_page() {
        let (test, address, _) = start(9, WRITE_WAIT).await;
        let session = format!("{}.{}", SessionId::generate(), test.app.config.server.apps_domain);
        // Two at once: they wait for each other.
        for (host, path, expected) in [
            ("eirene.localhost:8080", "/login", "HTTP/1.1 200 "),
            ("eirene.localhost:8080", "/static/none.css", "HTTP/1.1 404 "),
            (session.as_str(), "/lab", "HTTP/1.1 404 "),
        ] {
            let ask = || async {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(with_cookies(host, path, "a=b", 180).as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
                String::from_utf8_lossy(&answer).into_owned()
            };
            let (one, other) = tokio::join!(ask(), ask());
            for answer in [one, other] {
                assert!(answer.starts_with(expected), "{path}: {}", &answer[..answer.len().min(300)]);
            }
        }
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
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let by = |peer: &str| counted_by(peer.parse().unwrap(), &trusted);
        assert_eq!(by("10.0.0.1"), None);
        assert_eq!(by("2001:db8::1"), by("2001:db8::ffff:1"));
        assert_ne!(by("2001:db8::1"), by("2001:db8:0:1::1"));
        assert_ne!(by("198.51.100.1"), by("198.51.100.2"));
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
