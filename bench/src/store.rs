//! The built-in store of samples against rows in SQLite, in turns: a day of a session of 16 GPUs (six series each, and 64 others), a sample
//! of each every five seconds, on the disk once a minute of them, as safe on both sides; then charts of 1,000 points of all series.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use eirene_monitoring_store::{Options as StoreOptions, Query, Sample, SessionId, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, QueryBuilder, Row as _, Sqlite, SqliteConnection};

use crate::results;
use crate::stats::median;
use crate::summary::Goal;
use crate::table::{count, millis, table};

const GPUS: usize = 16;
const OF_GPU: [&str; 6] = ["util", "memory", "power", "temperature", "clock", "ecc"];
const OTHERS: usize = 64;
const BEGIN_MS: i64 = 1_767_225_600_000;
const EVERY_MS: i64 = 5000;
/// Ticks between flushes.
const FLUSH: usize = 12;
/// Points of the chart.
const POINTS: u32 = 1000;
const SESSION: SessionId = SessionId([5; 16]);

/// Samples a second.
const INGEST_GOAL: Goal = Goal::AtLeast(50_000.0);
/// Milliseconds.
const QUERY_GOAL: Goal = Goal::AtMost(50.0);
/// Bytes of a sample, as its authors have published them for data of their own.
const PROMETHEUS_BYTES: f64 = 1.3;

/// How much.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Hours of samples.
    #[arg(long, default_value_t = 24)]
    hours: usize,
    /// A directory of the disk to measure.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
}

/// One side in one round.
#[derive(Serialize, Deserialize, Clone)]
struct Side {
    samples_per_s: f64,
    bytes_per_sample: f64,
    chart_us: f64,
    hour_us: f64,
}

#[derive(Serialize, Deserialize)]
struct Figures {
    series: usize,
    samples: usize,
    ours: Vec<Side>,
    minutes_bytes_per_sample: f64,
    sqlite: Vec<Side>,
}

/// Measures and prints.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(options.rounds > 0 && options.hours > 0, "at least one round, and one hour");
    let names = names();
    let ticks = options.hours * 720;
    println!("making {} samples of {} series", ticks * names.len(), names.len());
    let values = workload(ticks);
    let mut figures = Figures {
        series: names.len(),
        samples: values.len(),
        ours: Vec::new(),
        minutes_bytes_per_sample: 0.0,
        sqlite: Vec::new(),
    };
    for round in 1..=options.rounds {
        let dir = tempfile::Builder::new().prefix("eirene-bench-").tempdir_in(&options.directory)?;
        let (side, minutes) = ours(&dir.path().join("store"), &names, &values)?;
        println!("round {round}: store {} samples/s, {} ms", count(side.samples_per_s), millis(side.chart_us));
        figures.minutes_bytes_per_sample = minutes;
        figures.ours.push(side);
        let side = sqlite(&dir.path().join("rows.sqlite"), &names, &values).await?;
        println!("round {round}: SQLite {} samples/s, {} ms", count(side.samples_per_s), millis(side.chart_us));
        figures.sqlite.push(side);
    }
    let figures = serde_json::to_value(figures)?;
    results::write("store", &figures)?;
    show(&figures)
}

/// Prints the table of one run.
pub(crate) fn show(figures: &Value) -> anyhow::Result<()> {
    let figures = Figures::deserialize(figures)?;
    let of = |sides: &[Side], figure: fn(&Side) -> f64| median(&sides.iter().map(figure).collect::<Vec<_>>());
    let mut table = table(&["store of samples", "store", "SQLite rows", "ratio", "goal"]);
    let (ours, rows) = (&figures.ours, &figures.sqlite);
    let mut line = |name: &str, figure: fn(&Side) -> f64, shown: fn(f64) -> String, more: bool, goal: String| {
        let (us, them) = (of(ours, figure), of(rows, figure));
        let ratio = if more { us / them } else { them / us };
        table.add_row([name.to_owned(), shown(us), shown(them), format!("{ratio:.1} ×"), goal]);
    };
    let rate = INGEST_GOAL.mark(of(ours, |side| side.samples_per_s));
    line("samples/s, one core", |side| side.samples_per_s, count, true, format!("{INGEST_GOAL}: {rate}"));
    let bytes = |bytes: f64| format!("{bytes:.2}");
    line("bytes a sample", |side| side.bytes_per_sample, bytes, false, format!("Prometheus: {PROMETHEUS_BYTES}"));
    let chart = QUERY_GOAL.mark(of(ours, |side| side.chart_us) / 1000.0);
    line("chart of all, ms", |side| side.chart_us, millis, false, format!("{QUERY_GOAL}: {chart}"));
    line("its last hour, ms", |side| side.hour_us, millis, false, String::new());
    println!("{table}");
    println!(
        "{} samples of {} series; minutes, kept longer, take {:.2} bytes a sample beside it",
        count(figures.samples as f64),
        figures.series,
        figures.minutes_bytes_per_sample
    );
    Ok(())
}

fn names() -> Vec<String> {
    let gpus = (0..GPUS).flat_map(|gpu| OF_GPU.map(|figure| format!("c1/gpu/{gpu}/{figure}")));
    gpus.chain((0..OTHERS).map(|other| format!("c1/other/{other}"))).collect()
}

