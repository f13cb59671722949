//! Servers of BeeGFS 8 that really run, and what only they show. `EIRENE_TEST_BEEGFS8` names a directory with the tool and what it needs,
//! `EIRENE_TEST_BEEGFS8_SERVERS` a program that kills, stops and continues servers; `storage/README.md` describes both. Without a licence quotas
//! are refused, so the contract's tests of quotas are left out.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use eirene_core::storage::{
    Ability, Bytes, Known, OperationsKind, PoolId, QuotaId, Ran, Role, SetStripe, SharedStorage, StorageError, Why,
};
use eirene_launcher::beegfs::check;
use eirene_launcher::config::Generation;

use crate::benches::{Bench, Trouble, bench, eight};

/// Longest until servers that were started answer, and until those that were stopped do not.
const PATIENCE: Duration = Duration::from_mins(2);

fn directory() -> PathBuf {
    std::env::var_os("EIRENE_TEST_BEEGFS8").expect("EIRENE_TEST_BEEGFS8 names the BeeGFS that this asks").into()
}

/// Runs the tool as the launcher does, with its settings in front and no longer than its table allows.
fn run(auth: &Path, certificate: &Path, arguments: &[String]) -> Option<Ran> {
    let directory = directory();
    let mgmtd = std::fs::read_to_string(directory.join("mgmtd")).unwrap();
    let limit = check(Generation::Eight, arguments).unwrap_or(PATIENCE);
    let output = directory.join("output");
    let errors = directory.join("errors");
    let mut command = Command::new(directory.join("beegfs"));
    command.arg(format!("--mgmtd-addr={}", mgmtd.trim()));
    command.arg(format!("--auth-file={}", auth.display())).arg(format!("--tls-cert-file={}", certificate.display()));
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C").stdin(Stdio::null());
    command.stdout(File::create(&output).unwrap()).stderr(File::create(&errors).unwrap());
    let mut child = command.spawn().ok()?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let text = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
            return Some(Ran { status: status.code().unwrap_or(-1), stdout: text(&output), stderr: text(&errors) });
        }
        if begun.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        sleep(Duration::from_millis(20));
    }
}

fn said(arguments: &[String], _: Trouble) -> Option<Ran> {
    run(&directory().join("auth"), &directory().join("cert.pem"), arguments)
}

fn with_another_secret(arguments: &[String], _: Trouble) -> Option<Ran> {
    let other = directory().join("other-auth");
    std::fs::write(&other, "another secret").unwrap();
    run(&other, &directory().join("cert.pem"), arguments)
}

fn without_a_secret(arguments: &[String], _: Trouble) -> Option<Ran> {
    run(&directory().join("nowhere"), &directory().join("cert.pem"), arguments)
}

fn with_another_certificate(arguments: &[String], _: Trouble) -> Option<Ran> {
    run(&directory().join("auth"), &directory().join("other-cert.pem"), arguments)
}

/// The servers, for one test at a time; whatever was done to them is taken back.
struct Servers {
    /// Held, so that other tests, which are other processes, wait.
    _lock: File,
    undo: Option<(&'static str, &'static str)>,
}

impl Servers {
    /// Waits for whoever else has them, and until all of them answer.
    async fn take(storage: &Arc<dyn SharedStorage>) -> Self {
        let lock = File::open(directory().join("mgmtd")).unwrap();
        lock.lock().unwrap();
        until("all servers answer", async || reachable(storage, Role::Storage).await == Some(2)).await;
        let home = "--raw entry create dir --mount=none --permissions=0755 --uid=1000 --gid=1000 /home";
        // Refused where it is there already.
        said(&home.split(' ').map(str::to_owned).collect::<Vec<_>>(), Trouble::None);
        Self { _lock: lock, undo: None }
    }

    fn tell(&mut self, verb: &'static str, server: &'static str, undo: &'static str) {
        self.undo = Some((undo, server));
        assert!(tell(verb, server), "{verb} {server}");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some((verb, server)) = self.undo.take() {
            assert!(tell(verb, server) || panicking(), "{verb} {server}");
        }
    }
}

