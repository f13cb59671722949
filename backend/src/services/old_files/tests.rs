//! Old files are listed, told of, and removed by what was listed; and whatever is not as it should be makes nothing happen.

use std::fs::FileTimes;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use eirene_core::launcher::LauncherRequest;
use eirene_core::old_files::{OldFilesFound, OldFilesLook, OldFilesOfOther};
use eirene_core::{Role, SystemClock, Username};
use eirene_files_protocol::Channel;
use jiff::SignedDuration;

use super::*;
use crate::config;
use crate::http::view::OldFilesView;
use crate::services::spaces::making::{NewLimits, NewSpace};
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
        mark(&directory);
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

/// Writes the marker that the storage in memory tells of into the root of this directory: its inode is not what the launcher in memory said.
fn mark(directory: &Path) {
    std::fs::write(directory.parent().unwrap().join(".eirene-root"), "00ff").unwrap();
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
    std::fs::write(world.test.app.old_files.inner.path(world.space().await.id.into()), "EIROLD01 and nothing").unwrap();
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
    inner.edit(space.into(), |state| state.list = None).await.unwrap();
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
    assert!(world.test.app.db.update_space(&gone).await.unwrap());
    world.look().await;
    assert!(!path.exists());
}

/// A group's space, of which files go that are 30 days old and were told of 14 days before, and of whose members one is whoever runs the tests.
/// The others have no process; what is theirs is told by what one of them lists as somebody else's.
struct Shared {
    world: World,
    stars: Space,
}

impl Shared {
    async fn new() -> Self {
        let mut world = World::new().await;
        let mut config = (*world.test.app.config).clone();
        let scratch = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "scratch").unwrap();
        let rule = scratch.old_files.take();
        let root = config.spaces.roots.iter_mut().find(|root| root.name.as_str() == "project").unwrap();
        (root.path, root.old_files) = (world.test.directory.path().join("projects"), rule);
        world.test.rebuild(config);
        world.test.groups.add("ada", "physics");
        world.directory = world.test.directory.path().join("projects/stars");
        std::fs::create_dir_all(&world.directory).unwrap();
        mark(&world.directory);
        let admin = world.test.person("root-admin", 5000, Role::Admin).await;
        let stars = Self::add(&world, &admin, "stars").await;
        Self { world, stars }
    }

    /// Makes a space of this name for the group.
    async fn add(world: &World, admin: &Actor, name: &str) -> Space {
        let name: SpaceName = name.parse().unwrap();
        let new = NewSpace {
            root: "project".parse().unwrap(),
            name: Some(name.clone()),
            title: None,
            owner: None,
            group: Some("physics".parse().unwrap()),
            hint: None,
            expires_at: None,
            limits: NewLimits::default(),
        };
        world.test.app.making.create(admin, new).await.unwrap();
        for _ in 0..4 {
            for space in world.test.app.making.to_do().await.unwrap() {
                world.test.app.making.step(&space).await.unwrap();
            }
        }
        world.test.app.db.space_by_name(&name).await.unwrap().unwrap()
    }

    /// What is old is listed, and Ada was told of it.
    async fn told() -> Self {
        let shared = Self::new().await;
        shared.world.look().await;
        shared.world.old("hers");
        shared.world.days(1).await;
        assert!(shared.of("ada").await.unwrap().list.unwrap().told_at.is_some());
        shared
    }

    async fn of(&self, person: &str) -> Option<OldFilesState> {
        let members = self.world.test.app.db.old_files_of_members(self.stars.id).await.unwrap();
        members.into_iter().find(|(name, _)| name.as_str() == person).map(|(_, state)| state)
    }

    async fn report(&self, actor: &Actor) -> OldFilesReport {
        self.world.test.app.old_files.report(actor, &self.stars.name).await.unwrap()
    }

    async fn admin(&self) -> Actor {
        let admin = self.world.test.app.db.user_by_name(&"root-admin".parse().unwrap()).await.unwrap().unwrap();
        as_owner(admin)
    }

    /// From now on nobody is in the group.
    fn leave(&self) {
        self.world.test.groups.come_back();
    }
}

