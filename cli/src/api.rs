//! The REST API over HTTP: one method a request, problems turned into errors people can read. What is about files is in `files`.

pub(crate) mod files;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use eirene_core::{SessionId, SpaceName, UploadId};
use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::Value;

/// Longest silence of the portal in the middle of an answer. Event streams say something every 15 seconds.
const SILENCE: Duration = Duration::from_mins(1);

/// The version of the upload protocol.
const TUS: (&str, &str) = ("tus-resumable", "1.0.0");

/// What of the portal's a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noun {
    Session,
    Run,
}

impl Noun {
    /// As people read it, and as JSON has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Run => "run",
        }
    }

    /// Where the portal has them.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Session => "sessions",
            Self::Run => "runs",
        }
    }
}

/// One session or run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) noun: Noun,
    pub(crate) id: SessionId,
}

impl Target {
    /// Where the portal has it.
    pub(crate) fn path(self) -> String {
        format!("{}/{}", self.noun.path(), self.id)
    }
}

/// The part of a session or a run this program reads; `--json` prints everything the portal sent.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) app: Option<String>,
    pub(crate) image: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) undetermined: bool,
    pub(crate) reason: Option<Reason>,
    pub(crate) slurm_job_id: Option<u32>,
    #[serde(default)]
    pub(crate) nodes: Vec<String>,
    #[serde(default)]
    pub(crate) node_details: Vec<NodeDetail>,
    pub(crate) scratch_state: Option<ScratchState>,
    pub(crate) created_at: Timestamp,
    pub(crate) ends_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) file: Option<String>,
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    pub(crate) ranks: Option<u32>,
    pub(crate) exit_status: Option<i32>,
    pub(crate) executed_notebook: Option<String>,
    pub(crate) requeue_of: Option<SessionId>,
}

/// How its fast scratch is.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ScratchState {
    pub(crate) state: String,
    pub(crate) copied: Option<Share>,
    #[serde(default)]
    pub(crate) kept_on: Vec<KeptOn>,
}

/// What has been copied, of how much where that is known.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    pub(crate) total_bytes: Option<u64>,
}

/// A node that keeps what could not be copied back.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeptOn {
    pub(crate) node: String,
    pub(crate) text: Option<String>,
}

/// What runs on one of a session's nodes.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeDetail {
    pub(crate) name: String,
    pub(crate) state: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) app: bool,
    pub(crate) steps: Vec<Step>,
}

/// A step that runs in a session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Step {
    pub(crate) number: u32,
    pub(crate) command: String,
    pub(crate) ranks: u32,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    pub(crate) code: String,
    pub(crate) text: String,
}

impl Job {
    /// Whether nothing will happen any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "ended" | "failed")
    }

    /// Whether a run has done what it was started for.
    pub(crate) fn went_well(&self) -> bool {
        self.state == "ended" && self.reason.as_ref().is_some_and(|reason| reason.code == "program_ended")
    }
}

/// How an upload stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Where it goes on.
    pub(crate) offset: u64,
    /// Where the file lies, as the portal writes it in a header; none before it is whole.
    pub(crate) path: Option<String>,
}

/// A refusal, as the portal words it (RFC 9457).
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) request_id: String,
    #[serde(default)]
    pub(crate) errors: Vec<FieldError>,
    /// After how long it is worth asking again, where the portal says so.
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FieldError {
    field: String,
    message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.detail.is_empty() { &self.title } else { &self.detail })?;
        for error in &self.errors {
            write!(f, "\n  {}: {}", error.field, error.message)?;
        }
        if self.status >= 500 && !self.request_id.is_empty() {
            write!(f, " (request {})", self.request_id)?;
        }
        match self.code.as_str() {
            "unauthenticated" => write!(f, "\n  sign in with `eirene login`"),
            "insufficient_scope" if self.detail.contains("`files:") => {
                write!(f, "\n  sign in again with `eirene login`, whose token has it")
            }
            "insufficient_scope" => write!(f, "\n  sign in again with `eirene login --admin`"),
            "no_space" | "over_quota" => {
                write!(
                    f,
                    "\n  make room (`eirene fs du` says what takes it, `eirene fs trash empty` empties the trash), "
                )?;
                write!(f, "then give the same command again")
            }
            _ => Ok(()),
        }
    }
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The portal answered and refused.
    #[error("{0}")]
    Refused(Problem),
    /// The portal answered that it cannot at the moment.
    #[error("{0}")]
    Unavailable(Problem),
    /// There was no answer, or not all of it.
    #[error("the portal at {portal} does not answer")]
    Unreachable {
        /// The portal's address.
        portal: Url,
        /// What was wrong; nothing where it only took too long.
        source: Option<reqwest::Error>,
    },
}

