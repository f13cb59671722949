//! Looks at the storage's health regularly, and says in the metrics what was seen. A number that was not said is not a number there either:
//! a gauge of what does not answer any more is NaN, not what it was.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use eirene_services::app::App;
use eirene_services::storage::judge::{Severity, target_name};
use eirene_services::storage::remembered::Remembered;
use eirene_services::storage::snapshot::Snapshot;

use super::driver::Reconciler;

/// Seconds of their past that the servers are asked for at most; that is as far as they remember.
const LONGEST_SAMPLE_S: u32 = 60;

/// Looks at the storage.
pub(super) struct StorageHealth {
    app: App,
    /// Every gauge that was ever set: its name and what it is about.
    gauges: Mutex<BTreeMap<(&'static str, String), Option<u64>>>,
}

impl StorageHealth {
    pub(super) fn new(app: App) -> Self {
        Self { app, gauges: Mutex::default() }
    }

    fn measure(&self, snapshot: &Snapshot) {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        for value in gauges.values_mut() {
            *value = None;
        }
        gauges.extend(values(snapshot));
        for ((name, about), value) in gauges.iter() {
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating point numbers")]
            let value = value.map_or(f64::NAN, |value| value as f64);
            metrics::gauge!(*name, "of" => about.clone()).set(value);
        }
        let findings = self.app.storage.findings();
        for severity in [Severity::Warning, Severity::Broken] {
            let count = findings.iter().filter(|finding| finding.severity == severity).count();
            let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            metrics::gauge!("eirene_storage_findings", "severity" => severity.as_str()).set(count);
        }
    }
}

/// What a look says in numbers.
fn values(snapshot: &Snapshot) -> Vec<((&'static str, String), Option<u64>)> {
    let mut all = Vec::new();
    for root in &snapshot.roots {
        let seen = root.file_system.got();
        let of = || format!("root:{}", root.name);
        all.push((("eirene_storage_total_bytes", of()), seen.map(|seen| seen.total.0)));
        all.push((("eirene_storage_free_bytes", of()), seen.map(|seen| seen.available.0)));
    }
    let targets = snapshot.targets.got();
    for target in targets.iter().flat_map(|targets| &targets.value) {
        let of = || target_name(target.id);
        all.push((("eirene_storage_total_bytes", of()), target.total.value().map(|bytes| bytes.0)));
        all.push((("eirene_storage_free_bytes", of()), target.free.value().map(|bytes| bytes.0)));
        all.push((("eirene_storage_free_files", of()), target.inodes_free.value().map(|files| files.0)));
    }
    all
}

#[async_trait]
impl Reconciler for StorageHealth {
    fn name(&self) -> &'static str {
        "storage_health"
    }

    async fn run(&self) -> anyhow::Result<()> {
        match Remembered::of(&self.app.db).await {
            Ok(remembered) => self.app.storage.remember(remembered).await,
            // What was known before is looked at all the same.
            Err(error) => tracing::warn!(%error, "The places to look at were not read again"),
        }
        self.app.storage_stats.recall().await;
        self.app.storage.look().await;
        self.measure(&self.app.storage.snapshot());
        let since_last = u32::try_from(self.app.config.storage.poll_interval_s).unwrap_or(LONGEST_SAMPLE_S);
        self.app.storage_stats.sample(since_last.min(LONGEST_SAMPLE_S)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;
    use eirene_core::storage::{Bytes, Known, Role as ServerRole, ServerSample, Why};
    use eirene_services::storage::snapshot::Asked;
    use eirene_services::testing::{StorageMood, TestApp};

    use super::*;
    use crate::space_usage::SpaceUsage;

    #[tokio::test]
    async fn what_does_not_answer_has_no_number_any_more() {
        let test = TestApp::new().await;
        let health = StorageHealth::new(test.app.clone());
        health.run().await.unwrap();
        let free = |health: &StorageHealth| {
            let key = ("eirene_storage_free_bytes", "root:scratch".to_owned());
            *health.gauges.lock().unwrap().get(&key).unwrap()
        };
        assert!(free(&health).is_some());
        assert_eq!(test.app.storage.findings(), []);
        test.storage.state().mood = StorageMood::Away;
        health.run().await.unwrap();
        assert_eq!(free(&health), None);
        assert_eq!(test.app.storage.findings()[0].code, "mount_stale");
        test.storage.state().mood = StorageMood::Good;
        health.run().await.unwrap();
        assert!(free(&health).is_some());
    }

    #[tokio::test]
    async fn homes_are_looked_at_where_somebodys_has_answered_before() {
        let test = TestApp::new().await;
        let health = StorageHealth::new(test.app.clone());
        let homes = async || {
            health.run().await.unwrap();
            test.app.storage.snapshot().homes.clone()
        };
        test.person("ada", 3000, Role::Researcher).await;
        assert_eq!(homes().await, Asked::Unsupported, "nobody's was ever seen");
        SpaceUsage::new(test.app.clone()).run().await.unwrap();
        test.storage.state().looks.clear();
        assert_eq!(homes().await, Asked::Got(()));
        assert_eq!(test.storage.state().looks, ["~ada"]);
        assert_eq!(test.app.storage.findings(), []);
        test.storage.state().refuses_homes = true;
        let Asked::Failed(trouble) = homes().await else { panic!("it refuses") };
        assert!(trouble.text.starts_with("ada: "), "{trouble:?}");
        let found = test.app.storage.findings();
        assert_eq!((found[0].code, found[0].about.as_str()), ("homes_refused", "homes"));
    }

    #[tokio::test]
    async fn what_the_servers_did_before_the_portal_was_started_anew_is_told_after_it() {
        let mut test = TestApp::new().await;
        let admin = test.person("root-admin", 2100, Role::Admin).await;
        let second = ServerSample {
            node: Known::Missing(Why::NotSupported),
            at_s: 1,
            written: Known::Known(Bytes(1)),
            read: Known::Known(Bytes(1)),
            requests: 1,
            queued: 0,
            busy: 0,
        };
        test.storage.state().servers = Some(vec![second]);
        for looks in [1, 2] {
            StorageHealth::new(test.app.clone()).run().await.unwrap();
            let points = test.app.storage_stats.history(&admin, ServerRole::Storage, 60).unwrap();
            assert_eq!(points.len(), looks);
            test.clock.advance_s(60);
            let config = (*test.app.config).clone();
            test.rebuild(config);
        }
    }
}
