//! The nodes of the cluster as a map of tiles, coloured by one measure at a time, and as a table of all of them.
//!
//! A colour never says something alone: a tile is filled higher the more there is, has a sign where it is out of the ordinary, and says in words
//! what it is; the legend counts what has which colour.

use std::collections::BTreeMap;

use eirene_core::NodeName;
use eirene_core::scheduler::Node;
use eirene_services::cluster::overview::Seen;
use eirene_words::Words;
use serde::Serialize;

use super::format;

/// With more nodes than these, names would leave no room for the picture.
const MOST_NAMED: usize = 64;

/// What a node is looked at by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// How much of it jobs have.
    Allocation,
    /// How much its CPUs have to do.
    Load,
    /// How many of its GPUs jobs have, and what those do.
    Gpu,
    /// Whether it takes work.
    Health,
}

impl Measure {
    const ALL: [Self; 4] = [Self::Allocation, Self::Load, Self::Gpu, Self::Health];

    /// What an address asks for; what it does not say, or nobody knows, is the first.
    pub(crate) fn read(word: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|measure| Some(measure.word()) == word).unwrap_or(Self::Allocation)
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Load => "load",
            Self::Gpu => "gpu",
            Self::Health => "health",
        }
    }

    /// What follows `/cluster` in an address that asks for it.
    pub(crate) fn query(self) -> String {
        if self == Self::Allocation { String::new() } else { format!("?by={}", self.word()) }
    }

    /// What its colours say, in the order of the legend.
    const fn legend(self) -> &'static [Level] {
        match self {
            Self::Allocation => &[Level::Empty, Level::Half, Level::Full, Level::Off],
            Self::Load => &[Level::Empty, Level::Half, Level::Full, Level::Over, Level::Unknown, Level::Off],
            Self::Gpu => &[Level::Empty, Level::Half, Level::Full, Level::Nothing, Level::Off],
            Self::Health => &[Level::Well, Level::Drained, Level::Down, Level::Off, Level::Unknown],
        }
    }
}

/// What a tile looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Empty,
    Quarter,
    Half,
    Most,
    Full,
    /// More than there is.
    Over,
    /// It has nothing of the kind.
    Nothing,
    Unknown,
    /// It takes no work, whatever is on it.
    Off,
    Well,
    Drained,
    Down,
}

impl Level {
    /// Its part of the style sheet, `heat-…`.
    const fn style(self) -> &'static str {
        match self {
            Self::Empty => "0",
            Self::Quarter => "1",
            Self::Half => "2",
            Self::Most => "3",
            Self::Full => "4",
            Self::Over => "over",
            Self::Nothing => "nothing",
            Self::Unknown => "unknown",
            Self::Off => "off",
            Self::Well => "well",
            Self::Drained => "drained",
            Self::Down => "down",
        }
    }

    /// A sign that can be told from the others without any colour.
    const fn sign(self) -> &'static str {
        match self {
            Self::Empty | Self::Quarter | Self::Half | Self::Most | Self::Full | Self::Off => "",
            Self::Over => "!",
            Self::Nothing => "–",
            Self::Unknown => "?",
            Self::Well => "✓",
            Self::Drained => "‖",
            Self::Down => "×",
        }
    }

    /// Under which entry of the legend it is counted.
    const fn entry(self) -> Self {
        match self {
            Self::Quarter | Self::Most => Self::Half,
            other => other,
        }
    }

    /// Of a share; what has any room is not full, and what has anything not empty.
    fn of_share(used: u64, all: u64) -> Self {
        match used.saturating_mul(4).div_ceil(all.max(1)) {
            _ if used >= all && all > 0 => Self::Full,
            0 => Self::Empty,
            1 => Self::Quarter,
            2 => Self::Half,
            _ => Self::Most,
        }
    }

    /// Of the load of this many CPUs. It is a mean, so a little of it is nothing, and nearly all is all.
    fn of_load(hundredths: u32, cpus: u32) -> Self {
        match u64::from(hundredths) / u64::from(cpus.max(1)) {
            0..5 => Self::Empty,
            5..35 => Self::Quarter,
            35..65 => Self::Half,
            65..95 => Self::Most,
            95..=110 => Self::Full,
            _ => Self::Over,
        }
    }
}

/// The map.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeMap {
    /// What it can be looked at by.
    measures: Vec<MeasurePart>,
    /// What it is looked at by, in words.
    by: String,
    /// One sentence about that.
    about: String,
    /// Its nodes.
    nodes: Vec<NodePart>,
    /// Whether nodes are too many to be named in the picture.
    dense: bool,
    /// What colours and signs mean, and how many nodes have them.
    legend: Vec<LegendPart>,
    /// Whether some are marked as one's own.
    has_mine: bool,
}