/// Whether the same request may well succeed a little later.
pub(crate) fn may_pass(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        // Where there is no room, somebody has to make some.
        Some(ApiError::Unavailable(problem)) => problem.status != 507,
        Some(ApiError::Refused(problem)) => problem.status == 429,
        Some(ApiError::Unreachable { .. }) => true,
        None => false,
    }
}

/// Whether a change may be asked for once more: it was not begun.
pub(crate) fn was_not_begun(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(ApiError::Unavailable(problem) | ApiError::Refused(problem)) => matches!(problem.status, 429 | 503),
        Some(ApiError::Unreachable { source, .. }) => source.as_ref().is_some_and(reqwest::Error::is_connect),
        None => false,
    }
}

/// The portal's status, where it answered.
pub(crate) fn status(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref()? {
        ApiError::Refused(problem) | ApiError::Unavailable(problem) => Some(problem.status),
        ApiError::Unreachable { .. } => None,
    }
}

/// The portal's code, where it refused.
pub(crate) fn code(error: &anyhow::Error) -> Option<&str> {
    match error.downcast_ref()? {
        ApiError::Refused(problem) | ApiError::Unavailable(problem) => Some(&problem.code),
        ApiError::Unreachable { .. } => None,
    }
}

/// Names under `.localhost` are this machine (RFC 6761), whatever the C library thinks; the rest is asked as usual.
struct LocalhostResolver;

impl Resolve for LocalhostResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().trim_end_matches('.').to_ascii_lowercase();
            let found: Vec<SocketAddr> = if host == "localhost" || host.ends_with(".localhost") {
                vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]
            } else {
                tokio::net::lookup_host((host.as_str(), 0)).await?.collect()
            };
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// One portal, with or without a token.
pub(crate) struct Api {
    client: reqwest::Client,
    /// For answers that may say nothing for hours; a peer that is gone is noticed by TCP's keep-alive.
    quiet_client: reqwest::Client,
    base: Url,
    token: Option<String>,
}

impl Api {
    pub(crate) fn new(url: &str, token: Option<String>) -> anyhow::Result<Self> {
        let base = Url::parse(url).with_context(|| format!("`{url}` is not an address"))?;
        anyhow::ensure!(
            matches!(base.scheme(), "http" | "https") && base.host_str().is_some(),
            "`{url}` is not an address: begin with `https://`"
        );
        let local = base.host_str().is_some_and(|h| h == "127.0.0.1" || h == "localhost" || h.ends_with(".localhost"));
        anyhow::ensure!(base.scheme() == "https" || local, "`{url}` would send your token unencrypted: use `https://`");
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("eirene/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(Arc::new(LocalhostResolver))
                .connect_timeout(Duration::from_secs(10))
                .redirect(reqwest::redirect::Policy::none());
            // A proxy is another machine: what is meant for this one must not be sent there.
            if local { builder.no_proxy() } else { builder }
        };
        Ok(Self { client: builder().read_timeout(SILENCE).build()?, quiet_client: builder().build()?, base, token })
    }

    /// Address of a page of the portal.
    pub(crate) fn page(&self, path: &str) -> anyhow::Result<Url> {
        Ok(self.base.join(path)?)
    }

    /// The portal's address.
    pub(crate) fn base(&self) -> &str {
        self.base.as_str()
    }

