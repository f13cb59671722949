//! Spaces are made, taken away, brought back and removed as rows say it, whatever is killed in between.

mod hinting;
mod lifecycle;
mod limiting;
mod owner_limits;
mod wishes;

use eirene_core::Role;
use eirene_core::storage::{Bytes, Files, PoolId, QuotaId};

use super::*;
use crate::testing::{StorageMood, TestApp};

const GIB: Limit<Bytes> = Limit::At(Bytes(1 << 30));

fn wish(root: &str, name: &str) -> NewSpace {
    NewSpace {
        root: root.parse().unwrap(),
        name: (!name.is_empty()).then(|| name.parse().unwrap()),
        title: None,
        owner: None,
        group: None,
        hint: None,
        expires_at: None,
        limits: NewLimits::default(),
    }
}

fn for_group(name: &str) -> NewSpace {
    NewSpace { group: Some("physics".parse().unwrap()), ..wish("project", name) }
}

async fn admin(test: &TestApp) -> Actor {
    test.person("root-admin", 2003, Role::Admin).await
}

/// Takes steps until there is none to take, as the reconciler does; gives the space then.
async fn settle(test: &TestApp, name: &str) -> Option<Space> {
    let mut steps = 0;
    while let Some(space) = test.app.making.to_do().await.unwrap().into_iter().find(|space| space.name.as_str() == name)
    {
        steps += 1;
        assert!(steps < 20, "it does not come to an end: {space:?}");
        if test.app.making.step(&space).await.unwrap() == Stepped::Later {
            break;
        }
    }
    test.app.db.space_by_name(&name.parse().unwrap()).await.unwrap()
}

async fn actions(test: &TestApp) -> Vec<(String, String)> {
    let events = test.audited().await;
    events.into_iter().rev().map(|event| (event.actor, event.action)).collect()
}

fn limits(bytes: Limit<Bytes>) -> NewLimits {
    NewLimits { bytes: Some(bytes), files: None }
}

fn set(test: &TestApp) -> Option<(Option<u64>, Option<u64>)> {
    test.launcher.spaces.lock().unwrap().limits.get("project/stars").copied()
}

/// A portal whose spaces lie on BeeGFS, in its first pool, and whose roots let limits hold for the owners of spaces.
async fn on_beegfs() -> TestApp {
    let mut test = TestApp::new().await;
    let mut config = (*test.app.config).clone();
    for root in &mut config.spaces.roots {
        root.owner_limits = true;
    }
    test.rebuild(config);
    {
        let mut storage = test.storage.state();
        (storage.kind, storage.quota_pools, storage.users) = ("beegfs", vec![1, 2], Some((3, Limit::Unlimited)));
        storage.spread_over(2);
    }
    test
}
