//! Sends alerts to whoever has asked for them: by HTTP POST, one at a time, in the form of Alertmanager's webhooks
//! (prometheus.io/docs/alerting/latest/configuration/#webhook_config, version 4), with `text` besides, which chat programs show.
//!
//! What is sent is signed where there is a key: `X-Eirene-Signature: sha256=<hexadecimal HMAC-SHA256 of the body>`. Redirects are not followed,
//! answers are not read, and the address, which may hold a secret, is in no error and no log.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use eirene_core::JobKind;
use eirene_core::alert::KnownAlert;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Client, StatusCode, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sha2::Sha256;

use super::text::text;
use crate::config;
use crate::health::problem::Trouble;

/// An answer has to come within this time.
const WAIT: Duration = Duration::from_secs(10);
/// What Alertmanager writes for a time that is not known yet.
const NOT_YET: &str = "0001-01-01T00:00:00Z";

/// What came of sending one.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was taken.
    Taken,
    /// It will never be: the answer says that this one is wrong.
    Refused(StatusCode),
    /// It may be, later: what is wrong has nothing to do with what was sent.
    Later(Trouble, String),
}

/// Where alerts are sent.
pub struct Webhook {
    client: Client,
    address: Url,
    key: Option<SecretString>,
    portal: String,
}

impl Webhook {
    /// As it is configured; none where it is not.
    ///
    /// # Errors
    /// A file of the configuration cannot be read, or holds no address.
    pub fn new(config: &config::Config) -> anyhow::Result<Option<Self>> {
        let Some(address) = config.alerts.webhook_address()? else { return Ok(None) };
        // Not the error of whoever parses it: that would repeat the address.
        let address = Url::parse(address.expose_secret()).ok().context("the webhook's address is not understood")?;
        let client = Client::builder().redirect(redirect::Policy::none()).timeout(WAIT).build()?;
        let portal = config.portal_origin().to_owned();
        Ok(Some(Self { client, address, key: config.alerts.webhook_secret()?, portal }))
    }

    /// Sends what is to be said of an alert now.
    pub async fn send(&self, known: &KnownAlert) -> Sent {
        let body = body(known, &self.portal).to_string();
        let mut request = self.client.post(self.address.clone()).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("x-eirene-signature", signature(key, body.as_bytes()));
        }
        match request.body(body).send().await {
            Ok(answer) if answer.status().is_success() => Sent::Taken,
            Ok(answer) => judged(answer.status()),
            Err(error) => Sent::Later(Trouble::WebhookAway, error.without_url().to_string()),
        }
    }
}

/// Who answers that what was sent is wrong says so of the same the next time as well. Any other refusal is of whoever sends (a token that is over) or
/// of where it is sent (an address that has moved), which somebody will put right: until then nothing is lost.
fn judged(status: StatusCode) -> Sent {
    if [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY].contains(&status) {
        return Sent::Refused(status);
    }
    let is_patient = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // Redirects are not followed, so whoever redirects refuses.
    let refuses = status.is_client_error() || status.is_redirection();
    let trouble = if refuses && !is_patient { Trouble::WebhookRefuses } else { Trouble::WebhookAway };
    Sent::Later(trouble, format!("it answered {status}"))
}

