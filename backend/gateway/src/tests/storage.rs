//! Statistics and stripe patterns of the storage over HTTP.

use eirene_core::storage::{Bytes, Known, NodeId, OperationCounts, OperationsOf, Role as ServerRole, ServerNode, Why};
use eirene_services::testing::{StorageMood, server_sample};
use serde_json::json;

use super::files::real;
use super::*;

fn counts(total: u64) -> Vec<OperationCounts> {
    let missing = Known::Missing(Why::NotSupported);
    let by_name = vec![("open".to_owned(), total)];
    let of = OperationsOf::Client("192.0.2.7".into());
    vec![OperationCounts { of, total, by_name, read: Known::Known(Bytes(total)), written: missing }]
}

impl Server {
    async fn stats(&self, admin: &Person, query: &str) -> Answer {
        self.portal(Ask::get(&format!("/api/v1/storage/stats{query}")).bearer(admin)).await
    }
}

#[tokio::test]
async fn rates_are_differences_and_a_storage_without_statistics_says_so() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for query in ["", "?of=users", "?of=clients&role=metadata"] {
        let none = server.stats(&admin, query).await;
        assert_eq!((none.status, &none.json()["missing"]), (StatusCode::OK, &"not_supported".into()), "{query}");
        assert_eq!((&none.json()["servers"], none.json().get("as_of")), (&json!([]), None));
    }
    server.test.storage.state().operations = Some(counts(10));
    let first = server.stats(&admin, "?of=clients").await.json();
    assert_eq!((&first["operations"][0]["client"], first.get("over_s")), (&"192.0.2.7".into(), None));
    assert!(first["operations"][0].get("per_s").is_none(), "one count is no rate");
    server.test.clock.advance_s(20);
    server.test.storage.state().operations = Some(counts(50));
    let second = server.stats(&admin, "?of=clients").await.json();
    let row = &second["operations"][0];
    assert_eq!((&second["over_s"], &row["per_s"], &row["total"]), (&20.0.into(), &2.0.into(), &50.into()));
    assert_eq!(row["operations"], json!([{"name": "open", "total": 50, "per_s": 2.0}]));
    assert_eq!((&row["read_bytes_per_s"], row.get("written_bytes_per_s")), (&2.0.into(), None));
    server.test.clock.advance_s(20);
    server.test.storage.state().operations = Some(counts(5));
    let after = server.stats(&admin, "?of=clients").await.json();
    assert_eq!((&after["restarted"], after["operations"][0].get("per_s")), (&true.into(), None));
    server.test.clock.advance_s(20);
    server.test.storage.state().mood = StorageMood::Away;
    assert_eq!(server.stats(&admin, "?of=clients").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn servers_are_told_with_their_past_as_the_portal_has_seen_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.test.storage.state().servers = Some(vec![server_sample()]);
    server.test.app.storage.look().await;
    server.test.app.storage_stats.sample(60).await;
    let now = server.stats(&admin, "").await.json();
    let second = &now["servers"][0];
    assert_eq!((&second["id"], &second["alias"]), (&"storage:3".into(), &"oss3".into()));
    assert_eq!((&second["written_bytes_per_s"], second.get("read_bytes_per_s")), (&4096.into(), None));
    assert_eq!(now["history"], json!([]), "nobody asked for it");
    let past = server.stats(&admin, "?history=60").await.json();
    let point = &past["history"][0];
    assert_eq!((&point["written_bytes_per_s"], &point["requests_per_s"]), (&4096.0.into(), &7.0.into()));
    assert!(point.get("read_bytes_per_s").is_none(), "{point}");
    server.test.clock.advance_s(7200);
    assert_eq!(server.stats(&admin, "?history=60").await.json()["history"], json!([]));
    server.test.storage.state().mood = StorageMood::Refuses;
    let refused = server.stats(&admin, "").await.json();
    assert_eq!((&refused["missing"], &refused["text"]), (&"refused".into(), &"no".into()));
}

