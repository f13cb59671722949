//! Dials the portal: TCP, TLS 1.3 to the one key the job file pins, and the tunnel's handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use eirene_tunnel::handshake::{self, Credential, HandshakeError, Hello};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpUserTimeout;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::job::Job;

/// Each of connecting and greeting takes at most this long.
const WITHIN: Duration = Duration::from_secs(10);
/// Connecting to one of several addresses takes at most this long.
const ADDRESS_WITHIN: Duration = Duration::from_secs(3);
/// A home directory that hangs holds up the dialling for so long, and not more often than once at a time.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// A portal that acknowledges nothing for so long is gone, milliseconds; heartbeats make sure that there is something to acknowledge.
const UNHEARD_MS: u32 = 15_000;

/// Why the portal was not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// No connection, or not to the portal.
    #[error("no connection to the portal: {0}")]
    Connect(#[source] io::Error),
    /// The handshake came to nothing.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// The portal did not answer in time.
    #[error("the portal does not answer")]
    Silent,
}

/// Dials with what this agent has to prove itself.
pub(crate) struct Dialer {
    connector: TlsConnector,
    portal: String,
    hello: Hello,
    tunnel_key: Option<String>,
    secret: String,
    /// Whether the key is shown next, if there is one; the secret otherwise.
    shows_key: bool,
    job: Job,
    /// A look into the job file that has not come to its end.
    reading: Option<JoinHandle<Option<String>>>,
}

impl Dialer {
    /// A dialer for this job.
    pub(crate) fn new(job: &Job) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = Pinned { pin: job.file.portal_pin.to_ascii_lowercase(), provider: Arc::clone(&provider) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned))
            .with_no_client_auth();
        config.alpn_protocols = vec![eirene_tunnel::ALPN.to_vec()];
        let hello = Hello {
            version: eirene_tunnel::VERSION,
            session: job.file.session,
            credential: Credential::JobSecret(String::new()),
            slurm_job_id: job.id,
            restart_count: job.file.restart_count,
            node: job.node.clone(),
            uid: job.uid,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            portal: job.file.portal.clone(),
            hello,
            tunnel_key: None,
            secret: job.file.secret.clone(),
            shows_key: false,
            job: job.clone(),
            reading: None,
        })
    }

    /// One attempt. Gives the connection, ready to be multiplexed, and the seconds between heartbeats.
    pub(crate) async fn dial(&mut self) -> Result<(TlsStream<BufReader<TcpStream>>, u32), DialError> {
        let mut stream = tokio::time::timeout(WITHIN, self.connect())
            .await
            .map_err(|_| DialError::Silent)?
            .map_err(DialError::Connect)?;
        let heartbeat_s =
            tokio::time::timeout(WITHIN, self.greet(&mut stream)).await.map_err(|_| DialError::Silent)??;
        Ok((stream, heartbeat_s))
    }

    async fn connect(&self) -> io::Result<TlsStream<BufReader<TcpStream>>> {
        let stream = connect(&self.portal).await?;
        stream.set_nodelay(true)?;
        setsockopt(&stream, TcpUserTimeout, &UNHEARD_MS)?;
        // The pin says who the portal is; the name says nothing.
        let name = ServerName::try_from("eirene-tunnel").map_err(io::Error::other)?;
        self.connector.connect(name, eirene_tunnel::read_ahead(stream)).await
    }

    async fn greet(&mut self, stream: &mut TlsStream<BufReader<TcpStream>>) -> Result<u32, HandshakeError> {
        self.hello.credential = match &self.tunnel_key {
            Some(key) if self.shows_key => Credential::TunnelKey(key.clone()),
            _ => Credential::JobSecret(self.secret.clone()),
        };
        let (key, heartbeat_s) = handshake::introduce(stream, &self.hello).await?;
        handshake::confirm(stream).await?;
        // Kept only when the confirmation left: until it arrives the secret can be exchanged again.
        if key.is_some() {
            self.tunnel_key = key;
            self.shows_key = true;
        }
        Ok(heartbeat_s)
    }

    /// After a refusal that may pass: a new secret in the job file is taken, or else the other of key and secret is shown next. Neither
    /// is ever thrown away: the portal may have voided the secret, a restored database may not know the key, and either may come right.
    pub(crate) async fn refused(&mut self) {
        match self.secret_now().await {
            Some(secret) if secret != self.secret => {
                self.secret = secret;
                self.shows_key = false;
            }
            _ => self.shows_key = !self.shows_key,
        }
    }

    /// The file may be on a network file system that hangs, and the app's signals must be heard all the same.
    async fn secret_now(&mut self) -> Option<String> {
        let job = &self.job;
        let reading = self.reading.get_or_insert_with(|| {
            let job = job.clone();
            tokio::task::spawn_blocking(move || job.secret_now())
        });
        let read = tokio::time::timeout(READ_WITHIN, reading).await.ok()?;
        self.reading = None;
        read.ok()?
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let (host, port) = address.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("the node does not know the name `{host}`"));
    for address in addresses(host).await? {
        match tokio::time::timeout(ADDRESS_WITHIN, TcpStream::connect(SocketAddr::new(address, port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

/// Asks the node what a name means. The agent is linked statically, and the C library's name services (LDAP, mDNS and what else
/// a site has) are loaded at run time in the node's own version: so a program of the node is asked. Names under `.localhost` are
/// this machine (RFC 6761), whatever the node thinks.
async fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    if host == "localhost" || host.ends_with(".localhost") {
        return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(vec![address]);
    }
    if !host.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let output = Command::new("getent").args(["ahosts", host]).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some(Ok(address)) = line.split_whitespace().next().map(str::parse)
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    Ok(found)
}

/// Believes one certificate, by its SHA-256.
#[derive(Debug)]
struct Pinned {
    pin: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if HEXLOWER.encode(&Sha256::digest(certificate.as_ref())) == self.pin {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_become_addresses_as_the_node_says() {
        assert_eq!(addresses("127.0.0.9").await.unwrap(), ["127.0.0.9".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses("[::1]").await.unwrap(), ["::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses("x.apps.eirene.localhost").await.unwrap(), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        // Only the C library reads an address like this.
        assert_eq!(addresses("127.9").await.unwrap(), ["127.0.0.9".parse::<IpAddr>().unwrap()]);
        assert!(addresses("--help").await.is_err());
        assert_eq!(connect("no-such-name.invalid:1").await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
