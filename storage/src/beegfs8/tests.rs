//! The parsers on captured answers of 8.3.1 and of a build shortly before 8.4.0; the adapter on a tool that plays them.

use std::fs;
use std::sync::Mutex;

use eirene_core::RootName;
use eirene_core::storage::{
    Consistency, DoubtAbout, EntryKind, KernelQuotas, NodeId, OperationsOf, Pattern, Reach, Room, TargetId,
};

use super::*;
use crate::posix::{Look, Probe};

mod damaged;

const RELEASES: [&str; 2] = ["beegfs-8.3.1", "beegfs-8.4-pre"];

fn captured(release: &str, name: &str) -> Ran {
    let path = format!("{}/tests/fixtures/{release}/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let capture: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let text = |of: &str| capture[of].as_str().unwrap().to_owned();
    let status = i32::try_from(capture["status"].as_i64().unwrap()).unwrap();
    Ran { status, stdout: text("stdout"), stderr: text("stderr") }
}

fn printed(name: &str) -> String {
    captured(RELEASES[0], name).stdout
}

fn users(first: u32, last: u32) -> QuotaRange {
    QuotaRange { of: QuotaOf::User, first, last }
}

fn pools() -> Vec<(Pool, DefaultQuota)> {
    lists::pools(&printed("lic-pool-list")).value
}

fn used(text: &str) -> Partial<Vec<usage::Used>> {
    usage::used(text, users(1000, 1010), &pools())
}

/// Asked with these words in the question, it answers so; everything else goes unanswered. Notes what it was asked.
struct Plays {
    answers: Vec<(&'static str, Ran)>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl BeegfsTool for Plays {
    async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError> {
        let asked = arguments.join(" ");
        let answer = self.answers.iter().find(|(words, _)| asked.contains(words)).map(|(_, ran)| ran.clone());
        self.asked.lock().unwrap().push(asked);
        answer.ok_or(StorageError::Away { source: None, retry_after_s: 1 })
    }
}

struct NoMount;

#[async_trait]
impl Probe for NoMount {
    async fn look(&self, _: &Place) -> Result<Look, StorageError> {
        Err(StorageError::Away { source: None, retry_after_s: 1 })
    }

    fn roots(&self) -> Vec<RootName> {
        Vec::new()
    }

    async fn counted(&self, _: &RootName, _: QuotaRange) -> Result<KernelQuotas, StorageError> {
        Err(StorageError::Away { source: None, retry_after_s: 1 })
    }
}

fn plays(answers: Vec<(&'static str, Ran)>) -> (Arc<Plays>, Beegfs8) {
    let tool = Arc::new(Plays { answers, asked: Mutex::default() });
    (Arc::clone(&tool), Beegfs8::new(tool, Posix::new(Arc::new(NoMount))))
}

fn says(status: i32, stdout: &str, stderr: &str) -> Ran {
    Ran { status, stdout: stdout.into(), stderr: stderr.into() }
}

#[test]
fn nodes_are_reached_or_not() {
    for release in RELEASES {
        let nodes = lists::nodes(&captured(release, "node-list-st2-just-killed").stdout);
        assert_eq!(nodes.doubts, []);
        let found: Vec<_> = nodes.value.iter().map(|node| (node.id.role, node.id.number, node.reachable)).collect();
        assert_eq!(
            found,
            [
                (Role::Metadata, 1, Known::Known(true)),
                (Role::Storage, 1, Known::Known(true)),
                (Role::Storage, 2, Known::Known(false)),
                (Role::Management, 1, Known::Known(true)),
            ]
        );
        assert_eq!(nodes.value[0].addresses.len(), 1);
    }
}

#[test]
fn clients_are_no_servers_and_one_interface_is_enough() {
    let client =
        "{\"alias\":\"c\",\"id\":{\"num_id\":9,\"node_type\":1},\"nics\":\"\",\"reachable\":\"\",\"type\":1}\n";
    let two = printed("node-list").replacen("\"reachable\":\"yes\"", "\"reachable\":\"no\\nyes\"", 1);
    let nodes = lists::nodes(&format!("{client}{two}"));
    assert_eq!((nodes.value.len(), &nodes.doubts[..]), (4, &[][..]));
    assert!(nodes.value.iter().all(|node| node.reachable == Known::Known(true)));
}

#[test]
fn a_target_nobody_has_heard_of_has_no_numbers_and_no_contact() {
    for release in RELEASES {
        let targets = lists::targets(&captured(release, "target-list").stdout);
        let [metadata, near, _] = &targets.value[..] else { panic!() };
        assert_eq!((metadata.id.role, metadata.pool, metadata.reach), (Role::Metadata, None, Reach::Offline));
        assert_eq!((metadata.last_contact_s, metadata.room), (Known::Missing(Why::NeverMeasured), Room::Unknown));
        let numbers = (metadata.total, metadata.inodes_free);
        assert_eq!(numbers, (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer)));
        assert_eq!((near.reach, near.consistency, near.room), (Reach::Online, Consistency::Good, Room::Low));
        assert_eq!((near.total, near.pool), (Known::Known(Bytes(270_553_174_016)), Some(PoolId(1))));
        assert!(near.last_contact_s.value().is_some_and(|seconds| *seconds < 60), "{near:?}");
        let about: Vec<_> = targets.doubts.iter().map(|doubt| doubt.about.clone()).collect();
        assert_eq!(about, [DoubtAbout::Target(TargetId { role: Role::Metadata, number: 1 })]);
    }
    let down =
        printed("target-list").replacen("\"reachability\":\"Online\"", "\"reachability\":\"Probably-offline\"", 1);
    let down = &lists::targets(&down).value[1];
    let missing = (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer));
    assert_eq!((down.total, down.inodes_free), missing, "its last numbers are no numbers of now");
    let late = printed("target-list").replace("\"1795811597s ago\"", "\"400000s ago\"");
    assert_eq!(lists::targets(&late).value[0].last_contact_s, Known::Known(400_000));
}

#[test]
fn pools_bring_the_default_limits() {
    for release in RELEASES {
        let pools = lists::pools(&captured(release, "lic-pool-list").stdout);
        assert_eq!(pools.doubts, []);
        let (pool, quota) = &pools.value[1];
        assert_eq!((pool.id, &pool.name[..], &pool.targets[..]), (PoolId(2), "fast", &[2][..]));
        assert_eq!(
            (quota.user_size, quota.group_files),
            (Known::Known(Limit::Unlimited), Known::Known(Limit::Unlimited))
        );
    }
    let fifty =
        printed("lic-pool-list").replacen("\"user_space_limit\":\"∞\"", "\"user_space_limit\":\"53687091200\"", 1);
    assert_eq!(lists::pools(&fifty).value[0].1.user_size, Known::Known(Limit::At(Bytes(50 << 30))));
}

#[test]
fn what_is_used_is_joined_by_pool() {
    for release in RELEASES {
        let answer = used(&captured(release, "lic-quota-users-after").stdout);
        let find = |id, pool| answer.value.iter().find(|used| used.key == (QuotaId::User(id), PoolId(pool))).unwrap();
        assert_eq!(
            (find(1000, 1).bytes, find(1000, 1).files),
            (Known::Known(Bytes(73_400_320)), Known::Known(Files(12)))
        );
        assert_eq!(find(1001, 1).bytes, Known::Known(Bytes(0)));
        assert_eq!(
            (find(1004, 2).bytes, find(1004, 2).files),
            (Known::Missing(Why::DidNotAnswer), Known::Known(Files(7)))
        );
        assert_eq!(answer.doubts.len(), 1, "{:?}", answer.doubts);
    }
    let slow = used(&printed("lic-quota-users").replace("\"fast\"", "\"slow\""));
    assert!(slow.doubts.iter().any(|doubt| matches!(doubt.about, DoubtAbout::Line(_))), "a pool nobody knows");
}

#[test]
fn limits_are_somebody_s_own_or_the_pool_s() {
    let mut pools = pools();
    pools[0].1.user_files = Known::Known(Limit::At(Files(500)));
    for release in RELEASES {
        let own = usage::limits(&captured(release, "lic-limits").stdout, users(1700, 1710), &pools);
        assert_eq!(own.doubts, []);
        let limits = usage::Limits::new(pools.clone(), &own);
        let of = |id, pool| limits.of(QuotaOf::User, id, PoolId(pool));
        let (unlimited, most) = (Known::Known(Limit::Unlimited), Known::Known(Limit::At(Bytes(1_000_000))));
        assert_eq!(of(1700, 1), Some((most, Known::Known(Limit::At(Files(500))))), "`-` is the default one");
        assert_eq!(of(1700, 2), Some((unlimited_bytes(), unlimited)), "2⁶³−1 is unlimited");
        assert_eq!(of(1701, 1), Some((unlimited_bytes(), Known::Known(Limit::At(Files(500))))));
        assert_eq!(of(1700, 3), None);
    }
    let half = usage::limits("{\"id\":1700,\"inode\"", users(1700, 1710), &pools);
    let limits = usage::Limits::new(pools, &half);
    let unknown = (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer));
    assert_eq!(limits.of(QuotaOf::User, 1700, PoolId(1)), Some(unknown), "half an answer has no defaults");
}

