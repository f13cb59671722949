//! Spaces are made, taken away, brought back and removed as rows say it, whatever is killed in between.

use std::time::Duration;

use eirene_core::Role;
use eirene_core::launcher::LauncherRequest;
use eirene_core::storage::{Bytes, Doubt, DoubtAbout, Files, PoolId, QuotaId, Why};
use tokio::sync::Notify;

use super::*;
use crate::testing::{StorageMood, TestApp};
use futures_util::StreamExt as _;

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
    let events = test.app.db.audit_events(None, 100, None, None).await.unwrap();
    events.into_iter().rev().map(|event| (event.actor, event.action)).collect()
}

#[tokio::test]
async fn a_groups_space_whose_file_system_keeps_no_access_lists_says_so_as_long_as_it_is_there() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.launcher.spaces.lock().unwrap().no_lists = true;
    let space = test.app.making.create(&admin, for_group("stars")).await.unwrap();
    let code = |space: &Space| space.reason.as_ref().map(|reason| reason.code.clone());
    let present = settle(&test, "stars").await.unwrap();
    assert_eq!((present.state, code(&present).as_deref()), (SpaceState::Present, Some(NOT_SHARED)));
    assert!(actions(&test).await.iter().any(|(_, action)| action == "space.not_shared"));
    test.app.spaces.look_again(space.id).await.unwrap();
    test.storage.state().mood = StorageMood::Away;
    test.app.spaces.look_again(space.id).await.unwrap();
    let seen = test.app.db.space(space.id).await.unwrap().unwrap();
    assert_eq!((seen.undetermined, code(&seen).as_deref()), (true, Some(NOT_SHARED)), "no look takes it back");
    test.storage.state().mood = StorageMood::Good;
    test.app.making.retire(&admin, &present.name).await.unwrap();
    settle(&test, "stars").await.unwrap();
    test.app.making.restore(&admin, &present.name).await.unwrap();
    let back = settle(&test, "stars").await.unwrap();
    assert_eq!((back.state, code(&back).as_deref()), (SpaceState::Present, Some(NOT_SHARED)));
    test.launcher.spaces.lock().unwrap().no_lists = false;
    test.app.making.create(&admin, for_group("moons")).await.unwrap();
    assert_eq!(code(&settle(&test, "moons").await.unwrap()), None);
}

#[tokio::test]
async fn a_space_comes_goes_and_comes_back_and_all_of_it_is_written_down() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let making = &test.app.making;
    let space = making.create(&admin, for_group("stars")).await.unwrap();
    assert_eq!((space.state, space.title.as_str(), space.writable), (SpaceState::Wanted, "stars", true));
    let present = settle(&test, "stars").await.unwrap();
    assert_eq!((present.state, present.reason.clone()), (SpaceState::Present, None));
    let made = present.made_at.clone().unwrap();
    assert_eq!((made.inode, made.identity.marker.as_deref()), (1, Some("00ff")));

    making.retire(&admin, &present.name).await.unwrap();
    let retired = settle(&test, "stars").await.unwrap();
    assert_eq!(retired.state, SpaceState::Retired);
    let kept_for = retired.remove_after.unwrap().duration_since(retired.retired_at.unwrap());
    assert_eq!(kept_for, DAY * 30, "the grace of its root");
    assert!(test.launcher.spaces.lock().unwrap().present.is_empty());

    making.restore(&admin, &present.name).await.unwrap();
    let back = settle(&test, "stars").await.unwrap();
    assert_eq!(
        (back.state, back.retired_at, back.remove_after, back.made_at),
        (SpaceState::Present, None, None, Some(made))
    );
    let said = actions(&test).await;
    let said: Vec<&str> = said.iter().map(|(_, action)| action.as_str()).collect();
    assert_eq!(
        said,
        ["space.create", "space.made", "space.retire", "space.retired", "space.restore", "space.restored"]
    );
}

#[tokio::test]
async fn what_is_to_be_gone_is_removed_in_pieces_and_its_name_is_free_again() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let making = &test.app.making;
    making.create(&admin, for_group("stars")).await.unwrap();
    settle(&test, "stars").await.unwrap();
    making.retire(&admin, &"stars".parse().unwrap()).await.unwrap();
    let retired = settle(&test, "stars").await.unwrap();
    test.app.db.update_space(&Space { desired: SpaceDesired::Gone, ..retired.clone() }).await.unwrap();
    let restored = making.restore(&admin, &retired.name).await;
    assert!(matches!(restored, Err(AppError::Conflict { code: "being_removed", .. })), "{restored:?}");
    test.launcher.spaces.lock().unwrap().removals_left = 3;
    assert_eq!(settle(&test, "stars").await, None);
    assert_eq!(test.app.db.space(retired.id).await.unwrap().unwrap().state, SpaceState::Gone);
    let calls = test.launcher.calls.lock().unwrap().clone();
    let removals = calls.iter().filter(|call| matches!(call, LauncherRequest::RemoveRetired { .. })).count();
    assert_eq!(removals, 4);
    making.create(&admin, for_group("stars")).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_nothing_half_done() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let (making, name) = (&test.app.making, "stars".parse().unwrap());
    let lose = || test.launcher.spaces.lock().unwrap().loses_an_answer = true;
    making.create(&admin, for_group("stars")).await.unwrap();
    lose();
    assert_eq!(settle(&test, "stars").await.unwrap().state, SpaceState::Wanted);
    let present = settle(&test, "stars").await.unwrap();
    assert_eq!((present.state, present.made_at.unwrap().inode), (SpaceState::Present, 1), "the one that was made");
    making.retire(&admin, &name).await.unwrap();
    lose();
    assert_eq!(settle(&test, "stars").await.unwrap().state, SpaceState::Present);
    assert_eq!(settle(&test, "stars").await.unwrap().state, SpaceState::Retired);
    making.restore(&admin, &name).await.unwrap();
    lose();
    assert_eq!(settle(&test, "stars").await.unwrap().state, SpaceState::Retired);
    assert_eq!(settle(&test, "stars").await.unwrap().state, SpaceState::Present);

    // Made, and not wanted any more before that was written down: it is found, and not left lying there.
    making.create(&admin, for_group("moons")).await.unwrap();
    lose();
    assert_eq!(settle(&test, "moons").await.unwrap().state, SpaceState::Wanted);
    making.retire(&admin, &"moons".parse().unwrap()).await.unwrap();
    assert_eq!(settle(&test, "moons").await.unwrap().state, SpaceState::Retired);
}

