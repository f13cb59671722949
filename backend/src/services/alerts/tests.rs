use std::collections::BTreeSet;

use eirene_core::alert::AlertSeverity;
use eirene_core::scheduler::Node;
use eirene_core::{Role, TokenId};
use eirene_monitoring::{Batch, Confinement, NodeName, Sample};
use futures_util::StreamExt as _;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::config::Config;
use crate::services::actor::Via;
use crate::services::cluster::Snapshot;
use crate::services::readiness::Dependency;
use crate::testing::TestApp;

fn node(name: &str, state: &str) -> Node {
    Node {
        name: name.parse().unwrap(),
        available: state == "idle",
        state: state.into(),
        reason: (state != "idle").then(|| "it smokes".to_owned()),
        cpus: 4,
        cpus_allocated: 0,
        cpu_load: None,
        memory_mib: 1000,
        memory_allocated_mib: 0,
        gpus: Vec::new(),
        partitions: Vec::new(),
    }
}

/// One look: how node n1 is, and who runs.
async fn look(test: &TestApp, state: &str, live: &[Session]) {
    let snapshot = Snapshot {
        reachable: true,
        asked_at: Some(test.clock.now()),
        nodes: vec![node("n1", state)].into(),
        ..Snapshot::default()
    };
    let seen = platform::Seen {
        snapshot: &snapshot,
        live,
        reconcilers: &BTreeMap::new(),
        findings: &[],
        database: None,
        launcher: true,
        certificates: &[],
        now: test.clock.now(),
    };
    test.app.alerts.look(&seen, true).await.unwrap();
}

/// Looks every five seconds for so long.
async fn looks(test: &TestApp, state: &str, live: &[Session], seconds: i64) {
    for _ in 0..seconds / 5 {
        look(test, state, live).await;
        test.clock.advance_s(5);
    }
}

async fn open(test: &TestApp) -> Vec<Alert> {
    test.app.db.open_alerts().await.unwrap()
}

fn all() -> ListAlerts {
    ListAlerts { all: true, limit: 50, ..ListAlerts::default() }
}

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
    assert_eq!((event.kind, event.data["subject"].as_str()), (EventKind::Alert, Some("n1")));
    // A person hears of what is hers alone.
    test.app.events.publish(EventKind::Notice, None, Some(ada.user.id), json!(1)).await;
    assert_eq!(hers.next().await.unwrap().kind, EventKind::Notice);
    assert!(matches!(test.app.alerts.get(&ada, alert.id).await, Err(AppError::NotFound)));
    assert!(matches!(test.app.alerts.acknowledge(&ada, alert.id).await, Err(AppError::NotFound)));
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
async fn an_event_of_what_is_silenced_says_so() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let mut events = test.app.events.subscribe_all(&root, None).await.unwrap();
    let silence = NewSilence { minutes: 60, reason: "new fans".into(), ..NewSilence::default() };
    let silence = test.app.alerts.silence(&root, silence).await.unwrap();
    looks(&test, "down", &[], 40).await;
    assert_eq!(events.next().await.unwrap().data["silenced"], true);
    test.app.alerts.unsilence(&root, silence.id).await.unwrap();
    test.app.alerts.acknowledge(&root, open(&test).await[0].id).await.unwrap();
    assert_eq!(events.next().await.unwrap().data["silenced"], false);
}