#[tokio::test]
async fn users_are_told_with_their_past_as_the_portal_has_counted_it() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let asked = |user: u32, total| OperationCounts { of: OperationsOf::User(user), ..counts(total).remove(0) };
    let unknown = |total| OperationCounts { of: OperationsOf::UnknownUser, ..counts(total).remove(0) };
    server.test.storage.state().operations = Some(vec![asked(2001, 10), unknown(1)]);
    server.test.app.storage.look().await;
    server.test.app.storage_stats.sample(60).await;
    server.test.clock.advance_s(60);
    server.test.storage.state().operations = Some(vec![asked(2001, 130), unknown(31)]);
    server.test.app.storage_stats.sample(60).await;
    let now = server.stats(&admin, "?of=users").await.json();
    assert_eq!((&now["history_of_users"], &now["over_s"]), (&json!([]), &60.0.into()), "nobody asked for it");
    let past = server.stats(&admin, "?of=users&role=metadata&history=60").await.json();
    let users = json!([
        {"user": 2001, "per_s": 2.0, "read_bytes_per_s": 2.0},
        {"per_s": 0.5, "read_bytes_per_s": 0.5}
    ]);
    let points = past["history_of_users"].as_array().unwrap();
    assert_eq!((points.len(), &points[0]["users"], points[0].get("others")), (1, &users, None), "{past}");
    assert_eq!((&points[0]["over_s"], &past["history"]), (&60.0.into(), &json!([])));
    server.test.clock.advance_s(7200);
    assert_eq!(server.stats(&admin, "?of=users&history=60").await.json()["history_of_users"], json!([]));
}

#[tokio::test]
async fn questions_nobody_can_answer_are_refused_with_their_field() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for (query, field) in [
        ("?of=everybody", "of"),
        ("?role=management", "role"),
        ("?history=0", "history"),
        ("?history=1441", "history"),
        ("?of=users&history=0", "history"),
        ("?of=users&history=1441", "history"),
        ("?of=clients&history=5", "history"),
    ] {
        let answer = server.stats(&admin, query).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (StatusCode::UNPROCESSABLE_ENTITY, vec![field.to_owned()]),
            "{query}"
        );
    }
}

#[tokio::test]
async fn servers_are_shown_with_whether_they_are_reached_where_that_is_told() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let node = |role, alias: Option<&str>, reachable| ServerNode {
        id: NodeId { role, number: 1, alias: alias.map(str::to_owned) },
        addresses: alias.map(|alias| format!("{alias}-ib0(RDMA)")).into_iter().collect(),
        reachable,
    };
    server.test.storage.state().nodes = Some(vec![
        node(ServerRole::Management, None, Known::Missing(Why::NotSupported)),
        node(ServerRole::Metadata, Some("mds"), Known::Known(true)),
        node(ServerRole::Storage, Some("<b>oss"), Known::Known(false)),
    ]);
    server.test.app.storage.look().await;
    let seen = server.portal(Ask::get("/api/v1/storage").bearer(&admin)).await.json();
    let expected = json!([
        {"id": "management:1", "addresses": []},
        {"id": "metadata:1", "alias": "mds", "addresses": ["mds-ib0(RDMA)"], "reachable": true},
        {"id": "storage:1", "alias": "<b>oss", "addresses": ["<b>oss-ib0(RDMA)"], "reachable": false}
    ]);
    assert_eq!(seen["servers"], expected);
    assert_eq!(seen["findings"][0]["code"], "node_unreachable");
    let page = server.portal(Ask::get("/admin/storage").page().cookie(&admin)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    assert!(page.body.contains("mds-ib0(RDMA)") && page.body.contains("Not reached"), "{}", page.body);
    assert!(!page.body.contains("<b>oss"), "{}", page.body);
}

#[tokio::test]
async fn of_a_pool_whose_targets_do_not_tell_no_number_is_said() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.test.storage.state().spread_over(2);
    server.test.storage.state().silent = true;
    server.test.app.storage.look().await;
    let seen = server.portal(Ask::get("/api/v1/storage").bearer(&admin)).await.json();
    let silent = json!({"id": 1, "name": "Default", "targets": [1, 2], "bytes_at_least": true, "files_at_least": true});
    assert_eq!(seen["pools"][0], silent);
}

