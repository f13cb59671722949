//! How the reconcilers are doing: for `/readyz` and for `doctor`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// How one of them is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// When its last run ended.
    pub last_run: Timestamp,
    /// When its last good run ended.
    pub last_good: Option<Timestamp>,
    /// Why the last run was not good.
    pub trouble: Option<String>,
    /// How long the last run took.
    pub took_ms: u64,
    /// Runs that were not good, in a row.
    pub failures: u32,
}

/// How all of them are doing, by name.
#[derive(Debug, Clone, Default)]
pub struct Status {
    by_name: Arc<Mutex<BTreeMap<&'static str, Health>>>,
}

impl Status {
    /// Every one that has run, by name.
    pub fn all(&self) -> BTreeMap<&'static str, Health> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a run; says how many failed in a row.
    pub fn note(&self, name: &'static str, at: Timestamp, took: Duration, trouble: Option<String>) -> u32 {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let before = by_name.get(name);
        let failures = if trouble.is_some() { before.map_or(1, |health| health.failures.saturating_add(1)) } else { 0 };
        let last_good = if trouble.is_some() { before.and_then(|health| health.last_good) } else { Some(at) };
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        metrics::gauge!("eirene_reconciler_failures", "name" => name).set(failures);
        metrics::histogram!("eirene_reconciler_run_seconds", "name" => name).record(took.as_secs_f64());
        by_name.insert(name, Health { last_run: at, last_good, trouble, took_ms, failures });
        failures
    }
}
