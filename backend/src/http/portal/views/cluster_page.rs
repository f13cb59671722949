//! The cluster for everybody: GPUs by type now and in the coming days, nodes by how full they are, partitions and who waits in them.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use eirene_core::scheduler::{Job, JobState, Node, Partition};
use eirene_words::Words;

use super::chart;
use super::format::{self, Time};
use super::layout::Layout;
use super::usage::{Draft, Kind, PictureView, Series};
use crate::http::portal::pages::Page;
use crate::services::cluster::forecast::{FreeFrom, HORIZON};
use crate::services::cluster::{ClusterView, GpuSupply};
use crate::services::samples::{ClusterPast, Figure};

/// A picture shows one day where everything that is known happens within one.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// With more nodes than these, names would leave no room for the picture.
const MOST_NAMED: usize = 64;

/// The cluster as its page shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClusterPart {
    /// Whether the scheduler answers.
    reachable: bool,
    /// When it was last asked.
    at: Option<Time>,
    /// GPUs by type.
    gpus: Vec<GpuPart>,
    /// Nodes.
    nodes: Vec<NodePart>,
    /// Whether nodes are too many to be named in the picture.
    dense: bool,
    /// How many nodes take work.
    nodes_text: String,
    /// Partitions.
    partitions: Vec<PartitionPart>,
    /// Its past, in pictures; none where nothing is known of it.
    past: Vec<PictureView>,
}

/// GPUs of one type.
#[derive(Debug, Clone, Serialize)]
struct GpuPart {
    name: String,
    /// How many are free now, of how many.
    now: String,
    /// What comes next; the time belongs to the end of it.
    next: String,
    next_at: Option<Time>,
    /// How many are waited for; empty for none.
    waiting: String,
    /// The line of the picture; empty where nothing comes free.
    points: String,
    /// What the picture shows.
    text: String,
    /// The same as rows.
    rows: Vec<FreeRow>,
}

#[derive(Debug, Clone, Serialize)]
struct FreeRow {
    at: Time,
    free: String,
}

/// A node in the picture.
#[derive(Debug, Clone, Serialize)]
struct NodePart {
    name: String,
    /// How full it is, from `0` for free to `4` for full; `off` where it takes no work.
    level: &'static str,
    /// State and what is in use.
    text: String,
}

/// A partition.
#[derive(Debug, Clone, Serialize)]
struct PartitionPart {
    name: String,
    is_default: bool,
    is_open: bool,
    nodes: String,
    longest: String,
    running: String,
    waiting: String,
}

impl ClusterPart {
    /// Shows the cluster with the jobs on it.
    pub(crate) fn new(
        words: &Words,
        cluster: &ClusterView,
        jobs: &[Job],
        past: Option<&ClusterPast>,
        now: Timestamp,
    ) -> Self {
        let up = cluster.nodes.iter().filter(|node| node.available).count();
        let nodes_text =
            words.fill("free.nodes", &[("up", &up.to_string()), ("total", &cluster.nodes.len().to_string())]);
        Self {
            reachable: cluster.reachable,
            at: cluster.at.map(Time::new),
            gpus: cluster.gpu_types.iter().map(|gpus| gpu(words, gpus, now)).collect(),
            nodes: cluster.nodes.iter().map(|each| node(words, each)).collect(),
            dense: cluster.nodes.len() > MOST_NAMED,
            nodes_text,
            past: past.map(|past| pictures(words, past)).unwrap_or_default(),
            partitions: cluster.partitions.iter().map(|each| partition(words, each, &cluster.nodes, jobs)).collect(),
        }
    }
}