#[tokio::test]
async fn what_is_silenced_is_listed_so_and_only_admins_silence() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    looks(&test, "down", &[], 40).await;
    let new = || NewSilence {
        rule: Some(AlertRule::NodeDown),
        subject: Some("n1".into()),
        minutes: 60,
        reason: "new fans".into(),
    };
    assert!(matches!(test.app.alerts.silence(&ada, new()).await, Err(AppError::Forbidden { .. })));
    assert!(matches!(test.app.alerts.silences(&ada).await, Err(AppError::Forbidden { .. })));
    let silenced = async || test.app.alerts.list(&root, all()).await.unwrap().items[0].silenced;
    assert!(!silenced().await);
    let silence = test.app.alerts.silence(&root, new()).await.unwrap();
    assert!(silenced().await);
    assert!(matches!(test.app.alerts.unsilence(&ada, silence.id).await, Err(AppError::Forbidden { .. })));
    test.app.alerts.unsilence(&root, silence.id).await.unwrap();
    assert!(matches!(test.app.alerts.unsilence(&root, silence.id).await, Err(AppError::NotFound)));
    assert!(!silenced().await);
    for (field, wrong) in [
        ("minutes", NewSilence { minutes: 0, ..new() }),
        ("minutes", NewSilence { minutes: MOST_MINUTES + 1, ..new() }),
        ("reason", NewSilence { reason: String::new(), ..new() }),
        ("reason", NewSilence { reason: "two\nlines".into(), ..new() }),
        ("subject", NewSilence { subject: Some(" n1".into()), ..new() }),
    ] {
        let Err(AppError::Invalid(errors)) = test.app.alerts.silence(&root, wrong).await else { panic!("{field}") };
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field]);
    }
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
        let of = |key, path: &str, days: Option<i64>| platform::Certificate {
            key,
            path: path.into(),
            ends: days.map(in_days),
        };
        let certificates = [of("server.tls_cert", "/tls/own", Some(own_days)), of("zabbix.tls_ca", "/tls/ca", zabbix)];
        let seen = platform::Seen {
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

#[tokio::test]
async fn memory_that_is_nearly_full_is_told_to_whose_session_it_is() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = test.clock.now();
    let begin = |session: &mut Session| {
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(now);
    };
    let session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
    let live = std::slice::from_ref(&session);
    let mut ingest = test.app.samples.ingest(session.id);
    let mut says = async |held: f64, seconds: i64| {
        for _ in 0..seconds / 5 {
            let sample = |name: &str, value| Sample { series: name.parse().unwrap(), value };
            let samples = vec![
                sample("memory_bytes", held * 4e9),
                sample("memory_limit_bytes", 4e9),
                sample("memory_reclaimable_bytes", 0.02 * 4e9),
            ];
            let node = NodeName::try_from("c1").unwrap();
            let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
            ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
            look(&test, "idle", live).await;
            test.clock.advance_s(5);
        }
    };
    says(0.96, 60).await;
    assert_eq!(open(&test).await, [], "0.94 without what the kernel takes back");
    says(0.99, 20).await;
    let alert = open(&test).await.remove(0);
    assert_eq!(
        (alert.rule, alert.session, alert.owner),
        (AlertRule::MemoryNearlyFull, Some(session.id), Some(ada.user.id))
    );
    assert!(text(&alert).as_str().contains("97\u{a0}% full"), "{}", text(&alert).as_str());
    let shown = test.app.alerts.get(&ada, alert.id).await.unwrap();
    assert_eq!(shown.known.session.unwrap().0, session.name.to_string());
    assert!(matches!(test.app.alerts.get(&grace, alert.id).await, Err(AppError::NotFound)));
    assert_eq!(test.app.alerts.of_session(session.id).await.unwrap(), [alert]);
    says(0.5, 40).await;
    assert_eq!(open(&test).await, []);
}

#[tokio::test]
async fn a_lost_gpu_of_which_nobody_tells_any_more_is_lost_until_its_session_ends() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let now = test.clock.now();
    let begin = |session: &mut Session| {
        session.nodes = vec!["c1".parse().unwrap()];
        session.started_at = Some(now);
    };
    let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
    session.resources.gpus = 1;
    let live = std::slice::from_ref(&session);
    let mut ingest = test.app.samples.ingest(session.id);
    for up in [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
        let samples = vec![Sample { series: "gpu_up/0".parse().unwrap(), value: up }];
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
        ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        looks(&test, "idle", live, 5).await;
    }
    let lost = async || open(&test).await.iter().filter(|alert| alert.rule == AlertRule::GpuLost).count();
    assert_eq!(lost().await, 1);
    looks(&test, "idle", live, 600).await;
    assert_eq!(lost().await, 1, "silence says nothing");
    looks(&test, "idle", &[], 70).await;
    assert_eq!(lost().await, 0);
}

/// A session of each, on `c1` with so many GPUs.
async fn running(test: &TestApp, people: &[&Actor], gpus: u32) -> Vec<Session> {
    let now = test.clock.now();
    let mut live = Vec::new();
    for person in people {
        let (session, _) = test.app.sessions.start(person, TestApp::wish(), None).await.unwrap();
        let begin = |session: &mut Session| {
            session.nodes = vec!["c1".parse().unwrap()];
            session.started_at = Some(now);
        };
        let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
        session.resources.gpus = gpus;
        live.push(session);
    }
    live
}

/// What the agent of a session on `c1` tells now.
async fn told<const N: usize>(test: &TestApp, session: &Session, said: [(impl AsRef<str>, f64); N]) {
    let samples = said.map(|(name, value)| Sample { series: name.as_ref().parse().unwrap(), value }).to_vec();
    let node = NodeName::try_from("c1").unwrap();
    let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
    let text = String::from_utf8(batch.write().remove(0)).unwrap();
    test.app.samples.ingest(session.id).take(&text).await;
}

