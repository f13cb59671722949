//! The load generators, the same for all sides: `wrk` for requests, our own `websocket` for messages. Each runs as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// What one measurement gave.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests or messages a second.
    pub(crate) per_s: f64,
    /// Half of them took at most this long.
    pub(crate) p50_us: f64,
    /// All but one in a hundred took at most this long.
    pub(crate) p99_us: f64,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// 64 bytes.
    SmallGet,
    /// 1 MiB.
    LargeGet,
    /// WebSocket messages of 64 bytes.
    WebSocket,
}

impl Case {
    /// All, in the order of the table.
    pub(crate) const ALL: [Self; 3] = [Self::SmallGet, Self::LargeGet, Self::WebSocket];

    /// As the table shows it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SmallGet => "GET 64 B",
            Self::LargeGet => "GET 1 MiB",
            Self::WebSocket => "WebSocket echo",
        }
    }
}

/// Where the load goes.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Address.
    pub(crate) address: SocketAddr,
    /// File with the headers of every request.
    pub(crate) headers: PathBuf,
}

#[derive(Deserialize)]
struct WrkFigures {
    requests: f64,
    duration_us: f64,
    errors: u64,
    p50_us: f64,
    p99_us: f64,
}

/// Runs one case against one target. A single failed request makes the figures worthless and is an error.
pub(crate) async fn run(
    case: Case,
    target: &Target,
    connections: usize,
    seconds: f64,
    dir: &Path,
) -> anyhow::Result<Load> {
    match case {
        Case::SmallGet => wrk(target, "small", connections, seconds, dir).await,
        Case::LargeGet => wrk(target, "large", connections, seconds, dir).await,
        Case::WebSocket => websocket(target, connections, seconds).await,
    }
}

async fn wrk(target: &Target, path: &str, connections: usize, seconds: f64, dir: &Path) -> anyhow::Result<Load> {
    let script = dir.join("load.lua");
    if !script.exists() {
        std::fs::write(&script, include_str!("load.lua"))?;
    }
    let mut command = Command::new("wrk");
    command
        .args(["--threads=1", "--timeout=30s", "--latency"])
        .arg(format!("--connections={connections}"))
        .arg(format!("--duration={}s", (seconds.round() as u64).max(1)))
        .arg(format!("--script={}", script.display()))
        .arg(format!("http://{}/{path}", target.address))
        .env("EIRENE_BENCH_HEADERS", &target.headers);
    let output = last_line(command).await?;
    let figures: WrkFigures = serde_json::from_str(&output).with_context(|| format!("wrk printed {output}"))?;
    ensure!(figures.errors == 0, "{} of {} requests failed", figures.errors, figures.requests);
    ensure!(figures.requests > 0.0, "no request was answered");
    Ok(Load { per_s: figures.requests / figures.duration_us * 1e6, p50_us: figures.p50_us, p99_us: figures.p99_us })
}

async fn websocket(target: &Target, connections: usize, seconds: f64) -> anyhow::Result<Load> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("websocket")
        .arg(format!("--address={}", target.address))
        .arg(format!("--headers={}", target.headers.display()))
        .arg(format!("--connections={connections}"))
        .arg(format!("--seconds={seconds}"));
    let output = last_line(command).await?;
    serde_json::from_str(&output).with_context(|| format!("websocket printed {output}"))
}

async fn last_line(mut command: Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "the load generator ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    text.lines().last().map(ToOwned::to_owned).context("the load generator printed nothing")
}
