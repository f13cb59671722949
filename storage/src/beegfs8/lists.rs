//! Servers, targets, pools and entries out of rows.

use eirene_core::storage::{
    Bytes, Consistency, DefaultQuota, Doubt, DoubtAbout, Entry, EntryKind, Files, Known, NodeId, Partial, Pattern,
    Pool, PoolId, Reach, Role, Room, ServerNode, Stripe, Target, TargetId, Why,
};

use super::rows::{self, Row};
use crate::doubts::{Doubts, printable};
use crate::units::digits;

/// Longest time since the last contact, seconds: BeeGFS is younger than 30 years.
const LONGEST_AGO_S: u64 = 30 * 366 * 24 * 60 * 60;

/// Reads every row by `row`; those it cannot read become doubts.
pub(super) fn each<T>(text: &str, mut row: impl FnMut(&Row, &mut Doubts) -> Option<T>) -> (Vec<T>, Doubts) {
    let mut doubts = Doubts::default();
    let read = rows::read(text, &mut doubts);
    let mut all = Vec::with_capacity(read.len());
    for (number, cells) in read {
        match row(&cells, &mut doubts) {
            Some(one) => all.push(one),
            None => doubts.line(number, "a row lacks what it must have"),
        }
    }
    (all, doubts)
}

/// `node list`.
pub(super) fn nodes(text: &str) -> Partial<Vec<ServerNode>> {
    let (nodes, mut doubts) = each(text, |row, _| {
        // Clients are listed, too, and are no servers.
        if rows::number(row, "type") == Some(1) {
            return Some(None);
        }
        let (role, number) = rows::id(row, "id")?;
        let reachable: Vec<&str> = rows::text(row, "reachable")?.lines().collect();
        let reachable = if reachable.contains(&"yes") {
            Known::Known(true)
        } else if !reachable.is_empty() && reachable.iter().all(|nic| *nic == "no") {
            Known::Known(false)
        } else {
            Known::Missing(Why::NeverMeasured)
        };
        let addresses = rows::text(row, "nics")?.lines().map(printable).collect();
        let id = NodeId { role, number, alias: rows::name(row, "alias") };
        Some(Some(ServerNode { id, addresses, reachable }))
    });
    let nodes = doubts.unique(nodes.into_iter().flatten().collect(), |node| (node.id.role, node.id.number));
    doubts.with(nodes)
}

/// `target list`.
pub(super) fn targets(text: &str) -> Partial<Vec<Target>> {
    let (targets, mut doubts) = each(text, |row, doubts| {
        let (role, number) = rows::id(row, "id")?;
        let id = TargetId { role, number };
        let target = target(row, id)?;
        if target.total.value().is_none() || target.free.value().is_none() {
            doubts.note(DoubtAbout::Target(id), "its server did not say its size");
        }
        Some(target)
    });
    let targets = doubts.unique(targets, |target| target.id);
    doubts.with(targets)
}

/// Leaves out the sizes of targets whose server is unreachable: for about 80 seconds the management of 8.3.1 calls them online. Where no
/// metadata or storage server is reachable the sizes stay, because the network may separate this machine from all of them.
pub(super) fn leave_out_unreachable(targets: &mut Partial<Vec<Target>>, nodes: &[ServerNode]) {
    let servers = || nodes.iter().filter(|node| node.id.role != Role::Management);
    let is_unreachable = |node: &ServerNode| node.reachable == Known::Known(false);
    if servers().all(is_unreachable) {
        return;
    }
    for target in &mut targets.value {
        let is_its_server = |node: &ServerNode| {
            target.node.value().is_some_and(|on| (on.role, on.number) == (node.id.role, node.id.number))
        };
        let is_silent = servers().any(|node| is_its_server(node) && is_unreachable(node));
        if is_silent && target.total.value().is_some() {
            target.leave_out_sizes();
            let text = "its server is unreachable".to_owned();
            targets.doubts.push(Doubt { about: DoubtAbout::Target(target.id), text });
        }
    }
}

fn target(row: &Row, id: TargetId) -> Option<Target> {
    let node = rows::id(row, "node").map(|(role, number)| NodeId { role, number, alias: None });
    let total = rows::size(row, "space", Bytes);
    let free = rows::size(row, "space_free", Bytes);
    let contradiction = total.value().zip(free.value()).is_some_and(|(total, free)| free > total);
    let checked = |size| if contradiction { Known::Missing(Why::NotUnderstood) } else { size };
    let reach = match rows::text(row, "reachability")? {
        "Online" => Reach::Online,
        "Probably-offline" => Reach::ProbablyOffline,
        "Offline" => Reach::Offline,
        _ => Reach::Unknown,
    };
    let mut target = Target {
        id,
        node: node.map_or(Known::Missing(Why::NotUnderstood), Known::Known),
        alias: rows::name(row, "alias"),
        pool: rows::id(row, "storage_pool").and_then(|(_, pool)| u16::try_from(pool).ok()).map(PoolId),
        reach,
        consistency: match rows::text(row, "consistency")? {
            "Good" => Consistency::Good,
            "Needs-resync" => Consistency::NeedsResync,
            "Bad" => Consistency::Bad,
            _ => Consistency::Unknown,
        },
        room: match rows::text(row, "cap_pool")? {
            "Normal" => Room::Normal,
            "Low" => Room::Low,
            "Emergency" => Room::Emergency,
            _ => Room::Unknown,
        },
        total: checked(total),
        free: checked(free),
        inodes_total: rows::size(row, "inodes", Files),
        inodes_free: rows::size(row, "inodes_free", Files),
        precision: Bytes(1),
        inodes_precision: Files(1),
        last_contact_s: match rows::text(row, "last_contact")?.strip_suffix("s ago").map(digits) {
            // The management counts from 1970 for a target that it has never heard of.
            Some(Some(seconds)) if seconds > LONGEST_AGO_S => Known::Missing(Why::NeverMeasured),
            Some(Some(seconds)) => Known::Known(seconds),
            Some(None) => Known::Missing(Why::NotUnderstood),
            None => Known::Missing(Why::DidNotAnswer),
        },
    };
    // The management keeps the last numbers of a target whose server is down, and prints them.
    if matches!(reach, Reach::Offline | Reach::ProbablyOffline) {
        target.leave_out_sizes();
    }
    Some(target)
}

