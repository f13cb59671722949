//! Limits of owners: what all their spaces in a pool may hold together, set, read back, taken back and never forgotten.

use std::time::Duration;

use eirene_core::storage::{Doubt, DoubtAbout, Why};
use tokio::sync::Notify;

use super::*;

const OF_GROUP: QuotaId = QuotaId::Group(5000);

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
    assert!(test.app.db.update_space(&retired, &[]).await.unwrap());
    converge(test).await;
}

fn last_set(test: &TestApp) -> Option<Limit<Bytes>> {
    let set = test.storage.state().limits_set.clone();
    assert!(set.iter().all(|(id, pool, _)| (*id, *pool) == (OF_GROUP, Some(PoolId(1)))), "{set:?}");
    set.last().and_then(|(_, _, bytes)| *bytes)
}

/// Changes how much `stars` may hold.
async fn limit_stars(test: &TestApp, admin: &Actor, bytes: Limit<Bytes>) {
    let change = ChangeSpace { limits: limits(bytes), ..ChangeSpace::default() };
    test.app.making.change(admin, &"stars".parse().unwrap(), &change).await.unwrap();
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
    // A storage may leave out who uses nothing, before and after.
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
