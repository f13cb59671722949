//! BeeGFS 8 through `beegfs`, which prints rows of JSON. **Written from the public source of ThinkParQ/beegfs-go 8.4.0 (690f579), and not run**:
//! there was no BeeGFS 8 to run it against. The output is marked experimental there, so columns are asked for by name and a row that lacks
//! one is left out with a doubt.
//!
//! The shape is that of [`crate::beegfs7`]: one question, one pure parser, one judgement of status and text together.

mod call;
mod lists;
mod rows;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::storage::{
    Ability, BeegfsTool, Bytes, Capabilities, DefaultQuota, Entry, FileSystem, Files, Known, Limit, OperationCounts,
    OperationsKind, Partial, Place, Pool, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, Ran, Role, ServerNode,
    ServerSample, SetStripe, SharedStorage, StorageError, Target, Why,
};

use crate::answer::{self, Empty};
use crate::beegfs::{self, Tool, ability, below_mount, check_range, check_stripe, merge};
use crate::doubts::printable;
use crate::posix::Posix;

/// The pool that files go to unless something else was said.
const DEFAULT_POOL: PoolId = PoolId(1);

/// The port over `beegfs`.
pub struct Beegfs8 {
    tool: Tool,
    posix: Posix,
}

impl Beegfs8 {
    /// Asks `tool`; what is asked of the mounted file system is `posix`'s.
    pub fn new(tool: Arc<dyn BeegfsTool>, posix: Posix) -> Self {
        Self { tool: Tool(tool), posix }
    }

    async fn entry_at(&self, path: &str) -> Result<Entry, StorageError> {
        beegfs::only(self.tool.ask(call::entry(path), Empty::Wrong, lists::entry).await?.value)
    }

    async fn pools_with_limits(&self) -> Result<Partial<Vec<(Pool, DefaultQuota)>>, StorageError> {
        self.tool.ask(call::pools(), Empty::Wrong, lists::pools).await
    }
}

