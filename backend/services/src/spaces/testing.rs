//! What the tests of the rules are arranged with.

use eirene_core::space::{HintState, LimitState, SpaceDesired, StripeHint};
use eirene_core::storage::Limit;
use eirene_core::{Space, SpaceId, SpaceKind, SpaceOwner, SpaceState, UserId};

use crate::testing::start_time;

pub fn person(id: UserId, name: &str) -> SpaceOwner {
    SpaceOwner::Person { id, name: name.parse().unwrap() }
}

/// A space that is there.
pub fn a_space(owner: SpaceOwner) -> Space {
    Space {
        id: SpaceId::generate(),
        serial: 7,
        name: "physics".parse().unwrap(),
        kind: SpaceKind::Project,
        title: "Physics".parse().unwrap(),
        root: "project".parse().unwrap(),
        owner,
        writable: true,
        hint: StripeHint::Usual,
        hint_state: HintState::Unset,
        hint_said: None,
        desired: SpaceDesired::Present,
        state: SpaceState::Present,
        undetermined: false,
        reason: None,
        made_at: None,
        limit_bytes: Limit::Unlimited,
        limit_files: Limit::Unlimited,
        limit_state: LimitState::Unset,
        limit_said: None,
        expires_at: None,
        warned: vec![],
        retired_at: None,
        remove_after: None,
        kept_s: 0,
        watched_at: None,
        created_at: start_time(),
        version: 1,
    }
}
