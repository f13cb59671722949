//! What one agent says of its session: read with care, refused where it cannot be, counted either way, and told to whoever looks.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use eirene_core::{Session, SessionId, UserId};
use eirene_monitoring::{
    Batch, BatchError, DeviceKind, Group, MOST_CORE_SERIES, MOST_NODES_IN_DETAIL, MOST_PROCESS_SERIES, Metric,
    NodeName, TimeWindow,
};
use eirene_monitoring_store::{self as store, MOST_AHEAD_MS, MOST_BEHIND_MS, Store, StoreError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Inner, Samples, name};
use crate::events::EventKind;

/// Which nodes a session has is looked up again so often at most, while its agent names others.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(2);
/// A node whose samples are refused one by one, as what was told before is later, has a clock that was set back, where they are older than this. What
/// is only told twice is not.
const SET_BACK: SignedDuration = SignedDuration::from_mins(2);
/// Batches that are kept until the scheduler has said which nodes the session has: an agent can be here, and its app in use, before that, and what
/// only rises would begin with what it has come to meanwhile. Minutes of a session on a few nodes, one round of 64; 4 MiB at the most.
const MOST_EARLY: usize = 64;

/// A session that has run for so long has been told of its GPUs, where somebody tells of them.
const GPUS_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// Series that a session may have, a node at a time and in all: of the nodes themselves, their GPUs, and what programs report. A node has 20 figures
/// of its own, 12 of each GPU, and 64 names that are reported at the most; with eight GPUs 180, so 64 nodes have 11,520. A node counts again where
/// the session began anew on others.
const OF_NODES: (usize, usize) = (512, 16_384);
/// The same of mounts and interfaces.
const OF_DEVICES: (usize, usize) = (64, 4096);
/// The same of cores. Nodes of which there are more than 16 keep to their parts of this themselves, and of what follows.
const OF_CORES: (usize, usize) = (256, MOST_CORE_SERIES);
/// Those of single processes, which come and go on each.
const OF_PROCESSES: (usize, usize) = (1024, MOST_PROCESS_SERIES);
/// Any session may have so many of each sort.
const AT_LEAST: usize = 1024;
/// Most series of a session in the store: of all sorts together.
pub(super) const MOST_SERIES: usize = OF_NODES.1 + OF_DEVICES.1 + OF_CORES.1 + OF_PROCESSES.1;

/// Sorts of series. Each has room of its own, so that what comes in great numbers takes nothing from what everybody looks at, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// Of nodes and GPUs, and what programs report.
    Nodes,
    /// Of mounts and interfaces.
    Devices,
    /// Of cores.
    Cores,
    /// Of processes.
    Processes,
}

impl Sort {
    /// Of which sort a series is.
    pub(super) fn of(metric: Metric, has_device: bool) -> Self {
        match metric.devices().first().filter(|_| has_device) {
            Some(DeviceKind::Mount | DeviceKind::Interface) => Self::Devices,
            Some(DeviceKind::Core) => Self::Cores,
            Some(DeviceKind::Process) => Self::Processes,
            Some(DeviceKind::Gpu | DeviceKind::Name) | None => Self::Nodes,
        }
    }

    /// How many a session on so many nodes may have.
    pub(super) fn most(self, nodes: usize) -> usize {
        let (each, most) = match self {
            Self::Nodes => OF_NODES,
            Self::Devices => OF_DEVICES,
            Self::Cores => OF_CORES,
            Self::Processes => OF_PROCESSES,
        };
        nodes.saturating_mul(each).clamp(AT_LEAST, most)
    }

    /// How many a session on so many nodes comes to have where its nodes keep to their parts: of cores, so many on each.
    fn room(self, nodes: usize) -> usize {
        match self {
            Self::Cores if nodes > MOST_NODES_IN_DETAIL => nodes * (MOST_CORE_SERIES / nodes),
            _ => self.most(nodes),
        }
    }

    /// The reason, as the label of a metric.
    fn label(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Devices => "devices",
            Self::Cores => "cores",
            Self::Processes => "processes",
        }
    }
}

/// Something that charts of a session do not have, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// There were as many of this sort as are kept.
    Full(Sort),
    /// It has so many nodes that each tells of only a few of its processes.
    OfManyNodes,
    /// It has GPUs, its nodes tell, and nobody has told of any GPU.
    Gpus,
}

