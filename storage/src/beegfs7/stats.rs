//! Reads `--serverstats` and `--userstats`/`--clientstats`. Columns go by their titles, because which there are depends on the kind of server.

use eirene_core::storage::{
    Bytes, Known, NodeId, OperationCounts, OperationsKind, OperationsOf, Partial, Role, ServerSample, Why,
};

use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::units::digits;

/// All servers of a role together, a row for each second. Fewer of them than are `listed` are doubtful.
pub(super) fn parse_history(text: &str, listed: usize) -> Partial<Vec<ServerSample>> {
    let mut doubts = Doubts::default();
    let mut titles: Option<Vec<&str>> = None;
    let mut samples = Vec::new();
    for (number, line) in noise::lines(text, &mut doubts) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"time_index") {
            titles = Some(words);
            continue;
        }
        if let Some(rest) = line.strip_prefix("Total results for ") {
            let answered = rest.strip_suffix(" nodes:").and_then(digits);
            if answered.is_none_or(|answered| answered == 0 || answered < listed as u64) {
                doubts.line(number, &format!("of {listed} servers not all answered: {line}"));
            }
            continue;
        }
        let row = titles.as_deref().filter(|titles| titles.len() == words.len()).and_then(|titles| {
            let at_s = cell(titles, &words, "time_index")?;
            sample(titles, &words, at_s, Known::Missing(Why::NotSupported))
        });
        match row {
            Some(row) => samples.push(row),
            None => doubts.line(number, line),
        }
    }
    let samples = doubts.unique(samples, |sample| sample.at_s);
    doubts.with(samples)
}

/// The last second of each server.
pub(super) fn parse_now(text: &str, role: Role) -> Partial<Vec<ServerSample>> {
    let mut doubts = Doubts::default();
    let mut titles: Option<Vec<&str>> = None;
    let mut at_s = None;
    let mut samples = Vec::new();
    for (number, line) in noise::lines(text, &mut doubts) {
        if let Some(time) = line.strip_prefix("===== time index: ") {
            at_s = time.split(' ').next().and_then(digits);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"nodeID") && words.last() == Some(&"name") {
            titles = Some(words);
            continue;
        }
        let row = titles.as_deref().zip(at_s).and_then(|(titles, at_s)| {
            // A name comes last and may hold spaces.
            let numbers = titles.len() - 1;
            let (titles, cells, name) = (titles.get(..numbers)?, words.get(..numbers)?, words.get(numbers..)?);
            let id = u32::try_from(cell(titles, cells, "nodeID")?).ok()?;
            let alias = (!name.is_empty()).then(|| printable(&name.join(" ")));
            sample(titles, cells, at_s, Known::Known(NodeId { role, number: id, alias }))
        });
        match row {
            Some(row) => samples.push(row),
            None => doubts.line(number, line),
        }
    }
    let samples = doubts.unique(samples, |sample| sample.node.value().map(|node| node.number));
    doubts.with(samples)
}

fn cell(titles: &[&str], cells: &[&str], title: &str) -> Option<u64> {
    digits(cells.get(titles.iter().position(|other| *other == title)?)?)
}

fn sample(titles: &[&str], cells: &[&str], at_s: u64, node: Known<NodeId>) -> Option<ServerSample> {
    let number = |title| cell(titles, cells, title);
    let kib = |title| {
        if !titles.contains(&title) {
            return Some(Known::Missing(Why::NotSupported));
        }
        Some(Known::Known(Bytes(number(title)?.checked_mul(1024)?)))
    };
    Some(ServerSample {
        node,
        at_s,
        written: kib("write_KiB")?,
        read: kib("read_KiB")?,
        requests: number("reqs")?,
        queued: number("qlen")?,
        busy: number("bsy")?,
    })
}

/// Counts by user or client: `id  n [sum]  n [name] …`. The sum is a check of what follows it, as the first line is of all the others.
///
/// Bytes read and written are printed with six digits (`amount` is a double in ModeClientStats.cpp), so they are not known here.
pub(super) fn parse_operations(text: &str, of: OperationsKind) -> Partial<Vec<OperationCounts>> {
    let mut doubts = Doubts::default();
    let mut rows = Vec::new();
    let mut sum = None;
    for (number, line) in noise::lines(text, &mut doubts) {
        match counts(line) {
            Some(("Sum:", total, _)) => sum = Some(total),
            Some((id, total, by_name)) if whose(id, of).is_some() => {
                let missing = Known::Missing(Why::NotSupported);
                let of = whose(id, of).unwrap_or(OperationsOf::UnknownUser);
                rows.push(OperationCounts { of, total, by_name, read: missing, written: missing });
            }
            _ => doubts.line(number, line),
        }
    }
    let rows = doubts.unique(rows, |row| row.of.clone());
    let total = rows.iter().try_fold(0_u64, |all, row| all.checked_add(row.total));
    if total != Some(sum.unwrap_or(0)) {
        doubts.whole("the rows are not what the sum says");
    }
    doubts.with(rows)
}

fn whose(id: &str, of: OperationsKind) -> Option<OperationsOf> {
    match (of, id) {
        // Both were seen: a capture has blanks, the help says -1.
        (OperationsKind::Users, "" | "-1") => Some(OperationsOf::UnknownUser),
        (OperationsKind::Users, id) => Some(OperationsOf::User(u32::try_from(digits(id)?).ok()?)),
        // Without `--names` they are addresses; anything else is half a line.
        (OperationsKind::Clients, id) => Some(OperationsOf::Client(id.parse::<std::net::IpAddr>().ok()?.to_string())),
    }
}

type Counts<'a> = (&'a str, u64, Vec<(String, u64)>);

fn counts(line: &str) -> Option<Counts<'_>> {
    // Who is not named has blanks in that place.
    let (id, rest) = if line.starts_with(' ') { ("", line) } else { line.split_once(' ')? };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let mut total = None;
    let mut by_name = Vec::new();
    let mut bytes = false;
    for pair in words.chunks(2) {
        let [count, name] = pair else { return None };
        let name = name.strip_prefix('[')?.strip_suffix(']')?;
        if name.contains("B-") {
            bytes = true;
        } else if name == "sum" {
            total = Some(digits(count)?);
        } else {
            by_name.push((printable(name), digits(count)?));
        }
    }
    let total = total?;
    let counted = by_name.iter().try_fold(0_u64, |all, (_, count)| all.checked_add(*count))?;
    // Whether bytes are part of the sum was not seen.
    (bytes || counted == total).then_some((id, total, by_name))
}
