//! Samples of one session in Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats), and sessions as targets of its HTTP service
//! discovery (prometheus.io/docs/prometheus/latest/http_sd).

use std::fmt::Write as _;

use eirene_core::{JobKind, Session};
use eirene_monitoring::{Kind, Metric};
use serde::Serialize;

use crate::samples::Last;

/// Where Prometheus finds the samples of a session or run, with the labels that all of them get.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    targets: [String; 1],
    labels: Labels,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Labels {
    #[serde(rename = "__scheme__")]
    scheme: &'static str,
    #[serde(rename = "__metrics_path__")]
    path: String,
    session: String,
    kind: &'static str,
    owner: String,
    app: String,
}

impl Target {
    /// At this address of ours.
    pub fn new(session: &Session, address: &str, scheme: &'static str) -> Self {
        Self {
            targets: [address.to_owned()],
            labels: Labels {
                scheme,
                path: format!("/metrics/sessions/{}", session.id),
                session: session.id.to_string(),
                kind: match session.kind() {
                    JobKind::Session => "session",
                    JobKind::Run => "run",
                },
                owner: session.owner_name.to_string(),
                app: session.app.to_string(),
            },
        }
    }
}

/// What was last told of a session. Of a metric that is told as a whole its parts are left out, so that sums are right.
pub fn exposition(all: &[Last]) -> String {
    let mut text = String::new();
    for metric in Metric::ALL {
        let told: Vec<&Last> = all.iter().filter(|last| last.metric == *metric).collect();
        let is_whole = |node: &str| told.iter().any(|last| last.node == node && last.device.is_none());
        let shown: Vec<&&Last> = told.iter().filter(|last| last.device.is_none() || !is_whole(&last.node)).collect();
        if shown.is_empty() {
            continue;
        }
        let name = metric.prometheus();
        let kind = if metric.kind() == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {name} {}", metric.help().replace('\\', r"\\").replace('\n', r"\n"));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for last in shown {
            let _ = write!(text, "{name}{{node=\"{}\"", escaped(&last.node));
            if let (Some(device), Some(kind)) = (&last.device, metric.devices().first()) {
                let _ = write!(text, ",{}=\"{}\"", kind.label(), escaped(device));
            }
            let _ = writeln!(text, "}} {}", last.value);
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(metric: Metric, device: Option<&str>, value: f64) -> Last {
        Last { metric, node: "c1".into(), device: device.map(ToOwned::to_owned), value }
    }

    #[test]
    fn a_metric_has_its_help_its_type_and_a_line_for_each_device() {
        let all = [
            last(Metric::GpuUtil, Some("0"), 0.5),
            last(Metric::GpuUtil, Some("1"), 1.0),
            last(Metric::Cpu, None, 12.25),
        ];
        let text = exposition(&all);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# HELP")).collect();
        let expected = [
            "# TYPE eirene_cpu_seconds_total counter",
            "eirene_cpu_seconds_total{node=\"c1\"} 12.25",
            "# TYPE eirene_gpu_util_ratio gauge",
            "eirene_gpu_util_ratio{node=\"c1\",gpu=\"0\"} 0.5",
            "eirene_gpu_util_ratio{node=\"c1\",gpu=\"1\"} 1",
        ];
        assert_eq!(lines, expected);
        assert!(exposition(&[]).is_empty());
    }

    #[test]
    fn what_is_told_as_a_whole_is_not_told_in_parts_too() {
        let whole = last(Metric::IoRead, None, 7.0);
        let part = last(Metric::IoRead, Some("/scratch"), 3.0);
        assert_eq!(exposition(&[part.clone(), whole]).matches("eirene_io_read_bytes_total{").count(), 1);
        assert!(exposition(&[part]).contains("mount=\"/scratch\""));
    }

    #[test]
    fn a_hostile_name_stays_in_its_label() {
        let text = exposition(&[last(Metric::Report, Some("a\"} 1\nup{x=\"\\"), 1.0)]);
        assert!(text.ends_with("eirene_report{node=\"c1\",name=\"a\\\"} 1\\nup{x=\\\"\\\\\"} 1\n"), "{text}");
    }
}
