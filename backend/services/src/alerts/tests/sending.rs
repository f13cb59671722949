//! What a webhook is told, whatever it answers and however long it is away.

use secrecy::SecretString;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::alerts::webhook::Webhook;
use crate::config::Config;
use crate::health::problem::Trouble;
use crate::health::readiness::Dependency;

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
