//! The scheduler over slurmrestd.
//!
//! slurmrestd reports failures in the body, with any HTTP status, so a status alone decides only where there is no body to read.
//! A connection is made per call: a kept one that is closed at the wrong moment would leave a submit undetermined for nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::clock::Clock;
use eirene_core::launcher::Launcher;
use eirene_core::scheduler::{
    self, Account, CallAs, Job, JobIdentity, JobSpec, JobState, Node, Partition, Scheduler, SchedulerError,
    SchedulerResult, signed_reason,
};
use eirene_core::{DrainReason, NodeName, Username};
use jiff::Timestamp;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::api::{self, Api};
use crate::calls::{
    self, TIMEOUT, accounted_from, after_submit, bad_name, check_spec, decide, is_job_name, said, unreachable,
};
use crate::convert;
use crate::default_partition::DefaultPartition;
use crate::doubts::Doubts;
use crate::listing::Listing;
use crate::owners::{self, SystemUserIds, UserIds};
use crate::refusals::{ACCESS_DENIED, Verdict, error, of_node, verdict};
use crate::stream;
use crate::tokens::Tokens;
use crate::versions;
use crate::wire::{AccountedJobs, Answer, ApiDescription, Envelope, Jobs, Nodes, Partitions, PersonAccounts};

/// What an answer may cost.
#[derive(Debug, Clone, Copy)]
struct Limits {
    time: Duration,
    bytes: usize,
}

const ORDINARY: Limits = Limits { time: TIMEOUT, bytes: 64 * 1024 * 1024 };

/// The list of all jobs has some 10 kB a job, of which little is kept; the poll waits 30 s for it.
const ALL_JOBS: Limits = Limits { time: Duration::from_secs(25), bytes: 1024 * 1024 * 1024 };

/// The body of an answer that reports a failure.
const LARGEST_FAILURE_BYTES: usize = 1024 * 1024;

/// The scheduler over slurmrestd.
pub struct SlurmRestd {
    base: Url,
    http: reqwest::Client,
    service_account: String,
    cluster: String,
    clock: Arc<dyn Clock>,
    tokens: Tokens,
    default_partition: DefaultPartition,
    user_ids: Arc<dyn UserIds>,
    newest_parser: u32,
    doubts: Doubts,
    api: Mutex<Option<Arc<Api>>>,
}

/// Why there is no adapter.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address cannot be used.
    #[error(
        "`{0}` is no address of a slurmrestd: http://host:port or https://host:port is expected, without user, password or query"
    )]
    Address(String),
    /// The HTTP client could not be made.
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
}

/// An answer.
struct Reply {
    status: StatusCode,
    body: Body,
}

enum Body {
    /// Of a success, still to be read.
    Coming(Response, Limits),
    /// Of a failure, read whole.
    Failure(Vec<u8>),
}