fn unlimited_bytes() -> Known<Limit<Bytes>> {
    Known::Known(Limit::Unlimited)
}

#[test]
fn every_release_says_in_its_own_way_that_it_knows_nobody() {
    for release in RELEASES {
        let nobody = captured(release, "lic-quota-none");
        assert!(usage::nobody_known(&nobody), "{nobody:?}");
        assert!(!usage::nobody_known(&Ran { status: 1, ..nobody }));
        assert!(!usage::nobody_known(&captured(release, "lic-quota-users")));
    }
    assert!(!usage::nobody_known(&says(0, "", "")), "silence");
}

#[test]
fn the_period_of_measurement_is_told_beside_the_rows() {
    assert_eq!(usage::every(&captured(RELEASES[0], "lic-quota-users").stderr), Known::Known(30));
    assert_eq!(usage::every(&captured(RELEASES[0], "lic-quota-none").stderr), Known::Missing(Why::NeverMeasured));
    assert_eq!(usage::every(""), Known::Missing(Why::NotUnderstood));
}

#[test]
fn entries_have_their_stripe_pattern() {
    for release in RELEASES {
        let entry = &lists::entry(&captured(release, "entry-dir").stdout).value[0];
        assert_eq!((entry.kind, entry.metadata_mirrored), (EntryKind::Directory, Known::Known(false)));
        let stripe = entry.stripe.value().unwrap();
        assert_eq!((&stripe.pattern, stripe.chunk), (&Pattern::Raid0, Known::Known(Bytes(1 << 20))));
        let pool = Known::Known((PoolId(1), "storage_pool_default".into()));
        assert_eq!((stripe.targets_wanted, &stripe.pool), (Known::Known(2), &pool));
    }
    let locked = printed("entry-dir").replace("RAID0 (2x1048576)", "(unavailable: locked)");
    assert_eq!(lists::entry(&locked).value[0].stripe, Known::Missing(Why::DidNotAnswer));
}

