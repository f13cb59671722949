//! What Zabbix is told: items of the platform, and of every node, GPU and session, with what its discovery rules need to make them.
//!
//! `deploy/zabbix/eirene.yaml` has an item or prototype for each; a test holds both against each other. Samples are an agent's word, and an agent is
//! its person's: how many nodes and GPUs they may be about is what SLURM says there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eirene_core::alert::{Alert, AlertSeverity};
use eirene_core::text::is_printable;
use eirene_core::{JobKind, Session, SessionId, SessionState};
use eirene_monitoring::Metric;
use eirene_zabbix::{Parameter, discovery, key};
use jiff::Timestamp;

use crate::cluster::Snapshot;
use crate::samples::{Back, MEMORY, Recent, memory_shares};

/// What is looked at of sessions.
pub(super) const METRICS: [Metric; 15] = [
    Metric::Cpu,
    MEMORY[0],
    MEMORY[1],
    MEMORY[2],
    Metric::NodeMemory,
    Metric::NodeMemoryAvailable,
    Metric::NodePressureCpu,
    Metric::GpuUtil,
    Metric::GpuMemory,
    Metric::GpuMemoryLimit,
    Metric::GpuPower,
    Metric::GpuTemperature,
    Metric::GpuEccUncorrected,
    Metric::GpuThrottled,
    Metric::GpuUp,
];
/// So far back, for what is counted to have a rate.
pub(super) const BACK: Back = Back { length_ms: 120_000, points: 24 };
/// What is older is no present value any more.
const FRESH_MS: i64 = 30_000;
const MIB: u64 = 1024 * 1024;

/// What was seen, to be told.
pub struct Seen<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Sessions and runs that are not over.
    pub live: &'a [Session],
    /// Alerts that go on.
    pub alerts: &'a [Alert],
    /// How the samples of those that have begun went.
    pub recent: &'a [(SessionId, Vec<Recent>)],
    /// How long the database took.
    pub database: Duration,
    /// Agents that are connected.
    pub agents: usize,
    /// Whether single sessions are told.
    pub(crate) with_sessions: bool,
    /// Now.
    pub now: Timestamp,
}

/// What is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Keys and values.
    pub values: Vec<(String, String)>,
    /// Keys of discovery rules, and what they have found.
    pub(crate) discoveries: Vec<(&'static str, String)>,
}

impl Round {
    fn whole(&mut self, name: &str, of: &[&Parameter], number: impl TryInto<u64>) {
        if let Ok(number) = number.try_into() {
            self.values.push((key(name, of), number.to_string()));
        }
    }

    fn flag(&mut self, name: &str, of: &[&Parameter], yes: bool) {
        self.whole(name, of, u8::from(yes));
    }

    /// A measured number; none where it was not measured, or cannot be.
    fn measured(&mut self, name: &str, of: &[&Parameter], value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.push((key(name, of), format!("{value:.4}")));
        }
    }

    /// A measured number of bytes or pieces.
    fn counted(&mut self, name: &str, of: &[&Parameter], value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
            self.values.push((key(name, of), format!("{value:.0}")));
        }
    }
}

/// Tells what is known while the database gives no answer: that, and what is not in it.
pub(crate) fn without_database(snapshot: &Snapshot, agents: usize) -> Round {
    let mut round = Round::default();
    round.flag("eirene.database.reachable", &[], false);
    round.whole("eirene.agents.connected", &[], agents);
    slurm(snapshot, &mut round);
    round
}

/// Tells it.
pub fn look(seen: &Seen<'_>) -> Round {
    let mut round = Round::default();
    platform(seen, &mut round);
    nodes(seen, &mut round);
    gpus(seen, &mut round);
    if seen.with_sessions {
        sessions(seen, &mut round);
    }
    round
}

