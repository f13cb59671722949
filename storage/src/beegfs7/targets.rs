//! Reads `--listtargets --state --spaceinfo`. Columns are found by the line of `=` below their titles, since one title holds a space; the
//! rows are split at white space, since wide numbers move what follows them.
//!
//! A server that is down gives a row of zeros here and its error elsewhere (ModeListTargets.cpp, `addSpaceToLine`). The percentages are
//! read as a check of the numbers beside them, and never shown.

use eirene_core::storage::{
    Bytes, Consistency, DoubtAbout, Files, Known, NodeId, Partial, Reach, Role, Room, Target, TargetId, Why,
};

use super::nodes::node_id;
use crate::doubts::Doubts;
use crate::noise;
use crate::units::{TENTH_OF_GIB, TENTH_OF_MILLION, digits, gib_tenths, tenths};

/// Columns that every answer to our question has, in this order; `Cap. Pool` stands before `Total` where it was asked for.
const COLUMNS: [&str; 10] =
    ["TargetID", "Reachability", "Consistency", "Total", "Free", "%", "ITotal", "IFree", "%", "NodeID"];
const POOL: &str = "Cap. Pool";
/// Width of the target's number, which is aligned to the right (`%8hu`) and never wider.
const ID_WIDTH: usize = 8;

/// The targets of a role.
pub(super) fn parse(text: &str, role: Role) -> Partial<Vec<Target>> {
    let mut doubts = Doubts::default();
    let lines = noise::lines(text, &mut doubts);
    let header = lines.windows(2).position(|pair| pair[0].1.starts_with("TargetID") && pair[1].1.starts_with("==="));
    let Some(header) = header else {
        doubts.whole("there is no table of targets");
        return doubts.with(Vec::new());
    };
    let Some(pooled) = has_pools(&titles(lines[header].1, lines[header + 1].1)) else {
        doubts.whole("the table of targets has other columns");
        return doubts.with(Vec::new());
    };
    let mut targets = Vec::new();
    // Anything before the table is as doubtful as what is in it and cannot be read.
    let around = lines[..header].iter().chain(&lines[header + 2..]);
    for &(number, line) in around {
        match row(line, role, pooled) {
            Some(row) => targets.push(judge(row, &mut doubts)),
            None => doubts.line(number, line),
        }
    }
    let targets = doubts.unique(targets, |target| target.id);
    doubts.with(targets)
}

/// The titles above runs of `=`.
fn titles<'a>(header: &'a str, runs: &str) -> Vec<&'a str> {
    let mut titles = Vec::new();
    let mut from = 0;
    let bytes = runs.as_bytes();
    for at in 0..bytes.len() {
        if bytes[at] == b'=' && bytes.get(at + 1) != Some(&b'=') {
            titles.push(header.get(from..(at + 1).min(header.len())).unwrap_or("").trim());
            from = (at + 1).min(header.len());
        }
    }
    titles
}

/// Whether the table has the column of pools by fullness; none if it is not our table.
fn has_pools(titles: &[&str]) -> Option<bool> {
    let mut rest = titles.to_vec();
    let pooled = rest.get(3) == Some(&POOL);
    if pooled {
        rest.remove(3);
    }
    (rest == COLUMNS).then_some(pooled)
}

struct Row<'a> {
    id: TargetId,
    states: Option<(&'a str, &'a str)>,
    room: Option<&'a str>,
    sizes: [&'a str; 6],
    node: Option<NodeId>,
}

fn row(line: &str, role: Role, pooled: bool) -> Option<Row<'_>> {
    let id = line.get(..ID_WIDTH)?;
    let rest = line.get(ID_WIDTH..)?;
    if !rest.starts_with(' ') || id.ends_with(' ') {
        return None;
    }
    let number = u32::try_from(digits(id.trim_start())?).ok()?;
    let mut words = rest.split_whitespace();
    let reach = words.next()?;
    // One word in the place of two.
    let states = if reach == "<invalid_value>" { None } else { Some((reach, words.next()?)) };
    let room = if pooled { Some(words.next()?) } else { None };
    let mut sizes = [""; 6];
    for size in &mut sizes {
        *size = words.next()?;
    }
    let node: Vec<&str> = words.collect();
    Some(Row { id: TargetId { role, number }, states, room, sizes, node: node_of(&node, role) })
}

