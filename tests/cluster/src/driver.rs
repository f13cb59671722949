//! A node whose GPUs have a driver: the double of NVIDIA's library lies where a driver puts its own, for as long as a test takes.
//!
//! The GPUs of the demo are device nodes with nothing behind them, so `eirene-gpu`, which lies beside the agent as at any site, finds no library
//! there and tells of no GPU. The double is an example of its package: `cargo nextest run --workspace` builds it, and nothing installs it.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::demo::{Restore, copy, exec_with_input};

/// Where the dynamic loader looks for it on a node.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
/// What the double answers from (`monitoring/gpu/examples/nvml_double.rs`).
const STATE: &str = "/run/nvml-double.json";

/// The driver of one node; gone when this is dropped.
pub struct Driver {
    node: &'static str,
    _away: Restore,
}

impl Driver {
    /// Puts it on a node, with these GPUs.
    pub async fn install(node: &'static str, state: &Value) -> anyhow::Result<Self> {
        // Beside what cargo has built this very program into.
        let program = std::env::current_exe()?;
        let built: Option<PathBuf> = program.ancestors().nth(2).map(|folder| folder.join("examples/libnvml_double.so"));
        let double = built.context("a program of cargo's")?;
        ensure!(
            double.is_file(),
            "no `{}`: build it with `cargo build -p eirene-monitoring-gpu --examples`",
            double.display()
        );
        let driver = Self { node, _away: Restore::with(&[&["exec", "-u", "root", node, "rm", "-f", LIBRARY, STATE]]) };
        driver.says(state).await?;
        copy(&double, node, LIBRARY).await?;
        Ok(driver)
    }

    /// What it says of its GPUs from now on; whole, whenever it is read.
    pub async fn says(&self, state: &Value) -> anyhow::Result<()> {
        let put = "umask 022 && cat > \"$0.new\" && mv \"$0.new\" \"$0\"";
        exec_with_input(self.node, "root", &["sh", "-c", put, STATE], &state.to_string()).await.map(drop)
    }
}