#[tokio::test]
async fn what_the_launcher_refuses_is_said_and_what_was_never_made_is_gone_at_once() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let making = &test.app.making;
    making.create(&admin, for_group("stars")).await.unwrap();
    test.launcher.spaces.lock().unwrap().refusal = Some("unknown_group");
    let wanted = settle(&test, "stars").await.unwrap();
    assert_eq!((wanted.state, wanted.reason.clone().unwrap().code.as_str()), (SpaceState::Wanted, "not_made"));
    settle(&test, "stars").await.unwrap();
    assert_eq!(making.version(wanted.id).await.unwrap(), wanted.version, "the same is not written again");
    making.retire(&admin, &wanted.name).await.unwrap();
    assert_eq!(settle(&test, "stars").await, None);

    making.create(&admin, for_group("moons")).await.unwrap();
    test.launcher.spaces.lock().unwrap().refusal = None;
    test.storage.state().mood = StorageMood::Away;
    assert_eq!(settle(&test, "moons").await.unwrap().state, SpaceState::Wanted, "it is not known where it lies");
    test.storage.state().mood = StorageMood::Good;
    assert_eq!(settle(&test, "moons").await.unwrap().state, SpaceState::Present);
}

#[tokio::test]
async fn everybody_with_a_user_id_has_a_space_where_everybody_has_one() {
    let test = TestApp::new().await;
    let (ada, admin) = (test.ada().await, admin(&test).await);
    test.app.making.add_personal(10).await.unwrap();
    test.app.making.add_personal(10).await.unwrap();
    let space = settle(&test, "scratch-ada").await.unwrap();
    assert_eq!((space.owner_id(), space.state), (Some(ada.user.id), SpaceState::Present));
    assert!(settle(&test, "scratch-root-admin").await.is_some());
    let again =
        test.app.making.create(&admin, NewSpace { owner: Some("ada".parse().unwrap()), ..wish("scratch", "") }).await;
    assert!(matches!(again, Err(AppError::Conflict { .. })), "{again:?}");
    test.app.making.retire(&admin, &space.name).await.unwrap();
    settle(&test, "scratch-ada").await.unwrap();
    test.app.making.add_personal(10).await.unwrap();
    assert_eq!(settle(&test, "scratch-ada").await.unwrap().state, SpaceState::Retired, "there is no second one");
}

#[tokio::test]
async fn only_admins_wish_and_what_cannot_be_is_named_by_its_field() {
    let test = TestApp::new().await;
    let (ada, admin) = (test.ada().await, admin(&test).await);
    let making = &test.app.making;
    let space = making.create(&admin, for_group("stars")).await.unwrap();
    for refused in [
        making.create(&ada, for_group("moons")).await,
        making.change(&ada, &space.name, &ChangeSpace::default()).await,
        making.retire(&ada, &space.name).await,
        making.restore(&ada, &space.name).await,
    ] {
        assert!(matches!(refused, Err(AppError::Forbidden { .. })), "{refused:?}");
    }
    let ada_s = |root: &str, name: &str| NewSpace { owner: Some("ada".parse().unwrap()), ..wish(root, name) };
    let past = Some(test.clock.now());
    for (new, field) in [
        (wish("nowhere", "x"), "root"),
        (wish("project", ""), "name"),
        (wish("project", "home"), "name"),
        (wish("project", "home-ada"), "name"),
        (wish("project", "scratch-ada"), "name"),
        (wish("scratch", "x"), "owner"),
        (ada_s("project", "x"), "owner"),
        (ada_s("scratch", "mine"), "name"),
        (NewSpace { owner: Some("nobody-here".parse().unwrap()), ..wish("scratch", "") }, "owner"),
        (NewSpace { group: Some("physics".parse().unwrap()), ..ada_s("scratch", "") }, "owner"),
        (NewSpace { expires_at: past, ..for_group("x") }, "expires_at"),
    ] {
        let wrong = making.create(&admin, new).await.unwrap_err();
        assert!(matches!(&wrong, AppError::Invalid(errors) if errors[0].field == field), "{field}: {wrong:?}");
    }
    assert!(matches!(making.create(&admin, for_group("stars")).await, Err(AppError::Conflict { .. })));
    test.app.spaces.list(&ada).await.unwrap();
    let home = making.retire(&admin, &"home-ada".parse().unwrap()).await;
    assert!(matches!(home, Err(AppError::Conflict { code: "is_a_home", .. })), "{home:?}");
    assert!(matches!(making.retire(&admin, &"nothing".parse().unwrap()).await, Err(AppError::NotFound)));
}

