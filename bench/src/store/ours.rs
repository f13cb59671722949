//! The built-in store.

use std::path::Path;

use anyhow::ensure;
use eirene_monitoring_store::{Options, Query, Sample, SessionId, Store};

use super::sides::{FLUSH, Side, Taking, charts};
use super::workload::{Span, Workload};

const SESSION: SessionId = SessionId([5; 16]);
/// How often a chart is drawn.
const CHARTS: usize = 9;

/// Measures it, and says what its minutes take beside, bytes of a sample.
pub(super) fn measure(path: &Path, workload: &Workload) -> anyhow::Result<(Side, f64)> {
    let store = Store::open(path, &Options::default())?;
    let taking = Taking::begin()?;
    let mut taken = 0;
    for (tick, (at_ms, row)) in workload.ticks().enumerate() {
        let batch: Vec<Sample<'_>> =
            workload.names.iter().zip(row).map(|(name, value)| Sample { name, at_ms, value: *value }).collect();
        taken += store.append(at_ms, SESSION, &batch);
        if tick % FLUSH == FLUSH - 1 {
            store.flush()?;
            store.maintain(at_ms)?;
        }
    }
    store.flush()?;
    let (samples_per_core_s, samples_per_s) = taking.end(taken)?;
    ensure!(taken == workload.len(), "{taken} of {} samples were taken", workload.len());
    let charts = charts(workload, CHARTS, |span| chart(&store, span))?;
    // What is closed is what lies there for days; the rest is closed here to be counted.
    store.close_chunks(workload.last_ms())?;
    let bytes = |word: &str| -> anyhow::Result<f64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            bytes += if entry.file_name().to_string_lossy().starts_with(word) { entry.metadata()?.len() } else { 0 };
        }
        Ok(bytes as f64 / workload.len() as f64)
    };
    let side = Side { samples_per_core_s, samples_per_s, bytes_per_sample: bytes("raw")?, charts };
    Ok((side, bytes("minutes")?))
}

fn chart(store: &Store, span: Span) -> anyhow::Result<usize> {
    let Span { points, from_ms, to_ms } = span;
    let answer = store.query(&Query { session: SESSION, prefix: "", from_ms, to_ms, points })?;
    Ok(answer.lines.len())
}
