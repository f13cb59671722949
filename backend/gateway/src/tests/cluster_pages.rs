//! The cluster as different people see it: what is not for somebody, and what others run, is in no answer to them.

use eirene_core::scheduler::{Job, JobState, NodeGpus, Partition, PartitionAccess};
use eirene_core::{Reason, SessionState};
use eirene_monitoring::{Batch, Confinement, Device, Metric, NodeName, Sample, Series};
use eirene_services::cluster::Snapshot;
use eirene_words::say;
use serde_json::json;

use super::*;

const PAGES: [&str; 6] = [
    "/cluster",
    "/cluster?by=load",
    "/cluster?by=gpu",
    "/cluster?by=health",
    "/fragments/cluster",
    "/fragments/cluster?by=gpu",
];

impl Server {
    /// The demo cluster, and a partition `closed` for the group `chem` with the one node `vault-7`.
    fn with_a_closed_partition(&self) {
        let mut cluster = testing::snapshot(vec![]);
        let (nodes, partitions) = (Arc::make_mut(&mut cluster.nodes), Arc::make_mut(&mut cluster.partitions));
        let mut node = nodes[0].clone();
        node.name = "vault-7".parse().unwrap();
        node.partitions = vec!["closed".parse().unwrap()];
        node.gpus = vec![NodeGpus { gpu_type: "mi999x".into(), total: 4, allocated: 1 }];
        node.cpu_load = Some(350);
        nodes.push(node);
        partitions.push(Partition {
            name: "closed".parse().unwrap(),
            is_default: false,
            nodes: vec!["vault-7".parse().unwrap()],
            access: PartitionAccess { groups: vec!["chem".into()], by_account: false },
            ..partitions[0].clone()
        });
        self.test.app.cluster.publish(cluster);
    }

    /// Everything that shows somebody the cluster, by page, by live feed and by token.
    async fn shown_to(&self, person: &Person) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        for page in PAGES {
            let answer = self.portal(Ask::get(page).page().cookie(person)).await;
            assert_eq!(answer.status, StatusCode::OK, "{page}: {}", answer.body);
            all.push((page, answer.body));
        }
        let live = self.portal(Ask::get("/live/cluster").cookie(person)).await;
        assert_eq!(live.status, StatusCode::OK, "{}", live.body);
        all.push(("/live/cluster", live.body));
        for path in ["/api/v1/cluster", "/api/v1/nodes"] {
            let answer = self.portal(Ask::get(path).bearer(person)).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
            all.push((path, answer.body));
        }
        all
    }

    /// A session of this person under this name that waits, or runs on a node.
    async fn named(&self, owner: &Person, name: &str, node: Option<&str>) -> Session {
        let mut session = self.session(owner).await;
        session.name = name.parse().unwrap();
        session.nodes = node.map(|node| node.parse().unwrap()).into_iter().collect();
        if node.is_none() {
            session.state = SessionState::Queued;
            session.reason = Some(Reason::new("waiting_for_resources", say("job.waiting_for_resources")));
        }
        assert!(self.test.app.db.update_session(&session, None).await.unwrap());
        session
    }
}

/// That this text is in every answer, or in none.
fn is_in(shown: &[(&str, String)], text: &str) -> bool {
    let found: Vec<&str> = shown.iter().filter(|(_, body)| body.contains(text)).map(|(path, _)| *path).collect();
    assert!(found.is_empty() || found.len() == shown.len(), "{text} is in {found:?} alone");
    !found.is_empty()
}

