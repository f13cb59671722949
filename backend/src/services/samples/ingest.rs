//! What one agent says of its session: read with care, refused where it cannot be, counted either way, and told to whoever looks.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eirene_core::{SessionId, UserId};
use eirene_monitoring::{Batch, BatchError, Group, TimeWindow};
use eirene_monitoring_store::{self as store, MOST_AHEAD_MS, MOST_BEHIND_MS, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Inner, Samples, name};
use crate::services::events::EventKind;

/// Which nodes a session has is looked up again so often at most, while its agent names others.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Most series of single processes a session may have: they come and go, and what a session may have in all must last for the rest.
pub(super) const MOST_PROCESS_SERIES: usize = 1024;

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
}

/// The session in the store.
pub(super) fn store_id(session: SessionId) -> store::SessionId {
    store::SessionId(session.to_bytes())
}

/// One connection of an agent.
pub(crate) struct Ingest {
    samples: Samples,
    session: SessionId,
    /// Whose it is, and its nodes, as last looked up.
    known: Option<(UserId, Vec<String>)>,
    looked: Option<Instant>,
    processes: Option<ProcessSeries>,
}

/// Which series of processes a session has, by a hash of their names.
struct ProcessSeries {
    hasher: RandomState,
    had: HashSet<u64>,
}

impl ProcessSeries {
    /// Those which the session has from former connections.
    async fn read(store: Arc<Store>, session: SessionId) -> Self {
        let had = tokio::task::spawn_blocking(move || store.series(store_id(session))).await;
        let mut known = Self { hasher: RandomState::new(), had: HashSet::new() };
        // Without them more are taken than should be, and the store's own bound holds.
        for name in had.ok().and_then(Result::ok).into_iter().flatten().map(|span| span.name) {
            known.takes(&name);
        }
        known
    }

    /// Whether it is another sort of series, or among these, or there is room for it.
    fn takes(&mut self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        !name.starts_with(&name::prefix(Group::Processes))
            || self.had.contains(&hash)
            || self.had.len() < MOST_PROCESS_SERIES && self.had.insert(hash)
    }
}

impl Ingest {
    pub(super) fn new(samples: Samples, session: SessionId) -> Self {
        Self { samples, session, known: None, looked: None, processes: None }
    }

    /// Takes one batch.
    pub(crate) async fn take(&mut self, text: &str) {
        match self.accept(text).await {
            Ok(taken) => metrics::counter!("eirene_samples_total").increment(taken as u64),
            Err(refused) => {
                metrics::counter!("eirene_samples_batches_refused_total", "reason" => refused.label()).increment(1);
            }
        }
    }

    pub(super) async fn accept(&mut self, text: &str) -> Result<usize, Refused> {
        let now = self.samples.inner.clock.now();
        let batch = Batch::read(text.as_bytes(), window(now)).map_err(|error| match error {
            BatchError::TooLong(_) => Refused::TooLong,
            BatchError::NotUnderstood(_) => Refused::NotUnderstood,
            BatchError::Time(_) => Refused::Time,
        })?;
        let owner = self.owner(batch.node.as_str()).await.ok_or(Refused::Node)?;
        let Inner { db, confined, .. } = &*self.samples.inner;
        confined.note(db, batch.node.as_str(), batch.confinement, now).await;
        let store = self.samples.store().ok_or(Refused::Away)?;
        let at_ms = batch.at.as_millisecond();
        let named = self.named(&batch, &store).await;
        let samples: Vec<store::Sample<'_>> =
            named.iter().map(|(name, value)| store::Sample { name, at_ms, value: *value }).collect();
        let taken = store.append(now.as_millisecond(), store_id(self.session), &samples);
        self.tell(owner, &batch);
        Ok(taken)
    }

    /// Samples with the names of their series, less those of processes that are too many.
    async fn named(&mut self, batch: &Batch, store: &Arc<Store>) -> Vec<(String, f64)> {
        let known = match &mut self.processes {
            Some(known) => known,
            none => none.insert(ProcessSeries::read(Arc::clone(store), self.session).await),
        };
        let named = batch.samples.iter().map(|sample| (name::write(&sample.series, &batch.node), sample.value));
        let named: Vec<_> = named.filter(|(name, _)| known.takes(name)).collect();
        let refused = batch.samples.len().saturating_sub(named.len());
        metrics::counter!("eirene_samples_refused_total", "reason" => "processes").increment(refused as u64);
        named
    }

    /// Whose session it is, if it has this node. What the scheduler has said since is looked up, but not for every batch.
    async fn owner(&mut self, node: &str) -> Option<UserId> {
        let owner = |known: &Option<(UserId, Vec<String>)>| {
            let (owner, nodes) = known.as_ref()?;
            nodes.iter().any(|name| name == node).then_some(*owner)
        };
        if owner(&self.known).is_none() && self.looked.is_none_or(|looked| looked.elapsed() > LOOK_AGAIN) {
            self.looked = Some(Instant::now());
            if let Ok(Some(session)) = self.samples.inner.db.session(self.session).await {
                self.known = Some((session.owner, session.nodes.iter().map(ToString::to_string).collect()));
            }
        }
        owner(&self.known)
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