#[async_trait]
impl SharedStorage for Beegfs8 {
    fn name(&self) -> &'static str {
        "beegfs8"
    }

    async fn capabilities(&self) -> Capabilities {
        let version = match self.tool.run(&call::version()).await {
            Ok(ran) => version(&ran),
            Err(_) => Known::Missing(Why::DidNotAnswer),
        };
        let root = QuotaRange { of: QuotaOf::User, first: 0, last: 0 };
        let quota_read = match self.quotas(root).await {
            // Quotas are off, or root has none.
            Ok(quotas) if quotas.value.iter().all(|quota| quota.used == Known::Missing(Why::NotEnabled)) => {
                Ability::Unknown
            }
            answer => ability(&answer),
        };
        let pools = ability(&self.pools_with_limits().await);
        let stripe_read = ability(&self.entry_at("/").await);
        let writes = |read: Ability| if matches!(read, Ability::No(_)) { read } else { Ability::Unknown };
        Capabilities {
            version,
            targets: ability(&self.targets().await),
            pools,
            quota_read,
            quota_write: writes(quota_read),
            default_quota: pools,
            stripe_read,
            stripe_write: writes(stripe_read),
            server_stats: ability(&self.server_stats(Role::Storage, 0).await),
            user_stats: ability(&self.operations(Role::Metadata, OperationsKind::Users).await),
            ..Capabilities::none(self.name())
        }
    }

    async fn file_system(&self, place: &Place) -> Result<FileSystem, StorageError> {
        self.posix.file_system(place).await
    }

    async fn directory_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        self.posix.directory_quota(place).await
    }

    async fn person_quota(&self, place: &Place) -> Result<Known<Quota>, StorageError> {
        self.posix.person_quota(place).await
    }

    async fn nodes(&self) -> Result<Partial<Vec<ServerNode>>, StorageError> {
        self.tool.ask(call::nodes(), Empty::Wrong, lists::nodes).await
    }

    async fn targets(&self) -> Result<Partial<Vec<Target>>, StorageError> {
        self.tool.ask(call::targets(), Empty::Wrong, lists::targets).await
    }

    async fn pools(&self) -> Result<Partial<Vec<Pool>>, StorageError> {
        let Partial { value, doubts } = self.pools_with_limits().await?;
        Ok(Partial { value: value.into_iter().map(|(pool, _)| pool).collect(), doubts })
    }

    async fn quota(&self, id: QuotaId) -> Result<Partial<Vec<Quota>>, StorageError> {
        let (of, number) = beegfs::of(id)?;
        self.quotas(QuotaRange { of, first: number, last: number }).await
    }

    async fn quotas(&self, range: QuotaRange) -> Result<Partial<Vec<Quota>>, StorageError> {
        check_range(range)?;
        let pools = self.pools().await?;
        let ran = self.tool.run(&call::quotas(range)).await?;
        let every = usage::every(&ran.stderr);
        let mut answer = match usage::nothing_known(&ran, range, &pools.value) {
            Some(nothing) => nothing,
            None => answer::rows(&ran, Empty::Wrong, |text| usage::quotas(text, range, &pools.value, every))?,
        };
        answer.doubts.extend(pools.doubts);
        Ok(answer)
    }

    async fn default_quota(&self, pool: PoolId) -> Result<DefaultQuota, StorageError> {
        let pools = self.pools_with_limits().await?;
        let found = pools.value.into_iter().find(|(other, _)| other.id == pool);
        found.map(|(_, quota)| quota).ok_or_else(|| beegfs::no_pool(pool, &pools.doubts))
    }

    async fn set_quota(
        &self,
        id: QuotaId,
        pool: Option<PoolId>,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let (of, number) = beegfs::of(id)?;
        let pool = pool.unwrap_or(DEFAULT_POOL);
        something(size, files)?;
        self.tool.change(call::set_quota(of, number, pool, size, files)).await?;
        let after = beegfs::in_pool(self.quota(id).await?, pool)?;
        beegfs::agree((size, files), (after.limit, after.files_limit))
    }

    async fn set_default_quota(
        &self,
        pool: PoolId,
        of: QuotaOf,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        something(size, files)?;
        self.tool.change(call::set_default_quota(of, pool, size, files)).await?;
        beegfs::agree((size, files), beegfs::defaults_of(self.default_quota(pool).await?, of))
    }

    async fn entry(&self, place: &Place) -> Result<Entry, StorageError> {
        self.entry_at(&below_mount(&self.posix.look(place).await?)?).await
    }

    async fn set_stripe(&self, place: &Place, wanted: &SetStripe) -> Result<(), StorageError> {
        check_stripe(wanted)?;
        let path = below_mount(&self.posix.look(place).await?)?;
        self.tool.change(call::set_stripe(&path, wanted)).await?;
        beegfs::same_stripe(wanted, &self.entry_at(&path).await?)
    }

    async fn server_stats(&self, role: Role, seconds: u32) -> Result<Partial<Vec<ServerSample>>, StorageError> {
        beegfs::has_work(role)?;
        if seconds == 0 {
            return self.tool.ask(call::server_stats_now(role), Empty::Wrong, usage::samples).await;
        }
        // Only one server at a time has a history.
        let nodes = self.nodes().await?.value;
        let mut answers = Vec::new();
        for node in lists::numbers(&nodes, role) {
            answers.push(self.tool.ask(call::server_stats(role, node, seconds), Empty::Wrong, usage::samples).await);
        }
        merge(answers)
    }

    async fn operations(&self, role: Role, of: OperationsKind) -> Result<Partial<Vec<OperationCounts>>, StorageError> {
        beegfs::has_work(role)?;
        let ran = self.tool.run(&call::operations(role, of)).await?;
        if ran.status != 0 && ran.stderr.trim_end().ends_with("list is empty") {
            // Nobody has done anything yet.
            return Ok(Partial { value: Vec::new(), doubts: Vec::new() });
        }
        answer::rows(&ran, Empty::Fine, |text| usage::operations(text, of))
    }
}

/// `Version: 8.4.0 | Commit …`.
fn version(ran: &Ran) -> Known<String> {
    let line = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("Version: "));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.map_or(Known::Missing(Why::NotUnderstood), |word| Known::Known(printable(word)))
}

fn something(size: Option<Limit<Bytes>>, files: Option<Limit<Files>>) -> Result<(), StorageError> {
    if size.is_none() && files.is_none() {
        return Err(StorageError::Invalid("no limit was given".into()));
    }
    // Nothing tells the largest number from "unlimited".
    let number = |limit| matches!(limit, Some(Limit::At(number)) if number >= i64::MAX as u64);
    let size = size.map(|limit| match limit {
        Limit::At(Bytes(bytes)) => Limit::At(bytes),
        Limit::Unlimited => Limit::Unlimited,
    });
    let files = files.map(|limit| match limit {
        Limit::At(Files(files)) => Limit::At(files),
        Limit::Unlimited => Limit::Unlimited,
    });
    if number(size) || number(files) {
        return Err(StorageError::Invalid("a limit that large is no limit: say unlimited".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
