//! Statistics and stripe patterns of the storage over HTTP.

use eirene_core::storage::{
    Bytes, Known, NodeId, OperationCounts, OperationsOf, Role as ServerRole, ServerSample, Why,
};
use serde_json::json;

use super::files::real;
use super::*;
use crate::testing::StorageMood;

fn counts(total: u64) -> Vec<OperationCounts> {
    let missing = Known::Missing(Why::NotSupported);
    let by_name = vec![("open".to_owned(), total)];
    let of = OperationsOf::Client("192.0.2.7".into());
    vec![OperationCounts { of, total, by_name, read: Known::Known(Bytes(total)), written: missing }]
}

fn a_second() -> ServerSample {
    ServerSample {
        node: Known::Known(NodeId { role: ServerRole::Storage, number: 3, alias: Some("oss3".into()) }),
        at_s: 1_795_242_755,
        written: Known::Known(Bytes(4096)),
        read: Known::Missing(Why::NotSupported),
        requests: 7,
        queued: 1,
        busy: 2,
    }
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
    server.test.storage.state().servers = Some(vec![a_second()]);
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
async fn questions_nobody_can_answer_are_refused_with_their_field() {
    let server = Server::start().await;
    let admin = server.admin().await;
    for (query, field) in [
        ("?of=everybody", "of"),
        ("?role=management", "role"),
        ("?history=0", "history"),
        ("?history=1441", "history"),
        ("?of=users&history=5", "history"),
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
    assert_eq!(server.test.storage.state().entries, ["~ada"]);
    for path in ["?path=data", "?path=file"] {
        assert!(entry(path).await.get("stripe").is_none(), "{path}: below a home, and of files, nobody is asked");
    }
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
        storage.servers = Some(vec![a_second()]);
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
}