#[tokio::test]
async fn a_person_sees_what_she_may_use_and_the_operator_all() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    server.test.groups.add("grace", "chem");
    server.with_a_closed_partition();
    let shown = server.shown_to(&ada).await;
    assert!(is_in(&shown, "c1") && !is_in(&shown, "vault-7"));
    for (path, body) in &shown {
        assert!(
            !body.contains("mi999x") && !body.contains(">closed<") && !body.contains("\"closed\""),
            "{path}: {body}"
        );
    }
    assert!(shown[0].1.contains("one more that is not for you"));
    for person in [&grace, &admin] {
        assert!(is_in(&server.shown_to(person).await, "vault-7"));
    }
    // A token of an admin's that does not reach that far sees no more than anybody.
    let mut limited = server.sign_in(admin.actor.user.clone()).await;
    let new = NewToken { name: "reads".into(), scopes: Some(vec![Scope::Read]), expires_in_s: None };
    limited.token = server.test.app.tokens.create(&limited.actor, new).await.unwrap().secret.expose().to_owned();
    for path in ["/api/v1/cluster", "/api/v1/nodes"] {
        let body = server.portal(Ask::get(path).bearer(&limited)).await.body;
        assert!(body.contains("\"c1\"") && !body.contains("vault-7"), "{path}: {body}");
    }

    // Where something of hers runs concerns her, whosever it is.
    let there = server.named(&ada, "left behind", Some("vault-7")).await;
    assert!(is_in(&server.shown_to(&ada).await, "vault-7"));
    let mut over = server.test.app.db.session(there.id).await.unwrap().unwrap();
    (over.state, over.ended_at) = (SessionState::Ended, Some(server.test.clock.now()));
    assert!(server.test.app.db.update_session(&over, None).await.unwrap());
    assert!(!is_in(&server.shown_to(&ada).await, "vault-7"));
    // While nobody can say which groups she is in, nothing is kept from her for that.
    server.test.groups.go_away();
    server.test.clock.advance_s(61);
    assert!(is_in(&server.shown_to(&ada).await, "vault-7"));
}

#[tokio::test]
async fn a_refusal_names_no_partition_that_is_closed_to_the_person() {
    let server = Server::start().await;
    let (ada, grace) = (server.ada().await, server.grace().await);
    server.test.groups.add("grace", "chem");
    server.with_a_closed_partition();
    let start = async |person: &Person, partition: Option<&str>, nodes: u32| {
        let wish = serde_json::json!({
            "app": "jupyterlab", "image": "jupyter", "partition": partition, "nodes": nodes, "cpus": 2, "memory_mib": 2048,
        });
        server.portal(Ask::new("POST", "/api/v1/sessions").json(&wish).bearer(person)).await
    };
    // One that is closed to her is refused as one that is not there.
    for name in ["closed", "nowhere"] {
        let refused = start(&ada, Some(name), 2).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.body);
        assert_eq!(refused.fields(), ["partition"]);
        assert!(refused.body.contains(&format!("no partition `{name}`")), "{}", refused.body);
    }
    // Whoever may use it is told what it has.
    let hers = start(&grace, Some("closed"), 2).await;
    assert_eq!((hers.status, hers.fields()), (StatusCode::UNPROCESSABLE_ENTITY, vec!["nodes".to_owned()]));
    assert_eq!(start(&grace, Some("closed"), 1).await.status, StatusCode::CREATED);

    // Where no default is known all partitions are asked, and none of them is one that she does not see.
    let mut cluster = Snapshot::clone(&server.test.app.cluster.snapshot());
    for partition in Arc::make_mut(&mut cluster.partitions) {
        partition.is_default = false;
        partition.available = partition.name.as_str() == "closed";
    }
    server.test.app.cluster.publish(cluster);
    let refused = start(&ada, None, 1).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.body);
    assert!(!refused.body.contains("`closed`"), "{}", refused.body);
}

