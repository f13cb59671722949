//! The bench of daemons of BeeGFS 7 that really run, and what only they show. `EIRENE_TEST_BEEGFS7` names a directory with `beegfs-ctl` and the
//! `client.conf` it is to use, and `EIRENE_TEST_BEEGFS7_SERVERS` a program that stops and starts servers; without the second nothing goes wrong here
//! (`storage/README.md` says how such daemons are run, and what is changed in them).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use eirene_core::storage::{
    Ability, Bytes, Capabilities, DefaultQuota, Files, Known, Limit, OperationsKind, PoolId, QuotaId, QuotaOf,
    QuotaRange, Ran, Role, SetStripe, SharedStorage, StorageError, Stripe, Why,
};

use crate::benches::{Bench, Trouble, beegfs7_real, bench, seven};

/// Longest until servers that were started answer, and until those that were stopped do not.
const PATIENCE: Duration = Duration::from_mins(2);
/// What is answered with a status of 0 where all servers are up.
const QUESTIONS: [&str; 5] = [
    "--listtargets --nodetype=meta --state --spaceinfo",
    "--listtargets --nodetype=storage --state --spaceinfo --pools --longnodes",
    "--getquota --uid 0 --withzero --csv",
    "--getquota --defaultlimits --csv --storagepoolid=1",
    "--getentryinfo --unmounted /",
];
/// What makes of a BeeGFS the one that was captured, which is the one of the contract.
const AS_CAPTURED: [&str; 4] = [
    "--setpattern --unmounted --chunksize=1048576 --numtargets=2 --storagepoolid=1 --pattern=raid0 /home",
    "--setquota --uid 1000 --sizelimit=10737418240 --inodelimit=100000 --storagepoolid=1",
    "--setquota --default --uid --sizelimit=53687091200 --inodelimit=unlimited --storagepoolid=1",
    "--setquota --default --gid --sizelimit=unlimited --inodelimit=unlimited --storagepoolid=1",
];
/// A user and a group of no site's. The two numbers behind it never get limits of their own.
const NOBODYS: u32 = 4_000_001;

fn directory() -> PathBuf {
    std::env::var_os("EIRENE_TEST_BEEGFS7").expect("EIRENE_TEST_BEEGFS7 names the BeeGFS that this asks").into()
}

fn run(directory: &Path, arguments: &[String]) -> Option<Ran> {
    let mut command = Command::new(directory.join("beegfs-ctl"));
    command.arg(format!("--cfgFile={}", directory.join("client.conf").display())).args(arguments);
    let output = command.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C").output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = output.status.code().unwrap_or(-1);
    Some(Ran { status, stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

/// What the real tool says. Trouble is not played here: it is in the daemons.
pub(crate) fn said(arguments: &[String], _: Trouble) -> Option<Ran> {
    run(&directory(), arguments)
}

/// The same past the adapter and the launcher's table, to make the bench ready.
fn ask(line: &str) -> Ran {
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    run(&directory(), &arguments).expect("the directory has a `beegfs-ctl` that runs")
}

/// Whether all servers answer. Statistics are left empty, with a status of 0, by servers that were only just started, too.
fn whole() -> bool {
    let is_row = |line: &str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    QUESTIONS.iter().all(|line| ask(line).status == 0)
        && ["meta", "storage"].iter().all(|servers| {
            let history = ask(&format!("--serverstats --nodetype={servers} --history=1 --interval=0"));
            history.stdout.lines().any(is_row)
        })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(200));
    }
}

/// The server that is stopped so that this goes wrong; `None` for what no server can be brought to.
fn to_stop(trouble: Trouble) -> Option<&'static str> {
    match trouble {
        Trouble::TargetAway => Some("storage"),
        Trouble::Silence => Some("management"),
        Trouble::None | Trouble::HalfAnswer | Trouble::QuotaRefused | Trouble::QuotaUnknown | Trouble::PoolLost => None,
    }
}

#[expect(clippy::print_stderr, reason = "whoever runs the tests must know")]
fn say_left_out(server: &str) {
    eprintln!("EIRENE_TEST_BEEGFS7_SERVERS is not set: left out is what happens without {server}");
}

