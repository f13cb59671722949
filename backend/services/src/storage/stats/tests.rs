//! A rate is a difference of two counts that can be compared, or it is not there.

use eirene_core::storage::{Bytes, Doubt, DoubtAbout};
use eirene_database::StorageLook;
use proptest::prelude::*;
use tracing::Level;

use super::super::history::MOST_USERS;
use super::*;
use crate::testing::{Logged, StorageMood, TestApp, server_sample, start_time};

fn row(user: u32, by_name: &[(&str, u64)], read: Option<u64>) -> OperationCounts {
    let by_name: Vec<_> = by_name.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    OperationCounts {
        of: OperationsOf::User(user),
        total: by_name.iter().map(|(_, count)| count).sum(),
        by_name,
        read: read.map_or(Known::Missing(Why::NotSupported), |read| Known::Known(Bytes(read))),
        written: Known::Missing(Why::NotSupported),
    }
}

fn counted(seconds: i64, rows: Vec<OperationCounts>) -> Counted {
    Counted::new(start_time() + SignedDuration::from_secs(seconds), Partial { value: rows, doubts: vec![] })
}

fn doubtful(seconds: i64, rows: Vec<OperationCounts>) -> Counted {
    let doubt = Doubt { about: DoubtAbout::Whole, text: "half of it".into() };
    Counted::new(start_time() + SignedDuration::from_secs(seconds), Partial { value: rows, doubts: vec![doubt] })
}

/// As a portal has them that was started just now.
fn stats_of(test: &TestApp) -> StorageStats {
    StorageStats::new(test.app.storage.clone(), Arc::new(test.clock.clone()), test.app.db.clone())
}

fn rate_of(operations: &Operations, user: u32) -> Option<f64> {
    let row = operations.rows.iter().find(|row| row.counts.of == OperationsOf::User(user)).unwrap();
    row.per_s.as_ref().map(|rates| rates.total)
}

#[test]
fn a_rate_is_what_was_added_by_the_second() {
    let before = counted(0, vec![row(1, &[("open", 10), ("stat", 5)], Some(100))]);
    let now = counted(10, vec![row(1, &[("open", 30), ("stat", 5)], Some(1100)), row(2, &[("open", 50)], None)]);
    let seen = compare(Some(&before), &now);
    assert_eq!((seen.over_s, seen.restarted), (Some(10.0), false));
    let rates = seen.rows.iter().find(|row| row.counts.of == OperationsOf::User(1)).unwrap().per_s.clone().unwrap();
    assert_eq!(rates, Rates { total: 2.0, by_name: vec![("open".into(), 2.0)], read: Some(100.0), written: None });
    assert_eq!(rate_of(&seen, 2), Some(5.0), "who was not counted before had done nothing");
    assert_eq!(seen.rows[0].counts.of, OperationsOf::User(2), "most operations first");
}

#[test]
fn the_first_count_and_two_at_once_have_no_rates() {
    let rows = || vec![row(1, &[("open", 10)], None)];
    let first = compare(None, &counted(0, rows()));
    assert_eq!((first.over_s, rate_of(&first, 1)), (None, None));
    let at_once = compare(Some(&counted(5, rows())), &counted(5, rows()));
    assert_eq!((at_once.over_s, rate_of(&at_once, 1)), (None, None));
}

#[test]
fn a_count_that_fell_takes_the_rates_of_everybody() {
    let before = counted(0, vec![row(1, &[("open", 10), ("stat", 9)], Some(9)), row(2, &[("open", 3)], None)]);
    let also = || row(2, &[("open", 30)], None);
    for (what, now) in [
        ("fewer in all", row(1, &[("open", 1)], Some(9))),
        ("fewer of one, more in all", row(1, &[("open", 1), ("stat", 90)], Some(9))),
        ("one is not counted", row(1, &[("stat", 90)], Some(9))),
        ("fewer bytes", row(1, &[("open", 10), ("stat", 9)], Some(8))),
    ] {
        let seen = compare(Some(&before), &counted(10, vec![now, also()]));
        assert!(seen.restarted && seen.over_s.is_none(), "{what}");
        assert_eq!((rate_of(&seen, 1), rate_of(&seen, 2)), (None, None), "{what}");
    }
    let gone = compare(Some(&before), &counted(10, vec![also()]));
    assert!(gone.restarted, "somebody is not counted any more");
}

