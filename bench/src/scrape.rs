//! What Prometheus asks for while many sessions run: eirened as it is, with rows written beforehand and samples of each session in its store.
//! `/metrics` has to be as long as with two sessions; the list of targets grows with them; and one session's samples are found among all.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use eirene_core::{Clock as _, SessionId, SystemClock};
use eirene_monitoring_store::{Options as StoreOptions, Sample, SessionId as StoreId, Store};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::Ask;
use crate::process::stop;
use crate::results;
use crate::rig::Rig;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{count, millis, table};

/// Milliseconds of a scrape.
const SCRAPE_GOAL: Goal = Goal::AtMost(200.0);
/// What runs last for the first time: each is told of from then on.
const LAST_TO_RUN: [&str; 3] = ["rights", "scratch_rescue", "cluster_past"];
/// How often it is looked whether they have, and for how long at most.
const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(3);
/// How long samples are told of each session, seconds before and after now: nobody says them anew.
const TOLD_S: std::ops::Range<i64> = -20..280;
const EVERY_S: usize = 5;
/// Series of a session, as eirened names them in its store.
const SERIES: [&str; 12] = [
    "cpu/cpu_seconds/c1",
    "cpu/processes/c1",
    "cpu/probe_cpu_seconds/c1",
    "memory/memory_bytes/c1",
    "memory/memory_peak_bytes/c1",
    "memory/memory_limit_bytes/c1",
    "memory/node_memory_bytes/c1",
    "io/io_read_bytes/c1",
    "io/io_written_bytes/c1",
    "network/net_receive_bytes/c1/eth0",
    "gpu/gpu_util/c1/0",
    "report/report/c1/loss",
];

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Sessions.
    #[arg(long, default_value_t = 2000)]
    sessions: usize,
    /// Scrapes of each.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    sessions: usize,
    series: usize,
    series_of_two: usize,
    /// What is told of many sessions and not of two.
    #[serde(default)]
    only_of_many: Vec<String>,
    bytes: usize,
    metrics_us: Vec<f64>,
    targets_us: Vec<f64>,
    session_us: Vec<f64>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.sessions > 1 && options.rounds > 0, "at least two sessions, and one round");
    let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir()?;
    let two = started(2, &dir.path().join("two")).await?;
    // Both are asked the same, and as often: a request that has not come yet is no series.
    let of_two = rounds(&two, options.rounds).await?.text;
    stop(two.into_servers()).await?;
    println!("writing {} sessions", options.sessions);
    let rig = started(options.sessions, &dir.path().join("many")).await?;
    let of_many = rounds(&rig, options.rounds).await?;
    stop(rig.into_servers()).await?;
    let known: HashSet<&str> = series(&of_two).collect();
    let figures = Figures {
        sessions: options.sessions,
        series: series(&of_many.text).count(),
        series_of_two: known.len(),
        only_of_many: series(&of_many.text).filter(|name| !known.contains(name)).map(ToOwned::to_owned).collect(),
        bytes: of_many.text.len(),
        metrics_us: of_many.metrics_us,
        targets_us: of_many.targets_us,
        session_us: of_many.session_us,
    };
    let figures = serde_json::to_value(figures)?;
    results::write("scrape", &figures)?;
    show(&figures)
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let mut table = table(&["scrape", "median, ms", "longest, ms", "goal, ms", "reached"]);
    let rows: [(&str, &[f64], Option<Goal>); 3] = [
        ("/metrics", &figures.metrics_us, Some(SCRAPE_GOAL)),
        ("/metrics/sessions", &figures.targets_us, None),
        ("/metrics/sessions/{id}", &figures.session_us, None),
    ];
    for (what, micros, goal) in rows {
        let longest = micros.iter().copied().fold(0.0, f64::max);
        let (goal, mark) = goal.map(|goal| (goal.to_string(), goal.mark(longest / 1000.0))).unwrap_or_default();
        table.add_row([what.to_owned(), millis(median(micros)), millis(longest), goal, mark]);
    }
    println!("{table}");
    println!(
        "/metrics with {} running sessions: {} series, {} bytes; with two: {} series",
        count(figures.sessions as f64),
        figures.series,
        count(figures.bytes as f64),
        figures.series_of_two
    );
    for name in figures.only_of_many {
        println!("  only with many: {name}");
    }
    Ok(())
}

