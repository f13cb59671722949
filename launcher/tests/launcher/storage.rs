//! From BeeGFS's tool to what an admin reads: a program that prints what the real one printed is run by the real launcher, read by the adapter,
//! judged by the services and asked for over HTTP. What they print was captured from 7.4.7 and 8.3.1.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use eirene_core::clock::{Clock, MockClock};
use eirene_core::launcher::Launcher as LauncherPort;
use eirene_core::secret::Secret;
use eirene_core::storage::Identity;
use eirene_core::{ApiToken, Role, Scope, TokenId, User, UserId, UserState};
use eirene_database::Db;
use eirene_gateway::server;
use eirene_services::app::{App, Ports};
use eirene_services::config::Config;
use eirene_services::launcher_client::LauncherClient;
use eirene_services::launcher_groups::LauncherGroups;
use eirene_services::passwords::Passwords;
use eirene_services::shared_storage::shared_storage;
use eirene_services::spaces::groups::LocalGroups;
use eirene_services::testing::entry;
use eirene_services::traces::Traces;
use eirene_services::workers::{Threads, Workers};
use eirene_slurm_adapter::SlurmCli;
use eirene_storage::posix::Room;
use eirene_storage::{Look, Seen};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::task::TaskTracker;

use crate::bench::{Launcher, PATIENCE};