#[tokio::test]
async fn a_new_end_forgets_warnings_of_the_old_and_one_that_is_over_does_not_come_back_with_the_space() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let making = &test.app.making;
    let end = test.clock.now() + DAY * 5;
    let space = making.create(&admin, NewSpace { expires_at: Some(end), ..for_group("stars") }).await.unwrap();
    let present = settle(&test, "stars").await.unwrap();
    let warned = vec![eirene_core::space::Warned { days: 3, at: test.clock.now() }];
    test.app.db.update_space(&Space { warned, ..present }).await.unwrap();
    let change = |end| ChangeSpace { expires_at: Some(End::At(end)), ..ChangeSpace::default() };
    let same = making.change(&admin, &space.name, &change(end)).await.unwrap();
    assert_eq!(same.warned.len(), 1);
    let later = making.change(&admin, &space.name, &change(end + DAY)).await.unwrap();
    assert_eq!((later.warned.len(), later.expires_at), (0, Some(end + DAY)));
    making.retire(&admin, &space.name).await.unwrap();
    settle(&test, "stars").await.unwrap();
    test.clock.advance_s(7 * 24 * 60 * 60);
    let back = making.restore(&admin, &space.name).await.unwrap();
    assert_eq!((back.desired, back.expires_at), (SpaceDesired::Present, None));
}

fn limits(bytes: Limit<Bytes>) -> NewLimits {
    NewLimits { bytes: Some(bytes), files: None }
}

const GIB: Limit<Bytes> = Limit::At(Bytes(1 << 30));

fn set(test: &TestApp) -> Option<(Option<u64>, Option<u64>)> {
    test.launcher.spaces.lock().unwrap().limits.get("project/stars").copied()
}

#[tokio::test]
async fn a_limit_is_set_when_the_space_is_made_and_changed_and_taken_back() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.launcher.spaces.lock().unwrap().counts = true;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    let held = settle(&test, "stars").await.unwrap();
    assert_eq!(
        (held.state, held.limit_state, set(&test)),
        (SpaceState::Present, LimitState::Held, Some((Some(1 << 30), None)))
    );

    let more = NewLimits { files: Some(Limit::At(Files(9))), ..NewLimits::default() };
    let change = ChangeSpace { limits: more, ..ChangeSpace::default() };
    let wanted = test.app.making.change(&admin, &held.name, &change).await.unwrap();
    assert_eq!((wanted.limit_state, wanted.limit_bytes), (LimitState::Wanted, GIB));
    // It was done, and nobody heard of it.
    test.launcher.spaces.lock().unwrap().loses_an_answer = true;
    settle(&test, "stars").await;
    let held = settle(&test, "stars").await.unwrap();
    assert_eq!((held.limit_state, set(&test)), (LimitState::Held, Some((Some(1 << 30), Some(9)))));

    let none = NewLimits { bytes: Some(Limit::Unlimited), files: Some(Limit::Unlimited) };
    let change = ChangeSpace { limits: none, ..ChangeSpace::default() };
    test.app.making.change(&admin, &held.name, &change).await.unwrap();
    let free = settle(&test, "stars").await.unwrap();
    assert_eq!((free.limit_state, set(&test)), (LimitState::Unset, Some((None, None))));
}

#[tokio::test]
async fn a_limit_that_nobody_holds_is_said_and_held_as_soon_as_somebody_can() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    let shown = settle(&test, "stars").await.unwrap();
    assert_eq!((shown.state, shown.limit_state), (SpaceState::Present, LimitState::NotHeld));
    assert_eq!((shown.limit_said.as_deref(), shown.limit_bytes), (Some("no"), GIB));
    let version = shown.version;
    let again = settle(&test, "stars").await.unwrap();
    assert_eq!(again.version, version, "the same is not written twice");
    test.launcher.spaces.lock().unwrap().counts = true;
    let held = settle(&test, "stars").await.unwrap();
    assert_eq!((held.limit_state, held.limit_said), (LimitState::Held, None));
    assert!(actions(&test).await.iter().any(|(_, action)| action == "space.not_limited"));
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

#[tokio::test]
async fn where_the_storage_counts_by_owner_a_limit_is_the_owners_in_the_pool_of_the_space_and_is_taken_back() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    let of_group = QuotaId::Group(5000);
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    let held = settle(&test, "stars").await.unwrap();
    assert_eq!((held.limit_state, held.limit_said.clone()), (LimitState::Held, None));
    let set = || test.storage.state().limits_set.clone();
    assert_eq!(set(), [(of_group, Some(PoolId(1)), Some(GIB))]);

    // Of files it counts something else, and what is so already is not set again.
    let files = NewLimits { files: Some(Limit::At(Files(9))), ..NewLimits::default() };
    let change = ChangeSpace { limits: files, ..ChangeSpace::default() };
    test.app.making.change(&admin, &held.name, &change).await.unwrap();
    let half = settle(&test, "stars").await.unwrap();
    assert_eq!(half.limit_state, LimitState::NotHeld);
    assert!(half.limit_said.as_deref().is_some_and(|said| said.contains("pieces of files")), "{half:?}");
    assert_eq!(set().len(), 1);

    let none = NewLimits { bytes: Some(Limit::Unlimited), files: Some(Limit::Unlimited) };
    let change = ChangeSpace { limits: none, ..ChangeSpace::default() };
    test.app.making.change(&admin, &held.name, &change).await.unwrap();
    assert_eq!(settle(&test, "stars").await.unwrap().limit_state, LimitState::Unset);
    assert_eq!(set()[1..], [(of_group, Some(PoolId(1)), Some(Limit::Unlimited))]);
}

#[tokio::test]
async fn a_limit_that_would_hold_for_another_space_too_is_not_set_and_names_it() {
    let test = on_beegfs().await;
    let (admin, ada) = (admin(&test).await, test.ada().await);
    test.app.spaces.list(&ada).await.unwrap();
    let hers = NewSpace { owner: Some("ada".parse().unwrap()), limits: limits(GIB), ..wish("scratch", "") };
    test.app.making.create(&admin, hers).await.unwrap();
    let shared = settle(&test, "scratch-ada").await.unwrap();
    assert_eq!((shared.state, shared.limit_state), (SpaceState::Present, LimitState::NotHeld));
    assert!(shared.limit_said.as_deref().is_some_and(|said| said.contains("`home-ada`")), "{shared:?}");

    // One that was taken away is still in the pool.
    test.app.making.create(&admin, for_group("moons")).await.unwrap();
    settle(&test, "moons").await.unwrap();
    test.app.making.retire(&admin, &"moons".parse().unwrap()).await.unwrap();
    settle(&test, "moons").await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    let shared = settle(&test, "stars").await.unwrap();
    assert!(shared.limit_said.as_deref().is_some_and(|said| said.contains("`moons`")), "{shared:?}");
    assert_eq!(test.storage.state().limits_set, []);
}

