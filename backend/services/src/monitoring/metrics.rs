//! Everything eirened counts for Prometheus: names, units and meanings in one list, by the conventions
//! (<https://prometheus.io/docs/practices/naming/>). Who counts uses the `metrics` facade; `eirene_gateway::health` shows it.
//!
//! Labels have few values whatever people do: states, severities, names of routes, partitions, types of GPU. No person, session or path is one.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::samples::Figure;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric: its name, what kind it is, and what it means.
struct Metric(&'static str, Kind, &'static str);

use Kind::{Counter, Gauge, Histogram};

/// All of them, in the order of their names.
const ALL: &[Metric] = &[
    Metric(
        "eirene_agent_connections_lost_total",
        Counter,
        "Connections of agents that broke off, by no wish of either side.",
    ),
    Metric(
        "eirene_agent_connections_refused_total",
        Counter,
        "Connections of agents that were refused, by reason: whose secret is not known, of another job or person, too late.",
    ),
    Metric("eirene_agents_connected", Gauge, "Sessions and runs whose agent is connected."),
    Metric(
        "eirene_alert_webhook_failures_total",
        Counter,
        "Times that the webhook took no alert and is asked again, by reason: it refused whatever it is sent, or was away.",
    ),
    Metric(
        "eirene_alert_webhook_messages_total",
        Counter,
        "Messages for the webhook by what became of them: taken, given up as it called them wrong, or dropped because it took none for too long.",
    ),
    Metric("eirene_alerts", Gauge, "Alerts that go on, by rule."),
    Metric("eirene_alerts_raised_total", Counter, "Alerts that were raised, by rule."),
    Metric("eirene_build_info", Gauge, "Always 1; the label says which version runs."),
    Metric("eirene_cluster_all_gpus_held", Gauge, "GPUs of all types that jobs have."),
    Metric("eirene_cluster_all_gpus_installed", Gauge, "GPUs of all types that there are."),
    Metric("eirene_cluster_all_gpus_wanted", Gauge, "GPUs of all types that jobs which wait ask for."),
    Metric("eirene_cluster_gpus", Gauge, "GPUs the nodes have, by type."),
    Metric("eirene_cluster_gpus_free", Gauge, "GPUs that are free on nodes that take jobs, by type."),
    Metric("eirene_cluster_gpus_wanted", Gauge, "GPUs that jobs which wait ask for, by type."),
    Metric("eirene_cluster_jobs", Gauge, "Jobs of everybody that run or wait."),
    Metric("eirene_cluster_nodes", Gauge, "Nodes that take jobs, and that do not."),
    Metric("eirene_database_ping_seconds", Histogram, "Time in which the database answers the smallest question."),
    Metric("eirene_http_request_seconds", Histogram, "Time from a request's head to its answer's."),
    Metric("eirene_http_requests_total", Counter, "Requests to the portal and its API, by route, method and status."),
    Metric(
        "eirene_old_files_removed_bytes_total",
        Counter,
        "Bytes that became free because old files were removed from spaces.",
    ),
    Metric("eirene_old_files_removed_total", Counter, "Old files that were removed from spaces."),
    Metric("eirene_proxy_requests_total", Counter, "Requests passed on to sessions' apps."),
    Metric("eirene_proxy_websockets", Gauge, "WebSockets to sessions' apps that are open."),
    Metric(
        "eirene_reconciler_failures",
        Gauge,
        "Runs of a reconciler that failed in a row; 0 when its last one was good.",
    ),
    Metric("eirene_reconciler_run_seconds", Histogram, "Time of a reconciler's run, by its name."),
    Metric("eirene_runs", Gauge, "Runs that are not over, by state."),
    Metric(
        "eirene_samples_batches_refused_total",
        Counter,
        "Batches of samples that were refused as a whole, by reason: of another session's node, of another time, damaged.",
    ),
    Metric("eirene_samples_disk_bytes", Gauge, "Room that samples of sessions take on the disk."),
    Metric("eirene_samples_memory_bytes", Gauge, "Memory that samples of sessions take until they are closed."),
    Metric("eirene_samples_refused_total", Counter, "Single samples that were refused, by reason."),
    Metric("eirene_samples_series", Gauge, "Series of samples that are being added to."),
    Metric("eirene_samples_total", Counter, "Samples of sessions that were taken."),
    Metric(
        "eirene_scheduler_poll_seconds",
        Histogram,
        "Time in which the scheduler said what jobs and nodes there are.",
    ),
    Metric("eirene_scheduler_reachable", Gauge, "1 while the scheduler answers, otherwise 0."),
    Metric("eirene_sessions", Gauge, "Sessions that are not over, by state."),
    Metric("eirene_storage_findings", Gauge, "What is wrong with the storage, by severity."),
    Metric("eirene_storage_free_bytes", Gauge, "Room that is left, by root or target; NaN where it does not answer."),
    Metric(
        "eirene_storage_free_files",
        Gauge,
        "Files there is still room for, by target; NaN where it does not answer.",
    ),
    Metric("eirene_storage_total_bytes", Gauge, "Room there is, by root or target; NaN where it does not answer."),
    Metric("eirene_trace_spans_lost_total", Counter, "Spans of traces that the collector did not take."),
    Metric("eirene_zabbix_failures_total", Counter, "Rounds in which Zabbix took no values because it was away."),
    Metric(
        "eirene_zabbix_values_total",
        Counter,
        "Values for Zabbix by what became of them: taken, refused by it, or dropped because it was away for too long.",
    ),
    Metric("eirene_zabbix_values_waiting", Gauge, "Values for Zabbix that it has not taken yet."),
];

