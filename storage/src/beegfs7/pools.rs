//! Reads `--liststoragepools`: `%7i %18s %|-28s| %|-28s|` (ModeListStoragePools.cpp). A long name moves what follows it, so the lists are cut
//! from the right; lists that do not fit go on in lines without an id.

use eirene_core::storage::{Partial, Pool, PoolId};

use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::units::digits;

/// Widths of the id, the name, and each list, with one space between them.
const ID: usize = 7;
const NAME: usize = 18;
const LIST: usize = 28;

/// All pools.
pub(super) fn parse(text: &str) -> Partial<Vec<Pool>> {
    let mut doubts = Doubts::default();
    let mut lines = noise::lines(text, &mut doubts).into_iter();
    if !lines.by_ref().any(|(_, line)| line.starts_with("Pool ID ")) {
        doubts.whole("there is no table of storage pools");
        return doubts.with(Vec::new());
    }
    let mut pools: Vec<Pool> = Vec::new();
    // A line that goes on behind one that was not understood is nobody's.
    let mut goes_on = false;
    for (number, line) in lines.filter(|(_, line)| !line.starts_with("===")) {
        match row(line) {
            Some((Some(id), name, targets, mirrors)) => {
                pools.push(Pool { id, name, targets, mirrors });
                goes_on = true;
            }
            Some((None, _, targets, mirrors)) if goes_on => {
                if let Some(pool) = pools.last_mut() {
                    pool.targets.extend(targets);
                    pool.mirrors.extend(mirrors);
                }
            }
            Some(_) | None => {
                doubts.line(number, line);
                // Whatever it was, the pool before it may have lost a part of its lists.
                if line.starts_with(&" ".repeat(ID)) {
                    pools.pop();
                }
                goes_on = false;
            }
        }
    }
    let pools = doubts.unique(pools, |pool| pool.id);
    doubts.with(pools)
}

type Row = (Option<PoolId>, String, Vec<u32>, Vec<u32>);

fn row(line: &str) -> Option<Row> {
    let lists = line.len().checked_sub(2 * LIST + 2)?;
    let (head, tail) = (line.get(..lists)?, line.get(lists..)?);
    let (targets, mirrors) = (tail.get(1..=LIST)?, tail.get(LIST + 2..)?);
    if !tail.starts_with(' ') || tail.get(LIST + 1..LIST + 2)? != " " || head.len() < ID + 1 + NAME {
        return None;
    }
    let (id, name) = (head.get(..ID)?, head.get(ID..)?.strip_prefix(' ')?);
    let (targets, mirrors) = (numbers(targets)?, numbers(mirrors)?);
    // What is too long and padded all the same is two lines that ran together.
    if name.len() > NAME && (name.starts_with(' ') || name.contains("   ")) {
        return None;
    }
    if id.trim().is_empty() && name.trim().is_empty() {
        return Some((None, String::new(), targets, mirrors));
    }
    let number = u16::try_from(digits(id.trim_start())?).ok()?;
    Some((Some(PoolId(number)), printable(name), targets, mirrors))
}

/// `1,2` with the blanks behind it.
fn numbers(cell: &str) -> Option<Vec<u32>> {
    if cell.starts_with(' ') && !cell.trim().is_empty() {
        return None;
    }
    let parts = cell.trim_end().split(',').filter(|part| !part.is_empty());
    parts.map(|part| u32::try_from(digits(part)?).ok()).collect()
}