#[test]
fn who_is_missing_from_half_an_answer_is_neither_gone_nor_new() {
    let (one, two) = (|count| row(1, &[("open", count)], None), |count| row(2, &[("open", count)], None));
    let seen = compare(Some(&counted(0, vec![one(1), two(1)])), &doubtful(10, vec![one(11)]));
    assert_eq!((seen.restarted, rate_of(&seen, 1)), (false, None), "the others may have counted more");
    let seen = compare(Some(&doubtful(0, vec![one(1)])), &counted(10, vec![one(11), two(10)]));
    assert_eq!((rate_of(&seen, 1), rate_of(&seen, 2)), (None, None), "nobody knows what was before");
}

#[test]
fn no_more_rows_are_kept_than_anybody_reads() {
    let many = (0..3000).map(|user| row(user, &[("open", user.into())], None)).collect();
    let seen = compare(None, &counted(0, many));
    assert_eq!((seen.rows.len(), seen.left_out), (MOST_ROWS, 1000));
    assert_eq!(seen.rows[0].counts.total, 2999);
}

proptest! {
    #[test]
    fn no_rate_is_below_nothing(before in any::<[(u8, u8); 3]>(), now in any::<[(u8, u8); 3]>()) {
        let rows = |counts: [(u8, u8); 3]| {
            let counted = counts.iter().enumerate().filter(|(_, (open, stat))| open | stat != 0);
            counted.map(|(user, (open, stat))| {
                let by_name: Vec<_> = [("open", *open), ("stat", *stat)].into_iter().filter(|(_, n)| *n > 0).collect();
                let by_name: Vec<_> = by_name.into_iter().map(|(name, n)| (name, u64::from(n))).collect();
                row(u32::try_from(user).unwrap(), &by_name, None)
            }).collect::<Vec<_>>()
        };
        let seen = compare(Some(&counted(0, rows(before))), &counted(1, rows(now)));
        let fell = before.iter().zip(now).any(|(before, now)| now.0 < before.0 || now.1 < before.1);
        prop_assert_eq!(seen.restarted, fell);
        for row in &seen.rows {
            prop_assert_eq!(row.per_s.is_some(), !fell);
            prop_assert!(row.per_s.as_ref().is_none_or(|rates| rates.total >= 0.0));
        }
    }
}

#[tokio::test]
async fn counts_are_asked_for_once_in_a_while_however_many_look() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let stats = stats_of(&test);
    let ask = async || stats.operations(&admin, Role::Metadata, OperationsKind::Users).await;
    let missing = ask().await.unwrap().missing.unwrap();
    assert_eq!(missing.0, Why::NotSupported);
    let say = |count| test.storage.state().operations = Some(vec![row(1, &[("open", count)], None)]);
    say(10);
    assert_eq!(rate_of(&ask().await.unwrap(), 1), None);
    say(20);
    assert_eq!(ask().await.unwrap().rows[0].counts.total, 10, "asked a moment ago");
    test.clock.advance_s(10);
    assert_eq!(rate_of(&ask().await.unwrap(), 1), Some(1.0));
    test.clock.advance_s(1200);
    say(30);
    assert_eq!(rate_of(&ask().await.unwrap(), 1), None, "that was long ago");
    test.clock.advance_s(10);
    test.storage.state().mood = StorageMood::Away;
    assert!(matches!(ask().await, Err(AppError::Unavailable { .. })));
    test.storage.state().mood = StorageMood::Refuses;
    assert_eq!(ask().await.unwrap().missing.unwrap().0, Why::Refused);
}

