//! Spaces as people see them: whose they are, what was seen of them, and what their owners are told.

use eirene_core::Role;
use eirene_core::UserState;
use eirene_core::space::{Measured, Measurement, UsageSource};
use eirene_core::storage::{Bytes, Doubt, DoubtAbout, Files, Why};
use futures_util::StreamExt as _;
use serde_json::json;

use super::quotas::QuotaRound;
use super::testing::{a_space, person};
use super::*;
use crate::services::actor::Via;
use crate::services::events::EventKind;
use crate::testing::{StorageMood, TestApp};

const GIB: u64 = 1 << 30;

fn names(spaces: &[SpaceSeen]) -> Vec<&str> {
    spaces.iter().map(|seen| seen.space.name.as_str()).collect()
}

async fn add(test: &TestApp, name: &str, owner: SpaceOwner) -> Space {
    let space = Space { id: SpaceId::generate(), name: name.parse().unwrap(), ..a_space(owner) };
    test.app.db.insert_space(space).await.unwrap()
}

fn group(name: &str) -> SpaceOwner {
    SpaceOwner::Group(name.parse().unwrap())
}

/// Looks at a person's home.
async fn look_home(test: &TestApp, actor: &Actor) -> SpaceSeen {
    let home = "home".parse().unwrap();
    let seen = test.app.spaces.get(actor, &home).await.unwrap();
    test.app.spaces.look_at(&seen.space, &mut QuotaRound::default()).await.unwrap();
    test.app.spaces.get(actor, &home).await.unwrap()
}

/// From now on the storage's tool tells that everybody uses so much of 10 bytes, wherever anything lies.
async fn counts_users(test: &TestApp, used: u64) {
    test.storage.state().users = Some((used, Limit::At(10)));
    test.clock.advance_s(11 * 60);
    test.app.storage.look().await;
}

#[tokio::test]
async fn everybody_with_a_user_id_has_a_home_and_sees_what_their_groups_have() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    add(&test, "physics", group("physics")).await;
    add(&test, "aaa-data", SpaceOwner::Everybody).await;
    add(&test, "scratch-ada", person(ada.user.id, "ada")).await;
    test.groups.add("ada", "physics");
    let spaces = &test.app.spaces;
    assert_eq!(names(&spaces.list(&ada).await.unwrap()), ["home-ada", "aaa-data", "physics", "scratch-ada"]);
    assert_eq!(names(&spaces.list(&grace).await.unwrap()), ["home-grace", "aaa-data"]);
    for hidden in ["physics", "home-ada", "scratch-ada", "nothing"] {
        let got = spaces.get(&grace, &hidden.parse().unwrap()).await;
        assert!(matches!(got, Err(AppError::NotFound)), "{hidden}: {got:?}");
        let got = spaces.samples(&grace, &hidden.parse().unwrap(), 30).await;
        assert!(matches!(got, Err(AppError::NotFound)), "{hidden}: {got:?}");
    }
    assert!(matches!(spaces.all(&grace, None, 10).await, Err(AppError::Forbidden { .. })));

    let admin = test.person("root-admin", 2003, Role::Admin).await;
    assert_eq!(names(&spaces.list(&admin).await.unwrap()), ["home-root-admin", "aaa-data"]);
    let page = spaces.all(&admin, None, 3).await.unwrap();
    assert_eq!(names(&page.items), ["aaa-data", "home-ada", "home-grace"]);
    assert_eq!(page.next.as_deref(), Some("home-grace"));
    let rest = spaces.all(&admin, page.next, 9).await.unwrap();
    assert_eq!((names(&rest.items), rest.next), (vec!["home-root-admin", "physics", "scratch-ada"], None));
}

#[tokio::test]
async fn ones_own_are_found_by_what_they_are_and_a_namesake_is_not_taken_for_them() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let own = Space {
        id: SpaceId::generate(),
        name: "scratch-ada".parse().unwrap(),
        root: "scratch".parse().unwrap(),
        kind: SpaceKind::Scratch,
        ..a_space(person(ada.user.id, "ada"))
    };
    test.app.db.insert_space(own).await.unwrap();
    let named = async |actor: &Actor, name: &str| {
        let got = test.app.spaces.get(actor, &name.parse().unwrap()).await;
        got.ok().map(|seen| seen.space.name.to_string())
    };
    assert_eq!(named(&ada, "home").await.as_deref(), Some("home-ada"));
    assert_eq!(named(&grace, "home").await.as_deref(), Some("home-grace"));
    assert_eq!(named(&ada, "scratch").await.as_deref(), Some("scratch-ada"));
    assert_eq!(named(&grace, "scratch").await, None);
    assert_eq!(named(&ada, "project").await, None, "a root of groups is nobody's own");
}