    /// The portal's address, as credentials keep it.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        self.base.as_str().trim_end_matches('/') == url.trim_end_matches('/')
    }

    fn request(&self, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
        self.request_by(&self.client, method, path)
    }

    fn request_by(&self, client: &reqwest::Client, method: Method, path: &str) -> anyhow::Result<RequestBuilder> {
        let request = client.request(method, self.base.join("/api/v1/")?.join(path)?);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut problem: Problem = response.json().await.unwrap_or_default();
        problem.status = status.as_u16();
        problem.retry_after = retry_after.map(Duration::from_secs);
        if problem.title.is_empty() && problem.detail.is_empty() {
            problem.title = format!("the portal answered {status}");
        }
        Err(if status.is_server_error() { ApiError::Unavailable(problem) } else { ApiError::Refused(problem) }.into())
    }

    /// What an answer that broke off, or never came, is.
    pub(crate) fn unreachable(&self, error: reqwest::Error) -> ApiError {
        ApiError::Unreachable { portal: self.base.clone(), source: Some(error) }
    }

    /// What an answer is that was shorter than it said.
    pub(crate) fn cut_short(&self) -> ApiError {
        ApiError::Unreachable { portal: self.base.clone(), source: None }
    }

    async fn json(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let response = self.send(request).await?;
        let text = response.text().await.map_err(|error| self.unreachable(error))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).context("the portal's answer was not understood; is this an Eirene portal?")
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.json(self.request(Method::GET, path)?).await
    }

    /// All items of a list, page after page.
    pub(crate) async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut request = self.request(Method::GET, path)?;
            if let Some(cursor) = &cursor {
                request = request.query_pair("cursor", cursor)?;
            }
            let mut page = self.json(request).await?;
            if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            match page.get("next").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(items),
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(self.request(Method::POST, path)?.json(body)).await
    }

    pub(crate) async fn post_once(&self, path: &str, body: &Value, key: &str) -> anyhow::Result<Value> {
        self.json(self.request(Method::POST, path)?.header("idempotency-key", key).json(body)).await
    }

    pub(crate) async fn post_basic(
        &self,
        path: &str,
        body: &Value,
        username: &str,
        password: &str,
    ) -> anyhow::Result<Value> {
        self.json(self.request(Method::POST, path)?.basic_auth(username, Some(password)).json(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(self.request(Method::PUT, path)?.json(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.json(self.request(Method::PATCH, path)?.json(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.json(self.request(Method::DELETE, path)?).await
    }

    /// Makes an upload of so many bytes.
    pub(crate) async fn make_upload(
        &self,
        space: &SpaceName,
        length: u64,
        metadata: &str,
    ) -> anyhow::Result<(UploadId, Standing)> {
        let request = self.request(Method::POST, &format!("spaces/{space}/uploads"))?.header(TUS.0, TUS.1);
        let response = self.send(request.header("upload-length", length).header("upload-metadata", metadata)).await?;
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        let id = location.and_then(|location| location.rsplit('/').next()).and_then(|id| id.parse().ok());
        Ok((id.context("the portal did not say where the upload is")?, standing(&response)?))
    }

    pub(crate) async fn look_at_upload(&self, id: UploadId) -> anyhow::Result<Standing> {
        let request = self.request(Method::HEAD, &format!("uploads/{id}"))?.header(TUS.0, TUS.1);
        standing(&self.send(request).await?)
    }

    /// Adds bytes; `checksum` as the protocol has it.
    pub(crate) async fn append_to_upload(
        &self,
        id: UploadId,
        offset: u64,
        bytes: Vec<u8>,
        checksum: &str,
    ) -> anyhow::Result<Standing> {
        let request = self.request(Method::PATCH, &format!("uploads/{id}"))?.header(TUS.0, TUS.1);
        let request = request.header("content-type", "application/offset+octet-stream").header("upload-offset", offset);
        standing(&self.send(request.header("upload-checksum", checksum).body(bytes)).await?)
    }

    pub(crate) async fn end_upload(&self, id: UploadId) -> anyhow::Result<()> {
        let request = self.request(Method::DELETE, &format!("uploads/{id}"))?.header(TUS.0, TUS.1);
        self.send(request).await.map(drop)
    }

    /// What happens to a session or a run, as server-sent events.
    pub(crate) async fn events(&self, of: Target) -> anyhow::Result<Response> {
        self.send(self.request(Method::GET, &format!("{}/events", of.path()))?).await
    }

    /// A log as it is now; of a run, one rank's lines where a rank is given.
    pub(crate) async fn log(&self, of: Target, rank: Option<u32>) -> anyhow::Result<Response> {
        let query = rank.map(|rank| format!("?rank={rank}")).unwrap_or_default();
        self.send(self.request(Method::GET, &format!("{}/logs{query}", of.path()))?).await
    }

    /// A log and what is added to it, with silences of any length.
    pub(crate) async fn follow_log(&self, of: Target, rank: Option<u32>) -> anyhow::Result<Response> {
        let query = rank.map(|rank| format!("&rank={rank}")).unwrap_or_default();
        let path = format!("{}/logs?follow=true{query}", of.path());
        let request = self.request_by(&self.quiet_client, Method::GET, &path)?;
        match tokio::time::timeout(SILENCE, self.send(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::Unreachable { portal: self.base.clone(), source: None }.into()),
        }
    }

    pub(crate) async fn job(&self, of: Target) -> anyhow::Result<Job> {
        Ok(serde_json::from_value(self.job_json(of).await?)?)
    }

    /// Everything the portal says of a session or a run.
    pub(crate) async fn job_json(&self, of: Target) -> anyhow::Result<Value> {
        self.get(&of.path()).await
    }
}

/// What an answer says of an upload.
fn standing(response: &Response) -> anyhow::Result<Standing> {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let offset = header("upload-offset").and_then(|offset| offset.parse().ok());
    let offset = offset.context("the portal did not say how far the upload is")?;
    Ok(Standing { offset, path: header("eirene-path").map(str::to_owned) })
}

/// Adds one pair to the query of a request.
trait QueryPair: Sized {
    fn query_pair(self, key: &str, value: &str) -> anyhow::Result<Self>;
}

impl QueryPair for RequestBuilder {
    fn query_pair(self, key: &str, value: &str) -> anyhow::Result<Self> {
        let (client, request) = self.build_split();
        let mut request = request?;
        request.url_mut().query_pairs_mut().append_pair(key, value);
        Ok(Self::from_parts(client, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_travels_unencrypted_to_another_machine() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        assert!(Api::new("http://eirene.example.org", None).is_err());
        assert!(Api::new("ftp://eirene.example.org", None).is_err());
        assert!(Api::new("eirene.example.org", None).is_err());
        assert!(Api::new("http://eirene.localhost:8080", None).is_ok());
        assert!(Api::new("http://evil.example/?localhost", None).is_err());
    }

    #[test]
    fn only_a_followed_log_may_be_silent_for_long() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let api = Api::new("https://eirene.example.org", None).unwrap();
        assert!(format!("{:?}", api.client).contains("read_timeout"));
        assert!(!format!("{:?}", api.quiet_client).contains("read_timeout"));
    }

    #[test]
    fn what_is_lacking_is_said_with_what_to_do() {
        let problem: Problem =
            serde_json::from_str(r#"{"status":403,"detail":"no","code":"insufficient_scope"}"#).unwrap();
        assert_eq!(problem.to_string(), "no\n  sign in again with `eirene login --admin`");
    }

    #[test]
    fn problems_name_the_fields() {
        let problem: Problem = serde_json::from_str(
            r#"{"title":"Invalid","status":422,"detail":"2 fields are wrong","code":"invalid","errors":[{"field":"gpus","message":"no node has so many"}]}"#,
        )
        .unwrap();
        assert_eq!(problem.to_string(), "2 fields are wrong\n  gpus: no node has so many");
    }
}
