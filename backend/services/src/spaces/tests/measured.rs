//! What somebody had measured, where nobody counts: for whom it counts, and for how long.

use eirene_core::Role;
use eirene_core::space::{Measured, Measurement, UsageSource};
use eirene_core::storage::{Bytes, Files, Why};
use futures_util::StreamExt as _;

use super::*;
use crate::events::EventKind;
use crate::testing::PATIENCE;

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
    let physics = test.app.db.insert_space(limited, &[]).await.unwrap();
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
    let notice = async |stream: &mut futures_util::stream::BoxStream<'static, crate::events::Event>| loop {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        let event = next.expect("she is told").unwrap();
        if event.kind == EventKind::Notice {
            break event.fact.small()["code"].as_str().unwrap().to_owned();
        }
    };
    assert_eq!(notice(&mut hers).await, "space_nearly_full");

    // Whoever may not see the space is told nothing of it.
    assert!(matches!(spaces.get(&grace, &physics.name).await, Err(AppError::Hidden)));
    assert!(matches!(spaces.samples(&grace, &physics.name, 30).await, Err(AppError::Hidden)));

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
        db.insert_space(Space { id, name, writable, limit_bytes, ..a_space(owner) }, &[]).await.unwrap()
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