/// Says what each means; after a recorder was installed.
pub fn describe() {
    for Metric(name, kind, help) in ALL {
        match kind {
            Counter => metrics::describe_counter!(*name, *help),
            Gauge => metrics::describe_gauge!(*name, *help),
            Histogram => metrics::describe_histogram!(*name, metrics::Unit::Seconds, *help),
        }
    }
    metrics::gauge!("eirene_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// How long the database took to answer.
pub fn database_answered(took: Duration) {
    metrics::histogram!("eirene_database_ping_seconds").record(took.as_secs_f64());
}

/// The cluster as it was last seen. Types of GPU that nodes do not have any more keep no old figures.
pub fn cluster_seen(cluster: &Cluster, known: &mut BTreeSet<String>) {
    let (view, snapshot) = (cluster.view(), cluster.snapshot());
    let supply = |gpu_type: &str| view.gpu_types.iter().find(|supply| supply.gpu_type == gpu_type);
    known.extend(view.gpu_types.iter().map(|supply| supply.gpu_type.clone()));
    for gpu_type in known.iter() {
        let [total, free, wanted] =
            supply(gpu_type).map_or([0; 3], |supply| [supply.total, supply.free, supply.waiting]);
        metrics::gauge!("eirene_cluster_gpus", "type" => gpu_type.clone()).set(total);
        metrics::gauge!("eirene_cluster_gpus_free", "type" => gpu_type.clone()).set(free);
        metrics::gauge!("eirene_cluster_gpus_wanted", "type" => gpu_type.clone()).set(wanted);
    }
    let available = count(snapshot.nodes.iter().filter(|node| node.available).count());
    metrics::gauge!("eirene_cluster_nodes", "state" => "available").set(available);
    metrics::gauge!("eirene_cluster_nodes", "state" => "unavailable").set(count(snapshot.nodes.len()) - available);
    for figure in Figure::ALL {
        let (name, state) = figure.series();
        let gauge =
            if let Some(state) = state { metrics::gauge!(name, "state" => state) } else { metrics::gauge!(name) };
        gauge.set(figure.of(&snapshot));
    }
}

/// A count as the floating point number that metrics are.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every name of a metric that a text has.
    fn names(text: &str) -> BTreeSet<String> {
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let starts = text.match_indices("eirene_").filter(|(at, _)| !text[..*at].ends_with(is_part));
        starts.map(|(at, _)| text[at..].chars().take_while(|letter| is_part(*letter)).collect()).collect()
    }

    fn texts(folder: &Path, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => texts(&path, into),
                Some("rs" | "yml" | "json") => into.push(std::fs::read_to_string(&path).unwrap()),
                _ => {}
            }
        }
    }

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn names_follow_the_conventions() {
        for Metric(name, kind, help) in ALL {
            assert_eq!(*kind == Counter, name.ends_with("_total"), "{name}");
            assert!(*kind != Histogram || name.ends_with("_seconds"), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
        assert!(ALL.is_sorted_by_key(|Metric(name, ..)| name), "in the order of their names, each once");
        assert!(ALL.windows(2).all(|two| two[0].0 != two[1].0));
    }

    #[test]
    fn gpus_that_are_held_wanted_and_there_are_not_added_up_by_one_name() {
        let gpus = [Figure::GpusHeld, Figure::GpusWaiting, Figure::GpusTotal].map(Figure::series);
        let listed: BTreeSet<&str> = ALL.iter().map(|Metric(name, ..)| *name).collect();
        assert!(gpus.iter().all(|(name, state)| state.is_none() && listed.contains(name)), "{gpus:?}");
        assert_eq!(gpus.iter().collect::<BTreeSet<_>>().len(), gpus.len(), "{gpus:?}");
    }

    #[test]
    fn what_is_counted_is_in_the_list_and_the_other_way_round() {
        let mut all = Vec::new();
        texts(&root().join("backend"), &mut all);
        let counted = all.iter().filter(|text| !text.contains("const ALL: &[Metric]"));
        let counted: BTreeSet<String> = counted.flat_map(|text| names(text)).collect();
        let own = names(include_str!("metrics.rs").split("];").nth(1).unwrap());
        for Metric(name, ..) in ALL {
            assert!(counted.contains(*name) || own.contains(*name), "nobody counts {name}");
        }
        let listed: BTreeSet<&str> = ALL.iter().map(|Metric(name, ..)| *name).collect();
        let ends = ["_total", "_seconds", "_bytes", "_connected", "_reachable"];
        // What is told of sessions is listed elsewhere.
        let of_sessions: BTreeSet<String> =
            eirene_monitoring::Metric::ALL.iter().map(|metric| metric.prometheus()).collect();
        let known = |name: &String| listed.contains(name.as_str()) || of_sessions.contains(name);
        let unknown = counted.iter().filter(|name| ends.iter().any(|end| name.ends_with(end)) && !known(name));
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn rules_and_dashboards_ask_for_what_there_is() {
        let listed: BTreeSet<&str> = ALL.iter().map(|Metric(name, ..)| *name).collect();
        let of_sessions: BTreeSet<String> =
            eirene_monitoring::Metric::ALL.iter().map(|metric| metric.prometheus()).collect();
        for folder in ["deploy/prometheus", "deploy/grafana"] {
            let mut all = Vec::new();
            texts(&root().join(folder), &mut all);
            let asked: BTreeSet<String> = all.iter().flat_map(|text| names(text)).collect();
            assert!(asked.len() > 5, "{folder}: {asked:?}");
            for name in asked {
                let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
                assert!(listed.contains(base) || of_sessions.contains(&name), "{folder} asks for {name}");
            }
        }
    }
}