#[tokio::test]
async fn in_a_group_s_space_each_member_s_files_are_listed_told_and_removed_as_theirs() {
    let shared = Shared::told().await;
    let Shared { world, .. } = &shared;
    let report = shared.report(&world.ada).await;
    assert_eq!((Standing::of(&report), report.is_own, report.members.len()), (Standing::Waiting, true, 0));
    assert_eq!(report.state.list.unwrap().found.examples[0].path, "hers");
    let notices = world.notices().await;
    assert_eq!((notices.len(), &notices[0]["space"]), (1, &json!("stars")));
    assert!(notices[0]["text"].as_str().unwrap().contains("of yours"), "{notices:?}");
    let spaces = world.test.app.spaces.list(&world.ada).await.unwrap();
    let promised = world.test.app.old_files.promised(&world.ada, &spaces).await.unwrap();
    assert_eq!((promised.len(), promised[0].space.as_str(), promised[0].files), (1, "stars", 1));
    assert_eq!(Some(promised[0].goes_at), report.goes_at);
    let seen = shared.report(&shared.admin().await).await;
    assert_eq!((Standing::of(&seen), seen.is_own, seen.members.len()), (Standing::ByMember, false, 1));
    let member = &seen.members[0];
    assert_eq!((member.name.as_str(), member.standing(seen.rule.unwrap()).0), ("ada", Standing::Waiting));
    assert!(member.state.list.as_ref().unwrap().found.examples.is_empty(), "admins see no names");
    world.days(13).await;
    assert!(world.is_there("hers"));
    world.days(2).await;
    assert!(!world.is_there("hers"), "{:?}", shared.of("ada").await);
    let written = world.test.app.db.audit_events(None, 10, None, Some("space.old_files_remove")).await.unwrap();
    assert_eq!((written.len(), &written[0].details["member"]), (2, &json!("ada")));
    assert!(world.notices().await.last().unwrap()["text"].as_str().unwrap().contains("of yours"));
}

#[tokio::test]
async fn a_look_looks_for_a_space_once_for_however_many_of_its_members_something_is_due() {
    let shared = Shared::new().await;
    let Shared { world, .. } = &shared;
    (0..19).for_each(|number| world.test.groups.add(&format!("p{number}"), "physics"));
    let inner = &world.test.app.old_files.inner;
    // What is due begins, and comes no further.
    let turns = inner.turns.acquire_many(u32::try_from(MOST_AT_ONCE).unwrap()).await.unwrap();
    for _ in 0..13 {
        assert!(inner.running().is_empty());
        world.test.launcher.calls.lock().unwrap().clear();
        world.test.app.old_files.run().await.unwrap();
        world.test.clock.advance_s(2 * 3600);
    }
    assert_eq!(inner.running().len(), 20);
    let calls = world.test.launcher.calls.lock().unwrap().clone();
    let looked = calls.iter().filter(|call| matches!(call, LauncherRequest::LookForSpace { .. }));
    assert_eq!(looked.count(), 1, "{calls:?}");
    drop(turns);
}

#[tokio::test]
async fn whoever_is_no_member_any_more_loses_nothing_and_whoever_comes_back_is_told_anew() {
    let shared = Shared::told().await;
    let Shared { world, stars } = &shared;
    let path = {
        let of = OldFilesOf { space: stars.id, member: Some(world.ada.user.id) };
        world.test.app.old_files.inner.path(of)
    };
    assert!(path.exists());
    shared.leave();
    world.days(16).await;
    assert!(world.is_there("hers") && shared.of("ada").await.is_none() && !path.exists());
    world.test.groups.add("ada", "physics");
    world.days(13).await;
    assert!(world.is_there("hers"), "it waits anew");
    assert_eq!(world.notices().await.len(), 2);
    world.days(3).await;
    assert!(!world.is_there("hers"));
}

#[tokio::test]
async fn a_removal_for_somebody_who_left_meanwhile_does_not_begin() {
    let shared = Shared::told().await;
    let Shared { world, .. } = &shared;
    world.days(13).await;
    let inner = &world.test.app.old_files.inner;
    let turns = inner.turns.acquire_many(u32::try_from(MOST_AT_ONCE).unwrap()).await.unwrap();
    for _ in 0..24 {
        world.test.clock.advance_s(2 * 3600);
        world.test.app.old_files.run().await.unwrap();
    }
    assert!(shared.report(&world.ada).await.running);
    shared.leave();
    drop(turns);
    world.idle().await;
    assert!(world.is_there("hers") && shared.of("ada").await.unwrap().removed.is_none());
}