/// The daemons, for one test at a time.
pub(crate) struct Daemons {
    /// Held, so that other tests, which may be other processes, wait.
    _lock: File,
    /// What stops and starts servers.
    program: Option<PathBuf>,
    /// The server that this stopped.
    down: Cell<Option<&'static str>>,
}

impl Daemons {
    /// Waits for whoever else has them, and until they are up, and makes them what the contract is about.
    pub(crate) fn take() -> Self {
        let lock = File::open(directory().join("client.conf")).unwrap();
        lock.lock().unwrap();
        let program = std::env::var_os("EIRENE_TEST_BEEGFS7_SERVERS").map(PathBuf::from);
        let daemons = Self { _lock: lock, program, down: Cell::new(None) };
        wait_until("all servers answer", whole);
        // Refused where it is there already.
        ask("--createdir --unmounted --uid=1000 --gid=1000 /home");
        for line in AS_CAPTURED {
            let ran = ask(line);
            assert_eq!(ran.status, 0, "{line}: {ran:?}");
        }
        daemons
    }

    pub(crate) fn can_be_in(&self, trouble: Trouble) -> bool {
        if trouble == Trouble::None {
            return true;
        }
        let Some(server) = to_stop(trouble) else { return false };
        if self.program.is_none() {
            say_left_out(server);
        }
        self.program.is_some()
    }

    pub(crate) fn bring_into(&self, trouble: Trouble) {
        assert!(self.can_be_in(trouble), "nobody can bring real servers into {trouble:?}");
        let wanted = to_stop(trouble);
        if self.down.get() == wanted {
            return;
        }
        if let Some(server) = self.down.take() {
            assert!(self.tell("start", server), "{server} was not started");
            wait_until("all servers answer again", whole);
        }
        if let Some(server) = wanted {
            // Noted before, so that it is started again whatever comes of it.
            self.down.set(wanted);
            assert!(self.tell("stop", server), "{server} was not stopped");
            wait_until("a stopped server is missed", || !whole());
        }
    }