#[tokio::test]
async fn a_person_sees_what_of_hers_waits_and_never_what_others_call_theirs() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let hers = server.named(&ada, "hers waits", None).await;
    let others = server.named(&grace, "secret waits", None).await;
    server.named(&grace, "secret runs", Some("c1")).await;
    let (to_ada, to_admin) = (server.shown_to(&ada).await, server.shown_to(&admin).await);
    for (path, body) in &to_ada {
        assert!(!body.contains("secret") && !body.contains("grace"), "{path}: {body}");
        assert!(!body.contains(&others.id.to_string()), "{path}");
        assert!(!body.contains("/admin/nodes/"), "{path}");
    }
    assert!(to_ada[0].1.contains("hers waits") && to_ada[0].1.contains(&format!("/sessions/{}", hers.id)));
    let all = &to_admin[0].1;
    assert!(all.contains("hers waits") && all.contains("secret waits") && all.contains("grace"), "{all}");
    assert!(all.contains("href=\"/admin/nodes/c1\"") && all.contains("one session or run"), "{all}");
    assert!(!to_ada[0].1.contains("one of yours is there"));
    assert!(server.portal(Ask::get("/cluster").page().cookie(&grace)).await.body.contains("one of yours is there"));
}

#[tokio::test]
async fn nodes_are_looked_at_by_links_and_nonsense_asks_for_the_first() {
    let server = Server::start().await;
    let ada = server.ada().await;
    for (path, current, live) in [
        ("/cluster", "Allocation", "/fragments/cluster"),
        ("/cluster?by=load", "Load", "/fragments/cluster?by=load"),
        ("/cluster?by=gpu", "GPUs", "/fragments/cluster?by=gpu"),
        ("/cluster?by=health", "Health", "/fragments/cluster?by=health"),
        ("/cluster?by=%3Cscript%3E", "Allocation", "/fragments/cluster"),
    ] {
        let page = server.portal(Ask::get(path).page().cookie(&ada)).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.contains(&format!("aria-current=\"true\">{current}</a>")), "{path}: {}", page.body);
        let body = page.body.replace("&#x2F;", "/");
        assert!(body.contains(&format!("data-live=\"{live}\"")), "{path}: {body}");
        assert!(body.contains("href=\"/cluster?by=load\"") && !body.contains("by=<script"), "{path}");
    }
    let load = server.portal(Ask::get("/cluster?by=load").page().cookie(&ada)).await.body;
    assert!(load.contains("load not known"), "{load}");
}

#[tokio::test]
async fn how_busy_gpus_are_is_told_to_whose_session_has_them_and_to_the_operator() {
    let server = Server::start().await;
    let (ada, grace, admin) = (server.ada().await, server.grace().await, server.admin().await);
    let session = server.named(&grace, "trains", Some("c1")).await;
    let gpu = Device::Gpu("0".try_into().unwrap());
    let samples = vec![Sample { series: Series::with(Metric::GpuUtil, gpu).unwrap(), value: 0.37 }];
    let node = NodeName::try_from("c1").unwrap();
    let batch = Batch { node, at: server.test.clock.now(), confinement: Confinement::CgroupV2, held: None, samples };
    let mut ingest = server.test.app.samples.ingest(session.id);
    ingest.take(&String::from_utf8(batch.write().remove(0)).unwrap()).await;
    let page = async |person: &Person, path: &str| server.portal(Ask::get(path).page().cookie(person)).await.body;
    for person in [&grace, &admin] {
        let body = page(person, "/cluster?by=gpu").await;
        assert!(body.contains("37\u{a0}% busy"), "{body}");
        assert!(!page(person, "/cluster").await.contains("% busy"), "it is asked for where it is looked at alone");
    }
    assert!(!page(&ada, "/cluster?by=gpu").await.contains("% busy"));
}

/// The picture with this title, of those that the page has.
fn picture<'a>(page: &'a str, title: &str) -> &'a str {
    let heading = format!(">{title}</h3>");
    let mut all = page.split("<figure class=\"picture\"").skip(1).map(|rest| rest.split("</figure>").next().unwrap());
    all.find(|picture| picture.contains(&heading)).unwrap_or_else(|| panic!("no {title}: {page}"))
}

/// What is drawn in it: which line, and its points.
fn lines(picture: &str) -> Vec<(&str, &str)> {
    let all = picture.split("<polyline class=\"line line-").skip(1);
    all.map(|rest| rest.split("\"/>").next().unwrap().split_once("\" points=\"").unwrap()).collect()
}

