//! In a space of a group each member's files are theirs.

use eirene_core::launcher::LauncherRequest;
use eirene_core::old_files::{OldFilesFound, OldFilesLook, OldFilesOfOther};

use super::*;
use crate::spaces::making::{NewLimits, NewSpace};

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
    assert!(matches!(old_files.look(&grace, &stars.name).await, Err(AppError::Hidden)));
    assert!(matches!(old_files.report(&grace, &stars.name).await, Err(AppError::Hidden)));
    for (actor, files) in [(&world.ada, 2), (&admin, 3)] {
        world.test.clock.advance_s(60);
        world.old(&format!("another-{files}"));
        old_files.look(actor, &stars.name).await.unwrap();
        world.idle().await;
        assert_eq!(shared.of("ada").await.unwrap().look.unwrap().found.files, files);
    }
    assert!(world.is_there("hers"));
    let seen = shared.report(&admin).await;
    let ([member], rule) = (&seen.members[..], seen.rule.unwrap()) else { panic!("{seen:?}") };
    assert_eq!((seen.state.look, member.name.as_str()), (None, "ada"));
    assert_eq!(member.standing(rule).0.as_str(), "waiting");
    let (list, look) = (member.state.list.as_ref().unwrap(), member.state.look.as_ref().unwrap());
    assert_eq!((list.found.files, look.found.files), (1, 3));
    assert_eq!(look.found.examples, [], "admins see no names");
    let of = OldFilesOf { space: stars.id, member: Some(world.ada.user.id) };
    old_files.inner.edit(of, |state| state.list = None).await.unwrap();
    let seen = shared.report(&admin).await;
    let member = &seen.members[0];
    assert_eq!((member.standing(seen.rule.unwrap()).0.as_str(), &member.state.list), ("not_listed", &None));
    let look = member.state.look.as_ref().unwrap();
    assert_eq!(look.found.files, 3, "of whom nothing is listed, what was found is shown too");
}