#[tokio::test]
async fn while_nobody_knows_who_is_a_member_no_time_is_counted_and_nothing_removed() {
    let shared = Shared::told().await;
    let Shared { world, .. } = &shared;
    world.test.groups.go_away();
    world.days(16).await;
    let state = shared.of("ada").await.unwrap();
    assert_eq!((state.doubt, state.list.unwrap().waited_s), (Some(OldFilesDoubt::People), 0));
    assert!(world.is_there("hers"));
}

#[tokio::test]
async fn who_is_a_member_is_not_asked_anew_for_what_the_last_look_left() {
    let shared = Shared::new().await;
    let Shared { world, stars } = &shared;
    let suns = Shared::add(world, &shared.admin().await, "suns").await;
    let old_files = &world.test.app.old_files;
    let ada_in = |space: &Space| OldFilesOf { space: space.id, member: Some(world.ada.user.id) };
    for (space, is_left) in [(stars, true), (&suns, false)] {
        old_files.run_for(Duration::ZERO).await.unwrap();
        assert_eq!(old_files.has_more(), is_left);
        let state = world.test.app.db.old_files(ada_in(space)).await.unwrap();
        assert_eq!(state.seen_at, Some(world.test.clock.now()), "{}", space.name);
        world.test.groups.go_away();
    }
}

#[tokio::test]
async fn an_exemption_and_days_of_its_own_hold_for_all_members() {
    let shared = Shared::told().await;
    let (Shared { world, stars }, admin) = (&shared, shared.admin().await);
    let old_files = &world.test.app.old_files;
    let exempt = OldFilesChange { exempt: Some(true), days: Some(OldFilesDays::Own(90)) };
    let changed = old_files.change(&admin, &stars.name, exempt).await.unwrap();
    assert_eq!(Standing::of(&changed), Standing::Exempt);
    world.days(16).await;
    let state = shared.of("ada").await.unwrap();
    assert!(state.exempt && state.list.is_none() && world.is_there("hers"));
    let back = OldFilesChange { exempt: Some(false), days: None };
    old_files.change(&admin, &stars.name, back).await.unwrap();
    world.days(2).await;
    let list = shared.of("ada").await.unwrap().list.unwrap();
    assert_eq!((list.days, list.found.files), (90, 0));
}

#[tokio::test]
async fn an_exemption_that_was_only_half_written_leaves_no_list_to_go_on_with_when_it_ends() {
    let shared = Shared::told().await;
    let (Shared { world, stars }, admin) = (&shared, shared.admin().await);
    // Killed before the members' lists were cleared.
    let inner = &world.test.app.old_files.inner;
    inner.edit(stars.id.into(), |state| state.exempt = true).await.unwrap();
    world.days(16).await;
    assert!(shared.of("ada").await.unwrap().list.is_some() && world.is_there("hers"));
    let ends = OldFilesChange { exempt: Some(false), days: None };
    world.test.app.old_files.change(&admin, &stars.name, ends).await.unwrap();
    assert_eq!(shared.of("ada").await.unwrap().list, None);
    world.days(13).await;
    assert!(world.is_there("hers"), "it waits anew");
    assert_eq!(world.notices().await.len(), 2);
    // Said once more where it has none, it takes nothing back of what was promised.
    world.test.app.old_files.change(&admin, &stars.name, ends).await.unwrap();
    assert!(shared.of("ada").await.unwrap().list.unwrap().waited_s > 0);
    world.days(3).await;
    assert!(!world.is_there("hers"));
}

