//! Rows of JSON, one a line or in lists, and the cells in them. A cell is a Go value, not what the table shows: an id is an object in one
//! command and `s:1` in the next (`common/beegfs/entity.go`). The reader takes either.

use eirene_core::storage::{Known, Limit, Role, Why};
use serde_json::{Map, Value};

use crate::doubts::{Doubts, printable};
use crate::noise;
use crate::units::digits;

pub(super) type Row = Map<String, Value>;

/// All rows with the line they came on. Lines that are none become doubts, but for the line that statistics begin with.
pub(super) fn read(text: &str, doubts: &mut Doubts) -> Vec<(u32, Row)> {
    let mut rows = Vec::new();
    for (number, line) in noise::lines(text, doubts) {
        if line.starts_with("------- ") && line.ends_with("s -------") {
            continue;
        }
        match serde_json::from_str(line) {
            Ok(Value::Object(row)) => rows.push((number, row)),
            Ok(Value::Array(list)) if list.iter().all(Value::is_object) => {
                rows.extend(list.into_iter().filter_map(|row| match row {
                    Value::Object(row) => Some((number, row)),
                    _ => None,
                }));
            }
            _ => doubts.line(number, line),
        }
    }
    rows
}

/// A cell of text.
pub(super) fn text<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    row.get(column)?.as_str()
}

/// A cell that holds a number, as one or as digits.
pub(super) fn number(row: &Row, column: &str) -> Option<u64> {
    match row.get(column)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => digits(text),
        _ => None,
    }
}

/// A cell that holds the number of a node, target or pool with its kind.
pub(super) fn id(row: &Row, column: &str) -> Option<(Role, u32)> {
    let cell = row.get(column)?;
    if let Some(text) = cell.as_str() {
        return short_id(text);
    }
    let role = match cell.get("node_type")?.as_u64()? {
        2 => Role::Metadata,
        3 => Role::Storage,
        4 => Role::Management,
        _ => return None,
    };
    Some((role, u32::try_from(cell.get("num_id")?.as_u64()?).ok()?))
}

/// `s:1`, `m:1`, `mg:1`, or with the kind written out.
pub(super) fn short_id(text: &str) -> Option<(Role, u32)> {
    let (kind, number) = text.split_once(':')?;
    let role = match kind {
        "s" | "storage" => Role::Storage,
        "m" | "meta" => Role::Metadata,
        "mg" | "management" => Role::Management,
        _ => return None,
    };
    Some((role, u32::try_from(digits(number)?).ok()?))
}

/// `s:1,s:2`; empty is none of them.
pub(super) fn short_ids(text: &str) -> Option<Vec<u32>> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| short_id(part).map(|(_, number)| number)).collect()
}

/// A name as it may be shown.
pub(super) fn name(row: &Row, column: &str) -> Option<String> {
    text(row, column).filter(|name| !name.is_empty()).map(printable)
}

/// Digits, or `-` for what its server did not say.
pub(super) fn size<T>(row: &Row, column: &str, of: impl FnOnce(u64) -> T) -> Known<T> {
    match text(row, column) {
        Some("-") => Known::Missing(Why::DidNotAnswer),
        _ => number(row, column).map_or(Known::Missing(Why::NotUnderstood), |number| Known::Known(of(number))),
    }
}

/// 2⁶³−1 and `∞` are what unlimited is written as, `?` and nothing what is not known.
pub(super) fn limit<T>(text: &str, of: impl FnOnce(u64) -> T) -> Known<Limit<T>> {
    match text {
        "∞" => Known::Known(Limit::Unlimited),
        "?" => Known::Missing(Why::DidNotAnswer),
        "" => Known::Missing(Why::NeverMeasured),
        text => match digits(text) {
            Some(number) if number == i64::MAX as u64 => Known::Known(Limit::Unlimited),
            Some(number) if number < i64::MAX as u64 => Known::Known(Limit::At(of(number))),
            _ => Known::Missing(Why::NotUnderstood),
        },
    }
}

/// What is used, of `used/limit` in one cell. The limits are asked for themselves: who uses nothing has no such cell.
pub(super) fn used<T>(cell: &str, of: impl FnOnce(u64) -> T) -> Known<T> {
    match cell.split_once('/').map(|(used, _)| used) {
        Some("?") => Known::Missing(Why::DidNotAnswer),
        Some(used) => match digits(used).filter(|number| *number < i64::MAX as u64) {
            Some(number) => Known::Known(of(number)),
            None => Known::Missing(Why::NotUnderstood),
        },
        None => Known::Missing(Why::NotUnderstood),
    }
}
