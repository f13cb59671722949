//! Spaces as people see them: whose they are, what was seen of them, and what their owners are told.

mod measured;
mod told;
mod usage;
mod whose;

use super::quotas::QuotaRound;
use super::testing::{a_space, person};
use super::*;
use crate::testing::TestApp;

const GIB: u64 = 1 << 30;

fn names(spaces: &[SpaceSeen]) -> Vec<&str> {
    spaces.iter().map(|seen| seen.space.name.as_str()).collect()
}

async fn add(test: &TestApp, name: &str, owner: SpaceOwner) -> Space {
    let space = Space { id: SpaceId::generate(), name: name.parse().unwrap(), ..a_space(owner) };
    test.app.db.insert_space(space, &[]).await.unwrap()
}

fn group(name: &str) -> SpaceOwner {
    SpaceOwner::Group(name.parse().unwrap())
}

/// Looks at a person's home.
async fn look_home(test: &TestApp, actor: &Actor) -> SpaceSeen {
    let home = "home".parse().unwrap();
    let seen = test.app.spaces.get(actor, &home).await.unwrap();
    test.app.spaces.look_at(&seen.space, &mut QuotaRound::default()).await.unwrap();
    test.app.spaces.get(actor, &home).await.unwrap()
}

/// From now on the storage's tool tells that everybody uses so much of 10 bytes, wherever anything lies.
async fn counts_users(test: &TestApp, used: u64) {
    test.storage.state().users = Some((used, Limit::At(10)));
    test.clock.advance_s(11 * 60);
    test.app.storage.look().await;
}