impl LeftOut {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Gpus,
        Self::Full(Sort::Nodes),
        Self::Full(Sort::Devices),
        Self::Full(Sort::Cores),
        Self::OfManyNodes,
        Self::Full(Sort::Processes),
    ];

    /// What is said of it: a key of words.
    pub fn key(self) -> &'static str {
        match self {
            Self::Full(Sort::Nodes) => "charts.left_out_nodes",
            Self::Full(Sort::Devices) => "charts.left_out_devices",
            Self::Full(Sort::Cores) => "charts.left_out_cores",
            Self::Full(Sort::Processes) => "charts.left_out_processes",
            Self::OfManyNodes => "charts.left_out_many_nodes",
            Self::Gpus => "charts.left_out_gpus",
        }
    }
}

/// Why a batch was not taken, as the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    TooLong,
    NotUnderstood,
    Time,
    /// Of a node that the session does not have.
    Node,
    /// The store is not there.
    Away,
}

impl Refused {
    fn label(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::NotUnderstood => "not_understood",
            Self::Time => "time",
            Self::Node => "node",
            Self::Away => "away",
        }
    }

    fn count(self) {
        metrics::counter!("eirene_samples_batches_refused_total", "reason" => self.label()).increment(1);
    }
}

/// The session in the store.
pub(super) fn store_id(session: SessionId) -> store::SessionId {
    store::SessionId(session.to_bytes())
}

/// One connection of an agent.
pub struct Ingest {
    samples: Samples,
    session: SessionId,
    /// As last looked up.
    known: Option<Known>,
    /// Of how many nodes it may have series, as last looked up.
    nodes: usize,
    looked: Option<Timestamp>,
    room: Option<Room>,
    /// What came before it was known which nodes there are.
    early: Vec<Batch>,
    /// What the log has: each reason once for a node.
    logged: HashSet<(String, &'static str)>,
}

/// What is known of a session: whose it is, and its nodes.
type Known = (UserId, Vec<String>);

/// How many nodes a session has, or will have.
fn nodes_of(session: &Session) -> usize {
    session.nodes.len().max(session.resources.nodes as usize)
}

/// How many series of each sort a store has of a session, and whether some of them are of GPUs.
fn counted(store: &Store, session: SessionId) -> Result<(HashMap<Sort, usize>, bool), StoreError> {
    let (mut counts, mut has_gpus) = (HashMap::new(), false);
    for name in store.series(store_id(session))?.iter().filter_map(|span| name::read(&span.name)) {
        *counts.entry(Sort::of(name.metric, name.device.is_some())).or_default() += 1;
        has_gpus |= name.metric.group() == Group::Gpu;
    }
    Ok((counts, has_gpus))
}

/// The sort of a series in the store; none of what a later version wrote.
fn sort_of(name: &str) -> Option<Sort> {
    name::read(name).map(|name| Sort::of(name.metric, name.device.is_some()))
}

/// Which series a session has, by a hash of their names, and so how many more it may have.
struct Room {
    hasher: RandomState,
    had: HashSet<u64>,
    counts: HashMap<Sort, usize>,
}

impl Room {
    /// With those which the session has from former connections.
    async fn read(store: Arc<Store>, session: SessionId) -> Self {
        let had = tokio::task::spawn_blocking(move || store.series(store_id(session))).await;
        let mut room = Self { hasher: RandomState::new(), had: HashSet::new(), counts: HashMap::new() };
        // Without them more are taken than should be, and the store's own bound holds.
        for name in had.ok().and_then(Result::ok).into_iter().flatten().map(|span| span.name) {
            if let Some(sort) = sort_of(&name)
                && room.had.insert(room.hasher.hash_one(&name))
            {
                *room.counts.entry(sort).or_default() += 1;
            }
        }
        room
    }

    /// Whether it is among these, or there is room for it on so many nodes.
    fn takes(&mut self, name: &str, sort: Sort, nodes: usize) -> bool {
        let hash = self.hasher.hash_one(name);
        if self.had.contains(&hash) {
            return true;
        }
        let count = self.counts.entry(sort).or_default();
        let takes = *count < sort.most(nodes);
        if takes {
            *count += 1;
            self.had.insert(hash);
        }
        takes
    }
}

impl Ingest {
    pub(super) fn new(samples: Samples, session: SessionId) -> Self {
        let (early, logged) = (Vec::new(), HashSet::new());
        Self { samples, session, known: None, nodes: 0, looked: None, room: None, early, logged }
    }