#[tokio::test]
async fn a_token_needs_the_right_to_files_and_an_account_without_a_user_id_has_no_home() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let via = Via::Token { id: eirene_core::TokenId::generate(), scopes: Scope::DEFAULT.to_vec() };
    let program = Actor { via, ..ada };
    assert!(matches!(test.app.spaces.list(&program).await, Err(AppError::Forbidden { .. })));
    let home = "home".parse().unwrap();
    assert!(matches!(test.app.spaces.get(&program, &home).await, Err(AppError::Forbidden { .. })));
    let mut admin = test.person("root-admin", 2003, Role::Admin).await;
    admin.user.uid = None;
    assert_eq!(names(&test.app.spaces.list(&admin).await.unwrap()), Vec::<&str>::new());
}

#[tokio::test]
async fn a_user_database_that_is_away_takes_nobodys_space() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    assert_eq!(test.app.spaces.list(&ada).await.unwrap().len(), 1);
    test.groups.go_away();
    assert_eq!(test.app.spaces.list(&ada).await.unwrap().len(), 1, "nobody has to be asked");
    add(&test, "physics", group("physics")).await;
    for got in [
        test.app.spaces.list(&ada).await.map(drop),
        test.app.spaces.get(&ada, &"physics".parse().unwrap()).await.map(drop),
    ] {
        assert!(matches!(got, Err(AppError::Unavailable { .. })), "{got:?}");
    }
    assert_eq!(names(&test.app.spaces.list_known(&ada).await.unwrap()), ["home-ada"]);
    assert!(test.app.spaces.get(&ada, &"home".parse().unwrap()).await.is_ok());
}

#[tokio::test]
async fn while_groups_cannot_be_told_nobody_can_tell_what_is_there() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    test.app.spaces.list(&ada).await.unwrap();
    add(&test, "physics", group("physics")).await;
    add(&test, "data", SpaceOwner::Everybody).await;
    test.groups.go_away();
    for name in ["physics", "home-ada", "nothing"] {
        let got = test.app.spaces.get(&grace, &name.parse().unwrap()).await;
        assert!(matches!(got, Err(AppError::Unavailable { .. })), "{name}: {got:?}");
    }
    assert!(test.app.spaces.get(&grace, &"data".parse().unwrap()).await.is_ok());
}

#[tokio::test]
async fn usage_comes_from_the_narrowest_source_and_is_never_guessed() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((seen.usage.source, seen.usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!((seen.usage.free_bytes, seen.usage.missing), (Some(Bytes(500 * GIB)), Some(Why::NotEnabled)));
    assert_eq!(seen.level, Level::Ok);

    counts_users(&test, 3).await;
    test.storage.state().kind = "beegfs";
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((seen.usage.source, seen.usage.used_bytes), (UsageSource::BeegfsUser, Some(Bytes(3))));

    {
        let mut storage = test.storage.state();
        (storage.kind, storage.person) = ("xfs", Some((8, Limit::At(10))));
    }
    let seen = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!(
        (seen.usage.source, seen.usage.used_bytes, seen.level),
        (UsageSource::UserQuota, Some(Bytes(8)), Level::Warning)
    );
    let physics = add(&test, "physics", group("physics")).await;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
    let groups = test.app.db.usage(physics.id).await.unwrap().unwrap().usage;
    assert_eq!((groups.source, groups.used_bytes), (UsageSource::FileSystem, None), "what a person has is no group's");
    let scratch = add(&test, "scratch-ada", person(ada.user.id, "ada")).await;
    test.app.spaces.look_at(&scratch, &mut QuotaRound::default()).await.unwrap();
    let own = test.app.db.usage(scratch.id).await.unwrap().unwrap();
    assert_eq!((own.usage.source, own.usage.used_bytes), (UsageSource::UserQuota, Some(Bytes(8))));
    assert_eq!((own.usage.limit_bytes, own.level), (Some(Limit::At(Bytes(10))), Level::Warning));
    test.storage.state().person = Some((8, Limit::Unlimited));
    let limited = Space { limit_bytes: Limit::At(Bytes(5)), ..scratch };
    test.app.spaces.look_at(&limited, &mut QuotaRound::default()).await.unwrap();
    let own = test.app.db.usage(limited.id).await.unwrap().unwrap().usage;
    assert_eq!(own.limit_bytes, Some(Limit::Unlimited), "all that is hers is not held against the limit of one space");

    test.storage.state().directory = Some((9, Limit::At(10)));
    let seen = look_home(&test, &ada).await;
    let usage = seen.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::ProjectQuota, Some(Bytes(9))));
    assert_eq!(seen.seen.unwrap().level, Level::Warning);
}