#[test]
fn a_server_that_is_down_has_no_sample() {
    for release in RELEASES {
        let answer = usage::samples(&captured(release, "stats-now-st2-just-killed").stdout);
        let [sample] = &answer.value[..] else { panic!("{answer:?}") };
        assert_eq!(sample.node.value().map(|node| node.number), Some(1));
        assert!(sample.at_s > 1_795_811_000 && sample.written == Known::Known(Bytes(0)));
        assert!(answer.doubts[0].text.contains("storage server 2"), "{:?}", answer.doubts);
        let [metadata] = &usage::samples(&captured(release, "stats-meta").stdout).value[..] else { panic!() };
        assert_eq!(metadata.written, Known::Missing(Why::NotSupported));
    }
}

#[test]
fn counts_are_of_users_clients_and_servers() {
    for release in RELEASES {
        let users = usage::operations(&captured(release, "users").stdout, OperationsKind::Users);
        assert_eq!((&users.value[0].of, &users.doubts[..]), (&OperationsOf::User(0), &[][..]));
        let clients = usage::operations(&captured(release, "clients").stdout, OperationsKind::Clients);
        let of: Vec<_> = clients.value.iter().map(|count| count.of.clone()).collect();
        assert_eq!(of, [OperationsOf::Servers, OperationsOf::Client("10.20.0.1".into())]);
    }
    let unknown = printed("users").replace("\"user\":\"0\"", "\"user\":\"-1\"");
    assert_eq!(usage::operations(&unknown, OperationsKind::Users).value[0].of, OperationsOf::UnknownUser);
    let storage = "{\"client\":\"192.0.2.2\",\"ops-rd\":\"2\",\"rd\":\"4096\",\"sum\":\"2\",\"wr\":\"\"}\n";
    let client = &usage::operations(storage, OperationsKind::Clients).value[0];
    assert_eq!((client.read, client.written), (Known::Known(Bytes(4096)), Known::Known(Bytes(0))));
    let both = usage::sum(vec![client.clone(), client.clone()]);
    assert_eq!((both.len(), both[0].total, both[0].read), (1, 4, Known::Known(Bytes(8192))));
    assert_eq!(both[0].by_name, [("ops-rd".to_owned(), 4)]);
}

