//! Nodes as admins change them, by forms without any script and by token: whom they are for, what they refuse, and what the page shows.

use eirene_core::confinement::{ConfinedNode, Confinement, Held};
use jiff::SignedDuration;
use serde_json::json;

use super::*;

const C1: &str = "/admin/nodes/c1";

impl Server {
    async fn node_page(&self, person: &Person, path: &str) -> Answer {
        self.portal(Ask::get(path).page().cookie(person)).await
    }

    async fn node_form(&self, person: &Person, verb: &str, fields: &[(&str, &str)]) -> Answer {
        self.portal(Ask::new("POST", &format!("{C1}/{verb}")).form(person, fields)).await
    }

    /// The poller looks, and what has changed is written down.
    async fn looked(&self) {
        self.test.clock.advance_s(10);
        let nodes = Arc::new(self.test.scheduler.state().nodes.clone());
        let asked_at = Some(self.test.clock.now());
        self.test.app.cluster.publish(eirene_services::cluster::Snapshot {
            asked_at,
            nodes,
            ..testing::snapshot(vec![])
        });
        self.test.app.upkeep.note_history().await.unwrap();
    }
}

#[tokio::test]
async fn an_admin_drains_and_resumes_by_forms_alone_and_sees_what_was() {
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let mut session = server.session(&ada).await;
    session.nodes = vec!["c1".parse().unwrap()];
    assert!(server.test.app.db.update_session(&session, None).await.unwrap());
    server.looked().await;
    assert!(server.node_page(&admin, "/admin/nodes").await.body.contains("href=\"/admin/nodes/c1\""));
    let before = server.node_page(&admin, C1).await.body;
    assert!(before.contains(&format!("/sessions/{}", session.id)) && before.contains("In service"), "{before}");
    assert!(!before.contains("c1/resume"), "it takes jobs already");

    let drained = server.node_form(&admin, "drain", &[("reason", " <b>fan</b> ")]).await;
    let to = "/admin/nodes/c1?done=node_draining";
    assert_eq!((drained.status, drained.header("location")), (StatusCode::SEE_OTHER, to), "{}", drained.body);
    let lines = server.test.app.db.audit_events(None, 10, None, Some("node.drain")).await.unwrap();
    let of = (lines[0].target.as_str(), &lines[0].details["reason"]);
    let outcomes: Vec<&str> = lines.iter().map(|line| line.outcome.as_str()).collect();
    assert_eq!((outcomes, of), (vec!["ok", "begun"], ("c1", &"<b>fan</b>".into())), "recorded before the answer");
    assert!(server.node_page(&admin, to).await.body.contains("as soon as it is seen"));
    server.looked().await;
    let page = server.node_page(&admin, C1).await.body;
    assert!(page.contains("&lt;b&gt;fan&lt;") && page.contains("(eirene: root-admin)") && !page.contains("<b>fan"));
    assert!(page.contains("action=\"/admin/nodes/c1/resume\""), "{page}");

    assert_eq!(server.node_form(&admin, "resume", &[]).await.status, StatusCode::SEE_OTHER);
    server.looked().await;
    let history = server.portal(Ask::get("/api/v1/nodes/c1/history").bearer(&admin)).await.json();
    let states: Vec<&Value> = history["items"].as_array().unwrap().iter().map(|change| &change["state"]).collect();
    assert_eq!(states, ["in_service", "drained", "in_service"]);
    assert_eq!(history["items"][1]["reason"], "<b>fan</b> (eirene: root-admin)");
}

#[tokio::test]
async fn what_is_wrong_is_said_and_what_was_typed_stays() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let long = "x".repeat(201);
    for reason in ["", "  ", "two\nlines", &long] {
        let answer = server.node_form(&admin, "drain", &[("reason", reason)]).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{reason:?}");
        assert!(answer.body.contains("href=\"#f-reason\"") && answer.body.contains(reason.trim()), "{reason:?}");
        let wish = Ask::new("POST", "/api/v1/nodes/c1/drain").bearer(&admin).json(&json!({"reason": reason}));
        assert_eq!(server.portal(wish).await.fields(), ["reason"], "{reason:?}");
    }
    server.test.scheduler.state().may_change_nodes = false;
    let refused = server.node_form(&admin, "drain", &[("reason", "a reason")]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.body.contains("value=\"a reason\"") && refused.body.contains("role=\"alert\""), "{}", refused.body);
    let wish = Ask::new("POST", "/api/v1/nodes/c1/resume").bearer(&admin).json(&json!({}));
    let answer = server.portal(wish).await;
    assert_eq!((answer.status, &answer.json()["code"]), (StatusCode::CONFLICT, &"node_not_permitted".into()));
    assert!(server.test.scheduler.state().nodes.iter().all(|node| node.available));
}