/// What such a session looks like: phases of work and of waiting, as the sensors round it. One tick after the other.
fn workload(ticks: usize) -> Vec<f64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    // 0 to 1 (Marsaglia, Xorshift RNGs, 2003).
    let mut chance = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut values = Vec::with_capacity(ticks * (GPUS * OF_GPU.len() + OTHERS));
    let (mut bytes_read, mut steps) = (0.0, 0.0);
    for tick in 0..ticks {
        let busy = tick % 720 > 90;
        for _ in 0..GPUS {
            let util = if busy { (88.0 + 12.0 * chance()).floor() } else { 0.0 };
            values.push(util);
            values.push(if busy { 70.0 * 1024.0 * 1024.0 * 1024.0 } else { 4_194_304.0 });
            // NVML says milliwatts.
            values.push(if busy { (400_000.0 + 250_000.0 * chance()).floor() / 1000.0 } else { 71.25 });
            values.push(if busy { (61.0 + 4.0 * chance()).floor() } else { 34.0 });
            values.push(if busy { 1980.0 - 15.0 * (3.0 * chance()).floor() } else { 345.0 });
            values.push(0.0);
        }
        for other in 0..OTHERS {
            values.push(match other {
                // Cores, per cent with a digit.
                0..32 => (if busy { 900.0 + 100.0 * chance() } else { 20.0 * chance() }).floor() / 10.0,
                // Bytes in pages, and of counters.
                32..40 => 4096.0 * (30_000_000.0 + 50_000.0 * chance()).floor(),
                40..48 => {
                    bytes_read += (3_000_000.0 * chance()).floor();
                    bytes_read
                }
                // Rates and a loss: all digits there are.
                48..56 => 1e8 * chance(),
                56..60 => {
                    steps += 1.0;
                    f64::from((2.0 / (1.0 + steps / 1e4) + 0.01 * chance()) as f32)
                }
                _ => 1.0,
            });
        }
    }
    values
}

fn at(tick: usize) -> i64 {
    BEGIN_MS + i64::try_from(tick).unwrap_or(0) * EVERY_MS
}

fn ours(path: &Path, names: &[String], values: &[f64]) -> anyhow::Result<(Side, f64)> {
    let store = Store::open(path, &StoreOptions::default())?;
    let begun = Instant::now();
    let mut taken = 0;
    let mut last = BEGIN_MS;
    for (tick, row) in values.chunks(names.len()).enumerate() {
        last = at(tick);
        let batch: Vec<Sample<'_>> =
            names.iter().zip(row).map(|(name, value)| Sample { name, at_ms: last, value: *value }).collect();
        taken += store.append(last, SESSION, &batch);
        if tick % FLUSH == FLUSH - 1 {
            store.flush()?;
            store.maintain(last)?;
        }
    }
    store.flush()?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(taken == values.len(), "{taken} of {} samples were taken", values.len());
    // What is closed is what lies there for days; the rest is closed here to be counted.
    let chart_us = chart(&store, BEGIN_MS, last + 1)?;
    let hour_us = chart(&store, last - 3_600_000, last + 1)?;
    store.close_chunks(last)?;
    let bytes = |word: &str| -> anyhow::Result<f64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            bytes += if entry.file_name().to_string_lossy().starts_with(word) { entry.metadata()?.len() } else { 0 };
        }
        Ok(bytes as f64 / values.len() as f64)
    };
    let side = Side { samples_per_s: taken as f64 / seconds, bytes_per_sample: bytes("raw")?, chart_us, hour_us };
    Ok((side, bytes("minutes")?))
}

fn chart(store: &Store, from_ms: i64, to_ms: i64) -> anyhow::Result<f64> {
    let mut micros = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        let answer = store.query(&Query { session: SESSION, prefix: "", from_ms, to_ms, points: POINTS })?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        ensure!(answer.lines.len() == GPUS * OF_GPU.len() + OTHERS, "a series is missing");
    }
    Ok(median(&micros))
}

async fn sqlite(path: &Path, names: &[String], values: &[f64]) -> anyhow::Result<Side> {
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await?;
    sqlx::query("CREATE TABLE sample (series INTEGER, at INTEGER, value REAL, PRIMARY KEY (series, at)) WITHOUT ROWID")
        .execute(&mut connection)
        .await?;
    let begun = Instant::now();
    let mut tick = 0;
    for rows in values.chunks(names.len() * FLUSH) {
        let mut transaction = connection.begin().await?;
        for row in rows.chunks(names.len()) {
            let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO sample (series, at, value) ");
            insert.push_values((0_i64..).zip(row), |mut bind, (series, value)| {
                bind.push_bind(series).push_bind(at(tick)).push_bind(*value);
            });
            insert.build().execute(&mut *transaction).await?;
            tick += 1;
        }
        transaction.commit().await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    let last = at(tick - 1);
    let chart_us = rows_chart(&mut connection, BEGIN_MS, last + 1).await?;
    let hour_us = rows_chart(&mut connection, last - 3_600_000, last + 1).await?;
    connection.close().await?;
    let bytes_per_sample = std::fs::metadata(path)?.len() as f64 / values.len() as f64;
    Ok(Side { samples_per_s: values.len() as f64 / seconds, bytes_per_sample, chart_us, hour_us })
}

async fn rows_chart(connection: &mut SqliteConnection, from_ms: i64, to_ms: i64) -> anyhow::Result<f64> {
    const CHART: &str = "SELECT series, at / ?1 AS span, MIN(value), AVG(value), MAX(value), COUNT(*) FROM sample \
                         WHERE series BETWEEN 0 AND 1000 AND at >= ?2 AND at < ?3 GROUP BY series, span ORDER BY series, span";
    let mut micros = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let step = (to_ms - from_ms) / i64::from(POINTS) + 1;
        let rows = sqlx::query(CHART).bind(step).bind(from_ms).bind(to_ms).fetch_all(&mut *connection).await?;
        let means: Vec<f64> = rows.iter().map(|row| row.try_get(3)).collect::<Result<_, _>>()?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        ensure!(!means.is_empty(), "no rows");
    }
    Ok(median(&micros))
}