#[test]
fn remarks_about_the_licence_say_nothing_of_the_rows() {
    for (release, name, licence) in [
        ("beegfs-8.3.1", "node-list", Ability::No(Why::Unlicensed)),
        ("beegfs-8.3.1", "set-stripe", Ability::No(Why::Unlicensed)),
        ("beegfs-8.3.1", "nolic-node-list", Ability::No(Why::Unlicensed)),
        ("beegfs-8.4-pre", "nolic-node-list", Ability::No(Why::Unlicensed)),
        ("beegfs-8.4-pre", "quota", Ability::No(Why::Unlicensed)),
        ("beegfs-8.3.1", "lic-limits-none", Ability::Yes),
        ("beegfs-8.3.1", "lic-node-list", Ability::Unknown),
        // There is no library, either, and it is not said.
        ("beegfs-8.4-pre", "node-list", Ability::Unknown),
        ("beegfs-8.3.1", "mgmtd-down", Ability::Unknown),
    ] {
        let learned = Learned::default();
        let before = captured(release, name);
        let ran = learned.judge(before.clone(), name.contains("limits"));
        assert_eq!(learned.licence(), licence, "{release} {name}");
        let failed = ["quota", "mgmtd-down"].contains(&name);
        assert_eq!(ran.status != 0, failed, "{release} {name}");
        assert!(failed || ran.stderr.is_empty() || ran.stderr.starts_with("Summary: "), "{}", ran.stderr);
        assert_eq!(ran.stdout, before.stdout);
    }
    for (status, remark) in [
        (0, "WARNING: License expires in 20 days, run 'beegfs license' for more details.\n"),
        (
            0,
            "WARNING: The system capacity (9 TiB) exceeds licensed capacity (8 TiB), contact your reseller to license more.\n",
        ),
        (1, "Error: unable to verify licensed status: rpc error: code = Unavailable desc = connection error\n"),
    ] {
        let learned = Learned::default();
        assert_eq!(learned.judge(says(status, "", remark), false), says(0, "", ""));
        assert_eq!(learned.licence(), Ability::Unknown, "{remark}");
    }
    let failed = says(1, "", "Error: TCP request to meta:1 failed\n");
    assert_eq!(Learned::default().judge(failed.clone(), false), failed);
}

#[tokio::test]
async fn the_flags_are_those_of_the_release() {
    let known = || says(0, "", "");
    let unknown = || says(1, "", "Error: unknown flag: --disable-alerts\n");
    let local = || captured(RELEASES[0], "version");
    let of = |version: &str| says(0, &format!("Version: {version} | Commit x | Built: y\n"), "");
    for (version, with_flag, knows) in [
        (of("8.0.1"), known(), false),
        (of("v8.3.1"), known(), false),
        (of("8.4.0"), unknown(), true),
        (of("8.10.0-rc.1"), unknown(), true),
        (of("9.0.0"), unknown(), true),
        (local(), known(), true),
        (local(), unknown(), false),
    ] {
        let answers = vec![
            ("--disable-alerts version", with_flag),
            ("version", version.clone()),
            ("node list", captured(RELEASES[0], "lic-node-list")),
        ];
        let (tool, storage) = plays(answers);
        storage.nodes().await.unwrap();
        storage.nodes().await.unwrap();
        let asked = tool.asked.lock().unwrap().clone();
        let nodes: Vec<_> = asked.iter().filter(|asked| asked.contains("node list")).collect();
        assert!(
            nodes.iter().all(|asked| asked.contains("--raw --disable-alerts --disable-emojis") == knows),
            "{nodes:?}"
        );
        assert_eq!(asked.iter().filter(|asked| *asked == "version").count(), 1, "{asked:?}");
    }
}