/// Judges owners and takes steps, as the reconciler does, until nothing changes any more.
async fn converge(test: &TestApp) {
    for _ in 0..8 {
        test.app.making.judge_owners(&OwnerWaits::default()).await.unwrap();
        for space in test.app.making.to_do().await.unwrap() {
            test.app.making.step(&space).await.unwrap();
        }
    }
}

async fn seen(test: &TestApp, name: &str) -> Space {
    test.app.db.space_by_name(&name.parse().unwrap()).await.unwrap().unwrap()
}

async fn remove(test: &TestApp, admin: &Actor, name: &str) {
    test.app.making.retire(admin, &name.parse().unwrap()).await.unwrap();
    converge(test).await;
    let retired = Space { desired: SpaceDesired::Gone, ..seen(test, name).await };
    assert!(test.app.db.update_space(&retired).await.unwrap());
    converge(test).await;
}

const OF_GROUP: QuotaId = QuotaId::Group(5000);

fn last_set(test: &TestApp) -> Option<Limit<Bytes>> {
    let set = test.storage.state().limits_set.clone();
    assert!(set.iter().all(|(id, pool, _)| (*id, *pool) == (OF_GROUP, Some(PoolId(1)))), "{set:?}");
    set.last().and_then(|(_, _, bytes)| *bytes)
}

#[tokio::test]
async fn an_owner_may_use_what_all_their_spaces_in_the_pool_may_hold_together_as_they_come_change_and_go() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    let gib = |many: u64| Limit::At(Bytes(many << 30));
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Held, Some(GIB)));

    test.app.making.create(&admin, NewSpace { limits: limits(gib(2)), ..for_group("moons") }).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(gib(3)));
    for (name, other) in [("stars", "`moons`"), ("moons", "`stars`")] {
        let space = seen(&test, name).await;
        assert_eq!(space.limit_state, LimitState::NotHeld, "not by itself");
        assert!(space.limit_said.as_deref().is_some_and(|said| said.contains(other)), "{space:?}");
    }
    let times = test.storage.state().limits_set.len();
    converge(&test).await;
    assert_eq!(test.storage.state().limits_set.len(), times, "what is so is not set again");

    let change = ChangeSpace { limits: limits(gib(5)), ..ChangeSpace::default() };
    test.app.making.change(&admin, &"stars".parse().unwrap(), &change).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(gib(7)));

    // What was taken away is still in the pool, until it is removed.
    test.app.making.retire(&admin, &"moons".parse().unwrap()).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(gib(7)));
    test.app.making.restore(&admin, &"moons".parse().unwrap()).await.unwrap();
    remove(&test, &admin, "moons").await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Held, Some(gib(5))));
    remove(&test, &admin, "stars").await;
    assert_eq!(last_set(&test), Some(Limit::Unlimited), "it goes with the last of them");
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

#[tokio::test]
async fn a_limit_does_not_hold_for_what_comes_later_and_has_none() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(GIB));
    test.app.making.create(&admin, for_group("moons")).await.unwrap();
    converge(&test).await;
    let stars = seen(&test, "stars").await;
    assert_eq!((stars.limit_state, last_set(&test)), (LimitState::NotHeld, Some(Limit::Unlimited)));
    assert!(stars.limit_said.as_deref().is_some_and(|said| said.contains("`moons`")), "{stars:?}");
    remove(&test, &admin, "moons").await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Held, Some(GIB)));
}

#[tokio::test]
async fn a_space_that_comes_back_says_anew_whether_its_limit_is_held() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    let name = "stars".parse().unwrap();
    test.app.making.retire(&admin, &name).await.unwrap();
    converge(&test).await;
    test.app.making.create(&admin, for_group("moons")).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(Limit::Unlimited), "it would hold for `moons`");
    test.app.making.restore(&admin, &name).await.unwrap();
    converge(&test).await;
    let back = seen(&test, "stars").await;
    assert_eq!((back.state, back.limit_state), (SpaceState::Present, LimitState::NotHeld));
    assert!(back.limit_said.as_deref().is_some_and(|said| said.contains("`moons`")), "{back:?}");

    // Where the directory itself is limited it still is.
    test.launcher.spaces.lock().unwrap().counts = true;
    test.app.making.retire(&admin, &name).await.unwrap();
    settle(&test, "stars").await;
    test.app.making.restore(&admin, &name).await.unwrap();
    let held = settle(&test, "stars").await.unwrap();
    assert_eq!((held.limit_state, held.limit_said, set(&test)), (LimitState::Held, None, Some((Some(1 << 30), None))));
}