fn tell(verb: &str, server: &str) -> bool {
    let program = std::env::var_os("EIRENE_TEST_BEEGFS8_SERVERS").expect("names what kills, stops and starts servers");
    let mut command = Command::new(program);
    command.args([verb, server]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(200));
    }
}

async fn reachable(storage: &Arc<dyn SharedStorage>, role: Role) -> Option<usize> {
    let nodes = storage.nodes().await.ok()?.value;
    Some(nodes.iter().filter(|node| node.id.role == role && node.reachable == Known::Known(true)).count())
}

fn beegfs8_real() -> Bench {
    bench(Some("beegfs"), |probe, _| eight(said, Trouble::None, probe))
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS8 names"]
async fn everything_that_is_asked_is_answered_without_doubt() {
    let real = beegfs8_real();
    let storage = real.storage();
    let _servers = Servers::take(&storage).await;
    let (nodes, targets, pools) =
        (storage.nodes().await.unwrap(), storage.targets().await.unwrap(), storage.pools().await.unwrap());
    for role in [Role::Management, Role::Metadata, Role::Storage] {
        assert!(nodes.value.iter().any(|node| node.id.role == role), "{nodes:?}");
    }
    for target in &targets.value {
        let (total, free) = (target.total.value().unwrap(), target.free.value().unwrap());
        assert!(total.0 > 0 && free <= total, "{target:?}");
        assert!(target.last_contact_s.value().is_some_and(|seconds| *seconds < 3600), "{target:?}");
    }
    assert!(!targets.value.is_empty() && !pools.value.is_empty());
    for doubts in [nodes.doubts, targets.doubts, pools.doubts] {
        assert_eq!(doubts, []);
    }
    for role in [Role::Metadata, Role::Storage] {
        for seconds in [0, 10] {
            let stats = storage.server_stats(role, seconds).await.unwrap();
            assert!(!stats.value.is_empty() && stats.doubts.is_empty(), "{stats:?}");
            assert!(stats.value.iter().all(|sample| sample.at_s > 1_700_000_000), "{stats:?}");
        }
        for of in [OperationsKind::Users, OperationsKind::Clients] {
            let total = async || {
                let counts = storage.operations(role, of).await.unwrap();
                assert_eq!(counts.doubts, []);
                counts.value.iter().map(|row| row.total).sum::<u64>()
            };
            let before = total().await;
            assert!(total().await >= before);
        }
    }
    let can = storage.capabilities().await;
    assert_eq!((can.targets, can.pools, can.stripe_read), (Ability::Yes, Ability::Yes, Ability::Yes));
    assert_eq!((can.server_stats, can.user_stats), (Ability::Yes, Ability::Yes));
    assert_eq!((can.quota_read, can.licence), (Ability::No(Why::Unlicensed), Ability::No(Why::Unlicensed)));
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS8 names"]
async fn a_stripe_pattern_is_set_and_read_back() {
    let real = beegfs8_real();
    let storage = real.storage();
    let _servers = Servers::take(&storage).await;
    for (chunk, targets) in [(2 << 20, 1), (1 << 20, 2)] {
        let wanted = SetStripe {
            chunk: Some(Bytes(chunk)),
            targets: Some(targets),
            pool: Some(PoolId(1)),
            mirrored: Some(false),
        };
        storage.set_stripe(&Bench::home(), &wanted).await.unwrap();
        let entry = storage.entry(&Bench::home()).await.unwrap();
        assert_eq!(entry.stripe.value().unwrap().chunk, Known::Known(Bytes(chunk)));
    }
    let mirrored = SetStripe { mirrored: Some(true), ..SetStripe::default() };
    assert!(storage.set_stripe(&Bench::home(), &mirrored).await.is_err(), "there are no mirrors");
    let nowhere = SetStripe { pool: Some(PoolId(999)), ..SetStripe::default() };
    let answer = storage.set_stripe(&Bench::home(), &nowhere).await;
    assert!(matches!(answer, Err(StorageError::NoSuchPool(PoolId(999)))), "{answer:?}");
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS8 names"]
async fn what_is_wrong_with_the_configuration_is_told_with_what_to_change() {
    let real = beegfs8_real();
    let storage = real.storage();
    let _servers = Servers::take(&storage).await;
    let secret = bench(Some("beegfs"), |probe, _| eight(with_another_secret, Trouble::None, probe));
    let none = bench(Some("beegfs"), |probe, _| eight(without_a_secret, Trouble::None, probe));
    let certificate = bench(Some("beegfs"), |probe, _| eight(with_another_certificate, Trouble::None, probe));
    for (other, words) in [(secret, "`auth_file`"), (none, "read `auth_file`"), (certificate, "`tls_cert`")] {
        match other.storage().targets().await {
            Err(StorageError::Refused { why: Why::Refused, text }) => assert!(text.contains(words), "{text}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    match storage.quota(QuotaId::User(1000)).await {
        Err(StorageError::Refused { why: Why::Unlicensed, text }) => {
            assert_eq!(text, "This BeeGFS has no licence for quotas.");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS8 names"]
async fn without_one_storage_server_the_figures_of_the_others_are_there() {
    let real = beegfs8_real();
    let storage = real.storage();
    let mut servers = Servers::take(&storage).await;
    // Killed, and one that hangs.
    for (verb, undo) in [("stop", "start"), ("pause", "resume")] {
        servers.tell(verb, "storage2", undo);
        until("it is missed", async || reachable(&storage, Role::Storage).await == Some(1)).await;
        for seconds in [0, 10] {
            let stats = storage.server_stats(Role::Storage, seconds).await.unwrap();
            let is_first =
                |node: &Known<eirene_core::storage::NodeId>| node.value().is_some_and(|node| node.number == 1);
            assert!(stats.value.iter().all(|sample| is_first(&sample.node) && sample.at_s > 0), "{verb}: {stats:?}");
            assert!(!stats.value.is_empty(), "{verb}");
            assert_eq!(stats.doubts.len(), 1, "{verb}: {stats:?}");
            assert!(stats.doubts[0].text.contains("storage server 2"), "{verb}: {stats:?}");
        }
        for of in [OperationsKind::Users, OperationsKind::Clients] {
            let counts = storage.operations(Role::Storage, of).await.unwrap();
            assert!(counts.doubts.iter().any(|doubt| doubt.text.contains("storage server 2")), "{verb}: {counts:?}");
        }
        assert_eq!(storage.nodes().await.unwrap().doubts, [], "{verb}");
        assert_eq!(storage.server_stats(Role::Metadata, 0).await.unwrap().doubts, [], "{verb}");
        for target in storage.targets().await.unwrap().value {
            let is_silent = target.node.value().is_some_and(|node| (node.role, node.number) == (Role::Storage, 2));
            assert_eq!(target.total.value().is_none(), is_silent, "{verb}: {target:?}");
        }
        storage.entry(&Bench::home()).await.unwrap();
        assert!(tell(undo, "storage2"), "{undo}");
        servers.undo = None;
        until("it is back", async || reachable(&storage, Role::Storage).await == Some(2)).await;
    }
}

#[tokio::test]
#[ignore = "asks the BeeGFS that EIRENE_TEST_BEEGFS8 names"]
async fn a_management_that_hangs_is_given_up_and_everything_is_away() {
    let real = beegfs8_real();
    let storage = real.storage();
    let mut servers = Servers::take(&storage).await;
    servers.tell("pause", "management", "resume");
    let answers = [storage.targets().await.err(), storage.server_stats(Role::Storage, 0).await.err()];
    for answer in answers {
        assert!(matches!(answer, Some(StorageError::Away { .. })), "{answer:?}");
    }
    assert!(tell("resume", "management"));
    servers.undo = None;
    until("it is back", async || reachable(&storage, Role::Storage).await == Some(2)).await;
}
