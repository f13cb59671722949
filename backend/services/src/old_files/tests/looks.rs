//! Looks: those that somebody asks for, those that wait for a turn, and those that had no more time.

use super::*;

#[tokio::test]
async fn a_look_that_somebody_asks_for_changes_nothing() {
    let world = World::told().await;
    let before = world.report().await.state.list;
    world.old("older");
    let name = "scratch".parse().unwrap();
    world.test.app.old_files.look(&world.ada, &name).await.unwrap();
    world.idle().await;
    let state = world.report().await.state;
    assert_eq!((state.look.unwrap().found.files, state.list), (2, before));
    assert!(world.is_there("old") && world.is_there("older"));
    let home = world.test.app.old_files.look(&world.ada, &"home".parse().unwrap()).await;
    assert!(matches!(home, Err(AppError::Conflict { code: "no_old_files", .. })), "{home:?}");
}

#[tokio::test]
async fn what_has_no_turn_waits_for_one() {
    let world = World::new().await;
    world.look().await;
    world.old("old");
    world.days(1).await;
    let inner = &world.test.app.old_files.inner;
    let space = world.space().await.id;
    inner.edit(space.into(), |state| state.list = None).await.unwrap();
    let turns = inner.turns.acquire_many(u32::try_from(MOST_AT_ONCE).unwrap()).await.unwrap();
    world.test.clock.advance_s(3600);
    world.test.app.old_files.run().await.unwrap();
    // It holds the turns while it waits for one.
    while Arc::strong_count(&inner.turns) == 1 {
        tokio::task::yield_now().await;
    }
    assert!(world.report().await.running && world.report().await.state.list.is_none());
    drop(turns);
    world.idle().await;
    assert_eq!(world.report().await.state.list.unwrap().found.files, 1);
}

#[tokio::test]
async fn a_look_that_has_no_more_time_is_gone_on_with_by_the_next() {
    let world = World::new().await;
    let (old_files, db) = (&world.test.app.old_files, &world.test.app.db);
    let mut names: Vec<SpaceName> = vec!["scratch-ada".parse().unwrap()];
    names.extend((0..19).map(|number| format!("scratch-p{number}").parse().unwrap()));
    names.sort();
    let mut spaces = Vec::new();
    for name in &names {
        let space = db.space_by_name(name).await.unwrap().unwrap();
        old_files.inner.edit(space.id.into(), |state| state.exempt = false).await.unwrap();
        spaces.push(space.id);
    }
    for round in 0..2 {
        for (number, space) in spaces.iter().enumerate() {
            let now = world.test.clock.now();
            old_files.run_for(Duration::ZERO).await.unwrap();
            assert_eq!(db.old_files(*space).await.unwrap().seen_at, Some(now), "{round}: {number}");
            assert_eq!(old_files.has_more(), number + 1 < spaces.len(), "{round}: {number}");
            world.test.clock.advance_s(60);
        }
    }
    // With time enough it is all of them at once.
    let now = world.test.clock.now();
    old_files.run().await.unwrap();
    for space in spaces {
        assert_eq!(db.old_files(space).await.unwrap().seen_at, Some(now));
    }
    assert!(!old_files.has_more());
}

#[tokio::test]
async fn a_look_that_goes_on_asks_nobody_anew_and_the_first_of_the_next_round_does() {
    let world = World::told().await;
    let (old_files, db) = (&world.test.app.old_files, &world.test.app.db);
    let watched = db.old_files(world.space().await.id).await.unwrap();
    let mut spaces = vec![world.space().await.id];
    for name in ["scratch-p0", "scratch-p1"] {
        let space = db.space_by_name(&name.parse().unwrap()).await.unwrap().unwrap();
        let told = |state: &mut OldFilesState| {
            (state.exempt, state.seen_at, state.steady_s) = (false, watched.seen_at, watched.steady_s);
            state.list.clone_from(&watched.list);
        };
        old_files.inner.edit(space.id.into(), told).await.unwrap();
        spaces.push(space.id);
    }
    for (round, doubt) in [(0, None), (1, Some(OldFilesDoubt::People))] {
        world.test.clock.advance_s(3600);
        // The others are exempt, and each of them takes a look, too.
        for number in 0..20 {
            old_files.run_for(Duration::ZERO).await.unwrap();
            assert_eq!(old_files.has_more(), number < 19, "{round}: {number}");
            world.test.groups.go_away();
        }
        for space in &spaces {
            let state = db.old_files(*space).await.unwrap();
            assert_eq!((state.seen_at, state.doubt), (Some(world.test.clock.now()), doubt), "{round}");
        }
    }
}

#[tokio::test]
async fn lists_of_spaces_that_are_no_more_are_removed() {
    let world = World::told().await;
    let space = world.space().await;
    let path = world.test.app.old_files.inner.path(space.id.into());
    world.look().await;
    assert!(path.exists());
    let gone = Space { state: SpaceState::Gone, desired: SpaceDesired::Gone, ..space };
    assert!(world.test.app.db.update_space(&gone, &[]).await.unwrap());
    world.look().await;
    assert!(!path.exists());
}
