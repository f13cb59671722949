//! The sender against servers of ours: a real listener, plain and with TLS, and a program that stands in for `zabbix_sender`.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use eirene_zabbix::{PacketError, Psk, SendError, Sender, Taken, TlsFiles, Value, read_packet, write_packet};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const WAIT: Duration = Duration::from_secs(10);

fn values(count: usize) -> Vec<Value> {
    let value = |number: usize| Value {
        host: "eirene".into(),
        key: format!("eirene.test[{number}]"),
        value: "1".into(),
        clock: 1_700_000_000,
        ns: 5,
    };
    (0..count).map(value).collect()
}

fn answer(processed: usize, failed: usize) -> String {
    let total = processed + failed;
    format!(
        r#"{{"response":"success","info":"processed: {processed}; failed: {failed}; total: {total}; seconds spent: 0.01"}}"#
    )
}

async fn serve_one(mut stream: impl AsyncRead + AsyncWrite + Unpin, said: String) -> serde_json::Value {
    let asked = read_packet(&mut stream).await.unwrap();
    write_packet(&mut stream, said.as_bytes()).await.unwrap();
    serde_json::from_slice(&asked).unwrap()
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers one connection, and gives what was asked.
async fn plain(said: String) -> (SocketAddr, JoinHandle<serde_json::Value>) {
    let (listener, address) = listener().await;
    let served = tokio::spawn(async move { serve_one(listener.accept().await.unwrap().0, said).await });
    (address, served)
}

#[tokio::test]
async fn values_arrive_as_the_documentation_has_them() {
    let (address, served) = plain(answer(1, 1)).await;
    let taken = Sender::plain(&address.to_string(), WAIT).send(&values(2)).await.unwrap();
    assert_eq!(taken, Taken { processed: 1, failed: 1 });
    let asked = served.await.unwrap();
    assert_eq!(asked["request"], "sender data");
    let first = serde_json::json!({
        "host": "eirene", "key": "eirene.test[0]", "value": "1", "clock": 1_700_000_000, "ns": 5,
    });
    assert_eq!((&asked["data"][0], asked["data"].as_array().unwrap().len()), (&first, 2));
}

#[tokio::test]
async fn nobody_a_liar_and_a_stranger_are_told_apart() {
    let (nobody, address) = listener().await;
    drop(nobody);
    let error = Sender::plain(&address.to_string(), WAIT).send(&values(1)).await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable { .. }), "{error}");

    let (address, _) = plain(answer(7, 0)).await;
    let error = Sender::plain(&address.to_string(), WAIT).send(&values(1)).await.unwrap_err();
    assert!(matches!(error, SendError::Miscounted { about: 7, sent: 1 }), "{error}");

    let (address, _) = plain(r#"{"response":"failed","info":"no"}"#.into()).await;
    let error = Sender::plain(&address.to_string(), WAIT).send(&values(1)).await.unwrap_err();
    assert!(matches!(&error, SendError::Refused(why) if why == "no"), "{error}");

    let (stranger, address) = listener().await;
    tokio::spawn(async move {
        let (mut stream, _) = stranger.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let error = Sender::plain(&address.to_string(), WAIT).send(&values(1)).await.unwrap_err();
    assert!(matches!(error, SendError::Packet(PacketError::NotZabbix)), "{error}");
}

#[tokio::test]
async fn one_that_says_nothing_is_not_waited_for() {
    let (silent, address) = listener().await;
    let held = tokio::spawn(async move {
        let (stream, _) = silent.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    });
    let error = Sender::plain(&address.to_string(), Duration::from_millis(200)).send(&values(1)).await.unwrap_err();
    assert!(matches!(error, SendError::Late(_)), "{error}");
    held.abort();
}

/// A CA, and what it signs.
struct Site {
    ca: Issuer<'static, KeyPair>,
    root: rcgen::Certificate,
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = parameters.self_signed(&key).unwrap();
        let site = Self { ca: Issuer::new(parameters, key), root, directory: tempfile::tempdir().unwrap() };
        site.write("ca.pem", &site.root.pem());
        site
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// A certificate with alternative names, or with a common name alone.
    fn sign(&self, alternative: &[&str], common: &str) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<String> = alternative.iter().map(ToString::to_string).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.ca).unwrap(), key)
    }

    /// Answers one connection over TLS; `clients` whether it wants a certificate of the site's.
    async fn serve(&self, alternative: &[&str], common: &str, clients: bool) -> (SocketAddr, JoinHandle<()>) {
        let (certificate, key) = self.sign(alternative, common);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let config = if clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.root.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            config.with_client_cert_verifier(verifier)
        } else {
            config.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let (listener, address) = listener().await;
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                serve_one(stream, answer(1, 0)).await;
            }
        });
        (address, served)
    }
}

async fn send(address: SocketAddr, files: &TlsFiles) -> Result<Taken, SendError> {
    Sender::tls(&address.to_string(), WAIT, files).unwrap().send(&values(1)).await
}

fn files(site: &Site, server_name: Option<&str>) -> TlsFiles {
    TlsFiles { ca: site.path("ca.pem"), client: None, server_name: server_name.map(ToOwned::to_owned) }
}

#[tokio::test]
async fn a_server_is_believed_by_its_address_or_by_the_name_it_is_said_to_have() {
    let site = Site::new();
    let (address, _served) = site.serve(&["127.0.0.1"], "x", false).await;
    assert!(send(address, &files(&site, None)).await.is_ok());
    let (address, _served) = site.serve(&["zabbix.example.org"], "x", false).await;
    assert!(send(address, &files(&site, Some("zabbix.example.org"))).await.is_ok());
    let (address, _served) = site.serve(&[], "Zabbix server", false).await;
    assert!(send(address, &files(&site, Some("Zabbix server"))).await.is_ok(), "as many sites' certificates are");
}

