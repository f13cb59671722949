//! A verdict, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::finding::{bytes, count};

/// How well something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is wrong with it.
    Ok,
    /// A training works, and is slower than it could be.
    Slow,
    /// A training would fail, hang or compute nonsense.
    Sick,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slow => "slow",
            Self::Sick => "SICK",
        }
    }
}

/// A node, with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The worst that was found of it.
    pub state: State,
    /// Gigabytes of memory read a second.
    pub memory_gb_per_s: Option<f64>,
    /// Bytes that the job may still take.
    pub free_bytes: Option<u64>,
    /// How long a fixed computation takes, milliseconds.
    pub processor_ms: Option<f64>,
}

/// A link, with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// Its ends.
    pub nodes: [String; 2],
    /// The worst that was found of it.
    pub state: State,
    /// Gigabytes a second from the first end to the second.
    pub there_gb_per_s: Option<f64>,
    /// Back.
    pub back_gb_per_s: Option<f64>,
    /// One way, microseconds.
    pub latency_us: Option<f64>,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad.
    pub state: State,
    /// Whose: one node's, a link's two, or several nodes' of which none alone can be blamed.
    pub nodes: Vec<String>,
    /// Whether it is the link between two nodes.
    pub link: bool,
    /// What, in words that follow the name.
    pub fact: String,
}

impl Finding {
    /// As a part of a sentence: `node c2: it stopped answering`.
    fn text(&self) -> String {
        let names = match (self.link, self.nodes.as_slice()) {
            (true, nodes) => format!("the link {}", nodes.join("-")),
            (false, [one]) => format!("node {one}"),
            (false, nodes) => return format!("{}: {}", nodes.join(", "), self.fact),
        };
        format!("{names} is {}: {}", self.state.word().to_lowercase(), self.fact)
    }
}

/// What came of a preflight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The worst of all.
    pub state: State,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The links that were tried.
    pub links: Vec<Link>,
    /// What is not as it should be, the worst first.
    pub findings: Vec<Finding>,
    /// The nodes without which the others are well, as far as is known; empty where no node alone can be blamed.
    pub exclude: Vec<String>,
}

impl Verdict {
    /// Where all is well: one line, without its end.
    pub fn summary(&self, took: Duration) -> String {
        let nodes = count(self.nodes.len(), "node");
        let links = if self.links.is_empty() { String::new() } else { format!(", {}", self.of_links()) };
        format!("preflight: {nodes}{links}, {:.1} s", took.as_secs_f64())
    }

    fn of_links(&self) -> String {
        let speeds = self.links.iter().flat_map(|link| [link.there_gb_per_s, link.back_gb_per_s]).flatten();
        let speed = speeds.fold(f64::INFINITY, f64::min);
        let latency = self.links.iter().filter_map(|link| link.latency_us).fold(0.0, f64::max);
        let well = if self.state == State::Ok { " fine" } else { "" };
        let worst = if self.links.len() > 1 { "at worst " } else { "" };
        format!("{}{well} ({worst}{}, {latency:.0} us)", count(self.links.len(), "link"), shown(speed))
    }

    /// What is slow: a line each, without its end.
    pub fn warnings(&self) -> Vec<String> {
        let slow = self.findings.iter().filter(|finding| finding.state == State::Slow);
        slow.map(|finding| format!("preflight: WARNING {}", finding.text())).collect()
    }

    /// What is sick, in one line.
    pub fn illness(&self) -> String {
        let sick = self.findings.iter().filter(|finding| finding.state == State::Sick);
        sick.map(Finding::text).collect::<Vec<_>>().join("; ")
    }

    /// Why nothing was started, and what to do.
    pub fn refusal(&self) -> String {
        let cure = match self.exclude.join(",") {
            none if none.is_empty() => "no node alone can be blamed".to_owned(),
            nodes => {
                format!("leave out what is sick with `--exclude {nodes}` (`--preflight exclude` does so by itself)")
            }
        };
        format!("preflight: {}. Nothing was started: {cure}; `--no-preflight` starts all the same", self.illness())
    }

    /// A table of all nodes and links, for people.
    pub fn table(&self) -> String {
        let mut rows = vec![["node", "memory", "left", "processor", "verdict"].map(str::to_owned)];
        let known = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
        rows.extend(self.nodes.iter().map(|node| {
            [
                node.name.clone(),
                known(node.memory_gb_per_s.map(shown)),
                known(node.free_bytes.map(bytes)),
                known(node.processor_ms.map(|ms| format!("{ms:.1} ms"))),
                node.state.word().to_owned(),
            ]
        }));
        if !self.links.is_empty() {
            rows.push(["link", "there", "back", "latency", "verdict"].map(str::to_owned));
        }
        rows.extend(self.links.iter().map(|link| {
            [
                link.nodes.join("-"),
                known(link.there_gb_per_s.map(shown)),
                known(link.back_gb_per_s.map(shown)),
                known(link.latency_us.map(|us| format!("{us:.0} us"))),
                link.state.word().to_owned(),
            ]
        }));
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let line =
                row.iter().zip(&widths).fold(String::new(), |line, (cell, width)| format!("{line}{cell:<width$}  "));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// Gigabytes a second, for people.
pub(super) fn shown(speed: f64) -> String {
    if speed < 0.1 { format!("{:.1} MB/s", speed * 1e3) } else { format!("{speed:.1} GB/s") }
}
