//! What tests of commands share: a configuration, and a server with a certificate of its own.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use eirene_services::config::Config;

/// A configuration with nothing but what there has to be.
pub(super) fn config(portal: &str, apps: &str) -> Config {
    let text =
        format!("[server]\nportal_url = \"{portal}\"\napps_domain = \"{apps}\"\n[tunnel]\nadvertise = \"a:1\"\n");
    Config::from_text(&text).unwrap()
}

/// Answers every request with itself, on a port of this machine. Its certificate, which nobody believes, is over at the beginning of May 2031.
pub(super) async fn tls_mirror() -> u16 {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec!["portal.example.org".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2031, 5, 1);
    let chain = vec![parameters.self_signed(&key).unwrap().der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", head.len());
            let _ = stream.write_all(&[answer.as_bytes(), &head].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}
