//! The port that charts are read through. Two are behind it: the built-in store, and a Prometheus that scrapes this portal
//! ([`super::prometheus`]). Both answer alike, so that nothing above knows which it is but for what it says on the page.
//!
//! What is looked at as it happens (the exposition itself, alerts, why a session was ended) is not read here: that is what agents have just
//! told, and the portal has it first.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use eirene_core::SessionId;
use eirene_monitoring::{Group, Metric};
use eirene_monitoring_store::{Answer, Point, Query, Store, StoreError};

use super::chart::EVERY_MS;
use super::cluster::Figure;
use super::prometheus::Trouble;
use super::{cluster, ingest, name};

/// What charts are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// What the portal keeps itself.
    BuiltIn,
    /// What Prometheus has.
    Prometheus,
}

/// Series that are looked at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of a group.
    Group(Group),
    /// All of a metric.
    Metric(Metric),
}

impl Part {
    /// Whether it is of single cores or processes, which are many and come and go.
    pub(super) fn is_single(self) -> bool {
        let group = match self {
            Self::Group(group) => group,
            Self::Metric(metric) => metric.group(),
        };
        matches!(group, Group::Cores | Group::Processes)
    }

    /// How the names of its series begin in the store.
    pub(super) fn prefix(self) -> String {
        match self {
            Self::Group(group) => name::prefix(group),
            Self::Metric(metric) => name::prefix_of(metric),
        }
    }

    /// What is measured there.
    pub(super) fn metrics(self) -> impl Iterator<Item = Metric> {
        let all = Metric::ALL.iter().copied();
        all.filter(move |metric| match self {
            Self::Group(group) => metric.group() == group,
            Self::Metric(wanted) => *metric == wanted,
        })
    }
}

/// A time in spans: whole ones, which begin at multiples of their length. All in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// Where the first begins.
    pub from_ms: i64,
    /// Where the last ends.
    pub to_ms: i64,
    /// Length of one.
    pub step_ms: i64,
}

impl Spans {
    /// How many they are.
    pub(super) fn count(self) -> u32 {
        u32::try_from((self.to_ms - self.from_ms) / self.step_ms.max(1)).unwrap_or(u32::MAX)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The built-in store is not there.
    #[error("the store of samples is not there")]
    Away,
    /// The built-in store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Prometheus.
    #[error(transparent)]
    Prometheus(#[from] Trouble),
    /// The work on it ended in a fault of ours.
    #[error(transparent)]
    Fault(#[from] tokio::task::JoinError),
}

impl HistoryError {
    /// Whether the next question would come to the same, whatever it is.
    pub(super) fn lasts(&self) -> bool {
        match self {
            Self::Prometheus(trouble) => trouble.lasts(),
            Self::Away | Self::Store(_) => true,
            Self::Fault(_) => false,
        }
    }
}

/// What has the past of sessions and of the cluster.
#[async_trait]
pub trait History: Send + Sync {
    /// Which it is.
    fn source(&self) -> Source;

    /// Milliseconds between two of its samples of a series: a span cannot be shorter.
    fn every_ms(&self) -> i64;

    /// How some series of a session went: an answer for each part, with the store's names. It may be in longer spans than was asked for. Whoever asks
    /// has waited since `since`: what was asked before of the same chart takes of the time that there is.
    async fn of_session(
        &self,
        session: SessionId,
        parts: &[Part],
        spans: Spans,
        since: Instant,
    ) -> Result<Vec<Answer>, HistoryError>;

    /// How the cluster was. Spans in which nobody looked are left out.
    async fn of_cluster(&self, spans: Spans) -> Result<Vec<(Figure, Vec<Point>)>, HistoryError>;

    /// Whether it answers at all.
    async fn reach(&self) -> Result<(), HistoryError>;
}

/// The built-in store.
pub(super) struct BuiltIn(pub(super) Arc<Store>);

#[async_trait]
impl History for BuiltIn {
    fn source(&self) -> Source {
        Source::BuiltIn
    }

    fn every_ms(&self) -> i64 {
        EVERY_MS
    }

    async fn of_session(
        &self,
        session: SessionId,
        parts: &[Part],
        spans: Spans,
        _since: Instant,
    ) -> Result<Vec<Answer>, HistoryError> {
        let (store, session) = (Arc::clone(&self.0), ingest::store_id(session));
        let prefixes: Vec<String> = parts.iter().map(|part| part.prefix()).collect();
        let ask = move || {
            let ask = |prefix: &String| {
                let Spans { from_ms, to_ms, .. } = spans;
                store.query(&Query { session, prefix, from_ms, to_ms, points: spans.count().max(1) })
            };
            prefixes.iter().map(ask).collect::<Result<Vec<_>, _>>()
        };
        Ok(tokio::task::spawn_blocking(ask).await??)
    }

    async fn of_cluster(&self, spans: Spans) -> Result<Vec<(Figure, Vec<Point>)>, HistoryError> {
        let store = Arc::clone(&self.0);
        let Spans { from_ms, to_ms, .. } = spans;
        let (session, prefix, points) = (cluster::CLUSTER, cluster::PREFIX, spans.count().max(1));
        let ask = move || store.query(&Query { session, prefix, from_ms, to_ms, points });
        let lines = tokio::task::spawn_blocking(ask).await??.lines.into_iter();
        Ok(lines.filter_map(|line| Some((Figure::by_name(&line.name)?, line.points))).collect())
    }

    async fn reach(&self) -> Result<(), HistoryError> {
        Ok(())
    }
}
