//! The inside half of `launch`: runs in the portal container as the person, so that both ways start in the same place.
//!
//! Reads a [`Task`] from standard input (the token is in it, so it is in nobody's process list) and prints one line of JSON
//! a measurement. Both ways are polled at the same pace, a new connection each time, and the allocation of the round before is gone
//! before the next begins. SLURM starts batch jobs at a tick once a second: each pair of measurements begins at the same,
//! per round different, point of the wall clock's second, so that both ways meet the tick equally often early and late.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use hyper::StatusCode;
use rand::RngExt as _;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::http::Ask;

/// Pause between two looks at the app.
const POLL: Duration = Duration::from_millis(10);
/// Longest wait for the app, and for the cluster to be empty again.
const PATIENCE: Duration = Duration::from_mins(2);
/// The page that is asked for.
const PAGE: &str = "/lab";

/// What to measure.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    /// Rounds.
    pub(crate) rounds: usize,
    /// Address of the portal as this container sees it.
    pub(crate) portal: SocketAddr,
    /// Host and port of the portal.
    pub(crate) portal_host: String,
    /// Host and port under which session origins lie.
    pub(crate) apps_domain: String,
    /// API token.
    pub(crate) token: String,
    /// The SIF file that both run.
    pub(crate) image: String,
    /// The node that both run on: the first of an empty cluster.
    pub(crate) node: String,
    /// The app's command line in the bare job; `@PORT@` and `@NODE@` are filled in.
    pub(crate) bare_command: Vec<String>,
    /// CPUs and memory of both.
    pub(crate) cpus: u32,
    /// Memory, MiB.
    pub(crate) memory_mib: u64,
}

/// The two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// `sbatch` and the app on a TCP port, polled directly.
    Bare,
    /// `POST /api/v1/sessions` and the app through the proxy.
    Eirene,
}

/// One measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Round, from 0; the first is for warming up.
    pub(crate) round: usize,
    /// Way.
    pub(crate) way: Way,
    /// Until the submit was answered.
    pub(crate) submitted_ms: f64,
    /// Until the first 200.
    pub(crate) ready_ms: f64,
    /// How often which answer came before (0 is none: refused or cut).
    pub(crate) answers: BTreeMap<u16, u32>,
    /// The session at the end, ours only.
    pub(crate) session: Option<Value>,
}

/// Reads the task, measures, prints.
pub(crate) async fn run() -> anyhow::Result<()> {
    let task: Task = serde_json::from_reader(std::io::stdin())?;
    let mut phases: Vec<f64> = (0..task.rounds).map(|slot| (slot as f64 + 0.5) / task.rounds as f64).collect();
    phases.shuffle(&mut rand::rng());
    // The first round warms caches up and is left out of the figures.
    for round in 0..=task.rounds {
        let phase = if round == 0 { 0.0 } else { phases[round - 1] };
        let mut ways = [Way::Bare, Way::Eirene];
        ways.shuffle(&mut rand::rng());
        for way in ways {
            wait_empty().await?;
            wait_phase(phase).await;
            let launch = match way {
                Way::Bare => bare(&task, round).await.context("bare sbatch")?,
                Way::Eirene => eirene(&task, round).await.context("eirene")?,
            };
            println!("{}", serde_json::to_string(&launch)?);
        }
    }
    wait_empty().await
}

