//! Spaces end as their roots say, one step a look, and whatever is not as it should be makes nothing happen.

use eirene_core::Role;

use super::*;
use crate::spaces::making::{NewLimits, NewSpace};
use crate::testing::{StorageMood, TestApp, entry};

/// A portal whose policies act, with a space of physics' that expires in 20 days and has been looked at once.
struct World {
    test: TestApp,
}

impl World {
    async fn new() -> Self {
        let mut test = TestApp::new().await;
        let mut config = (*test.app.config).clone();
        for root in &mut config.spaces.roots {
            root.dry_run = false;
        }
        test.rebuild(config);
        let admin = test.person("root-admin", 2003, Role::Admin).await;
        test.ada().await;
        test.groups.add("ada", "physics");
        let expires_at = Some(test.clock.now() + DAY * 20);
        let (root, name) = ("project".parse().unwrap(), Some("stars".parse().unwrap()));
        let group = Some("physics".parse().unwrap());
        let new = NewSpace {
            root,
            name,
            title: None,
            owner: None,
            group,
            hint: None,
            expires_at,
            limits: NewLimits::default(),
        };
        test.app.making.create(&admin, new).await.unwrap();
        let world = Self { test };
        world.settle().await;
        world.look().await;
        world
    }

    /// Has wishes carried out.
    async fn settle(&self) {
        for _ in 0..4 {
            for space in self.test.app.making.to_do().await.unwrap() {
                self.test.app.making.step(&space).await.unwrap();
            }
        }
    }

    async fn look(&self) {
        self.test.app.policing.run().await.unwrap();
        self.settle().await;
    }

    /// Looks twice a day, the second time in time: the first look of each day only notes that it looked, as after a pause.
    async fn days(&self, days: u32) {
        for _ in 0..days {
            for hours in [23, 1] {
                self.test.clock.advance_s(hours * 3600);
                self.look().await;
            }
        }
    }

    /// Looks all the time, so that all of it counts.
    async fn watched_days(&self, days: u32) {
        for _ in 0..12 * days {
            self.test.clock.advance_s(2 * 3600);
            self.look().await;
        }
    }

    /// The clock jumps, and for five hours all looks come in time.
    async fn jump(&self, days: i64) {
        for seconds in [days * 24 * 3600, 3600, 3600, 3600, 3600, 3600] {
            self.test.clock.advance_s(seconds);
            self.look().await;
        }
    }

    async fn space(&self) -> Option<Space> {
        self.test.app.db.space_by_name(&"stars".parse().unwrap()).await.unwrap()
    }

    async fn state(&self) -> SpaceState {
        self.space().await.map_or(SpaceState::Gone, |space| space.state)
    }

    async fn last(&self) -> Option<PolicyRun> {
        let space = self.space().await?;
        self.test.app.db.policy_runs(space.id, 1).await.unwrap().pop()
    }
}

#[tokio::test]
async fn a_space_is_warned_of_taken_away_kept_and_removed_and_never_two_steps_at_once() {
    let world = World::new().await;
    world.watched_days(6).await;
    let warned = async || world.space().await.unwrap().warned.iter().map(|warned| warned.days).collect::<Vec<_>>();
    assert_eq!(warned().await, [14]);
    assert_eq!(world.last().await.unwrap().outcome, PolicyOutcome::Warned);
    world.watched_days(13).await;
    assert_eq!((warned().await, world.state().await), (vec![14, 3, 1], SpaceState::Present));
    world.watched_days(1).await;
    assert_eq!(world.state().await, SpaceState::Retired);
    world.watched_days(29).await;
    assert_eq!(world.state().await, SpaceState::Retired, "it is kept for thirty days");
    world.watched_days(1).await;
    assert_eq!(world.state().await, SpaceState::Gone);
    world.test.assert_notices_are_in_the_guide().await;
}

#[tokio::test]
async fn on_trial_it_is_only_said_what_would_be_done_and_once() {
    let mut world = World::new().await;
    let mut config = (*world.test.app.config).clone();
    config.spaces.roots.iter_mut().for_each(|root| root.dry_run = true);
    world.test.rebuild(config);
    world.test.clock.advance_s(21 * 24 * 3600);
    world.look().await;
    let doubtful = world.last().await.unwrap();
    assert_eq!(doubtful.outcome, PolicyOutcome::Undetermined, "nobody looked regularly: {doubtful:?}");
    for _ in 0..6 {
        world.test.clock.advance_s(3600);
        world.look().await;
    }
    let space = world.space().await.unwrap();
    let runs = world.test.app.db.policy_runs(space.id, 10).await.unwrap();
    let said: Vec<_> = runs.iter().map(|run| (run.step, run.outcome)).collect();
    assert_eq!(said, [(Some(PolicyStep::Warn), PolicyOutcome::WouldDo), (None, PolicyOutcome::Undetermined)]);
    assert_eq!((space.state, space.warned.len()), (SpaceState::Present, 0));
}