/// What somebody's measuring came to now.
fn measurement(test: &TestApp, by: UserId, used: u64) -> Measurement {
    let measured = Measured { by, at: test.app.clock.now(), approximate: false };
    Measurement { used_bytes: Bytes(used), used_files: Files(3), measured }
}

#[tokio::test]
async fn where_the_storage_counts_nothing_what_was_measured_counts_and_warns_for_a_week() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    test.groups.add("ada", "physics");
    let limited = Space { limit_bytes: Limit::At(Bytes(100)), ..a_space(group("physics")) };
    let physics = test.app.db.insert_space(limited).await.unwrap();
    let spaces = &test.app.spaces;
    let look = async || {
        spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
        spaces.get(&ada, &physics.name).await.unwrap()
    };
    let mut hers = test.app.events.subscribe(&ada, None, None).await.unwrap();
    let silent = look().await.seen.unwrap();
    assert_eq!((silent.usage.source, silent.level), (UsageSource::FileSystem, Level::Unknown));

    let found = measurement(&test, ada.user.id, 96);
    spaces.note_measurement(physics.id, &found).await.unwrap();
    let seen = spaces.get(&ada, &physics.name).await.unwrap();
    let usage = seen.seen.unwrap().usage;
    assert_eq!(
        (usage.source, usage.used_bytes, usage.used_files),
        (UsageSource::Measured, Some(Bytes(96)), Some(Files(3)))
    );
    assert_eq!((usage.limit_bytes, usage.measured), (Some(Limit::At(Bytes(100))), Some(found.measured)));
    assert_eq!((seen.seen.unwrap().level, seen.own_level), (Level::Critical, Level::Critical));
    let notice = async |stream: &mut futures_util::stream::BoxStream<'static, super::super::events::Event>| loop {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), stream.next()).await;
        let event = next.expect("she is told").unwrap();
        if event.kind == EventKind::Notice {
            break event.data["code"].as_str().unwrap().to_owned();
        }
    };
    assert_eq!(notice(&mut hers).await, "space_nearly_full");

    // Whoever may not see the space is told nothing of it.
    assert!(matches!(spaces.get(&grace, &physics.name).await, Err(AppError::NotFound)));
    assert!(matches!(spaces.samples(&grace, &physics.name, 30).await, Err(AppError::NotFound)));

    // It is one sample, of the hour it was measured in, however often one looks.
    for _ in 0..3 {
        test.clock.advance_s(3600);
        look().await;
    }
    let samples = spaces.samples(&ada, &physics.name, 30).await.unwrap();
    assert_eq!(samples.iter().map(|sample| sample.used_bytes).collect::<Vec<_>>(), [Bytes(96)]);
    assert!(samples[0].at <= found.measured.at && samples[0].limit_bytes == Some(Bytes(100)));

    test.clock.advance_s(7 * 24 * 3600);
    let old = look().await;
    let seen = old.seen.unwrap();
    assert_eq!((seen.usage.used_bytes, seen.usage.measured), (Some(Bytes(96)), Some(found.measured)), "it is shown");
    assert_eq!((seen.level, old.own_level), (Level::Unknown, Level::Unknown), "and warns of nothing");
    spaces.note_measurement(physics.id, &measurement(&test, ada.user.id, 10)).await.unwrap();
    assert_eq!(look().await.seen.unwrap().level, Level::Ok);

    // What the storage counts itself comes first, and what it only does not tell now is not replaced.
    test.storage.state().directory = Some((50, Limit::Unlimited));
    let usage = look().await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes, usage.measured), (UsageSource::ProjectQuota, Some(Bytes(50)), None));
}