#[tokio::test]
async fn a_server_with_another_name_or_of_another_ca_gets_nothing() {
    let (site, other) = (Site::new(), Site::new());
    for (alternative, common, expected) in [
        (&["node7.example.org"][..], "x", None),
        (&["node7.example.org"], "Zabbix server", Some("Zabbix server")),
        (&[], "node7", Some("Zabbix server")),
        (&[], "zabbix server", Some("Zabbix server")),
    ] {
        let (address, _served) = site.serve(alternative, common, false).await;
        let error = send(address, &files(&site, expected)).await.unwrap_err();
        assert!(matches!(error, SendError::Unreachable { .. }), "{alternative:?} {common}: {error}");
    }
    let (address, _served) = other.serve(&["127.0.0.1"], "x", false).await;
    assert!(send(address, &files(&site, None)).await.is_err());
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_it() {
    let site = Site::new();
    let (certificate, key) = site.sign(&["portal"], "portal");
    let (certificate, key) = (site.write("c.pem", &certificate.pem()), site.write("k.pem", &key.serialize_pem()));
    let with = TlsFiles { client: Some((certificate, key)), ..files(&site, None) };
    let (address, _served) = site.serve(&["127.0.0.1"], "x", true).await;
    assert!(send(address, &with).await.is_ok());
    let (address, _served) = site.serve(&["127.0.0.1"], "x", true).await;
    assert!(send(address, &files(&site, None)).await.is_err());
    let wrong = TlsFiles { ca: site.path("none.pem"), client: None, server_name: None };
    assert!(Sender::tls("127.0.0.1", WAIT, &wrong).err().unwrap().to_string().contains("none.pem"));
}

/// Whoever writes a program has its turn: one that somebody else's new process still holds open for writing cannot be run.
static PROGRAMS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Writes a program that stands in for `zabbix_sender`.
fn program(directory: &Path, script: &str) -> std::path::PathBuf {
    let path = directory.join("zabbix_sender");
    std::fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn with_a_shared_key_values_go_by_standard_input_and_the_key_stays_in_its_file() {
    let _turn = PROGRAMS.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("psk"), "5ec2e7").unwrap();
    let script = format!(
        "printf '%s\\n' \"$@\" >{0}/arguments\ncat >{0}/input\n\
         echo 'Response from \"z:10051\": \"processed: 1; failed: 1; total: 2; seconds spent: 0.01\"'\nexit 2",
        directory.path().display()
    );
    let psk = Psk { program: program(directory.path(), &script), identity: "eirene".into(), file: path("psk") };
    let sender = Sender::psk("zabbix.example.org:77", WAIT, psk).unwrap();
    assert_eq!(sender.send(&values(2)).await.unwrap(), Taken { processed: 1, failed: 1 });
    let arguments = std::fs::read_to_string(path("arguments")).unwrap();
    let file = path("psk").display().to_string();
    let expected = [
        "-z",
        "zabbix.example.org",
        "-p",
        "77",
        "-T",
        "-N",
        "-i",
        "-",
        "--tls-connect",
        "psk",
        "--tls-psk-identity",
        "eirene",
        "--tls-psk-file",
        &file,
    ];
    assert_eq!(arguments.lines().collect::<Vec<_>>(), expected);
    let input = std::fs::read_to_string(path("input")).unwrap();
    assert_eq!(input.lines().next(), Some("\"eirene\" \"eirene.test[0]\" 1700000000 5 \"1\""));
}

#[tokio::test]
async fn a_program_that_fails_hangs_or_is_not_there_is_an_error() {
    let _turn = PROGRAMS.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("psk");
    std::fs::write(&file, "5ec2e7").unwrap();
    let with = |script: &str, wait| {
        let psk = Psk { program: program(directory.path(), script), identity: "e".into(), file: file.clone() };
        Sender::psk("z", wait, psk).unwrap()
    };
    let error = with("echo 'cannot connect' >&2; exit 1", WAIT).send(&values(500)).await.unwrap_err();
    assert!(matches!(&error, SendError::Refused(why) if why.ends_with("cannot connect")), "{error}");
    let error = with("exec sleep 600", Duration::from_millis(300)).send(&values(1)).await.unwrap_err();
    assert!(matches!(error, SendError::Late(_)), "{error}");
    let none = Psk { program: directory.path().join("none"), identity: "e".into(), file };
    assert!(matches!(Sender::psk("z", WAIT, none), Err(SendError::Program { .. })));
}

/// Whether a process is there, and has not merely not been waited for yet.
fn is_running(pid: &str) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    said.rsplit(')').next().is_some_and(|rest| rest.starts_with(' ') && !rest.starts_with(" Z"))
}

#[tokio::test]
async fn who_stops_waiting_leaves_neither_the_program_nor_what_it_has_started_behind() {
    let _turn = PROGRAMS.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("psk"), "5ec2e7").unwrap();
    // As zabbix_sender, which sends from a process of its own.
    let script = format!("sleep 600 &\necho $$ $! >{0}/new && mv {0}/new {0}/pids\nwait", directory.path().display());
    let psk = Psk { program: program(directory.path(), &script), identity: "e".into(), file: path("psk") };
    let sender = Sender::psk("z", Duration::from_mins(10), psk).unwrap();
    let sending = tokio::spawn(async move { sender.send(&values(1)).await });
    let until = async |done: &dyn Fn() -> bool| {
        for _ in 0..600 {
            if done() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    };
    assert!(until(&|| path("pids").exists()).await, "the program has begun");
    let pids = std::fs::read_to_string(path("pids")).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    sending.abort();
    assert!(sending.await.is_err());
    assert!(until(&|| !pids.iter().any(|pid| is_running(pid))).await, "{pids:?} are still there");
}
