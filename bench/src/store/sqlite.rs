//! Rows in SQLite.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, QueryBuilder, Row as _, Sqlite, SqliteConnection};

use super::sides::{Charts, FLUSH, Side, Taking, step_ms};
use super::workload::{Span, Workload};
use crate::stats::median;

/// How often a chart is drawn.
const CHARTS: usize = 3;

/// Measures it: a row a sample, a statement a tick, a transaction a flush.
pub(super) async fn measure(path: &Path, workload: &Workload) -> anyhow::Result<Side> {
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
    let taking = Taking::begin()?;
    let ticks: Vec<(i64, &[f64])> = workload.ticks().collect();
    for rows in ticks.chunks(FLUSH) {
        let mut transaction = connection.begin().await?;
        for (at, row) in rows {
            let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO sample (series, at, value) ");
            insert.push_values((0_i64..).zip(*row), |mut bind, (series, value)| {
                bind.push_bind(series).push_bind(*at).push_bind(*value);
            });
            insert.build().execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
    }
    let (samples_per_core_s, samples_per_s) = taking.end(workload.len())?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    let charts = Charts {
        chart_us: chart(&mut connection, workload.whole()).await?,
        fine_us: Some(chart(&mut connection, workload.fine()).await?),
        hour_us: chart(&mut connection, workload.hour()).await?,
    };
    connection.close().await?;
    let bytes_per_sample = std::fs::metadata(path)?.len() as f64 / workload.len() as f64;
    Ok(Side { samples_per_core_s, samples_per_s, bytes_per_sample, charts })
}

async fn chart(connection: &mut SqliteConnection, span: Span) -> anyhow::Result<f64> {
    const CHART: &str = "SELECT series, at / ?1 AS span, MIN(value), AVG(value), MAX(value), COUNT(*) FROM sample \
                         WHERE series BETWEEN 0 AND 1000 AND at >= ?2 AND at < ?3 GROUP BY series, span ORDER BY series, span";
    let mut micros = Vec::new();
    for _ in 0..CHARTS {
        let begun = Instant::now();
        let asked = sqlx::query(CHART).bind(step_ms(span)).bind(span.from_ms).bind(span.to_ms);
        let rows = asked.fetch_all(&mut *connection).await?;
        let means: Vec<f64> = rows.iter().map(|row| row.try_get(3)).collect::<Result<_, _>>()?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        ensure!(!means.is_empty(), "no rows");
    }
    Ok(median(&micros))
}
