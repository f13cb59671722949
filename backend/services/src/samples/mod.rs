//! Samples of sessions and runs: what agents say goes into the store, and comes out of it as lines of charts.
//!
//! An agent belongs to the person, so samples are hostile numbers about her own session alone: what cannot be is refused and counted, how many
//! may be is bounded ([`ingest`]), and they decide nothing. The store lies beside the database, in files of its own; when it cannot be opened or
//! written the portal goes on without it, and tries again. Where the site has named its own Prometheus, charts are read from there
//! ([`prometheus`]), through the same port ([`History`]); the store is then what Prometheus is told from, and has what that is not told.

mod chart;
mod clocks;
mod cluster;
mod confined;
mod history;
mod ingest;
mod last;
mod name;
mod prometheus;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use eirene_core::{Clock, Session, SessionId};
use eirene_database::Db;
use eirene_monitoring::Metric;
use eirene_monitoring_store::{Options, Store, StoreError};
use eirene_words::say;
use tokio_util::sync::CancellationToken;

use crate::config;
use crate::error::AppError;
use crate::events::Events;
use crate::shared::Shared;
use clocks::Clocks;
use confined::Confined;
use history::BuiltIn;

pub use chart::{Chart, Line, MOST_POINTS, Wanted};
pub use clocks::{WrongClock, clock_text, portal_clock_text};
pub use cluster::{ClusterPast, Figure};
pub use history::{History, HistoryError, Part, Source, Spans};
pub use ingest::{Ingest, LeftOut};
pub use last::{Back, Last, MEMORY, Recent, memory_shares};
pub use prometheus::{Prometheus, Trouble};

/// How often what came is written to the disk: a crash loses so much at most.
const FLUSH: Duration = Duration::from_secs(5);
/// When it is worth asking again while the store is away, seconds.
const AGAIN_S: u64 = 10;
const DAY_MS: i64 = 86_400_000;

/// The samples. Cheap to clone.
#[derive(Clone)]
pub struct Samples {
    inner: Shared<Inner>,
}

struct Inner {
    db: Db,
    clock: Arc<dyn Clock>,
    events: Events,
    directory: PathBuf,
    options: Options,
    store: RwLock<Option<Arc<Store>>>,
    /// What charts are made of instead of the store.
    elsewhere: Option<Arc<dyn History>>,
    /// Why there was nothing to be had there the last time, and whether that is so for everybody.
    said: Mutex<Option<(String, bool)>>,
    /// Whether the last round of [`Samples::keep`] could not write what came.
    failing: AtomicBool,
    confined: Confined,
    clocks: Clocks,
}

impl Samples {
    /// Samples kept in `directory`. Opens nothing: until [`Samples::keep`] runs, or [`Samples::open`], there are none. Charts are made of what is
    /// `elsewhere`, where something is.
    pub fn new(
        db: Db,
        clock: Arc<dyn Clock>,
        events: Events,
        elsewhere: Option<Arc<dyn History>>,
        directory: PathBuf,
        config: &config::Samples,
    ) -> Self {
        let days = |days: u32| i64::from(days) * DAY_MS;
        let bytes = |mib: u64| mib.saturating_mul(1024 * 1024);
        let options = Options {
            disk_bytes: bytes(config.disk_mib),
            memory_bytes: usize::try_from(bytes(config.memory_mib)).unwrap_or(usize::MAX),
            raw_ms: days(config.keep_days),
            minutes_ms: days(config.keep_minutes_days),
            series_per_session: ingest::MOST_SERIES,
            ..Options::default()
        };
        let (store, failing, confined) = (RwLock::default(), AtomicBool::new(false), Confined::default());
        let (said, clocks) = (Mutex::default(), Clocks::default());
        let inner = Inner { db, clock, events, directory, options, store, elsewhere, said, failing, confined, clocks };
        Self { inner: Shared::new(inner) }
    }

    /// Opens the store, where it is not open.
    ///
    /// # Errors
    /// [`StoreError`]; somebody else may have it, or the disk refuses.
    pub fn open(&self) -> Result<Arc<Store>, StoreError> {
        if let Some(store) = self.store() {
            return Ok(store);
        }
        let store = Arc::new(Store::open(&self.inner.directory, &self.inner.options)?);
        *self.inner.store.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Keeps the store open, written and tidy until `shutdown`; what came is on the disk then.
    pub async fn keep(self, shutdown: CancellationToken) {
        let mut said = None;
        loop {
            let over = tokio::select! {
                () = shutdown.cancelled() => true,
                () = tokio::time::sleep(if self.store().is_some() { FLUSH } else { Duration::ZERO }) => false,
            };
            let samples = self.clone();
            let trouble = match tokio::task::spawn_blocking(move || samples.round()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            self.inner.failing.store(trouble.is_some(), Ordering::Relaxed);
            match &trouble {
                // One line for an outage, not one for a round.
                Some(error) if said != trouble => {
                    tracing::warn!(%error, "Samples of sessions are not kept for now");
                }
                None if said.is_some() => tracing::info!("Samples of sessions are kept again"),
                _ => {}
            }
            said = trouble;
            if over {
                *self.inner.store.write().unwrap_or_else(PoisonError::into_inner) = None;
                return;
            }
            if said.is_some() && self.store().is_none() {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(AGAIN_S)) => {}
                }
            }
        }
    }

