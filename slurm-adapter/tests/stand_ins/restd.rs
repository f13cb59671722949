//! A slurmrestd that says what a test wants.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use eirene_core::clock::{Clock as _, SystemClock};
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::scheduler::Scheduler;
use eirene_slurm_adapter::{SlurmRestd, UserIds};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::{ada, all_nodes, c1, decided, fan, listed, spec, use_ring};

struct Signs;

#[async_trait]
impl Launcher for Signs {
    async fn call(&self, _: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        Ok(LauncherAnswer::Token { token: "x.y.z".into(), expires_in_s: 600 })
    }
}

/// Knows `ada`; does not get an answer about `away`.
struct Users;

impl UserIds for Users {
    fn uid(&self, name: &str) -> io::Result<Option<u32>> {
        match name {
            "ada" => Ok(Some(2001)),
            "away" => Err(io::Error::other("no answer")),
            _ => Ok(None),
        }
    }
}

#[derive(Clone)]
enum Body {
    Text(String),
    /// A list of so many jobs of `filler` bytes each, of which two are ours; made while it is sent.
    ManyJobs {
        count: u32,
        filler: usize,
    },
}

/// What is answered by path, without its query; the paths are what is offered. Beside it what was posted.
#[derive(Clone, Default)]
struct StandIn(Arc<Mutex<HashMap<String, Body>>>, Arc<Mutex<Vec<String>>>);

const JOBS: &str = "/slurm/v0.0.42/jobs/";
const SUBMIT: &str = "/slurm/v0.0.42/job/submit";
const NODE: &str = "/slurm/v0.0.42/node/c1";
const ACCOUNTED: &str = "/slurmdb/v0.0.42/jobs/";
const ASSOCIATIONS: &str = "/slurmdb/v0.0.42/associations/";