#[tokio::test]
async fn what_somebody_else_has_set_is_not_taken_back_and_what_was_begun_is_gone_on_with() {
    let mut test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    // As a portal leaves it that was killed between writing down and setting.
    let mut begun = test.app.db.owner_limits().await.unwrap().remove(0);
    begun.judged_by.clear();
    test.app.db.put_owner_limit(&begun).await.unwrap();
    test.storage.state().users = Some((3, Limit::Unlimited));
    converge(&test).await;
    assert_eq!(test.storage.state().users, Some((3, Limit::At(1 << 30))));
    // While the storage is away nothing is forgotten.
    let change = ChangeSpace { limits: limits(Limit::At(Bytes(2 << 30))), ..ChangeSpace::default() };
    test.app.making.change(&admin, &"stars".parse().unwrap(), &change).await.unwrap();
    test.storage.state().mood = StorageMood::Away;
    converge(&test).await;
    assert_eq!(seen(&test, "stars").await.limit_state, LimitState::Wanted);
    test.storage.state().mood = StorageMood::Good;
    converge(&test).await;
    assert_eq!(last_set(&test), Some(Limit::At(Bytes(2 << 30))));

    test.storage.state().users = Some((3, Limit::At(9)));
    let times = test.storage.state().limits_set.len();
    let mut config = (*test.app.config).clone();
    for root in &mut config.spaces.roots {
        root.owner_limits = false;
    }
    test.rebuild(config);
    converge(&test).await;
    assert_eq!(test.storage.state().limits_set.len(), times, "an admin's own limit stays");
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

/// Changes how much `stars` may hold.
async fn limit_stars(test: &TestApp, admin: &Actor, bytes: Limit<Bytes>) {
    let change = ChangeSpace { limits: limits(bytes), ..ChangeSpace::default() };
    test.app.making.change(admin, &"stars".parse().unwrap(), &change).await.unwrap();
}

#[tokio::test]
async fn a_limit_is_taken_back_also_from_who_uses_nothing_and_not_forgotten_while_nobody_tells_of_it() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(GIB));

    // Half an answer, and one that is without the limit.
    limit_stars(&test, &admin, Limit::Unlimited).await;
    let doubt = Doubt { about: DoubtAbout::Whole, text: "a server did not answer".into() };
    for (pools, doubts, missing) in [(vec![2], vec![doubt], None), (vec![1, 2], vec![], Some(Why::DidNotAnswer))] {
        {
            let mut storage = test.storage.state();
            (storage.quota_pools, storage.quota_doubts, storage.limit_missing) = (pools, doubts, missing);
        }
        converge(&test).await;
        assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Wanted, Some(GIB)));
        assert_eq!(test.app.db.owner_limits().await.unwrap().len(), 1, "{missing:?}");
    }
    // BeeGFS 8 leaves out who uses nothing, before and after.
    test.storage.state().limit_missing = Some(Why::NeverMeasured);
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Unset, Some(Limit::Unlimited)));
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
    let times = test.storage.state().limits_set.len();
    converge(&test).await;
    assert_eq!(test.storage.state().limits_set.len(), times, "it is over");

    // With its pool a limit is no more.
    test.storage.state().limit_missing = None;
    limit_stars(&test, &admin, GIB).await;
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Held, Some(GIB)));
    test.storage.state().quota_pools = vec![2];
    limit_stars(&test, &admin, Limit::Unlimited).await;
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Unset, Some(GIB)));
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

#[tokio::test]
async fn a_limit_that_may_be_set_all_the_same_is_remembered_and_one_that_was_refused_is_not() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.storage.state().refuses_limits = true;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    let refused = seen(&test, "stars").await;
    assert_eq!(refused.limit_state, LimitState::NotHeld);
    assert!(refused.limit_said.as_deref().is_some_and(|said| said.contains("not enforced")), "{refused:?}");
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);

    // A group without files: it was set, and cannot be read back before there are any.
    {
        let mut storage = test.storage.state();
        (storage.refuses_limits, storage.limit_missing) = (false, Some(Why::NeverMeasured));
    }
    converge(&test).await;
    let perhaps = seen(&test, "stars").await;
    assert_eq!((perhaps.limit_state, last_set(&test)), (LimitState::NotHeld, Some(GIB)));
    assert!(perhaps.limit_said.as_deref().is_some_and(|said| said.contains("read back")), "{perhaps:?}");
    limit_stars(&test, &admin, Limit::Unlimited).await;
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Unset, Some(Limit::Unlimited)));
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);

    limit_stars(&test, &admin, GIB).await;
    converge(&test).await;
    assert_eq!(seen(&test, "stars").await.limit_state, LimitState::NotHeld);
    let times = test.storage.state().limits_set.len();
    test.storage.state().limit_missing = None;
    converge(&test).await;
    assert_eq!(seen(&test, "stars").await.limit_state, LimitState::Held);
    assert_eq!(test.storage.state().limits_set.len(), times, "it is there");
}

#[tokio::test]
async fn a_limit_that_nobody_knows_to_be_taken_back_is_not_forgotten_and_taken_back_later() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    assert_eq!(last_set(&test), Some(GIB));
    test.storage.state().mumbles_of_limits = true;
    limit_stars(&test, &admin, Limit::Unlimited).await;
    converge(&test).await;
    assert_eq!(test.storage.state().users, Some((3, Limit::At(1 << 30))), "it is still limited");
    assert_eq!(test.app.db.owner_limits().await.unwrap().len(), 1);
    test.storage.state().mumbles_of_limits = false;
    converge(&test).await;
    assert_eq!((seen(&test, "stars").await.limit_state, last_set(&test)), (LimitState::Unset, Some(Limit::Unlimited)));
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

#[tokio::test]
async fn after_a_refusal_it_is_written_down_as_before_and_an_admins_own_limit_stays() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    let before = test.app.db.owner_limits().await.unwrap();
    assert_eq!(before.len(), 1);
    test.storage.state().refuses_limits = true;
    limit_stars(&test, &admin, Limit::At(Bytes(2 << 30))).await;
    converge(&test).await;
    assert_eq!(seen(&test, "stars").await.limit_state, LimitState::NotHeld);
    assert_eq!(test.app.db.owner_limits().await.unwrap(), before);
    {
        let mut storage = test.storage.state();
        (storage.refuses_limits, storage.users) = (false, Some((3, Limit::At(9))));
    }
    limit_stars(&test, &admin, Limit::Unlimited).await;
    converge(&test).await;
    assert_eq!(test.storage.state().users, Some((3, Limit::At(9))));
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