impl SlurmRestd {
    /// The slurmrestd at `url`, asked as `service_account` where nobody in particular asks; `cluster` is what we call the cluster.
    pub fn new(
        url: &str,
        service_account: &str,
        cluster: &str,
        launcher: Arc<dyn Launcher>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let base = Url::parse(url).map_err(|_| SetupError::Address(url.to_owned()))?;
        let good = matches!(base.scheme(), "http" | "https")
            && base.host().is_some()
            && base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none();
        if !good {
            return Err(SetupError::Address(base.host_str().unwrap_or("?").to_owned()));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(TIMEOUT)
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(SetupError::Client)?;
        Ok(Self {
            base,
            http,
            service_account: service_account.to_owned(),
            cluster: cluster.to_owned(),
            tokens: Tokens::new(Arc::clone(&launcher), Arc::clone(&clock)),
            default_partition: DefaultPartition::new(launcher, Arc::clone(&clock)),
            clock,
            user_ids: Arc::new(SystemUserIds),
            newest_parser: u32::MAX,
            doubts: Doubts::default(),
            api: Mutex::default(),
        })
    }

    /// The same with other knowledge of user ids than the operating system's.
    #[must_use]
    pub fn with_user_ids(mut self, user_ids: Arc<dyn UserIds>) -> Self {
        self.user_ids = user_ids;
        self
    }

    /// The same with no data parser newer than `v0.0.<newest>`, for a slurmrestd whose newest one misbehaves.
    #[must_use]
    pub fn with_newest_parser(mut self, newest: u32) -> Self {
        self.newest_parser = newest;
        self
    }

    /// The API that slurmrestd offers, discovered on first use and again after a lost connection.
    async fn api(&self) -> SchedulerResult<Arc<Api>> {
        if let Some(api) = self.known_api() {
            return Ok(api);
        }
        let what = "ask slurmrestd for its API";
        for path in ["/openapi/v3", "/openapi"] {
            let reply = self.request(&CallAs::Service, Method::GET, path, None, ORDINARY, what).await?;
            if reply.status == StatusCode::NOT_FOUND {
                continue;
            }
            let Body::Coming(response, limits) = reply.body else {
                return Err(unreachable(what, reply.status.as_str()));
            };
            let described: ApiDescription = stream::decode(response, limits.bytes, what).await?;
            let paths = || described.paths.iter().map(String::as_str);
            let api = Api::newest(paths(), self.newest_parser).ok_or_else(|| match api::only_old(paths()) {
                Some(parser) => versions::old_slurmrestd(parser),
                None => SchedulerError::Malformed { what: format!("{what}: it offers no data parser that we read") },
            })?;
            tracing::info!(data_parser = api.parser(), "found the API of slurmrestd");
            let api = Arc::new(api);
            *self.api.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&api));
            return Ok(api);
        }
        Err(unreachable(what, "it has none"))
    }

    fn known_api(&self) -> Option<Arc<Api>> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget_api(&self) {
        *self.api.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// One request to a discovered path; discovered anew, once, when slurmrestd no longer knows the path.
    async fn call(
        &self,
        as_: &CallAs,
        method: Method,
        path: impl Fn(&Api) -> String,
        body: Option<&Value>,
        limits: Limits,
        what: &str,
    ) -> SchedulerResult<Reply> {
        let path_now = path(self.api().await?.as_ref());
        let result = self.request(as_, method.clone(), &path_now, body, limits, what).await;
        match result {
            Ok(reply) if reply.status == StatusCode::NOT_FOUND && !reply.looks_like_json() => {
                self.forget_api();
                let path_now = path(self.api().await?.as_ref());
                self.request(as_, method, &path_now, body, limits, what).await
            }
            Err(error @ SchedulerError::Unreachable { .. }) => {
                self.forget_api();
                Err(error)
            }
            result => result,
        }
    }

    /// One request. slurmrestd itself says 401 before it does anything, so that is tried again with a new token.
    async fn request(
        &self,
        as_: &CallAs,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limits: Limits,
        what: &str,
    ) -> SchedulerResult<Reply> {
        let reply = self.request_once(as_, method.clone(), path, body, limits, what).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        self.tokens.forget(as_);
        let reply = self.request_once(as_, method, path, body, limits, what).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            self.tokens.forget(as_);
            return Err(SchedulerError::Unauthorised { what: format!("{what}: slurmrestd does not accept our token") });
        }
        Ok(reply)
    }

    async fn request_once(
        &self,
        as_: &CallAs,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limits: Limits,
        what: &str,
    ) -> SchedulerResult<Reply> {
        let token = self.tokens.get(as_).await?;
        let name = calls::user_name(as_, &self.service_account);
        let header = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| SchedulerError::Malformed { what: format!("{what}: a bad user name or token") })
        };
        let mut token = header(token.expose_secret())?;
        token.set_sensitive(true);
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(query);
        let mut request = self
            .http
            .request(method, url)
            .timeout(limits.time)
            .header(ACCEPT, "application/json")
            .header("X-SLURM-USER-NAME", header(name)?)
            .header("X-SLURM-USER-TOKEN", token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(|source| stream::lost(source, what))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Reply { status, body: Body::Coming(response, limits) });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| stream::lost(source, what))? {
            if body.len() + chunk.len() > LARGEST_FAILURE_BYTES {
                return Err(SchedulerError::Malformed { what: format!("{what}: the answer is too large") });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, body: Body::Failure(body) })
    }

    /// Forgets the API when an answer broke off: slurmrestd may come back as another version.
    fn finish<T>(&self, read: SchedulerResult<T>) -> SchedulerResult<T> {
        if matches!(read, Err(SchedulerError::Unreachable { .. })) {
            self.forget_api();
        }
        read
    }

    /// Reads an answer: the value, or what its failures decide and say.
    async fn read<T: Answer>(
        &self,
        as_: &CallAs,
        reply: Reply,
        what: &str,
    ) -> SchedulerResult<Result<T, (Verdict, String)>> {
        let status = reply.status;
        let failures = match reply.body {
            Body::Coming(response, limits) => {
                let value: T = self.finish(stream::decode(response, limits.bytes, what).await)?;
                let failures = value.errors();
                if failures.is_empty() {
                    return Ok(Ok(value));
                }
                failures
            }
            Body::Failure(body) => {
                serde_json::from_slice::<Envelope>(&body).map(|envelope| envelope.errors()).unwrap_or_default()
            }
        };
        if failures.is_empty() {
            return Err(unreachable(what, &format!("slurmrestd answered {status}")));
        }
        let verdict = decide(&failures);
        if verdict == Verdict::NotAccepted {
            self.tokens.forget(as_);
        }
        Ok(Err((verdict, said(&failures))))
    }

    /// Asks for something that changes nothing, so once more with a new token when the first was not accepted.
    async fn get<T: Answer>(
        &self,
        as_: &CallAs,
        path: impl Fn(&Api) -> String,
        limits: Limits,
        what: &str,
    ) -> SchedulerResult<Result<T, (Verdict, String)>> {
        let reply = self.call(as_, Method::GET, &path, None, limits, what).await?;
        match self.read(as_, reply, what).await? {
            Err((Verdict::NotAccepted, _)) => {
                let reply = self.call(as_, Method::GET, &path, None, limits, what).await?;
                self.read(as_, reply, what).await
            }
            read => Ok(read),
        }
    }

    /// The same where every failure is an error.
    async fn list<T: Answer>(&self, path: impl Fn(&Api) -> String, limits: Limits, what: &str) -> SchedulerResult<T> {
        self.get(&CallAs::Service, path, limits, what).await?.map_err(|(verdict, said)| error(verdict, what, &said))
    }

    /// Changes one node, as the service account.
    async fn change_node(&self, node: &NodeName, body: &Value, what: &str) -> SchedulerResult<()> {
        calls::check_node(node)?;
        let as_ = CallAs::Service;
        let reply = self.call(&as_, Method::POST, |api| api.node(node), Some(body), ORDINARY, what).await?;
        match self.read::<Envelope>(&as_, reply, what).await? {
            Ok(_) => Ok(()),
            Err((verdict, said)) => Err(error(of_node(verdict), what, &said)),
        }
    }
}

