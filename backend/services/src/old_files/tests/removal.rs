//! What is old is told and removed, if it still is what it was, after the days that were promised; where its rule or an admin says so.

use super::*;

#[tokio::test]
async fn what_is_old_is_listed_told_of_and_removed_if_it_still_is_what_it_was() {
    let world = World::new().await;
    world.look().await;
    world.old("deep/old");
    world.old("used");
    world.write("young", world.test.clock.now().as_duration());
    world.write("future", (world.test.clock.now() + AHEAD).as_duration());
    world.test.clock.advance_s(3600);
    world.look().await;
    assert_eq!(world.report().await.state.doubt, Some(OldFilesDoubt::NotWatched));
    world.days(1).await;
    let report = world.report().await;
    let list = report.state.list.clone().unwrap();
    assert_eq!((list.found.files, list.found.saved, list.dry_run), (2, 1, false));
    assert_eq!(Standing::of(&report), Standing::Waiting);
    let mut names: Vec<_> = list.found.examples.iter().map(|example| example.path.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["deep/old", "used"]);
    let notices = world.notices().await;
    assert_eq!((notices.len(), &notices[0]["code"], &notices[0]["files"]), (1, &json!("old_files"), &json!(2)));
    assert!(!notices[0].to_string().contains("deep"), "admins read notices too");
    world.days(13).await;
    assert!(world.is_there("deep/old") && world.report().await.goes_at.is_some());
    std::fs::write(world.directory.join("used"), "again").unwrap();
    world.days(2).await;
    assert!(!world.is_there("deep/old"), "{:?}", world.report().await);
    assert!(world.is_there("deep") && world.is_there("used") && world.is_there("young") && world.is_there("future"));
    let (_, removal) = world.report().await.state.removed.unwrap();
    assert_eq!((removal.files, removal.kept, removal.gone, removal.failed), (1, 1, 0, 0));
    assert_eq!(world.notices().await.last().unwrap()["code"], "old_files");
    let written = world.test.app.db.audit_events(None, 10, None, Some("space.old_files_remove")).await.unwrap();
    assert_eq!(written.iter().map(|event| event.outcome.as_str()).collect::<Vec<_>>(), ["ok", "begun"]);
    assert!(!format!("{written:?}").contains("deep"));
    assert!(world.notices().await.iter().any(|notice| notice["code"] == "old_files_removed"));
    world.test.assert_notices_are_in_the_guide().await;
}

#[tokio::test]
async fn on_trial_everything_is_listed_and_nothing_told_or_removed_and_that_list_removes_nothing_later() {
    let mut world = World::with(true).await;
    world.look().await;
    world.old("old");
    world.days(20).await;
    let report = world.report().await;
    assert_eq!((Standing::of(&report), report.goes_at), (Standing::Trial, None));
    assert!(world.is_there("old") && world.notices().await.is_empty());
    let rule = config::OldFiles { days: 30, warn_days: 14, dry_run: false };
    world.test.rebuild(with_rule(&world.test, Some(rule)));
    world.days(13).await;
    assert!(world.is_there("old"));
    assert_eq!(world.notices().await.len(), 1);
    world.days(2).await;
    assert!(!world.is_there("old"));
}

#[tokio::test]
async fn days_on_which_the_storage_is_away_are_none_of_those_that_were_promised() {
    let world = World::told().await;
    world.test.storage.state().mood = StorageMood::Away;
    world.days(20).await;
    world.test.storage.state().mood = StorageMood::Good;
    world.days(13).await;
    assert!(world.is_there("old"), "thirteen days were there to save it");
    world.days(2).await;
    assert!(!world.is_there("old"));
}

#[tokio::test]
async fn what_waits_is_promised_also_while_something_is_in_doubt_and_goes_when_that_ends() {
    let world = World::told().await;
    let promised = async || {
        let spaces = world.test.app.spaces.list(&world.ada).await.unwrap();
        world.test.app.old_files.promised(&world.ada, &spaces).await.unwrap()
    };
    let before = promised().await;
    assert_eq!((before.len(), before[0].space.as_str(), before[0].files), (1, "scratch-ada", 1));
    world.days(13).await;
    world.test.launcher.spaces.lock().unwrap().clock_is_off_by_s = 3600;
    world.days(2).await;
    assert_eq!(world.report().await.state.doubt, Some(OldFilesDoubt::Clock));
    assert!(world.is_there("old"));
    let doubted = promised().await;
    assert_eq!((doubted.len(), doubted[0].files), (1, 1), "{doubted:?}");
    world.test.launcher.spaces.lock().unwrap().clock_is_off_by_s = 0;
    world.test.clock.advance_s(2 * 3600);
    world.look().await;
    assert!(!world.is_there("old"));
    assert!(promised().await.is_empty());
}

#[tokio::test]
async fn a_rule_that_was_taken_away_and_comes_back_tells_and_waits_anew() {
    let mut world = World::told().await;
    world.days(10).await;
    let rule = world.test.app.config.spaces.roots.iter().find_map(|root| root.old_files);
    world.test.rebuild(with_rule(&world.test, None));
    world.look().await;
    let state = world.test.app.db.old_files(world.space().await.id).await.unwrap();
    assert_eq!(state.list, None);
    world.test.rebuild(with_rule(&world.test, rule));
    world.days(10).await;
    assert!(world.is_there("old"));
    assert_eq!(world.notices().await.len(), 2);
    world.days(5).await;
    assert!(!world.is_there("old"));
}

#[tokio::test]
async fn an_admin_exempts_a_space_and_gives_it_days_of_its_own_and_sees_no_name() {
    let world = World::told().await;
    let admin = world.test.person("root-admin", 5000, Role::Admin).await;
    let (old_files, name) = (&world.test.app.old_files, "scratch-ada".parse().unwrap());
    let seen = old_files.report(&admin, &name).await.unwrap();
    let found = seen.state.list.unwrap().found;
    assert_eq!((found.files, found.examples.len(), seen.may_look), (1, 0, true));
    let exempt = OldFilesChange { exempt: Some(true), days: None };
    assert!(matches!(old_files.change(&world.ada, &name, exempt).await, Err(AppError::Forbidden { .. })));
    assert_eq!(Standing::of(&old_files.change(&admin, &name, exempt).await.unwrap()), Standing::Exempt);
    world.days(16).await;
    assert!(world.is_there("old") && world.report().await.state.list.is_none());
    let wrong = OldFilesChange { exempt: None, days: Some(OldFilesDays::Own(6)) };
    assert!(matches!(old_files.change(&admin, &name, wrong).await, Err(AppError::Invalid(_))));
    let longer = OldFilesChange { exempt: Some(false), days: Some(OldFilesDays::Own(90)) };
    assert_eq!(old_files.change(&admin, &name, longer).await.unwrap().rule.unwrap().days, 90);
    world.days(2).await;
    assert_eq!(world.report().await.state.list.unwrap().found.files, 0, "nothing is that old");
    let grace = world.test.person("grace", 5001, Role::Researcher).await;
    assert!(matches!(old_files.report(&grace, &name).await, Err(AppError::Hidden)));
    assert!(matches!(old_files.look(&grace, &name).await, Err(AppError::Hidden)));
}