fn platform(seen: &Seen<'_>, round: &mut Round) {
    let count = |kind, queued: bool| {
        let of = |session: &&Session| session.kind() == kind && (session.state == SessionState::Queued) == queued;
        seen.live.iter().filter(of).count()
    };
    round.whole("eirene.sessions.running", &[], count(JobKind::Session, false));
    round.whole("eirene.sessions.queued", &[], count(JobKind::Session, true));
    round.whole("eirene.runs.running", &[], count(JobKind::Run, false));
    round.whole("eirene.runs.queued", &[], count(JobKind::Run, true));
    round.whole("eirene.agents.connected", &[], seen.agents);
    round.measured("eirene.database.ping", &[], Some(seen.database.as_secs_f64()));
    round.flag("eirene.database.reachable", &[], true);
    round.whole("eirene.alerts.open", &[], seen.alerts.len());
    let critical = seen.alerts.iter().filter(|alert| alert.severity == AlertSeverity::Critical).count();
    round.whole("eirene.alerts.critical", &[], critical);
    slurm(seen.snapshot, round);
}

fn slurm(snapshot: &Snapshot, round: &mut Round) {
    round.flag("eirene.slurm.reachable", &[], snapshot.reachable);
    if !snapshot.reachable {
        return;
    }
    round.whole("eirene.jobs.running", &[], snapshot.queue.running_in(|_| true) as usize);
    round.whole("eirene.jobs.waiting", &[], snapshot.queue.waiting_in(|_| true).jobs as usize);
    round.whole("eirene.nodes.total", &[], snapshot.nodes.len());
    round.whole("eirene.nodes.available", &[], snapshot.nodes.iter().filter(|node| node.available).count());
}

/// The newest value of a line, where it is one of now.
fn last(line: &Recent, now: Timestamp) -> Option<f64> {
    let point = line.points.last()?;
    (now.as_millisecond().saturating_sub(point.at_ms) <= FRESH_MS).then_some(point.max)
}

/// By how much a line that only rises has risen a second.
fn rate(line: &Recent, now: Timestamp) -> Option<f64> {
    last(line, now)?;
    let (first, last) = (line.points.first()?, line.points.last()?);
    let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1000.0;
    let rise = last.max - first.max;
    (seconds > 0.0 && rise >= 0.0).then(|| rise / seconds)
}

/// Of a cluster that cannot be seen nothing is told: what is out of date would look like now.
fn nodes(seen: &Seen<'_>, round: &mut Round) {
    if !seen.snapshot.reachable {
        return;
    }
    let measured = |node: &str, metric, value: fn(&Recent, Timestamp) -> Option<f64>| {
        let lines = seen.recent.iter().flat_map(|(_, lines)| lines);
        lines.filter(|line| line.metric == metric && line.node == node).find_map(|line| value(line, seen.now))
    };
    let mut found = Vec::new();
    for node in seen.snapshot.nodes.iter() {
        let name = node.name.as_str();
        let Some(parameter) = Parameter::new(name) else { continue };
        let of: &[&Parameter] = &[&parameter];
        found.push(vec![("NODE", name.to_owned())]);
        round.flag("eirene.node.available", of, node.available);
        round.values.push((key("eirene.node.state", of), node.state.clone()));
        round.whole("eirene.node.cpus.total", of, node.cpus);
        round.whole("eirene.node.cpus.allocated", of, node.cpus_allocated);
        round.whole("eirene.node.memory.total", of, node.memory_mib.saturating_mul(MIB));
        round.whole("eirene.node.memory.allocated", of, node.memory_allocated_mib.saturating_mul(MIB));
        let gpus = |count: fn(&eirene_core::scheduler::NodeGpus) -> u32| node.gpus.iter().map(count).sum::<u32>();
        round.whole("eirene.node.gpus.total", of, gpus(|gpus| gpus.total));
        round.whole("eirene.node.gpus.allocated", of, gpus(|gpus| gpus.allocated));
        let on_it = seen.live.iter().filter(|session| session.nodes.contains(&node.name)).count();
        round.whole("eirene.node.sessions", of, on_it);
        let about_it = |alert: &&Alert| alert.details.get("node").is_some_and(|about| about == name);
        round.whole("eirene.node.alerts", of, seen.alerts.iter().filter(about_it).count());
        // What only agents see is known while a session is there.
        let whole = measured(name, Metric::NodeMemory, last);
        let free = measured(name, Metric::NodeMemoryAvailable, last);
        round.counted("eirene.node.memory.used", of, whole.zip(free).map(|(whole, free)| whole - free));
        let waited = measured(name, Metric::NodePressureCpu, rate);
        round.measured("eirene.node.cpu.pressure", of, waited.map(|share| share.min(1.0) * 100.0));
    }
    round.discoveries.push(("eirene.nodes", discovery(found)));
}

