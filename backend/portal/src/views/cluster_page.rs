//! The cluster as somebody sees it: GPUs by type now and in the coming days, nodes by what is wanted to be known of them, partitions, and who waits.

use eirene_core::scheduler::{Node, Partition, Queue};
use eirene_core::{JobKind, Session};
use eirene_services::cluster::GpuSupply;
use eirene_services::cluster::forecast::{FreeFrom, HORIZON};
use eirene_services::cluster::overview::Seen;
use eirene_services::samples::{ClusterPast, Figure};
use eirene_words::Words;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::chart;
use super::format::{self, Time};
use super::layout::Layout;
use super::node_map::{Measure, NodeMap};
use super::session::sentence;
use super::usage::{Draft, Kind, PictureView, Series};
use crate::pages::Page;

/// A picture shows one day where everything that is known happens within one.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Of those that wait so many are shown.
const MOST_WAITING: usize = 200;

/// The cluster as its page shows it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClusterPart {
    /// Whether the scheduler answers.
    reachable: bool,
    /// When it was last asked.
    at: Option<Time>,
    /// Whether all of it is shown, also what is others'.
    is_operator: bool,
    /// How much is left out; empty for nothing.
    left_out: String,
    /// GPUs by type.
    gpus: Vec<GpuPart>,
    /// Nodes.
    map: NodeMap,
    /// How many nodes take work.
    nodes_text: String,
    /// Partitions.
    partitions: Vec<PartitionPart>,
    /// Sessions and runs that wait: one's own, the operator's all.
    queue: Vec<WaitingPart>,
    /// That there are more; empty where there are not.
    queue_more: String,
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
    /// How many of the free ones are reserved for jobs that wait, in words; empty for none.
    reserved: String,
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

/// A partition.
#[derive(Debug, Clone, Serialize)]
struct PartitionPart {
    name: String,
    is_default: bool,
    is_open: bool,
    /// Whether it is for some projects only; who has one is not known here.
    is_by_account: bool,
    nodes: String,
    longest: String,
    running: String,
    waiting: String,
}

/// A session or run that waits.
#[derive(Debug, Clone, Serialize)]
struct WaitingPart {
    name: String,
    href: String,
    /// Whose it is.
    owner: String,
    partition: String,
    since: Time,
    /// Why it waits; empty where nobody says.
    reason: String,
    /// When it starts, as far as the scheduler can tell.
    estimate: Option<Time>,
}

impl ClusterPart {
    /// Shows what somebody sees of the cluster.
    pub(crate) fn new(words: &Words, seen: &Seen, by: Measure, past: Option<&ClusterPast>, now: Timestamp) -> Self {
        let cluster = &seen.cluster;
        let up = cluster.nodes.iter().filter(|node| node.available).count();
        let nodes_text =
            words.fill("free.nodes", &[("up", &up.to_string()), ("total", &cluster.nodes.len().to_string())]);
        let counted = |key: &str, count: usize| if count == 0 { String::new() } else { words.count(key, count as u64) };
        Self {
            reachable: cluster.reachable,
            at: cluster.at.map(Time::new),
            is_operator: seen.is_operator,
            left_out: counted("cluster_page.left_out", seen.left_out),
            gpus: cluster.gpu_types.iter().map(|gpus| gpu(words, gpus, now)).collect(),
            map: NodeMap::new(words, seen, by),
            nodes_text,
            past: past.map(|past| pictures(words, past)).unwrap_or_default(),
            partitions: cluster
                .partitions
                .iter()
                .map(|each| partition(words, each, &cluster.nodes, &cluster.queue))
                .collect(),
            queue: seen.waiting().take(MOST_WAITING).map(|session| waiting(words, session, now)).collect(),
            queue_more: counted("cluster_page.queue_more", seen.waiting().count().saturating_sub(MOST_WAITING)),
        }
    }
}

fn waiting(words: &Words, session: &Session, now: Timestamp) -> WaitingPart {
    let folder = match session.kind() {
        JobKind::Session => "sessions",
        JobKind::Run => "runs",
    };
    let partition = session.resources.partition.as_ref();
    WaitingPart {
        name: session.name.to_string(),
        href: format!("/{folder}/{}", session.id),
        owner: session.owner_name.to_string(),
        partition: partition.map_or_else(|| words.get("cluster_page.default_partition"), ToString::to_string),
        since: Time::new(session.created_at),
        reason: session.reason.as_ref().map(|reason| sentence(&reason.text)).unwrap_or_default(),
        estimate: session.start_estimate.filter(|at| *at > now).map(Time::new),
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
        None if gpus.free >= gpus.total && gpus.reserved == 0 => words.get("cluster_page.all_free"),
        None if gpus.free >= gpus.total => String::new(),
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
        reserved: match gpus.reserved {
            0 => String::new(),
            reserved => words.count("cluster_page.reserved", reserved.into()),
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

fn partition(words: &Words, partition: &Partition, nodes: &[Node], queue: &Queue) -> PartitionPart {
    let mine = nodes.iter().filter(|node| node.partitions.contains(&partition.name));
    let (up, all) = mine.fold((0, 0), |(up, all), node| (up + u64::from(node.available), all + 1));
    let is_here = |name: &str| name == partition.name.as_str();
    PartitionPart {
        name: partition.name.to_string(),
        is_default: partition.is_default,
        is_open: partition.available,
        is_by_account: partition.access.by_account,
        nodes: words.fill("free.of", &[("free", &up.to_string()), ("total", &all.to_string())]),
        longest: partition
            .max_walltime_min
            .map_or_else(|| words.get("cluster_page.no_limit"), |longest| format::minutes(words, longest.into())),
        running: format::number(queue.running_in(is_here).into()),
        waiting: format::number(queue.waiting_in(is_here).jobs.into()),
    }
}

/// The page.
#[derive(Debug, Serialize)]
pub(crate) struct ClusterPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// Where what changes is fetched again.
    pub(crate) fragment_href: String,
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
    use eirene_services::testing::start_time;

    use super::*;

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
            reserved: 0,
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
}
