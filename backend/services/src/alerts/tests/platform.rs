//! What is wrong with the platform: told to admins alone, until it is right again.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;

use super::*;
use crate::alerts::platform::Certificate;
use crate::config::Config;

#[tokio::test]
async fn a_node_that_is_down_is_told_to_admins_until_it_is_back() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let mut hers = test.app.events.subscribe(&ada, None, None).await.unwrap();
    let mut admins = test.app.events.subscribe_all(&root, None).await.unwrap();
    looks(&test, "down", &[], 30).await;
    assert_eq!(open(&test).await, [], "it may only be starting");
    looks(&test, "down", &[], 10).await;
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!(
        (alert.rule, alert.subject.as_str(), alert.severity),
        (AlertRule::NodeDown, "n1", AlertSeverity::Critical)
    );
    assert_eq!(text(alert).as_str(), "Node n1 is down: it smokes.");
    let event = admins.next().await.unwrap();
    assert_eq!((event.kind, event.fact.alert().known.alert.subject.as_str()), (EventKind::Alert, "n1"));
    // A person hears of what is hers alone.
    test.app.events.publish(EventKind::Notice, None, Some(ada.user.id), json!(1)).await;
    assert_eq!(hers.next().await.unwrap().kind, EventKind::Notice);
    assert!(matches!(test.app.alerts.get(&ada, alert.id).await, Err(AppError::Hidden)));
    assert!(matches!(test.app.alerts.acknowledge(&ada, alert.id).await, Err(AppError::Hidden)));
    assert!(matches!(test.app.alerts.list(&ada, all()).await, Err(AppError::Forbidden { .. })));
    let mine = test.app.alerts.list(&ada, ListAlerts { limit: 50, ..ListAlerts::default() }).await.unwrap();
    assert!(mine.items.is_empty());
    assert_eq!(test.app.alerts.list(&root, all()).await.unwrap().items.len(), 1);

    looks(&test, "idle", &[], 40).await;
    assert_eq!(open(&test).await, []);
    let over = test.app.alerts.get(&root, alert.id).await.unwrap().known.alert;
    assert_eq!(over.ended_at.unwrap().duration_since(over.started_at).as_secs(), 40);
}

#[tokio::test]
async fn who_knows_is_written_down_once_and_in_the_audit_log() {
    let test = TestApp::new().await;
    let (root, other) =
        (test.person("root-admin", 2003, Role::Admin).await, test.person("other-admin", 2004, Role::Admin).await);
    looks(&test, "down", &[], 40).await;
    let id = open(&test).await[0].id;
    test.app.alerts.acknowledge(&root, id).await.unwrap();
    let known = test.app.alerts.acknowledge(&other, id).await.unwrap().known.alert.acknowledged.unwrap();
    assert_eq!(known.0.as_str(), "root-admin");
    let lines = test.app.db.audit_events(None, 10, None, Some("alert.acknowledge")).await.unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].details, json!({"rule": "node_down", "subject": "n1"}));
}

#[tokio::test]
async fn a_portal_that_starts_anew_goes_on_with_what_was_raised() {
    let mut test = TestApp::new().await;
    looks(&test, "down", &[], 40).await;
    let before = open(&test).await;
    let config = Config::clone(&test.app.config);
    test.rebuild(config.clone());
    looks(&test, "down", &[], 60).await;
    assert_eq!(open(&test).await, before, "neither a second one nor an end");
    test.rebuild(config);
    looks(&test, "idle", &[], 60).await;
    assert_eq!(open(&test).await, []);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_keeps_no_other_s_alert_up() {
    let test = TestApp::new().await;
    let snapshot = Snapshot { reachable: true, asked_at: Some(test.clock.now()), ..Snapshot::default() };
    let look = async |own_days: i64, zabbix: Option<i64>| {
        let in_days = |days: i64| test.clock.now() + SignedDuration::from_hours(24 * days);
        let of = |key, path: &str, days: Option<i64>| Certificate { key, path: path.into(), ends: days.map(in_days) };
        let certificates = [of("server.tls_cert", "/tls/own", Some(own_days)), of("zabbix.tls_ca", "/tls/ca", zabbix)];
        let seen = Seen {
            snapshot: &snapshot,
            live: &[],
            reconcilers: &BTreeMap::new(),
            findings: &[],
            database: None,
            launcher: true,
            certificates: &certificates,
            now: test.clock.now(),
        };
        test.app.alerts.look(&seen, true).await.unwrap();
        test.clock.advance_s(5);
        open(&test).await.into_iter().map(|alert| alert.subject).collect::<BTreeSet<_>>()
    };
    let of = |subjects: &[&str]| subjects.iter().map(|subject| (*subject).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(look(3, Some(3)).await, of(&["/tls/own", "/tls/ca"]));
    assert_eq!(look(300, None).await, of(&["/tls/ca"]), "the one was renewed, and of the other nothing is known");
    assert_eq!(look(300, Some(300)).await, of(&[]));
}
