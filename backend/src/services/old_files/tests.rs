//! Old files are listed, told of, and removed by what was listed; and whatever is not as it should be makes nothing happen.

use std::fs::FileTimes;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use eirene_core::{Role, SystemClock, Username};
use eirene_files_protocol::Channel;
use jiff::SignedDuration;

use super::*;
use crate::config;
use crate::testing::{FilesStandIn, StorageMood, TestApp};

/// How far the portal's clock is ahead of what files are made by: nobody can set when a file's attributes last changed.
const AHEAD: SignedDuration = SignedDuration::from_hours(60 * 24);

/// The real file process, in a thread of its own, which it confines.
fn real() -> FilesStandIn {
    Arc::new(|_: Username, channel: Channel| {
        let _ = eirene_files::serve(channel, &eirene_files::Settings { least_uid: 0, landlock: true });
    })
}

/// Ada's scratch, of which files go that are 30 days old and were told of 14 days before, and nineteen others who have nothing in theirs.
struct World {
    test: TestApp,
    ada: Actor,
    directory: PathBuf,
}

impl World {
    async fn new() -> Self {
        Self::with(false).await
    }

    async fn with(dry_run: bool) -> Self {
        let mut test = TestApp::new().await;
        test.clock.advance_s((SystemClock.now().duration_since(test.clock.now()) + AHEAD).as_secs());
        let ada = test.person("ada", rustix::process::geteuid().as_raw(), Role::Researcher).await;
        for number in 0..19 {
            test.person(&format!("p{number}"), 4000 + number, Role::Researcher).await;
        }
        *test.launcher.files.lock().unwrap() = Some(real());
        let directory = test.directory.path().join("spaces/scratch-ada");
        std::fs::create_dir_all(&directory).unwrap();
        let rule = config::OldFiles { days: 30, warn_days: 14, dry_run };
        test.rebuild(with_rule(&test, Some(rule)));
        test.app.making.add_personal(50).await.unwrap();
        for _ in 0..4 {
            for space in test.app.making.to_do().await.unwrap() {
                test.app.making.step(&space).await.unwrap();
            }
        }
        // The others have no process and no directory here: nothing becomes of their files.
        for number in 0..19 {
            let name = format!("scratch-p{number}").parse().unwrap();
            let space = test.app.db.space_by_name(&name).await.unwrap().unwrap();
            let exempt = OldFilesState { exempt: true, ..OldFilesState::new(space.id) };
            assert!(test.app.db.put_old_files(&exempt).await.unwrap());
        }
        Self { test, ada, directory }
    }

    async fn space(&self) -> Space {
        self.test.app.db.space_by_name(&"scratch-ada".parse().unwrap()).await.unwrap().unwrap()
    }

    async fn report(&self) -> OldFilesReport {
        self.test.app.old_files.report(&self.ada, &"scratch".parse().unwrap()).await.unwrap()
    }

    /// Waits until nothing is under way.
    async fn idle(&self) {
        while !self.test.app.old_files.inner.running().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn look(&self) {
        self.test.app.old_files.run().await.unwrap();
        self.idle().await;
    }

    /// Looks every two hours.
    async fn days(&self, days: u32) {
        for _ in 0..days * 12 {
            self.test.clock.advance_s(2 * 3600);
            self.look().await;
        }
    }

    fn write(&self, name: &str, modified: SignedDuration) {
        let path = self.directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, name).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified.as_secs().unsigned_abs());
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_times(FileTimes::new().set_modified(modified).set_accessed(SystemTime::UNIX_EPOCH + SECOND)).unwrap();
    }

    /// A file whose content is as old as the portal's clock says.
    fn old(&self, name: &str) {
        self.write(name, (self.test.clock.now() - AHEAD).as_duration());
    }

    fn is_there(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    /// A list that its owner was told of, so that in 14 days a file is removed.
    async fn told() -> Self {
        let world = Self::new().await;
        world.look().await;
        world.old("old");
        world.days(1).await;
        assert!(world.report().await.state.list.unwrap().told_at.is_some());
        world
    }

    async fn notices(&self) -> Vec<serde_json::Value> {
        let events = self.test.app.db.events_after(0, 1000).await.unwrap();
        let notices = events.into_iter().filter(|event| event.kind == "notice");
        notices.filter(|event| event.owner == Some(self.ada.user.id)).map(|event| event.data).collect()
    }
}

/// After 2000, so that it can be.
const SECOND: Duration = Duration::from_secs(1_000_000_000);

fn with_rule(test: &TestApp, rule: Option<config::OldFiles>) -> Config {
    let mut config = (*test.app.config).clone();
    let root = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "scratch").unwrap();
    root.path = test.directory.path().join("spaces");
    root.old_files = rule;
    config
}

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
    world.test.app.db.set_user_state(world.ada.user.id, UserState::Disabled).await.unwrap();
    world.days(16).await;
    let state = world.test.app.db.old_files(world.space().await.id).await.unwrap();
    assert_eq!((state.doubt, world.is_there("old")), (Some(OldFilesDoubt::OwnerDisabled), true));

    let world = World::told().await;
    world.test.app.file_processes.revoke(world.ada.user.id);
    *world.test.launcher.files.lock().unwrap() = Some(Arc::new(|_: Username, _: Channel| {}));
    world.days(16).await;
    assert_eq!((world.report().await.state.doubt, world.is_there("old")), (Some(OldFilesDoubt::Files), true));

    let world = World::told().await;
    std::fs::write(world.test.app.old_files.inner.path(world.space().await.id), "EIROLD01 and nothing").unwrap();
    world.days(15).await;
    assert!(world.is_there("old"), "it is listed anew, and waits anew");
    assert_eq!(world.notices().await.len(), 2);
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
            assert!(world.test.app.db.put_old_files(&state).await.unwrap());
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
    assert!(matches!(old_files.report(&grace, &name).await, Err(AppError::NotFound)));
    assert!(matches!(old_files.look(&grace, &name).await, Err(AppError::NotFound)));
}

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
    inner.edit(space, |state| state.list = None).await.unwrap();
    let turns = inner.turns.acquire_many(u32::try_from(MOST_AT_ONCE).unwrap()).await.unwrap();
    world.test.clock.advance_s(3600);
    world.test.app.old_files.run().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(world.report().await.running && world.report().await.state.list.is_none());
    drop(turns);
    world.idle().await;
    assert_eq!(world.report().await.state.list.unwrap().found.files, 1);
}

#[tokio::test]
async fn lists_of_spaces_that_are_no_more_are_removed() {
    let world = World::told().await;
    let space = world.space().await;
    let path = world.test.app.old_files.inner.path(space.id);
    world.look().await;
    assert!(path.exists());
    let gone = Space { state: SpaceState::Gone, desired: SpaceDesired::Gone, ..space };
    assert!(world.test.app.db.update_space(&gone).await.unwrap());
    world.look().await;
    assert!(!path.exists());
}
