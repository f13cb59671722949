//! Quotas and statistics out of rows.

use eirene_core::storage::{
    Bytes, Counted, DoubtAbout, Known, NodeId, OperationCounts, OperationsKind, OperationsOf, Partial, Pool, Quota,
    QuotaOf, QuotaRange, Ran, Role, ServerSample, Why,
};

use super::lists::each;
use super::rows;
use crate::beegfs::missing_quota;
use crate::doubts::{Doubts, printable};
use crate::units::digits;

/// `quota list-usage`. Pools come by their aliases, so `pools` says which they are. An id that uses nothing may be left out by the servers,
/// and so may one that was never looked at: neither is 0.
pub(super) fn quotas(text: &str, range: QuotaRange, pools: &[Pool], every_s: Known<u32>) -> Partial<Vec<Quota>> {
    let (rows, mut doubts) = each(text, |row, doubts| {
        let of = match rows::text(row, "type")? {
            "user" => QuotaOf::User,
            "group" => QuotaOf::Group,
            _ => return None,
        };
        let id = u32::try_from(rows::number(row, "id")?).ok()?;
        let alias = printable(rows::text(row, "pool")?);
        let mut named = pools.iter().filter(|pool| pool.name == alias);
        let pool = named.next().filter(|_| named.next().is_none())?.id;
        if of != range.of || !(range.first..=range.last).contains(&id) {
            return None;
        }
        let (used, limit) = rows::bytes(rows::text(row, "space")?);
        let (files_used, files_limit) = rows::files(rows::text(row, "inode")?);
        let id = of.id(id);
        if used.value().is_none() || files_used.value().is_none() || limit.value().is_none() {
            doubts.note(DoubtAbout::Id(id), "not all of its numbers are known");
        }
        Some(Quota {
            id,
            pool: Some(pool),
            used,
            limit,
            files_used,
            files_limit,
            counted: Counted::ChunkFiles,
            files_at_least: false,
            measured_every_s: every_s,
        })
    });
    let rows = doubts.unique(rows, |quota| (quota.id, quota.pool));
    if rows.is_empty() {
        return doubts.with(rows);
    }
    doubts.with(with_the_others(rows, range, pools, Why::NeverMeasured))
}

/// What `list-usage` says when it has nothing: either nobody has these ids, or quotas are off. Which of them it does not know.
pub(super) fn nothing_known(ran: &Ran, range: QuotaRange, pools: &[Pool]) -> Option<Partial<Vec<Quota>>> {
    let warning = ran.stderr.lines().find(|line| line.starts_with("WARNING: No information found"))?;
    if ran.status != 0 || !ran.stdout.trim().is_empty() {
        return None;
    }
    let mut doubts = Doubts::default();
    doubts.whole(warning);
    Some(doubts.with(with_the_others(Vec::new(), range, pools, Why::NotEnabled)))
}

/// The quotas, and for each id and pool without one that it is missing.
fn with_the_others(quotas: Vec<Quota>, range: QuotaRange, pools: &[Pool], why: Why) -> Vec<Quota> {
    let mut all = quotas;
    let come: std::collections::HashSet<_> = all.iter().map(|quota| (quota.id, quota.pool)).collect();
    for pool in pools {
        for id in (range.first..=range.last).map(|id| range.of.id(id)) {
            if !come.contains(&(id, Some(pool.id))) {
                all.push(missing_quota(id, Some(pool.id), why));
            }
        }
    }
    all
}

/// The period of measurement, which is told beside the answer: `fetched every 30s`.
pub(super) fn every(stderr: &str) -> Known<u32> {
    let said = stderr.split_once("fetched every ").and_then(|(_, rest)| rest.split_once("s "));
    let seconds = said.and_then(|(seconds, _)| u32::try_from(digits(seconds)?).ok());
    seconds.map_or(Known::Missing(Why::NotUnderstood), Known::Known)
}

/// `stats server`.
pub(super) fn samples(text: &str) -> Partial<Vec<ServerSample>> {
    let (samples, mut doubts) = each(text, |row, _| {
        let (role, number) = rows::id(row, "node_id")?;
        // Metadata servers have no contents to read or write.
        let bytes = |column| match role {
            Role::Storage => rows::number(row, column).map(|bytes| Known::Known(Bytes(bytes))),
            _ => Some(Known::Missing(Why::NotSupported)),
        };
        Some(ServerSample {
            node: Known::Known(NodeId { role, number, alias: rows::name(row, "alias") }),
            at_s: rows::number(row, "time")?,
            written: bytes("written")?,
            read: bytes("read")?,
            requests: rows::number(row, "requests")?,
            queued: rows::number(row, "queue_length")?,
            busy: rows::number(row, "busy_workers")?,
        })
    });
    let key = |sample: &ServerSample| (sample.node.value().map(|node| (node.role, node.number)), sample.at_s);
    let samples = doubts.unique(samples, key);
    doubts.with(samples)
}

/// `stats user` and `stats client`: a column for each operation, empty where there was none.
pub(super) fn operations(text: &str, of: OperationsKind) -> Partial<Vec<OperationCounts>> {
    let (counts, mut doubts) = each(text, |row, _| {
        let (column, whose) = match of {
            OperationsKind::Users => ("user", user(rows::text(row, "user")?)?),
            OperationsKind::Clients => ("client", OperationsOf::Client(rows::name(row, "client")?)),
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

fn user(text: &str) -> Option<OperationsOf> {
    match text {
        "-1" => Some(OperationsOf::UnknownUser),
        text => Some(OperationsOf::User(u32::try_from(digits(text)?).ok()?)),
    }
}