/// One thing the tool says: for which command lines (as the shell's `case` has them), its exit status, and what it prints.
struct Says(&'static str, i32, String, String);

/// The status of a tool that waits for a server without end.
const HANGS: i32 = -1;

fn fixture(path: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../storage/tests/fixtures");
    std::fs::read_to_string(fixtures.join(format!("{path}.txt"))).unwrap()
}

/// What was captured, without the command above it and the status below.
fn captured(name: &str) -> String {
    let text = fixture(&format!("beegfs-7.4.7/{name}"));
    text.split_once('\n').unwrap().1.rsplit_once("[exit ").unwrap().0.to_owned()
}

/// What 8.3.1 was captured to say, with its status and both of its outputs.
fn captured_8(asked: &'static str, name: &str) -> Says {
    let path = format!("{}/../storage/tests/fixtures/beegfs-8.3.1/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let capture: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let text = |of: &str| capture[of].as_str().unwrap().to_owned();
    Says(asked, i32::try_from(capture["status"].as_i64().unwrap()).unwrap(), text("stdout"), text("stderr"))
}

/// The tool of 7 on a good day. What comes first wins.
fn seven() -> Vec<Says> {
    let says = |asked, name: &str| Says(asked, 0, captured(name), String::new());
    vec![
        Says("\"--version\"", 1, captured("version"), String::new()),
        says("\"--listnodes --nodetype=meta \"*", "listnodes-meta"),
        says("\"--listnodes \"*", "listnodes-storage"),
        says("\"--listtargets --nodetype=meta \"*", "listtargets-meta"),
        says("\"--listtargets --nodetype=storage \"*", "listtargets-storage"),
        says("\"--liststoragepools\"", "liststoragepools"),
        says("\"--getquota --uid 1000 \"*", "getquota-user-csv"),
        says("\"--getquota --uid 0 \"*", "getquota-one"),
        says("\"--setquota --uid 1000 \"*", "setquota-user"),
        says("\"--getentryinfo --unmounted /\"*", "getentryinfo"),
        says("\"--userstats --nodetype=meta \"*", "userstats"),
        says("\"--serverstats --nodetype=storage --interval=0 --perserver \"*", "serverstats-now"),
    ]
}

/// The tool of 8.3.1 without a licence library, with the second storage server killed and a metadata target that was never heard of. Quotas are
/// those of a file system with a licence.
fn eight() -> Vec<Says> {
    let limits = |says: Says| Says(says.0, says.1, says.2.replace("\"id\":1700", "\"id\":1000"), says.3);
    let of_1000 = |says: Says| {
        let rows = says.2.split_inclusive('\n').filter(|row| row.contains("\"id\":1000,")).collect();
        Says(says.0, says.1, rows, says.3)
    };
    vec![
        Says("\"version\"", 0, "Version: 8.3.1 | Commit x | Built: y\n".into(), String::new()),
        captured_8("*\" node list \"*", "node-list-st2-just-killed"),
        captured_8("*\" target list \"*", "target-list"),
        captured_8("*\" pool list \"*", "lic-pool-list"),
        of_1000(captured_8("*\" quota list-usage --uids=1000-1000\"*", "lic-quota-users")),
        limits(captured_8("*\" quota list-limits --uids=1000-1000\"*", "lic-limits")),
        captured_8("*\" quota list-usage --uids=0-0\"*", "lic-quota-root"),
        captured_8("*\" quota list-limits --uids=0-0\"*", "lic-limits-none"),
        captured_8("*\" entry info --mount=none \"*", "entry-root"),
        captured_8("*\" stats user m:1 --node-type=meta \"*", "users"),
        captured_8("*\" stats server s:1 \"*", "stats-history"),
    ]
}

/// A launcher whose tool is a stand-in, and a portal over it.
struct Portal {
    launcher: Launcher,
    runtime: Runtime,
    threads: Option<Threads>,
    app: App,
    clock: MockClock,
    address: SocketAddr,
    token: String,
}

impl Portal {
    /// Speaks to the tool of this generation; `None` where the tests do not run as root.
    fn start(generation: u8) -> Option<Self> {
        let mut launcher = Launcher::start()?;
        if generation == 8 {
            launcher.configure(|text| {
                let text = text.replace("generation = 7", "generation = 8");
                text.replace("client_config = \"/etc/bee.conf\"", "mgmtd = \"mgmt:8010\"")
            });
        }
        see_beegfs(&launcher);
        let runtime = Runtime::new().unwrap();
        let clock = MockClock::new("2026-01-02T03:04:05Z".parse().unwrap());
        let (app, threads, token) = runtime.block_on(app(&launcher, &clock, generation));
        let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        // The service starts work of its own.
        let inside = runtime.enter();
        let served =
            server::serve(app.clone(), eirene_gateway::service(app.clone()), listener, None, TaskTracker::new());
        runtime.spawn(served);
        drop(inside);
        Some(Self { launcher, runtime, threads: Some(threads), app, clock, address, token })
    }

    /// Has the tool say this from now on, and everything else be an error.
    fn says(&self, answers: &[Says]) {
        let directory = self.launcher.path().join("answers");
        std::fs::create_dir_all(&directory).unwrap();
        let mut script = "#!/bin/sh\nshift\ncase \"$*\" in\n".to_owned();
        for (number, Says(asked, status, stdout, stderr)) in answers.iter().enumerate() {
            std::fs::write(directory.join(format!("{number}.out")), stdout).unwrap();
            std::fs::write(directory.join(format!("{number}.err")), stderr).unwrap();
            match *status {
                HANGS => writeln!(script, "{asked}) exec sleep 600;;"),
                status => writeln!(script, "{asked}) n={number} status={status};;"),
            }
            .unwrap();
        }
        let directory = directory.display();
        writeln!(script, "*) echo \"Unable to connect to the server of the test\" >&2; exit 1;;\nesac").unwrap();
        writeln!(script, "cat {directory}/$n.err >&2; cat {directory}/$n.out; exit $status").unwrap();
        self.launcher.install("beegfs-ctl", &script);
    }

    /// The storage as it is seen after another look, a quarter of an hour later: what it can is asked again by then.
    fn storage(&self) -> Value {
        self.clock.advance_s(900);
        self.runtime.block_on(self.app.storage.look());
        let (status, storage) = self.ask("GET", "/api/v1/storage", None);
        assert_eq!(status, 200, "{storage}");
        storage
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: eirene.localhost:8080\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.end();
        }
    }
}

/// Has whoever looks at the root of spaces see BeeGFS there.
fn see_beegfs(launcher: &Launcher) {
    let path = launcher.path().join("scratch").display().to_string();
    let room = Room { total: 1 << 40, free: 1 << 39, available: 1 << 39, files: 0, files_free: 0, read_only: false };
    let look = Look {
        path: path.clone(),
        directory: room,
        mount: Some(room),
        steady: true,
        project: None,
        own: None,
        mount_point: path,
        mounted: "/".into(),
        client_version: Some("7.4.7".into()),
        identity: Identity {
            kind: "beegfs".into(),
            source: "beegfs_nodev".into(),
            root_inode: Some(2),
            marker: Some("00ff".into()),
            fs_id: 1,
            mount_id: 2,
        },
    };
    let seen = serde_json::to_string(&Seen::from(Ok(look))).unwrap();
    launcher.install("eirene-look", &format!("#!/bin/sh\ncat <<'END'\n{seen}\nEND\n"));
}

async fn app(launcher: &Launcher, clock: &MockClock, generation: u8) -> (App, Threads, String) {
    let path = launcher.path().display();
    let config = Config::from_text(&format!(
        "[server]\nportal_url = \"http://eirene.localhost:8080\"\napps_domain = \"apps.eirene.localhost:8080\"\nstate_dir = \"{path}\"\n\
         [tunnel]\nadvertise = \"127.0.0.1:1\"\n[storage]\nadapter = \"beegfs{generation}\"\n\
         [spaces]\nroots = [{{ name = \"scratch\", kind = \"scratch\", title = \"Scratch\", path = \"{path}/scratch\" }}]\n"
    ))
    .unwrap();
    let db = Db::open(&format!("sqlite://{path}/portal.db")).await.unwrap();
    db.migrate().await.unwrap();
    let token = admin(&db, clock).await;
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let port: Arc<dyn LauncherPort> = Arc::new(LauncherClient::new(launcher.socket()));
    let ports = Ports {
        db,
        scheduler: Arc::new(SlurmCli::new("test", Arc::clone(&port), Arc::clone(&clock))),
        clock,
        storage: shared_storage(&config, &port),
        groups: Arc::new(LauncherGroups::new(Arc::clone(&port), LocalGroups::default())),
        launcher: port,
        history: None,
        traces: Traces::default(),
    };
    let (workers, threads) = Workers::start().unwrap();
    let built = App::build(Arc::new(config), ports, Passwords::new().unwrap());
    (built.with_workers(workers), threads, token)
}

/// Somebody who runs the platform; their token.
async fn admin(db: &Db, clock: &MockClock) -> String {
    let user = User {
        id: UserId::generate(),
        username: "ada".parse().unwrap(),
        role: Role::Admin,
        state: UserState::Active,
        uid: Some(2001),
        created_at: clock.now(),
        access_epoch: 0,
    };
    db.insert_user(&user, "no password", &entry()).await.unwrap();
    let secret = Secret::from_text(format!("eir_{}", Secret::generate().expose()));
    let token = ApiToken {
        id: TokenId::generate(),
        user: user.id,
        name: "test".to_owned(),
        scopes: vec![Scope::Admin],
        created_at: clock.now(),
        expires_at: None,
        last_used_at: None,
    };
    db.insert_token(0, &token, &secret.hash(), &entry()).await.unwrap();
    secret.expose().to_owned()
}

fn codes(storage: &Value) -> Vec<&str> {
    storage["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// A target, or a quota, by what it is called there.
fn called<'a>(list: &'a Value, key: &str, name: &Value) -> &'a Value {
    list.as_array().unwrap().iter().find(|item| item[key] == *name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

const QUOTA: &str = "/api/v1/storage/quotas?of=user&first=1000&last=1000";

#[test]
fn what_the_tool_of_7_printed_arrives_as_it_is() {
    let Some(portal) = Portal::start(7) else { return };
    portal.says(&seven());
    let storage = portal.storage();
    assert_eq!((&storage["adapter"], &storage["version"]), (&"beegfs7".into(), &"7.4.7".into()));
    assert_eq!(storage["capabilities"]["quota_read"]["can"], "yes", "{storage}");
    for name in ["metadata:1", "storage:1", "storage:2"] {
        let target = called(&storage["targets"], "id", &name.into());
        assert_eq!(target["total_bytes"], 252_u64 << 30, "{target}");
        assert_eq!(target["reach"], "online");
    }
    assert_eq!(codes(&storage), ["target_near_full"; 2], "the storage itself calls them low: {storage}");
    let (_, quotas) = portal.ask("GET", QUOTA, None);
    let quota = &quotas["items"][0];
    assert_eq!((&quota["id"], &quota["limit_bytes"]), (&1000.into(), &10_737_418_240_u64.into()));
    assert_eq!((&quota["used_bytes"], &quota["limit_files"]), (&0.into(), &100_000.into()));
    let (_, stats) = portal.ask("GET", "/api/v1/storage/stats?of=users&role=metadata", None);
    assert_eq!((&stats["operations"][0]["total"], &stats["restarted"]), (&30.into(), &false.into()));
    assert!(stats["operations"][0].get("per_s").is_none(), "one count is no rate");
    let (_, now) = portal.ask("GET", "/api/v1/storage/stats", None);
    assert_eq!((&now["servers"][0]["id"], &now["servers"][0]["written_bytes_per_s"]), (&"storage:1".into(), &0.into()));

    let set = |limit: u64| portal.ask("PUT", "/api/v1/storage/quotas/user/1000", Some(&json!({"limit_bytes": limit})));
    assert_eq!(set(10_737_418_240).0, 200, "what is there afterwards was set");
    let (status, refused) = set(5);
    assert_eq!((status, &refused["code"]), (409, &"not_understood".into()), "what did not stick is said");
    let told: Vec<_> = portal.launcher.audit().into_iter().filter(|line| !line["target"].is_null()).collect();
    let changes = told.iter().filter(|line| line["verb"] == "run_beegfs").count();
    assert_eq!(changes, 2, "each change is in the launcher's log: {told:?}");
}

#[test]
fn trouble_of_7_is_a_state_and_never_a_number() {
    let Some(portal) = Portal::start(7) else { return };
    let down = captured("listtargets-storage").replacen(
        "252.0GiB     227.7GiB  90%       16.8M       16.1M  96%",
        "0.0GiB 0.0GiB 0% 0.0M 0.0M 0%",
        1,
    );
    let with = |first: Vec<Says>| portal.says(&[first, seven()].into_iter().flatten().collect::<Vec<_>>());

    let error = " [ERROR from beegfs-storage vm [ID: 1]: Communication error]\n";
    with(vec![Says("\"--listtargets --nodetype=storage \"*", 1, down, error.into())]);
    let storage = portal.storage();
    let silent = called(&storage["targets"], "id", &"storage:1".into());
    assert!(silent.get("total_bytes").is_none() && silent.get("free_bytes").is_none(), "{silent}");
    assert_eq!(called(&storage["targets"], "id", &"storage:2".into())["total_bytes"], 252_u64 << 30);
    assert!(codes(&storage).contains(&"answer_doubtful"), "{storage}");

    // As it was captured with the storage server down: both targets without a number, and nobody's quota told.
    with(vec![
        Says("\"--listtargets --nodetype=storage \"*", 3, captured("down-listtargets-storage"), String::new()),
        Says("\"--getquota --uid 1000 \"*", 3, captured("down-getquota"), String::new()),
        Says("\"--clientstats --nodetype=storage \"*", 0, captured("down-clientstats"), String::new()),
    ]);
    let storage = portal.storage();
    for name in ["storage:1", "storage:2"] {
        assert!(called(&storage["targets"], "id", &name.into()).get("total_bytes").is_none(), "{storage}");
    }
    assert_eq!(portal.ask("GET", QUOTA, None).0, 503, "no quota is 0 because a server is down");
    let (status, clients) = portal.ask("GET", "/api/v1/storage/stats?of=clients&role=storage", None);
    assert_eq!(status, 503, "nobody is told idle because nobody answers: {clients}");

    let reached = captured("written-from-source-listnodes-reachable");
    with(vec![Says("\"--listnodes --nodetype=storage \"*", 0, reached, String::new())]);
    assert!(codes(&portal.storage()).contains(&"node_unreachable"), "{}", portal.storage());

    let half = captured("getquota-user-csv").replace("cloudsdk,1000,0,10737418240", "cloudsdk,1000,,10737418240");
    let could_not = "Could not gather quota information from all storage nodes.\n";
    with(vec![Says("\"--getquota --uid 1000 \"*", 1, half, could_not.into())]);
    let (status, quotas) = portal.ask("GET", QUOTA, None);
    assert_eq!(status, 200, "{quotas}");
    assert!(quotas["items"].as_array().unwrap().iter().all(|quota| quota.get("used_bytes").is_none()), "{quotas}");
    assert!(!quotas["doubts"].as_array().unwrap().is_empty(), "{quotas}");

    with(vec![Says("\"--getquota \"*", 1, String::new(), "This mode requires root privileges.\n".into())]);
    let (status, quotas) = portal.ask("GET", QUOTA, None);
    assert_eq!((status, &quotas["missing"], &quotas["items"]), (200, &"refused".into(), &json!([])));
    assert!(quotas["text"].as_str().unwrap().contains("root privileges"), "{quotas}");
    assert!(codes(&portal.storage()).contains(&"quota_refused"));

    with(vec![Says("\"--getquota \"*", 1, String::new(), "Quota is not enabled.\n".into())]);
    assert!(codes(&portal.storage()).contains(&"quota_not_enabled"));

    portal.says(&seven());
    portal.storage();
    let nobody = "Management node communication failed: localhost\n";
    assert_eq!(captured("down-management"), nobody);
    portal.says(&[
        Says("\"--version\"", 1, captured("version"), String::new()),
        Says("*", 3, String::new(), nobody.into()),
    ]);
    let away = portal.storage();
    assert_eq!(codes(&away), ["storage_away"], "nobody answers, which is said once: {away}");
    assert_eq!(away["targets"], json!([]));
    assert_eq!(portal.ask("GET", QUOTA, None).0, 503);
}

#[test]
fn a_tool_that_is_not_there_and_a_launcher_that_is_not_are_told_apart() {
    let Some(mut portal) = Portal::start(7) else { return };
    let missing = portal.storage();
    assert_eq!(codes(&missing), ["tool_missing"], "{missing}");
    let text = missing["findings"][0]["text"].as_str().unwrap();
    assert!(text.contains("beegfs-ctl"), "{text}");
    portal.says(&seven());
    assert!(!codes(&portal.storage()).contains(&"tool_missing"), "it heals");
    portal.launcher.kill();
    let away = portal.storage();
    assert!(codes(&away).contains(&"storage_away") && !codes(&away).contains(&"tool_missing"), "{away}");
    assert!(away["roots"][0].get("free_bytes").is_none());
    assert_eq!(portal.ask("GET", QUOTA, None).0, 503);
}

#[test]
fn what_8_printed_is_read_alike() {
    let Some(portal) = Portal::start(8) else { return };
    portal.says(&eight());
    let storage = portal.storage();
    assert_eq!((&storage["adapter"], &storage["version"]), (&"beegfs8".into(), &"8.3.1".into()));
    let target = called(&storage["targets"], "id", &"storage:1".into());
    assert_eq!(target["total_bytes"], 270_553_174_016_u64);
    let offline = called(&storage["targets"], "id", &"metadata:1".into());
    assert!(offline.get("total_bytes").is_none() && offline["reach"] == "offline", "{offline}");
    let found = codes(&storage);
    for code in ["target_offline", "node_unreachable", "client_version_differs"] {
        assert!(found.contains(&code), "{code}: {found:?}");
    }
    let of_servers: Vec<_> =
        storage["findings"].as_array().unwrap().iter().filter(|it| it["about"] == "servers").collect();
    assert!(of_servers.is_empty(), "remarks about a licence are no doubt about the servers: {of_servers:?}");
    let (_, quotas) = portal.ask("GET", QUOTA, None);
    let [first, second] = [1, 2].map(|pool| called(&quotas["items"], "pool", &pool.into()));
    assert_eq!((&first["used_bytes"], &first["limit_bytes"]), (&73_400_320.into(), &1_000_000.into()));
    assert!(second["used_bytes"] == 1_048_576 && second["unlimited"] == true, "{second}");
    let stats = || portal.ask("GET", "/api/v1/storage/stats?of=servers", None).1;
    let servers = stats();
    assert_eq!(servers["servers"].as_array().unwrap().len(), 1, "{servers}");
    assert!(servers["doubts"].to_string().contains("storage server 2"), "{servers}");

    // One that hangs although it was reachable a moment ago is ended by the launcher.
    let with = |first: Vec<Says>| portal.says(&[first, eight()].into_iter().flatten().collect::<Vec<_>>());
    with(vec![
        captured_8("*\" node list \"*", "node-list"),
        Says("*\" stats server s:2 \"*", HANGS, String::new(), String::new()),
    ]);
    let servers = stats();
    assert!(servers["doubts"].to_string().contains("storage server 2 are missing: it did not answer"), "{servers}");
    assert!(servers["servers"].as_array().unwrap().iter().all(|server| server["id"] == "storage:1"), "{servers}");

    let refused = "Error: only root can query arbitrary user ids\n";
    with(vec![Says("*\" quota \"*", 1, String::new(), refused.into())]);
    let (_, quotas) = portal.ask("GET", QUOTA, None);
    assert_eq!((&quotas["missing"], &quotas["items"]), (&"refused".into(), &json!([])));

    with(vec![captured_8("*\" quota \"*", "quota")]);
    let storage = portal.storage();
    assert_eq!(codes(&storage).iter().filter(|code| **code == "quota_unlicensed").count(), 1, "{storage}");
    assert_eq!(storage["capabilities"]["licence"], json!({"can": "no", "why": "unlicensed"}));
    let (_, quotas) = portal.ask("GET", QUOTA, None);
    assert_eq!((&quotas["missing"], &quotas["items"]), (&"unlicensed".into(), &json!([])));
    with(vec![captured_8("*\" quota set-limits \"*", "lic-set-badpool")]);
    let limits = json!({"limit_bytes": 1000, "pool": 9});
    let (status, answer) = portal.ask("PUT", "/api/v1/storage/quotas/user/1000", Some(&limits));
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("there is no storage pool 9"), "{answer}");
}