#[tokio::test]
async fn what_somebody_measured_who_may_only_read_a_space_counts_for_nobody() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    test.groups.add("ada", "physics");
    let (spaces, db) = (&test.app.spaces, &test.app.db);
    let add = async |name: &str, owner: SpaceOwner, writable: bool| {
        let limit_bytes = Limit::At(Bytes(100));
        let (id, name) = (SpaceId::generate(), name.parse().unwrap());
        db.insert_space(Space { id, name, writable, limit_bytes, ..a_space(owner) }).await.unwrap()
    };
    let (papers, data, shared) = (
        add("papers", group("physics"), false).await,
        add("data", SpaceOwner::Everybody, false).await,
        add("shared", group("physics"), true).await,
    );
    // Their process says what it likes.
    for (space, by) in [(&papers, &ada), (&data, &ada), (&shared, &grace)] {
        spaces.note_measurement(space.id, &measurement(&test, by.user.id, 99)).await.unwrap();
        spaces.look_at(space, &mut QuotaRound::default()).await.unwrap();
        assert_eq!(db.measurement(space.id).await.unwrap(), None, "{}", space.name);
        let seen = db.usage(space.id).await.unwrap().unwrap();
        assert_eq!((seen.usage.source, seen.level), (UsageSource::FileSystem, Level::Unknown), "{}", space.name);
    }
    // Nor does it take the place of what one said who may write.
    let found = measurement(&test, ada.user.id, 10);
    spaces.note_measurement(shared.id, &found).await.unwrap();
    test.clock.advance_s(60);
    spaces.note_measurement(shared.id, &measurement(&test, grace.user.id, 99)).await.unwrap();
    assert_eq!(db.measurement(shared.id).await.unwrap(), Some(found));
    assert_eq!(db.usage(shared.id).await.unwrap().unwrap().level, Level::Ok);
}

#[test]
fn what_was_measured_is_taken_only_where_nobody_counts_and_where_it_can_be() {
    let silent = Usage {
        source: UsageSource::FileSystem,
        used_bytes: None,
        limit_bytes: None,
        used_files: None,
        limit_files: None,
        total_bytes: Some(Bytes(100)),
        total_files: None,
        free_bytes: Some(Bytes(1)),
        free_files: None,
        missing: Some(Why::NotSupported),
        measured: None,
    };
    let measured = Measured { by: UserId::generate(), at: crate::testing::start_time(), approximate: true };
    let found = |used| Some(Measurement { used_bytes: Bytes(used), used_files: Files(1), measured });
    let taken = look::with_measured(silent, found(100));
    assert_eq!(
        (taken.source, taken.used_bytes, taken.measured),
        (UsageSource::Measured, Some(Bytes(100)), Some(measured))
    );
    assert_eq!((taken.missing, taken.free_bytes), (silent.missing, silent.free_bytes));
    assert_eq!(look::with_measured(silent, found(101)), silent, "more than there is");
    assert_eq!(look::with_measured(silent, None), silent);
    for why in [Why::DidNotAnswer, Why::NotUnderstood, Why::NeverMeasured] {
        let later = Usage { missing: Some(why), ..silent };
        assert_eq!(look::with_measured(later, found(5)), later, "it may be told later: {why:?}");
    }
    let quota = Usage { source: UsageSource::UserQuota, used_bytes: Some(Bytes(3)), missing: None, ..silent };
    assert_eq!(look::with_measured(quota, found(5)), quota);
}