#[tokio::test]
async fn what_is_not_as_it_should_be_makes_nothing_happen() {
    type Spoil = fn(&TestApp);
    let spoils: [(&str, Spoil); 6] = [
        ("the storage is away", |test| test.storage.state().mood = StorageMood::Away),
        ("another file system, or no marker", |test| test.storage.state().marker = None),
        ("the storage's clock is off", |test| test.launcher.spaces.lock().unwrap().clock_is_off_by_s = 3600),
        ("the launcher refuses", |test| test.launcher.spaces.lock().unwrap().refusal = Some("failed")),
        ("the directory is another one", |test| {
            test.launcher.spaces.lock().unwrap().present.values_mut().for_each(|inode| *inode += 100);
        }),
        ("the user database has lost people", |test| {
            test.groups.lose("ada");
            test.groups.lose("root-admin");
        }),
    ];
    for (what, spoil) in spoils {
        let world = World::new().await;
        spoil(&world.test);
        let before = world.space().await.unwrap();
        world.watched_days(7).await;
        let after = world.space().await.unwrap();
        assert_eq!((after.warned.len(), after.state, after.desired), (0, before.state, before.desired), "{what}");
        assert_eq!(world.last().await.unwrap().outcome, PolicyOutcome::Undetermined, "{what}");
    }
}

#[tokio::test]
async fn after_a_jump_of_the_clock_people_are_warned_and_have_the_days_they_are_told() {
    let world = World::new().await;
    world.jump(31).await;
    assert_eq!(world.space().await.unwrap().warned, []);
    world.test.clock.advance_s(3600);
    world.look().await;
    let warned = world.space().await.unwrap().warned;
    assert_eq!(warned.iter().map(|warned| warned.days).collect::<Vec<_>>(), [1], "for six hours looks came in time");
    // The clock jumps again: that was no day.
    for seconds in [31 * 24 * 3600, 3600] {
        world.test.clock.advance_s(seconds);
        world.look().await;
    }
    let space = world.space().await.unwrap();
    assert_eq!((space.state, space.warned[0].waited_s), (SpaceState::Present, 3600));
    world.watched_days(1).await;
    assert_eq!(world.state().await, SpaceState::Retired);
}

#[tokio::test]
async fn a_clock_that_is_set_right_again_within_hours_has_told_nobody_anything_and_taken_nothing() {
    for is_announced in [true, false] {
        let mut world = World::new().await;
        if !is_announced {
            let mut config = (*world.test.app.config).clone();
            config.spaces.roots.iter_mut().for_each(|root| root.warn_days = vec![]);
            world.test.rebuild(config);
            world.look().await;
        }
        let before = world.space().await.unwrap();
        world.jump(31).await;
        assert_eq!(world.last().await.unwrap().outcome, PolicyOutcome::Undetermined);
        world.jump(-31).await;
        let after = world.space().await.unwrap();
        assert_eq!((after.warned, after.state, after.desired), (vec![], before.state, before.desired));
    }
}

#[tokio::test]
async fn what_was_taken_away_is_kept_for_days_that_were_watched_whatever_the_clock_does() {
    let world = World::new().await;
    let admin = world.test.person("other-admin", 2004, Role::Admin).await;
    let name = "stars".parse().unwrap();
    world.test.app.making.retire(&admin, &name).await.unwrap();
    world.settle().await;
    world.watched_days(1).await;
    let version = world.space().await.unwrap().version;
    let kept = async |what: &str| {
        let space = world.space().await.unwrap();
        assert_eq!((space.state, space.desired), (SpaceState::Retired, SpaceDesired::Retired), "{what}");
        (space.kept_s, space.kept_until().unwrap().duration_since(world.test.clock.now()))
    };
    let a_day = (24 * 3600, DAY * 29);
    assert_eq!(kept("a day").await, a_day);
    let steps = [(31, "the clock jumps"), (1, "the portal was down"), (-2, "the clock jumps back")];
    for (days, what) in steps {
        world.test.clock.advance_s(days * 24 * 3600);
        world.look().await;
        assert_eq!(kept(what).await, a_day, "{what}");
        let report = world.test.app.policing.report(&admin, &name).await.unwrap();
        let until = (world.test.clock.now() + DAY * 29).strftime("%-d %b %Y").to_string();
        assert!(report.outcome == PolicyOutcome::Nothing && report.why.contains(&until), "{}", report.why);
    }
    world.watched_days(28).await;
    assert_eq!(kept("a month by the clock, and a day too few").await, (29 * 24 * 3600, DAY));
    assert_eq!(world.space().await.unwrap().version, version, "nobody who edits it is late for that");
    world.watched_days(1).await;
    assert_eq!(world.state().await, SpaceState::Gone);
}

