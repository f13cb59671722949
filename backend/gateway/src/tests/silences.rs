//! Silences as admins, and people for themselves, make and end them, by forms without any script and by token: what is listed as silenced, what is
//! refused and what stays typed.

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

const OWN_PAGE: &str = "/alerts";
const OWN_FORM: &str = "/alerts/silences";
const OWN_API: &str = "/api/v1/me/alert-silences";

impl Server {
    /// An alert that the GPUs of this session or run are idle, which goes on.
    async fn idle(&self, session: &Session) -> AlertId {
        let alert = Alert {
            id: AlertId::generate(),
            rule: AlertRule::GpusIdle,
            severity: AlertSeverity::Info,
            subject: session.id.to_string(),
            session: Some(session.id),
            owner: Some(session.owner),
            value: 30.0,
            details: BTreeMap::new(),
            started_at: self.test.clock.now(),
            ended_at: None,
            acknowledged: None,
        };
        self.test.app.db.insert_alert(&alert).await.unwrap();
        alert.id
    }

    async fn own_silences(&self, person: &Person) -> Vec<Value> {
        let answer = self.portal(Ask::get(OWN_API).bearer(person)).await;
        answer.json()["items"].as_array().unwrap().clone()
    }

    async fn page_of(&self, person: &Person, path: &str) -> String {
        let answer = self.portal(Ask::get(path).page().cookie(person)).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        answer.body
    }
}

