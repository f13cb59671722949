//! The built-in store of samples against what it could have been, in turns: rows in SQLite, and where this program is built with `peers` Parquet and an
//! embedded store too. A day of a session of 16 GPUs (twelve series each, and 64 others), a sample of each every five seconds, on the disk once a
//! minute of them, as safe on all sides; then charts of 1,000 points of all series. Beside them, what the same samples take in Prometheus.

#[cfg(feature = "peers")]
mod fjall;
mod many;
mod ours;
#[cfg(feature = "peers")]
mod parquet;
mod prometheus;
mod sides;
mod sqlite;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::results;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{count, mebibytes, millis, table};
use many::Many;
use sides::Side;
use workload::Workload;

/// Samples a second.
const INGEST_GOAL: Goal = Goal::AtLeast(50_000.0);
/// Milliseconds.
const QUERY_GOAL: Goal = Goal::AtMost(50.0);

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Hours of samples.
    #[arg(long, default_value_t = 24)]
    hours: usize,
    /// Series of all sessions, with which the store is measured alone as well; 0: it is not.
    #[arg(long, default_value_t = 250_000)]
    series: usize,
    /// Ticks of these, five seconds each.
    #[arg(long, default_value_t = 240)]
    ticks: usize,
    /// A directory of the disk to measure.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// promtool, to measure what Prometheus takes.
    #[arg(long)]
    promtool: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    series: usize,
    samples: usize,
    ours: Vec<Side>,
    minutes_bytes_per_sample: f64,
    peers: Vec<Peer>,
    prometheus_bytes_per_sample: Option<f64>,
    many: Option<Many>,
}

#[derive(Serialize, Deserialize)]
struct Peer {
    name: String,
    rounds: Vec<Side>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.rounds > 0 && options.hours > 0, "at least one round, and one hour");
    let workload = Workload::new(options.hours);
    println!("{} samples of {} series", count(workload.len() as f64), workload.names.len());
    let mut figures = Figures {
        series: workload.names.len(),
        samples: workload.len(),
        ours: Vec::new(),
        minutes_bytes_per_sample: 0.0,
        peers: Vec::new(),
        prometheus_bytes_per_sample: None,
        many: None,
    };
    let new_directory = || tempfile::Builder::new().prefix("eirene-bench-").tempdir_in(&options.directory);
    // First, while this process has little else.
    if options.series > 0 {
        let many = many::measure(&new_directory()?.path().join("store"), options.series, options.ticks)?;
        println!("{} series: {} samples/s", count(many.series as f64), count(many.samples_per_core_s));
        figures.many = Some(many);
    }
    if let Some(promtool) = &options.promtool {
        let bytes = prometheus::measure(promtool, &new_directory()?.path().join("prometheus"), &workload).await?;
        figures.prometheus_bytes_per_sample = Some(bytes);
    }
    for round in 1..=options.rounds {
        let directory = new_directory()?;
        let (side, minutes) = ours::measure(&directory.path().join("store"), &workload)?;
        said(round, "store", &side);
        figures.minutes_bytes_per_sample = minutes;
        figures.ours.push(side);
        for (place, (name, side)) in peers(directory.path(), &workload).await?.into_iter().enumerate() {
            said(round, name, &side);
            if figures.peers.len() == place {
                figures.peers.push(Peer { name: name.to_owned(), rounds: Vec::new() });
            }
            figures.peers[place].rounds.push(side);
        }
    }
    let figures = serde_json::to_value(figures)?;
    results::write("store", &figures)?;
    show(&figures)
}

/// All others, one after the other.
async fn peers(directory: &Path, workload: &Workload) -> anyhow::Result<Vec<(&'static str, Side)>> {
    let rows = ("SQLite rows", sqlite::measure(&directory.join("rows.sqlite"), workload).await?);
    #[cfg(feature = "peers")]
    let all = vec![
        rows,
        ("Parquet", parquet::measure(&directory.join("parquet"), workload)?),
        ("fjall", fjall::measure(&directory.join("fjall"), workload)?),
    ];
    #[cfg(not(feature = "peers"))]
    let all = vec![rows];
    Ok(all)
}

fn said(round: usize, name: &str, side: &Side) {
    println!(
        "round {round}: {name}: {} samples/s, {} ms",
        count(side.samples_per_core_s),
        millis(side.charts.chart_us)
    );
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let of = |rounds: &[Side], figure: fn(&Side) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    let ours = |figure: fn(&Side) -> f64| of(&figures.ours, figure);
    let names = figures.peers.iter().map(|peer| peer.name.as_str());
    let mut table = table(&["store of samples", "store"].into_iter().chain(names).chain(["goal"]).collect::<Vec<_>>());
    let mut line = |name: &str, figure: fn(&Side) -> f64, shown: fn(f64) -> String, more: bool, goal: String| {
        let us = ours(figure);
        let peer = |peer: &Peer| {
            let them = of(&peer.rounds, figure);
            format!("{} ({:.1} ×)", shown(them), if more { us / them } else { them / us })
        };
        let peers = figures.peers.iter().map(peer);
        table.add_row([name.to_owned(), shown(us)].into_iter().chain(peers).chain([goal]));
    };
    let rate = INGEST_GOAL.mark(ours(|side| side.samples_per_core_s));
    line("samples/s, one core", |side| side.samples_per_core_s, count, true, format!("{INGEST_GOAL}: {rate}"));
    line("samples/s by the clock", |side| side.samples_per_s, count, true, String::new());
    let prometheus = figures.prometheus_bytes_per_sample.map(|bytes| format!("Prometheus: {bytes:.2}"));
    let bytes = |bytes: f64| format!("{bytes:.2}");
    line("bytes a sample", |side| side.bytes_per_sample, bytes, false, prometheus.unwrap_or_default());
    let chart = QUERY_GOAL.mark(ours(|side| side.charts.chart_us) / 1000.0);
    line("chart of all, ms", |side| side.charts.chart_us, millis, false, format!("{QUERY_GOAL}: {chart}"));
    let fine = |side: &Side| side.charts.fine_us.unwrap_or(f64::NAN);
    let goal = QUERY_GOAL.mark(ours(fine) / 1000.0);
    line("the same in 2,000 points, ms", fine, millis, false, format!("{QUERY_GOAL}: {goal}"));
    line("its last hour, ms", |side| side.charts.hour_us, millis, false, String::new());
    println!("{table}");
    println!(
        "{} samples of {} series; in brackets how many times better the store is. Its minutes, kept longer, take {:.2} bytes a sample beside it",
        count(figures.samples as f64),
        figures.series,
        figures.minutes_bytes_per_sample
    );
    if let Some(many) = &figures.many {
        println!(
            "{} series at once, {} ticks: {} samples/s on one core ({INGEST_GOAL}: {}), {} of memory by its own count, the process grew by {}",
            count(many.series as f64),
            many.ticks,
            count(many.samples_per_core_s),
            INGEST_GOAL.mark(many.samples_per_core_s),
            mebibytes(many.memory_bytes),
            mebibytes(many.resident_bytes)
        );
    }
    Ok(())
}
