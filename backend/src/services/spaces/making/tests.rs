//! Spaces are made, taken away, brought back and removed as rows say it, whatever is killed in between.

use eirene_core::Role;
use eirene_core::launcher::LauncherRequest;
use eirene_core::storage::{Bytes, Files};

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
