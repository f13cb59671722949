//! BeeGFS 7 through `beegfs-ctl`, which prints tables for people. Every method is one question (`call`), one pure parser, and a judgement of
//! status and text together (`answer`).
//!
//! Parsers follow the captures of 7.4.7 in `tests/fixtures` and, where those are silent, branch 7.4.x of ThinkParQ/beegfs (`ctl/source/modes`).
//! Settings are read back: the tool says little when it sets something.

mod call;
mod entry;
mod nodes;
mod pools;
mod quota;
mod stats;
mod targets;

use std::sync::Arc;

use async_trait::async_trait;
use eirene_core::storage::{
    Ability, BeegfsTool, Bytes, Capabilities, DefaultQuota, Entry, FileSystem, Files, Known, Limit, OperationCounts,
    OperationsKind, Partial, Place, Pool, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, Ran, Role, ServerNode,
    ServerSample, SetStripe, SharedStorage, StorageError, Target, Why,
};

use crate::answer::Empty;
use crate::beegfs::{self, Tool, ability, below_mount, check_range, check_stripe, merge};
use crate::doubts::Doubts;
use crate::posix::Posix;

/// The pool that 7 takes when none is named.
const DEFAULT_POOL: PoolId = PoolId(1);

/// The port over `beegfs-ctl`.
pub struct Beegfs7 {
    tool: Tool,
    posix: Posix,
}

impl Beegfs7 {
    /// Asks `tool`; what is asked of the mounted file system is `posix`'s.
    pub fn new(tool: Arc<dyn BeegfsTool>, posix: Posix) -> Self {
        Self { tool: Tool(tool), posix }
    }

    async fn entry_at(&self, path: &str) -> Result<Entry, StorageError> {
        let answer = self.tool.ask(call::entry(path), Empty::Wrong, entry::parse).await?;
        beegfs::only(answer.value)
    }
}

