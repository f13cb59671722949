//! BeeGFS 8 through `beegfs`, which prints rows of JSON. The parsers read output of 8.3.1 and of a build shortly before 8.4.0
//! (`tests/fixtures/beegfs-8.3.1`, `beegfs-8.4-pre`). The output is marked experimental there, so columns are asked for by name and a row
//! that lacks one is left out with a doubt.
//!
//! The shape is that of [`crate::beegfs7`]: one question, one pure parser, one judgement of status and text together.
//!
//! Statistics are asked of one server after the other, and only of those that are reachable. A server that is down or hangs is named in a
//! doubt; the others' figures are there.

mod call;
mod lists;
mod release;
mod rows;
mod usage;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use eirene_core::storage::{
    Ability, BeegfsTool, Bytes, Capabilities, DefaultQuota, Doubt, DoubtAbout, Entry, FileSystem, Files, Known, Limit,
    OperationCounts, OperationsKind, Partial, Place, Pool, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, Ran, Role,
    ServerNode, ServerSample, SetStripe, SharedStorage, StorageError, Target, Why,
};

use self::release::Learned;
use crate::answer::{self, Empty};
use crate::beegfs::{self, Tool, ability, below_mount, check_range, check_stripe, said};
use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::posix::Posix;

/// The pool that files go to unless something else was said.
const DEFAULT_POOL: PoolId = PoolId(1);
/// How `node list` ends where a node is unreachable.
const UNREACHABLE: i32 = 5;
/// After this time no further server is asked for its figures: somebody waits for the others'.
const PATIENCE: Duration = Duration::from_secs(10);

/// The port over `beegfs`.
pub struct Beegfs8 {
    tool: Tool,
    posix: Posix,
    learned: Learned,
}

impl Beegfs8 {
    /// Asks `tool`; what is asked of the mounted file system is `posix`'s.
    pub fn new(tool: Arc<dyn BeegfsTool>, posix: Posix) -> Self {
        Self { tool: Tool(tool), posix, learned: Learned::default() }
    }

    /// The tool's version. Learns again which flags it knows, for it may have been replaced.
    async fn version(&self) -> Result<Known<String>, StorageError> {
        let version = release::version(&self.tool.run(&call::version()).await?);
        let by_number = version.value().and_then(|version| release::knows_no_alerts(version));
        let knows = match by_number {
            Some(knows) => knows,
            None => self.tool.run(&call::knows_no_alerts()).await?.status == 0,
        };
        self.learned.set_no_alerts(knows);
        Ok(version)
    }

    /// Runs the tool with the flags that its release knows. Remarks about the licence are not in the answer.
    async fn run(&self, arguments: Vec<String>) -> Result<Ran, StorageError> {
        if self.learned.no_alerts().is_none() {
            self.version().await?;
        }
        let mut ran = self.tool.run(&self.with_flags(&arguments)).await?;
        if ran.status != 0 && ran.stderr.contains("unknown flag: --disable-alerts") {
            // An older tool lies in the place of the one that was asked for its version.
            self.version().await?;
            ran = self.tool.run(&self.with_flags(&arguments)).await?;
        }
        Ok(self.learned.judge(ran, arguments.iter().any(|argument| argument == "quota")))
    }

    fn with_flags(&self, arguments: &[String]) -> Vec<String> {
        let mut all = arguments.to_vec();
        if self.learned.no_alerts() == Some(true)
            && let Some(raw) = all.iter().position(|argument| argument == call::RAW)
        {
            all.insert(raw + 1, call::NO_ALERTS.to_owned());
        }
        all
    }

    async fn ask<T>(
        &self,
        arguments: Vec<String>,
        empty: Empty,
        parse: impl FnOnce(&str) -> Partial<Vec<T>>,
    ) -> Result<Partial<Vec<T>>, StorageError> {
        answer::rows(&self.run(arguments).await?, empty, parse)
    }

    async fn change(&self, arguments: Vec<String>) -> Result<(), StorageError> {
        answer::done(&self.run(arguments).await?)
    }

    async fn entry_at(&self, path: &str) -> Result<Entry, StorageError> {
        beegfs::only(self.ask(call::entry(path), Empty::Wrong, lists::entry).await?.value)
    }

    async fn pools_with_limits(&self) -> Result<Partial<Vec<(Pool, DefaultQuota)>>, StorageError> {
        self.ask(call::pools(), Empty::Wrong, lists::pools).await
    }

    /// Limits of a range by id and pool, also of those who use nothing: their own, or else the pool's default ones.
    async fn limits(&self, range: QuotaRange) -> Result<Partial<usage::Limits>, StorageError> {
        check_range(range)?;
        let pools = self.pools_with_limits().await?;
        let own = self.ask(call::limits(range), Empty::Fine, |text| usage::limits(text, range, &pools.value)).await?;
        let limits = usage::Limits::new(pools.value, &own);
        let mut doubts = Doubts::default();
        doubts.add(pools.doubts);
        doubts.add(own.doubts);
        Ok(doubts.with(limits))
    }

