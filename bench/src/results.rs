//! Raw figures as JSON under `bench/results/`, which git ignores: one file a run, with the machine it ran on.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use eirene_core::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::process::root;

fn directory() -> PathBuf {
    root().join("bench/results")
}

/// Writes the figures of one run of `bench`.
pub(crate) fn write(bench: &str, figures: &Value) -> anyhow::Result<()> {
    let at = SystemClock.now().strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    std::fs::create_dir_all(directory())?;
    let path = directory().join(format!("{bench}-{at}.json"));
    let whole = json!({"bench": bench, "at": at, "machine": machine(), "commit": commit(), "figures": figures});
    std::fs::write(&path, serde_json::to_string_pretty(&whole)?)?;
    println!("raw figures: {}", path.canonicalize()?.display());
    Ok(())
}

/// The newest run of `bench`, when there is one.
pub(crate) fn newest(bench: &str) -> anyhow::Result<Option<Value>> {
    let Ok(entries) = std::fs::read_dir(directory()) else { return Ok(None) };
    let prefix = format!("{bench}-2");
    let newest = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        .max();
    let Some(path) = newest else { return Ok(None) };
    let text = std::fs::read_to_string(&path)?;
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("{}", path.display()))?))
}

fn machine() -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    json!({
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "load_before_writing": load.trim(),
    })
}

fn commit() -> Option<String> {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
