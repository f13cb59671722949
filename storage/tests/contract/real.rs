//! The adapter of BeeGFS 7 against daemons that really run, where there are some: `EIRENE_TEST_BEEGFS7` names a directory with `beegfs-ctl` and
//! the `client.conf` it is to use (`storage/README.md` says how such daemons are run). Without it these tests say so and check what is left:
//! that a tool that is not there is no answer. They change limits of users nobody has, and put the pattern of the root directory back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::storage::{
    Ability, BeegfsTool, Bytes, Files, Known, Limit, OperationsKind, Place, PoolId, QuotaId, QuotaOf, QuotaRange, Ran,
    Role, SetStripe, SharedStorage, StorageError,
};
use eirene_launcher::beegfs::check;
use eirene_launcher::config::Generation;

use crate::benches::mounted_at_root;

/// A user of no site's.
const NOBODYS: u32 = 4_000_001;

/// Runs the tool as it is, by the launcher's table.
struct Tool(PathBuf);

#[async_trait]
impl BeegfsTool for Tool {
    async fn run(&self, arguments: &[String]) -> Result<Ran, StorageError> {
        check(Generation::Seven, arguments).unwrap_or_else(|refusal| panic!("{}: {arguments:?}", refusal.text));
        let mut command = Command::new(self.0.join("beegfs-ctl"));
        command.arg(format!("--cfgFile={}", self.0.join("client.conf").display())).args(arguments);
        let output = command.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C").output();
        let output = output.map_err(|error| StorageError::Away { source: Some(error.into()), retry_after_s: 10 })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Ok(Ran { status, stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }
}

/// The storage, and the directory that stands for its mount; `None`, with a word about it, where none runs.
async fn real() -> Option<(tempfile::TempDir, Arc<dyn SharedStorage>)> {
    let Some(directory) = std::env::var_os("EIRENE_TEST_BEEGFS7") else {
        #[expect(clippy::print_stderr, reason = "whoever runs the tests must know")]
        {
            eprintln!("EIRENE_TEST_BEEGFS7 is not set: no BeeGFS is asked");
        }
        let (_folder, storage) = mounted_at_root(Arc::new(Tool("/nonexistent".into())));
        assert!(matches!(storage.targets().await, Err(StorageError::Away { .. })));
        return None;
    };
    Some(mounted_at_root(Arc::new(Tool(Path::new(&directory).to_owned()))))
}

fn root() -> Place {
    Place::Root("all".parse().unwrap())
}

#[tokio::test]
async fn everything_that_is_asked_is_answered_without_doubt() {
    let Some((_folder, storage)) = real().await else { return };
    let can = storage.capabilities().await;
    assert!(can.version.value().is_some_and(|version| version.starts_with("7.")), "{can:?}");
    let abilities = [can.targets, can.pools, can.quota_read, can.default_quota, can.stripe_read, can.server_stats];
    assert_eq!(abilities, [Ability::Yes; 6], "{can:?}");
    let nodes = storage.nodes().await.unwrap();
    for role in [Role::Management, Role::Metadata, Role::Storage] {
        assert!(nodes.value.iter().any(|node| node.id.role == role), "{nodes:?}");
    }
    let (targets, pools) = (storage.targets().await.unwrap(), storage.pools().await.unwrap());
    assert!(!targets.value.is_empty() && !pools.value.is_empty());
    for target in &targets.value {
        let (total, free) = (target.total.value().unwrap(), target.free.value().unwrap());
        assert!(total.0 > 0 && free <= total, "{target:?}");
        assert!(target.id.role != Role::Storage || target.pool.is_some(), "{target:?}");
    }
    for doubts in [nodes.doubts, targets.doubts, pools.doubts] {
        assert_eq!(doubts, []);
    }
    let range = QuotaRange { of: QuotaOf::Group, first: NOBODYS, last: NOBODYS + 2 };
    let quotas = storage.quotas(range).await.unwrap();
    assert_eq!(quotas.value.len(), 3 * pools.value.len(), "one for each number and pool: {quotas:?}");
}

#[tokio::test]
async fn statistics_are_read_and_counts_only_grow() {
    let Some((_folder, storage)) = real().await else { return };
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
async fn limits_that_are_set_are_there_and_what_is_not_named_stays() {
    let Some((_folder, storage)) = real().await else { return };
    let id = QuotaId::User(NOBODYS);
    let now = async || {
        let quotas = storage.quota(id).await.unwrap().value;
        let quota = quotas.into_iter().find(|quota| quota.pool == Some(PoolId(1))).unwrap();
        (quota.limit, quota.files_limit)
    };
    let (size, files) = (Limit::At(Bytes(10 << 30)), Limit::At(Files(1000)));
    storage.set_quota(id, None, Some(size), Some(files)).await.unwrap();
    assert_eq!(now().await, (Known::Known(size), Known::Known(files)));
    storage.set_quota(id, Some(PoolId(1)), Some(Limit::Unlimited), None).await.unwrap();
    assert_eq!(now().await, (Known::Known(Limit::Unlimited), Known::Known(files)));
    storage.set_quota(id, None, None, Some(Limit::Unlimited)).await.unwrap();
    assert_eq!(now().await, (Known::Known(Limit::Unlimited), Known::Known(Limit::Unlimited)));
    let gone = storage.set_quota(id, Some(PoolId(999)), Some(size), None).await;
    assert!(gone.is_err(), "a pool that is not there: {gone:?}");
}

#[tokio::test]
async fn a_pattern_is_set_and_read_back_and_put_back() {
    let Some((_folder, storage)) = real().await else { return };
    let before = storage.entry(&root()).await.unwrap().stripe.value().cloned().unwrap();
    let as_before = SetStripe {
        chunk: before.chunk.value().copied(),
        targets: before.targets_wanted.value().copied(),
        ..SetStripe::default()
    };
    let chunk = if as_before.chunk == Some(Bytes(1 << 20)) { Bytes(2 << 20) } else { Bytes(1 << 20) };
    let wanted = SetStripe { chunk: Some(chunk), targets: Some(1), ..SetStripe::default() };
    storage.set_stripe(&root(), &wanted).await.unwrap();
    let now = storage.entry(&root()).await.unwrap().stripe.value().cloned().unwrap();
    assert_eq!((now.chunk, now.targets_wanted), (Known::Known(chunk), Known::Known(1)));
    storage.set_stripe(&root(), &as_before).await.unwrap();
    assert_eq!(storage.entry(&root()).await.unwrap().stripe.value(), Some(&before));
}