/// How many jobs ran and waited; on a cluster with GPUs, how many of those were in use and waited for.
fn pictures(words: &Words, past: &ClusterPast) -> Vec<PictureView> {
    let series = |key: &str, figure| Series::new(words.get(key), past.values(figure).to_vec(), None);
    let draft = |id: &str, key: &str, series, limit| Draft {
        id: id.to_owned(),
        title: words.get(key),
        kind: Kind::Number,
        series,
        limit,
        remark: String::new(),
    };
    let total = past.values(Figure::GpusTotal).iter().flatten().copied().reduce(f64::max).filter(|total| *total > 0.0);
    let jobs = vec![
        series("cluster_page.jobs_running", Figure::JobsRunning),
        series("cluster_page.jobs_waiting", Figure::JobsWaiting),
    ];
    let gpus = vec![
        series("cluster_page.gpus_held", Figure::GpusHeld),
        series("cluster_page.gpus_waiting", Figure::GpusWaiting),
    ];
    let known = past.values(Figure::JobsRunning).iter().any(Option::is_some);
    let all = [
        known.then(|| draft("past-jobs", "cluster_page.past_jobs", jobs, None)),
        total.map(|total| draft("past-gpus", "cluster_page.past_gpus", gpus, Some(total))),
    ];
    all.into_iter().flatten().map(|draft| draft.picture(words, false)).collect()
}

fn gpu(words: &Words, gpus: &GpuSupply, now: Timestamp) -> GpuPart {
    let of = |free: u32| words.fill("free.of", &[("free", &free.to_string()), ("total", &gpus.total.to_string())]);
    let day = SignedDuration::from_hours(0)..=DAY;
    let span = if gpus.forecast.iter().all(|step| day.contains(&step.at.duration_since(now))) { DAY } else { HORIZON };
    let points = match gpus.forecast.as_slice() {
        [] => String::new(),
        steps => stairs(gpus.free, steps, now, span, gpus.total),
    };
    let next = match gpus.forecast.first() {
        Some(step) => {
            let more = step.free.saturating_sub(gpus.free);
            words.count("cluster_page.next", more.into())
        }
        None if gpus.free >= gpus.total => words.get("cluster_page.all_free"),
        None => words.get("cluster_page.no_next"),
    };
    let key = if span == DAY { "cluster_page.chart_day" } else { "cluster_page.chart_week" };
    let last = gpus.forecast.last().map_or(gpus.free, |step| step.free);
    GpuPart {
        name: if gpus.gpu_type.is_empty() { words.get("free.gpu_untyped") } else { gpus.gpu_type.clone() },
        now: of(gpus.free),
        next,
        next_at: gpus.forecast.first().map(|step| Time::new(step.at)),
        waiting: match gpus.waiting {
            0 => String::new(),
            waiting => words.count("cluster_page.waiting_gpus", waiting.into()),
        },
        points,
        text: words.fill(key, &[("free", &gpus.free.to_string()), ("last", &last.to_string())]),
        rows: gpus.forecast.iter().map(|step| FreeRow { at: Time::new(step.at), free: of(step.free) }).collect(),
    }
}

/// A line that stays where it is until the next step.
fn stairs(free: u32, steps: &[FreeFrom], now: Timestamp, span: SignedDuration, total: u32) -> String {
    let until = now.checked_add(span).unwrap_or(Timestamp::MAX);
    let (mut corners, mut before) = (vec![(now, u64::from(free))], u64::from(free));
    for step in steps {
        corners.push((step.at, before));
        before = step.free.into();
        corners.push((step.at, before));
    }
    corners.push((until, before));
    chart::line(&corners, now, until, total.into())
}

fn node(words: &Words, node: &Node) -> NodePart {
    let (gpus, held) = node.gpus.iter().fold((0_u64, 0_u64), |(all, held), gpus| {
        (all + u64::from(gpus.total), held + u64::from(gpus.allocated.min(gpus.total)))
    });
    // A node without free GPUs is full to whoever wants one; without any, it is its processors that count.
    let (used, all) = if gpus > 0 { (held, gpus) } else { (node.cpus_allocated.into(), u64::from(node.cpus)) };
    let cpus = words
        .fill("cluster_page.node_cpus", &[("used", &node.cpus_allocated.to_string()), ("all", &node.cpus.to_string())]);
    let of_gpus = node.gpus.iter().filter(|gpus| gpus.total > 0).map(|gpus| {
        let kind = if gpus.gpu_type.is_empty() { words.get("free.gpu_untyped") } else { gpus.gpu_type.clone() };
        let used = words.fill("nodes.of", &[("used", &gpus.allocated.to_string()), ("all", &gpus.total.to_string())]);
        words.fill("nodes.gpu", &[("type", &kind), ("used", &used)])
    });
    let parts: Vec<String> = std::iter::once(node.state.clone()).chain(of_gpus).chain([cpus]).collect();
    NodePart { name: node.name.to_string(), level: level(node.available, used, all), text: parts.join(", ") }
}