impl Reply {
    fn looks_like_json(&self) -> bool {
        match &self.body {
            Body::Coming(..) => true,
            Body::Failure(body) => body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{'),
        }
    }
}

#[async_trait]
impl Scheduler for SlurmRestd {
    async fn ping(&self) -> SchedulerResult<String> {
        let what = "ping the scheduler";
        let answer: Envelope = self.list(|api| api.ping.clone(), ORDINARY, what).await?;
        answer.version_if_up().ok_or_else(|| unreachable(what, "slurmrestd answers, the scheduler does not"))
    }

    async fn submit(&self, person: &Username, spec: &JobSpec) -> SchedulerResult<JobIdentity> {
        let what = "submit a job";
        check_spec(spec)?;
        let as_ = CallAs::Person(person.clone());
        let body = submit_body(spec);
        let reply = self.call(&as_, Method::POST, |api| api.submit.clone(), Some(&body), ORDINARY, what).await?;
        let answer: Envelope = match self.read(&as_, reply, what).await? {
            Ok(answer) => answer,
            Err((Verdict::Unspecified, said)) => {
                return Err(self.doubts.judge(self, &spec.name, self.clock.now(), what, &said).await);
            }
            Err((verdict, said)) => return Err(error(verdict, what, &said)),
        };
        let id = answer
            .submitted_id()
            .ok_or_else(|| SchedulerError::Malformed { what: format!("{what}: no job number") })?;
        self.doubts.forget(&spec.name);
        match self.job(id).await.map_err(|error| after_submit(what, error))? {
            Some(job) if job.name == spec.name => Ok(job.identity),
            Some(_) | None => Err(unreachable(what, &format!("job {id} was made but could not be read back"))),
        }
    }

