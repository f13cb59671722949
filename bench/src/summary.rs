//! The goals, and the newest figures of every benchmark beside them.

use serde_json::Value;

use crate::{files, launch, memory, proxy, results, sampling, scrape, steps, store};

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Goal {
    /// A figure with a mark that says whether it reaches the goal.
    pub(crate) fn mark(self, value: f64) -> String {
        let reached = match self {
            Self::AtLeast(goal) => value >= goal,
            Self::AtMost(goal) => value <= goal,
        };
        format!("{value:.2} {}", if reached { '✓' } else { '✗' })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(goal) => write!(f, "≥ {goal}"),
            Self::AtMost(goal) => write!(f, "≤ {goal}"),
        }
    }
}

/// Prints the newest run of every benchmark.
pub(crate) fn run() -> anyhow::Result<()> {
    newest("launch", launch::show)?;
    newest("steps", steps::show)?;
    newest("proxy", proxy::show)?;
    newest("memory", memory::show)?;
    newest("files", files::show)?;
    newest("sampling", sampling::show)?;
    newest("store", store::show)?;
    newest("scrape", scrape::show)
}

fn newest(bench: &str, show: fn(&Value) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(run) = results::newest(bench)? else {
        println!("\n{bench}: not measured yet; bench/{bench} does it");
        return Ok(());
    };
    let text = |name: &str| run[name].as_str().unwrap_or("?").to_owned();
    println!("\n{bench}, measured {}, commit {}", text("at"), text("commit"));
    show(&run["figures"])
}