#[derive(Debug, Clone, Serialize)]
struct MeasurePart {
    label: String,
    href: String,
    current: bool,
}

#[derive(Debug, Clone, Serialize)]
struct LegendPart {
    style: &'static str,
    sign: &'static str,
    label: String,
    count: String,
}

/// A node.
#[derive(Debug, Clone, Serialize)]
struct NodePart {
    name: String,
    /// Its page, for whoever runs the platform; empty for others.
    href: String,
    style: &'static str,
    sign: &'static str,
    /// What the measure says of it.
    text: String,
    /// How many sessions and runs of one's own, the operator's of everybody, are there; empty for none.
    mine: String,
    // The rest is in the table.
    state: String,
    cpus: String,
    load: String,
    memory: String,
    gpus: String,
    partitions: String,
}

impl NodeMap {
    /// Shows the nodes that somebody sees.
    pub(crate) fn new(words: &Words, seen: &Seen, by: Measure) -> Self {
        let nodes = &seen.cluster.nodes;
        let mut there = BTreeMap::<&NodeName, u64>::new();
        for node in seen.live.iter().flat_map(|session| &session.nodes) {
            *there.entry(node).or_default() += 1;
        }
        let mut counts = BTreeMap::<Level, u64>::new();
        let mut parts = Vec::with_capacity(nodes.len());
        for node in nodes.iter() {
            let level = level(node, by);
            *counts.entry(level.entry()).or_default() += 1;
            let there = there.get(&node.name).copied().unwrap_or_default();
            parts.push(part(words, seen, node, there, (by, level)));
        }
        let entry = |level: &Level| LegendPart {
            style: level.style(),
            sign: level.sign(),
            label: words.get(label(by, *level)),
            count: format::number(counts.get(level).copied().unwrap_or_default()),
        };
        let measure = |measure: Measure| MeasurePart {
            label: words.get(name(measure)),
            href: format!("/cluster{}", measure.query()),
            current: measure == by,
        };
        Self {
            measures: Measure::ALL.into_iter().map(measure).collect(),
            by: words.get(name(by)),
            about: words.get(about(by)),
            dense: nodes.len() > MOST_NAMED,
            legend: by.legend().iter().map(entry).collect(),
            has_mine: !seen.is_operator && parts.iter().any(|part| !part.mine.is_empty()),
            nodes: parts,
        }
    }
}

const fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Allocation => "node_map.allocation",
        Measure::Load => "node_map.load",
        Measure::Gpu => "node_map.gpu",
        Measure::Health => "node_map.health",
    }
}

const fn about(measure: Measure) -> &'static str {
    match measure {
        Measure::Allocation => "node_map.allocation_about",
        Measure::Load => "node_map.load_about",
        Measure::Gpu => "node_map.gpu_about",
        Measure::Health => "node_map.health_about",
    }
}

const fn label(measure: Measure, level: Level) -> &'static str {
    match (measure, level) {
        (Measure::Load, Level::Empty) => "node_map.idle",
        (Measure::Load, Level::Half) => "node_map.partly_busy",
        (Measure::Load, Level::Full) => "node_map.busy",
        (_, Level::Empty) => "node_map.free",
        (_, Level::Full) => "node_map.full",
        (_, Level::Quarter | Level::Half | Level::Most) => "node_map.partly",
        (_, Level::Over) => "node_map.over",
        (_, Level::Nothing) => "node_map.no_gpus",
        (_, Level::Unknown) => "node_map.unknown",
        (_, Level::Off) => "node_map.off",
        (_, Level::Well) => "node_map.well",
        (_, Level::Drained) => "node_map.drained",
        (_, Level::Down) => "node_map.down",
    }
}

fn gpus_of(node: &Node) -> (u64, u64) {
    node.gpus.iter().fold((0, 0), |(used, all), gpus| {
        (used + u64::from(gpus.allocated.min(gpus.total)), all + u64::from(gpus.total))
    })
}