    /// Takes one batch.
    pub async fn take(&mut self, text: &str) {
        match self.accept(text).await {
            Ok(taken) => metrics::counter!("eirene_samples_total").increment(taken as u64),
            Err(refused) => refused.count(),
        }
    }

    pub(super) async fn accept(&mut self, text: &str) -> Result<usize, Refused> {
        let now = self.samples.inner.clock.now();
        let batch = match Batch::read(text.as_bytes(), window(now)) {
            Ok(batch) => batch,
            Err(BatchError::TooLong(_)) => return Err(self.refuse(None, Refused::TooLong)),
            Err(BatchError::NotUnderstood(_)) => return Err(self.refuse(None, Refused::NotUnderstood)),
            Err(BatchError::Time { node, at }) => {
                self.look(node.as_str(), now).await;
                // Of others' nodes its word counts for nothing.
                if self.owner(node.as_str()).is_some() {
                    let clocks = &self.samples.inner.clocks;
                    clocks.wrong(self.session, node.as_str(), at.duration_since(now), now);
                }
                return Err(self.refuse(Some(&node), Refused::Time));
            }
        };
        self.look(batch.node.as_str(), now).await;
        if self.is_early() {
            // The first ones are the ones that are wanted.
            if self.early.len() >= MOST_EARLY {
                return Err(self.refuse(Some(&batch.node), Refused::Node));
            }
            self.early.push(batch);
            return Ok(0);
        }
        let mut taken = 0;
        for early in std::mem::take(&mut self.early) {
            match self.keep(&early, now).await {
                Ok(some) => taken += some,
                // It says something false of another's node, and that is no fault of what comes now.
                Err(refused) => self.refuse(Some(&early.node), refused).count(),
            }
        }
        match self.keep(&batch, now).await {
            Ok(some) => Ok(taken + some),
            Err(refused) => Err(self.refuse(Some(&batch.node), refused)),
        }
    }

    /// Has the log say why something is refused.
    fn refuse(&mut self, node: Option<&NodeName>, refused: Refused) -> Refused {
        // Of a store that is away it says so already.
        if refused != Refused::Away {
            self.log(node.map(NodeName::as_str).unwrap_or_default(), refused.label());
        }
        refused
    }

    /// One line for each reason and node of the session. Of other nodes an agent can make up any number, so they have one together.
    fn log(&mut self, node: &str, reason: &'static str) {
        let own = if self.owner(node).is_some() { node } else { "" };
        if self.logged.insert((own.to_owned(), reason)) {
            tracing::warn!(session.id = %self.session, node, reason, "Samples of a session are refused");
        }
    }

    /// Whether the node's clock is right, by what became of all that was told.
    fn judge_clock(&mut self, batch: &Batch, taken: usize, all: usize, now: Timestamp) {
        let node = batch.node.as_str();
        let ahead = batch.at.duration_since(now);
        let clocks = &self.samples.inner.clocks;
        // A series that is new is taken whatever the clock was before.
        if taken * 2 >= all.max(1) {
            clocks.right(self.session, node, now);
        } else if all > 0 && ahead < -SET_BACK {
            clocks.wrong(self.session, node, ahead, now);
            self.log(node, "late");
        }
    }

    /// Puts a batch into the store.
    async fn keep(&mut self, batch: &Batch, now: Timestamp) -> Result<usize, Refused> {
        let owner = self.owner(batch.node.as_str()).ok_or(Refused::Node)?;
        let Inner { db, confined, .. } = &*self.samples.inner;
        confined.note(db, batch, now).await;
        let store = self.samples.store().ok_or(Refused::Away)?;
        let (at_ms, now_ms, id) = (batch.at.as_millisecond(), now.as_millisecond(), store_id(self.session));
        let named = self.named(batch, &store).await;
        let all = named.len();
        // The store may be setting aside what it closes, which is no wait for a thread that serves others.
        let append = move || {
            let samples: Vec<store::Sample<'_>> =
                named.iter().map(|(name, value)| store::Sample { name, at_ms, value: *value }).collect();
            store.append(now_ms, id, &samples)
        };
        let taken = tokio::task::spawn_blocking(append).await.map_err(|_| Refused::Away)?;
        self.judge_clock(batch, taken, all, now);
        self.tell(owner, batch);
        Ok(taken)
    }