#[tokio::test]
async fn a_tool_that_was_replaced_is_asked_with_its_own_flags() {
    let answers = |version: &str| {
        let version = says(0, &format!("Version: {version} | Commit x | Built: y\n"), "");
        vec![("version", version), ("node list", captured(RELEASES[0], "lic-node-list"))]
    };
    let (tool, mut storage) = plays(answers("8.3.1"));
    storage.nodes().await.unwrap();
    let (newer, _) = plays(answers("8.4.0"));
    storage.tool = Tool(newer.clone());
    storage.capabilities().await;
    storage.nodes().await.unwrap();
    let (older, _) = plays(vec![
        ("--raw --disable-alerts", says(1, "", "Error: unknown flag: --disable-alerts\n")),
        ("version", says(0, "Version: 8.3.1 | Commit x | Built: y\n", "")),
        ("node list", captured(RELEASES[0], "lic-node-list")),
    ]);
    storage.tool = Tool(older);
    storage.nodes().await.unwrap();
    assert!(!tool.asked.lock().unwrap().last().unwrap().contains("--disable-alerts"));
    assert!(newer.asked.lock().unwrap().last().unwrap().contains("--disable-alerts"));
}

#[tokio::test]
async fn somebody_without_files_has_limits_and_was_not_measured_yet() {
    for release in RELEASES {
        let (_, storage) = plays(vec![
            ("version", captured(release, "version")),
            ("pool list", captured(release, "lic-pool-list")),
            ("quota set-limits", captured(release, "lic-set")),
            ("quota list-limits", captured(release, "lic-limits")),
            ("quota list-usage", captured(release, "lic-quota-none")),
        ]);
        let id = QuotaId::User(1700);
        storage.set_quota(id, None, Some(Limit::At(Bytes(1_000_000))), None).await.unwrap();
        let other = storage.set_quota(id, None, Some(Limit::At(Bytes(7))), None).await;
        assert!(matches!(other, Err(StorageError::Malformed { .. })), "another limit is there: {other:?}");
        let quotas = storage.quota(id).await.unwrap();
        assert_eq!((quotas.value.len(), &quotas.doubts[..]), (2, &[][..]));
        let first = quotas.value.iter().find(|quota| quota.pool == Some(DEFAULT_POOL)).unwrap();
        assert_eq!(
            (first.used, first.limit),
            (Known::Missing(Why::NeverMeasured), Known::Known(Limit::At(Bytes(1_000_000))))
        );
    }
}

#[tokio::test]
async fn one_server_that_is_down_or_hangs_leaves_the_others_their_figures() {
    for release in RELEASES {
        let stats = captured(release, "stats-history");
        let down = || captured(release, "node-list-st2-just-killed");
        let up = || captured(release, "lic-node-list");
        for (nodes, named) in [
            (down(), "The figures of storage server 2 are missing: it is unreachable"),
            (up(), "The figures of storage server 2 are missing: it did not answer"),
        ] {
            let is_down = nodes.status != 0;
            let (tool, storage) = plays(vec![
                ("version", captured(release, "version")),
                ("node list", nodes),
                // Nothing answers for s:2: the launcher ended the tool.
                ("stats server s:1", stats.clone()),
                ("stats user s:1", captured(release, "users")),
            ]);
            let now = storage.server_stats(Role::Storage, 0).await.unwrap();
            assert!(now.value.iter().all(|sample| sample.node.value().is_some_and(|node| node.number == 1)));
            let counts = storage.operations(Role::Storage, OperationsKind::Users).await.unwrap();
            assert_eq!(counts.value.len(), 1);
            for doubts in [now.doubts, counts.doubts] {
                assert_eq!(doubts.len(), 1, "{doubts:?}");
                assert!(doubts[0].text.contains(named), "{doubts:?}");
            }
            let asked = tool.asked.lock().unwrap().iter().any(|asked| asked.contains(" s:2 "));
            assert_eq!(asked, !is_down, "one that is known to be down is not asked");
            let none = storage.server_stats(Role::Metadata, 0).await;
            assert!(matches!(none, Err(StorageError::Away { .. })), "{none:?}");
        }
    }
}