#[tokio::test]
async fn of_a_limit_that_was_being_set_the_old_and_the_new_one_are_taken_back_and_no_other() {
    for (there, left) in [
        (Limit::At(1 << 30), Limit::Unlimited),
        (Limit::At(2 << 30), Limit::Unlimited),
        (Limit::At(3 << 30), Limit::Unlimited),
        (Limit::At(9), Limit::At(9)),
    ] {
        let test = on_beegfs().await;
        let admin = admin(&test).await;
        test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
        converge(&test).await;
        // Whether it was set nobody knows, twice.
        test.storage.state().mumbles_of_limits = true;
        for gib in [2, 3] {
            limit_stars(&test, &admin, Limit::At(Bytes(gib << 30))).await;
            converge(&test).await;
        }
        {
            let mut storage = test.storage.state();
            (storage.mumbles_of_limits, storage.users) = (false, Some((3, there)));
        }
        limit_stars(&test, &admin, Limit::Unlimited).await;
        converge(&test).await;
        assert_eq!(test.storage.state().users, Some((3, left)), "{there:?}");
        assert_eq!(test.app.db.owner_limits().await.unwrap(), [], "{there:?}");
    }
}

#[tokio::test]
async fn a_limit_goes_with_the_last_space_that_has_one_also_where_nobody_finds_the_others_any_more() {
    let test = on_beegfs().await;
    let (admin, ada) = (admin(&test).await, test.ada().await);
    let of_ada = QuotaId::User(ada.user.uid.unwrap());
    let hers = NewSpace { owner: Some("ada".parse().unwrap()), limits: limits(GIB), ..wish("scratch", "") };
    test.app.making.create(&admin, hers).await.unwrap();
    converge(&test).await;
    assert_eq!(seen(&test, "scratch-ada").await.limit_state, LimitState::Held);
    // Her home has a row, and then she leaves the user database.
    test.app.spaces.list(&ada).await.unwrap();
    test.storage.state().refuses_homes = true;
    remove(&test, &admin, "scratch-ada").await;
    let set = test.storage.state().limits_set.clone();
    assert_eq!(set, [(of_ada, Some(PoolId(1)), Some(GIB)), (of_ada, Some(PoolId(1)), Some(Limit::Unlimited))]);
    assert_eq!(test.app.db.owner_limits().await.unwrap(), []);
}

#[tokio::test]
async fn an_owner_who_could_not_be_judged_is_judged_ever_more_rarely_and_at_once_where_something_has_changed() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    let gib = |many: u64| Limit::At(Bytes(many << 30));
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    limit_stars(&test, &admin, gib(2)).await;
    // Each time it is set once more, because it cannot be read back.
    test.storage.state().limit_missing = Some(Why::NeverMeasured);
    let waits = OwnerWaits::default();
    for (later_s, times) in [(0, 2), (0, 2), (61, 3), (61, 3), (61, 4), (0, 4)] {
        test.clock.advance_s(later_s);
        assert!(!test.app.making.judge_owners(&waits).await.unwrap());
        assert_eq!(test.storage.state().limits_set.len(), times, "{later_s} s later");
    }
    limit_stars(&test, &admin, gib(3)).await;
    test.storage.state().limit_missing = None;
    assert!(test.app.making.judge_owners(&waits).await.unwrap());
    assert_eq!(last_set(&test), Some(gib(3)));

    // Nobody waits after a success for what failed before it, not even where a step of the space has succeeded.
    limit_stars(&test, &admin, gib(2)).await;
    assert!(test.app.making.judge_owners(&waits).await.unwrap());
    assert_eq!(last_set(&test), Some(gib(2)));
    limit_stars(&test, &admin, gib(4)).await;
    test.storage.state().limit_missing = Some(Why::NeverMeasured);
    assert!(!test.app.making.judge_owners(&waits).await.unwrap());
    test.storage.state().limit_missing = None;
    converge(&test).await;
    assert!(!test.app.making.judge_owners(&waits).await.unwrap(), "it is judged");
    let mut begun = test.app.db.owner_limits().await.unwrap().remove(0);
    begun.judged_by.clear();
    test.app.db.put_owner_limit(&begun).await.unwrap();
    assert!(test.app.making.judge_owners(&waits).await.unwrap());
}

#[tokio::test]
async fn a_root_is_asked_once_for_all_that_an_owner_has_taken_away_in_it() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    for name in ["stars", "moons", "suns"] {
        test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group(name) }).await.unwrap();
    }
    converge(&test).await;
    for name in ["moons", "suns"] {
        test.app.making.retire(&admin, &name.parse().unwrap()).await.unwrap();
    }
    converge(&test).await;
    limit_stars(&test, &admin, Limit::At(Bytes(2 << 30))).await;
    test.storage.state().entries.clear();
    assert!(test.app.making.judge_owners(&OwnerWaits::default()).await.unwrap());
    let mut asked = test.storage.state().entries.clone();
    asked.sort();
    assert_eq!(
        (asked, last_set(&test)),
        (vec!["project".to_owned(), "stars".to_owned()], Some(Limit::At(Bytes(4 << 30))))
    );
}

