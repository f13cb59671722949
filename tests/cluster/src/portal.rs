//! The REST API as one person uses it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::demo::{Demo, root};
use crate::until;

/// A session takes at most this long from start to running here; the machine may be busy.
pub const START: Duration = Duration::from_secs(90);
/// A small run takes at most this long from the question to its end.
pub const RUN: Duration = Duration::from_mins(4);
/// Everything else the platform notices by itself.
pub const NOTICE: Duration = Duration::from_mins(1);

/// A person with a token.
pub struct Person {
    /// The cluster.
    pub demo: Demo,
    /// Name.
    pub username: String,
    /// API token with every scope a person can have.
    pub token: String,
    client: Client,
}

/// An HTTP client for which every name is this machine.
pub fn client(hosts: &[&str], port: u16) -> anyhow::Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(Duration::from_secs(30));
    for host in hosts {
        builder = builder.resolve(host, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    Ok(builder.build()?)
}

fn host_and_port(url: &str) -> anyhow::Result<(String, u16)> {
    let url = reqwest::Url::parse(url)?;
    let host = url.host_str().context("no host")?.to_owned();
    Ok((host, url.port_or_known_default().context("no port")?))
}

impl Person {
    /// Signs in; tokens are kept between tests, so that the rate limit on log-ins is not what the tests measure.
    pub async fn sign_in(username: &str) -> anyhow::Result<Self> {
        let demo = Demo::load()?;
        let (host, port) = host_and_port(&demo.portal_url)?;
        let client = client(&[&host], port)?;
        let account = demo.account(username)?.clone();
        let kept = root().join(format!("var/demo/test-token-{username}"));
        if let Ok(token) = std::fs::read_to_string(&kept) {
            let person = Self { demo: demo.clone(), username: username.to_owned(), token, client: client.clone() };
            if person.call(Method::GET, "me", None).await?.0 == StatusCode::OK {
                return Ok(person);
            }
        }
        let mut scopes = vec!["read", "sessions:read", "sessions:write", "sessions:connect", "tokens"];
        if username == demo.admin.username {
            scopes.push("admin");
        }
        let response = client
            .post(format!("{}/api/v1/tokens", demo.portal_url))
            .basic_auth(&account.username, Some(&account.password))
            .json(&json!({"name": "tests", "scopes": scopes, "expires_in_s": 86_400}))
            .send()
            .await?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status == StatusCode::CREATED, "token for {username}: {status} {body}");
        let token = body["token"].as_str().context("a token")?.to_owned();
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&kept)?
            .write_all(token.as_bytes())?;
        Ok(Self { demo, username: username.to_owned(), token, client })
    }

    /// One request under `/api/v1/`; status and JSON body (null when there is none).
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<(StatusCode, Value)> {
        self.call_with(method, path, body, None).await
    }

    /// Like [`Person::call`], with an idempotency key.
    pub async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut request =
            self.client.request(method, format!("{}/api/v1/{path}", self.demo.portal_url)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await?;
        let status = response.status();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// Asks for a small session; gives its id.
    pub async fn start(&self, changes: &Value) -> anyhow::Result<String> {
        let mut body = json!({"app": "jupyterlab", "image": "jupyter", "nodes": 1, "cpus": 1, "memory_mib": 1024, "gpus": 0, "walltime_min": 30});
        if let (Some(body), Some(changes)) = (body.as_object_mut(), changes.as_object()) {
            body.extend(changes.clone());
        }
        let (status, session) = self.call(Method::POST, "sessions", Some(&body)).await?;
        ensure!(status == StatusCode::CREATED, "start: {status} {session}");
        session["id"].as_str().map(ToOwned::to_owned).context("an id")
    }

    /// The session as the API shows it.
    pub async fn session(&self, id: &str) -> anyhow::Result<Value> {
        let (status, session) = self.call(Method::GET, &format!("sessions/{id}"), None).await?;
        ensure!(status == StatusCode::OK, "session: {status} {session}");
        Ok(session)
    }

    /// Waits until the session satisfies `wanted`.
    pub async fn wait(
        &self,
        id: &str,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let mut last = Value::Null;
        let found = until(what, within, || async {
            let session = self.session(id).await?;
            Ok(wanted(&session).then_some(session))
        })
        .await;
        if found.is_err() {
            last = self.session(id).await.unwrap_or(Value::Null);
        }
        found.with_context(|| format!("session is {last}"))
    }

    /// Waits until the session is in `state`; a session that is over in another way fails at once. For one that runs it waits until it is known
    /// where, too: its agent says the one, and the next look at the scheduler the other.
    pub async fn wait_state(&self, id: &str, state: &str, within: Duration) -> anyhow::Result<Value> {
        let session = self
            .wait(id, &format!("state {state}"), within, |s| {
                let now = s["state"].as_str().unwrap_or_default();
                let is_placed = now != "running" || !s["nodes"][0].is_null();
                (now == state && is_placed) || matches!(now, "ended" | "failed")
            })
            .await?;
        ensure!(session["state"] == state, "wanted {state}, got {session}");
        Ok(session)
    }

    /// Asks for a session and waits until it runs.
    pub async fn running(&self, changes: &Value) -> anyhow::Result<Value> {
        let id = self.start(changes).await?;
        self.wait_state(&id, "running", START).await
    }

    /// Asks it to stop and waits until it is over.
    pub async fn stop(&self, id: &str) -> anyhow::Result<Value> {
        let (status, body) = self.call(Method::DELETE, &format!("sessions/{id}"), None).await?;
        ensure!(status == StatusCode::ACCEPTED, "stop: {status} {body}");
        self.wait(id, "over", NOTICE, |s| matches!(s["state"].as_str(), Some("ended" | "failed"))).await
    }

    /// Asks for a small run of `file`, which lies in the person's home; gives its id.
    pub async fn start_run(&self, file: &str, changes: &Value) -> anyhow::Result<String> {
        let mut body =
            json!({"file": file, "image": "jupyter", "nodes": 1, "cpus": 1, "memory_mib": 1024, "walltime_min": 30});
        if let (Some(body), Some(changes)) = (body.as_object_mut(), changes.as_object()) {
            body.extend(changes.clone());
        }
        let (status, run) = self.call(Method::POST, "runs", Some(&body)).await?;
        ensure!(status == StatusCode::CREATED, "run: {status} {run}");
        run["id"].as_str().map(ToOwned::to_owned).context("an id")
    }

    /// The run as the API shows it.
    pub async fn run(&self, id: &str) -> anyhow::Result<Value> {
        let (status, run) = self.call(Method::GET, &format!("runs/{id}"), None).await?;
        ensure!(status == StatusCode::OK, "run: {status} {run}");
        Ok(run)
    }

    /// Waits until the run satisfies `wanted`; the log is told when it never does.
    pub async fn wait_run(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let found = until(what, RUN, || async {
            let run = self.run(id).await?;
            Ok(wanted(&run).then_some(run))
        })
        .await;
        if found.is_err() {
            let (run, log) = (self.run(id).await.unwrap_or_default(), self.run_log(id, "").await.unwrap_or_default());
            return found.with_context(|| format!("run is {run}, its log: {log}"));
        }
        found
    }

    /// Waits until the run is over.
    pub async fn over(&self, id: &str) -> anyhow::Result<Value> {
        self.wait_run(id, "the run is over", |run| matches!(run["state"].as_str(), Some("ended" | "failed"))).await
    }

    /// The log of a run; `query` is nothing or for example `?rank=1`.
    pub async fn run_log(&self, id: &str, query: &str) -> anyhow::Result<String> {
        let url = format!("{}/api/v1/runs/{id}/logs{query}", self.demo.portal_url);
        let response = self.client.get(url).bearer_auth(&self.token).send().await?;
        ensure!(response.status() == StatusCode::OK, "log: {}", response.status());
        Ok(response.text().await?)
    }

    /// Waits until the log of a run holds `text`; gives all of it.
    pub async fn logged(&self, id: &str, text: &str) -> anyhow::Result<String> {
        let found = until(&format!("the log says `{text}`"), RUN, || async {
            let log = self.run_log(id, "").await?;
            Ok(log.contains(text).then_some(log))
        })
        .await;
        match found {
            Ok(log) => Ok(log),
            Err(error) => Err(error.context(format!("{} {}", self.run(id).await?, self.run_log(id, "").await?))),
        }
    }

    /// Stops every live session and run of this person, so that a test begins with a free cluster.
    pub async fn stop_all(&self) -> anyhow::Result<()> {
        let (_, list) = self.call(Method::GET, "runs?live=true", None).await?;
        for run in list["items"].as_array().into_iter().flatten() {
            if let Some(id) = run["id"].as_str() {
                self.call(Method::DELETE, &format!("runs/{id}"), None).await?;
                self.over(id).await?;
            }
        }
        let (_, list) = self.call(Method::GET, "sessions?live=true", None).await?;
        for session in list["items"].as_array().into_iter().flatten() {
            if let Some(id) = session["id"].as_str() {
                self.stop(id).await?;
            }
        }
        Ok(())
    }

    /// A client that reaches a session's origin, with the origin and its `host:port`.
    pub fn app(&self, session: &Value) -> anyhow::Result<(Client, String, String)> {
        let url = session["url"].as_str().context("a running session has a url")?;
        let (host, port) = host_and_port(url)?;
        let parsed = reqwest::Url::parse(url)?;
        Ok((client(&[&host], port)?, parsed.origin().ascii_serialization(), format!("{host}:{port}")))
    }
}

/// The number of the SLURM job of a session.
pub fn job_id(session: &Value) -> anyhow::Result<String> {
    session["slurm_job_id"].as_u64().map(|id| id.to_string()).with_context(|| format!("no job in {session}"))
}

/// The first node of a session.
pub fn node(session: &Value) -> anyhow::Result<String> {
    session["nodes"][0].as_str().map(ToOwned::to_owned).with_context(|| format!("no node in {session}"))
}