    async fn jobs(&self) -> SchedulerResult<scheduler::Jobs> {
        let answer: Listing = self.list(|api| api.jobs.clone(), ALL_JOBS, "list all jobs").await?;
        answer.into_jobs(&self.cluster)
    }

    async fn job(&self, id: u32) -> SchedulerResult<Option<Job>> {
        let what = "ask for a job";
        match self.get::<Jobs>(&CallAs::Service, |api| api.job(id), ORDINARY, what).await? {
            Ok(answer) => convert::one_job(&self.cluster, &answer, id).map(Some),
            Err((Verdict::NoSuchJob, _)) => Ok(None),
            Err((verdict, said)) => Err(error(verdict, what, &said)),
        }
    }

    async fn accounted_jobs(&self, name: &str, since: Timestamp) -> SchedulerResult<Vec<Job>> {
        let what = "look a job up in the accounting database";
        if !is_job_name(name) {
            return Err(bad_name());
        }
        let (from_s, since_s) = accounted_from(since, self.clock.now());
        if self.api().await?.accounting.is_none() {
            // slurmrestd refuses to offer these paths where SLURM has no database. What it offered earlier proves nothing: it may have
            // been restarted since.
            self.forget_api();
            if self.api().await?.accounting.is_none() {
                return Err(SchedulerError::NoAccounting);
            }
        }
        let path = |api: &Api| {
            let jobs = api.accounting.as_ref().map_or("/slurmdb/none", |paths| &paths.jobs);
            format!("{jobs}?job_name={name}&start_time=uts{from_s}&show_duplicates=true&skip_steps=true")
        };
        let answer: AccountedJobs = match self.get(&CallAs::Service, path, ORDINARY, what).await? {
            Ok(answer) => answer,
            Err((Verdict::NothingFound, _)) => return Ok(Vec::new()),
            Err((verdict, said)) => return Err(error(verdict, what, &said)),
        };
        let uid_of = owners::look_up(&self.user_ids, convert::owners(&answer)).await?;
        convert::accounted_jobs(&self.cluster, &answer, name, since_s, uid_of)
    }

    async fn accounts(&self, person: &Username) -> SchedulerResult<Vec<Account>> {
        let what = "list a person's accounts";
        // This is only advice, for which the API is not asked for again.
        if self.api().await?.accounting.is_none() {
            return Err(SchedulerError::NoAccounting);
        }
        let path = |api: &Api| {
            let associations = api.accounting.as_ref().map_or("/slurmdb/none", |paths| &paths.associations);
            format!("{associations}?user={person}")
        };
        match self.get::<PersonAccounts>(&CallAs::Person(person.clone()), path, ORDINARY, what).await? {
            Ok(answer) => Ok(convert::accounts(&answer, person)),
            Err((Verdict::NothingFound, _)) => Ok(Vec::new()),
            Err((verdict, said)) => Err(error(verdict, what, &said)),
        }
    }