#[tokio::test]
async fn an_owner_who_takes_too_long_does_not_keep_the_others_from_being_judged() {
    let test = on_beegfs().await;
    let admin = admin(&test).await;
    test.ada().await;
    let hers = NewSpace { owner: Some("ada".parse().unwrap()), limits: limits(GIB), ..wish("scratch", "") };
    test.app.making.create(&admin, hers).await.unwrap();
    test.app.making.create(&admin, NewSpace { limits: limits(GIB), ..for_group("stars") }).await.unwrap();
    converge(&test).await;
    assert_eq!(test.app.db.owner_limits().await.unwrap().len(), 2);
    let change = ChangeSpace { limits: limits(Limit::At(Bytes(2 << 30))), ..ChangeSpace::default() };
    for name in ["stars", "scratch-ada"] {
        test.app.making.change(&admin, &name.parse().unwrap(), &change).await.unwrap();
    }
    let bell = Arc::new(Notify::new());
    test.storage.state().endless_root = Some(("project", Arc::clone(&bell)));
    let times = test.storage.state().limits_set.len();
    let waits = OwnerWaits::default();
    // The group comes first. Its time passes at once, and nobody else's.
    let too_long = async {
        bell.notified().await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(1)).await;
        tokio::time::resume();
    };
    let (judged, ()) = tokio::join!(test.app.making.judge_owners(&waits), too_long);
    assert!(judged.unwrap(), "she is judged");
    let set = test.storage.state().limits_set.clone();
    let of_whom: Vec<bool> = set[times..].iter().map(|(id, ..)| matches!(id, QuotaId::User(_))).collect();
    assert_eq!(of_whom, [true]);
}

#[tokio::test]
async fn owners_are_limited_where_their_root_says_so_and_while_the_storage_answers() {
    let mut test = on_beegfs().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, for_group("stars")).await.unwrap();
    let made = settle(&test, "stars").await.unwrap();
    let change = ChangeSpace { limits: limits(GIB), ..ChangeSpace::default() };
    test.app.making.change(&admin, &made.name, &change).await.unwrap();
    test.storage.state().mood = StorageMood::Away;
    assert_eq!(settle(&test, "stars").await.unwrap().limit_state, LimitState::Wanted);
    test.storage.state().mood = StorageMood::Good;

    let mut config = (*test.app.config).clone();
    for root in &mut config.spaces.roots {
        root.owner_limits = false;
    }
    test.rebuild(config);
    test.app.storage.look().await;
    let shown = settle(&test, "stars").await.unwrap();
    assert_eq!(shown.limit_state, LimitState::NotHeld);
    assert!(shown.limit_said.as_deref().is_some_and(|said| said.contains("owner_limits")), "{shown:?}");
    assert_eq!(test.storage.state().limits_set, []);
}

#[tokio::test]
async fn what_is_made_by_itself_has_its_roots_limit_and_end_and_what_is_there_keeps_what_it_has() {
    let mut test = TestApp::new().await;
    test.ada().await;
    test.app.making.add_personal(10).await.unwrap();
    let mut config = (*test.app.config).clone();
    let scratch = &mut config.spaces.roots[0];
    (scratch.limit, scratch.limit_files) = (Some(crate::config::Size(1 << 30)), Some(9));
    scratch.lifetime_days = Some(60);
    test.rebuild(config);
    let admin = admin(&test).await;
    test.app.making.add_personal(10).await.unwrap();
    test.launcher.spaces.lock().unwrap().counts = true;
    let made = settle(&test, "scratch-root-admin").await.unwrap();
    assert_eq!((made.limit_bytes, made.limit_files), (GIB, Limit::At(Files(9))));
    assert_eq!((made.state, made.limit_state), (SpaceState::Present, LimitState::Held));
    assert_eq!(made.expires_at, Some(test.clock.now() + DAY * 60));
    let before = settle(&test, "scratch-ada").await.unwrap();
    assert_eq!((before.limit_bytes, before.expires_at), (Limit::Unlimited, None));
    // What an admin makes has what the admin said.
    test.person("grace", 2005, Role::Researcher).await;
    let grace = NewSpace { owner: Some("grace".parse().unwrap()), ..wish("scratch", "") };
    let said = test.app.making.create(&admin, grace).await.unwrap();
    assert_eq!((said.limit_state, said.expires_at), (LimitState::Unset, None));
}

fn hinted(hint: StripeHint) -> ChangeSpace {
    ChangeSpace { hint: Some(hint), ..ChangeSpace::default() }
}

fn large(name: &str) -> NewSpace {
    NewSpace { hint: Some(StripeHint::LargeSequential), ..for_group(name) }
}

#[tokio::test]
async fn a_hint_that_the_storage_would_not_apply_is_said_and_applied_as_soon_as_it_does() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.storage.state().spread_over(3);
    test.storage.state().keeps_stripes = false;
    let wished = test.app.making.create(&admin, large("stars")).await.unwrap();
    assert_eq!(wished.hint_state, HintState::Wanted);
    let shown = settle(&test, "stars").await.unwrap();
    assert_eq!((shown.state, shown.hint_state), (SpaceState::Present, HintState::NotApplied));
    assert!(shown.hint_said.as_deref().is_some_and(|said| said.contains("not there")), "{shown:?}");
    let again = settle(&test, "stars").await.unwrap();
    assert_eq!(again.version, shown.version, "the same is not written twice");
    test.storage.state().keeps_stripes = true;
    let applied = settle(&test, "stars").await.unwrap();
    assert_eq!((applied.hint_state, applied.hint_said.clone()), (HintState::Applied, None));
    assert_eq!(test.app.making.to_do().await.unwrap(), []);

    // One that is changed and refused is not lost either, and nothing is left to do where nothing in particular is said any more.
    test.storage.state().keeps_stripes = false;
    let changed = test.app.making.change(&admin, &applied.name, &hinted(StripeHint::SmallFiles)).await.unwrap();
    assert_eq!((changed.hint, changed.hint_state), (StripeHint::SmallFiles, HintState::Wanted));
    assert_eq!(settle(&test, "stars").await.unwrap().hint_state, HintState::NotApplied);
    let usual = test.app.making.change(&admin, &applied.name, &hinted(StripeHint::Usual)).await.unwrap();
    assert_eq!((usual.hint_state, usual.hint_said), (HintState::Unset, None));
    assert_eq!(test.app.making.to_do().await.unwrap(), []);
    let said: Vec<String> = actions(&test).await.into_iter().map(|(_, action)| action).collect();
    let of_hints: Vec<&String> = said.iter().filter(|action| action.ends_with("spread")).collect();
    assert_eq!(of_hints, ["space.not_spread", "space.spread", "space.not_spread"], "{said:?}");
}

