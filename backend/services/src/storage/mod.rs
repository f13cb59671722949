//! The storage as it is seen: one look at everything it says of itself, and what is wrong by that look.
//!
//! [`Storage`] keeps the last look; only its reconciler looks regularly. Where a look needs the mounted file system it goes by the port, whose
//! adapter asks a `Probe`: the launcher's (`crate::probe`). What may not be entered is *refused* and not guessed.

pub mod history;
pub mod judge;
pub mod limits;
pub mod pools;
pub mod remembered;
pub mod snapshot;
pub mod stats;
pub mod stripe;

use std::collections::BTreeMap;
use std::sync::Arc;

use eirene_core::storage::{
    Ability, Capabilities, Identity, Known, Partial, Quota, QuotaId, QuotaOf, QuotaRange, SharedStorage, StorageError,
    Why,
};
use eirene_core::{Clock, RootName};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, watch};

use crate::actor::Actor;
use crate::config::Config;
use crate::error::{AppError, FieldError};
use crate::shared::Shared;
use judge::{Finding, NearFull, is_only_mounted, judge};
use remembered::Remembered;
use snapshot::{Asked, RootToSee, Snapshot, Trouble, TroubleKind, take};

/// What a storage can changes seldom.
const CAPABILITIES_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// Seconds after which it is worth asking a storage again that did not answer.
const RETRY_AFTER_S: u64 = 10;

/// The storage. Cheap to clone.
#[derive(Clone)]
pub struct Storage {
    inner: Shared<Inner>,
}

struct Inner {
    port: Arc<dyn SharedStorage>,
    clock: Arc<dyn Clock>,
    roots: Vec<RootToSee>,
    near_full: NearFull,
    memory: Mutex<Memory>,
    sender: watch::Sender<Arc<Snapshot>>,
}

/// What one look leaves for the next.
#[derive(Default)]
struct Memory {
    remembered: Remembered,
    first: BTreeMap<RootName, Identity>,
    capabilities: Option<(Timestamp, Capabilities)>,
}

/// The storage as admins see it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The adapter's name.
    pub adapter: &'static str,
    /// The last look.
    pub snapshot: Arc<Snapshot>,
    /// What is wrong by it.
    pub findings: Vec<Finding>,
}

/// Quotas that were asked for, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotas {
    /// What came.
    pub answer: Partial<Vec<Quota>>,
    /// Why nothing did.
    pub missing: Option<(Why, String)>,
}

impl Storage {
    /// The storage behind `port`, with the roots of `config`.
    pub fn new(port: Arc<dyn SharedStorage>, clock: Arc<dyn Clock>, config: &Config) -> Self {
        let roots = &config.spaces.roots;
        let inner = Inner {
            port,
            clock,
            roots: roots
                .iter()
                .map(|root| RootToSee { name: root.name.clone(), writable: root.is_writable() })
                .collect(),
            near_full: config.storage.near_full_percent,
            memory: Mutex::default(),
            sender: watch::Sender::new(Arc::default()),
        };
        Self { inner: Shared::new(inner) }
    }

    /// The port.
    pub fn port(&self) -> &dyn SharedStorage {
        self.inner.port.as_ref()
    }

    /// Whether spaces are counted by users' and groups' quotas, by the last look. What a mounted file system counts for somebody says nothing of a
    /// space: it is asked for with the space itself.
    pub fn reads_quotas(&self) -> bool {
        let reads = |can: &Capabilities| can.quota_read == Ability::Yes && !is_only_mounted(can);
        self.snapshot().capabilities.as_ref().is_some_and(reads)
    }

    /// Whether quotas of users and groups may be told, by the last look: not where it is known that nobody counts them.
    pub fn may_tell_quotas(&self) -> bool {
        self.snapshot().capabilities.as_ref().is_some_and(|can| !matches!(can.quota_read, Ability::No(_)))
    }