    async fn cancel(&self, as_: &CallAs, id: u32) -> SchedulerResult<()> {
        let what = "cancel a job";
        let reply = self.call(as_, Method::DELETE, |api| api.job(id), None, ORDINARY, what).await?;
        match self.read::<Envelope>(as_, reply, what).await? {
            // Up to v0.0.41 a cancel that was refused is answered like one that was not; a cancelled job is so at once.
            Ok(_) => match self.job(id).await? {
                Some(job) if !job.state.is_final() && job.state != JobState::Completing => {
                    Err(error(verdict(ACCESS_DENIED), what, "the job goes on"))
                }
                Some(_) | None => Ok(()),
            },
            Err((Verdict::NoSuchJob | Verdict::AlreadyOver, _)) => Ok(()),
            Err((verdict, said)) => Err(error(verdict, what, &said)),
        }
    }

    async fn nodes(&self) -> SchedulerResult<Vec<Node>> {
        let answer: Nodes = self.list(|api| api.nodes.clone(), ORDINARY, "list all nodes").await?;
        Ok(convert::nodes(&answer))
    }

    async fn drain_node(&self, node: &NodeName, reason: &DrainReason, by: &Username) -> SchedulerResult<()> {
        let body = json!({"state": ["DRAIN"], "reason": signed_reason(reason, by)});
        self.change_node(node, &body, "drain a node").await
    }

    async fn resume_node(&self, node: &NodeName) -> SchedulerResult<()> {
        self.change_node(node, &json!({"state": ["RESUME"]}), "resume a node").await
    }

    async fn partitions(&self) -> SchedulerResult<Vec<Partition>> {
        let answer: Partitions = self.list(|api| api.partitions.clone(), ORDINARY, "list all partitions").await?;
        Ok(self.default_partition.partitions(&answer).await)
    }
}

/// The body of a submit.
fn submit_body(spec: &JobSpec) -> Value {
    let number = |value: u64| json!({"set": true, "infinite": false, "number": value});
    let mut job = json!({
        "name": spec.name,
        "minimum_nodes": spec.nodes,
        "maximum_nodes": spec.nodes,
        "tasks": spec.nodes,
        "tasks_per_node": 1,
        "cpus_per_task": spec.cpus,
        "memory_per_node": number(spec.memory_mib),
        "time_limit": number(spec.walltime_min.into()),
        "environment": spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "current_working_directory": spec.directory,
        "standard_output": spec.output,
        "standard_error": spec.output,
        "open_mode": ["APPEND"],
        "requeue": true,
        // The other nodes, and the app on the first, go on without one that fails.
        "kill_on_node_fail": spec.nodes == 1,
        "kill_warning_flags": ["BATCH_JOB"],
        "kill_warning_signal": "USR1",
        "kill_warning_delay": number(spec.warn_before_end_s.clamp(1, u16::MAX.into()).into()),
    });
    if let Value::Object(job) = &mut job {
        job.extend(spec.node.as_ref().map(|node| ("required_nodes".to_owned(), json!([node.as_str()]))));
        let named = [
            ("account", spec.account.as_ref().map(ToString::to_string)),
            ("qos", spec.qos.as_ref().map(ToString::to_string)),
            ("partition", spec.partition.as_ref().map(ToString::to_string)),
            ("constraints", spec.feature.as_ref().map(ToString::to_string)),
            ("tres_per_node", gpus_per_node(spec)),
        ];
        job.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))));
    }
    json!({"script": spec.script, "job": job})
}

fn gpus_per_node(spec: &JobSpec) -> Option<String> {
    match (spec.gpus, &spec.gpu_type) {
        (0, _) => None,
        (count, None) => Some(format!("gres/gpu:{count}")),
        (count, Some(of_type)) => Some(format!("gres/gpu:{of_type}:{count}")),
    }
}