/// GPUs that sessions hold: of others nobody has a figure.
fn gpus(seen: &Seen<'_>, round: &mut Round) {
    let mut room: BTreeMap<&str, u32> = BTreeMap::new();
    for node in seen.snapshot.nodes.iter() {
        room.insert(node.name.as_str(), node.gpus.iter().map(|gpus| gpus.total).sum());
    }
    let mut told = BTreeMap::<(Parameter, Parameter), BTreeSet<&str>>::new();
    for line in seen.recent.iter().flat_map(|(_, lines)| lines) {
        let Some(device) = &line.device else { continue };
        let (Some(node), Some(gpu)) = (Parameter::new(&line.node), Parameter::new(device)) else { continue };
        let (name, percent) = match line.metric {
            Metric::GpuUtil => ("eirene.gpu.util", true),
            Metric::GpuMemory => ("eirene.gpu.memory.used", false),
            Metric::GpuMemoryLimit => ("eirene.gpu.memory.total", false),
            Metric::GpuPower => ("eirene.gpu.power", false),
            Metric::GpuTemperature => ("eirene.gpu.temperature", false),
            Metric::GpuEccUncorrected => ("eirene.gpu.errors", false),
            Metric::GpuThrottled => ("eirene.gpu.throttled", false),
            Metric::GpuUp => ("eirene.gpu.up", false),
            _ => continue,
        };
        let Some(value) = last(line, seen.now) else { continue };
        let place = (node, gpu);
        if !told.contains_key(&place) && !is_whole_of_parts(&told, &place) {
            let Some(left) = room.get_mut(line.node.as_str()).filter(|left| **left > 0) else { continue };
            *left -= 1;
        }
        // Two sessions may see the same GPU; the first has told.
        let fresh = told.entry(place.clone()).or_default().insert(name);
        if !fresh {
            continue;
        }
        let of: &[&Parameter] = &[&place.0, &place.1];
        match line.metric {
            Metric::GpuUtil | Metric::GpuPower | Metric::GpuTemperature => {
                round.measured(name, of, Some(if percent { value * 100.0 } else { value }));
            }
            _ => round.counted(name, of, Some(value)),
        }
    }
    let row = |(node, gpu): &(Parameter, Parameter)| {
        vec![("NODE", node.as_str().to_owned()), ("GPU", gpu.as_str().to_owned())]
    };
    round.discoveries.push(("eirene.gpus", discovery(told.keys().map(row))));
}

/// Whether parts of this GPU are told: the scheduler counts those, and not it beside them.
fn is_whole_of_parts(told: &BTreeMap<(Parameter, Parameter), BTreeSet<&str>>, place: &(Parameter, Parameter)) -> bool {
    let (node, gpu) = place;
    let is_part = |part: &str| part.rsplit_once('.').is_some_and(|(of, _)| of == gpu.as_str());
    // Those that begin like it come right after it.
    let next = told.range::<(Parameter, Parameter), _>(place..).map(|(at, _)| at);
    next.take_while(|(on, part)| on == node && part.as_str().starts_with(gpu.as_str()))
        .any(|(_, part)| is_part(part.as_str()))
}

