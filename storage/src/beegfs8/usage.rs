//! Quotas and statistics out of rows.

use std::collections::HashMap;

use eirene_core::storage::{
    Bytes, Counted, DefaultQuota, DoubtAbout, Files, Known, Limit, NodeId, OperationCounts, OperationsKind,
    OperationsOf, Partial, Pool, PoolId, Quota, QuotaId, QuotaOf, QuotaRange, Ran, Role, ServerSample, Why,
};

use super::lists::each;
use super::rows::{self, Row};
use crate::beegfs::{defaults_of, without_figures};
use crate::doubts::printable;
use crate::units::digits;

/// A user or group in a pool.
type Key = (QuotaId, PoolId);
/// Limits of bytes and files.
type Both = (Known<Limit<Bytes>>, Known<Limit<Files>>);
/// Pools, each with the limits of who has none of their own.
type Pools = [(Pool, DefaultQuota)];

/// Whose row it is, and of which pool, which comes by its alias. `None` where that is outside of what was asked, or no single pool.
fn key(row: &Row, range: QuotaRange, pools: &Pools) -> Option<Key> {
    let of = match rows::text(row, "type")? {
        "user" => QuotaOf::User,
        "group" => QuotaOf::Group,
        _ => return None,
    };
    let id = u32::try_from(rows::number(row, "id")?).ok()?;
    let alias = printable(rows::text(row, "pool")?);
    let mut named = pools.iter().filter(|(pool, _)| pool.name == alias);
    let (pool, _) = named.next().filter(|_| named.next().is_none())?;
    (of == range.of && (range.first..=range.last).contains(&id)).then_some((of.id(id), pool.id))
}

/// What somebody uses in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) key: Key,
    pub(super) bytes: Known<Bytes>,
    pub(super) files: Known<Files>,
}

/// `quota list-usage`. Who uses nothing may be left out.
pub(super) fn used(text: &str, range: QuotaRange, pools: &Pools) -> Partial<Vec<Used>> {
    let (rows, mut doubts) = each(text, |row, doubts| {
        let key = key(row, range, pools)?;
        let bytes = rows::used(rows::text(row, "space")?, Bytes);
        let files = rows::used(rows::text(row, "inode")?, Files);
        if bytes.value().is_none() || files.value().is_none() {
            doubts.note(DoubtAbout::Id(key.0), "not all of its numbers are known");
        }
        Some(Used { key, bytes, files })
    });
    let rows = doubts.unique(rows, |used| used.key);
    doubts.with(rows)
}

/// Whether `list-usage` says that it knows nobody in the range: 8.4 in a sentence, releases before by a period of `?`.
pub(super) fn nobody_known(ran: &Ran) -> bool {
    let says = |line: &str| {
        line.starts_with("WARNING: No information found")
            || line.starts_with("INFO: Quota usage information is fetched every ? ")
    };
    ran.status == 0 && ran.stdout.trim().is_empty() && ran.stderr.lines().any(says)
}

/// Somebody's own limits in a pool; `None` where the default one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Own {
    key: Key,
    bytes: Option<Known<Limit<Bytes>>>,
    files: Option<Known<Limit<Files>>>,
}

/// `quota list-limits`: those who have limits of their own.
pub(super) fn limits(text: &str, range: QuotaRange, pools: &Pools) -> Partial<Vec<Own>> {
    let (rows, mut doubts) = each(text, |row, doubts| {
        let key = key(row, range, pools)?;
        let cell = |column| rows::text(row, column);
        let own = Own {
            key,
            bytes: Some(cell("space")?).filter(|cell| *cell != "-").map(|cell| rows::limit(cell, Bytes)),
            files: Some(cell("inode")?).filter(|cell| *cell != "-").map(|cell| rows::limit(cell, Files)),
        };
        let unread = [
            own.bytes.is_some_and(|limit| limit.value().is_none()),
            own.files.is_some_and(|limit| limit.value().is_none()),
        ];
        if unread.contains(&true) {
            doubts.note(DoubtAbout::Id(key.0), "not all of its limits are known");
        }
        Some(own)
    });
    let rows = doubts.unique(rows, |own| own.key);
    doubts.with(rows)
}