#[tokio::test]
async fn while_a_server_is_silent_counts_are_doubted_and_no_point_is_drawn() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let stats = stats_of(&test);
    let ask = async |role| stats.operations(&admin, role, OperationsKind::Users).await.unwrap();
    {
        let mut storage = test.storage.state();
        (storage.servers, storage.silent) = (Some(vec![server_sample()]), true);
        storage.operations = Some(vec![row(1, &[("open", 10)], None)]);
    }
    test.app.storage.look().await;
    ask(Role::Storage).await;
    test.clock.advance_s(10);
    test.storage.state().operations = Some(vec![row(1, &[("open", 20)], None)]);
    let seen = ask(Role::Storage).await;
    assert_eq!((seen.doubts.len(), rate_of(&seen, 1)), (1, None), "its own operations are not among them");
    assert_eq!(stats.servers(&admin, Role::Storage).await.unwrap().answer.doubts.len(), 1);
    assert_eq!(ask(Role::Metadata).await.doubts, Vec::<String>::new(), "the others are sure of theirs");
    stats.sample(60).await;
    let points = |role| stats.history(&admin, role, 5).unwrap().len();
    assert_eq!((points(Role::Storage), points(Role::Metadata)), (0, 1));
}

#[test]
fn what_was_asked_between_two_counts_is_a_point_also_of_those_who_are_left_out() {
    let many = |each: u64| (0..2500_u32).map(|user| row(user, &[("open", each + u64::from(user))], None)).collect();
    let point = asked(&counted(0, many(1)), &counted(10, many(21))).unwrap();
    assert_eq!((point.at, point.over_s), (start_time() + SignedDuration::from_secs(10), 10.0));
    let named: f64 = point.users.iter().map(|(_, load)| load.operations).sum();
    assert_eq!((point.users.len(), named), (MOST_USERS, 20.0));
    assert_eq!(point.others, Some(Load { operations: 4980.0, read: None, written: None }));
    let known =
        |each: i64| counted(each, vec![row(1, &[("open", each.unsigned_abs())], Some(each.unsigned_abs() * 100))]);
    let point = asked(&known(10), &known(30)).unwrap();
    let load = Load { operations: 1.0, read: Some(100.0), written: None };
    assert_eq!((point.users, point.others), (vec![(OperationsOf::User(1), load)], None));
}

#[test]
fn where_a_rate_of_somebody_cannot_be_told_there_is_no_point() {
    let rows = |count| vec![row(1, &[("open", count)], None)];
    for (what, earlier, latest) in [
        ("a server was started anew", counted(0, rows(10)), counted(10, rows(5))),
        ("the first is doubtful", doubtful(0, rows(10)), counted(10, rows(15))),
        ("the second is doubtful", counted(0, rows(10)), doubtful(10, rows(15))),
        ("at once", counted(10, rows(10)), counted(10, rows(15))),
        ("the clock was put back", counted(20, rows(10)), counted(10, rows(15))),
    ] {
        assert_eq!(asked(&earlier, &latest), None, "{what}");
    }
    // Those who are left out have fallen, and nobody who is there has.
    let many = |least: u64| {
        let rows = (0..2500_u32).map(|user| row(user, &[("open", if user < 500 { least } else { 1000 })], None));
        rows.collect()
    };
    assert_eq!(asked(&counted(0, many(900)), &counted(10, many(100))), None);
}