    /// The last look.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.sender.borrow())
    }

    /// What is wrong by the last look, the worst first.
    pub fn findings(&self) -> Vec<Finding> {
        judge(&self.snapshot(), self.inner.near_full, self.inner.clock.now())
    }

    /// From now on looks are also at what is known from before.
    pub async fn remember(&self, remembered: Remembered) {
        self.inner.memory.lock().await.remembered = remembered;
    }

    /// Looks at everything and keeps it as the last look.
    pub async fn look(&self) {
        let inner = &self.inner;
        let mut memory = inner.memory.lock().await;
        let memory = &mut *memory;
        let now = inner.clock.now();
        let nodes = Asked::from_answer(inner.port.nodes().await);
        let known = memory.capabilities.as_ref().filter(|(at, _)| now.duration_since(*at).abs() < CAPABILITIES_EVERY);
        let capabilities = if nodes.away().is_some() {
            // What it can is what it could, until it can be asked; then it is.
            memory.capabilities = None;
            self.snapshot().capabilities.clone()
        } else if let Some((_, capabilities)) = known {
            Some(capabilities.clone())
        } else {
            let capabilities = inner.port.capabilities().await;
            // A tool that could not be run is tried again at the next look.
            let is_known = capabilities.version != Known::Missing(Why::DidNotAnswer);
            memory.capabilities = is_known.then(|| (now, capabilities.clone()));
            Some(capabilities)
        };
        let (port, roots, remembered) = (inner.port.as_ref(), &inner.roots, &memory.remembered);
        let snapshot = take(port, capabilities, nodes, roots, remembered, &mut memory.first, now).await;
        inner.sender.send_replace(Arc::new(snapshot));
    }

    /// Everything, for admins.
    pub fn report(&self, actor: &Actor) -> Result<Report, AppError> {
        actor.require_admin()?;
        Ok(Report { adapter: self.inner.port.name(), snapshot: self.snapshot(), findings: self.findings() })
    }

    /// The quotas of users or groups by number, both ends included; for admins. A storage that has none or refuses says so in the answer.
    pub async fn quotas(&self, actor: &Actor, of: QuotaOf, first: u32, last: u32) -> Result<Quotas, AppError> {
        actor.require_admin()?;
        if last < first || last - first >= QuotaRange::MOST {
            let text = say_with("wrong.range", &[("n", &QuotaRange::MOST.to_string())]);
            return Err(AppError::Invalid(vec![FieldError::new("last", text)]));
        }
        quotas(self.inner.port.quotas(QuotaRange { of, first, last }).await)
    }

    /// As [`Storage::quotas`], of one user or group; whoever asks has seen to it who may.
    async fn quotas_of(&self, id: QuotaId) -> Result<Quotas, AppError> {
        quotas(self.inner.port.quota(id).await)
    }
}

fn quotas(answer: Result<Partial<Vec<Quota>>, StorageError>) -> Result<Quotas, AppError> {
    match answer {
        Ok(answer) => Ok(Quotas { answer, missing: None }),
        Err(StorageError::Unsupported(_)) => Ok(none(Why::NotSupported, say("problem.no_quotas").into())),
        Err(StorageError::Refused { why, text }) => Ok(none(why, text)),
        Err(error) => Err(away(&error)),
    }
}

fn none(why: Why, text: String) -> Quotas {
    Quotas { answer: Partial { value: vec![], doubts: vec![] }, missing: Some((why, text)) }
}

/// What cannot be known now.
fn away(error: &StorageError) -> AppError {
    let trouble = Trouble::from(error);
    tracing::warn!(error = trouble.text, "The storage did not answer");
    let retry_after_s = match error {
        StorageError::Away { retry_after_s, .. } => *retry_after_s,
        _ => RETRY_AFTER_S,
    };
    match trouble.kind {
        TroubleKind::Missing => AppError::NotFound,
        _ => AppError::Unavailable { what: say("away.storage"), retry_after_s },
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestApp;

    #[tokio::test]
    async fn a_tool_that_could_not_be_run_is_tried_again_at_the_next_look() {
        let test = TestApp::new().await;
        test.storage.state().no_tool = true;
        let storage = &test.app.storage;
        let codes = || storage.findings().into_iter().map(|finding| finding.code).collect::<Vec<_>>();
        storage.look().await;
        assert!(codes().contains(&"tool_missing"), "{:?}", codes());
        test.storage.state().no_tool = false;
        storage.look().await;
        assert!(!codes().contains(&"tool_missing"), "{:?}", codes());
    }
}
