//! Resident memory with many running sessions, and sizes: eirened and agents are the real ones, see [`crate::rig`]. Each session
//! has been used once through the proxy.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

use crate::load::{self, Case};
use crate::process::{peak, resident, root, stop};
use crate::results;
use crate::rig::{Rig, program};
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{mebibytes, table};

/// MiB for eirened.
const PORTAL_GOAL: Goal = Goal::AtMost(80.0);
/// MiB for an agent.
const AGENT_GOAL: Goal = Goal::AtMost(20.0);
/// The binaries of a release.
const BINARIES: [&str; 4] = ["eirened", "eirene-launcher", "eirene-agent", "eirene"];
/// Until buffers of the start are given back and the first polls and heartbeats are over.
const SETTLE: Duration = Duration::from_secs(15);
const MIB: f64 = 1024.0 * 1024.0;

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sessions.
    #[arg(long, default_value_t = 100)]
    sessions: usize,
    /// Also builds everything from nothing and prints the time.
    #[arg(long)]
    cold_build: bool,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    sessions: usize,
    portal_bytes: f64,
    portal_empty_bytes: f64,
    agent_bytes: Vec<f64>,
    portal_busy_bytes: f64,
    agent_busy_bytes: f64,
    binaries: Vec<(String, f64)>,
    cold_build_s: Option<f64>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.sessions > 0, "at least one session");
    let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir()?;
    let empty = Rig::start(0, dir.path().join("empty").as_path()).await?;
    tokio::time::sleep(SETTLE).await;
    let portal_empty_bytes = resident_of(empty.portal.pid())?;
    stop(empty.into_servers()).await?;
    let rig = Rig::start(options.sessions, dir.path().join("full").as_path()).await?;
    println!("{} sessions are running; waiting {} s", options.sessions, SETTLE.as_secs());
    tokio::time::sleep(SETTLE).await;
    let portal_bytes = resident_of(rig.portal.pid())?;
    let agent_bytes = rig.agents.iter().map(|agent| resident_of(agent.pid())).collect::<anyhow::Result<Vec<f64>>>()?;
    // One session under the heaviest load of bench/proxy: what its agent and the portal hold then, at most.
    load::run(Case::LargeGet, &rig.target()?, 200, 3.0, dir.path()).await?;
    let busy = |pid: Option<u32>| anyhow::Ok(peak(pid.context("it has ended")?)? as f64);
    let (portal_busy_bytes, agent_busy_bytes) = (busy(rig.portal.pid())?, busy(rig.agents[0].pid())?);
    stop(rig.into_servers()).await?;
    let size = |name: &str| anyhow::Ok((name.to_owned(), std::fs::metadata(program(name)?)?.len() as f64));
    let binaries = BINARIES.into_iter().map(size).collect::<anyhow::Result<Vec<_>>>()?;
    let cold_build_s = if options.cold_build { Some(cold_build(dir.path()).await?) } else { None };
    let sessions = options.sessions;
    let figures = Figures {
        sessions,
        portal_bytes,
        portal_empty_bytes,
        agent_bytes,
        portal_busy_bytes,
        agent_busy_bytes,
        binaries,
        cold_build_s,
    };
    let figures = serde_json::to_value(figures)?;
    results::write("memory", &figures)?;
    show(&figures)
}

fn resident_of(pid: Option<u32>) -> anyhow::Result<f64> {
    Ok(resident(pid.context("it has ended")?)? as f64)
}

async fn cold_build(dir: &Path) -> anyhow::Result<f64> {
    println!("building everything from nothing");
    let begun = Instant::now();
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--quiet"])
        .args(BINARIES.iter().flat_map(|name| ["--bin", name]))
        .arg("--target-dir")
        .arg(dir.join("target"))
        .current_dir(root())
        .status()
        .await?;
    ensure!(status.success(), "cargo build ended with {status}");
    Ok(begun.elapsed().as_secs_f64())
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let most = figures.agent_bytes.iter().copied().fold(0.0, f64::max);
    let mut table = table(&["resident", "measured", "goal, MiB", "reached"]);
    let full = format!("eirened, {} running sessions", figures.sessions);
    let rows: [(&str, f64, Option<Goal>); 6] = [
        ("eirened, no session", figures.portal_empty_bytes, None),
        (&full, figures.portal_bytes, Some(PORTAL_GOAL)),
        ("agent, median", median(&figures.agent_bytes), None),
        ("agent, largest", most, Some(AGENT_GOAL)),
        ("eirened, peak with 200 downloads of 1 MiB in one session", figures.portal_busy_bytes, None),
        ("that session's agent, peak", figures.agent_busy_bytes, None),
    ];
    for (what, bytes, goal) in rows {
        let (goal, mark) = goal.map(|goal| (goal.to_string(), goal.mark(bytes / MIB))).unwrap_or_default();
        table.add_row([what.to_owned(), mebibytes(bytes), goal, mark]);
    }
    println!("{table}");
    for (name, bytes) in &figures.binaries {
        println!("{name}: {} on disk", mebibytes(*bytes));
    }
    if let Some(seconds) = figures.cold_build_s {
        println!("cold release build: {seconds:.0} s");
    }
    Ok(())
}
