//! Looks at what every space uses, some of them each run, and gives homes their rows. Quotas of users and groups are asked for once a run. Where
//! the storage does not answer for some spaces of a root the others of it are left for the next round: each look that hangs costs its whole
//! patience.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_core::RootName;
use eirene_services::app::App;
use eirene_services::storage::snapshot::TroubleKind;

use super::driver::Reconciler;

/// Rows of homes that are added in a run.
const HOMES: u32 = 200;
/// Spaces that are read at once.
const PAGE: u32 = 100;
/// Looks without an answer after which the others of a root are left out.
const PATIENCE: u32 = 2;
/// A run begins no look after this time, so that it ends before it is ended.
const LONGEST: Duration = Duration::from_mins(1);

/// Looks at spaces.
pub(super) struct SpaceUsage {
    app: App,
    longest: Duration,
    /// The last space of the run before, where that did not come to the end of them.
    after: Mutex<Option<String>>,
}

impl SpaceUsage {
    pub(super) fn new(app: App) -> Self {
        Self { app, longest: LONGEST, after: Mutex::default() }
    }

    fn after(&self) -> Option<String> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn go_on_after(&self, name: Option<String>) {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}

#[async_trait]
impl Reconciler for SpaceUsage {
    fn name(&self) -> &'static str {
        "space_usage"
    }

    async fn run(&self) -> anyhow::Result<()> {
        let (begun, spaces) = (Instant::now(), &self.app.spaces);
        spaces.add_homes(HOMES).await?;
        let mut round = spaces.begin_round().await?;
        let mut silent: BTreeMap<RootName, u32> = BTreeMap::new();
        loop {
            let page = spaces.to_look_at(self.after(), PAGE).await?;
            for space in &page {
                if begun.elapsed() > self.longest {
                    return Ok(());
                }
                self.go_on_after(Some(space.name.to_string()));
                if silent.get(&space.root).is_some_and(|times| *times >= PATIENCE) {
                    continue;
                }
                if spaces.look_at(space, &mut round).await? == Some(TroubleKind::Away) {
                    *silent.entry(space.root.clone()).or_default() += 1;
                }
            }
            if page.len() < PAGE as usize {
                self.go_on_after(None);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eirene_core::Role;
    use eirene_core::storage::{Bytes, Limit};
    use eirene_services::testing::{StorageMood, TestApp};

    use super::*;

    const GIB: u64 = 1 << 30;

    async fn people(test: &TestApp, names: &[&str]) {
        for (uid, name) in (3000..).zip(names) {
            test.person(name, uid, Role::Researcher).await;
        }
    }

    #[tokio::test]
    async fn everybodys_home_is_looked_at() {
        let test = TestApp::new().await;
        people(&test, &["ada", "grace"]).await;
        SpaceUsage::new(test.app.clone()).run().await.unwrap();
        let seen = test.app.db.usages().await.unwrap();
        assert_eq!(seen.len(), 2);
        assert_eq!(test.storage.state().looks, ["~ada", "~grace"]);
    }

    #[tokio::test]
    async fn a_storage_that_hangs_is_not_asked_for_everybody() {
        let test = TestApp::new().await;
        people(&test, &["a", "b", "c", "d", "e"]).await;
        let usage = SpaceUsage::new(test.app.clone());
        usage.run().await.unwrap();
        test.storage.state().looks.clear();
        test.storage.state().mood = StorageMood::Away;
        usage.run().await.unwrap();
        assert_eq!(test.storage.state().looks, ["~a", "~b"]);
        let spaces = test.app.db.spaces(None, 10).await.unwrap();
        assert!(spaces[0].undetermined && spaces[1].undetermined && !spaces[2].undetermined);
        assert_eq!(test.app.db.usages().await.unwrap().len(), 5, "what was seen before stays");
    }

    #[tokio::test]
    async fn a_run_that_was_too_short_is_gone_on_with() {
        let test = TestApp::new().await;
        people(&test, &["a", "b"]).await;
        let usage = SpaceUsage { longest: Duration::ZERO, ..SpaceUsage::new(test.app.clone()) };
        usage.run().await.unwrap();
        assert_eq!(test.storage.state().looks, Vec::<String>::new());
        usage.go_on_after(Some("home-a".into()));
        let usage = SpaceUsage { longest: LONGEST, ..usage };
        usage.run().await.unwrap();
        assert_eq!(test.storage.state().looks, ["~b"]);
        assert_eq!(usage.after(), None);
    }

    #[tokio::test]
    async fn quotas_are_asked_for_once_and_not_once_a_space() {
        let test = TestApp::new().await;
        people(&test, &["a", "b", "c"]).await;
        test.person("far-away", 90_000, Role::Researcher).await;
        {
            let mut storage = test.storage.state();
            (storage.kind, storage.users) = ("beegfs", Some((GIB, Limit::At(2 * GIB))));
        }
        test.clock.advance_s(11 * 60);
        test.app.storage.look().await;
        let usage = SpaceUsage::new(test.app.clone());
        for _ in 0..2 {
            usage.run().await.unwrap();
            let asked = std::mem::take(&mut test.storage.state().questions);
            assert_eq!(asked, [(3000, 3002), (90_000, 90_000)]);
        }
        for space in test.app.db.spaces(None, 10).await.unwrap() {
            let seen = test.app.db.usage(space.id).await.unwrap().unwrap();
            assert_eq!(seen.usage.used_bytes, Some(Bytes(GIB)), "{}", space.name);
        }
        // Where directories say it themselves nobody else has to.
        test.storage.state().directory = Some((GIB, Limit::Unlimited));
        usage.run().await.unwrap();
        assert_eq!(test.storage.state().questions, []);
    }
}