#[tokio::test]
async fn a_form_without_its_token_changes_nothing_and_a_node_that_never_was_is_not_there() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let bare = Ask::new("POST", &format!("{C1}/drain"))
        .cookie(&admin)
        .with("content-type", FORM)
        .with("origin", PORTAL_ORIGIN)
        .body("reason=x");
    assert_eq!(server.portal(bare).await.status, StatusCode::FORBIDDEN);
    assert!(server.test.scheduler.state().nodes.iter().all(|node| node.available));
    for name in ["c9", "all", "c%5B1-4%5D", "%3Cb%3E"] {
        let page = server.node_page(&admin, &format!("/admin/nodes/{name}")).await;
        assert_eq!(page.status, StatusCode::NOT_FOUND, "{name}");
        let path = format!("/api/v1/nodes/{name}/drain");
        let wish = Ask::new("POST", &path).bearer(&admin).json(&json!({"reason": "x"}));
        assert_eq!(server.portal(wish).await.status, StatusCode::NOT_FOUND, "{name}");
    }
}

#[tokio::test]
async fn a_node_on_which_nothing_holds_jobs_says_so() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.looked().await;
    let page = async || server.node_page(&admin, C1).await.body;
    let says = async |by, held| {
        let confined = ConfinedNode { node: "c1".parse().unwrap(), by, held, at: server.test.clock.now() };
        server.test.app.db.put_confined_node(&confined).await.unwrap();
    };
    assert!(!page().await.contains("Control groups of jobs"), "nobody has told");
    says(Confinement::CgroupV2, Held::default()).await;
    let held = page().await;
    let said = "version 2; nobody could tell what they confine";
    assert!(held.contains(said) && !held.contains("Nothing holds the jobs"), "{held}");
    says(Confinement::Nothing, Held::NOTHING).await;
    assert!(page().await.contains("Nothing holds the jobs on this node"));
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_says_so_and_so_do_the_pages_of_who_is_on_it() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    server.looked().await;
    let (mut hers, other) = (server.session(&ada).await, server.session(&grace).await);
    hers.nodes = vec!["c1".parse().unwrap()];
    assert!(server.test.app.db.update_session(&hers, None).await.unwrap());
    let mut ingest = server.test.app.samples.ingest(hers.id);
    let mut says = async |minutes: i64| {
        let at = (server.test.clock.now() + SignedDuration::from_mins(minutes)).as_millisecond();
        ingest.take(&format!(r#"{{"n":"c1","t":{at},"c":"none","s":[["cpu_seconds",1]]}}"#)).await;
    };
    let page = async |person: &Person, path: &str| server.portal(Ask::get(path).page().cookie(person)).await.body;
    let of_hers = format!("/sessions/{}", hers.id);
    let (charts, usage) = (format!("{of_hers}/charts"), format!("/fragments{of_hers}/usage"));
    let pages = [(&admin, C1), (&ada, of_hers.as_str()), (&ada, charts.as_str()), (&ada, usage.as_str())];
    let said = "The clock of node c1 is 6 minutes ahead.";
    for (person, path) in pages {
        assert!(!page(person, path).await.contains(said), "{path}");
    }
    says(6).await;
    for (person, path) in pages {
        let body = page(person, path).await;
        assert_eq!(body.matches(said).count(), 1, "{path}: {body}");
        assert!(!body.contains(">Figures come some seconds after"), "{path}: {body}");
    }
    let others = page(&grace, &format!("/sessions/{}", other.id)).await;
    assert!(!others.contains("The clock of"), "{others}");
    says(0).await;
    for (person, path) in pages {
        assert!(!page(person, path).await.contains(said), "{path}");
    }
}

#[tokio::test]
async fn what_control_groups_confine_is_on_the_page_and_told_to_admins_programs() {
    const PATH: &str = "/api/v1/nodes/c1/confinement";
    let server = Server::start().await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    server.looked().await;
    let asked = async || server.portal(Ask::get(PATH).bearer(&admin)).await.json();
    assert_eq!(asked().await, json!({}), "nobody has told");
    assert_eq!(server.portal(Ask::get(PATH).bearer(&ada)).await.status, StatusCode::FORBIDDEN);
    let unknown = server.portal(Ask::get("/api/v1/nodes/c9/confinement").bearer(&admin)).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let (yes, no) = (Some(true), Some(false));
    for (memory, cpus, fact, notice) in [
        (yes, yes, "memory and CPUs are confined", None),
        (yes, no, "memory is confined, CPUs are not", Some("to the CPUs that they have asked for")),
        (no, yes, "CPUs are confined, memory is not", Some("to the memory that they have asked for")),
        (no, no, "neither memory nor CPUs are confined", Some("a control group that only counts")),
        (yes, None, "memory is confined; nobody could tell whether CPUs are", None),
        (None, no, "CPUs are not confined; nobody", Some("to the CPUs that they have asked for")),
    ] {
        let held = Held { memory, cpus };
        let at = server.test.clock.now();
        let confined = ConfinedNode { node: "c1".parse().unwrap(), by: Confinement::CgroupV2, held, at };
        server.test.app.db.put_confined_node(&confined).await.unwrap();
        let page = server.node_page(&admin, C1).await.body;
        assert!(page.contains(&format!("version 2; {fact}")), "{fact}: {page}");
        assert_eq!(page.contains("Nothing holds the jobs on this node"), notice.is_some(), "{fact}: {page}");
        assert!(notice.is_none_or(|notice| page.contains(notice)), "{fact}: {page}");
        let said = asked().await;
        assert_eq!((&said["by"], &said["at"]), (&json!("cgroup_v2"), &json!(at)), "{said}");
        assert_eq!((said["memory"].as_bool(), said["cpus"].as_bool()), (memory, cpus), "{said}");
    }
}

#[tokio::test]
async fn what_zabbix_says_is_on_the_page_as_text_and_that_it_is_away_too() {
    let mut test = TestApp::new().await;
    let zabbix = eirene_services::zabbix::testing::reads(&mut test).await;
    let server = Server::serve(test).await;
    let (ada, admin) = (server.ada().await, server.admin().await);
    let page = server.node_page(&admin, C1).await.body;
    assert!(page.contains("In Zabbix") && page.contains("Eirene: c1 takes no jobs"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert(1)"), "{page}");
    assert!(page.contains("12.5\u{a0}%") && page.contains("<polyline"), "{page}");
    let path = "/api/v1/nodes/c1/zabbix";
    let said = server.portal(Ask::get(path).bearer(&admin)).await.json();
    let words = (&said["state"], &said["host"], &said["problems"][0]["severity"], &said["items"][0]["units"]);
    assert_eq!(words, (&json!("seen"), &json!("n-c1"), &json!("high"), &json!("%")));
    assert_eq!(server.portal(Ask::get(path).bearer(&ada)).await.status, StatusCode::FORBIDDEN);

    zabbix.answers(false);
    server.test.clock.advance_s(20);
    let page = server.node_page(&admin, C1).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("Zabbix is not reachable") && !page.body.contains("takes no jobs"), "{}", page.body);
    assert_eq!(server.portal(Ask::get(path).bearer(&admin)).await.json()["state"], "away");
}

#[tokio::test]
async fn a_portal_without_zabbix_says_nothing_of_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    assert!(!server.node_page(&admin, C1).await.body.contains("Zabbix"));
    let said = server.portal(Ask::get("/api/v1/nodes/c1/zabbix").bearer(&admin)).await.json();
    assert_eq!((&said["state"], &said["problems"]), (&json!("not_configured"), &json!([])));
}