/// `beegfs-storage vm [ID: 1]`, or a bare number where long names were not asked for.
fn node_of(words: &[&str], role: Role) -> Option<NodeId> {
    match words {
        [number] => {
            let number = u32::try_from(digits(number)?).ok()?;
            Some(NodeId { role, number, alias: None })
        }
        ["beegfs-storage" | "beegfs-meta", name @ ..] => node_id(&name.join(" "), role),
        _ => None,
    }
}

fn judge(row: Row<'_>, doubts: &mut Doubts) -> Target {
    let about = DoubtAbout::Target(row.id);
    let mut unknown = |what: &str| doubts.note(about.clone(), what);
    let reach = match row.states.map(|(reach, _)| reach) {
        Some("Online") => Reach::Online,
        Some("Probably-offline") => Reach::ProbablyOffline,
        Some("Offline") => Reach::Offline,
        other => {
            unknown(&format!("reachability `{}`", other.unwrap_or("not said")));
            Reach::Unknown
        }
    };
    let consistency = match row.states.map(|(_, consistency)| consistency) {
        Some("Good") => Consistency::Good,
        // The second is printed while the first is being mended.
        Some("Needs-resync" | "resyncing") => Consistency::NeedsResync,
        Some("Bad") => Consistency::Bad,
        other => {
            unknown(&format!("consistency `{}`", other.unwrap_or("not said")));
            Consistency::Unknown
        }
    };
    let room = match row.room {
        Some("normal") => Room::Normal,
        Some("low") => Room::Low,
        Some("emergency") => Room::Emergency,
        Some("unknown") | None => Room::Unknown,
        Some(other) => {
            unknown(&format!("capacity pool `{other}`"));
            Room::Unknown
        }
    };
    let [total, free, percent, inodes, inodes_free, inodes_percent] = row.sizes;
    let bytes = pair(total, free, percent, "GiB");
    let files = pair(inodes, inodes_free, inodes_percent, "M");
    // Who does not answer has zeros in all columns; a target of no size is none.
    let (bytes, files) = match bytes {
        Ok((0, _)) => {
            unknown("its server did not say its size");
            (Err(Why::DidNotAnswer), Err(Why::DidNotAnswer))
        }
        bytes => (bytes, files),
    };
    let files = match files {
        // File systems that make inodes as needed print zeros, too.
        Ok((0, _)) => Err(Why::NotSupported),
        files => files,
    };
    if bytes == Err(Why::NotUnderstood) || files == Err(Why::NotUnderstood) {
        unknown("its numbers contradict each other");
    }
    if row.node.is_none() {
        unknown("its server is not named");
    }
    let millions = |tenths: u64| tenths.checked_mul(TENTH_OF_MILLION).map(Files);
    Target {
        id: row.id,
        node: row.node.map_or(Known::Missing(Why::NotUnderstood), Known::Known),
        alias: None,
        pool: None,
        reach,
        consistency,
        room,
        total: one(bytes.map(|(total, _)| gib_tenths(total).map(Bytes))),
        free: one(bytes.map(|(_, free)| gib_tenths(free).map(Bytes))),
        inodes_total: one(files.map(|(total, _)| millions(total))),
        inodes_free: one(files.map(|(_, free)| millions(free))),
        precision: Bytes(TENTH_OF_GIB),
        inodes_precision: Files(TENTH_OF_MILLION),
        last_contact_s: Known::Missing(Why::NotSupported),
    }
}

fn one<T>(value: Result<Option<T>, Why>) -> Known<T> {
    match value {
        Ok(Some(value)) => Known::Known(value),
        Ok(None) => Known::Missing(Why::NotUnderstood),
        Err(why) => Known::Missing(why),
    }
}

/// Total and free in tenths of `unit`, if the percentage agrees with them as far as rounding allows.
fn pair(total: &str, free: &str, percent: &str, unit: &str) -> Result<(u64, u64), Why> {
    let read = || {
        let (total, free) = (tenths(total, unit)?, tenths(free, unit)?);
        let percent = digits(percent.strip_suffix('%')?)?;
        (free <= total && percent <= 100 && agree(total, free, percent)).then_some((total, free))
    };
    read().ok_or(Why::NotUnderstood)
}

/// The percentage is rounded to 1, and each number to one tenth of its unit.
fn agree(total: u64, free: u64, percent: u64) -> bool {
    let (total, free, percent) = (total as f64, free as f64, percent as f64);
    if total == 0.0 {
        return percent == 0.0 && free == 0.0;
    }
    let tolerance = 0.6 + 100.0 * (0.5 + 0.5 * free / total) / total;
    (100.0 * free / total - percent).abs() <= tolerance
}