#[tokio::test]
async fn a_directory_says_how_its_files_are_spread_where_the_storage_spreads_them() {
    let server = Server::start().await;
    let (ada, home) = server.ada_at_home(real()).await;
    std::fs::create_dir(home.join("data")).unwrap();
    std::fs::write(home.join("file"), "x").unwrap();
    server.test.app.storage.look().await;
    let entry = async |path: &str| server.get(&ada, &format!("/files/entry{path}")).await.json();
    assert!(entry("").await.get("stripe").is_none(), "a plain file system");
    server.test.storage.state().spread_over(3);
    server.test.clock.advance_s(3600);
    server.test.app.storage.look().await;
    let stripe = json!({"pattern": "raid0", "chunk_bytes": 524_288, "targets": 2, "pool": 1, "pool_name": "Default"});
    assert_eq!(entry("").await["stripe"], stripe);
    assert_eq!(entry("").await["storage_entry"], json!({"id": "0-1", "metadata_mirrored": false}));
    assert_eq!(entry("?path=data").await["stripe"], stripe);
    assert!(entry("?path=file").await.get("storage_entry").is_none(), "of files nobody is asked");
    assert_eq!(server.test.storage.state().entries, ["~ada", "~ada/data"]);
    let page = async |path: &str| {
        let page = Ask::get(&format!("/spaces/home/files/entry?path={path}")).page().cookie(&ada);
        let page = server.portal(page).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        page.body
    };
    let directory = page("data").await;
    assert!(directory.contains("Over 2 targets") && directory.contains("Default (1)"), "{directory}");
    assert!(directory.contains("not mirrored") && directory.contains("0-1"), "{directory}");
    assert!(!page("file").await.contains("Storage pool"));
}

#[tokio::test]
async fn an_admin_sees_who_asks_most_by_name_and_what_the_servers_did() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let look = async |query: &str| {
        let page = server.portal(Ask::get(&format!("/admin/storage/activity{query}")).page().cookie(&admin)).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        page.body
    };
    let silent = look("").await;
    assert!(
        silent.contains("This storage tells no statistics.") && silent.contains("Nothing is known of the last hour"),
        "{silent}"
    );
    let asked = |user: u32, total| OperationCounts { of: OperationsOf::User(user), ..counts(total).remove(0) };
    let uid = 2001;
    server.ada().await;
    {
        let mut storage = server.test.storage.state();
        storage.servers = Some(vec![server_sample()]);
        storage.operations = Some(vec![asked(uid, 10), asked(77_777, 1000)]);
    }
    server.test.app.storage.look().await;
    server.test.app.storage_stats.sample(60).await;
    let first = look("").await;
    assert!(first.contains("This is the first look") && first.contains("oss3 (storage:3)"), "{first}");
    assert!(
        first.contains("Written, at most 4\u{a0}KiB/s") && !first.contains("Read, at most"),
        "nobody tells: {first}"
    );
    server.test.clock.advance_s(20);
    server.test.storage.state().operations = Some(vec![asked(uid, 210), asked(77_777, 1000)]);
    let second = look("").await;
    let (busiest, idle) = (second.find(&format!("ada ({uid})")).unwrap(), second.find("Number 77777").unwrap());
    assert!(busiest < idle, "who asks now comes before who has asked: {second}");
    assert!(second.contains("Rates are of the last 20 seconds."), "{second}");
    let names = look("?role=metadata").await;
    assert!(names.contains("A picture of the last hour. Requests, at most 7/s."), "{names}");
    assert!(second.contains("Nothing is known of who asked in the last hour"), "one count is no rate: {second}");
    server.test.clock.advance_s(40);
    server.test.storage.state().operations = Some(vec![asked(uid, 610), asked(77_777, 1060)]);
    server.test.app.storage_stats.sample(60).await;
    let hour = look("").await;
    let lines = format!("ada ({uid}), at most 10/s, Number 77777, at most 1/s.");
    assert!(hour.contains(&format!("A picture of who asked in the last hour. {lines}")), "{hour}");
    assert!(hour.contains(&format!("ada ({uid}): 10/s")) && !hour.contains("Everybody else"), "{hour}");
}