#[tokio::test]
async fn a_hint_waits_while_the_storage_is_away_and_one_that_was_set_unseen_is_found_set() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.storage.state().spread_over(3);
    test.storage.state().loses_an_answer = true;
    test.app.making.create(&admin, large("stars")).await.unwrap();
    let waits = settle(&test, "stars").await.unwrap();
    assert_eq!((waits.state, waits.hint_state), (SpaceState::Wanted, HintState::Wanted), "nobody fills it before");
    let present = settle(&test, "stars").await.unwrap();
    assert_eq!((present.state, present.hint_state), (SpaceState::Present, HintState::Applied));

    test.storage.state().loses_an_answer = true;
    let limit = ChangeSpace { limits: limits(GIB), ..hinted(StripeHint::SmallFiles) };
    test.app.making.change(&admin, &present.name, &limit).await.unwrap();
    let waits = settle(&test, "stars").await.unwrap();
    assert_eq!((waits.hint_state, waits.limit_state), (HintState::Wanted, LimitState::NotHeld), "each by itself");
    test.launcher.spaces.lock().unwrap().counts = true;
    let done = settle(&test, "stars").await.unwrap();
    assert_eq!((done.hint_state, done.limit_state), (HintState::Applied, LimitState::Held));
}

#[tokio::test]
async fn where_nothing_is_spread_a_hint_is_kept_and_nothing_is_left_to_do() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.app.making.create(&admin, large("stars")).await.unwrap();
    let kept = settle(&test, "stars").await.unwrap();
    assert_eq!(
        (kept.state, kept.hint, kept.hint_state),
        (SpaceState::Present, StripeHint::LargeSequential, HintState::Unset)
    );
    assert_eq!(test.app.making.to_do().await.unwrap(), []);
}

#[tokio::test]
async fn only_admins_set_limits_and_none_that_no_space_can_have() {
    let test = TestApp::new().await;
    let (admin, ada) = (admin(&test).await, test.person("ada", 2001, Role::Researcher).await);
    test.app.making.create(&admin, for_group("stars")).await.unwrap();
    let stars = settle(&test, "stars").await.unwrap();
    let change = ChangeSpace { limits: limits(GIB), ..ChangeSpace::default() };
    assert!(matches!(
        test.app.making.change(&ada, &stars.name, &change).await,
        Err(AppError::Forbidden { .. } | AppError::NotFound)
    ));
    let files = |files| NewLimits { files: Some(Limit::At(Files(files))), ..NewLimits::default() };
    for (limits, field) in [
        (limits(Limit::At(Bytes(0))), "limit_bytes"),
        (limits(Limit::At(Bytes(u64::MAX))), "limit_bytes"),
        (files(0), "limit_files"),
    ] {
        let change = ChangeSpace { limits, ..ChangeSpace::default() };
        match test.app.making.change(&admin, &stars.name, &change).await {
            Err(AppError::Invalid(errors)) => assert_eq!(errors[0].field, field),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(test.app.db.space(stars.id).await.unwrap().unwrap().limit_state, LimitState::Unset);
}

#[tokio::test]
async fn a_group_s_people_are_told_when_its_space_goes_and_comes_back_and_nobody_else_is() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    let (ada, grace) =
        (test.person("ada", 2001, Role::Researcher).await, test.person("grace", 2002, Role::Researcher).await);
    test.groups.add("ada", "physics");
    // Whom the user database does not know keeps nobody else from being told.
    test.person("lost", 2009, Role::Researcher).await;
    test.groups.lose("lost");
    test.app.making.create(&admin, for_group("stars")).await.unwrap();
    let stars = settle(&test, "stars").await.unwrap();
    let mut heard = Vec::new();
    for person in [&ada, &grace] {
        heard.push(test.app.events.subscribe(person, None, None).await.unwrap());
    }
    test.app.making.retire(&admin, &stars.name).await.unwrap();
    settle(&test, "stars").await;
    test.app.making.restore(&admin, &stars.name).await.unwrap();
    settle(&test, "stars").await;
    test.app.events.publish(EventKind::Notice, None, None, json!({"code": "end"})).await;
    let mut codes = Vec::new();
    for events in &mut heard {
        let mut own = Vec::new();
        loop {
            let event = events.next().await.unwrap();
            own.push(event.data["code"].as_str().unwrap_or_default().to_owned());
            if own.last().is_some_and(|code| code == "end") {
                break;
            }
        }
        codes.push(own);
    }
    assert_eq!(codes, [vec!["space_retired", "space_restored", "end"], vec!["end"]]);
}

#[tokio::test]
async fn a_title_that_is_emptied_is_the_usual_one_again() {
    let test = TestApp::new().await;
    let admin = admin(&test).await;
    test.ada().await;
    let making = &test.app.making;
    let hers = NewSpace { owner: Some("ada".parse().unwrap()), ..wish("scratch", "") };
    for new in [for_group("stars"), hers] {
        let made = making.create(&admin, new).await.unwrap();
        let titled = |title| ChangeSpace { title: Some(title), ..ChangeSpace::default() };
        let other = titled(Title::Is("Another".parse().unwrap()));
        assert_eq!(making.change(&admin, &made.name, &other).await.unwrap().title.as_str(), "Another");
        let same = making.change(&admin, &made.name, &ChangeSpace::default()).await.unwrap();
        assert_eq!(same.title.as_str(), "Another", "what is not said stays");
        assert_eq!(making.change(&admin, &made.name, &titled(Title::Usual)).await.unwrap().title, made.title);
    }
}
