//! Limits of a space: held by its directory, or by its owner where the storage counts by owner, or said not to be held.

use super::*;

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
