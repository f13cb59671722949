//! What the portal depends on, as admins see it by page and by token, and that nobody else does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use eirene_core::AlertId;
use eirene_core::alert::{Alert, AlertRule, AlertSeverity};
use eirene_services::alerts::webhook::Webhook;
use eirene_services::testing::StorageMood;

use super::*;

const PAGE: &str = "/admin/health";
const FRAGMENT: &str = "/fragments/admin/health";
const API: &str = "/api/v1/health";

impl Server {
    async fn health(&self, admin: &Person) -> Value {
        // A look is good for so long.
        self.test.clock.advance_s(2);
        self.portal(Ask::get(API).bearer(admin)).await.json()
    }
}

/// The line of this kind.
fn line<'a>(health: &'a Value, kind: &str) -> &'a Value {
    let lines = health["dependencies"].as_array().unwrap();
    lines.iter().find(|line| line["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {health}"))
}

#[tokio::test]
async fn admins_read_what_is_wrong_and_what_to_do_and_the_page_needs_no_script() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.test.app.status.note("submit", server.test.clock.now(), Duration::from_millis(7), None);
    server.test.app.status.note("observe", server.test.clock.now(), Duration::ZERO, Some("<b>no</b> luck".into()));
    let page = server.portal(Ask::get(PAGE).page().cookie(&admin)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    for shown in [
        "Database",
        "It takes no connections.",
        "systemctl status eirene-launcher",
        "SLURM",
        "Store of samples",
        "Background work: submit",
        "in 7\u{a0}ms",
        "Background work: observe",
        "&lt;b&gt;no&lt;",
        "2 of them need a look.",
        "0 agents of sessions and runs are connected.",
        "http-equiv=\"refresh\"",
        "data-live=\"/fragments/admin/health\"",
        "href=\"/admin/health\" aria-current=\"page\"",
    ] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    let fragment = server.portal(Ask::get(FRAGMENT).cookie(&admin)).await;
    assert!(fragment.body.contains("Database") && !fragment.body.contains("<html"), "{}", fragment.body);
    assert!(page.body.contains(fragment.body.trim()), "the same look");
}

#[tokio::test]
async fn nobody_but_admins_sees_how_the_portal_is_doing() {
    let server = Server::start().await;
    let ada = server.ada().await;
    for path in [PAGE, FRAGMENT] {
        let answer = server.portal(Ask::get(path).page().cookie(&ada)).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(!answer.body.contains("Launcher"), "{}", answer.body);
        assert_eq!(server.portal(Ask::get(path).page()).await.status, StatusCode::SEE_OTHER, "{path}");
    }
    assert_eq!(server.portal(Ask::get(API).bearer(&ada)).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.portal(Ask::get(API)).await.status, StatusCode::UNAUTHORIZED);
    let own = server.portal(Ask::get("/").page().cookie(&ada)).await;
    assert!(!own.body.contains(PAGE), "nothing leads her there");
}

#[tokio::test]
async fn programs_read_the_same_and_since_when_it_is_so() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let first = server.health(&admin).await;
    assert_eq!(first["usable"], true, "{first}");
    assert_eq!(line(&first, "database")["ok"], true);
    assert!(line(&first, "database")["took_ms"].is_u64() && line(&first, "database")["trouble"].is_null(), "{first}");
    let launcher = line(&first, "launcher");
    assert_eq!((&launcher["ok"], &launcher["trouble"]["code"]), (&Value::from(false), &Value::from("launcher_away")));
    assert!(launcher["trouble"]["cure"].as_str().unwrap().contains("eirene-launcher"), "{launcher}");
    assert!(launcher["answered_at"].is_null() && launcher["took_ms"].is_null(), "it has given no answer: {launcher}");
    assert_eq!(launcher["since"], first["as_of"], "it was seen for the first time");

    let second = server.health(&admin).await;
    assert_ne!(second["as_of"], first["as_of"]);
    assert_eq!(line(&second, "launcher")["since"], first["as_of"], "nothing has changed");

    let socket = tokio::net::UnixListener::bind(&server.test.app.config.launcher.socket).unwrap();
    let third = server.health(&admin).await;
    let launcher = line(&third, "launcher");
    assert_eq!((&launcher["since"], &launcher["answered_at"]), (&third["as_of"], &third["as_of"]), "{launcher}");
    assert!(launcher["trouble"].is_null(), "{launcher}");
    let took = launcher["took_ms"].clone();

    drop(socket);
    let fourth = server.health(&admin).await;
    let launcher = line(&fourth, "launcher");
    assert_eq!((&launcher["ok"], &launcher["since"]), (&Value::from(false), &fourth["as_of"]), "{launcher}");
    assert_eq!(
        (&launcher["answered_at"], &launcher["took_ms"]),
        (&third["as_of"], &took),
        "its last answer: {launcher}"
    );
}

#[tokio::test]
async fn the_page_tells_no_answer_yet_from_what_nobody_asks_and_keeps_the_last_one_of_what_went_away() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let said = async |name: &str| {
        server.test.clock.advance_s(2);
        let page = server.portal(Ask::get(FRAGMENT).cookie(&admin)).await.body;
        let (_, row) = page.split_once(&format!(">{name}</th>")).unwrap_or_else(|| panic!("no {name}: {page}"));
        row.split("</tr>").next().unwrap().to_owned()
    };
    assert!(said("Launcher").await.contains("none seen yet"));
    assert!(said("Store of samples").await.contains("is not asked"));

    let socket = tokio::net::UnixListener::bind(&server.test.app.config.launcher.socket).unwrap();
    let last = |row: &str| row.rsplit_once("data-label=\"Last answer\"").expect("it has that column").1.to_owned();
    let there = last(&said("Launcher").await);
    assert!(there.contains("datetime="), "{there}");
    drop(socket);
    let away = said("Launcher").await;
    assert!(away.contains("It takes no connections."), "{away}");
    assert_eq!(last(&away), there, "the time of its last answer");
}