#[tokio::test]
async fn of_a_divided_gpu_a_person_hears_what_slows_her_part_and_admins_hear_once_of_errors() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 1).await;
    for round in 0..30 {
        for (part, session) in live.iter().enumerate() {
            // The second has begun after the errors, and tells of none.
            let errors = if part == 0 && round > 0 { 2.0 } else { 0.0 };
            let said = [
                (format!("gpu_up/1.{part}"), 1.0),
                ("gpu_ecc_uncorrected/1".to_owned(), errors),
                ("gpu_throttled/1".to_owned(), 1.0),
            ];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    let (errors, slowed): (Vec<&Alert>, Vec<&Alert>) =
        alerts.iter().partition(|alert| alert.rule == AlertRule::GpuMemoryErrors);
    let [errors] = &errors[..] else { panic!("once, whoever tells of it: {alerts:?}") };
    assert_eq!((errors.subject.as_str(), errors.session, errors.owner), ("c1/1", None, None));
    assert!(text(errors).as_str().contains("2 memory errors"), "{}", text(errors).as_str());
    assert!(slowed.iter().all(|alert| alert.rule == AlertRule::GpuThrottled) && slowed.len() == 2, "{slowed:?}");
    for actor in [&ada, &grace] {
        let hers = test.app.alerts.list(actor, ListAlerts { limit: 50, ..ListAlerts::default() }).await.unwrap().items;
        let [hers] = &hers[..] else { panic!("{hers:?}") };
        assert_eq!(hers.known.alert.rule, AlertRule::GpuThrottled);
        assert!(hers.text.as_str().contains("of which you have a part"), "{}", hers.text.as_str());
    }
}

#[tokio::test]
async fn who_knows_of_one_session_s_word_is_told_when_another_finds_the_same() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let live = running(&test, &[&ada, &grace], 1).await;
    let says = async |errors: [f64; 2]| {
        for (part, (session, errors)) in live.iter().zip(errors).enumerate() {
            let said = [(format!("gpu_up/1.{part}"), 1.0), ("gpu_ecc_uncorrected/1".to_owned(), errors)];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    };
    says([0.0, 0.0]).await;
    says([1e6, 0.0]).await;
    let alert = open(&test).await.remove(0);
    assert_eq!((alert.rule, alert.subject.as_str()), (AlertRule::GpuMemoryErrors, "c1/1"));
    test.app.alerts.acknowledge(&root, alert.id).await.unwrap();
    let known = async || test.app.db.alert(alert.id).await.unwrap().unwrap().alert.acknowledged.is_some();
    says([2e6, 0.0]).await;
    assert!(known().await, "it is the same one who says more");
    let mut events = test.app.events.subscribe_all(&root, None).await.unwrap();
    says([2e6, 1.0]).await;
    assert!(!known().await);
    let event = loop {
        let event = events.next().await.unwrap();
        if event.kind == EventKind::Alert {
            break event;
        }
    };
    let id = alert.id.to_string();
    assert_eq!(event.data["id"].as_str(), Some(id.as_str()));
    assert_eq!(event.data.get("acknowledged_by"), None);
    let lines = test.app.db.audit_events(None, 10, None, Some("alert.unacknowledge")).await.unwrap();
    assert_eq!(lines[0].details, json!({"rule": "gpu_memory_errors", "subject": "c1/1", "value": 1.0}));
    test.app.alerts.acknowledge(&root, alert.id).await.unwrap();
    says([2e6, 1.0]).await;
    says([2e6, 2.0]).await;
    assert!(known().await, "of both they know now");
    assert_eq!(open(&test).await.len(), 1);
}

#[tokio::test]
async fn of_a_clock_that_is_wrong_admins_hear_once_whoever_tells_of_it_and_until_it_is_right() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 0).await;
    let says = async |seconds: i64, ahead: SignedDuration| {
        for _ in 0..seconds / 5 {
            for session in &live {
                let samples = vec![Sample { series: "cpu_seconds".parse().unwrap(), value: 1.0 }];
                let (node, at) = (NodeName::try_from("c1").unwrap(), test.clock.now() + ahead);
                let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
                let text = String::from_utf8(batch.write().remove(0)).unwrap();
                test.app.samples.ingest(session.id).take(&text).await;
            }
            look(&test, "idle", &live).await;
            test.clock.advance_s(5);
        }
    };
    says(60, SignedDuration::from_mins(6)).await;
    assert_eq!(open(&test).await, [], "it may be put right at once");
    says(30, SignedDuration::from_mins(6)).await;
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.subject.as_str(), alert.owner), (AlertRule::NodeClockOff, "c1", None));
    assert!(text(alert).as_str().contains("node c1 is 6 minutes ahead"), "{}", text(alert).as_str());
    let hers = test.app.alerts.list(&ada, ListAlerts { limit: 50, ..ListAlerts::default() }).await.unwrap();
    assert!(hers.items.is_empty(), "it is for admins");
    says(80, SignedDuration::ZERO).await;
    assert_eq!(open(&test).await, []);
}

#[tokio::test]
async fn where_most_nodes_are_off_by_the_same_admins_hear_of_the_portals_clock_alone() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let ada = test.ada().await;
    let session = running(&test, &[&ada], 0).await.remove(0);
    let nodes = ["c1", "c2", "c3"];
    let have = |session: &mut Session| session.nodes = nodes.map(|node| node.parse().unwrap()).to_vec();
    let live = [test.app.sessions.change(session.id, have).await.unwrap().unwrap()];
    let mut ingest = test.app.samples.ingest(session.id);
    for _ in 0..18 {
        for node in nodes {
            let samples = vec![Sample { series: "cpu_seconds".parse().unwrap(), value: 1.0 }];
            let (node, at) = (NodeName::try_from(node).unwrap(), test.clock.now() + SignedDuration::from_mins(6));
            let batch = Batch { node, at, confinement: Confinement::CgroupV2, held: None, samples };
            ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.subject.as_str()), (AlertRule::NodeClockOff, PORTAL_CLOCK));
    let said = text(alert);
    assert!(said.as_str().contains("6 minutes ahead of the portal"), "{}", said.as_str());
    let pages = test.app.samples.wrong_clocks_of(session.id);
    assert!(pages.len() == 3 && pages.iter().all(|clock| clock.text() == said), "{pages:?}");
}

