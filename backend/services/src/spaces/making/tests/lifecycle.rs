//! Spaces come, go, come back and are removed, step by step, and whoever is concerned is told.

use eirene_core::launcher::LauncherRequest;
use futures_util::StreamExt as _;

use super::*;
use crate::events::EventKind;
use crate::spaces::NOT_SHARED;

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
    test.app.db.update_space(&Space { desired: SpaceDesired::Gone, ..retired.clone() }, &[]).await.unwrap();
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
            own.push(event.fact.small()["code"].as_str().unwrap_or_default().to_owned());
            if own.last().is_some_and(|code| code == "end") {
                break;
            }
        }
        codes.push(own);
    }
    assert_eq!(codes, [vec!["space_retired", "space_restored", "end"], vec!["end"]]);
}
