//! What is countable: GRES (`gpu:a100:2(S:0-1)`) and TRES (`cpu=4,mem=2G,gres/gpu:a100=2`). One item that cannot be read is logged and left
//! out; it spoils no other.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Most unreadable items that are remembered as logged.
const MOST_LOGGED: usize = 256;

/// Generic resources of one kind and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gres {
    /// Kind, for example `gpu`.
    pub(crate) kind: String,
    /// Type; empty when none is named.
    pub(crate) of_type: String,
    /// How many.
    pub(crate) count: u64,
}

/// Reads a node's `Gres` or `GresUsed`.
pub(crate) fn parse_gres(text: &str) -> Vec<Gres> {
    list("GRES", text, gres)
}

/// Reads a TRES list as pairs; memory is in mebibytes.
pub(crate) fn parse_tres(text: &str) -> Vec<(String, u64)> {
    list("TRES", text, tres)
}

fn list<T>(what: &'static str, text: &str, read: fn(&str) -> Option<T>) -> Vec<T> {
    let text = text.trim();
    if matches!(text, "" | "(null)" | "N/A") {
        return Vec::new();
    }
    let readable = |item: String| {
        let value = read(&item);
        if value.is_none() {
            report(what, &item);
        }
        value
    };
    items(text).into_iter().filter_map(readable).collect()
}

/// Logs an item once, not with each poll.
fn report(what: &'static str, item: &str) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let item = crate::refusals::tame(item);
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.len() < MOST_LOGGED && logged.insert(item.clone()) {
        tracing::warn!(item, "`{item}` in a {what} list of SLURM cannot be read; the other items of the list count");
    }
}

/// The items between commas that are in no parenthesis, without what the parentheses hold. `(null)` in the place of a type is no type. What follows
/// a parenthesis that is never closed belongs to its item.
fn items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.replace(":(null)", "").chars() {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            ',' => items.push(String::new()),
            c => {
                if let Some(item) = items.last_mut() {
                    item.push(c);
                }
            }
        }
    }
    items
}

fn gres(item: &str) -> Option<Gres> {
    let item = item.strip_prefix("gres/").or_else(|| item.strip_prefix("gres:")).unwrap_or(item);
    let mut parts = item.split(':').filter(|part| *part != "no_consume").collect::<Vec<_>>();
    if parts.iter().any(|part| part.is_empty() || part.contains(')')) {
        return None;
    }
    // A last part that is a number is the count; without one there is one.
    let count = match parts.split_last() {
        Some((last, [_, ..])) if last.starts_with(|c: char| c.is_ascii_digit()) && parse_count(last).is_some() => {
            let count = parse_count(last)?;
            parts.pop();
            count
        }
        _ => 1,
    };
    match parts.as_slice() {
        [kind] => Some(Gres { kind: (*kind).to_owned(), of_type: String::new(), count }),
        [kind, of_type] => Some(Gres { kind: (*kind).to_owned(), of_type: (*of_type).to_owned(), count }),
        _ => None,
    }
}

fn tres(item: &str) -> Option<(String, u64)> {
    let (name, count) = item.split_once('=')?;
    let count = if name == "mem" { super::parse_mebibytes(count).ok()? } else { parse_count(count)? };
    (!name.is_empty()).then(|| (name.to_owned(), count))
}

/// A count with an optional binary unit.
fn parse_count(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        b'T' | b't' => (&text[..text.len() - 1], 40),
        b'P' | b'p' => (&text[..text.len() - 1], 50),
        _ => (text, 0),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(kind: &str, of_type: &str, count: u64) -> Gres {
        Gres { kind: kind.into(), of_type: of_type.into(), count }
    }

    #[test]
    fn gres_is_read_in_all_its_spellings() {
        for (text, expected) in [
            ("gpu:a100:2(S:0-1)", vec![one("gpu", "a100", 2)]),
            ("gpu:a100:0(IDX:N/A)", vec![one("gpu", "a100", 0)]),
            ("gpu:a100:2(IDX:0,2),nic:1", vec![one("gpu", "a100", 2), one("nic", "", 1)]),
            ("gpu:2", vec![one("gpu", "", 2)]),
            ("gpu", vec![one("gpu", "", 1)]),
            ("gpu:h100", vec![one("gpu", "h100", 1)]),
            ("gres/gpu:a100:4", vec![one("gpu", "a100", 4)]),
            ("gpu:no_consume:3", vec![one("gpu", "", 3)]),
            ("craynetwork:4,bandwidth:lustre:4G", vec![one("craynetwork", "", 4), one("bandwidth", "lustre", 4 << 30)]),
            ("gpu:(null):1(IDX:0)", vec![one("gpu", "", 1)]),
            ("gpu:(null):0(IDX:N/A)", vec![one("gpu", "", 0)]),
            ("gpu:A30:1(IDX:0),shard:(null):3(3/16)", vec![one("gpu", "A30", 1), one("shard", "", 3)]),
            ("gpu:1g.5gb+me:3(S:0)", vec![one("gpu", "1g.5gb+me", 3)]),
            ("gpu:2(S:0", vec![one("gpu", "", 2)]),
            ("(null)", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(parse_gres(text), expected, "{text}");
        }
        for bad in ["gpu:a:b:2", "gpu:", ":2", "gpu)", ""] {
            assert_eq!(parse_gres(bad), [], "{bad}");
            let [before, after] = [one("gpu", "A30", 1), one("nic", "", 4)];
            assert_eq!(parse_gres(&format!("gpu:A30:1(IDX:0),{bad},nic:4")), [before, after], "{bad}");
        }
    }

    #[test]
    fn tres_is_read() {
        let read = parse_tres("cpu=4,mem=2G,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2,bb/x=1K");
        let pairs = read.iter().map(|(name, count)| (name.as_str(), *count)).collect::<Vec<_>>();
        assert_eq!(
            pairs,
            [
                ("cpu", 4),
                ("mem", 2048),
                ("node", 1),
                ("billing", 4),
                ("gres/gpu", 2),
                ("gres/gpu:a100", 2),
                ("bb/x", 1024)
            ]
        );
        for bad in ["cpu", "cpu=", "=4", "cpu=-1", "", "mem=x", "cpu=99999999999999999999"] {
            let kept = [("node".to_owned(), 1), ("billing".to_owned(), 4)];
            assert_eq!(parse_tres(&format!("node=1,{bad},billing=4")), kept, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn gres_reads_back(kind in "[a-z]{1,8}", of_type in "[a-z][a-z0-9_]{0,8}", count in 0_u64..100_000) {
            prop_assume!(of_type != "no_consume");
            prop_assert_eq!(parse_gres(&format!("{kind}:{of_type}:{count}(S:0-1)")), vec![one(&kind, &of_type, count)]);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", tres in "[a-z=,:/0-9KMG()]{0,40}") {
            let _ = (parse_gres(&text), parse_gres(&tres), parse_tres(&text), parse_tres(&tres));
        }
    }
}
