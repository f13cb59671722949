//! What has to be done now and then: expired rows, old events and logs, rights that ended by themselves.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use eirene_services::app::App;
use eirene_services::storage::history::KEPT;
use jiff::SignedDuration;

use super::driver::Reconciler;

/// Days samples of spaces are kept as they came, and days of which one is kept.
const WHOLE_SAMPLES_DAYS: i64 = 7;
const SAMPLES_DAYS: i64 = 400;
/// Days the past of nodes is kept.
const NODE_HISTORY_DAYS: i64 = 400;
/// Days it is kept what holds the jobs on a node, where no session has been there since.
const CONFINEMENT_DAYS: i64 = 30;
/// Days it is kept what operations and policies did.
const RECORDS_DAYS: i64 = 90;

/// Removes what nobody needs any more.
pub(super) struct Retention {
    app: App,
}

impl Retention {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for Retention {
    fn name(&self) -> &'static str {
        "retention"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let now = self.app.clock.now();
        let limits = &self.app.config.limits;
        self.app.audit.record_ended_refusals().await;
        self.app.db.delete_expired(now).await?;
        let events_before = now - SignedDuration::from_hours(24 * i64::from(limits.keep_events_days));
        self.app.db.prune_events(events_before).await?;
        let before = |days: i64| now - SignedDuration::from_hours(24 * days);
        self.app.db.thin_samples(before(WHOLE_SAMPLES_DAYS), before(SAMPLES_DAYS)).await?;
        self.app.db.prune_node_history(before(NODE_HISTORY_DAYS)).await?;
        self.app.db.prune_confined_nodes(before(CONFINEMENT_DAYS)).await?;
        self.app.db.prune_storage_history(now - KEPT, now + KEPT).await?;
        self.app.db.prune_operations(before(RECORDS_DAYS)).await?;
        self.app.db.prune_policy_runs(before(RECORDS_DAYS)).await?;
        self.app.alerts.prune(before(self.app.config.alerts.keep_days.into())).await?;
        self.app.scans.clear().await?;
        let keep_logs = Duration::from_hours(24 * u64::from(limits.keep_logs_days));
        self.app.logs.remove_older_than(keep_logs, SystemTime::from(now)).await?;
        Ok(())
    }
}

/// Closes what was opened with rights that have ended since.
pub(super) struct Rights {
    app: App,
}

impl Rights {
    pub(super) fn new(app: App) -> Self {
        Self { app }
    }
}

#[async_trait]
impl Reconciler for Rights {
    fn name(&self) -> &'static str {
        "rights"
    }

    async fn run(&self) -> anyhow::Result<()> {
        self.app.access.sweep().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eirene_database::StorageLook;
    use eirene_services::testing::{TestApp, start_time};

    use super::*;

    #[tokio::test]
    async fn looks_at_the_storage_go_after_a_day_and_so_do_those_of_a_clock_that_was_ahead() {
        let test = TestApp::new().await;
        let hours = |hours| start_time() + SignedDuration::from_hours(hours);
        for at in [-25, -23, 0, 25].map(hours) {
            let look = StorageLook { at, servers: Some("{}".into()), users: None };
            test.app.db.put_storage_look("storage", &look).await.unwrap();
        }
        Retention::new(test.app.clone()).run().await.unwrap();
        let kept = test.app.db.storage_looks("storage", hours(-100), hours(100), 10).await.unwrap();
        assert_eq!(kept.iter().map(|look| look.at).collect::<Vec<_>>(), [hours(0), hours(-23)]);
    }
}
