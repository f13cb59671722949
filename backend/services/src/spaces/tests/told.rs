//! What people are told of their spaces, once and nobody else.

use eirene_core::space::{Level, UsageSource};
use eirene_core::{Role, UserState};
use futures_util::StreamExt as _;
use serde_json::json;

use super::*;
use crate::actor::Via;
use crate::events::{EventKind, Fact};
use crate::testing::{PATIENCE, StorageMood, entry};

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
        told.push(event.fact.small()["code"].as_str().unwrap().to_owned());
    }
    assert_eq!(told, ["space_nearly_full", "space_nearly_full", "space_full", "space_nearly_full", "end"]);
}

#[tokio::test]
async fn a_groups_people_are_told_once_when_their_space_fills_up_and_nobody_else_is() {
    let test = TestApp::new().await;
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let (alan, left) =
        (test.person("alan", 2004, Role::Researcher).await, test.person("left", 2005, Role::Researcher).await);
    test.app.db.set_user_state(left.user.id, UserState::Disabled, &entry()).await.unwrap();
    let physics = add(&test, "physics", group("physics")).await;
    let data = Space { writable: false, id: SpaceId::generate(), ..a_space(group("physics")) };
    let data = test.app.db.insert_space(Space { name: "data".parse().unwrap(), ..data }, &[]).await.unwrap();
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
    assert_eq!(event.fact.small()["code"], "storage_nearly_full");
    assert_eq!(event.owner, Some(ada.user.id));
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
    let next = async |stream: &mut futures_util::stream::BoxStream<'static, crate::events::Event>| {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        let event = next.expect("the event arrives").unwrap();
        match event.fact {
            Fact::Space(seen) => (event.kind, seen.space.name.to_string(), seen.seen),
            other => (event.kind, other.small()["name"].as_str().unwrap_or_default().to_owned(), None),
        }
    };
    look_home(&test, &ada).await;
    test.storage.state().free -= GIB;
    look_home(&test, &ada).await;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();
    test.storage.state().directory = Some((85, Limit::At(100)));
    look_home(&test, &ada).await;
    test.storage.state().mood = StorageMood::Away;
    test.app.spaces.look_at(&physics, &mut QuotaRound::default()).await.unwrap();

    let (kind, name, seen) = next(&mut hers).await;
    assert_eq!((kind, name.as_str()), (EventKind::Space, "home-ada"));
    let usage = seen.unwrap().usage;
    assert_eq!((usage.used_bytes, usage.source), (None, UsageSource::FileSystem));
    // That others have written to the same file system was no news.
    assert_eq!(next(&mut hers).await.1, "physics");
    assert_eq!(next(&mut hers).await.0, EventKind::Notice, "of the level, as ever");
    let (_, name, seen) = next(&mut hers).await;
    let seen = seen.unwrap();
    assert_eq!(
        (name.as_str(), seen.usage.used_bytes, seen.level),
        ("home-ada", Some(eirene_core::storage::Bytes(85)), Level::Warning)
    );
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