#[tokio::test]
async fn of_two_parts_that_are_idle_and_not_both_tell_it_a_person_hears_only_where_nothing_is_on_the_other() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let live = running(&test, &[&ada, &grace], 2).await;
    for _ in 0..40 {
        for (session, on_it) in live.iter().zip([1.0, 0.0]) {
            let said = [
                ("gpu_util/1.0", 0.0),
                ("gpu_processes/1.0", 1.0),
                ("gpu_up/1.0", 1.0),
                ("gpu_processes/1.1", on_it),
                ("gpu_up/1.1", 1.0),
            ];
            told(&test, session, said).await;
        }
        look(&test, "idle", &live).await;
        test.clock.advance_s(60);
    }
    let alerts = open(&test).await;
    let [alert] = &alerts[..] else { panic!("{alerts:?}") };
    assert_eq!((alert.rule, alert.session), (AlertRule::GpusIdle, Some(live[1].id)));
}

#[tokio::test]
async fn a_session_that_spends_all_its_alerts_and_lies_about_a_gpu_hides_none_that_another_tells_admins() {
    let test = TestApp::new().await;
    test.app.samples.open().unwrap();
    let (ada, grace) = (test.ada().await, test.person("grace", 2002, Role::Researcher).await);
    let now = test.clock.now();
    let mut live = Vec::new();
    for person in [&grace, &ada] {
        let (session, _) = test.app.sessions.start(person, TestApp::wish(), None).await.unwrap();
        let begin = |session: &mut Session| {
            session.nodes = vec!["c1".parse().unwrap()];
            session.started_at = Some(now);
        };
        let mut session = test.app.sessions.change(session.id, begin).await.unwrap().unwrap();
        session.resources.gpus = 1;
        live.push(session);
    }
    let says = async |session: &Session, said: Vec<(String, f64)>| {
        let sample = |(name, value): (String, f64)| Sample { series: name.parse().unwrap(), value };
        let samples = said.into_iter().map(sample).collect();
        let node = NodeName::try_from("c1").unwrap();
        let batch = Batch { node, at: test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
        for text in batch.write() {
            test.app.samples.ingest(session.id).take(&String::from_utf8(text).unwrap()).await;
        }
    };
    let of = |gpu: u32, errors: f64| [(format!("gpu_up/{gpu}.0"), 1.0), (format!("gpu_ecc_uncorrected/{gpu}"), errors)];
    for round in 0..20 {
        // Errors of a hundred GPUs, and later more of the one of which the other tells then.
        let lies = if round > 0 { 7.0 } else { 0.0 };
        let (lie, truth) = if round > 10 { (1e12, 2.0) } else { (0.0, 0.0) };
        says(&live[0], (10..110).flat_map(|gpu| of(gpu, lies)).chain(of(1, lie)).collect()).await;
        says(&live[1], of(1, truth).to_vec()).await;
        look(&test, "idle", &live).await;
        test.clock.advance_s(5);
    }
    let alerts = open(&test).await;
    assert_eq!(alerts.len(), 65, "what one session may raise, and the truth");
    let told: Vec<_> = alerts.iter().filter(|alert| alert.subject == "c1/1").collect();
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((told.rule, told.owner), (AlertRule::GpuMemoryErrors, None));
    assert!(text(told).as_str().contains("2 memory errors"), "{}", text(told).as_str());
}

#[tokio::test]
async fn without_samples_nothing_is_concluded_about_sessions() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let (session, _) = test.app.sessions.start(&ada, TestApp::wish(), None).await.unwrap();
    let session = Session { started_at: Some(test.clock.now()), ..session };
    look(&test, "idle", std::slice::from_ref(&session)).await;
    assert_eq!(open(&test).await, []);
}