#[tokio::test]
async fn what_beegfs_counts_is_not_what_a_space_elsewhere_uses() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    let physics = add(&test, "physics", group("physics")).await;
    for pools in [vec![], vec![1, 2]] {
        test.storage.state().quota_pools = pools;
        for (kind, why) in [("nfs4", Why::NotSupported), ("xfs", Why::NotEnabled)] {
            test.storage.state().kind = kind;
            let home = look_home(&test, &ada).await.seen.unwrap();
            test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
            let groups = test.app.db.usage(physics.id).await.unwrap().unwrap();
            for usage in [home.usage, groups.usage] {
                assert_eq!((usage.source, usage.used_bytes, usage.limit_bytes), (UsageSource::FileSystem, None, None));
                assert_eq!(usage.missing, Some(why), "as where there is no BeeGFS at all: {kind}");
            }
        }
    }
    assert_eq!(test.storage.state().questions, [], "nobody is asked for what would not be used");
    assert_eq!(test.storage.state().entries, Vec::<String>::new());
}

#[tokio::test]
async fn of_several_pools_the_one_the_space_lies_in_counts_and_without_a_word_which_none_does() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    {
        let mut storage = test.storage.state();
        (storage.kind, storage.quota_pools) = ("beegfs", vec![2, 1]);
    }
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!(usage.missing, Some(Why::NotSupported), "it does not tell how files are spread");
    test.storage.state().spread_over(2);
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes, usage.missing), (UsageSource::BeegfsUser, Some(Bytes(3)), None));
    {
        let mut storage = test.storage.state();
        (storage.quota_pools, storage.pools) = (vec![2, 3], Some(vec![2, 3]));
    }
    let usage = look_home(&test, &ada).await.seen.unwrap().usage;
    assert_eq!((usage.source, usage.used_bytes), (UsageSource::FileSystem, None));
    assert_eq!(usage.missing, Some(Why::NotUnderstood));
}

#[tokio::test]
async fn a_pool_that_came_alone_is_the_only_one_where_the_storage_has_no_other() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    counts_users(&test, 3).await;
    {
        let mut storage = test.storage.state();
        (storage.kind, storage.quota_pools, storage.pools) = ("beegfs", vec![2], Some(vec![2]));
    }
    let good = look_home(&test, &ada).await.seen.unwrap();
    assert_eq!((good.usage.source, good.usage.used_bytes), (UsageSource::BeegfsUser, Some(Bytes(6))));
    assert_eq!(test.storage.state().entries, Vec::<String>::new(), "nobody has to say which it is");

    // Half an answer: the other pool's part is missing, with a word of it or without.
    let doubt = Doubt { about: DoubtAbout::Whole, text: "a server did not answer".into() };
    for doubts in [vec![], vec![doubt]] {
        {
            let mut storage = test.storage.state();
            (storage.pools, storage.quota_doubts) = (Some(vec![1, 2]), doubts);
            storage.spread_over(2);
        }
        let half = look_home(&test, &ada).await;
        assert!(half.space.undetermined, "{half:?}");
        assert_eq!(half.space.reason.unwrap().code, "storage_half");
        assert_eq!(half.seen.unwrap().usage, good.usage, "what was seen before stays");
    }

    // In half an answer the pool that came may be the one; and where pools are not told, nothing says that it is.
    test.storage.state().quota_pools = vec![1];
    let seen = look_home(&test, &ada).await;
    assert!(!seen.space.undetermined);
    assert_eq!(seen.seen.unwrap().usage.used_bytes, Some(Bytes(3)));
    {
        let mut storage = test.storage.state();
        (storage.pools, storage.quota_pools) = (None, vec![2]);
    }
    assert!(look_home(&test, &ada).await.space.undetermined, "new files lie in the first");
}

#[tokio::test]
async fn a_look_without_an_answer_keeps_what_was_seen_and_says_so() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    test.storage.state().directory = Some((50, Limit::At(100)));
    let good = look_home(&test, &ada).await;
    for (mood, code) in [
        (StorageMood::Away, "storage_away"),
        (StorageMood::Refuses, "place_refused"),
        (StorageMood::NotThere, "place_missing"),
    ] {
        test.storage.state().mood = mood;
        let seen = look_home(&test, &ada).await;
        assert!(seen.space.undetermined);
        assert_eq!(seen.space.reason.unwrap().code, code);
        assert_eq!(seen.seen, good.seen);
    }
    test.storage.state().mood = StorageMood::Good;
    let seen = look_home(&test, &ada).await;
    assert!(!seen.space.undetermined && seen.space.reason.is_none());
}