fn signature(key: &SecretString, body: &[u8]) -> String {
    // A key of any length is taken.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.expose_secret().as_bytes()) else { return String::new() };
    mac.update(body);
    let mut text = "sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn body(known: &KnownAlert, portal: &str) -> Value {
    let alert = &known.alert;
    let summary = text(alert);
    let status = if alert.ended_at.is_some() { "resolved" } else { "firing" };
    let mut labels = json!({
        "alertname": alert.rule, "severity": alert.severity, "subject": alert.subject,
    });
    let mut address = format!("{portal}/alerts");
    if let (Some(id), Some((name, kind, owner))) = (alert.session, &known.session) {
        let (word, folder) = match kind {
            JobKind::Session => ("session", "sessions"),
            JobKind::Run => ("run", "runs"),
        };
        labels[word] = name.as_str().into();
        labels["owner"] = owner.as_str().into();
        address = format!("{portal}/{folder}/{id}");
    }
    for name in ["node", "gpu"] {
        if let Some(value) = alert.details.get(name) {
            labels[name] = value.as_str().into();
        }
    }
    let annotations = json!({"summary": summary.as_str()});
    let one = json!({
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": alert.started_at,
        "endsAt": alert.ended_at.map_or_else(|| NOT_YET.to_owned(), |at| at.to_string()),
        "generatorURL": address,
        "fingerprint": alert.id,
    });
    json!({
        "version": "4",
        "groupKey": format!("{}:{}", alert.rule, alert.subject),
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "eirene",
        "groupLabels": {"alertname": alert.rule},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": portal,
        "alerts": [one],
        "text": format!("[{}] {}", if status == "firing" { alert.severity.as_str() } else { status }, summary.as_str()),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eirene_core::alert::{Alert, AlertRule, AlertSeverity};
    use eirene_core::{AlertId, SessionId};
    use jiff::Timestamp;

    use super::*;

    fn known(over: bool) -> KnownAlert {
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::GpuLost,
            severity: AlertSeverity::Critical,
            subject: "s/n1/3".into(),
            session: Some(SessionId::generate()),
            owner: None,
            value: 1.0,
            details: BTreeMap::from([("node".into(), "n1".into()), ("gpu".into(), "3".into())]),
            started_at: Timestamp::from_second(1000).unwrap(),
            ended_at: over.then(|| Timestamp::from_second(2000).unwrap()),
            acknowledged: None,
        };
        KnownAlert { alert, session: Some(("mine".into(), JobKind::Run, "ada".parse().unwrap())), is_told: over }
    }

    #[test]
    fn it_is_what_receivers_of_alertmanager_read() {
        let raised = body(&known(false), "https://e.example.org");
        assert_eq!((&raised["version"], &raised["status"]), (&json!("4"), &json!("firing")));
        let alert = &raised["alerts"][0];
        let expected = json!({
            "alertname": "gpu_lost", "severity": "critical", "subject": "s/n1/3", "run": "mine", "owner": "ada", "node": "n1",
            "gpu": "3",
        });
        assert_eq!(alert["labels"], expected);
        assert_eq!((&alert["startsAt"], &alert["endsAt"]), (&json!("1970-01-01T00:16:40Z"), &json!(NOT_YET)));
        assert!(alert["generatorURL"].as_str().unwrap().starts_with("https://e.example.org/runs/"));
        assert!(raised["text"].as_str().unwrap().starts_with("[critical] "));
        let over = body(&known(true), "https://e.example.org");
        assert_eq!(
            (&over["status"], &over["alerts"][0]["endsAt"]),
            (&json!("resolved"), &json!("1970-01-01T00:33:20Z"))
        );
    }

    #[test]
    fn the_signature_is_that_of_rfc_4231() {
        let key = SecretString::from("Jefe");
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(&key, b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn who_says_that_a_message_is_wrong_is_believed_and_others_are_asked_again() {
        let judged = |status: u16| judged(StatusCode::from_u16(status).unwrap());
        for refused in [400, 413, 422] {
            assert_eq!(judged(refused), Sent::Refused(StatusCode::from_u16(refused).unwrap()));
        }
        for (trouble, statuses) in [
            (Trouble::WebhookRefuses, [301, 401, 403, 404, 405, 410]),
            (Trouble::WebhookAway, [408, 429, 500, 502, 503, 504]),
        ] {
            for status in statuses {
                let Sent::Later(why, said) = judged(status) else { panic!("{status} is given up") };
                assert_eq!(why, trouble, "{status}");
                assert!(said.contains(&status.to_string()), "{said}");
            }
        }
    }
}
