//! Silences as admins make and end them, by forms without any script and by token: what is listed as silenced, what is refused and what stays typed.

use std::collections::BTreeMap;

use eirene_core::AlertId;
use eirene_core::alert::{Alert, AlertRule, AlertSeverity};
use serde_json::json;

use super::*;

const PAGE: &str = "/admin/alerts";
const FORM_PATH: &str = "/admin/alerts/silences";
const API: &str = "/api/v1/alert-silences";

impl Server {
    /// An alert that goes on, about this node.
    async fn down(&self, node: &str) -> AlertId {
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::NodeDown,
            severity: AlertSeverity::Critical,
            subject: node.to_owned(),
            session: None,
            owner: None,
            value: 1.0,
            details: BTreeMap::from([("node".to_owned(), node.to_owned())]),
            started_at: self.test.clock.now(),
            ended_at: None,
            acknowledged: None,
        };
        self.test.app.db.insert_alert(&alert).await.unwrap();
        alert.id
    }

    /// Whether it is listed as one that nobody is told of.
    async fn is_silenced(&self, admin: &Person, alert: AlertId) -> Value {
        let path = format!("/api/v1/alerts/{alert}");
        self.portal(Ask::get(&path).bearer(admin)).await.json()["silenced"].clone()
    }

    async fn silences(&self, admin: &Person) -> Vec<Value> {
        let answer = self.portal(Ask::get(API).bearer(admin)).await;
        answer.json()["items"].as_array().unwrap().clone()
    }

    async fn silence_form(&self, admin: &Person, fields: &[(&str, &str)]) -> Answer {
        self.portal(Ask::new("POST", FORM_PATH).form(admin, fields)).await
    }

    /// The actions of the audit log about this silence, the latest first.
    async fn audited(&self, admin: &Person, id: &str) -> Vec<String> {
        let log = self.portal(Ask::get("/api/v1/audit?limit=50").bearer(admin)).await.json();
        let entries = log["items"].as_array().unwrap().iter();
        let of_it = entries.filter(|entry| entry["target"] == id);
        of_it.map(|entry| entry["action"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn where_nothing_is_wrong_the_page_says_so() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let words = eirene_words::words();
    for path in [PAGE, "/fragments/admin/alerts"] {
        let page = server.portal(Ask::get(path).page().cookie(&admin)).await.body;
        assert!(page.contains(&words.get("alert_list.none")), "{page}");
    }
}

#[tokio::test]
async fn an_admin_silences_an_alert_and_has_it_told_again_by_forms_alone() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let (n1, n2) = (server.down("n1").await, server.down("n2").await);
    let listed = server.portal(Ask::get(PAGE).page().cookie(&admin)).await.body;
    let link = format!("{PAGE}?silence={n1}");
    assert!(listed.contains(&format!("href=\"{link}#silence\"")), "{listed}");
    let asked = server.portal(Ask::get(&link).page().cookie(&admin)).await.body;
    assert!(asked.contains("value=\"n1\"") && asked.contains("value=\"node_down\" selected"), "{asked}");

    let fields = [("rule", "node_down"), ("subject", " n1 "), ("hours", "4"), ("reason", " <b>new fans</b> ")];
    let made = server.silence_form(&admin, &fields).await;
    let to = "/admin/alerts?done=silenced";
    assert_eq!((made.status, made.header("location")), (StatusCode::SEE_OTHER, to), "{}", made.body);
    let silences = server.silences(&admin).await;
    let [silence] = &silences[..] else { panic!("{silences:?}") };
    let until = server.test.clock.now() + jiff::SignedDuration::from_hours(4);
    assert_eq!(silence["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap(), until);
    assert_eq!((&silence["subject"], &silence["by"]), (&json!("n1"), &json!("root-admin")));
    assert_eq!(server.is_silenced(&admin, n1).await, true);
    assert_eq!(server.is_silenced(&admin, n2).await, false, "it is about another node");

    let id = silence["id"].as_str().unwrap();
    let end = format!("{FORM_PATH}/{id}/end");
    let page = server.portal(Ask::get(to).page().cookie(&admin)).await.body;
    assert!(page.contains("Nobody is told of these alerts for now"), "{page}");
    assert!(page.contains("&lt;b&gt;new fans") && !page.contains("<b>new fans"), "{page}");
    assert!(page.contains(&format!("action=\"{end}\"")) && !page.contains(&link), "{page}");

    let ended = server.portal(Ask::new("POST", &end).form(&admin, &[])).await;
    assert_eq!((ended.status, ended.header("location")), (StatusCode::SEE_OTHER, "/admin/alerts?done=silence_ended"));
    assert_eq!(server.silences(&admin).await, Vec::<Value>::new());
    assert_eq!(server.is_silenced(&admin, n1).await, false);
    let page = server.portal(Ask::get(PAGE).page().cookie(&admin)).await.body;
    assert!(page.contains(&link) && !page.contains(&end), "{page}");
    let twice = server.portal(Ask::new("POST", &end).form(&admin, &[])).await;
    assert_eq!(twice.status, StatusCode::NOT_FOUND, "who comes second learns that it is gone");
    assert_eq!(server.audited(&admin, id).await, ["alert.unsilence", "alert.silence"]);
}

#[tokio::test]
async fn a_program_silences_everything_and_it_is_over_by_itself_or_by_its_end() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let alert = server.down("n1").await;
    let wish = || Ask::new("POST", API).bearer(&admin).json(&json!({"minutes": 60, "reason": "new memory"}));
    let made = server.portal(wish()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let made = made.json();
    assert!(made.get("rule").is_none() && made.get("subject").is_none(), "of everything: {made}");
    assert_eq!(server.is_silenced(&admin, alert).await, true);
    server.test.clock.advance_s(60 * 60 + 1);
    assert_eq!(server.silences(&admin).await, Vec::<Value>::new());
    assert_eq!(server.is_silenced(&admin, alert).await, false, "its time is over");

    let id = server.portal(wish()).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.is_silenced(&admin, alert).await, true);
    let path = format!("{API}/{id}");
    let end = || Ask::new("DELETE", &path).bearer(&admin);
    assert_eq!(server.portal(end()).await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.is_silenced(&admin, alert).await, false);
    assert_eq!(server.portal(end()).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.audited(&admin, &id).await, ["alert.unsilence", "alert.silence"]);
}

#[tokio::test]
async fn a_silence_that_cannot_be_is_refused_and_what_was_typed_stays() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let long = "x".repeat(201);
    let good = json!({"rule": "node_down", "subject": "n1", "minutes": 60, "reason": "new fans"});
    for (field, value) in [
        ("minutes", json!(0)),
        ("minutes", json!(44_641)),
        ("reason", json!("")),
        ("reason", json!(" blank")),
        ("reason", json!(long)),
        ("subject", json!("two\nlines")),
    ] {
        let mut wish = good.clone();
        wish[field] = value;
        let answer = server.portal(Ask::new("POST", API).bearer(&admin).json(&wish)).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (StatusCode::UNPROCESSABLE_ENTITY, vec![field.to_owned()]),
            "{wish}"
        );
    }
    for (field, rule, hours, reason) in [
        ("reason", "node_down", "4", "  "),
        ("reason", "node_down", "4", long.as_str()),
        ("rule", "node_up", "4", "new fans"),
        ("hours", "node_down", "four", "new fans"),
        ("hours", "node_down", "0", "new fans"),
        ("hours", "node_down", "745", "new fans"),
    ] {
        let fields = [("rule", rule), ("subject", "n<1"), ("hours", hours), ("reason", reason)];
        let answer = server.silence_form(&admin, &fields).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{fields:?}");
        assert!(answer.body.contains(&format!("href=\"#f-{field}\"")), "{fields:?}: {}", answer.body);
        assert!(answer.body.contains("value=\"n&lt;1\"") && answer.body.contains(reason.trim()), "{}", answer.body);
    }
    let bare = Ask::new("POST", FORM_PATH).cookie(&admin).with("content-type", FORM).with("origin", PORTAL_ORIGIN);
    assert_eq!(server.portal(bare.body("hours=4&reason=x")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.portal(Ask::new("POST", API).bearer(&ada).json(&good)).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.silence_form(&ada, &[("hours", "4"), ("reason", "x")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.silences(&admin).await, Vec::<Value>::new());
}