/// Somebody who is told: answers with these statuses, one after the other, and gives what was sent.
async fn receiver(statuses: &'static [u16]) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook?key=secret", listener.local_addr().unwrap());
    let serve = async move {
        let mut got = Vec::new();
        for status in statuses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            loop {
                let mut part = [0; 4096];
                let count = stream.read(&mut part).await.unwrap();
                request.extend_from_slice(&part[..count]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if count == 0 || body.zip(length).is_some_and(|(body, length)| body >= length) {
                    got.push(text);
                    break;
                }
            }
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        got
    };
    (address, tokio::spawn(serve))
}

fn webhook(test: &TestApp, address: &str) -> Webhook {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::clone(&test.app.config);
    config.alerts.webhook_url = Some(SecretString::from(address));
    let key = test.directory.path().join("key");
    std::fs::write(&key, "Jefe\n").unwrap();
    config.alerts.webhook_secret_file = Some(key);
    Webhook::new(&config).unwrap().unwrap()
}

/// The same of a portal that is configured so.
fn sender(test: &mut TestApp, address: &str) -> Webhook {
    let mut config = Config::clone(&test.app.config);
    config.alerts.webhook_url = Some(SecretString::from(address));
    test.rebuild(config);
    webhook(test, address)
}

fn sent(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test]
async fn a_webhook_is_told_of_the_beginning_and_the_end_and_again_where_it_was_away() {
    let test = TestApp::new().await;
    let (address, receiver) = receiver(&[503, 200, 200]).await;
    let webhook = webhook(&test, &address);
    looks(&test, "down", &[], 40).await;
    let error = test.app.alerts.tell_webhook(&webhook).await.unwrap_err().to_string();
    assert!(error.contains("503") && !error.contains("secret"), "{error}");
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(31);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let got = receiver.await.unwrap();
    assert!(got[0].contains("x-eirene-signature: sha256=") && got[0].starts_with("POST /hook?key=secret "));
    let statuses: Vec<Value> = got.iter().map(|request| sent(request)["status"].clone()).collect();
    assert_eq!(statuses, ["firing", "firing", "resolved"]);
    assert_eq!(sent(&got[2])["alerts"][0]["labels"]["node"], "n1");
}

#[tokio::test]
async fn a_webhook_whose_token_is_over_gets_everything_once_that_is_put_right() {
    let mut test = TestApp::new().await;
    let (address, receiver) = receiver(&[401, 403, 404, 200, 200]).await;
    let webhook = sender(&mut test, &address);
    assert_eq!(test.app.alerts.sending(), Some(Ok(())));
    looks(&test, "down", &[], 40).await;
    for (status, wait_s) in [("401", 30), ("403", 60), ("404", 120)] {
        // It is asked once, and left alone for ever longer; all that time it is said what is wrong.
        for wait_s in [wait_s - 1, 2] {
            let error = test.app.alerts.tell_webhook(&webhook).await.unwrap_err().to_string();
            assert!(error.contains(status) && !error.contains("secret"), "{error}");
            let Some(Err((trouble, why))) = test.app.alerts.sending() else { panic!("{status} is nothing") };
            assert!(trouble == Trouble::WebhookRefuses && why.contains(status), "{trouble:?}: {why}");
            let report = test.app.readiness.report().await.unwrap();
            let line = report.lines.iter().find(|line| line.what == Dependency::Webhook).unwrap();
            assert!(line.trouble == Some(Trouble::WebhookRefuses) && line.detail.contains(status), "{line:?}");
            test.clock.advance_s(wait_s);
        }
    }
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(test.app.alerts.sending(), Some(Ok(())));
    let statuses: Vec<Value> = receiver.await.unwrap().iter().map(|request| sent(request)["status"].clone()).collect();
    assert_eq!(statuses, ["firing", "firing", "firing", "firing", "resolved"]);
}

#[tokio::test]
async fn one_message_that_a_webhook_does_not_take_stops_no_other() {
    let mut test = TestApp::new().await;
    let (address, receiver) = receiver(&[400, 200, 500, 200, 200]).await;
    let webhook = sender(&mut test, &address);
    let ada = test.ada().await;
    let hers = session(&test, &ada).await;
    let mut begun = Vec::new();
    for _ in 0..2 {
        begun.push(idle(&test, &hers).await);
        test.clock.advance_s(1);
    }
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    for _ in 0..2 {
        begun.push(idle(&test, &hers).await);
        test.clock.advance_s(1);
    }
    test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
    test.clock.advance_s(31);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let got = receiver.await.unwrap();
    let got: Vec<Value> = got.iter().map(|request| sent(request)["alerts"][0]["fingerprint"].clone()).collect();
    let expected = [0, 1, 2, 3, 2].map(|number: usize| json!(begun[number]));
    assert_eq!(got, expected);
}

#[tokio::test]
async fn a_webhook_that_calls_a_message_wrong_is_on_the_page_of_health_until_it_takes_one() {
    let mut test = TestApp::new().await;
    let (address, receiver) = receiver(&[422, 200]).await;
    let webhook = sender(&mut test, &address);
    let ada = test.ada().await;
    let hers = session(&test, &ada).await;
    idle(&test, &hers).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let Some(Err((trouble, why))) = test.app.alerts.sending() else { panic!("nothing is said") };
    assert!(trouble == Trouble::WebhookRefusedOne && why.contains("422"), "{trouble:?}: {why}");
    idle(&test, &hers).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(test.app.alerts.sending(), Some(Ok(())));
    assert_eq!(receiver.await.unwrap().len(), 2, "what was refused is not sent again");
}

#[tokio::test]
async fn a_webhook_that_was_away_is_on_the_page_of_health_until_there_is_nothing_more_for_it() {
    let refusals: [&'static [u16]; 2] = [&[503], &[401]];
    for status in refusals {
        let mut test = TestApp::new().await;
        let root = test.person("root-admin", 2003, Role::Admin).await;
        let (address, receiver) = receiver(status).await;
        let webhook = sender(&mut test, &address);
        looks(&test, "down", &[], 40).await;
        test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
        let silence = NewSilence { minutes: 60, reason: "new fans".into(), ..NewSilence::default() };
        test.app.alerts.silence(&root, silence).await.unwrap();
        test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
        assert!(matches!(test.app.alerts.sending(), Some(Err(_))), "it is left alone for a while");
        test.clock.advance_s(31);
        test.app.alerts.tell_webhook(&webhook).await.unwrap();
        assert_eq!(test.app.alerts.sending(), Some(Ok(())));
        assert_eq!(receiver.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_webhook_that_refuses_a_beginning_hears_of_no_end_and_of_what_is_silenced_nothing() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let (address, receiver) = receiver(&[400, 200, 400]).await;
    let webhook = webhook(&test, &address);
    looks(&test, "down", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(31);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let wish = NewSilence { rule: Some(AlertRule::NodeDrained), minutes: 10, reason: "x".into(), subject: None };
    test.app.alerts.silence(&root, wish).await.unwrap();
    looks(&test, "drained", &[], 70).await;
    assert_eq!(open(&test).await[0].rule, AlertRule::NodeDrained);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    looks(&test, "idle", &[], 10).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(1000);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    // What comes next it takes, and an end that it refuses is not sent again either.
    looks(&test, "down", &[], 60).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(31);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let got: Vec<Value> = receiver.await.unwrap().iter().map(|request| sent(request)).collect();
    let statuses: Vec<&Value> = got.iter().map(|sent| &sent["status"]).collect();
    assert_eq!(statuses, ["firing", "firing", "resolved"]);
    assert_ne!(got[0]["alerts"][0]["fingerprint"], got[1]["alerts"][0]["fingerprint"]);
    assert_eq!(got[1]["alerts"][0]["fingerprint"], got[2]["alerts"][0]["fingerprint"]);
}

#[tokio::test]
async fn what_began_and_ended_while_a_webhook_was_away_is_told_from_its_beginning() {
    let test = TestApp::new().await;
    let (address, receiver) = receiver(&[503, 200, 503, 200]).await;
    let webhook = webhook(&test, &address);
    looks(&test, "down", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
    looks(&test, "idle", &[], 40).await;
    // The beginning is taken and the end is not: the next time the end alone is due.
    test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
    test.clock.advance_s(31);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let got: Vec<Value> = receiver.await.unwrap().iter().map(|request| sent(request)).collect();
    let statuses: Vec<&Value> = got.iter().map(|sent| &sent["status"]).collect();
    assert_eq!(statuses, ["firing", "firing", "resolved", "resolved"]);
    assert_eq!(got[1]["alerts"][0]["endsAt"], "0001-01-01T00:00:00Z");
}

#[tokio::test]
async fn what_goes_on_after_a_silence_of_days_is_told_when_that_is_over_and_what_does_not_is_not() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let (address, receiver) = receiver(&[200, 200]).await;
    let webhook = webhook(&test, &address);
    let wish = NewSilence { rule: Some(AlertRule::NodeDown), minutes: 3 * 24 * 60, reason: "x".into(), subject: None };
    test.app.alerts.silence(&root, wish.clone()).await.unwrap();
    looks(&test, "down", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(2 * 24 * 3600);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(open(&test).await.len(), 1);
    test.clock.advance_s(24 * 3600);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    // One that was over before its silence is none of anybody's business afterwards.
    test.clock.advance_s(600);
    test.app.alerts.silence(&root, wish).await.unwrap();
    looks(&test, "down", &[], 60).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(2 * 24 * 3600);
    looks(&test, "idle", &[], 40).await;
    test.clock.advance_s(2 * 24 * 3600);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let statuses: Vec<Value> = receiver.await.unwrap().iter().map(|request| sent(request)["status"].clone()).collect();
    assert_eq!(statuses, ["firing", "resolved"]);
}

#[tokio::test]
async fn what_goes_on_for_longer_than_a_webhook_is_away_and_ends_untold_is_dropped_and_what_was_silenced_is_not() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let (address, receiver) = receiver(&[503]).await;
    let webhook = webhook(&test, &address);
    looks(&test, "down", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap_err();
    test.clock.advance_s(30 * 3600);
    looks(&test, "idle", &[], 40).await;
    let untold = async || {
        let (start, now) = (Timestamp::UNIX_EPOCH, test.clock.now());
        test.app.db.untold_alerts(start, now, start, 10).await.unwrap().len()
    };
    assert_eq!(untold().await, 1);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(untold().await, 0);
    let wish = NewSilence { rule: Some(AlertRule::NodeDown), minutes: 3 * 24 * 60, reason: "x".into(), subject: None };
    test.app.alerts.silence(&root, wish).await.unwrap();
    test.clock.advance_s(600);
    looks(&test, "down", &[], 40).await;
    let silenced = open(&test).await[0].id;
    test.clock.advance_s(30 * 3600);
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(untold().await, 0);
    assert!(test.app.db.alert(silenced).await.unwrap().unwrap().is_told, "nobody has missed it");
    assert_eq!(receiver.await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_end_of_what_a_webhook_was_told_of_is_told_days_later_and_in_a_silence_too() {
    let test = TestApp::new().await;
    let root = test.person("root-admin", 2003, Role::Admin).await;
    let (address, receiver) = receiver(&[200, 200, 200, 200]).await;
    let webhook = webhook(&test, &address);
    looks(&test, "down", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(3 * 24 * 3600);
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    // What has just ended is not raised again.
    test.clock.advance_s(600);
    looks(&test, "down", &[], 60).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    let wish = NewSilence { rule: Some(AlertRule::NodeDown), minutes: 600, reason: "x".into(), subject: None };
    test.app.alerts.silence(&root, wish).await.unwrap();
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    // What begins in the silence and ends in it is nobody's business.
    test.clock.advance_s(600);
    looks(&test, "down", &[], 60).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    looks(&test, "idle", &[], 40).await;
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    test.clock.advance_s(60);
    test.app.alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(open(&test).await, []);
    let statuses: Vec<Value> = receiver.await.unwrap().iter().map(|request| sent(request)["status"].clone()).collect();
    assert_eq!(statuses, ["firing", "resolved", "firing", "resolved"]);
}

/// An alert that the GPUs of a session are idle, which goes on.
async fn idle(test: &TestApp, session: &Session) -> AlertId {
    let alert = Alert {
        id: AlertId::generate(),
        rule: AlertRule::GpusIdle,
        severity: AlertSeverity::Info,
        subject: AlertId::generate().to_string(),
        session: Some(session.id),
        owner: Some(session.owner),
        value: 30.0,
        details: BTreeMap::new(),
        started_at: test.clock.now(),
        ended_at: None,
        acknowledged: None,
    };
    test.app.db.insert_alert(&alert).await.unwrap();
    alert.id
}

async fn session(test: &TestApp, owner: &Actor) -> Session {
    test.app.sessions.start(owner, TestApp::wish(), None).await.unwrap().0
}

fn own(job: Option<SessionId>) -> NewOwnSilence {
    NewOwnSilence { rule: AlertRule::GpusIdle, job, minutes: 60, reason: None }
}

/// Ids of alerts, and whether they are silenced, as they are listed.
async fn silenced(test: &TestApp, actor: &Actor, all: bool) -> BTreeMap<AlertId, bool> {
    let which = ListAlerts { all, limit: 50, ..ListAlerts::default() };
    let items = test.app.alerts.list(actor, which).await.unwrap().items;
    items.iter().map(|listed| (listed.known.alert.id, listed.silenced)).collect()
}

#[tokio::test]
async fn what_somebody_silences_for_one_session_is_hidden_from_them_and_from_nobody_else() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let (one, other) = (session(&test, &ada).await, session(&test, &ada).await);
    let (a, b) = (idle(&test, &one).await, idle(&test, &other).await);
    let alerts = &test.app.alerts;
    let silence = alerts.silence_own(&ada, own(Some(one.id))).await.unwrap();
    assert_eq!((silence.owner, silence.by.as_str()), (Some(ada.user.id), "ada"));

    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, true), (b, false)]));
    assert_eq!(silenced(&test, &root, true).await, BTreeMap::from([(a, false), (b, false)]));
    assert!(alerts.get(&ada, a).await.unwrap().silenced && !alerts.get(&root, a).await.unwrap().silenced);
    let told = async |actor: &Actor, session: &Session| {
        let told = alerts.told_of_session(actor, session.id).await.unwrap();
        told.iter().map(|alert| alert.id).collect::<Vec<_>>()
    };
    assert_eq!((told(&ada, &one).await, told(&ada, &other).await), (vec![], vec![b]));
    assert_eq!(told(&root, &one).await, [a]);

    let mut hers = test.app.events.subscribe(&ada, None, None).await.unwrap();
    let mut everybodys = test.app.events.subscribe_all(&root, None).await.unwrap();
    alerts.tell(a).await;
    alerts.tell(b).await;
    assert_eq!(hers.next().await.unwrap().data["id"], b.to_string());
    let event = everybodys.next().await.unwrap();
    assert_eq!((&event.data["id"], &event.data["silenced"]), (&json!(a.to_string()), &json!(false)));

    test.clock.advance_s(60 * 60);
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, false), (b, false)]), "its time is over");
    assert_eq!(told(&ada, &one).await, [a]);
}