/// `pool list --with-limits`: each pool with the limits of who has none of their own.
pub(super) fn pools(text: &str) -> Partial<Vec<(Pool, DefaultQuota)>> {
    let (pools, mut doubts) = each(text, |row, _| {
        let (_, number) = rows::id(row, "id")?;
        let pool = Pool {
            id: PoolId(u16::try_from(number).ok()?),
            name: rows::name(row, "alias")?,
            targets: rows::short_ids(rows::text(row, "targets")?)?,
            mirrors: rows::short_ids(rows::text(row, "mirrors")?)?,
        };
        let size = |column| rows::text(row, column).map(|text| rows::limit(text, Bytes));
        let files = |column| rows::text(row, column).map(|text| rows::limit(text, Files));
        let quota = DefaultQuota {
            user_size: size("user_space_limit")?,
            user_files: files("user_inode_limit")?,
            group_size: size("group_space_limit")?,
            group_files: files("group_inode_limit")?,
        };
        Some((pool, quota))
    });
    let pools = doubts.unique(pools, |(pool, _)| pool.id);
    doubts.with(pools)
}

/// `entry info`.
pub(super) fn entry(text: &str) -> Partial<Vec<Entry>> {
    let (entries, mut doubts) = each(text, |row, _| {
        let mirror = row.get("meta_mirror")?;
        Some(Entry {
            kind: match rows::number(row, "type")? {
                1 => EntryKind::Directory,
                2 => EntryKind::File,
                3 => EntryKind::Link,
                _ => EntryKind::Other,
            },
            entry_id: rows::name(row, "entry_id")?,
            metadata_node: rows::id(row, "meta_node").map_or(Known::Missing(Why::NotUnderstood), |(role, number)| {
                Known::Known(NodeId { role, number, alias: None })
            }),
            metadata_mirrored: match mirror.as_str() {
                Some("(unmirrored)") => Known::Known(false),
                Some(_) => Known::Missing(Why::NotUnderstood),
                None => rows::id(row, "meta_mirror").map_or(Known::Missing(Why::NotUnderstood), |_| Known::Known(true)),
            },
            stripe: stripe(row),
        })
    });
    let entries = doubts.unique(entries, |_| ());
    doubts.with(entries)
}

/// `RAID0 (4x524288)`; `(unavailable: …)` where the servers had the entry locked.
fn stripe(row: &Row) -> Known<Stripe> {
    let Some(cell) = rows::text(row, "stripe_pattern") else { return Known::Missing(Why::NotUnderstood) };
    if cell.starts_with("(unavailable") {
        return Known::Missing(Why::DidNotAnswer);
    }
    let Some((word, numbers)) = cell.strip_suffix(')').and_then(|cell| cell.rsplit_once(" (")) else {
        return Known::Missing(Why::NotUnderstood);
    };
    let (wanted, chunk) =
        numbers.split_once('x').map_or((None, None), |(wanted, chunk)| (digits(wanted), digits(chunk)));
    let missing = Known::Missing(Why::NotUnderstood);
    let targets = |column| rows::text(row, column).and_then(rows::short_ids).unwrap_or_default();
    Known::Known(Stripe {
        pattern: match word {
            "RAID0" => Pattern::Raid0,
            "RAID10" => Pattern::Raid10,
            "Buddy Mirror" => Pattern::BuddyMirror,
            other => Pattern::Other(printable(other)),
        },
        chunk: chunk.map_or(missing, |chunk| Known::Known(Bytes(chunk))),
        targets_wanted: wanted
            .and_then(|wanted| u32::try_from(wanted).ok())
            .map_or(Known::Missing(Why::NotUnderstood), Known::Known),
        targets: if word == "Buddy Mirror" { targets("storage_mirrors") } else { targets("storage_targets") },
        pool: pool(row).map_or(Known::Missing(Why::NotUnderstood), Known::Known),
    })
}

/// `Default (1)`.
fn pool(row: &Row) -> Option<(PoolId, String)> {
    let (name, id) = rows::text(row, "storage_pool")?.strip_suffix(')')?.rsplit_once(" (")?;
    Some((PoolId(u16::try_from(digits(id)?).ok()?), printable(name)))
}