#[tokio::test]
async fn what_is_of_nobody_who_is_a_member_is_shown_to_admins_and_stays() {
    let shared = Shared::told().await;
    let (Shared { world, stars }, admin) = (&shared, shared.admin().await);
    let of = OldFilesOf { space: stars.id, member: Some(world.ada.user.id) };
    // Nobody here may give files away: what Ada's process would say of them is said for it.
    let others =
        [4000, 65_534, rustix::process::geteuid().as_raw()].map(|uid| OldFilesOfOther { uid, files: 2, bytes: 9 });
    let inner = &world.test.app.old_files.inner;
    inner.edit(of, |state| state.list.as_mut().unwrap().found.others = others.to_vec()).await.unwrap();
    world.test.clock.advance_s(2 * 3600);
    world.look().await;
    let strangers = shared.report(&admin).await.state.strangers;
    let shown: Vec<_> =
        strangers.iter().map(|one| (one.uid, one.name.as_ref().map(Username::as_str), one.files)).collect();
    assert_eq!(shown, [(4000, Some("p0"), 2), (65_534, None, 2)]);
    let listed_at = shared.of("ada").await.unwrap().list.unwrap().at;
    assert!(strangers.iter().all(|one| one.seen_at == Some(listed_at)), "it may be long ago, and that is said");
    let view = serde_json::to_value(OldFilesView::from(shared.report(&admin).await)).unwrap();
    assert_eq!(view["others"][0]["seen_at"], json!(listed_at));
    let less = [4000, 65_534].map(|uid| OldFilesOfOther { uid, files: 1, bytes: 5 });
    let look = OldFilesLook {
        at: listed_at + SignedDuration::from_secs(1),
        days: 30,
        found: OldFilesFound { others: less.to_vec(), ..OldFilesFound::default() },
    };
    inner.edit(of, |state| state.look = Some(look.clone())).await.unwrap();
    world.test.clock.advance_s(2 * 3600);
    world.look().await;
    let strangers = shared.report(&admin).await.state.strangers;
    let shown: Vec<_> = strangers.iter().map(|one| (one.uid, one.files, one.seen_at)).collect();
    assert_eq!(shown, [4000, 65_534].map(|uid| (uid, 1, Some(look.at))));
    assert!(shared.report(&world.ada).await.state.strangers.is_empty(), "members are told of their own");
    // Who comes into the group is looked at as the others are.
    world.test.groups.add("p0", "physics");
    world.test.clock.advance_s(2 * 3600);
    world.look().await;
    assert_eq!(shared.report(&admin).await.state.strangers.len(), 1);
}

#[tokio::test]
async fn a_member_looks_at_their_own_and_an_admin_who_is_none_has_all_looked_at() {
    let shared = Shared::told().await;
    let (Shared { world, stars }, admin) = (&shared, shared.admin().await);
    let old_files = &world.test.app.old_files;
    let grace = world.test.person("grace", 5001, Role::Researcher).await;
    assert!(matches!(old_files.look(&grace, &stars.name).await, Err(AppError::NotFound)));
    assert!(matches!(old_files.report(&grace, &stars.name).await, Err(AppError::NotFound)));
    for (actor, files) in [(&world.ada, 2), (&admin, 3)] {
        world.test.clock.advance_s(60);
        world.old(&format!("another-{files}"));
        old_files.look(actor, &stars.name).await.unwrap();
        world.idle().await;
        assert_eq!(shared.of("ada").await.unwrap().look.unwrap().found.files, files);
    }
    assert!(world.is_there("hers"));
    let shown = async || serde_json::to_value(OldFilesView::from(shared.report(&admin).await)).unwrap();
    let seen = shown().await;
    assert_eq!((seen.get("look"), seen["members"].as_array().unwrap().len()), (None, 1));
    let member = &seen["members"][0];
    assert_eq!((&member["person"], &member["state"]), (&json!("ada"), &json!("waiting")));
    assert_eq!((&member["list"]["files"], &member["look"]["files"]), (&json!(1), &json!(3)));
    assert_eq!(member["look"]["examples"], json!([]), "admins see no names");
    let of = OldFilesOf { space: stars.id, member: Some(world.ada.user.id) };
    old_files.inner.edit(of, |state| state.list = None).await.unwrap();
    let seen = shown().await;
    let member = &seen["members"][0];
    assert_eq!((&member["state"], member.get("list")), (&json!("not_listed"), None));
    assert_eq!(member["look"]["files"], 3, "of whom nothing is listed, what was found is shown too");
}
