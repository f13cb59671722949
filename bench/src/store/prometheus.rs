//! What the same samples take in Prometheus' own store, as promtool writes its blocks.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::workload::Workload;

/// Longest block: what Prometheus merges its blocks of two hours to when it keeps them for its default of 15 days.
const BLOCK: &str = "18h";

/// Bytes of a sample: chunks, index and all.
pub(super) async fn measure(promtool: &Path, path: &Path, workload: &Workload) -> anyhow::Result<f64> {
    std::fs::create_dir(path)?;
    let (text, blocks) = (path.join("samples.txt"), path.join("blocks"));
    write(&text, workload)?;
    let mut command = Command::new(promtool);
    command.args(["tsdb", "create-blocks-from", &format!("--max-block-duration={BLOCK}"), "openmetrics"]);
    let output = command.arg(&text).arg(&blocks).output().await.with_context(|| format!("{}", promtool.display()))?;
    ensure!(output.status.success(), "promtool: {}", String::from_utf8_lossy(&output.stderr));
    let (mut samples, mut bytes) = (0, 0);
    for block in std::fs::read_dir(&blocks)? {
        let block = block?.path();
        if block.is_dir() {
            samples += samples_of(&block)?;
            bytes += bytes_of(&block)?;
        }
    }
    ensure!(samples == workload.len() as u64, "{samples} of {} samples are in Prometheus' blocks", workload.len());
    Ok(bytes as f64 / samples as f64)
}

/// In its text format, with the labels that a session's series have.
fn write(path: &Path, workload: &Workload) -> anyhow::Result<()> {
    let mut text = BufWriter::new(File::create(path)?);
    for (at_ms, row) in workload.ticks() {
        for (name, value) in workload.names.iter().zip(row) {
            writeln!(text, "eirene_sample{{session=\"bench\",series=\"{name}\"}} {value} {}", at_ms as f64 / 1000.0)?;
        }
    }
    writeln!(text, "# EOF")?;
    text.into_inner()?.sync_data()?;
    Ok(())
}

fn samples_of(block: &Path) -> anyhow::Result<u64> {
    let meta: Value = serde_json::from_str(&std::fs::read_to_string(block.join("meta.json"))?)?;
    meta["stats"]["numSamples"].as_u64().context("a block says how many samples it has")
}

fn bytes_of(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