#[tokio::test]
async fn a_person_silences_an_alert_about_a_session_and_hears_of_it_again_by_forms_alone() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let (session, run) = (server.session(&ada).await, server.run(&ada).await);
    let (of_session, of_run) = (server.idle(&session).await, server.idle(&run).await);
    let (session_page, run_page) = (format!("/sessions/{}", session.id), format!("/runs/{}", run.id));
    let notice = "have computed nothing";
    for (person, page) in [(&ada, &session_page), (&ada, &run_page), (&admin, &session_page), (&admin, &run_page)] {
        assert!(server.page_of(person, page).await.contains(notice), "{page}");
    }
    let link = format!("{OWN_PAGE}?silence={of_session}");
    assert!(server.page_of(&ada, OWN_PAGE).await.contains(&format!("href=\"{link}#silence\"")));
    let asked = server.page_of(&ada, &link).await;
    let chosen = format!("value=\"{}\" selected", session.id);
    assert!(asked.contains("value=\"gpus_idle\" selected") && asked.contains(&chosen), "{asked}");
    assert!(!asked.contains("value=\"node_down\""), "what is the platform's is not theirs to silence");
    assert!(!asked.contains("http-equiv=\"refresh\""), "what is typed would be lost");

    let id = session.id.to_string();
    let fields = [("rule", "gpus_idle"), ("job", id.as_str()), ("hours", "4"), ("reason", " <b>loads</b> ")];
    let made = server.portal(Ask::new("POST", OWN_FORM).form(&ada, &fields)).await;
    let to = "/alerts?done=own_silenced";
    assert_eq!((made.status, made.header("location")), (StatusCode::SEE_OTHER, to), "{}", made.body);
    let silences = server.own_silences(&ada).await;
    let [silence] = &silences[..] else { panic!("{silences:?}") };
    assert_eq!((&silence["owner"], &silence["job"]["id"]), (&json!("ada"), &json!(id)));
    let until = server.test.clock.now() + jiff::SignedDuration::from_hours(4);
    assert_eq!(silence["until"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap(), until);

    assert_eq!(server.is_silenced(&ada, of_session).await, true);
    assert_eq!(server.is_silenced(&ada, of_run).await, false, "it is about a run");
    assert_eq!(server.is_silenced(&admin, of_session).await, false);
    for (person, page, told) in [
        (&ada, &session_page, false),
        (&ada, &run_page, true),
        (&admin, &session_page, true),
        (&admin, &run_page, true),
    ] {
        assert_eq!(server.page_of(person, page).await.contains(notice), told, "{page}");
    }
    let silence = silence["id"].as_str().unwrap();
    let end = format!("{OWN_FORM}/{silence}/end");
    let page = server.page_of(&ada, to).await;
    assert!(page.contains("You are not told of these alerts for now"), "{page}");
    assert!(page.contains("&lt;b&gt;loads") && !page.contains("<b>loads"), "{page}");
    assert!(page.contains(&format!("action=\"{end}\"")) && !page.contains(&link), "{page}");
    let all = server.page_of(&admin, PAGE).await;
    let lift = format!("{FORM_PATH}/{silence}/end");
    assert!(all.contains(&format!("action=\"{lift}\"")) && all.contains("(for ada alone)"), "{all}");

    let graces = server.page_of(&grace, OWN_PAGE).await;
    assert!(!graces.contains(silence) && !graces.contains(&id), "{graces}");
    assert!(!server.page_of(&grace, &link).await.contains(&id), "nor what she asks for by its alert");
    for path in [&end, &lift] {
        let refused = server.portal(Ask::new("POST", path).form(&grace, &[])).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
    let ended = server.portal(Ask::new("POST", &end).form(&ada, &[])).await;
    assert_eq!((ended.status, ended.header("location")), (StatusCode::SEE_OTHER, "/alerts?done=own_silence_ended"));
    assert_eq!(server.is_silenced(&ada, of_session).await, false);
    assert!(server.page_of(&ada, &session_page).await.contains(notice));
    let twice = server.portal(Ask::new("POST", &end).form(&ada, &[])).await;
    assert_eq!(twice.status, StatusCode::NOT_FOUND, "who comes second learns that it is gone");
    assert_eq!(server.audited(&admin, silence).await, ["alert.unsilence", "alert.silence"]);
}

#[tokio::test]
async fn nobody_sees_lifts_or_makes_a_silence_about_somebody_elses_sessions() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let (hers, graces) = (server.session(&ada).await, server.session(&grace).await);
    let (of_ada, of_grace) = (server.idle(&hers).await, server.idle(&graces).await);
    let all = json!({"rule": "gpus_idle", "minutes": 60});
    let made = server.portal(Ask::new("POST", OWN_API).bearer(&ada).json(&all)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let made = made.json();
    assert!(made.get("job").is_none() && made["reason"] == "", "of all of hers: {made}");
    assert_eq!(server.is_silenced(&ada, of_ada).await, true);
    assert_eq!(server.is_silenced(&grace, of_grace).await, false, "it is of hers alone");

    let path = format!("{OWN_API}/{}", made["id"].as_str().unwrap());
    let everybodys = format!("{API}/{}", made["id"].as_str().unwrap());
    assert_eq!(server.own_silences(&grace).await, Vec::<Value>::new());
    assert_eq!(server.portal(Ask::get(API).bearer(&grace)).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.portal(Ask::new("DELETE", &path).bearer(&grace)).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.portal(Ask::new("DELETE", &everybodys).bearer(&grace)).await.status, StatusCode::FORBIDDEN);
    for (person, job) in [
        (&grace, hers.id.to_string()),
        (&admin, hers.id.to_string()),
        (&grace, SessionId::generate().to_string()),
        (&grace, "x".to_owned()),
    ] {
        let wish = json!({"rule": "gpus_idle", "job": job, "minutes": 60});
        let refused = server.portal(Ask::new("POST", OWN_API).bearer(person).json(&wish)).await;
        assert_eq!((refused.status, refused.fields()), (StatusCode::UNPROCESSABLE_ENTITY, vec!["job".to_owned()]));
        let fields = [("rule", "gpus_idle"), ("job", job.as_str()), ("hours", "4")];
        let refused = server.portal(Ask::new("POST", OWN_FORM).form(person, &fields)).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.body.contains("href=\"#f-job\""), "{}", refused.body);
        assert!(
            refused.body.contains(&format!("value=\"{job}\" selected")),
            "one does not become all: {}",
            refused.body
        );
    }
    for (field, rule, hours) in [("rule", "node_down", "4"), ("rule", "x", "4"), ("hours", "gpus_idle", "745")] {
        let fields = [("rule", rule), ("hours", hours), ("reason", "n<1")];
        let refused = server.portal(Ask::new("POST", OWN_FORM).form(&grace, &fields)).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{fields:?}");
        assert!(refused.body.contains(&format!("href=\"#f-{field}\"")), "{fields:?}: {}", refused.body);
        assert!(refused.body.contains("value=\"n&lt;1\""), "{}", refused.body);
        assert!(!refused.body.contains("http-equiv=\"refresh\""), "there is no page to come back to");
    }
    let bare = Ask::new("POST", OWN_FORM).cookie(&grace).with("content-type", FORM).with("origin", PORTAL_ORIGIN);
    assert_eq!(server.portal(bare.body("rule=gpus_idle&hours=4")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(server.own_silences(&grace).await, Vec::<Value>::new());
    assert_eq!(server.own_silences(&admin).await, Vec::<Value>::new());

    let seen = server.silences(&admin).await;
    assert_eq!(seen, [made]);
    let lifted = server.portal(Ask::new("DELETE", &everybodys).bearer(&admin)).await;
    assert_eq!(lifted.status, StatusCode::NO_CONTENT);
    assert_eq!(server.is_silenced(&ada, of_ada).await, false);
    assert_eq!(server.portal(Ask::new("DELETE", &path).bearer(&ada)).await.status, StatusCode::NOT_FOUND);
}