#[tokio::test]
async fn what_somebody_silences_for_all_of_theirs_is_lifted_by_them_and_by_admins_alone() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let grace = test.person("grace", 2002, Role::Researcher).await;
    let (hers, graces) = (session(&test, &ada).await, session(&test, &grace).await);
    let (a, g) = (idle(&test, &hers).await, idle(&test, &graces).await);
    let alerts = &test.app.alerts;
    let silence = alerts.silence_own(&ada, own(None)).await.unwrap();
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, true)]));
    assert_eq!(silenced(&test, &grace, false).await, BTreeMap::from([(g, false)]));
    assert_eq!(alerts.told_of_session(&grace, graces.id).await.unwrap().len(), 1);

    assert_eq!(alerts.own_silences(&ada).await.unwrap(), std::slice::from_ref(&silence));
    assert_eq!(alerts.own_silences(&grace).await.unwrap(), []);
    assert_eq!(alerts.own_silences(&root).await.unwrap(), []);
    assert!(matches!(alerts.silences(&grace).await, Err(AppError::Forbidden { .. })));
    assert_eq!(alerts.silences(&root).await.unwrap(), std::slice::from_ref(&silence));
    assert!(matches!(alerts.unsilence_own(&grace, silence.id).await, Err(AppError::NotFound)));
    assert!(matches!(alerts.unsilence_own(&root, silence.id).await, Err(AppError::NotFound)), "it is not theirs");
    alerts.unsilence_own(&ada, silence.id).await.unwrap();
    assert_eq!(silenced(&test, &ada, false).await, BTreeMap::from([(a, false)]));
    assert!(matches!(alerts.unsilence_own(&ada, silence.id).await, Err(AppError::NotFound)));

    let again = alerts.silence_own(&ada, own(None)).await.unwrap();
    alerts.unsilence(&root, again.id).await.unwrap();
    assert_eq!(alerts.own_silences(&ada).await.unwrap(), []);
    // What an admin has silenced is lifted by nobody as their own.
    let new = NewSilence { minutes: 60, reason: "new fans".into(), ..NewSilence::default() };
    let admins = alerts.silence(&root, new).await.unwrap();
    for actor in [&ada, &root] {
        assert!(matches!(alerts.unsilence_own(actor, admins.id).await, Err(AppError::NotFound)));
    }
    let lines = test.app.db.audit_events(None, 10, None, Some("alert.silence")).await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.details["own"] == true).count(), 2);
}

