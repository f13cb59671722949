//! `eirene fs du` and `quota`: what takes the room, and how much there is.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::files::bytes_of;
use crate::api::{Api, status};
use crate::arguments::files::DiskUse;
use crate::patience::{persist, persist_once};
use crate::place::{Place, Spot};
use crate::{operations, output, times};

/// How often it is waited until something else of the space is measured.
const TURNS: u32 = 16;

/// A directory with all in it.
struct Measured {
    path: Vec<u8>,
    bytes: u64,
    entries: u64,
}

pub(super) async fn measure(api: &Api, wish: &DiskUse, json: bool) -> anyhow::Result<()> {
    let mut measured = scan(api, &wish.place, json).await?;
    measured.retain(|one| depth(&wish.place.path, &one.path).is_some_and(|depth| depth <= wish.depth));
    measured.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    for one in &measured {
        let place = Place::Space(wish.place.at(one.path.clone()));
        if json {
            let mut item = super::item("path", &place);
            item.insert("bytes".to_owned(), one.bytes.into());
            item.insert("entries".to_owned(), one.entries.into());
            output::json_line(&Value::Object(item))?;
        } else {
            output::line(&format!("{:>12}  {:>9}  {place}", output::bytes(one.bytes), one.entries))?;
        }
    }
    Ok(())
}

/// How many directories below the other it lies; none where it does not.
fn depth(top: &[u8], path: &[u8]) -> Option<usize> {
    let below = match (top, path.strip_prefix(top)?) {
        (_, b"") => return Some(0),
        (b"", below) => below,
        (_, below) => below.strip_prefix(b"/")?,
    };
    Some(below.split(|byte| *byte == b'/').count())
}

/// Has everything below a directory measured, and takes what came of it.
async fn scan(api: &Api, place: &Spot, json: bool) -> anyhow::Result<Vec<Measured>> {
    #[derive(Deserialize)]
    struct Item {
        path: String,
        raw_path: Option<String>,
        bytes: u64,
        entries: u64,
    }
    let mut body = Map::new();
    place.put("path", &mut body);
    let (path, body) = (format!("spaces/{}/scan", place.space), Value::Object(body));
    let asked = String::from_utf8_lossy(&place.path);
    let mut turns = 0;
    let over = loop {
        turns += 1;
        let begun = persist_once(async || api.post(&path, &body).await).await?;
        let over = operations::wait(api, begun, &output::spinner(json), "Measuring").await?;
        // A space may be measured once at a time: then it was another directory that was waited for.
        if over.request.get("path").and_then(Value::as_str).is_none_or(|path| path == asked) || turns == TURNS {
            break over;
        }
    };
    let items = persist(async || api.list(&format!("operations/{}/results?limit=200", over.id)).await).await?;
    items
        .into_iter()
        .map(|item| {
            let item: Item = serde_json::from_value(item)?;
            let path = bytes_of(&item.path, item.raw_path.as_deref())?;
            Ok(Measured { path, bytes: item.bytes, entries: item.entries })
        })
        .collect()
}

/// The part of a space that is shown; `--json` prints everything the portal sent.
#[derive(Debug, Deserialize)]
struct Space {
    name: String,
    title: String,
    state: String,
    #[serde(default)]
    undetermined: bool,
    usage: Option<Usage>,
    #[serde(default)]
    trend: Trend,
}