    /// Asks every reachable server of a role, one after the other. Those that are not reachable, and those that fail, are named in doubts. Where
    /// none is reachable all are asked: a firewall may hold back what the tool tries them with.
    async fn of_each<T>(
        &self,
        role: Role,
        question: impl Fn(u32) -> Vec<String>,
        parse: impl Fn(&Ran) -> Result<Partial<Vec<T>>, StorageError>,
    ) -> Result<Partial<Vec<T>>, StorageError> {
        beegfs::has_work(role)?;
        let listed = self.nodes().await?;
        let nodes: Vec<&ServerNode> = listed.value.iter().filter(|node| node.id.role == role).collect();
        let is_reachable = |node: &ServerNode| node.reachable != Known::Known(false);
        let any = nodes.iter().any(|node| is_reachable(node));
        let begun = Instant::now();
        let mut doubts = Doubts::default();
        doubts.add(listed.doubts);
        let mut rows = Vec::new();
        let mut came = false;
        for node in nodes {
            let missing = if any && !is_reachable(node) {
                "it is unreachable".to_owned()
            } else if begun.elapsed() > PATIENCE {
                "others took too long to answer".to_owned()
            } else {
                match self.run(question(node.id.number)).await.and_then(|ran| parse(&ran)) {
                    Ok(part) => {
                        came = true;
                        rows.extend(part.value);
                        doubts.add(part.doubts);
                        continue;
                    }
                    Err(StorageError::Away { .. }) => "it did not answer".to_owned(),
                    Err(error) => said(&error),
                }
            };
            doubts.whole(&beegfs::without_figures(&node.id, &missing));
        }
        let answer = doubts.with(rows);
        match answer.doubts.first() {
            _ if came => Ok(answer),
            Some(doubt) => Err(noise::Trouble::Away.error(&doubt.text)),
            None => Err(StorageError::Malformed { what: "no server of this role is listed".into() }),
        }
    }
}

#[async_trait]
impl SharedStorage for Beegfs8 {
    fn name(&self) -> &'static str {
        "beegfs8"
    }

    async fn capabilities(&self) -> Capabilities {
        let version = self.version().await.unwrap_or(Known::Missing(Why::DidNotAnswer));
        let root = QuotaRange { of: QuotaOf::User, first: 0, last: 0 };
        let quota_read = ability(&self.quotas(root).await);
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
            licence: self.learned.licence(),
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
        let mut ran = self.run(call::nodes()).await?;
        // The status says what the rows say.
        if ran.status == UNREACHABLE && ran.stderr.trim() == "Error: at least one node is unreachable" {
            (ran.status, ran.stderr) = (0, String::new());
        }
        answer::rows(&ran, Empty::Wrong, lists::nodes)
    }

    async fn targets(&self) -> Result<Partial<Vec<Target>>, StorageError> {
        let mut targets = self.ask(call::targets(), Empty::Wrong, lists::targets).await?;
        match self.nodes().await {
            Ok(nodes) => lists::leave_out_unreachable(&mut targets, &nodes.value),
            Err(error) => {
                let text = format!("The portal does not know which servers are reachable: {}", said(&error));
                targets.doubts.push(Doubt { about: DoubtAbout::Whole, text: printable(&text) });
            }
        }
        Ok(targets)
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
        let limits = self.limits(range).await?;
        let ran = self.run(call::usage(range)).await?;
        let every = usage::every(&ran.stderr);
        let used = if usage::nobody_known(&ran) {
            Partial { value: Vec::new(), doubts: Vec::new() }
        } else {
            answer::rows(&ran, Empty::Wrong, |text| usage::used(text, range, limits.value.pools()))?
        };
        let quotas = limits.value.with(&used, range, every);
        let mut doubts = Doubts::default();
        doubts.add(limits.doubts);
        doubts.add(used.doubts);
        Ok(doubts.with(quotas))
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
        self.change(call::set_quota(of, number, pool, size, files)).await?;
        let after = self.limits(QuotaRange { of, first: number, last: number }).await?;
        let now = after.value.of(of, number, pool).ok_or_else(|| beegfs::no_pool(pool, &after.doubts))?;
        beegfs::agree((size, files), now)
    }

    async fn set_default_quota(
        &self,
        pool: PoolId,
        of: QuotaOf,
        size: Option<Limit<Bytes>>,
        files: Option<Limit<Files>>,
    ) -> Result<(), StorageError> {
        something(size, files)?;
        self.change(call::set_default_quota(of, pool, size, files)).await?;
        beegfs::agree((size, files), beegfs::defaults_of(self.default_quota(pool).await?, of))
    }

    async fn entry(&self, place: &Place) -> Result<Entry, StorageError> {
        self.entry_at(&below_mount(&self.posix.look(place).await?)?).await
    }

    async fn set_stripe(&self, place: &Place, wanted: &SetStripe) -> Result<(), StorageError> {
        check_stripe(wanted)?;
        let path = below_mount(&self.posix.look(place).await?)?;
        self.change(call::set_stripe(&path, wanted)).await?;
        beegfs::same_stripe(wanted, &self.entry_at(&path).await?)
    }

    async fn server_stats(&self, role: Role, seconds: u32) -> Result<Partial<Vec<ServerSample>>, StorageError> {
        let question = |node| call::server_stats(role, node, seconds.max(1));
        let parse = |ran: &Ran| {
            let mut answer = answer::rows(ran, Empty::Wrong, usage::samples)?;
            if seconds == 0 {
                let newest = answer.value.iter().map(|sample| sample.at_s).max();
                answer.value.retain(|sample| Some(sample.at_s) == newest);
            }
            Ok(answer)
        };
        self.of_each(role, question, parse).await
    }

    async fn operations(&self, role: Role, of: OperationsKind) -> Result<Partial<Vec<OperationCounts>>, StorageError> {
        let counts = |ran: &Ran| {
            if ran.status != 0 && ran.stderr.trim_end().ends_with("list is empty") {
                // Nobody has done anything yet.
                return Ok(Partial { value: Vec::new(), doubts: Vec::new() });
            }
            answer::rows(ran, Empty::Fine, |text| usage::operations(text, of))
        };
        let answer = self.of_each(role, |node| call::operations(role, node, of), counts).await?;
        Ok(Partial { value: usage::sum(answer.value), doubts: answer.doubts })
    }
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