async fn bare(task: &Task, round: usize) -> anyhow::Result<Launch> {
    let port: u16 = rand::rng().random_range(20_000..30_000);
    let node = tokio::net::lookup_host((task.node.as_str(), port)).await?.next().context("the node has an address")?;
    let secret = format!("{:032x}", rand::rng().random::<u128>());
    let command: Vec<String> = task
        .bare_command
        .iter()
        .map(|word| word.replace("@PORT@", &port.to_string()).replace("@NODE@", &task.node))
        .collect();
    let script = format!("#!/bin/sh\nexec apptainer exec {} {}\n", task.image, command.join(" "));
    let begun = Instant::now();
    let mut child = Command::new("sbatch")
        .args(["--parsable", "--nodes=1", "--ntasks=1", "--time=10", "--output=/dev/null", "--job-name=bench"])
        .arg(format!("--cpus-per-task={}", task.cpus))
        .arg(format!("--mem={}", task.memory_mib))
        .arg(format!("--nodelist={}", task.node))
        .env("JUPYTER_TOKEN", &secret)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut input = child.stdin.take().context("piped")?;
    input.write_all(script.as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "sbatch ended with {}", output.status);
    let submitted_ms = begun.elapsed().as_secs_f64() * 1e3;
    let job = String::from_utf8(output.stdout)?.trim().to_owned();
    let authorization = format!("token {secret}");
    let ready = poll(begun, node, &format!("{}:{port}", task.node), &authorization).await;
    Command::new("scancel").arg(&job).status().await?;
    let (ready_ms, answers) = ready?;
    Ok(Launch { round, way: Way::Bare, submitted_ms, ready_ms, answers, session: None })
}

async fn eirene(task: &Task, round: usize) -> anyhow::Result<Launch> {
    let authorization = format!("Bearer {}", task.token);
    let ask = |method, path, body| Ask {
        address: task.portal,
        host: &task.portal_host,
        method,
        path,
        authorization: Some(&authorization),
        body,
    };
    let body = json!({"app": "jupyterlab", "image": "jupyter", "nodes": 1, "cpus": task.cpus, "memory_mib": task.memory_mib, "gpus": 0, "walltime_min": 10});
    let begun = Instant::now();
    let (status, answer) = ask("POST", "/api/v1/sessions", Some(body.to_string())).send().await?;
    let submitted_ms = begun.elapsed().as_secs_f64() * 1e3;
    ensure!(status == StatusCode::CREATED, "start: {status} {}", String::from_utf8_lossy(&answer));
    let session: Value = serde_json::from_slice(&answer)?;
    let id = session["id"].as_str().context("a session has an id")?;
    let ready = poll(begun, task.portal, &format!("{id}.{}", task.apps_domain), &authorization).await;
    let path = format!("/api/v1/sessions/{id}");
    let (_, shown) = ask("GET", &path, None).send().await?;
    let (status, _) = ask("DELETE", &path, None).send().await?;
    let shown = String::from_utf8_lossy(&shown);
    let (ready_ms, answers) = ready.with_context(|| shown.clone().into_owned())?;
    ensure!(status == StatusCode::ACCEPTED, "stop: {status}");
    let session = serde_json::from_str(&shown).ok();
    Ok(Launch { round, way: Way::Eirene, submitted_ms, ready_ms, answers, session })
}

async fn poll(
    begun: Instant,
    address: SocketAddr,
    host: &str,
    authorization: &str,
) -> anyhow::Result<(f64, BTreeMap<u16, u32>)> {
    let mut answers = BTreeMap::new();
    while begun.elapsed() < PATIENCE {
        let authorization = Some(authorization);
        let ask = Ask { address, host, method: "GET", path: PAGE, authorization, body: None };
        let status = ask.send().await.map_or(0, |(status, _)| status.as_u16());
        if status == 200 {
            return Ok((begun.elapsed().as_secs_f64() * 1e3, answers));
        }
        *answers.entry(status).or_default() += 1;
        tokio::time::sleep(POLL).await;
    }
    bail!("no 200 within {PATIENCE:?}; answers so far: {answers:?}")
}

/// Waits until the person has no job left, so that a measurement meets an empty cluster.
async fn wait_empty() -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let output = Command::new("squeue").args(["--me", "--noheader", "--format=%A"]).output().await?;
        if output.status.success() && output.stdout.trim_ascii().is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    bail!("jobs of this person do not end: squeue --me")
}

/// Waits until the wall clock's second is at `phase` (0 to 1), at least half a second from now.
async fn wait_phase(phase: f64) {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let wait = (phase - f64::from(now) / 1e9).rem_euclid(1.0);
    tokio::time::sleep(Duration::from_secs_f64(wait)).await;
}