#[tokio::test]
async fn a_space_that_is_brought_back_and_taken_away_again_is_kept_anew() {
    let world = World::new().await;
    let admin = world.test.person("other-admin", 2004, Role::Admin).await;
    let (making, name) = (world.test.app.making.clone(), "stars".parse().unwrap());
    making.retire(&admin, &name).await.unwrap();
    world.settle().await;
    world.watched_days(2).await;
    assert_eq!(world.space().await.unwrap().kept_s, 2 * 24 * 3600);
    making.restore(&admin, &name).await.unwrap();
    world.settle().await;
    assert_eq!(world.space().await.unwrap().kept_s, 0);
    making.retire(&admin, &name).await.unwrap();
    world.settle().await;
    let space = world.space().await.unwrap();
    assert_eq!((space.kept_s, space.kept_until()), (0, Some(world.test.clock.now() + DAY * 30)));
}

#[tokio::test]
async fn whoever_is_missing_for_a_week_loses_their_space_restorably_and_whoever_comes_back_does_not() {
    let world = World::new().await;
    for number in 0..20 {
        world.test.person(&format!("p{number}"), 4000 + number, Role::Researcher).await;
    }
    world.test.app.making.add_personal(50).await.unwrap();
    world.settle().await;
    let state =
        async |name: &str| world.test.app.db.space_by_name(&name.parse().unwrap()).await.unwrap().unwrap().state;
    world.test.groups.lose("p1");
    world.days(5).await;
    assert_eq!(state("scratch-p1").await, SpaceState::Present);
    world.test.groups.find("p1");
    world.days(1).await;
    world.test.groups.lose("p1");
    world.days(6).await;
    assert_eq!(state("scratch-p1").await, SpaceState::Present, "it began anew");
    world.days(2).await;
    assert_eq!(state("scratch-p1").await, SpaceState::Retired);
    assert_eq!(state("scratch-p2").await, SpaceState::Present);
}

#[tokio::test]
async fn whoever_was_disabled_and_has_gone_stops_no_policy_and_their_own_space_ends_too() {
    let world = World::new().await;
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    for (uid, name) in (4000..).zip(&names) {
        world.test.person(name, uid, Role::Researcher).await;
    }
    world.test.app.making.add_personal(50).await.unwrap();
    world.settle().await;
    // As on a portal after some years: of 22 people 20 have left, and the rows of all of them are there.
    for name in &names {
        let user = world.test.app.db.user_by_name(&name.parse().unwrap()).await.unwrap().unwrap();
        world.test.app.db.set_user_state(user.id, UserState::Disabled, &entry()).await.unwrap();
        world.test.groups.lose(name);
    }
    world.watched_days(6).await;
    assert_eq!(world.space().await.unwrap().warned.iter().map(|warned| warned.days).collect::<Vec<_>>(), [14]);
    world.days(3).await;
    let gone = world.test.app.db.space_by_name(&"scratch-p3".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(gone.state, SpaceState::Retired);
    // Those who are left are still what its health is judged by.
    world.test.groups.lose("ada");
    let before = world.space().await.unwrap();
    world.days(15).await;
    let after = world.space().await.unwrap();
    let told = |space: &Space| (space.warned.iter().map(|warned| warned.at).collect::<Vec<_>>(), space.state);
    assert_eq!(told(&after), told(&before));
    assert_eq!(world.last().await.unwrap().outcome, PolicyOutcome::Undetermined);
}

#[tokio::test]
async fn a_report_says_what_would_be_done_and_does_nothing() {
    let world = World::new().await;
    world.days(5).await;
    world.test.clock.advance_s(23 * 3600);
    world.look().await;
    world.test.clock.advance_s(3600);
    let admin = world.test.person("other-admin", 2004, Role::Admin).await;
    let name = "stars".parse().unwrap();
    let report = world.test.app.policing.report(&admin, &name).await.unwrap();
    assert_eq!((report.step, report.outcome), (Some(PolicyStep::Warn), PolicyOutcome::WouldDo));
    assert_eq!(world.space().await.unwrap().warned, []);
    let ada = world.test.person("ada-again", 2009, Role::Researcher).await;
    let refused = world.test.app.policing.report(&ada, &name).await;
    assert!(matches!(refused, Err(AppError::Forbidden { .. })), "{refused:?}");
}