impl StandIn {
    /// A slurmrestd without an accounting database.
    async fn new() -> (Self, SlurmRestd) {
        use_ring();
        let stand_in = Self::default();
        for path in [JOBS, SUBMIT, "/slurm/v0.0.42/nodes/", "/slurm/v0.0.42/partitions/", "/slurm/v0.0.42/ping/"] {
            stand_in.say(path, r#"{"jobs":[]}"#);
        }
        stand_in.say("/slurm/v0.0.42/job/{job_id}", "{}");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = stand_in.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answering = answering.clone();
                tokio::spawn(async move { answering.answer(stream).await });
            }
        });
        let restd = SlurmRestd::new(&url, "eirene-op", "demo", Arc::new(Signs), Arc::new(SystemClock)).unwrap();
        (stand_in, restd.with_user_ids(Arc::new(Users)))
    }

    fn say(&self, path: &str, body: &str) {
        self.0.lock().unwrap().insert(path.into(), Body::Text(body.into()));
    }

    async fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let (mut first, mut length) = (String::new(), 0);
        stream.read_line(&mut first).await?;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            match line.to_ascii_lowercase().trim().split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut posted = vec![0; length];
        stream.read_exact(&mut posted).await?;
        if length > 0 {
            self.1.lock().unwrap().push(String::from_utf8(posted).unwrap());
        }
        let path = first.split(' ').nth(1).and_then(|path| path.split('?').next()).unwrap_or_default();
        let body = if path.starts_with("/openapi") {
            let paths = self.0.lock().unwrap().keys().map(|path| format!(r#""{path}":{{}}"#)).collect::<Vec<_>>();
            Some(Body::Text(format!(r#"{{"paths":{{{}}}}}"#, paths.join(","))))
        } else {
            self.0.lock().unwrap().get(path).cloned()
        };
        let head = if body.is_some() { "200 OK" } else { "404 NOT FOUND" };
        stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        match body {
            Some(Body::Text(text)) => stream.write_all(text.as_bytes()).await?,
            Some(Body::ManyJobs { count, filler }) => {
                let filler = format!(r#","comment":"{}"}}"#, "x".repeat(filler));
                stream.write_all(br#"{"jobs":["#).await?;
                for id in 1..=count {
                    let name = if id == 1 || id == count { "eirene-mine" } else { "other" };
                    let job = listed(id, name);
                    let comma = if id == count { "" } else { "," };
                    stream.write_all(format!("{}{filler}{comma}", job.trim_end_matches('}')).as_bytes()).await?;
                }
                stream.write_all(b"]}").await?;
            }
            None => {}
        }
        stream.shutdown().await
    }
}

/// The most memory that this process had so far, KiB.
fn most_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_fifty_thousand_jobs_is_read_and_not_kept() {
    let (stand_in, restd) = StandIn::new().await;
    assert_eq!(restd.jobs().await.unwrap().ours, []);
    let before = most_memory_kib();
    // 100 MB; real jobs are five times as long, which only takes longer.
    stand_in.0.lock().unwrap().insert(JOBS.into(), Body::ManyJobs { count: 50_000, filler: 2000 });
    let jobs = restd.jobs().await.unwrap();
    assert_eq!(jobs.ours.iter().map(|job| job.identity.id).collect::<Vec<_>>(), [1, 50_000]);
    assert_eq!(jobs.queue.waiting_in(|_| true).jobs, 50_000);
    let grown = most_memory_kib() - before;
    assert!(grown < 24 * 1024, "it took {grown} KiB");
}

#[tokio::test]
async fn no_accounting_database_is_an_answer_until_there_is_one() {
    let (stand_in, restd) = StandIn::new().await;
    let now = SystemClock.now();
    assert_eq!(decided(&restd.accounted_jobs("eirene-x", now).await.unwrap_err()), "no accounting");
    let ada = "ada".parse().unwrap();
    assert_eq!(decided(&restd.accounts(&ada).await.unwrap_err()), "no accounting");
    stand_in.say(ACCOUNTED, r#"{"jobs":[]}"#);
    stand_in.say(ASSOCIATIONS, r#"{"associations":[]}"#);
    assert_eq!(restd.accounted_jobs("eirene-x", now).await.unwrap(), []);
    assert_eq!(restd.accounts(&ada).await.unwrap(), []);
    stand_in.say(ASSOCIATIONS, r#"{"associations":[{"user":"ada","account":"optics"}]}"#);
    assert_eq!(restd.accounts(&ada).await.unwrap()[0].name.as_str(), "optics");
    for number in [7000, -1, 1] {
        stand_in.say(ACCOUNTED, &format!(r#"{{"jobs":[],"errors":[{{"error_number":{number},"error":"no"}}]}}"#));
        assert_eq!(decided(&restd.accounted_jobs("eirene-x", now).await.unwrap_err()), "open", "{number}");
    }
}

#[tokio::test]
async fn a_slurmrestd_that_is_too_old_is_refused_by_name() {
    let (stand_in, restd) = StandIn::new().await;
    stand_in.0.lock().unwrap().clear();
    for parser in [37, 38] {
        for path in ["ping", "jobs", "job/submit", "job/{job_id}", "nodes", "partitions"] {
            stand_in.say(&format!("/slurm/v0.0.{parser}/{path}"), r#"{"jobs":[]}"#);
        }
    }
    for error in [restd.ping().await.unwrap_err(), restd.submit(&ada(), &spec("eirene-a")).await.unwrap_err()] {
        assert_eq!(decided(&error), "unsupported");
        assert!(error.to_string().starts_with("SLURM 22.05 is not supported: "), "{error}");
    }
    assert_eq!(stand_in.1.lock().unwrap().len(), 0, "nothing was posted");
}

#[tokio::test]
async fn an_owner_who_is_gone_is_left_out_and_one_who_cannot_be_looked_up_is_not() {
    let (stand_in, restd) = StandIn::new().await;
    stand_in.say(ASSOCIATIONS, r#"{"associations":[]}"#);
    let accounted = async |owner: &str| {
        let job = |id: u32, owner: &str| {
            format!(
                r#"{{"job_id":{id},"name":"eirene-x","user":"{owner}","state":{{"current":["FAILED"]}},"time":{{"submission":1795250479}}}}"#
            )
        };
        stand_in.say(ACCOUNTED, &format!(r#"{{"jobs":[{},{}]}}"#, job(1, owner), job(2, "ada")));
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        let found = restd.accounted_jobs("eirene-x", since).await;
        found.map(|jobs| jobs.iter().map(|job| job.identity.id).collect::<Vec<_>>())
    };
    assert_eq!(accounted("left").await.unwrap(), [2]);
    assert_eq!(decided(&accounted("away").await.unwrap_err()), "open");
}

#[tokio::test]
async fn an_error_without_a_cause_refuses_only_the_second_time() {
    let (stand_in, restd) = StandIn::new().await;
    stand_in.say(SUBMIT, r#"{"errors":[{"error_number":-1,"error":"Unspecified error"}]}"#);
    let submit = async |name: &str| decided(&restd.submit(&ada(), &spec(name)).await.unwrap_err()).to_owned();
    assert_eq!(submit("eirene-a").await, "open");
    assert_eq!(submit("eirene-b").await, "open", "every name has its own first time");
    assert_eq!(submit("eirene-a").await, "site_rule");
    stand_in.say(JOBS, &format!(r#"{{"jobs":[{}]}}"#, listed(7, "eirene-b")));
    assert_eq!(submit("eirene-b").await, "open", "the job came after all");
}

#[tokio::test]
async fn a_node_is_drained_with_who_asked_and_resumed() {
    let (stand_in, restd) = StandIn::new().await;
    stand_in.say(NODE, r#"{"errors":[]}"#);
    restd.drain_node(&c1(), &fan(), &ada()).await.unwrap();
    restd.resume_node(&c1()).await.unwrap();
    assert_eq!(decided(&restd.resume_node(&all_nodes()).await.unwrap_err()), "node_unknown");
    let posted = stand_in.1.lock().unwrap().clone();
    let posted: Vec<serde_json::Value> = posted.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    let reason = "the \"fan\"; $(id) (eirene: ada)";
    assert_eq!(
        posted,
        [serde_json::json!({"state": ["DRAIN"], "reason": reason}), serde_json::json!({"state": ["RESUME"]})]
    );
}

#[tokio::test]
async fn a_node_that_is_not_changed_says_why() {
    let (stand_in, restd) = StandIn::new().await;
    for (number, code) in [
        (2010, "node_not_permitted"),
        (2002, "node_not_permitted"),
        (2018, "node_unknown"),
        (2028, "node_not_drained"),
        (1, "open"),
    ] {
        stand_in.say(NODE, &format!(r#"{{"errors":[{{"error_number":{number},"error":"x"}}]}}"#));
        assert_eq!(decided(&restd.drain_node(&c1(), &fan(), &ada()).await.unwrap_err()), code, "{number}");
        assert_eq!(decided(&restd.resume_node(&c1()).await.unwrap_err()), code, "{number}");
    }
}