    /// Samples with the names of their series, less those of which there are too many.
    async fn named(&mut self, batch: &Batch, store: &Arc<Store>) -> Vec<(String, f64)> {
        let room = match &mut self.room {
            Some(room) => room,
            none => none.insert(Room::read(Arc::clone(store), self.session).await),
        };
        let mut named = Vec::with_capacity(batch.samples.len());
        let mut left_out = HashSet::new();
        for sample in &batch.samples {
            let name = name::write(&sample.series, &batch.node);
            let sort = Sort::of(sample.series.metric(), sample.series.device().is_some());
            if room.takes(&name, sort, self.nodes) {
                named.push((name, sample.value));
            } else {
                metrics::counter!("eirene_samples_refused_total", "reason" => sort.label()).increment(1);
                left_out.insert(sort.label());
            }
        }
        for reason in left_out {
            self.log(batch.node.as_str(), reason);
        }
        named
    }

    /// Whose session it is, if it has this node.
    fn owner(&self, node: &str) -> Option<UserId> {
        let (owner, nodes) = self.known.as_ref()?;
        nodes.iter().any(|name| name == node).then_some(*owner)
    }

    /// Looks up what the scheduler has said of the session, where this node is not known as one of its: not for every batch.
    async fn look(&mut self, node: &str, now: Timestamp) {
        let is_soon = self.looked.is_some_and(|looked| now.duration_since(looked).abs() <= LOOK_AGAIN);
        if self.owner(node).is_none() && !is_soon {
            self.looked = Some(now);
            if let Ok(Some(session)) = self.samples.inner.db.session(self.session).await {
                self.nodes = nodes_of(&session);
                self.known = Some((session.owner, session.nodes.iter().map(ToString::to_string).collect()));
            }
        }
    }

    /// Whether the session is known, and its nodes are not yet.
    fn is_early(&self) -> bool {
        self.known.as_ref().is_some_and(|(_, nodes)| nodes.is_empty())
    }

    /// Tells those who look at the session now; the whole of it is asked for.
    fn tell(&self, owner: UserId, batch: &Batch) {
        let events = &self.samples.inner.events;
        if !events.is_followed(self.session, owner) {
            return;
        }
        let totals = batch.samples.iter().filter(|sample| sample.series.device().is_none());
        let totals: serde_json::Map<_, _> =
            totals.map(|sample| (sample.series.to_string(), json!(sample.value))).collect();
        let data = json!({"session": self.session, "node": batch.node.as_str(), "at": batch.at, "samples": totals});
        events.publish_transient(EventKind::Sample, Some(self.session), owner, data);
    }
}

/// What times are taken now: as long as the store takes them.
fn window(now: Timestamp) -> TimeWindow {
    let around = |ms: i64| now.saturating_add(SignedDuration::from_millis(ms)).unwrap_or(now);
    TimeWindow { oldest: around(-MOST_BEHIND_MS), newest: around(MOST_AHEAD_MS) }
}

impl Samples {
    /// What charts of a session do not have. Nothing where nobody knows.
    pub async fn left_out(&self, session: &Session) -> Vec<LeftOut> {
        let Some(store) = self.store() else { return Vec::new() };
        let (id, nodes) = (session.id, nodes_of(session));
        let counts = tokio::task::spawn_blocking(move || counted(&store, id)).await.ok().and_then(Result::ok);
        let Some((counts, has_gpus)) = counts.filter(|(counts, _)| !counts.is_empty()) else { return Vec::new() };
        let until = session.ended_at.unwrap_or_else(|| self.inner.clock.now());
        let is_late = session.started_at.is_some_and(|at| until.duration_since(at) >= GPUS_WITHIN);
        let has = |sort: Sort| counts.get(&sort).copied().unwrap_or_default();
        let is_so = |what: &LeftOut| match *what {
            LeftOut::Full(sort) => has(sort) >= sort.room(nodes),
            LeftOut::OfManyNodes => nodes > MOST_NODES_IN_DETAIL,
            LeftOut::Gpus => session.resources.gpus > 0 && !has_gpus && is_late,
        };
        LeftOut::ALL.into_iter().filter(is_so).collect()
    }
}
