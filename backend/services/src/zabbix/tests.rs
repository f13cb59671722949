//! The service against a Zabbix of ours.

use std::sync::atomic::Ordering;

use eirene_core::{NodeName, Role};
use eirene_zabbix::Severity;

use super::testing::{FakeZabbix, reads, with_zabbix};
use super::*;
use crate::testing::{self, TestApp};

#[tokio::test]
async fn values_arrive_and_what_was_away_is_told_when_it_is_back() {
    let zabbix = FakeZabbix::default();
    zabbix.knows.store(true, Ordering::SeqCst);
    let (address, serving) = zabbix.trapper("127.0.0.1:0").await;
    let test = with_zabbix(&format!("server = \"{address}\"")).await;
    let service = &test.app.zabbix;
    assert_eq!(service.sending(), Some(Ok(())));
    service.round().await.unwrap();
    assert_eq!([zabbix.values("eirene.slurm.reachable"), zabbix.values("eirene.nodes")], [1, 1]);

    serving.abort();
    let _ = serving.await;
    test.clock.advance_s(60);
    assert!(service.round().await.is_err() && service.sending().unwrap().is_err());
    test.clock.advance_s(60);
    assert!(service.round().await.is_err());

    let (_, _serving) = zabbix.trapper(&address).await;
    test.clock.advance_s(60);
    service.round().await.unwrap();
    assert_eq!(zabbix.values("eirene.slurm.reachable"), 4, "nothing is missing of a short outage");
    let clocks: Vec<i64> = lock(&zabbix.values)
        .iter()
        .filter(|value| value["key"] == "eirene.slurm.reachable")
        .map(|value| value["clock"].as_i64().unwrap() - testing::start_time().as_second())
        .collect();
    assert_eq!(clocks, [0, 60, 120, 180], "each with its own time");
    assert_eq!(service.sending(), Some(Ok(())));
}

#[tokio::test]
async fn a_zabbix_without_the_template_is_told_of() {
    let zabbix = FakeZabbix::default();
    let (address, _serving) = zabbix.trapper("127.0.0.1:0").await;
    let test = with_zabbix(&format!("server = \"{address}\"")).await;
    test.app.zabbix.round().await.unwrap();
    assert_eq!(test.app.zabbix.sending(), Some(Err(Trouble::ZabbixTakesNothing)));
    assert_eq!(lock(&test.app.zabbix.inner.outbox).waiting(), 0, "what it does not want is not kept");
    let without = TestApp::new().await;
    without.app.zabbix.round().await.unwrap();
    assert_eq!(without.app.zabbix.sending(), None);
}

#[tokio::test]
async fn problems_of_both_hosts_are_shown_the_worst_first_and_clean() {
    let mut test = TestApp::new().await;
    reads(&mut test).await;
    let (admin, ada) = (test.person("root-admin", 2003, Role::Admin).await, test.ada().await);
    let node = |name: &str| name.parse::<NodeName>().unwrap();
    let NodeInZabbix::Seen(seen) = test.app.zabbix.of_node(&admin, &node("c1")).await.unwrap() else { panic!() };
    let problems: Vec<(u64, Severity)> =
        seen.problems.iter().map(|problem| (problem.event, problem.severity)).collect();
    assert_eq!(problems, [(9, Severity::High), (7, Severity::Warning), (8, Severity::Information)]);
    assert_eq!(seen.problems[1].name, "<script>alert(1)</script>\u{fffd}", "a text, in one line");
    assert_eq!((seen.host.as_deref(), seen.items[0].points.len()), (Some("n-c1"), 1));
    let NodeInZabbix::Seen(other) = test.app.zabbix.of_node(&admin, &node("c2")).await.unwrap() else { panic!() };
    assert_eq!((other.host.as_deref(), other.problems.len(), other.items.len()), (None, 1, 0));
    assert!(matches!(test.app.zabbix.of_node(&admin, &node("c9")).await, Err(AppError::NotFound)));
    assert!(matches!(test.app.zabbix.of_node(&ada, &node("c1")).await, Err(AppError::Forbidden { .. })));
}

#[tokio::test]
async fn the_worst_problem_is_shown_though_it_is_older_than_many_others() {
    let mut test = TestApp::new().await;
    let zabbix = reads(&mut test).await;
    let admin = test.person("root-admin", 2003, Role::Admin).await;
    lock(&zabbix.more).push((100, 5));
    lock(&zabbix.more).extend((200..260).map(|event| (event, 2)));
    let NodeInZabbix::Seen(seen) = test.app.zabbix.of_node(&admin, &"c1".parse().unwrap()).await.unwrap() else {
        panic!()
    };
    let worst: Vec<(u64, Severity)> =
        seen.problems.iter().take(2).map(|problem| (problem.event, problem.severity)).collect();
    assert_eq!(worst, [(100, Severity::Disaster), (9, Severity::High)]);
    assert_eq!(seen.problems.len(), 50);
}

#[tokio::test]
async fn however_many_ask_it_is_read_once_and_again_when_that_is_old() {
    let mut test = TestApp::new().await;
    let zabbix = reads(&mut test).await;
    let admin = test.person("root-admin", 2003, Role::Admin).await;
    let node: NodeName = "c1".parse().unwrap();
    let all = (0..20).map(|_| test.app.zabbix.of_node(&admin, &node));
    for answer in futures_util::future::join_all(all).await {
        assert!(matches!(answer.unwrap(), NodeInZabbix::Seen(_)));
    }
    let once = zabbix.asked.load(Ordering::SeqCst);
    assert!(once <= 8, "{once} questions");
    test.clock.advance_s(20);
    test.app.zabbix.of_node(&admin, &node).await.unwrap();
    assert!(zabbix.asked.load(Ordering::SeqCst) > once);
}

#[tokio::test]
async fn one_that_gives_no_answer_is_left_alone_for_a_while_and_believed_again() {
    let mut test = TestApp::new().await;
    let zabbix = reads(&mut test).await;
    let admin = test.person("root-admin", 2003, Role::Admin).await;
    let [c1, c2] = ["c1", "c2"].map(|name| name.parse::<NodeName>().unwrap());
    zabbix.answers(false);
    for node in [&c1, &c2, &c1] {
        assert_eq!(test.app.zabbix.of_node(&admin, node).await.unwrap(), NodeInZabbix::Away);
    }
    assert_eq!(zabbix.asked.load(Ordering::SeqCst), 1);
    zabbix.answers(true);
    test.clock.advance_s(20);
    for node in [&c1, &c2] {
        assert!(matches!(test.app.zabbix.of_node(&admin, node).await.unwrap(), NodeInZabbix::Seen(_)));
    }
}