#[tokio::test]
async fn sizes_of_an_unreachable_server_are_left_out() {
    let unreachable = |nodes: &Ran, alias: &str| {
        let rows = nodes.stdout.lines().map(|row| {
            let is_it = row.contains(alias);
            if is_it { row.replace("\"reachable\":\"yes\"", "\"reachable\":\"no\"") } else { row.to_owned() }
        });
        Ran { stdout: rows.map(|row| row + "\n").collect(), ..nodes.clone() }
    };
    for release in RELEASES {
        let listed = captured(release, "target-list-st2-just-killed");
        let before = lists::targets(&listed.stdout).value;
        assert_eq!(before.len(), 3);
        let up = captured(release, "lic-node-list");
        let all = ["node_meta_1", "node_storage_1", "node_storage_2"]
            .iter()
            .fold(up.clone(), |nodes, alias| unreachable(&nodes, alias));
        for (nodes, left_out) in [
            (captured(release, "node-list-st2-just-killed"), vec![(Role::Storage, 2)]),
            (unreachable(&up, "node_meta_1"), vec![(Role::Metadata, 1)]),
            (
                unreachable(&unreachable(&up, "node_storage_1"), "node_storage_2"),
                vec![(Role::Storage, 1), (Role::Storage, 2)],
            ),
            (up.clone(), vec![]),
            (all, vec![]),
        ] {
            let (_, storage) = plays(vec![
                ("version", captured(release, "version")),
                ("node list", nodes),
                ("target list", listed.clone()),
            ]);
            let after = storage.targets().await.unwrap();
            for (before, after) in before.iter().zip(&after.value) {
                let id = (after.id.role, after.id.number);
                let mut expected = before.clone();
                if left_out.contains(&id) {
                    expected.leave_out_sizes();
                }
                assert_eq!(after, &expected, "{release}: {left_out:?}");
            }
        }
        let (_, storage) = plays(vec![("version", captured(release, "version")), ("target list", listed.clone())]);
        let after = storage.targets().await.unwrap();
        assert!(after.doubts.iter().any(|doubt| doubt.text.contains("which servers are reachable")), "{after:?}");
    }
}

#[tokio::test]
async fn where_no_server_seems_reachable_all_are_asked() {
    let mut nodes = captured(RELEASES[0], "node-list-st2-just-killed");
    nodes.stdout = nodes.stdout.replace("\"reachable\":\"yes\"", "\"reachable\":\"no\"");
    let (_, storage) = plays(vec![
        ("version", captured(RELEASES[0], "version")),
        ("node list", nodes),
        ("stats server s:1", captured(RELEASES[0], "stats-history")),
    ]);
    let stats = storage.server_stats(Role::Storage, 10).await.unwrap();
    assert_eq!((stats.value.len(), stats.doubts.len()), (7, 1), "{stats:?}");
}

#[tokio::test]
async fn a_list_of_nodes_is_whole_though_one_of_them_is_unreachable() {
    for release in RELEASES {
        let (_, storage) = plays(vec![
            ("version", captured(release, "version")),
            ("node list", captured(release, "node-list-st2-gone80")),
        ]);
        let nodes = storage.nodes().await.unwrap();
        assert_eq!((nodes.value.len(), &nodes.doubts[..]), (4, &[][..]));
        let expected = NodeId { role: Role::Storage, number: 2, alias: Some("node_storage_2".into()) };
        let down: Vec<_> = nodes.value.iter().filter(|node| node.reachable == Known::Known(false)).collect();
        assert_eq!(down.iter().map(|node| &node.id).collect::<Vec<_>>(), [&expected]);
    }
}

