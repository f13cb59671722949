//! An embedded store, fjall: what came of a series between two flushes is one value under the series and its first time.
//!
//! That is what suits it best: a key a sample would be twelve times as many. Values are differences of times and numbers as they are, compressed by the
//! store (LZ4).

use std::path::Path;

use anyhow::{Context as _, ensure};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::sides::{FLUSH, Fold, Side, Taking, charts};
use super::workload::{Span, Workload};

/// How often a chart is drawn.
const CHARTS: usize = 9;
/// Longest time between the first sample of a value and its last.
const VALUE_MS: i64 = 60_000;
/// Bytes of a sample in a value: its time after the first, and what was measured.
const SAMPLE: usize = 12;

/// Measures it.
pub(super) fn measure(path: &Path, workload: &Workload) -> anyhow::Result<Side> {
    let database = Database::builder(path).open()?;
    let samples = database.keyspace("samples", KeyspaceCreateOptions::default)?;
    let ticks: Vec<(i64, &[f64])> = workload.ticks().collect();
    let taking = Taking::begin()?;
    for rows in ticks.chunks(FLUSH) {
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        let first = rows.first().context("chunks are not empty")?.0;
        for series in 0..workload.names.len() {
            let mut value = Vec::with_capacity(rows.len() * SAMPLE);
            for (at, row) in rows {
                value.extend_from_slice(&u32::try_from(at - first)?.to_le_bytes());
                value.extend_from_slice(&row[series].to_le_bytes());
            }
            batch.insert(&samples, key(series, first)?, value);
        }
        batch.commit()?;
    }
    let (samples_per_core_s, samples_per_s) = taking.end(workload.len())?;
    // As it lies there in the end, without what is written twice.
    samples.rotate_memtable_and_wait()?;
    samples.major_compact()?;
    let bytes_per_sample = samples.disk_space() as f64 / workload.len() as f64;
    let charts = charts(workload, CHARTS, |span| chart(&samples, workload.names.len(), span))?;
    Ok(Side { samples_per_core_s, samples_per_s, bytes_per_sample, charts })
}

fn chart(samples: &Keyspace, series: usize, span: Span) -> anyhow::Result<usize> {
    let mut fold = Fold::new(series, span);
    for series in 0..series {
        let range = key(series, span.from_ms - VALUE_MS)?..key(series, span.to_ms)?;
        for found in samples.range(range) {
            let (key, value) = found.into_inner()?;
            let (_, first) = key.split_first_chunk::<4>().context("a key has its series")?;
            let first = i64::from_be_bytes(first.try_into()?);
            let (all, rest) = value.as_chunks::<SAMPLE>();
            ensure!(rest.is_empty(), "a value is whole samples");
            for sample in all {
                let (after, number) = sample.split_first_chunk::<4>().context("a sample has its time")?;
                let at = first + i64::from(u32::from_le_bytes(*after));
                fold.add(series, at, f64::from_le_bytes(number.try_into()?));
            }
        }
    }
    Ok(fold.lines())
}

/// Orders by series, then by time.
fn key(series: usize, first_ms: i64) -> anyhow::Result<Vec<u8>> {
    Ok([&u32::try_from(series)?.to_be_bytes()[..], &first_ms.to_be_bytes()].concat())
}
