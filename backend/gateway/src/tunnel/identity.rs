//! The key the portal proves itself with to agents. Job files pin its certificate, so it stays the same as long as sessions run.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};

const CERTIFICATE: &str = "tunnel.crt";
const KEY: &str = "tunnel.key";

/// Certificate and key of the tunnel.
pub struct TunnelIdentity {
    pin: String,
    config: Arc<ServerConfig>,
}

impl TunnelIdentity {
    /// Reads both from the state directory, or makes them there.
    pub fn load_or_make(state_dir: &Path) -> anyhow::Result<Self> {
        let (certificate, key) = (state_dir.join(CERTIFICATE), state_dir.join(KEY));
        if !certificate.exists() || !key.exists() {
            make(&certificate, &key)?;
        }
        Self::load(state_dir)
    }

    /// Reads both; an error when they are missing or do not belong together.
    pub fn load(state_dir: &Path) -> anyhow::Result<Self> {
        let (certificate, key) = (state_dir.join(CERTIFICATE), state_dir.join(KEY));
        let der = CertificateDer::from_pem_file(&certificate)
            .with_context(|| format!("`{}` is no certificate", certificate.display()))?;
        let key_der = PrivateKeyDer::from_pem_file(&key).with_context(|| format!("`{}` is no key", key.display()))?;
        let pin = HEXLOWER.encode(&Sha256::digest(der.as_ref()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![der], key_der)
            .context("the tunnel's certificate and key do not belong together")?;
        config.alpn_protocols = vec![eirene_tunnel::ALPN.to_vec()];
        Ok(Self { pin, config: Arc::new(config) })
    }

    /// SHA-256 of the certificate, lower-case hexadecimal: what agents compare.
    pub fn pin(&self) -> &str {
        &self.pin
    }

    pub(super) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// The key first: a certificate without key would be made again, a key without certificate as well.
fn make(certificate: &Path, key: &Path) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["eirene-tunnel".to_owned()])
        .context("the tunnel's certificate could not be made")?;
    write(key, &made.signing_key.serialize_pem())?;
    write(certificate, &made.cert.pem())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    let next = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)
        .with_context(|| format!("`{name}` could not be written"))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&next, path))
        .with_context(|| format!("`{name}` could not be written"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_made_once_and_nobody_else_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(TunnelIdentity::load(dir.path()).is_err());
        let first = TunnelIdentity::load_or_make(dir.path()).unwrap();
        let again = TunnelIdentity::load_or_make(dir.path()).unwrap();
        assert_eq!(first.pin(), again.pin());
        assert_eq!(first.pin().len(), 64);
        for name in [CERTIFICATE, KEY] {
            let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