/// What was answered, and how long that took each time.
struct Rounds {
    metrics_us: Vec<f64>,
    targets_us: Vec<f64>,
    session_us: Vec<f64>,
    /// The last `/metrics`.
    text: String,
}

/// Asks for everything so many times.
async fn rounds(rig: &Rig, count: usize) -> anyhow::Result<Rounds> {
    let last = rig.sessions().last().map(|session| format!("/metrics/sessions/{session}")).unwrap_or_default();
    let mut rounds =
        Rounds { metrics_us: Vec::new(), targets_us: Vec::new(), session_us: Vec::new(), text: String::new() };
    for _ in 0..count {
        let (micros, text) = scrape(rig, "/metrics").await?;
        rounds.text = text;
        rounds.metrics_us.push(micros);
        let (micros, text) = scrape(rig, "/metrics/sessions").await?;
        ensure!(text.matches("__metrics_path__").count() == rig.sessions().len(), "a session is no target");
        rounds.targets_us.push(micros);
        let (micros, text) = scrape(rig, &last).await?;
        ensure!(series(&text).count() == SERIES.len(), "of a session this is told:\n{text}");
        rounds.session_us.push(micros);
    }
    Ok(rounds)
}

/// A portal that has been asked for everything once.
async fn started(count: usize, dir: &Path) -> anyhow::Result<Rig> {
    let rig = Rig::start_rows(count, dir, tell).await?;
    let ran = |text: &str| {
        let of = |name| format!("eirene_reconciler_run_seconds_count{{name=\"{name}\"}}");
        LAST_TO_RUN.iter().all(|name| text.contains(&of(name)))
    };
    let begun = Instant::now();
    while !ran(&scrape(&rig, "/metrics").await?.1) {
        ensure!(begun.elapsed() < PATIENCE, "not everything that counts has counted");
        tokio::time::sleep(LOOK).await;
    }
    let first = rig.sessions().first().map(|session| format!("/metrics/sessions/{session}")).unwrap_or_default();
    for path in ["/metrics", "/metrics/sessions", &first] {
        scrape(&rig, path).await?;
    }
    Ok(rig)
}

/// Samples of all sessions, as their agents would say them now.
fn tell(directory: &Path, sessions: &[SessionId]) -> anyhow::Result<()> {
    let store = Store::open(directory, &StoreOptions::default())?;
    let now = SystemClock.now();
    for second in TOLD_S.step_by(EVERY_S) {
        let at_ms = now.as_millisecond() + second * 1000;
        for session in sessions {
            let value = (second - TOLD_S.start) as f64;
            let samples = SERIES.map(|name| Sample { name, at_ms, value });
            let taken = store.append(now.as_millisecond(), StoreId(session.to_bytes()), &samples);
            ensure!(taken == samples.len(), "{taken} of {} samples were taken", samples.len());
        }
        store.flush()?;
    }
    Ok(())
}

/// What is answered, and how many microseconds that took.
async fn scrape(rig: &Rig, path: &str) -> anyhow::Result<(f64, String)> {
    let (address, host) = rig.portal_at();
    let ask = Ask { address, host: &host, method: "GET", path, authorization: None, body: None };
    let begun = Instant::now();
    let (status, body) = ask.send().await?;
    let micros = begun.elapsed().as_secs_f64() * 1e6;
    let text = String::from_utf8(body.to_vec())?;
    ensure!(status == StatusCode::OK, "{path}: {status} {text}");
    Ok((micros, text))
}

/// The series that a text has, by name and labels.
fn series(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name))
}