#[derive(Debug, Deserialize)]
struct Usage {
    level: String,
    used_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    free_bytes: Option<u64>,
    missing: Option<Value>,
    measured_at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
struct Trend {
    bytes_per_day: Option<i64>,
    full_at: Option<Timestamp>,
}

/// The part of a group's limit that is shown.
#[derive(Debug, Deserialize)]
struct GroupLimit {
    group: String,
    pool: Option<u16>,
    level: String,
    used_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    used_files: Option<u64>,
    limit_files: Option<u64>,
}

pub(super) async fn quota(api: &Api, json: bool) -> anyhow::Result<()> {
    let spaces = persist(async || api.list("spaces").await).await?;
    let limits = group_limits(api).await;
    if json {
        return spaces.iter().chain(&limits).try_for_each(output::json_line);
    }
    let now = times::now();
    let mut rows = Vec::new();
    for space in spaces {
        rows.push(row(serde_json::from_value(space)?, now));
    }
    for limit in limits {
        rows.push(group_row(&serde_json::from_value(limit)?));
    }
    output::table(&["SPACE", "TITLE", "USED", "LIMIT", "LEVEL", "TREND"], rows, "You have no spaces.")
}

/// What one's groups may use. What the spaces use is worth seeing without it, so nobody waits for a storage that does not tell it.
async fn group_limits(api: &Api) -> Vec<Value> {
    match api.list("me/group-limits").await {
        Ok(limits) => limits,
        // A portal that does not have them yet.
        Err(error) if status(&error) == Some(404) => Vec::new(),
        Err(error) => {
            output::say(&format!("What your groups may use is not known now: {error}"));
            Vec::new()
        }
    }
}

fn group_row(limit: &GroupLimit) -> Vec<String> {
    let nothing = || "–".to_owned();
    // Where only files are limited, it is they that run out.
    let (used, most) = match (limit.limit_bytes, limit.limit_files) {
        (None, Some(most)) => (limit.used_files.map(|files| format!("{files} files")), Some(format!("{most} files"))),
        (most, _) => (limit.used_bytes.map(output::bytes), most.map(output::bytes)),
    };
    let part = limit.pool.map(|pool| format!(", part {pool} of the storage")).unwrap_or_default();
    vec![
        nothing(),
        format!("Group {}{part}", limit.group),
        used.unwrap_or_else(nothing),
        most.unwrap_or_else(nothing),
        limit.level.clone(),
        nothing(),
    ]
}

fn row(space: Space, now: Timestamp) -> Vec<String> {
    let nothing = || "–".to_owned();
    let usage = space.usage.as_ref();
    // A number that nobody said is none, and never 0.
    let used = usage.and_then(|usage| usage.used_bytes).map_or_else(nothing, output::bytes);
    // It was so then; a storage counts now.
    let used = match usage.and_then(|usage| usage.measured_at) {
        Some(at) => format!("{used} (measured {})", times::relative(at, now)),
        None => used,
    };
    let limit = match usage {
        Some(Usage { limit_bytes: Some(limit), .. }) => output::bytes(*limit),
        Some(Usage { missing: Some(_), free_bytes: Some(free), .. }) => format!("{} free", output::bytes(*free)),
        Some(Usage { missing: None, .. }) => "none".to_owned(),
        _ => nothing(),
    };
    let level = match (space.state.as_str(), usage) {
        ("present", Some(usage)) if space.undetermined => format!("{} (as last seen)", usage.level),
        ("present", Some(usage)) => usage.level.clone(),
        ("present", None) => "unknown".to_owned(),
        (state, _) => state.to_owned(),
    };
    let growth = space.trend.bytes_per_day.map(|growth| {
        let sign = if growth < 0 { '-' } else { '+' };
        format!("{sign}{} a day", output::bytes(growth.unsigned_abs()))
    });
    let full = space.trend.full_at.map(|at| format!("full {}", times::relative(at, now)));
    let trend: Vec<String> = growth.into_iter().chain(full).collect();
    let trend = if trend.is_empty() { nothing() } else { trend.join(", ") };
    vec![space.name, space.title, used, limit, level, trend]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_directory_is_as_deep_as_it_lies_below_the_place() {
        for (top, path, expected) in [
            ("", "", Some(0)),
            ("", "a", Some(1)),
            ("", "a/b", Some(2)),
            ("a", "a", Some(0)),
            ("a", "a/b", Some(1)),
            ("a", "ab", None),
            ("a", "b", None),
        ] {
            assert_eq!(depth(top.as_bytes(), path.as_bytes()), expected, "{top} {path}");
        }
    }

    #[test]
    fn a_group_s_limit_stands_below_the_spaces() {
        let shown = |limit: Value| group_row(&serde_json::from_value(limit).unwrap());
        let bytes = json!({
            "group": "physics", "pool": 2, "level": "warning", "used_bytes": 9_663_676_416_u64,
            "limit_bytes": 10_737_418_240_u64, "limit_files": 5,
        });
        let expected = ["–", "Group physics, part 2 of the storage", "9.00 GiB", "10.00 GiB", "warning", "–"];
        assert_eq!(shown(bytes), expected);
        let files = json!({"group": "chess", "level": "full", "used_bytes": 1, "used_files": 5, "limit_files": 5});
        assert_eq!(shown(files), ["–", "Group chess", "5 files", "5 files", "full", "–"]);
        let silent = json!({"group": "chess", "level": "unknown", "limit_bytes": 1024});
        assert_eq!(shown(silent), ["–", "Group chess", "–", "1.00 KiB", "unknown", "–"]);
    }

    #[test]
    fn what_nobody_said_is_not_shown_as_a_number() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let shown = |space: Value| row(serde_json::from_value(space).unwrap(), now);
        let known = json!({
            "name": "home-ada", "title": "Home", "state": "present",
            "usage": {"level": "warning", "used_bytes": 9_663_676_416_u64, "limit_bytes": 10_737_418_240_u64},
            "trend": {"bytes_per_day": -1_048_576, "full_at": "2026-11-24T12:00:00Z"},
        });
        assert_eq!(
            shown(known)[2..],
            ["9.00 GiB", "10.00 GiB", "warning", "-1.00 MiB a day, full in 3 days"].map(str::to_owned)
        );
        let unknown = json!({
            "name": "data", "title": "Data", "state": "present", "undetermined": true,
            "usage": {"level": "unknown", "missing": "not_supported", "free_bytes": 1_073_741_824},
        });
        assert_eq!(shown(unknown)[2..], ["–", "1.00 GiB free", "unknown (as last seen)", "–"].map(str::to_owned));
        let measured = json!({
            "name": "home-ada", "title": "Home", "state": "present",
            "usage": {
                "source": "measured", "level": "unknown", "used_bytes": 9_663_676_416_u64, "missing": "not_supported",
                "limit_bytes": 10_737_418_240_u64, "measured_at": "2026-11-12T12:00:00Z", "approximate": false,
            },
        });
        let expected = ["9.00 GiB (measured 9 days ago)", "10.00 GiB", "unknown", "–"];
        assert_eq!(shown(measured)[2..], expected.map(str::to_owned));
        let retired = json!({"name": "old", "title": "Old", "state": "retired"});
        assert_eq!(shown(retired)[2..], ["–", "–", "retired", "–"].map(str::to_owned));
    }
}