#[tokio::test]
async fn a_silence_of_ones_own_is_of_ones_own_sessions_and_for_a_bounded_time() {
    let test = TestApp::new().await;
    let (ada, root) = (test.ada().await, test.person("root-admin", 2003, Role::Admin).await);
    let grace = test.person("grace", 2002, Role::Researcher).await;
    let hers = session(&test, &ada).await;
    let alerts = &test.app.alerts;
    let wrong = async |actor: &Actor, new: NewOwnSilence| match alerts.silence_own(actor, new).await {
        Err(AppError::Invalid(errors)) => errors,
        other => panic!("{other:?}"),
    };
    // Somebody else's is as good as not there, for admins too.
    let no_such = wrong(&grace, own(Some(SessionId::generate()))).await;
    assert_eq!(wrong(&grace, own(Some(hers.id))).await, no_such);
    assert_eq!(wrong(&root, own(Some(hers.id))).await, no_such);
    for (field, new) in [
        ("job", own(Some(SessionId::generate()))),
        ("rule", NewOwnSilence { rule: AlertRule::NodeDown, ..own(None) }),
        ("minutes", NewOwnSilence { minutes: 0, ..own(None) }),
        ("minutes", NewOwnSilence { minutes: MOST_MINUTES + 1, ..own(None) }),
        ("reason", NewOwnSilence { reason: Some("two\nlines".into()), ..own(None) }),
    ] {
        let errors = wrong(&ada, new).await;
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field]);
    }
    let via = Via::Token { id: TokenId::generate(), scopes: vec![Scope::SessionsRead] };
    let program = Actor { via, ..ada.clone() };
    let refused = alerts.silence_own(&program, own(None)).await;
    assert!(matches!(refused, Err(AppError::Forbidden { code: "insufficient_scope", .. })));
    assert_eq!(alerts.own_silences(&program).await.unwrap(), []);

    for _ in 0..MOST_OWN {
        alerts.silence_own(&ada, own(Some(hers.id))).await.unwrap();
    }
    let refused = alerts.silence_own(&ada, own(None)).await;
    assert!(matches!(refused, Err(AppError::Conflict { code: "too_many_silences", .. })));
    alerts.silence_own(&grace, own(None)).await.unwrap();
    test.clock.advance_s(60 * 60);
    alerts.silence_own(&ada, own(None)).await.unwrap();
}

#[tokio::test]
async fn who_heard_of_an_alert_before_silencing_it_hears_that_it_is_over() {
    let test = TestApp::new().await;
    let ada = test.ada().await;
    let hers = session(&test, &ada).await;
    let before = idle(&test, &hers).await;
    test.clock.advance_s(5);
    let alerts = &test.app.alerts;
    alerts.silence_own(&ada, own(None)).await.unwrap();
    test.clock.advance_s(5);
    let after = idle(&test, &hers).await;
    let mut events = test.app.events.subscribe(&ada, None, None).await.unwrap();
    alerts.tell(before).await;
    for id in [after, before] {
        alerts.end(id, test.clock.now()).await.unwrap();
    }
    let event = events.next().await.unwrap();
    assert_eq!(event.data["id"], before.to_string(), "the other began and ended in the silence");
    assert!(event.data["ended_at"].is_string(), "{}", event.data);
}