fn level(available: bool, used: u64, all: u64) -> &'static str {
    match (used * 4).div_ceil(all.max(1)) {
        _ if !available => "off",
        _ if used >= all && all > 0 => "4",
        0 => "0",
        1 => "1",
        2 => "2",
        _ => "3",
    }
}

fn partition(words: &Words, partition: &Partition, nodes: &[Node], jobs: &[Job]) -> PartitionPart {
    let mine = nodes.iter().filter(|node| node.partitions.contains(&partition.name));
    let (up, all) = mine.fold((0, 0), |(up, all), node| (up + u64::from(node.available), all + 1));
    // A job that waits may name several partitions.
    let is_here = |job: &&Job| job.partition.split(',').any(|name| name == partition.name.as_str());
    let count = |states: &[JobState]| jobs.iter().filter(is_here).filter(|job| states.contains(&job.state)).count();
    PartitionPart {
        name: partition.name.to_string(),
        is_default: partition.is_default,
        is_open: partition.available,
        nodes: words.fill("free.of", &[("free", &up.to_string()), ("total", &all.to_string())]),
        longest: partition
            .max_walltime_min
            .map_or_else(|| words.get("cluster_page.no_limit"), |longest| format::minutes(words, longest.into())),
        running: format::number(count(&[JobState::Running, JobState::Configuring, JobState::Completing]) as u64),
        waiting: format::number(count(&[JobState::Pending]) as u64),
    }
}

/// The page.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What it shows.
    pub(crate) cluster: ClusterPart,
}

impl Page for ClusterPage {
    const TEMPLATE: &'static str = "pages/cluster.html";
}

/// What changes on that page, by itself.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterFragment {
    /// What it shows.
    pub(crate) cluster: ClusterPart,
}

impl Page for ClusterFragment {
    const TEMPLATE: &'static str = "fragments/cluster.html";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start_time;

    fn at(minutes: i64) -> Timestamp {
        start_time() + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn a_line_stays_until_more_come_free() {
        let steps = [FreeFrom { at: at(720), free: 2 }];
        assert_eq!(
            stairs(0, &steps, at(0), DAY, 4),
            "0.0,138.0 300.0,138.0 300.0,70.0 600.0,70.0",
            "half of the day nothing, then half of them"
        );
    }

    #[test]
    fn what_comes_is_said_and_a_week_is_drawn_where_a_day_is_too_short() {
        let words = eirene_words::words();
        let supply = |free, forecast: &[(i64, u32)]| GpuSupply {
            gpu_type: "a100".into(),
            total: 8,
            free,
            forecast: forecast.iter().map(|(minutes, free)| FreeFrom { at: at(*minutes), free: *free }).collect(),
            waiting: 3,
        };
        let today = gpu(words, &supply(1, &[(90, 3)]), at(0));
        assert!(today.next.starts_with('2') && today.next_at.is_some(), "{}", today.next);
        assert!(today.waiting.contains('3') && today.now == "1 of 8", "{today:?}");
        let week = gpu(words, &supply(1, &[(90, 3), (60 * 24 * 3, 8)]), at(0));
        assert_ne!(today.text.replace('8', "3"), week.text.replace('8', "3"), "a day and a week are told apart");
        assert_eq!(week.rows.len(), 2);
        assert!(gpu(words, &supply(1, &[]), at(0)).points.is_empty());
        assert_ne!(gpu(words, &supply(1, &[]), at(0)).next, gpu(words, &supply(8, &[]), at(0)).next);
    }

    #[test]
    fn a_node_is_as_full_as_its_gpus() {
        assert_eq!([0, 1, 2, 3, 4].map(|used| level(true, used, 4)), ["0", "1", "2", "3", "4"]);
        assert_eq!([1, 127, 128].map(|used| level(true, used, 128)), ["1", "3", "4"], "what has room is not full");
        assert_eq!((level(false, 0, 4), level(true, 0, 0), level(true, 9, 4)), ("off", "0", "4"));
    }
}
