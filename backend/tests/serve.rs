//! `eirened serve` as a service manager runs it, on both databases and behind TLS of its own: it answers without launcher and scheduler,
//! lets people in, takes a new certificate, and ends when told to.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Certificate, Client, StatusCode};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_mins(2);
const NAME: &str = "portal.example.org";
const PASSWORD: &str = "a password long enough";

struct Portal {
    directory: tempfile::TempDir,
    address: SocketAddr,
    child: Option<Child>,
}

impl Portal {
    /// Makes the admin `root.admin` in this database and starts serving.
    fn start(database: &str) -> Self {
        // Another test of this process may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        make_certificate(directory.path());
        let [address, tunnel] = free_addresses();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let text = format!(
            "[server]\nlisten = \"{address}\"\nportal_url = \"https://{NAME}:{port}\"\napps_domain = \"apps.example.net:{port}\"\n\
             state_dir = \"{state}\"\ntls_cert = \"{chain}\"\ntls_key = \"{key}\"\n[database]\nurl_file = \"{url}\"\n\
             [tunnel]\nlisten = \"{tunnel}\"\nadvertise = \"{tunnel}\"\n[launcher]\nsocket = \"{launcher}\"\n\
             [slurm]\nslurmrestd_url = \"http://127.0.0.1:1\"\n",
            port = address.port(),
            state = path("state"),
            chain = path("chain.pem"),
            key = path("key.pem"),
            url = path("database-url"),
            launcher = path("no-launcher.sock"),
        );
        std::fs::write(directory.path().join("eirened.toml"), text).unwrap();
        std::fs::write(
            directory.path().join("database-url"),
            format!("{}\n", database.replace("{}", &path("eirene.db"))),
        )
        .unwrap();
        std::fs::create_dir(directory.path().join("state")).unwrap();
        let mut portal = Self { directory, address, child: None };
        let arguments = ["create-admin", "--username", "root.admin", "--password-stdin"];
        let mut made = portal.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut made.stdin.take().unwrap(), PASSWORD.as_bytes()).unwrap();
        assert!(made.wait().unwrap().success());
        portal.child = Some(portal.command(&["serve"]).stderr(Stdio::null()).spawn().unwrap());
        portal
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_eirened"));
        command.args(arguments).env_clear().env("EIRENE_CONFIG", self.directory.path().join("eirened.toml"));
        command
    }

    /// A client that believes the certificate that lies there now.
    fn client(&self) -> Client {
        let chain = std::fs::read(self.directory.path().join("chain.pem")).unwrap();
        Client::builder()
            .tls_certs_only([Certificate::from_pem(&chain).unwrap()])
            .resolve(NAME, self.address)
            .build()
            .unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.address.port())
    }

    async fn answers(&self) {
        let begun = Instant::now();
        let client = self.client();
        while !client.get(self.url("/healthz")).send().await.is_ok_and(|answer| answer.status() == StatusCode::OK) {
            assert!(begun.elapsed() < WITHIN, "no answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn token(&self) -> String {
        let new = json!({"name": "test", "scopes": ["admin"], "expires_in_s": 3600});
        let request = self.client().post(self.url("/api/v1/tokens")).basic_auth("root.admin", Some(PASSWORD));
        let answer = request.json(&new).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED);
        answer.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    }

    async fn users(&self, token: &str) -> Vec<String> {
        let answer = self.client().get(self.url("/api/v1/users")).bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let list: Value = answer.json().await.unwrap();
        list["items"].as_array().unwrap().iter().map(|user| user["username"].as_str().unwrap().to_owned()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.as_ref().unwrap().id().try_into().unwrap()), signal).unwrap();
    }

    async fn ended(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait().unwrap().code()).await.unwrap()
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn make_certificate(directory: &Path) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    std::fs::write(directory.join("chain.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

/// Held at the same time, so that they differ.
fn free_addresses() -> [SocketAddr; 2] {
    let held = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap())
}

async fn serves(database: &str) {
    let mut portal = Portal::start(database);
    portal.answers().await;
    let token = portal.token().await;
    assert_eq!(portal.users(&token).await, ["root.admin"]);
    let ready = portal.client().get(portal.url("/readyz")).send().await.unwrap();
    let lines = ready.text().await.unwrap();
    assert!(lines.contains("ok   database") && lines.contains("AWAY slurm"), "{lines}");
    let new = json!({"username": "second.admin", "role": "admin", "password": "another long password"});
    let request = portal.client().post(portal.url("/api/v1/users")).bearer_auth(&token).json(&new);
    assert_eq!(request.send().await.unwrap().status(), StatusCode::CREATED);

    // The old certificate is believed no more, so an answer proves the new one.
    make_certificate(portal.directory.path());
    portal.signal(Signal::SIGHUP);
    portal.answers().await;

    portal.signal(Signal::SIGTERM);
    assert_eq!(portal.ended().await, Some(0));
    portal.child = Some(portal.command(&["serve"]).stderr(Stdio::null()).spawn().unwrap());
    portal.answers().await;
    let mut users = portal.users(&token).await;
    users.sort();
    assert_eq!(users, ["root.admin", "second.admin"], "what was written lasts");
}

#[tokio::test]
async fn on_sqlite() {
    serves("sqlite://{}").await;
}

#[tokio::test]
async fn on_postgres() {
    let database = std::env::var("EIRENE_TEST_POSTGRES_URL")
        .expect("no PostgreSQL server: run `database/tests/with-postgres cargo nextest run -p eirene-backend`");
    // The throwaway server's own database; the repository tests make theirs beside it.
    serves(&database).await;
}