#[tokio::test]
async fn an_owner_is_told_once_when_a_space_fills_up_and_again_when_it_does_again() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let mut events = test.app.events.subscribe(&ada, None, None).await.unwrap();
    for used in [50, 81, 82, 96, 100, 100, 40, 81] {
        test.storage.state().directory = Some((used, Limit::At(100)));
        look_home(&test, &ada).await;
    }
    test.app.events.publish(EventKind::Notice, None, None, json!({"code": "end"})).await;
    let mut told = Vec::new();
    while told.last().is_none_or(|last| last != "end") {
        let event = events.next().await.unwrap();
        if event.kind == EventKind::Space {
            continue;
        }
        assert_eq!(event.kind, EventKind::Notice);
        told.push(event.data["code"].as_str().unwrap().to_owned());
    }
    assert_eq!(told, ["space_nearly_full", "space_nearly_full", "space_full", "space_nearly_full", "end"]);
}

#[tokio::test]
async fn a_groups_people_are_told_once_when_their_space_fills_up_and_nobody_else_is() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let (alan, left) =
        (test.person("alan", 2004, Role::Researcher).await, test.person("left", 2005, Role::Researcher).await);
    test.app.db.set_user_state(left.user.id, UserState::Disabled).await.unwrap();
    let physics = add(&test, "physics", group("physics")).await;
    let data = Space { writable: false, id: SpaceId::generate(), ..a_space(group("physics")) };
    let data = test.app.db.insert_space(Space { name: "data".parse().unwrap(), ..data }).await.unwrap();
    let all = add(&test, "all", SpaceOwner::Everybody).await;
    let told = async || {
        let events = test.app.db.events_after(0, u32::MAX).await.unwrap();
        let of_notice = |event: eirene_database::Event| {
            (event.kind == "notice").then(|| (event.data["code"].as_str().unwrap().to_owned(), event.owner.unwrap()))
        };
        events.into_iter().filter_map(of_notice).collect::<Vec<_>>()
    };
    let look = async |used: u64| {
        test.storage.state().directory = Some((used, Limit::At(100)));
        for space in [&physics, &data, &all] {
            test.app.spaces.look_at(space, &mut QuotaRound::default()).await.unwrap();
        }
    };
    // Nobody knows who they are: then it is not taken for told.
    test.groups.go_away();
    look(81).await;
    assert_eq!(told().await, []);
    test.groups.come_back();
    for person in ["ada", "alan", "left"] {
        test.groups.add(person, "physics");
    }
    for used in [82, 83, 100, 40] {
        look(used).await;
    }
    let expected: Vec<_> = ["space_nearly_full", "space_full"]
        .into_iter()
        .flat_map(|code| [&ada, &alan].map(|person| (code.to_owned(), person.user.id)))
        .collect();
    let mut heard = told().await;
    // Each level by itself, in whatever order its people were told.
    heard.sort_by_key(|(code, person)| (code == "space_full", *person != ada.user.id));
    assert_eq!(heard, expected, "and not {}", grace.user.id);
}

#[tokio::test]
async fn a_full_disk_is_not_called_a_full_home() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let mut events = test.app.events.subscribe(&ada, None, None).await.unwrap();
    test.storage.state().directory = Some((10, Limit::At(100)));
    test.storage.state().free = 1;
    look_home(&test, &ada).await;
    let event = events.next().await.unwrap();
    assert_eq!(event.data["code"], "storage_nearly_full");
    assert_eq!(event.owner, Some(ada.user.id));
}

#[tokio::test]
async fn there_is_one_sample_an_hour_of_what_the_space_itself_uses() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let home = "home".parse().unwrap();
    look_home(&test, &ada).await;
    assert_eq!(test.app.spaces.samples(&ada, &home, 30).await.unwrap(), [], "the whole disk is nobody's usage");
    for (minutes, used) in [(0, 1), (5, 2), (55, 3)] {
        test.clock.advance_s(minutes * 60);
        test.storage.state().directory = Some((used, Limit::Unlimited));
        look_home(&test, &ada).await;
    }
    let samples = test.app.spaces.samples(&ada, &home, 30).await.unwrap();
    assert_eq!(samples.iter().map(|sample| sample.used_bytes.0).collect::<Vec<_>>(), [2, 3]);
    assert!(samples.iter().all(|sample| sample.at.as_second() % 3600 == 0));
}

