//! Reads `--getquota --csv`: for each pool a sentence that names it, a header in which `hard` stands twice, and a row for each id. Sizes are
//! bytes, `unlimited` stands among the numbers, and names may hold commas.
//!
//! A digit that is lost within a number leaves another number, which nothing here could notice; what a pipe does to an answer is to cut it.

use eirene_core::storage::{
    Bytes, Counted, DefaultQuota, DoubtAbout, Files, Known, Limit, Partial, PoolId, Quota, QuotaId, QuotaRange, Why,
};

use crate::beegfs::missing_quota;
use crate::doubts::Doubts;
use crate::noise;
use crate::units::digits;

const HEADER: &str = "name,id,size,hard,files,hard";
const DEFAULTS_HEADER: &str = "user size limit,user chunk files limit,group size limit,group chunk files";
const POOL: &str = "Quota information for storage pool ";

/// The quotas of every id of the range in every pool; one that was asked for and did not come is there, and says so.
pub(super) fn parse(text: &str, range: QuotaRange) -> Partial<Vec<Quota>> {
    let mut doubts = Doubts::default();
    let mut pools: Vec<(PoolId, Vec<Quota>)> = Vec::new();
    // Whether a pool was named and its table did not begin yet, and whether it has begun.
    let (mut named, mut in_table) = (false, false);
    for (number, line) in noise::lines(text, &mut doubts) {
        if line.starts_with(POOL) {
            (in_table, named) = (false, false);
            match pool_of(line) {
                Some(pool) => {
                    pools.push((pool, Vec::new()));
                    named = true;
                }
                None => doubts.line(number, line),
            }
        } else if line == HEADER {
            // A second one without a pool above it begins the table of a pool whose name was lost.
            in_table = named;
            named = false;
            if !in_table {
                doubts.line(number, "a table of no pool");
            }
        } else if let Some((pool, rows)) = pools.last_mut().filter(|_| in_table)
            && let Some(quota) = row(line, *pool, range)
        {
            if [known(&quota.used), known(&quota.limit), known(&quota.files_limit)].contains(&false)
                || quota.files_used == Known::Missing(Why::NotUnderstood)
            {
                doubts.note(DoubtAbout::Id(quota.id), line);
            }
            rows.push(quota);
        } else {
            doubts.line(number, line);
        }
    }
    let mut all = Vec::new();
    let answered = pools.iter().any(|(_, rows)| !rows.is_empty());
    for (pool, rows) in pools {
        let rows = doubts.unique(rows, |quota| quota.id);
        let mut asked: Vec<Quota> = (range.first..=range.last)
            .map(|id| missing_quota(range.of.id(id), Some(pool), Why::DidNotAnswer))
            .collect();
        for row in rows {
            let (QuotaId::User(id) | QuotaId::Group(id) | QuotaId::Project(id)) = row.id;
            asked[(id - range.first) as usize] = row;
        }
        for quota in asked.iter().filter(|quota| quota.used == Known::Missing(Why::DidNotAnswer)) {
            doubts.note(DoubtAbout::Id(quota.id), "it was asked for and did not come");
        }
        all.extend(asked);
    }
    let all = doubts.unique(all, |quota| (quota.pool, quota.id));
    // Not one row: that is no answer of which something is missing.
    doubts.with(if answered { all } else { Vec::new() })
}

fn known<T>(value: &Known<T>) -> bool {
    value.value().is_some()
}

/// The number in the last `(ID: n):`, since a pool may be called anything.
fn pool_of(line: &str) -> Option<PoolId> {
    let (_, id) = line.strip_suffix("):")?.rsplit_once(" (ID: ")?;
    Some(PoolId(u16::try_from(digits(id)?).ok()?))
}

/// `name,id,size,hard,files,hard`, split from the right.
fn row(line: &str, pool: PoolId, range: QuotaRange) -> Option<Quota> {
    let mut cells = line.rsplitn(6, ',');
    let (files_hard, files, hard, size, id) =
        (cells.next()?, cells.next()?, cells.next()?, cells.next()?, cells.next()?);
    let name = cells.next()?;
    let id = u32::try_from(digits(id)?).ok()?;
    if !(range.first..=range.last).contains(&id) || name.is_empty() {
        return None;
    }
    let (files, at_least) = match files.strip_suffix('+') {
        Some(counted) => (counted, true),
        None => (files, false),
    };
    Some(Quota {
        id: range.of.id(id),
        pool: Some(pool),
        used: number(size).map_or(Known::Missing(Why::NotUnderstood), |bytes| Known::Known(Bytes(bytes))),
        limit: limit(hard, Bytes),
        files_used: match files {
            "-" => Known::Missing(Why::NotSupported),
            files => number(files).map_or(Known::Missing(Why::NotUnderstood), |files| Known::Known(Files(files))),
        },
        files_limit: limit(files_hard, Files),
        counted: Counted::ChunkFiles,
        files_at_least: at_least,
        measured_every_s: Known::Missing(Why::NotSupported),
    })
}

/// Digits, but no number that stands for "none".
fn number(text: &str) -> Option<u64> {
    digits(text).filter(|number| *number < i64::MAX as u64)
}

/// 7 keeps 0 for "none of its own" and prints the default in its place, so a 0 here is nothing we know.
fn limit<T>(text: &str, of: impl FnOnce(u64) -> T) -> Known<Limit<T>> {
    match text {
        "unlimited" => Known::Known(Limit::Unlimited),
        text => match number(text) {
            Some(number) if number > 0 => Known::Known(Limit::At(of(number))),
            _ => Known::Missing(Why::NotUnderstood),
        },
    }
}

/// The default limits of one pool. With `--storagepoolid` no sentence names the pool.
pub(super) fn parse_defaults(text: &str) -> Partial<Vec<DefaultQuota>> {
    let mut doubts = Doubts::default();
    let mut rows = Vec::new();
    let mut in_table = false;
    for (number, line) in noise::lines(text, &mut doubts) {
        let cells: Vec<&str> = line.split(',').collect();
        match cells[..] {
            _ if line == DEFAULTS_HEADER => in_table = true,
            [user_size, user_files, group_size, group_files] if in_table => {
                let row = DefaultQuota {
                    user_size: limit(user_size, Bytes),
                    user_files: limit(user_files, Files),
                    group_size: limit(group_size, Bytes),
                    group_files: limit(group_files, Files),
                };
                if [known(&row.user_size), known(&row.user_files), known(&row.group_size), known(&row.group_files)]
                    .contains(&false)
                {
                    doubts.line(number, line);
                }
                rows.push(row);
            }
            _ => doubts.line(number, line),
        }
    }
    let rows = doubts.unique(rows, |_| ());
    doubts.with(rows)
}