#[tokio::test]
async fn the_last_day_is_drawn_with_the_numbers_that_programs_get_and_a_gap_where_nobody_looked() {
    let server = Server::start().await;
    let (clock, samples) = (&server.test.clock, &server.test.app.samples);
    let ada = server.ada().await;
    let page = async || server.portal(Ask::get("/cluster").page().cookie(&ada)).await.body;
    assert!(!page().await.contains("The whole cluster, the last 24 hours"), "of nothing there is no picture");
    // Spans are quarters of an hour.
    clock.advance_s(900 - clock.now().as_second().rem_euclid(900));
    let session = testing::session("ada");
    let job = |state, gpus: Vec<(String, u32)>| Job { gpus, ..testing::job(&session, 7, state) };
    for (running, waiting, held, reachable) in [(1, 3, 2, true), (2, 0, 4, true), (9, 9, 9, false), (4, 2, 8, true)] {
        let mut jobs = vec![job(JobState::Running, vec![]); running];
        jobs.extend(vec![job(JobState::Pending, vec![("a100".to_owned(), 2)]); waiting]);
        let mut cluster = testing::snapshot(jobs);
        for node in Arc::make_mut(&mut cluster.nodes) {
            node.gpus = vec![];
        }
        Arc::make_mut(&mut cluster.nodes)[0].gpus =
            vec![NodeGpus { gpu_type: "a100".into(), total: 16, allocated: held }];
        cluster.reachable = reachable;
        for _ in 0..3 {
            samples.note_cluster(&cluster).await.unwrap();
            clock.advance_s(300);
        }
    }

    let asked = Ask::get("/api/v1/cluster/history?hours=24&points=96").bearer(&ada);
    let told = server.portal(asked).await.json();
    for (figure, values) in [
        ("jobs_running", json!([1.0, 2.0, null, 4.0, null])),
        ("jobs_waiting", json!([3.0, 0.0, null, 2.0, null])),
        ("gpus_held", json!([2.0, 4.0, null, 8.0, null])),
        ("gpus_waiting", json!([6.0, 0.0, null, 4.0, null])),
        ("gpus_total", json!([16.0, 16.0, null, 16.0, null])),
    ] {
        let (before, last) = told[figure].as_array().unwrap().split_at(91);
        assert!(before.iter().all(Value::is_null), "{figure}: {told}");
        assert_eq!(json!(last), values, "{figure}");
    }

    // A span is 6.25 wide; the middle of one with a neighbour, the whole of one that stands alone. From 2 at the top to 138 for nothing.
    let body = page().await;
    assert!(body.contains("The whole cluster, the last 24 hours"), "{body}");
    let jobs = picture(&body, "Jobs");
    assert_eq!(
        lines(jobs),
        [
            ("1", "571.9,104.0 578.1,70.0"),
            ("1", "587.5,2.0 593.8,2.0"),
            ("2", "571.9,36.0 578.1,138.0"),
            ("2", "587.5,70.0 593.8,70.0"),
        ]
    );
    for told in [
        "A picture of the time. Jobs. Running: 4 at the end, 2.333 on average, 4 at most. Waiting: 2 at the end, 1.667 on average, 3 at most.",
        "Running: 4</li>",
        "Waiting: 2</li>",
        "At the top: 4</li>",
    ] {
        assert!(jobs.contains(told), "{told}: {jobs}");
    }
    let gpus = picture(&body, "GPUs");
    assert_eq!(
        lines(gpus),
        [
            ("1", "571.9,121.0 578.1,104.0"),
            ("1", "587.5,70.0 593.8,70.0"),
            ("2", "571.9,87.0 578.1,138.0"),
            ("2", "587.5,104.0 593.8,104.0"),
        ]
    );
    for told in [
        "class=\"limit\" x1=\"0\" x2=\"600\" y1=\"2.0\"",
        "In use: 8</li>",
        "Waited for: 4</li>",
        "At the top: 16</li>",
    ] {
        assert!(gpus.contains(told), "{told}: {gpus}");
    }
}
