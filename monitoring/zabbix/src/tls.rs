//! Whom values are sent to over TLS: a server whose certificate the site's own CA has signed, and which is called what it is expected to be.
//!
//! Zabbix itself looks at the signature alone, unless it is told a subject, so certificates of Zabbix servers often have a common name and no
//! other. Such a name counts here only where the certificate has no subject alternative names, and only letter for letter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::extensions::ParsedExtension;
use x509_parser::parse_x509_certificate;

use crate::sender::TlsFiles;

/// Why values cannot be sent over TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file holds no certificate or key, or cannot be read.
    #[error("`{}` holds no {what} that can be read", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// What is expected in it.
        what: &'static str,
    },
    /// What the files hold does not belong together, or cannot be used.
    #[error("certificate, key and CA cannot be used together")]
    Unusable(#[source] rustls::Error),
}

/// What a connection is begun with.
///
/// # Errors
/// [`TlsError`].
pub(crate) fn client_config(files: &TlsFiles, expected: &str) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        roots.add(certificate).map_err(TlsError::Unusable)?;
    }
    let verifier = SiteVerifier {
        roots,
        provider: Arc::clone(&provider),
        name: ServerName::try_from(expected).ok().map(|name| name.to_owned()),
        text: expected.to_owned(),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((certificate, key)) = &files.client else { return Ok(config.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|_| TlsError::File { path: key.clone(), what: "key" })?;
    config.with_client_auth_cert(chain, key).map_err(TlsError::Unusable)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = || TlsError::File { path: path.to_owned(), what: "certificate" };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|_| wrong())?.collect();
    let found = found.map_err(|_| wrong())?;
    if found.is_empty() { Err(wrong()) } else { Ok(found) }
}

/// Looks at signature, time and name.
#[derive(Debug)]
struct SiteVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    /// The expected name, where it is one of DNS or an address.
    name: Option<ServerName<'static>>,
    text: String,
}

impl ServerCertVerifier for SiteVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _asked: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        let named = match &self.name {
            Some(name) => verify_server_name(&certificate, name),
            None => Err(CertificateError::NotValidForName.into()),
        };
        if named.is_ok() || is_common_name(end_entity, &self.text) {
            return Ok(ServerCertVerified::assertion());
        }
        named.map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate has no alternative names and exactly this common name.
fn is_common_name(certificate: &CertificateDer<'_>, expected: &str) -> bool {
    let Ok((_, certificate)) = parse_x509_certificate(certificate) else { return false };
    let is_named = |extension: &ParsedExtension<'_>| matches!(extension, ParsedExtension::SubjectAlternativeName(_));
    if certificate.extensions().iter().any(|extension| is_named(extension.parsed_extension())) {
        return false;
    }
    let names: Vec<_> = certificate.subject().iter_common_name().collect();
    matches!(names[..], [name] if name.as_str().is_ok_and(|name| name == expected))
}