#[tokio::test]
async fn a_full_home_is_a_trouble_for_what_is_started_and_what_is_not_known_is_none() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let trouble = async || test.app.spaces.home_trouble(&ada).await.unwrap();
    assert_eq!(trouble().await, None, "nobody has looked yet");
    for (used, free, expected) in [
        (50, 500 * GIB, None),
        (81, 500 * GIB, None),
        (95, 500 * GIB, Some(HomeTrouble::NearlyFull)),
        (100, 500 * GIB, Some(HomeTrouble::Full)),
        (50, 40 * GIB, Some(HomeTrouble::StorageNearlyFull)),
        (50, 0, Some(HomeTrouble::StorageFull)),
        (100, 0, Some(HomeTrouble::Full)),
    ] {
        test.storage.state().directory = Some((used, Limit::At(100)));
        test.storage.state().free = free;
        look_home(&test, &ada).await;
        assert_eq!(trouble().await, expected, "{used} {free}");
    }
    test.clock.advance_s(3600);
    assert_eq!(trouble().await, None, "that was an hour ago");
    look_home(&test, &ada).await;
    assert_eq!(trouble().await, Some(HomeTrouble::Full));
    test.storage.state().mood = StorageMood::Away;
    look_home(&test, &ada).await;
    assert_eq!(trouble().await, None, "it cannot be known now");
}

#[tokio::test]
async fn a_change_of_a_space_is_told_to_its_people_as_they_listen_and_to_nobody_else() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let admin = test.person("root-admin", 2003, Role::Admin).await;
    let via = Via::Token { id: eirene_core::TokenId::generate(), scopes: Scope::DEFAULT.to_vec() };
    let program = Actor { via, ..ada.clone() };
    let physics = add(&test, "physics", group("physics")).await;
    test.groups.add("ada", "physics");
    let events = &test.app.events;
    let mut hers = events.subscribe(&ada, None, None).await.unwrap();
    let mut others = [
        events.subscribe(&grace, None, None).await.unwrap(),
        events.subscribe(&program, None, None).await.unwrap(),
        events.subscribe_all(&admin, None).await.unwrap(),
    ];
    let next = async |stream: &mut futures_util::stream::BoxStream<'static, super::super::events::Event>| {
        let next = tokio::time::timeout(std::time::Duration::from_secs(20), stream.next()).await;
        let event = next.expect("it is told").unwrap();
        (event.kind, event.data["name"].as_str().unwrap_or_default().to_owned(), event.data["usage"].clone())
    };
    look_home(&test, &ada).await;
    test.storage.state().free -= GIB;
    look_home(&test, &ada).await;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
    test.storage.state().directory = Some((85, Limit::At(100)));
    look_home(&test, &ada).await;
    test.storage.state().mood = StorageMood::Away;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();

    let (kind, name, usage) = next(&mut hers).await;
    assert_eq!((kind, name.as_str()), (EventKind::Space, "home-ada"));
    assert!(usage.get("used_bytes").is_none() && usage["source"] == "file_system");
    // That others have written to the same file system was no news.
    assert_eq!(next(&mut hers).await.1, "physics");
    assert_eq!(next(&mut hers).await.0, EventKind::Notice, "of the level, as ever");
    let (_, name, usage) = next(&mut hers).await;
    assert_eq!((name.as_str(), &usage["used_bytes"], &usage["level"]), ("home-ada", &85.into(), &"warning".into()));
    assert_eq!(next(&mut hers).await.1, "physics", "it cannot be looked at");
    // All of it was passed on before this, and this is the first that the others hear.
    events.publish(EventKind::Notice, None, None, json!({"name": "end"})).await;
    for stream in &mut others {
        let (kind, name, _) = loop {
            let told = next(stream).await;
            // A level is told to all programs of its owner's and to admins.
            if told.1 == "end" || told.0 != EventKind::Notice {
                break told;
            }
        };
        assert_eq!((kind, name.as_str()), (EventKind::Notice, "end"));
    }
    assert_eq!(events.listening().len(), 2, "ada and grace");
    drop(hers);
    assert_eq!(events.listening(), [grace.user.id]);
}