fn sessions(seen: &Seen<'_>, round: &mut Round) {
    let mut found = Vec::new();
    for (id, lines) in seen.recent {
        let Some(session) = seen.live.iter().find(|session| session.id == *id) else { continue };
        let Some(parameter) = Parameter::new(&id.to_string()) else { continue };
        let of: &[&Parameter] = &[&parameter];
        let kind = match session.kind() {
            JobKind::Session => "session",
            JobKind::Run => "run",
        };
        found.push(vec![
            ("SESSION", id.to_string()),
            ("NAME", plain(session.name.as_str())),
            ("OWNER", plain(session.owner_name.as_str())),
            ("KIND", kind.to_owned()),
        ]);
        round.whole("eirene.session.nodes", of, session.nodes.len());
        let all = |metric| lines.iter().filter(move |line| line.metric == metric);
        let sum = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>());
        let cores = all(Metric::Cpu).filter_map(|line| rate(line, seen.now)).collect();
        round.measured("eirene.session.cpu", of, sum(cores));
        let memory = all(Metric::Memory).filter_map(|line| last(line, seen.now)).collect();
        round.counted("eirene.session.memory", of, sum(memory));
        let share = memory_shares(lines).into_iter().map(|(_, share)| share).reduce(f64::max);
        round.measured("eirene.session.memory.share", of, share.map(|share| share * 100.0));
        let busy: Vec<f64> = all(Metric::GpuUtil).filter_map(|line| last(line, seen.now)).collect();
        let many = busy.len() as f64;
        round.measured("eirene.session.gpu.util", of, sum(busy).map(|all| all / many * 100.0));
    }
    round.discoveries.push(("eirene.sessions", discovery(found)));
}

