//! How files are to be spread: applied, said where it is not, and kept where nothing is spread.

use super::*;

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