#[tokio::test]
async fn a_root_that_went_away_is_told_with_its_last_answer() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let storage = &server.test.app.storage;
    server.test.storage.state().mood = StorageMood::Away;
    storage.look().await;
    let never = server.health(&admin).await;
    let root = line(&never, "storage_root");
    assert_eq!((&root["ok"], &root["answered_at"]), (&Value::from(false), &Value::Null), "it has given none: {root}");

    server.test.storage.state().mood = StorageMood::Good;
    storage.look().await;
    let answered = Value::from(server.test.clock.now().to_string());
    let good = server.health(&admin).await;
    let root = line(&good, "storage_root");
    assert_eq!((&root["ok"], &root["answered_at"]), (&Value::from(true), &answered), "{root}");

    server.test.storage.state().mood = StorageMood::Away;
    storage.look().await;
    let away = server.health(&admin).await;
    let root = line(&away, "storage_root");
    assert_eq!((&root["ok"], &root["answered_at"]), (&Value::from(false), &answered), "{root}");
}

/// Whoever is sent alerts: answers what `says` has.
async fn hook(says: &Arc<AtomicU16>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = format!("http://{}/hook?key=5ec2e7", listener.local_addr().unwrap());
    let says = Arc::clone(says);
    let answer = move || {
        let status = StatusCode::from_u16(says.load(Ordering::Relaxed)).unwrap();
        async move { status }
    };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

#[tokio::test]
async fn a_webhook_that_refuses_is_told_with_what_to_do_and_counted_and_its_address_is_nowhere() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut test = TestApp::new().await;
    let says = Arc::new(AtomicU16::new(401));
    let mut config = (*test.app.config).clone();
    config.alerts.webhook_url = Some(hook(&says).await.into());
    test.rebuild(config);
    let server = Server::serve(test).await;
    let admin = server.admin().await;
    assert_eq!(line(&server.health(&admin).await, "webhook")["ok"], true);
    let counted = async |series: &str| -> u64 {
        let body = server.portal(Ask::get("/metrics")).await.body;
        body.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or(0)
    };
    let (refused, given_up, taken) = (
        "eirene_alert_webhook_failures_total{reason=\"refused\"}",
        "eirene_alert_webhook_messages_total{result=\"given_up\"}",
        "eirene_alert_webhook_messages_total{result=\"taken\"}",
    );
    let before = [counted(refused).await, counted(given_up).await, counted(taken).await];
    let alerts = &server.test.app.alerts;
    let raise = async |subject: &str| {
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::NodeDown,
            severity: AlertSeverity::Critical,
            subject: subject.into(),
            session: None,
            owner: None,
            value: 1.0,
            details: BTreeMap::new(),
            started_at: server.test.clock.now(),
            ended_at: None,
            acknowledged: None,
        };
        server.test.app.db.insert_alert(&alert).await.unwrap();
    };
    raise("n1").await;
    let webhook = Webhook::new(&server.test.app.config).unwrap().unwrap();
    alerts.tell_webhook(&webhook).await.unwrap_err();
    let health = server.health(&admin).await;
    let trouble = &line(&health, "webhook")["trouble"];
    assert_eq!(trouble["code"], "webhook_refuses");
    assert!(trouble["detail"].as_str().unwrap().contains("401"), "{trouble}");
    assert!(trouble["cure"].as_str().unwrap().contains("key"), "{trouble}");
    let page = server.portal(Ask::get(PAGE).page().cookie(&admin)).await.body;
    assert!(page.contains("Webhook for alerts") && page.contains("It refuses whatever the portal sends."), "{page}");
    let ready = server.portal(Ask::get("/readyz")).await.body;
    assert!(ready.contains("webhook: refuses alerts"), "{ready}");
    assert!(![health.to_string(), page, ready].iter().any(|text| text.contains("5ec2e7")), "the address is a secret");

    says.store(422, Ordering::Relaxed);
    server.test.clock.advance_s(31);
    alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(line(&server.health(&admin).await, "webhook")["trouble"]["code"], "webhook_refused_one");
    says.store(200, Ordering::Relaxed);
    raise("n2").await;
    alerts.tell_webhook(&webhook).await.unwrap();
    assert_eq!(line(&server.health(&admin).await, "webhook")["ok"], true);
    // Other tests of this process count as well.
    let after = [counted(refused).await, counted(given_up).await, counted(taken).await];
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?}, then {after:?}");
}

#[tokio::test]
async fn whoever_knows_since_when_is_believed() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (status, good) = (&server.test.app.status, server.test.clock.now());
    status.note("observe", good, Duration::ZERO, None);
    server.test.clock.advance_s(60);
    status.note("observe", server.test.clock.now(), Duration::ZERO, Some("the reason".into()));
    let snapshot = testing::snapshot(vec![]);
    server.test.app.cluster.publish(eirene_services::cluster::Snapshot {
        reachable: false,
        trouble: Some("connection refused".into()),
        ..snapshot
    });
    let health = server.health(&admin).await;
    let failing = line(&health, "reconciler");
    assert_eq!(failing["name"], "observe");
    assert_eq!(failing["since"], good.to_string(), "since its last good run: {failing}");
    assert_eq!(failing["trouble"]["detail"], "the reason");
    let slurm = line(&health, "slurm");
    assert_eq!(slurm["trouble"]["detail"], "connection refused", "{slurm}");
    assert_eq!(health["usable"], true, "for that the database alone is needed");
}