/// A name that people chose, without what Zabbix would take for a macro.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| match letter {
            '{' => '(',
            '}' => ')',
            letter if !is_printable(letter) => ' ',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use eirene_core::scheduler::NodeGpus;
    use eirene_monitoring_store::Point;

    use super::*;
    use crate::testing::{self, start_time};

    fn line(metric: Metric, node: &str, device: Option<&str>, values: &[f64]) -> Recent {
        let now = start_time().as_millisecond();
        let count = i64::try_from(values.len()).unwrap();
        let points = values.iter().zip(0..).map(|(value, place)| {
            let at_ms = now - (count - 1 - place) * 5000;
            Point { at_ms, min: *value, mean: *value, max: *value, count: 1 }
        });
        Recent { metric, node: node.into(), device: device.map(Into::into), points: points.collect() }
    }

    /// One session on c1 with one of its GPUs, and everything that is told of it.
    fn told(change: impl FnOnce(&mut Vec<Recent>, &mut Session, &mut Snapshot)) -> Round {
        let mut session = testing::session("ada");
        session.state = SessionState::Running;
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(start_time());
        let gpu = |metric, value: f64| line(metric, "c1", Some("0"), &[value]);
        let mut lines = vec![
            line(Metric::Cpu, "c1", None, &[100.0, 110.0, 120.0]),
            line(Metric::Memory, "c1", None, &[3e9]),
            line(Metric::MemoryLimit, "c1", None, &[4e9]),
            line(Metric::NodeMemory, "c1", None, &[16e9]),
            line(Metric::NodeMemoryAvailable, "c1", None, &[6e9]),
            line(Metric::NodePressureCpu, "c1", None, &[1.0, 2.0]),
            gpu(Metric::GpuUtil, 0.75),
            gpu(Metric::GpuMemory, 1e9),
            gpu(Metric::GpuMemoryLimit, 8e10),
            gpu(Metric::GpuPower, 250.5),
            gpu(Metric::GpuTemperature, 61.0),
            gpu(Metric::GpuEccUncorrected, 0.0),
            gpu(Metric::GpuThrottled, 0.0),
            gpu(Metric::GpuUp, 1.0),
        ];
        let mut snapshot = testing::snapshot(vec![]);
        change(&mut lines, &mut session, &mut snapshot);
        let (live, recent) = (vec![session.clone()], vec![(session.id, lines)]);
        look(&Seen {
            snapshot: &snapshot,
            live: &live,
            alerts: &[],
            recent: &recent,
            database: Duration::from_millis(2),
            agents: 1,
            with_sessions: true,
            now: start_time(),
        })
    }

    fn value<'a>(round: &'a Round, name: &str) -> Option<&'a str> {
        round.values.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn what_is_known_is_told_in_the_units_of_the_template() {
        let round = told(|_, _, _| {});
        for (name, expected) in [
            ("eirene.sessions.running", "1"),
            ("eirene.sessions.queued", "0"),
            ("eirene.slurm.reachable", "1"),
            ("eirene.database.ping", "0.0020"),
            ("eirene.nodes.total", "2"),
            ("eirene.node.available[c1]", "1"),
            ("eirene.node.sessions[c1]", "1"),
            ("eirene.node.memory.used[c1]", "10000000000"),
            ("eirene.node.cpu.pressure[c1]", "20.0000"),
            ("eirene.gpu.util[c1,0]", "75.0000"),
            ("eirene.gpu.power[c1,0]", "250.5000"),
            ("eirene.gpu.up[c1,0]", "1"),
        ] {
            assert_eq!(value(&round, name), Some(expected), "{name}");
        }
        assert_eq!(value(&round, "eirene.node.memory.used[c2]"), None, "nobody is there to see it");
        let of_session = |name: &str| {
            let start = format!("eirene.session.{name}[");
            round.values.iter().find(|(key, _)| key.starts_with(&start)).map(|(_, value)| value.as_str())
        };
        assert_eq!(of_session("cpu"), Some("2.0000"));
        assert_eq!(of_session("memory"), Some("3000000000"));
        assert_eq!(of_session("memory.share"), Some("75.0000"));
        assert_eq!(of_session("gpu.util"), Some("75.0000"));
        assert!(round.discoveries.contains(&("eirene.gpus", r#"[{"{#GPU}":"0","{#NODE}":"c1"}]"#.into())));
    }

    #[test]
    fn hostile_samples_make_no_more_gpus_than_the_scheduler_knows() {
        let round = told(|lines, _, snapshot| {
            let mut nodes = (*snapshot.nodes).clone();
            nodes[0].gpus = vec![NodeGpus { gpu_type: "a100".into(), total: 2, allocated: 1 }];
            snapshot.nodes = nodes.into();
            lines.extend((1..500).map(|gpu| line(Metric::GpuUp, "c1", Some(&format!("GPU-{gpu}")), &[1.0])));
            lines.push(line(Metric::GpuUp, "c1", Some("a,b]"), &[1.0]));
            lines.push(line(Metric::GpuUp, "elsewhere", Some("0"), &[1.0]));
            lines.push(line(Metric::GpuUtil, "c1", Some("0"), &[f64::NAN]));
        });
        let gpus = round.values.iter().filter(|(key, _)| key.starts_with("eirene.gpu.up["));
        assert_eq!(gpus.count(), 2);
        assert!(!round.values.iter().any(|(key, value)| key.contains("elsewhere") || value.contains("NaN")));
    }

    #[test]
    fn a_divided_gpu_is_told_beside_its_parts_and_takes_the_place_of_none() {
        let round = told(|lines, _, snapshot| {
            let mut nodes = (*snapshot.nodes).clone();
            nodes[0].gpus = vec![NodeGpus { gpu_type: "1g.10gb".into(), total: 2, allocated: 2 }];
            snapshot.nodes = nodes.into();
            lines.clear();
            // In the order in which metrics are asked for.
            lines.push(line(Metric::GpuMemory, "c1", Some("0.0"), &[1e9]));
            lines.extend(["0", "1"].map(|gpu| line(Metric::GpuPower, "c1", Some(gpu), &[300.0])));
            lines.extend(["0.0", "0.1"].map(|gpu| line(Metric::GpuUp, "c1", Some(gpu), &[1.0])));
        });
        assert_eq!(value(&round, "eirene.gpu.power[c1,0]"), Some("300.0000"));
        assert_eq!(value(&round, "eirene.gpu.up[c1,0.0]"), Some("1"));
        assert_eq!(value(&round, "eirene.gpu.power[c1,1]"), Some("300.0000"), "of it no part is told");
        assert_eq!(value(&round, "eirene.gpu.up[c1,0.1]"), None, "and that took a place");
    }

    #[test]
    fn a_name_is_no_macro_of_zabbix() {
        let round = told(|_, session, _| session.name = "{$PASSWORD} \"x\"".parse().unwrap());
        let (_, rows) = round.discoveries.iter().find(|(key, _)| *key == "eirene.sessions").unwrap();
        assert!(rows.contains(r#"($PASSWORD) \"x\""#) && !rows.contains("{$"), "{rows}");
    }

    #[test]
    fn of_a_cluster_that_cannot_be_seen_only_that_is_told() {
        let round = told(|lines, _, snapshot| {
            snapshot.reachable = false;
            lines.clear();
        });
        assert_eq!(value(&round, "eirene.slurm.reachable"), Some("0"));
        assert!(!round.values.iter().any(|(key, _)| key.starts_with("eirene.node")));
        assert!(!round.discoveries.iter().any(|(key, _)| *key == "eirene.nodes"), "its nodes are not gone");
    }

    #[test]
    fn a_database_that_is_away_is_told_and_nothing_that_is_in_it() {
        let round = without_database(&testing::snapshot(vec![]), 3);
        let told = ["database.reachable", "agents.connected", "slurm.reachable", "nodes.total", "database.ping"];
        let told = told.map(|name| value(&round, &format!("eirene.{name}")));
        assert_eq!(told, [Some("0"), Some("3"), Some("1"), Some("2"), None]);
        let stored = |key: &str| ["sessions", "runs", "alerts"].iter().any(|name| key.contains(name));
        assert!(!round.values.iter().any(|(key, _)| stored(key)), "none is not the same as not known");
        assert!(round.discoveries.is_empty(), "and nothing is gone");
    }

    #[test]
    fn what_is_out_of_date_is_no_value_and_a_counter_that_began_anew_no_rate() {
        let round = told(|lines, _, _| {
            for line in lines.iter_mut() {
                match line.metric {
                    Metric::GpuUtil => line.points[0].at_ms -= 40_000,
                    Metric::Cpu => line.points[2].max = 1.0,
                    _ => {}
                }
            }
        });
        assert_eq!(value(&round, "eirene.gpu.util[c1,0]"), None);
        assert!(!round.values.iter().any(|(key, _)| key.starts_with("eirene.session.cpu[")));
    }

    #[test]
    fn the_template_has_an_item_for_everything_that_is_told() {
        let round = told(|_, _, _| {});
        let name = |key: &str| key.split('[').next().unwrap().to_owned();
        let told: BTreeSet<String> = round
            .values
            .iter()
            .map(|(key, _)| name(key))
            .chain(round.discoveries.iter().map(|(key, _)| (*key).to_owned()))
            .collect();
        let template = include_str!("../../../../deploy/zabbix/eirene.yaml");
        let keys = template.lines().filter_map(|line| line.trim().strip_prefix("key: "));
        let keys: BTreeSet<String> = keys.map(|key| name(key.trim_matches('\''))).collect();
        assert_eq!(told, keys);
        // `eirene.gpu.up[c1,0]` is only the item of a prototype that is written in the same way.
        for written in
            ["'eirene.node.available[{#NODE}]'", "'eirene.gpu.up[{#NODE},{#GPU}]'", "'eirene.session.cpu[{#SESSION}]'"]
        {
            assert!(template.contains(&format!("key: {written}")), "{written}");
        }
    }

    #[test]
    fn the_ids_of_the_template_are_distinct_and_of_version_4() {
        let template = include_str!("../../../../deploy/zabbix/eirene.yaml");
        let ids: Vec<&str> =
            template.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uuid: ")).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        for id in ids {
            let hex = id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            assert!(hex && &id[12..13] == "4" && "89ab".contains(&id[16..17]), "{id}");
        }
    }
}