#[tokio::test]
async fn the_picture_of_what_servers_did_has_a_gap_where_nobody_looked() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.test.storage.state().servers = Some(vec![server_sample()]);
    server.test.app.storage.look().await;
    // As the portal looks, a little later than a minute after the look before.
    for pause in [0, 64, 64, 1200, 64] {
        server.test.clock.advance_s(pause);
        server.test.app.storage_stats.sample(60).await;
    }
    let page = server.portal(Ask::get("/admin/storage/activity").page().cookie(&admin)).await.body;
    let lines: Vec<&str> = page.split("<polyline class=\"line line-1\" points=\"").skip(1).collect();
    let corners: Vec<usize> = lines.iter().map(|line| line.split('"').next().unwrap().split(' ').count()).collect();
    assert_eq!(corners, [3, 2], "{page}");
}

#[tokio::test]
async fn an_admin_looks_up_quotas_by_number_and_sees_what_is_wrong_with_the_question_or_the_answer() {
    let server = Server::start().await;
    let admin = server.admin().await;
    server.ada().await;
    let look = async |query: &str| {
        let page = server.portal(Ask::get(&format!("/admin/storage/quotas{query}")).page().cookie(&admin)).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        page.body
    };
    assert!(look("").await.contains("Say the number of a person or group"));
    for (query, said) in [
        ("?first=x", "a number from 0 to 4294967295"),
        ("?first=2001&last=-1", "a number from 0 to 4294967295"),
        ("?first=2001&last=2000", "not more than 65536 at once"),
    ] {
        assert!(look(query).await.contains(said), "{query}");
    }
    let mounted = look("?first=2001").await;
    assert!(mounted.contains("This storage is only mounted") && !mounted.contains("set-quota"), "{mounted}");
    assert!(!mounted.contains("has no quotas"), "its file system may have some: {mounted}");
    {
        let mut storage = server.test.storage.state();
        storage.users = Some((3 << 30, eirene_core::storage::Limit::At(4 << 30)));
        (storage.quota_pools, storage.pools) = (vec![1], Some(vec![1]));
    }
    server.test.app.storage.look().await;
    let found = look("?of=user&first=2001&last=2002").await;
    for said in ["ada (2001)", "Number 2002", "Default (1)", "3\u{a0}GiB of 4\u{a0}GiB"] {
        assert!(found.contains(said), "{said}: {found}");
    }
    assert!(look("?of=group&first=2001").await.contains("Number 2001"), "a group is not the person of its number");
    let doubt = eirene_core::storage::Doubt {
        about: eirene_core::storage::DoubtAbout::Whole,
        text: "<b>a server</b> did not answer".into(),
    };
    server.test.storage.state().quota_doubts = vec![doubt];
    let half = look("?first=2001").await;
    assert!(half.contains("not whole, or not certain") && half.contains("&lt;b&gt;a server"), "{half}");
    server.test.storage.state().mood = StorageMood::Away;
    assert!(look("?first=2001").await.contains("The storage cannot be reached at the moment"), "no error page");
}

#[tokio::test]
async fn a_spaces_page_says_how_its_files_are_spread_where_they_are() {
    let server = Server::start().await;
    let (ada, _home) = server.ada_at_home(real()).await;
    let look = async || {
        let page = server.portal(Ask::get("/spaces/home").page().cookie(&ada)).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.body);
        page.body
    };
    server.test.app.storage.look().await;
    assert!(!look().await.contains("New files lie"));
    server.test.storage.state().spread_over(3);
    server.test.clock.advance_s(3600);
    server.test.app.storage.look().await;
    let spread = look().await;
    assert!(spread.contains("Over 2 targets, in pieces of 512\u{a0}KiB") && spread.contains("Default (1)"), "{spread}");
}