#[tokio::test]
async fn users_have_a_history_from_round_to_round_however_often_somebody_looks_between() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let stats = stats_of(&test);
    let say = |count| test.storage.state().operations = Some(vec![row(1, &[("open", count)], None)]);
    let points = || stats.history_of_users(&admin, Role::Metadata, 60).unwrap();
    say(0);
    test.app.storage.look().await;
    stats.sample(60).await;
    assert_eq!(points(), [], "one count is no rate");
    test.clock.advance_s(30);
    say(30);
    stats.operations(&admin, Role::Metadata, OperationsKind::Users).await.unwrap();
    test.clock.advance_s(30);
    say(120);
    stats.sample(60).await;
    let seen = points();
    assert_eq!((seen.len(), seen[0].over_s, seen[0].users[0].1.operations), (1, 60.0, 2.0));
    assert_eq!(stats.history_of_users(&admin, Role::Storage, 60).unwrap().len(), 1);
    // What was not told is no part of any point.
    test.clock.advance_s(60);
    test.storage.state().mood = StorageMood::Away;
    stats.sample(60).await;
    test.storage.state().mood = StorageMood::Good;
    for expected in [1, 2] {
        test.clock.advance_s(60);
        say(500 * expected);
        stats.sample(60).await;
        assert_eq!(points().len() as u64, expected);
    }
    test.clock.advance_s(7200);
    assert_eq!(points(), []);
}

#[tokio::test]
async fn a_storage_that_does_not_tell_users_is_not_asked_for_them() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let stats = stats_of(&test);
    test.app.storage.look().await;
    for count in [1, 2] {
        test.storage.state().operations = Some(vec![row(1, &[("open", count)], None)]);
        stats.sample(60).await;
        test.clock.advance_s(10);
    }
    assert_eq!(stats.history_of_users(&admin, Role::Metadata, 60).unwrap(), []);
}

#[tokio::test]
async fn a_portal_that_is_started_anew_has_the_last_day_again_and_no_point_goes_over_the_time_between() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let say = |count: u64| test.storage.state().operations = Some(vec![row(1, &[("open", count)], Some(count * 10))]);
    let seen = |stats: &StorageStats| {
        ROLES.map(|role| {
            let servers = stats.history(&admin, role, 1440).unwrap();
            (servers, stats.history_of_users(&admin, role, 1440).unwrap())
        })
    };
    let many = |stats: &StorageStats| seen(stats).map(|(servers, users)| (servers.len(), users.len()));
    test.storage.state().servers = Some(vec![server_sample()]);
    say(0);
    test.app.storage.look().await;
    let before = stats_of(&test);
    before.recall().await;
    before.sample(60).await;
    test.clock.advance_s(60);
    say(120);
    before.sample(60).await;
    assert_eq!(many(&before), [(2, 1); 2]);
    // It is away for an hour, in which much is asked.
    test.clock.advance_s(3600);
    say(100_000);
    let after = stats_of(&test);
    after.recall().await;
    assert_eq!(seen(&after), seen(&before));
    after.sample(60).await;
    assert_eq!(many(&after), [(3, 1); 2], "one count is no rate, and what was counted before is no part of any");
    test.clock.advance_s(60);
    say(100_060);
    after.sample(60).await;
    let [_, (servers, users)] = seen(&after);
    assert_eq!((servers.len(), users.len()), (4, 2));
    assert_eq!((users[1].over_s, users[1].users[0].1.operations), (60.0, 1.0));
    after.recall().await;
    let again = stats_of(&test);
    again.recall().await;
    assert_eq!(seen(&after), seen(&again), "each point is there once");
    test.clock.advance_s(24 * 3600 - 30);
    let tomorrow = stats_of(&test);
    tomorrow.recall().await;
    assert_eq!(many(&tomorrow), [(1, 1); 2], "what is older than a day is not read");
}

#[tokio::test]
async fn a_point_that_a_silent_server_prevented_is_not_there_after_a_start_either() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    let say = |count: u64| test.storage.state().operations = Some(vec![row(1, &[("open", count)], None)]);
    say(0);
    test.app.storage.look().await;
    let before = stats_of(&test);
    before.sample(60).await;
    for (count, silent) in [(60, true), (120, false), (180, false)] {
        test.clock.advance_s(60);
        say(count);
        test.storage.state().silent = silent;
        test.app.storage.look().await;
        before.sample(60).await;
    }
    let after = stats_of(&test);
    after.recall().await;
    let points = after.history_of_users(&admin, Role::Storage, 60).unwrap();
    let spans: Vec<_> = points.iter().map(|point| (point.at, point.over_s)).collect();
    assert_eq!(spans, [(start_time() + SignedDuration::from_secs(180), 60.0)]);
    assert_eq!(after.history_of_users(&admin, Role::Metadata, 60).unwrap().len(), 3, "those were not silent");
}

