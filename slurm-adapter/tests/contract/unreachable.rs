//! No answer says nothing: a scheduler that cannot be reached is never taken for one that has no such job.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use eirene_core::clock::{Clock as _, SystemClock};
use eirene_core::launcher::{Launcher, LauncherAnswer, LauncherError, LauncherRequest};
use eirene_core::scheduler::{CallAs, Scheduler, SchedulerError};
use eirene_slurm_adapter::{SlurmCli, SlurmRestd};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, SERVICE_ACCOUNT, UNKNOWN_JOB, ada, small_job, until_job, use_ring};

/// Asks everything; returns the errors. Panics when anything succeeds.
async fn all_errors(scheduler: &dyn Scheduler) -> Vec<(&'static str, SchedulerError)> {
    vec![
        ("ping", scheduler.ping().await.unwrap_err()),
        ("jobs", scheduler.jobs().await.unwrap_err()),
        ("job", scheduler.job(UNKNOWN_JOB).await.unwrap_err()),
        ("nodes", scheduler.nodes().await.unwrap_err()),
        ("partitions", scheduler.partitions().await.unwrap_err()),
        ("cancel", scheduler.cancel(&CallAs::Person(ada()), UNKNOWN_JOB).await.unwrap_err()),
        ("submit", scheduler.submit(&ada(), &small_job("exit 0")).await.unwrap_err()),
        ("accounted", scheduler.accounted_jobs("eirene-x", SystemClock.now()).await.unwrap_err()),
    ]
}

fn assert_all_unreachable(errors: &[(&str, SchedulerError)]) {
    for (what, error) in errors {
        assert!(matches!(error, SchedulerError::Unreachable { .. }), "{what}: {error:?}");
    }
}

/// A launcher that signs what it likes and runs nothing.
struct NoPrograms {
    token: &'static str,
}

#[async_trait]
impl Launcher for NoPrograms {
    async fn call(&self, request: LauncherRequest) -> Result<LauncherAnswer, LauncherError> {
        match request {
            LauncherRequest::SignToken { .. } | LauncherRequest::SignServiceToken {} => {
                Ok(LauncherAnswer::Token { token: self.token.to_owned(), expires_in_s: 600 })
            }
            _ => Err(LauncherError::Unreachable { what: "no launcher".into(), source: None }),
        }
    }
}

fn restd_at(url: &str) -> SlurmRestd {
    use_ring();
    SlurmRestd::new(url, SERVICE_ACCOUNT, "demo", Arc::new(NoPrograms { token: "x.y.z" }), Arc::new(SystemClock))
        .unwrap()
}

/// A server that reads a request and answers with these bytes, whatever was asked, and then closes.
async fn answers_with(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
        }
    });
    url
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert_all_unreachable(&all_errors(&restd_at(&url)).await);
}

#[tokio::test]
async fn no_launcher_is_unreachable() {
    let cli = SlurmCli::new("demo", Arc::new(NoPrograms { token: "" }), Arc::new(SystemClock));
    assert_all_unreachable(&all_errors(&cli).await);
}

#[tokio::test]
async fn failures_without_a_body_and_half_answers_are_unreachable() {
    for answer in [
        &b"HTTP/1.1 500 INTERNAL ERROR\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"[..],
        b"HTTP/1.1 502 BAD GATEWAY\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<p>no",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\n{\"jobs\": [",
        b"HTTP/1.1 200",
        b"",
    ] {
        let url = answers_with(answer).await;
        assert_all_unreachable(&all_errors(&restd_at(&url)).await);
    }
}

#[tokio::test]
async fn what_is_no_answer_of_slurm_is_not_understood() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{\"paths\":{}}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{\"jobs\":[]",
    ] {
        let url = answers_with(answer).await;
        for (what, error) in all_errors(&restd_at(&url)).await {
            assert!(matches!(error, SchedulerError::Malformed { .. }), "{what}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_unauthorised() {
    let url = answers_with(
        b"HTTP/1.1 401 UNAUTHORIZED\r\nContent-Length: 22\r\nConnection: close\r\n\r\nAuthentication failure",
    )
    .await;
    for (what, error) in all_errors(&restd_at(&url)).await {
        assert!(matches!(error, SchedulerError::Unauthorised { .. }), "{what}: {error:?}");
    }
    let Some(cluster) = Cluster::find().await else { return };
    for (what, error) in all_errors(&restd_at(&cluster.url)).await {
        assert!(error.is_undetermined(), "{what}: {error:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let restd = restd_at(&format!("http://{}", listener.local_addr().unwrap()));
    let asked = tokio::time::timeout(Duration::from_mins(1), restd.job(1)).await.expect("it gives up by itself");
    assert!(matches!(asked, Err(SchedulerError::Unreachable { .. })), "{asked:?}");
}

/// Asks slurmctld for everything at once; the errors, or none where something succeeded.
async fn ask_all(scheduler: &dyn Scheduler, id: u32) -> Vec<(&'static str, Option<SchedulerError>)> {
    let (ada, spec) = (ada(), small_job("exit 0"));
    let person = CallAs::Person(ada.clone());
    let (ping, jobs, job, unknown, nodes, cancel, submit) = tokio::join!(
        scheduler.ping(),
        scheduler.jobs(),
        scheduler.job(id),
        scheduler.job(UNKNOWN_JOB),
        scheduler.nodes(),
        scheduler.cancel(&person, id),
        scheduler.submit(&ada, &spec),
    );
    vec![
        ("ping", ping.err()),
        ("jobs", jobs.err()),
        ("job", job.err()),
        ("unknown job", unknown.err()),
        ("nodes", nodes.err()),
        ("cancel", cancel.err()),
        ("submit", submit.err()),
    ]
}

/// The scheduler itself stopped, slurmrestd and the programs not: neither says that a job is gone, and the job is still there after.
#[tokio::test]
async fn a_stopped_scheduler_leaves_everything_open() {
    let Some(cluster) = Cluster::find().await else { return };
    let (restd, cli) = (cluster.restd(u32::MAX), cluster.cli());
    let identity = restd.submit(&ada(), &small_job("sleep 60")).await.unwrap();
    // Tokens are signed by slurmctld; those at hand outlive it.
    restd.cancel(&CallAs::Person(ada()), UNKNOWN_JOB).await.unwrap();
    cluster.on_head("root", &["demo-ctl", "slurmctld", "stop"]).await;
    // SLURM itself tries for nine seconds, so everything is asked at once.
    let (of_restd, of_cli) = tokio::join!(ask_all(&restd, identity.id), ask_all(&cli, identity.id));
    cluster.on_head("root", &["demo-ctl", "slurmctld", "start"]).await;
    let begun = std::time::Instant::now();
    while restd.ping().await.is_err() {
        assert!(begun.elapsed() < Duration::from_mins(1), "the scheduler is back");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    for (what, error) in of_restd.into_iter().chain(of_cli) {
        assert!(matches!(error, Some(SchedulerError::Unreachable { .. })), "{what}: {error:?}");
    }
    let job = until_job(&cli, identity.id, "is still there", |_| true).await;
    assert_eq!(job.identity, identity);
    restd.cancel(&CallAs::Service, identity.id).await.unwrap();
}