/// The limits that hold for each user or group of a range.
pub(super) struct Limits {
    pools: Vec<(Pool, DefaultQuota)>,
    own: HashMap<Key, Own>,
    /// Whether who is not in `own` has no limits of their own.
    is_whole: bool,
}

impl Limits {
    /// From the pools and the answer about those who have limits of their own.
    pub(super) fn new(pools: Vec<(Pool, DefaultQuota)>, own: &Partial<Vec<Own>>) -> Self {
        Self { pools, own: own.value.iter().map(|own| (own.key, *own)).collect(), is_whole: own.doubts.is_empty() }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The limits of one user or group in a pool; `None` where the pool is not listed.
    pub(super) fn of(&self, of: QuotaOf, number: u32, pool: PoolId) -> Option<Both> {
        let (_, default) = self.pools.iter().find(|(listed, _)| listed.id == pool)?;
        let (bytes, files) = defaults_of(*default, of);
        Some(match self.own.get(&(of.id(number), pool)) {
            Some(own) => (own.bytes.unwrap_or(bytes), own.files.unwrap_or(files)),
            None if self.is_whole => (bytes, files),
            None => (Known::Missing(Why::DidNotAnswer), Known::Missing(Why::DidNotAnswer)),
        })
    }

    /// One quota for each id of the range and each pool: first of those who use something or have limits of their own. Who is not in a whole
    /// answer about usage was not measured yet.
    pub(super) fn with(&self, used: &Partial<Vec<Used>>, range: QuotaRange, every_s: Known<u32>) -> Vec<Quota> {
        let why = if used.doubts.is_empty() { Why::NeverMeasured } else { Why::DidNotAnswer };
        let used: HashMap<Key, &Used> = used.value.iter().map(|used| (used.key, used)).collect();
        let (mut all, mut others) = (Vec::new(), Vec::new());
        for (pool, _) in &self.pools {
            for number in range.first..=range.last {
                let id = range.of.id(number);
                let Some((limit, files_limit)) = self.of(range.of, number, pool.id) else { continue };
                let key = (id, pool.id);
                let used = used.get(&key);
                let is_somebody = used.is_some() || self.own.contains_key(&key);
                let rows = if is_somebody { &mut all } else { &mut others };
                rows.push(Quota {
                    id,
                    pool: Some(pool.id),
                    used: used.map_or(Known::Missing(why), |used| used.bytes),
                    limit,
                    files_used: used.map_or(Known::Missing(why), |used| used.files),
                    files_limit,
                    counted: Counted::ChunkFiles,
                    files_at_least: false,
                    measured_every_s: every_s,
                });
            }
        }
        all.append(&mut others);
        all
    }
}

/// The period of measurement, which is told beside the answer: `fetched every 30s`.
pub(super) fn every(stderr: &str) -> Known<u32> {
    let said = stderr.split_once("fetched every ").and_then(|(_, rest)| rest.split_once("s "));
    if stderr.contains("fetched every ? ") {
        return Known::Missing(Why::NeverMeasured);
    }
    let seconds = said.and_then(|(seconds, _)| u32::try_from(digits(seconds)?).ok());
    seconds.map_or(Known::Missing(Why::NotUnderstood), Known::Known)
}

/// `stats server`.
pub(super) fn samples(text: &str) -> Partial<Vec<ServerSample>> {
    let (samples, mut doubts) = each(text, |row, doubts| {
        let (role, number) = rows::id(row, "node_id")?;
        let node = NodeId { role, number, alias: rows::name(row, "alias") };
        let at_s = rows::number(row, "time")?;
        if at_s == 0 {
            // All of its numbers are 0, too, and none was measured.
            doubts.whole(&without_figures(&node, "it did not answer"));
            return Some(None);
        }
        // Metadata servers have no contents to read or write.
        let bytes = |column| match role {
            Role::Storage => rows::number(row, column).map(|bytes| Known::Known(Bytes(bytes))),
            _ => Some(Known::Missing(Why::NotSupported)),
        };
        Some(Some(ServerSample {
            node: Known::Known(node),
            at_s,
            written: bytes("written")?,
            read: bytes("read")?,
            requests: rows::number(row, "requests")?,
            queued: rows::number(row, "queue_length")?,
            busy: rows::number(row, "busy_workers")?,
        }))
    });
    let key = |sample: &ServerSample| (sample.node.value().map(|node| (node.role, node.number)), sample.at_s);
    let samples = doubts.unique(samples.into_iter().flatten().collect(), key);
    doubts.with(samples)
}

/// `stats user` and `stats client`: a column for each operation, empty where there was none.
pub(super) fn operations(text: &str, of: OperationsKind) -> Partial<Vec<OperationCounts>> {
    let (counts, mut doubts) = each(text, |row, _| {
        let (column, whose) = match of {
            OperationsKind::Users => ("user", user(rows::text(row, "user")?)?),
            OperationsKind::Clients => ("client", client(rows::name(row, "client")?)),
        };
        let mut all = OperationCounts { of: whose, total: 0, by_name: Vec::new(), read: nothing(), written: nothing() };
        for name in row.keys().filter(|name| *name != column) {
            // Nothing is written for 0.
            let count = if rows::text(row, name) == Some("") { 0 } else { rows::number(row, name)? };
            match name.as_str() {
                "sum" => all.total = count,
                "rd" => all.read = Known::Known(Bytes(count)),
                "wr" => all.written = Known::Known(Bytes(count)),
                _ if count == 0 => {}
                name => all.by_name.push((printable(name), count)),
            }
        }
        row.contains_key("sum").then_some(all)
    });
    let counts = doubts.unique(counts, |count| count.of.clone());
    doubts.with(counts)
}

fn nothing() -> Known<Bytes> {
    Known::Missing(Why::NotSupported)
}

/// Servers pass requests on to each other, and are listed without an address.
fn client(address: String) -> OperationsOf {
    if address == "::" { OperationsOf::Servers } else { OperationsOf::Client(address) }
}

/// Counts of several servers as one for each user or client.
pub(super) fn sum(counts: Vec<OperationCounts>) -> Vec<OperationCounts> {
    let mut sums: Vec<OperationCounts> = Vec::with_capacity(counts.len());
    let mut places: HashMap<OperationsOf, usize> = HashMap::with_capacity(counts.len());
    for count in counts {
        let Some(place) = places.get(&count.of) else {
            places.insert(count.of.clone(), sums.len());
            sums.push(count);
            continue;
        };
        let all = &mut sums[*place];
        all.total = all.total.saturating_add(count.total);
        for (name, more) in count.by_name {
            match all.by_name.iter_mut().find(|(listed, _)| *listed == name) {
                Some((_, listed)) => *listed = listed.saturating_add(more),
                None => all.by_name.push((name, more)),
            }
        }
        all.read = add(all.read, count.read);
        all.written = add(all.written, count.written);
    }
    sums
}

fn add(one: Known<Bytes>, other: Known<Bytes>) -> Known<Bytes> {
    match (one, other) {
        (Known::Known(one), Known::Known(other)) => Known::Known(Bytes(one.0.saturating_add(other.0))),
        (Known::Missing(why), _) | (_, Known::Missing(why)) => Known::Missing(why),
    }
}

fn user(text: &str) -> Option<OperationsOf> {
    match text {
        "-1" => Some(OperationsOf::UnknownUser),
        text => Some(OperationsOf::User(u32::try_from(digits(text)?).ok()?)),
    }
}