#[tokio::test]
async fn a_look_that_makes_no_sense_is_left_out_and_said() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    test.storage.state().servers = Some(vec![server_sample()]);
    test.app.storage.look().await;
    stats_of(&test).sample(60).await;
    for (seconds, servers) in [(1, "{"), (2, r#"{"at":"today","over_s":60}"#)] {
        let at = start_time() - SignedDuration::from_secs(seconds);
        let look = StorageLook { at, servers: Some(servers.into()), users: None };
        test.app.db.put_storage_look(role_word(Role::Storage), &look).await.unwrap();
    }
    let (stats, logged) = (stats_of(&test), Logged::down_to(Level::WARN));
    stats.recall().await;
    let line = logged.line("Looks at the storage that were written down are not understood");
    assert_eq!((&line["fields"]["role"], &line["fields"]["looks"]), (&"storage".into(), &2.into()), "{line}");
    for role in ROLES {
        assert_eq!(stats.history(&admin, role, 60).unwrap().len(), 1);
    }
}

#[tokio::test]
async fn without_a_database_there_is_what_was_seen_since_the_start_and_what_was_before_comes_back_with_it() {
    let test = TestApp::new().await;
    let admin = test.person("root-admin", 2100, eirene_core::Role::Admin).await;
    {
        let mut storage = test.storage.state();
        storage.servers = Some(vec![server_sample()]);
        storage.operations = Some(vec![row(1, &[("open", 10)], None)]);
    }
    test.app.storage.look().await;
    stats_of(&test).sample(60).await;
    test.clock.advance_s(60);
    // One without tables refuses everything.
    let mut stats = StorageStats { db: Db::open("sqlite::memory:").await.unwrap(), ..stats_of(&test) };
    {
        let logged = Logged::down_to(Level::WARN);
        stats.recall().await;
        logged.line("What the servers did before was not read; the next look tries again");
    }
    for count in [20, 30] {
        stats.sample(60).await;
        test.clock.advance_s(60);
        test.storage.state().operations = Some(vec![row(1, &[("open", count)], None)]);
    }
    let times = |stats: &StorageStats| -> Vec<Timestamp> {
        stats.history(&admin, Role::Storage, 60).unwrap().iter().map(|point| point.at).collect()
    };
    let minute = |minutes| start_time() + SignedDuration::from_mins(minutes);
    assert_eq!(times(&stats), [minute(1), minute(2)]);
    assert_eq!(stats.history_of_users(&admin, Role::Storage, 60).unwrap().len(), 1);
    assert!(stats.servers(&admin, Role::Storage).await.unwrap().missing.is_none());
    assert!(stats.operations(&admin, Role::Storage, OperationsKind::Users).await.unwrap().over_s.is_some());
    stats.db = test.app.db.clone();
    stats.recall().await;
    assert_eq!(times(&stats), [minute(0), minute(1), minute(2)]);
}

#[tokio::test]
async fn statistics_are_for_admins() {
    let test = TestApp::new().await;
    let ada = test.person("ada", 2001, eirene_core::Role::Researcher).await;
    let stats = stats_of(&test);
    assert!(stats.operations(&ada, Role::Storage, OperationsKind::Clients).await.is_err());
    assert!(stats.servers(&ada, Role::Storage).await.is_err());
    assert!(stats.history(&ada, Role::Storage, 5).is_err());
    assert!(stats.history_of_users(&ada, Role::Storage, 5).is_err());
}