fn level(node: &Node, by: Measure) -> Level {
    let gpus = gpus_of(node);
    match by {
        Measure::Health if node.available => Level::Well,
        Measure::Health => match node.state.as_str() {
            "down" => Level::Down,
            "drained" | "draining" => Level::Drained,
            "powering down" | "rebooting" => Level::Off,
            _ => Level::Unknown,
        },
        // What a node last said before it fell silent is not its load.
        Measure::Load if is_off(node) => Level::Off,
        Measure::Load => node.cpu_load.map_or(Level::Unknown, |load| Level::of_load(load, node.cpus)),
        Measure::Gpu if gpus.1 == 0 => Level::Nothing,
        _ if !node.available => Level::Off,
        Measure::Gpu => Level::of_share(gpus.0, gpus.1),
        // Where one thing has run out the rest is of little use, so what is scarcest counts.
        Measure::Allocation => {
            let cpus = (node.cpus_allocated.into(), node.cpus.into());
            let memory = (node.memory_allocated_mib, node.memory_mib);
            let levels = [cpus, memory, gpus].map(|(used, all)| Level::of_share(used, all));
            levels.into_iter().max().unwrap_or(Level::Empty)
        }
    }
}

/// A node with so many sessions and runs on it.
fn part(words: &Words, seen: &Seen, node: &Node, there: u64, (by, level): (Measure, Level)) -> NodePart {
    let used = |used: u64, all: u64| words.fill("nodes.of", &[("used", &used.to_string()), ("all", &all.to_string())]);
    let cpus = used(node.cpus_allocated.into(), node.cpus.into());
    let load = load(node);
    let gpus = gpus(words, node, seen.gpus_busy.get(&node.name).copied());
    let reason = node.reason.as_deref().unwrap_or_default();
    let said = match by {
        Measure::Allocation => {
            let parts = [gpus.clone(), words.fill("node_map.cpus", &[("used", &cpus)])];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
        }
        Measure::Load if load.is_empty() => words.get("node_map.load_unknown"),
        Measure::Load => words.fill("node_map.load_of", &[("load", &load), ("cpus", &node.cpus.to_string())]),
        Measure::Gpu if gpus.is_empty() => words.get("node_map.no_gpus"),
        Measure::Gpu => gpus.clone(),
        Measure::Health => reason.to_owned(),
    };
    let state = if node.is_planned && node.available {
        words.fill("node_map.planned", &[("state", &node.state)])
    } else {
        node.state.clone()
    };
    let text = if said.is_empty() { state.clone() } else { format!("{state}, {said}") };
    let mine = match there {
        0 => String::new(),
        there if seen.is_operator => words.count("node_map.jobs", there),
        there => words.count("node_map.yours", there),
    };
    NodePart {
        name: node.name.to_string(),
        href: if seen.is_operator { page(&node.name) } else { String::new() },
        style: level.style(),
        sign: level.sign(),
        text,
        mine,
        state: if reason.is_empty() { state } else { format!("{state}: {reason}") },
        cpus,
        load,
        memory: words.fill(
            "nodes.of",
            &[
                ("used", &format::memory(words, node.memory_allocated_mib)),
                ("all", &format::memory(words, node.memory_mib)),
            ],
        ),
        gpus,
        partitions: node.partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn page(node: &NodeName) -> String {
    format!("/admin/nodes/{node}")
}

/// Whether nobody on it can say anything now.
fn is_off(node: &Node) -> bool {
    ["down", "powering down", "rebooting"].contains(&node.state.as_str())
}

/// The load as other programs write it; empty where nobody says it.
fn load(node: &Node) -> String {
    let known = node.cpu_load.filter(|_| !is_off(node));
    known.map(|hundredths| format!("{:.1}", f64::from(hundredths) / 100.0)).unwrap_or_default()
}

/// GPUs by type, and how busy those are of which somebody tells; empty where it has none.
fn gpus(words: &Words, node: &Node, busy: Option<f64>) -> String {
    let of_type = node.gpus.iter().filter(|gpus| gpus.total > 0).map(|gpus| {
        let kind = if gpus.gpu_type.is_empty() { words.get("free.gpu_untyped") } else { gpus.gpu_type.clone() };
        let used = words.fill("nodes.of", &[("used", &gpus.allocated.to_string()), ("all", &gpus.total.to_string())]);
        words.fill("nodes.gpu", &[("type", &kind), ("used", &used)])
    });
    let mut parts: Vec<String> = of_type.collect();
    if let Some(busy) = busy.filter(|_| !parts.is_empty()) {
        parts.push(words.fill("node_map.gpus_busy", &[("percent", &format!("{:.0}", busy * 100.0))]));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eirene_core::scheduler::NodeGpus;
    use eirene_services::cluster::ClusterView;
    use eirene_services::testing;

    use super::*;

    fn seen(edit: impl FnOnce(&mut Vec<Node>)) -> Seen {
        let snapshot = testing::snapshot(vec![]);
        let mut nodes = Vec::clone(&snapshot.nodes);
        edit(&mut nodes);
        let cluster = ClusterView {
            at: snapshot.asked_at,
            reachable: true,
            partitions: Arc::clone(&snapshot.partitions),
            gpu_types: vec![],
            nodes: Arc::new(nodes),
            queue: Arc::default(),
        };
        Seen { cluster, is_operator: false, left_out: 0, live: vec![], gpus_busy: BTreeMap::new() }
    }

    fn map(seen: &Seen, by: Measure) -> NodeMap {
        NodeMap::new(eirene_words::words(), seen, by)
    }

    #[test]
    fn what_has_room_is_not_full_and_what_has_anything_not_empty() {
        let share = |used, all| Level::of_share(used, all).style();
        assert_eq!([0, 1, 2, 3, 4].map(|used| share(used, 4)), ["0", "1", "2", "3", "4"]);
        assert_eq!([1, 127, 128].map(|used| share(used, 128)), ["1", "3", "4"]);
        assert_eq!((share(0, 0), share(9, 4), share(u64::MAX, u64::MAX)), ("0", "4", "4"));
        let load = |hundredths| Level::of_load(hundredths, 8).style();
        assert_eq!([0, 100, 400, 700, 800, 880, 1600].map(load), ["0", "1", "2", "3", "4", "4", "over"]);
        assert_eq!(Level::of_load(u32::MAX, 0), Level::Over);
    }

    #[test]
    fn each_measure_colours_by_its_own_and_the_legend_counts_every_node_once() {
        let mut seen = seen(|nodes| {
            // All memory is gone, half of the GPUs, and the CPUs have nothing to do.
            nodes[0].memory_allocated_mib = nodes[0].memory_mib;
            nodes[0].gpus = vec![NodeGpus { gpu_type: "a100".into(), total: 2, allocated: 1 }];
            nodes[0].cpu_load = Some(2);
            let mut down = nodes[1].clone();
            (down.available, down.cpu_load, down.reason) = (false, Some(700), Some("smoke".into()));
            "down".clone_into(&mut down.state);
            nodes[1].gpus.clear();
            nodes.push(down);
        });
        seen.gpus_busy.insert(seen.cluster.nodes[0].name.clone(), 0.427);
        let styles = |by| map(&seen, by).nodes.iter().map(|node| node.style).collect::<Vec<_>>();
        assert_eq!(styles(Measure::Allocation), ["4", "0", "off"]);
        assert_eq!(styles(Measure::Load), ["0", "unknown", "off"]);
        assert_eq!(styles(Measure::Gpu), ["2", "nothing", "off"]);
        assert_eq!(styles(Measure::Health), ["well", "well", "down"]);
        for by in Measure::ALL {
            let map = map(&seen, by);
            let counted: u64 = map.legend.iter().map(|entry| entry.count.parse::<u64>().unwrap()).sum();
            assert_eq!(counted, 3, "{by:?}");
            assert_eq!(map.measures.iter().filter(|measure| measure.current).count(), 1);
            for node in &map.nodes {
                let in_legend = map.legend.iter().any(|entry| entry.style == node.style);
                assert!(in_legend || ["1", "3"].contains(&node.style), "{by:?}: {}", node.style);
                assert!(!node.text.is_empty());
            }
        }
        assert!(map(&seen, Measure::Gpu).nodes[0].text.ends_with("1 of 2, 43\u{a0}% busy"));
        assert!(map(&seen, Measure::Health).nodes[2].text.contains("smoke"));
        assert_eq!(map(&seen, Measure::Load).nodes[2].load, "", "what it said before it was down is not its load");
    }

    #[test]
    fn an_address_asks_for_a_measure_and_nonsense_for_the_first() {
        for measure in Measure::ALL {
            assert_eq!(Measure::read(Some(measure.word())), measure);
        }
        assert_eq!([None, Some(""), Some("Load"), Some("<b>")].map(Measure::read), [Measure::Allocation; 4]);
    }

    #[test]
    fn nodes_are_marked_where_something_of_ones_own_is_and_only_the_operator_gets_their_pages() {
        let mut seen = seen(|_| {});
        let mut session = testing::session("ada");
        session.nodes = vec![seen.cluster.nodes[1].name.clone()];
        seen.live.push(session);
        let hers = map(&seen, Measure::Health);
        assert!(hers.has_mine && hers.nodes[0].mine.is_empty() && !hers.nodes[1].mine.is_empty());
        assert!(hers.nodes.iter().all(|node| node.href.is_empty()));
        seen.is_operator = true;
        let all = map(&seen, Measure::Health);
        assert!(!all.has_mine && all.nodes[1].mine != hers.nodes[1].mine);
        assert_eq!(all.nodes[1].href, "/admin/nodes/c2");
    }
}
