//! What was told of sessions lately: the last value of each series, and how some metrics went.

use eirene_core::SessionId;
use eirene_monitoring::Metric;
use eirene_monitoring_store::{Point, Query, Store, StoreError};
use eirene_words::say;

use super::chart::{self, EVERY_MS};
use super::history::Part;
use super::{AGAIN_S, Samples, ingest, name};
use crate::error::AppError;

/// What is older is not told any more: three samples were lost then, or it is over.
const FRESH_MS: i64 = 4 * EVERY_MS;
/// Spans of that time: one for each sample.
const FRESH_POINTS: u32 = 5;

/// The last sample of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct Last {
    /// What was measured.
    pub metric: Metric,
    /// Where.
    pub node: String,
    /// Of what, where it is of something.
    pub device: Option<String>,
    /// The value, for what only rises as it is counted.
    pub value: f64,
}

/// How one series went.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// What was measured.
    pub metric: Metric,
    /// Where.
    pub node: String,
    /// Of what, where it is of something.
    pub device: Option<String>,
    /// In order, at least one; for what only rises as it is counted.
    pub points: Vec<Point>,
}

/// How full the memory of a job is on each node, as a share of what it may have and without what the kernel takes back before it kills: the last
/// of what was told. Nodes without a limit are left out.
pub fn memory_shares(recent: &[Recent]) -> Vec<(String, f64)> {
    let last = |line: &Recent| line.points.last().map(|point| point.max);
    let on = |node: &str, metric| recent.iter().find(|line| line.metric == metric && line.node == node).and_then(last);
    let share = |limit: &Recent| {
        let most = last(limit).filter(|most| *most > 0.0)?;
        let held = on(&limit.node, Metric::Memory)? - on(&limit.node, Metric::MemoryReclaimable).unwrap_or_default();
        Some((limit.node.clone(), held / most))
    };
    recent.iter().filter(|line| line.metric == Metric::MemoryLimit).filter_map(share).collect()
}

/// What [`memory_shares`] are made of.
pub const MEMORY: [Metric; 3] = [Metric::Memory, Metric::MemoryReclaimable, Metric::MemoryLimit];

/// How far back somebody looks.
#[derive(Debug, Clone, Copy)]
pub struct Back {
    /// So far.
    pub length_ms: i64,
    /// In so many spans.
    pub points: u32,
}

impl Back {
    /// As far as a last sample may lie back.
    pub const LAST: Self = Self { length_ms: FRESH_MS, points: FRESH_POINTS };
}

/// Asks the store.
fn read(
    store: &Store,
    session: SessionId,
    prefixes: &[String],
    back: Back,
    now_ms: i64,
) -> Result<Vec<Recent>, StoreError> {
    let (session, points) = (ingest::store_id(session), back.points);
    let (from_ms, to_ms) = (now_ms.saturating_sub(back.length_ms), now_ms.saturating_add(EVERY_MS));
    let mut found = Vec::new();
    for prefix in prefixes {
        let lines = store.query(&Query { session, prefix, from_ms, to_ms, points })?.lines;
        found.extend(lines.into_iter().filter_map(|line| {
            let name::Name { metric, node, device } = name::read(&line.name)?;
            (!line.points.is_empty()).then_some(Recent { metric, node, device, points: line.points })
        }));
    }
    Ok(found)
}

impl Samples {
    /// What was last told, but for cores and processes, which are many and come and go.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] while the store is not there.
    pub async fn last(&self, session: SessionId) -> Result<Vec<Last>, AppError> {
        let found = self.look_back(vec![session], &chart::parts(None), Back::LAST).await?;
        let last = |recent: Recent| {
            let Recent { metric, node, device, points } = recent;
            Some(Last { metric, node, device, value: points.last()?.max })
        };
        Ok(found.into_iter().flat_map(|(_, recent)| recent).filter_map(last).collect())
    }

    /// How some metrics of some sessions went, up to now.
    ///
    /// # Errors
    /// As [`Samples::last`].
    pub async fn recent(
        &self,
        sessions: Vec<SessionId>,
        metrics: &[Metric],
        back: Back,
    ) -> Result<Vec<(SessionId, Vec<Recent>)>, AppError> {
        let parts: Vec<Part> = metrics.iter().copied().map(Part::Metric).collect();
        self.look_back(sessions, &parts, back).await
    }

    async fn look_back(
        &self,
        sessions: Vec<SessionId>,
        parts: &[Part],
        back: Back,
    ) -> Result<Vec<(SessionId, Vec<Recent>)>, AppError> {
        let prefixes: Vec<String> = parts.iter().map(|part| part.prefix()).collect();
        let away = || AppError::Unavailable { what: say("away.samples"), retry_after_s: AGAIN_S };
        let store = self.store().ok_or_else(away)?;
        let now_ms = self.inner.clock.now().as_millisecond();
        let look = move || {
            let of = |session| Ok((session, read(&store, session, &prefixes, back, now_ms)?));
            sessions.into_iter().map(of).collect::<Result<Vec<_>, StoreError>>()
        };
        let found = tokio::task::spawn_blocking(look).await.map_err(|error| AppError::Internal(error.into()))?;
        found.map_err(|error| AppError::Internal(error.into()))
    }
}