    /// Without streams of ours, which a daemon would hold open.
    fn tell(&self, verb: &str, server: &str) -> bool {
        let program = self.program.as_ref().expect("what cannot be stopped is left out");
        let mut command = Command::new(program);
        command.args([verb, server]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if let Some(server) = self.down.take() {
            let started = self.tell("start", server);
            assert!(started || panicking(), "{server} was not started");
        }
    }
}

/// What is to be set, of bytes and files.
type Wanted = (Option<Limit<Bytes>>, Option<Limit<Files>>);
/// What is told then.
type Limits = (Known<Limit<Bytes>>, Known<Limit<Files>>);

const UNLIMITED: Limits = (Known::Known(Limit::Unlimited), Known::Known(Limit::Unlimited));

async fn limits(storage: &Arc<dyn SharedStorage>, id: QuotaId) -> BTreeMap<PoolId, Limits> {
    let quotas = storage.quota(id).await.unwrap();
    assert_eq!(quotas.doubts, []);
    quotas.value.into_iter().map(|quota| (quota.pool.unwrap(), (quota.limit, quota.files_limit))).collect()
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_no_answer() {
    fn nowhere(arguments: &[String], _: Trouble) -> Option<Ran> {
        run(Path::new("/nonexistent"), arguments)
    }
    let bench = bench(Some("beegfs"), |probe, _| seven(nowhere, Trouble::None, probe));
    let answer = bench.storage().targets().await;
    assert!(matches!(answer, Err(StorageError::Away { .. })), "{answer:?}");
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn everything_that_is_asked_is_answered_without_doubt() {
    let bench = beegfs7_real();
    let storage = bench.storage();
    let can = storage.capabilities().await;
    assert!(can.version.value().is_some_and(|version| version.starts_with("7.")), "{can:?}");
    let expected = Capabilities {
        version: can.version.clone(),
        targets: Ability::Yes,
        pools: Ability::Yes,
        quota_read: Ability::Yes,
        quota_write: Ability::Unknown,
        default_quota: Ability::Yes,
        project_quota: Ability::No(Why::NotSupported),
        stripe_read: Ability::Yes,
        stripe_write: Ability::Unknown,
        server_stats: Ability::Yes,
        user_stats: Ability::Yes,
        ..Capabilities::none("beegfs7")
    };
    assert_eq!(can, expected);
    let nodes = storage.nodes().await.unwrap();
    for role in [Role::Management, Role::Metadata, Role::Storage] {
        assert!(nodes.value.iter().any(|node| node.id.role == role), "{nodes:?}");
    }
    let (targets, pools) = (storage.targets().await.unwrap(), storage.pools().await.unwrap());
    assert!(!targets.value.is_empty() && !pools.value.is_empty());
    for target in &targets.value {
        let (total, free) = (target.total.value().unwrap(), target.free.value().unwrap());
        assert!(total.0 > 0 && free <= total, "{target:?}");
        let pool = pools.value.iter().find(|pool| Some(pool.id) == target.pool);
        let listed = pool.is_some_and(|pool| pool.targets.contains(&target.id.number));
        assert_eq!(listed, target.id.role == Role::Storage, "{target:?} in {pools:?}");
    }
    for doubts in [nodes.doubts, targets.doubts, pools.doubts] {
        assert_eq!(doubts, []);
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn statistics_are_read_and_counts_only_grow() {
    let bench = beegfs7_real();
    let storage = bench.storage();
    for role in [Role::Metadata, Role::Storage] {
        let now = storage.server_stats(role, 0).await.unwrap();
        assert!(!now.value.is_empty() && now.value.iter().all(|sample| sample.node.value().is_some()), "{now:?}");
        assert_eq!(now.doubts, []);
        let past = storage.server_stats(role, 10).await.unwrap();
        assert!(!past.value.is_empty() && past.doubts.is_empty(), "{past:?}");
        for of in [OperationsKind::Users, OperationsKind::Clients] {
            let total = async || {
                let counts = storage.operations(role, of).await.unwrap();
                assert_eq!(counts.doubts, []);
                counts.value.iter().map(|row| row.total).sum::<u64>()
            };
            let before = total().await;
            storage.targets().await.unwrap();
            assert!(total().await >= before);
        }
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn limits_of_users_and_groups_are_those_of_their_pool_and_what_is_not_named_stays() {
    let bench = beegfs7_real();
    let storage = bench.storage();
    let pools: Vec<PoolId> = storage.pools().await.unwrap().value.into_iter().map(|pool| pool.id).collect();
    let (size, files) = (Limit::At(Bytes(10 << 30)), Limit::At(Files(1000)));
    for id in [QuotaId::User(NOBODYS), QuotaId::Group(NOBODYS)] {
        let set = async |pool: Option<PoolId>, (size, files): Wanted| storage.set_quota(id, pool, size, files).await;
        for pool in &pools {
            set(Some(*pool), (Some(Limit::Unlimited), Some(Limit::Unlimited))).await.unwrap();
        }
        for pool in &pools {
            set(Some(*pool), (Some(size), Some(files))).await.unwrap();
            for (other, told) in limits(&storage, id).await {
                let expected = if other == *pool { (Known::Known(size), Known::Known(files)) } else { UNLIMITED };
                assert_eq!(told, expected, "{id:?} in {other:?}, set in {pool:?}");
            }
            set(Some(*pool), (Some(Limit::Unlimited), None)).await.unwrap();
            assert_eq!(limits(&storage, id).await[pool], (Known::Known(Limit::Unlimited), Known::Known(files)));
            set(Some(*pool), (None, Some(Limit::Unlimited))).await.unwrap();
            assert_eq!(limits(&storage, id).await[pool], UNLIMITED);
        }
        set(None, (Some(size), None)).await.unwrap();
        let told = limits(&storage, id).await;
        assert_eq!(told[&PoolId(1)], (Known::Known(size), Known::Known(Limit::Unlimited)), "the default pool");
        let gone = set(Some(PoolId(999)), (Some(size), None)).await;
        assert!(gone.is_err(), "a pool that is not there: {gone:?}");
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn a_range_has_everybody_s_own_limits_and_the_default_ones_of_who_has_none() {
    let bench = beegfs7_real();
    let storage = bench.storage();
    let pools = storage.pools().await.unwrap().value.len();
    let (size, files, default) = (Limit::At(Bytes(3 << 30)), Limit::At(Files(33)), Limit::At(Files(12_345)));
    for of in [QuotaOf::User, QuotaOf::Group] {
        let before = storage.default_quota(PoolId(1)).await.unwrap();
        storage.set_default_quota(PoolId(1), of, None, Some(default)).await.unwrap();
        let (expected, without) = match of {
            QuotaOf::User => (DefaultQuota { user_files: Known::Known(default), ..before }, before.user_size),
            QuotaOf::Group => (DefaultQuota { group_files: Known::Known(default), ..before }, before.group_size),
        };
        assert_eq!(storage.default_quota(PoolId(1)).await.unwrap(), expected, "what is not named stays");
        storage.set_quota(of.id(NOBODYS), Some(PoolId(1)), Some(size), Some(files)).await.unwrap();
        let range = QuotaRange { of, first: NOBODYS, last: NOBODYS + 2 };
        let quotas = storage.quotas(range).await.unwrap();
        assert_eq!(quotas.doubts, []);
        assert_eq!(quotas.value.len(), 3 * pools, "one for each number and pool: {quotas:?}");
        for (number, expected) in [
            (NOBODYS, (Known::Known(size), Known::Known(files))),
            (NOBODYS + 1, (without, Known::Known(default))),
            (NOBODYS + 2, (without, Known::Known(default))),
        ] {
            let mut those = quotas.value.iter().filter(|quota| quota.pool == Some(PoolId(1)));
            let quota = those.find(|quota| quota.id == of.id(number)).unwrap();
            assert_eq!((quota.limit, quota.files_limit), expected, "{quota:?}");
            assert!(quota.used.value().is_some(), "{quota:?}");
        }
    }
    let gone = storage.default_quota(PoolId(999)).await;
    assert!(matches!(gone, Err(StorageError::NoSuchPool(PoolId(999)))), "a pool that is not there: {gone:?}");
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn a_directory_takes_each_pool_with_targets_and_nothing_that_is_not_there() {
    let bench = beegfs7_real();
    let storage = bench.storage();
    let pools = storage.pools().await.unwrap().value;
    let told = async || storage.entry(&Bench::home()).await.unwrap().stripe.value().cloned().unwrap();
    let before = told().await;
    for pool in pools.iter().filter(|pool| !pool.targets.is_empty()) {
        let wanted = SetStripe { pool: Some(pool.id), ..SetStripe::default() };
        storage.set_stripe(&Bench::home(), &wanted).await.unwrap();
        let expected = Stripe { pool: Known::Known((pool.id, pool.name.clone())), ..before.clone() };
        assert_eq!(told().await, expected, "what is not named stays");
    }
    let now = told().await;
    let mut refused = vec![SetStripe { pool: Some(PoolId(999)), ..SetStripe::default() }];
    if pools.iter().all(|pool| pool.mirrors.is_empty()) {
        refused.push(SetStripe { mirrored: Some(true), ..SetStripe::default() });
    }
    for wanted in refused {
        let answer = storage.set_stripe(&Bench::home(), &wanted).await;
        assert!(answer.is_err(), "{wanted:?}");
        assert_eq!(told().await, now, "{wanted:?}");
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS7 names"]
async fn without_a_storage_server_no_quota_is_told_or_set_and_the_rest_goes_on() {
    let bench = beegfs7_real();
    if !bench.can_be_in(Trouble::TargetAway) {
        return;
    }
    let id = QuotaId::User(1000);
    let before = limits(&bench.storage(), id).await;
    let storage = bench.with(Trouble::TargetAway);
    let quota = storage.quota(id).await;
    assert!(matches!(quota, Err(StorageError::Away { .. })), "{quota:?}");
    let set = storage.set_quota(id, None, Some(Limit::Unlimited), None).await;
    assert!(matches!(set, Err(StorageError::Away { .. })), "{set:?}");
    assert_eq!(storage.nodes().await.unwrap().doubts, []);
    assert_eq!(storage.pools().await.unwrap().doubts, []);
    assert_eq!(storage.server_stats(Role::Metadata, 0).await.unwrap().doubts, []);
    storage.entry(&Bench::home()).await.unwrap();
    assert_eq!(limits(&bench.storage(), id).await, before, "it is back, and nothing was set meanwhile");
}
