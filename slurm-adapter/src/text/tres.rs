//! What is countable: GRES (`gpu:a100:2(S:0-1)`) and TRES (`cpu=4,mem=2G,gres/gpu:a100=2`).

use super::TextError;

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
pub(crate) fn parse_gres(text: &str) -> Result<Vec<Gres>, TextError> {
    let text = text.trim();
    if matches!(text, "" | "(null)" | "N/A") {
        return Ok(Vec::new());
    }
    items(text)
        .and_then(|items| items.iter().map(|item| gres(item)).collect())
        .ok_or_else(|| TextError::new("GRES", text))
}

/// Reads a TRES list as pairs; memory is in mebibytes.
pub(crate) fn parse_tres(text: &str) -> Result<Vec<(String, u64)>, TextError> {
    let text = text.trim();
    if matches!(text, "" | "(null)" | "N/A") {
        return Ok(Vec::new());
    }
    text.split(',').map(tres).collect::<Option<_>>().ok_or_else(|| TextError::new("TRES list", text))
}

/// The items between commas that are in no parenthesis, without what the parentheses hold.
fn items(text: &str) -> Option<Vec<String>> {
    let mut items = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            ',' => items.push(String::new()),
            c => items.last_mut()?.push(c),
        }
    }
    (depth == 0).then_some(items)
}

fn gres(item: &str) -> Option<Gres> {
    let item = item.strip_prefix("gres/").or_else(|| item.strip_prefix("gres:")).unwrap_or(item);
    let mut parts = item.split(':').filter(|part| *part != "no_consume").collect::<Vec<_>>();
    if parts.iter().any(|part| part.is_empty()) {
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
            ("(null)", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(parse_gres(text), Ok(expected), "{text}");
        }
        for bad in ["gpu:a:b:2", "gpu:", ":2", "gpu(", "gpu)", ",gpu"] {
            assert!(parse_gres(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tres_is_read() {
        let read = parse_tres("cpu=4,mem=2G,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2,bb/x=1K").unwrap();
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
        for bad in ["cpu", "cpu=", "=4", "cpu=-1", "cpu=4,", "mem=x", "cpu=99999999999999999999"] {
            assert!(parse_tres(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn gres_reads_back(kind in "[a-z]{1,8}", of_type in "[a-z][a-z0-9_]{0,8}", count in 0_u64..100_000) {
            prop_assume!(of_type != "no_consume");
            prop_assert_eq!(parse_gres(&format!("{kind}:{of_type}:{count}(S:0-1)")), Ok(vec![one(&kind, &of_type, count)]));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", tres in "[a-z=,:/0-9KMG()]{0,40}") {
            let _ = (parse_gres(&text), parse_gres(&tres), parse_tres(&text), parse_tres(&tres));
        }
    }
}