#[async_trait]
impl SharedStorage for Beegfs7 {
    fn name(&self) -> &'static str {
        "beegfs7"
    }

    async fn capabilities(&self) -> Capabilities {
        let version = match self.tool.run(&call::version()).await {
            Ok(ran) => version(&ran),
            Err(_) => Known::Missing(Why::DidNotAnswer),
        };
        let root = QuotaRange { of: QuotaOf::User, first: 0, last: 0 };
        let quota_read = ability(&self.quotas(root).await);
        let stripe_read = ability(&self.entry_at("/").await);
        let writes = |read: Ability| if matches!(read, Ability::No(_)) { read } else { Ability::Unknown };
        Capabilities {
            version,
            targets: ability(&self.targets().await),
            pools: ability(&self.pools().await),
            quota_read,
            quota_write: writes(quota_read),
            default_quota: ability(&self.default_quota(DEFAULT_POOL).await),
            stripe_read,
            stripe_write: writes(stripe_read),
            server_stats: ability(&self.server_stats(Role::Storage, 1).await),
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
        let mut answers = Vec::new();
        for role in [Role::Management, Role::Metadata, Role::Storage] {
            answers.push(self.tool.ask(call::nodes(role), Empty::Wrong, |text| nodes::parse(text, role)).await);
        }
        merge(answers)
    }

    async fn targets(&self) -> Result<Partial<Vec<Target>>, StorageError> {
        let mut answers = Vec::new();
        for role in [Role::Metadata, Role::Storage] {
            answers.push(self.tool.ask(call::targets(role), Empty::Wrong, |text| targets::parse(text, role)).await);
        }
        let Partial { mut value, doubts: mut all } = merge(answers)?;
        // The table of targets does not name their pools.
        let mut doubts = Doubts::default();
        match self.pools().await {
            Ok(pools) => {
                for target in value.iter_mut().filter(|target| target.id.role == Role::Storage) {
                    let pool = pools.value.iter().find(|pool| pool.targets.contains(&target.id.number));
                    target.pool = pool.map(|pool| pool.id);
                }
                doubts.add(pools.doubts);
            }
            Err(error) => doubts.whole(&format!("the pools are not known: {error}")),
        }
        all.extend(doubts.with(()).doubts);
        Ok(Partial { value, doubts: all })
    }

    async fn pools(&self) -> Result<Partial<Vec<Pool>>, StorageError> {
        self.tool.ask(call::pools(), Empty::Wrong, pools::parse).await
    }

    async fn quota(&self, id: QuotaId) -> Result<Partial<Vec<Quota>>, StorageError> {
        let (of, number) = beegfs::of(id)?;
        self.quotas(QuotaRange { of, first: number, last: number }).await
    }

    async fn quotas(&self, range: QuotaRange) -> Result<Partial<Vec<Quota>>, StorageError> {
        check_range(range)?;
        self.tool.ask(call::quotas(range), Empty::Wrong, |text| quota::parse(text, range)).await
    }

    async fn default_quota(&self, pool: PoolId) -> Result<DefaultQuota, StorageError> {
        let answer = self.tool.ask(call::default_quota(pool), Empty::Wrong, quota::parse_defaults).await?;
        beegfs::only(answer.value)
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
        let now = beegfs::in_pool(self.quota(id).await?, pool)?;
        let (size, files) = both(size, files, now.limit, now.files_limit)?;
        self.tool.change(call::set_quota(of, number, pool, size, files)).await.map_err(with_advice)?;
        let after = beegfs::in_pool(self.quota(id).await?, pool)?;
        beegfs::agree((Some(size), Some(files)), (after.limit, after.files_limit))
    }

    async fn set_default_quota(
        &self,
        pool: PoolId,
        of: QuotaOf,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        let (now_size, now_files) = beegfs::defaults_of(self.default_quota(pool).await?, of);
        let (size, files) = both(size, files, now_size, now_files)?;
        self.tool.change(call::set_default_quota(of, pool, size, files)).await.map_err(with_advice)?;
        // The tool sends what is everybody's a second time, as number 0's own (`ModeSetQuota::execute`, 7.4): root would be held to it.
        self.tool.change(call::free_root(of, pool)).await.map_err(with_advice)?;
        beegfs::agree((Some(size), Some(files)), beegfs::defaults_of(self.default_quota(pool).await?, of))
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
        // Servers that do not answer are left out of both answers without a word.
        let mut doubts = Doubts::default();
        let listed = match self.tool.ask(call::listed(role), Empty::Wrong, |text| nodes::parse(text, role)).await {
            Ok(listed) => {
                doubts.add(listed.doubts);
                listed.value
            }
            Err(error) => {
                doubts.whole(&format!("it is not known whether servers are missing: {}", beegfs::said(&error)));
                Vec::new()
            }
        };
        let answer = if seconds > 0 {
            let parse = |text: &str| stats::parse_history(text, listed.len());
            self.tool.ask(call::server_stats(role, seconds), Empty::Wrong, parse).await?
        } else {
            self.tool.ask(call::server_stats_now(role), Empty::Wrong, |text| stats::parse_now(text, role)).await?
        };
        let Partial { value, doubts: said } = answer;
        doubts.add(said);
        for node in listed.iter().filter(|_| seconds == 0) {
            let is_of = |sample: &ServerSample| sample.node.value().is_some_and(|of| of.number == node.id.number);
            if !value.iter().any(is_of) {
                doubts.whole(&beegfs::without_figures(&node.id, "it did not answer"));
            }
        }
        Ok(doubts.with(value))
    }

    async fn operations(&self, role: Role, of: OperationsKind) -> Result<Partial<Vec<OperationCounts>>, StorageError> {
        beegfs::has_work(role)?;
        self.tool.ask(call::operations(role, of), Empty::Said, |text| stats::parse_operations(text, of)).await
    }
}

/// `--version` prints its help and ends with 1; the version is in it all the same.
fn version(ran: &Ran) -> Known<String> {
    // A tool that was built outside its repository has none to say.
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("Version:"))
        .map(str::trim)
        .filter(|said| !said.is_empty());
    line.map_or(Known::Missing(Why::NotUnderstood), |version| Known::Known(crate::doubts::printable(version)))
}

/// Where limits are switched off the tool says no more than that.
fn with_advice(error: StorageError) -> StorageError {
    match error {
        StorageError::Refused { why: Why::NotEnabled, text } => {
            let text = format!(
                "{text} Set `quotaEnableEnforcement = true` in the configuration of the management, metadata and storage \
                 servers, and start them anew."
            );
            StorageError::Refused { why: Why::NotEnabled, text }
        }
        other => other,
    }
}

/// Both limits, because 7 is always told both: what is not to be changed is what it is now. 0 would mean "the default" there.
fn both(
    size: Option<Limit<Bytes>>,
    files: Option<Limit<Files>>,
    now_size: Known<Limit<Bytes>>,
    now_files: Known<Limit<Files>>,
) -> Result<(Limit<Bytes>, Limit<Files>), StorageError> {
    if size == Some(Limit::At(Bytes(0))) || files == Some(Limit::At(Files(0))) {
        return Err(StorageError::Invalid("BeeGFS 7 has no limit of 0: it takes it for the default one".into()));
    }
    let unknown = || StorageError::Malformed { what: "the limit that is to stay is not known".into() };
    let size = size.or_else(|| now_size.value().copied()).ok_or_else(unknown)?;
    let files = files.or_else(|| now_files.value().copied()).ok_or_else(unknown)?;
    Ok((size, files))
}

#[cfg(test)]
mod tests;
