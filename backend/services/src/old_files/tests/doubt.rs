//! Whatever is not as it should be makes nothing happen, and says why.

use super::*;
use crate::testing::entry;

#[tokio::test]
async fn whatever_is_in_doubt_removes_nothing_and_says_why() {
    type Spoil = fn(&World);
    let spoils: [(OldFilesDoubt, Spoil); 7] = [
        (OldFilesDoubt::StorageAway, |world| world.test.storage.state().mood = StorageMood::Away),
        (OldFilesDoubt::StorageAway, |world| {
            world.test.launcher.spaces.lock().unwrap().refusal = Some("failed");
        }),
        (OldFilesDoubt::OtherFileSystem, |world| world.test.storage.state().marker = None),
        (OldFilesDoubt::OtherDirectory, |world| {
            world.test.launcher.spaces.lock().unwrap().present.values_mut().for_each(|inode| *inode += 100);
        }),
        (OldFilesDoubt::Clock, |world| world.test.launcher.spaces.lock().unwrap().clock_is_off_by_s = 3600),
        (OldFilesDoubt::People, |world| (0..10).for_each(|number| world.test.groups.lose(&format!("p{number}")))),
        (OldFilesDoubt::OwnerUnknown, |world| world.test.groups.lose("ada")),
    ];
    for (doubt, spoil) in spoils {
        let world = World::told().await;
        spoil(&world);
        world.days(16).await;
        let report = world.report().await;
        assert_eq!(report.state.doubt, Some(doubt));
        assert!(world.is_there("old") && report.state.removed.is_none(), "{doubt}");
    }
}

#[tokio::test]
async fn a_disabled_owner_a_process_that_does_not_answer_and_a_lost_list_remove_nothing() {
    let world = World::told().await;
    world.test.app.db.set_user_state(world.ada.user.id, UserState::Disabled, &entry()).await.unwrap();
    world.days(16).await;
    let state = world.test.app.db.old_files(world.space().await.id).await.unwrap();
    assert_eq!((state.doubt, world.is_there("old")), (Some(OldFilesDoubt::OwnerDisabled), true));

    let world = World::told().await;
    world.test.app.file_processes.revoke(world.ada.user.id);
    *world.test.launcher.files.lock().unwrap() = Some(Arc::new(|_: Username, _: Channel| {}));
    world.days(16).await;
    assert_eq!((world.report().await.state.doubt, world.is_there("old")), (Some(OldFilesDoubt::Files), true));

    let world = World::told().await;
    std::fs::write(world.test.app.old_files.inner.path(world.space().await.id.into()), "EIROLD01 and nothing").unwrap();
    world.days(15).await;
    assert!(world.is_there("old"), "it is listed anew, and waits anew");
    assert_eq!(world.notices().await.len(), 2);
}

#[tokio::test]
async fn a_removal_that_took_its_turn_late_asks_again_whether_it_is_right() {
    type Spoil = fn(&World, &mut OldFilesState);
    let spoils: [(&str, Option<OldFilesDoubt>, Spoil); 5] = [
        ("the mount is missing", Some(OldFilesDoubt::OtherFileSystem), |world, _| {
            world.test.storage.state().marker = None;
        }),
        ("a clock is off", Some(OldFilesDoubt::Clock), |world, _| {
            world.test.launcher.spaces.lock().unwrap().clock_is_off_by_s = 3600;
        }),
        ("a look has seen why not", Some(OldFilesDoubt::NotWatched), |_, state| {
            state.doubt = Some(OldFilesDoubt::NotWatched);
        }),
        ("it was exempted", None, |_, state| (state.exempt, state.list) = (true, None)),
        ("it has days of its own", None, |_, state| state.days = Some(90)),
    ];
    for (what, doubt, spoil) in spoils {
        let world = World::told().await;
        world.days(13).await;
        let (inner, space) = (&world.test.app.old_files.inner, world.space().await.id);
        let turns = inner.turns.acquire_many(u32::try_from(MOST_AT_ONCE).unwrap()).await.unwrap();
        for _ in 0..24 {
            world.test.clock.advance_s(2 * 3600);
            world.test.app.old_files.run().await.unwrap();
        }
        assert!(world.report().await.running, "{what}");
        let mut state = world.test.app.db.old_files(space).await.unwrap();
        let before = state.clone();
        spoil(&world, &mut state);
        if state != before {
            assert!(world.test.app.db.put_old_files(&state, &[]).await.unwrap());
        }
        drop(turns);
        world.idle().await;
        let state = world.report().await.state;
        assert!(world.is_there("old") && state.removed.is_none(), "{what}");
        assert_eq!(state.doubt, doubt, "{what}");
        let written = world.test.app.db.audit_events(None, 10, None, Some("space.old_files_remove")).await.unwrap();
        let outcomes: Vec<_> = written.iter().map(|event| event.outcome.as_str()).collect();
        let is_listed = state.list.is_some();
        assert_eq!(outcomes, if is_listed { &["stopped", "begun"][..] } else { &[] }, "{what}");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_makes_nobody_wait_less() {
    let world = World::told().await;
    world.test.clock.advance_s(100 * 24 * 3600);
    world.look().await;
    assert_eq!(world.report().await.state.doubt, Some(OldFilesDoubt::NotWatched));
    world.days(12).await;
    assert!(world.is_there("old"), "twelve days were watched");
    world.test.clock.advance_s(-130 * 24 * 3600);
    world.look().await;
    let state = world.report().await.state;
    assert_eq!(
        (state.doubt, state.list),
        (Some(OldFilesDoubt::Clock), None),
        "it was listed by a clock that was ahead"
    );
    assert!(world.is_there("old"));
}
