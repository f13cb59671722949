//! The listeners: accepting, TLS with a certificate that is read again when it changes, and an orderly end.
//!
//! What is answered is decided in [`crate::http::service`]; here is only how connections come and go.

use std::net::SocketAddr;
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

use crate::app::App;
use crate::config::Config;
use crate::http::{self, HttpService};

/// Connections at once.
const MOST_CONNECTIONS: usize = 8192;
/// Time for a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Time for the head of a request.
const HEAD_WAIT: Duration = Duration::from_secs(15);
/// Longest head of a request, and most that is read ahead.
const MAX_BUFFER: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;
/// How often the certificate's files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
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

/// Accepts until eirened ends.
pub async fn serve(app: App, listener: TcpListener, tls: Option<Tls>, tracker: TaskTracker) {
    let service = http::service(app.clone());
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
        let (service, tls, shutdown) = (service.clone(), tls.clone(), app.shutdown.clone());
        tracker.spawn(async move {
            connection(service, stream, peer, tls, shutdown).await;
            drop(place);
        });
    }
}

async fn connection(
    service: HttpService,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Tls>,
    shutdown: CancellationToken,
) {
    // Small answers must not wait for the other side's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return exchange(service, stream, peer, shutdown).await };
    match tokio::time::timeout(HANDSHAKE_WAIT, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => exchange(service, stream, peer, shutdown).await,
        Ok(Err(error)) => tracing::debug!(%error, "A TLS handshake failed"),
        Err(_) => tracing::debug!("A TLS handshake took too long"),
    }
}

async fn exchange<S>(service: HttpService, stream: S, peer: SocketAddr, shutdown: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .half_close(false)
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service.connection(peer.ip().to_canonical()))
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
    use super::*;

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