    /// Whether what comes is kept: the store is there, and the last round wrote it.
    pub(crate) fn are_kept(&self) -> bool {
        self.store().is_some() && !self.inner.failing.load(Ordering::Relaxed)
    }

    /// Writes what came, tidies a bounded part, and counts.
    fn round(&self) -> Result<(), StoreError> {
        let store = self.open()?;
        let done = store.flush().and_then(|()| store.maintain(self.inner.clock.now().as_millisecond()));
        let stats = store.stats();
        metrics::gauge!("eirene_samples_disk_bytes").set(stats.disk_bytes as f64);
        metrics::gauge!("eirene_samples_memory_bytes").set(stats.memory_bytes as f64);
        metrics::gauge!("eirene_samples_series").set(stats.series as f64);
        for (reason, count) in stats.refused {
            metrics::counter!("eirene_samples_refused_total", "reason" => reason.label()).absolute(count);
        }
        done
    }

    /// For an agent that has come.
    pub fn ingest(&self, session: SessionId) -> Ingest {
        Ingest::new(self.clone(), session)
    }

    /// What a session used, as lines. The caller has asked whether it may be seen.
    ///
    /// # Errors
    /// [`AppError::Unavailable`] while nobody has it who answers.
    pub async fn chart(&self, session: &Session, wanted: Wanted) -> Result<Chart, AppError> {
        self.draw(session, &wanted, &chart::parts(wanted.group)).await
    }

    /// The same of some metrics, over all its time and as fine as a chart can be.
    ///
    /// # Errors
    /// As [`Samples::chart`].
    pub async fn whole(&self, session: &Session, metrics: &[Metric]) -> Result<Chart, AppError> {
        let wanted = Wanted { points: Some(MOST_POINTS), ..Wanted::default() };
        let parts: Vec<Part> = metrics.iter().copied().map(Part::Metric).collect();
        self.draw(session, &wanted, &parts).await
    }

    async fn draw(&self, session: &Session, wanted: &Wanted, parts: &[Part]) -> Result<Chart, AppError> {
        let history = self.history(parts)?;
        let span = chart::span(session, wanted, self.inner.clock.now());
        let drawn = chart::draw(&*history, session.id, span, parts, wanted.points).await;
        self.judged(history.source(), drawn)
    }

    /// Who has the past of these. What Prometheus is not told of is in the store.
    fn history(&self, parts: &[Part]) -> Result<Arc<dyn History>, AppError> {
        if let Some(elsewhere) = &self.inner.elsewhere
            && !parts.iter().any(|part| part.is_single())
        {
            return Ok(Arc::clone(elsewhere));
        }
        let store = self.store().ok_or_else(|| unavailable(&HistoryError::Away))?;
        Ok(Arc::new(BuiltIn(store)))
    }

    /// What came of a question, as a caller is told. Of an outage elsewhere there is a line in the log, not one for each chart.
    fn judged<T>(&self, source: Source, answer: Result<T, HistoryError>) -> Result<T, AppError> {
        if source == Source::Prometheus {
            let new = answer.as_ref().err().map(|error| (error.to_string(), error.lasts()));
            let mut said = self.inner.said.lock().unwrap_or_else(PoisonError::into_inner);
            match (new, said.take()) {
                (Some(new), known) => {
                    if known.is_none_or(|(known, _)| known != new.0) {
                        tracing::warn!(error = %new.0, "Prometheus has no answer, and there is no chart for now");
                    }
                    *said = Some(new);
                }
                (None, Some((_, true))) => tracing::info!("Prometheus answers again"),
                // What one chart alone runs into is not over because another one is good.
                (None, known) => *said = known,
            }
        }
        answer.map_err(|error| match error {
            HistoryError::Prometheus(Trouble::TooMuch) => AppError::TooLarge,
            HistoryError::Away | HistoryError::Prometheus(_) => unavailable(&error),
            HistoryError::Store(error) => AppError::Internal(error.into()),
            HistoryError::Fault(error) => AppError::Internal(error.into()),
        })
    }

    /// Whether what is elsewhere answers; none where nothing is.
    pub(crate) async fn elsewhere_answers(&self) -> Option<bool> {
        let elsewhere = self.inner.elsewhere.as_ref()?;
        Some(elsewhere.reach().await.is_ok())
    }

    fn store(&self) -> Option<Arc<Store>> {
        self.inner.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What is away.
fn unavailable(error: &HistoryError) -> AppError {
    let key = match error {
        HistoryError::Prometheus(_) => "away.prometheus",
        HistoryError::Away | HistoryError::Store(_) | HistoryError::Fault(_) => "away.samples",
    };
    AppError::Unavailable { what: say(key), retry_after_s: AGAIN_S }
}