#[tokio::test]
async fn trouble_is_told_with_what_to_change() {
    let of = |name: &str| captured(RELEASES[0], name);
    let certificate = |what: &str| {
        let handshake = "Error: rpc error: code = Unavailable desc = connection error: desc = \"transport: authentication handshake failed: \
                         tls: failed to verify certificate: x509: ";
        says(1, "", &format!("{handshake}{what}\"\n"))
    };
    let no_licence = "Error: rpc error: code = Unauthenticated desc = Get quota usage: No certificate loaded\n";
    let no_certificate = "Error: reading certificate file failed: open /x: permission denied\n";
    let off = "Error: rpc error: code = Unknown desc = Get quota usage: Quota support is not enabled\n";
    for (ran, why, words) in [
        (of("quota"), Why::Unlicensed, "This BeeGFS has no licence for quotas."),
        (of("quota-set-unlicensed"), Why::Unlicensed, "This BeeGFS has no licence for quotas."),
        (of("wrong-auth"), Why::Refused, "`auth_file`"),
        (of("no-auth-file"), Why::Refused, "read `auth_file`"),
        (says(1, "", no_licence), Why::Unlicensed, "This BeeGFS has no licence for quotas."),
        (certificate("certificate signed by unknown authority"), Why::Refused, "another certificate"),
        (certificate("certificate has expired or is not yet valid"), Why::Refused, "Renew it"),
        (certificate("certificate is valid for 10.20.0.1, not 10.20.0.9"), Why::Refused, "`mgmtd`"),
        (says(1, "", no_certificate), Why::Refused, "read `tls_cert`"),
        (says(1, "", off), Why::NotEnabled, "not enabled"),
    ] {
        let (_, storage) = plays(vec![("version", of("version")), ("", ran)]);
        match storage.targets().await {
            Err(StorageError::Refused { why: said, text }) => {
                assert_eq!(said, why, "{text}");
                assert!(text.contains(words), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let real = "Error: rpc error: code = Unknown desc = Set quota limits: pool storage:7 does not exist\n";
    for (ran, pool) in
        [(of("lic-set-badpool"), PoolId(9)), (of("set-stripe-pool"), PoolId(7)), (says(1, "", real), PoolId(7))]
    {
        let (_, storage) = plays(vec![("version", of("version")), ("", ran)]);
        let answer = storage.set_quota(QuotaId::User(5), None, Some(Limit::Unlimited), None).await;
        assert!(matches!(&answer, Err(StorageError::NoSuchPool(said)) if *said == pool), "{answer:?}");
    }
    let (_, storage) = plays(vec![("version", of("version")), ("", of("quota"))]);
    assert_eq!(storage.capabilities().await.quota_write, Ability::No(Why::Unlicensed));
    let away = plays(vec![("version", of("version")), ("", of("mgmtd-down"))]).1.targets().await;
    assert!(matches!(away, Err(StorageError::Away { .. })), "{away:?}");
}

#[test]
fn every_question_is_asked_in_these_words() {
    let plain = "--raw --disable-emojis --log-level=0";
    let rows = format!("--output=ndjson {plain}");
    let stats =
        format!("{rows} --columns=time,node_id,alias,queue_length,requests,busy_workers,written,read stats server");
    let stripe =
        SetStripe { chunk: Some(Bytes(1 << 20)), targets: Some(4), pool: Some(PoolId(2)), mirrored: Some(true) };
    let (size, none) = (Some(Limit::At(Bytes(10))), Some(Limit::Unlimited));
    for (asked, words) in [
        (call::version(), "version".to_owned()),
        (
            call::nodes(),
            format!(
                "{rows} --columns=id,type,alias,nics,reachable \
                 node list --with-nics --reachability-check --reachability-error"
            ),
        ),
        (
            call::targets(),
            format!(
                "{rows} --columns=id,type,alias,node,storage_pool,reachability,last_contact,consistency,cap_pool,\
                 space,space_free,inodes,inodes_free target list --state --capacity"
            ),
        ),
        (
            call::pools(),
            format!(
                "--output=json --page-size=1000000 {plain} --columns=id,alias,targets,mirrors,user_space_limit,\
                 user_inode_limit,group_space_limit,group_inode_limit pool list --with-limits"
            ),
        ),
        (call::knows_no_alerts(), "--disable-alerts version".to_owned()),
        (call::usage(users(5, 9)), format!("{rows} --columns=id,type,pool,space,inode quota list-usage --uids=5-9")),
        (call::limits(users(5, 9)), format!("{rows} --columns=id,type,pool,space,inode quota list-limits --uids=5-9")),
        (
            call::set_quota(QuotaOf::Group, 5, PoolId(2), size, none),
            format!("{plain} quota set-limits s:2 --gid=5 --space=10 --inode=unlimited"),
        ),
        (
            call::set_default_quota(QuotaOf::User, PoolId(1), size, None),
            format!("{plain} quota set-defaults s:1 --user-space=10"),
        ),
        (
            call::entry("/a b"),
            format!(
                "{rows} --columns=path,entry_id,type,meta_node,meta_mirror,storage_pool,stripe_pattern,storage_targets,\
                 storage_mirrors entry info --mount=none /a b"
            ),
        ),
        (
            call::set_stripe("/x", &stripe),
            format!(
                "{plain} entry set --mount=none --chunk-size=1048576 --num-targets=4 --pool=s:2 --pattern=mirrored /x"
            ),
        ),
        (call::server_stats(Role::Metadata, 3, 60), format!("{stats} m:3 --interval=0s --history=60s")),
        (
            call::operations(Role::Metadata, 1, OperationsKind::Clients),
            format!("{rows} stats client m:1 --node-type=meta --interval=0s"),
        ),
    ] {
        assert_eq!(asked.join(" "), words);
    }
    assert_eq!(call::entry("/a b").last().map(String::as_str), Some("/a b"), "a path is one argument");
}
