//! `eirene admin space`: spaces, for whoever runs the platform.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{done, text_of};
use crate::api::Api;
use crate::arguments::admin::{AboutSpace, AdminSpace, OldFilesRule};
use crate::{output, times};

pub(super) async fn run(api: &Api, verb: AdminSpace, as_json: bool) -> anyhow::Result<()> {
    match verb {
        AdminSpace::Create { name, root, group, owner, about } => {
            let mut body = said(&about);
            body["root"] = json!(root);
            for (key, value) in [("name", json!(name)), ("group", json!(group)), ("owner", json!(owner))] {
                if !value.is_null() {
                    body[key] = value;
                }
            }
            let made = api.post("spaces", &body).await?;
            let sentence = format!("{} is being made.", output::printable(&text_of(&made, "name")));
            done(&made, as_json, &with_end(sentence, about.expires))
        }
        AdminSpace::List => {
            let spaces = api.list("spaces?all=true").await?;
            if as_json {
                return output::json(&Value::Array(spaces));
            }
            let rows = spaces.iter().map(row).collect();
            output::table(&["NAME", "KIND", "WHOSE", "STATE", "EXPIRES", "TITLE"], rows, "There are no spaces yet.")
        }
        AdminSpace::Show { space } => {
            let space = api.get(&format!("spaces/{space}")).await?;
            if as_json {
                return output::json(&space);
            }
            output::table(&["NAME", "KIND", "WHOSE", "STATE", "EXPIRES", "TITLE"], vec![row(&space)], "")?;
            if let Some(reason) = space.get("reason") {
                output::say(&output::printable(&text_of(reason, "text")));
            }
            if let Some(limit) = space.get("limit") {
                output::say(&limit_of(limit));
            }
            if let Some(sentence) = hint_of(&space) {
                output::say(&sentence);
            }
            Ok(())
        }
        AdminSpace::Set { space, about, never_expires, no_limit } => {
            let mut body = said(&about);
            if never_expires {
                body["expires_at"] = Value::Null;
            }
            if no_limit {
                (body["limit_bytes"], body["limit_files"]) = (Value::Null, Value::Null);
            }
            let changed = api.patch(&format!("spaces/{space}"), &body).await?;
            done(&changed, as_json, &with_end(format!("Changed {space}."), about.expires))
        }
        AdminSpace::Retire { space, yes } => {
            if !yes {
                output::confirm(&format!("Take {space} away? Nobody reaches it then; `restore` brings it back."))?;
            }
            let retired = api.delete(&format!("spaces/{space}")).await?;
            done(&retired, as_json, &format!("{space} is being taken away."))
        }
        AdminSpace::Restore { space } => {
            let back = api.post(&format!("spaces/{space}/restore"), &json!({})).await?;
            done(&back, as_json, &format!("{space} is being brought back."))
        }
        AdminSpace::OldFiles { space, dry_run, rule } => {
            let path = format!("spaces/{space}/old-files");
            let said = rule_of(&rule);
            let report = if dry_run {
                api.post(&format!("{path}?dry_run=true"), &json!({})).await?
            } else if said == json!({}) {
                api.get(&path).await?
            } else {
                api.patch(&path, &said).await?
            };
            if as_json { output::json(&report) } else { old_files(&report) }
        }
    }
}

fn rule_of(rule: &OldFilesRule) -> Value {
    let mut body = json!({});
    if rule.exempt || rule.not_exempt {
        body["exempt"] = json!(rule.exempt);
    }
    if rule.days.is_some() || rule.usual_days {
        body["days"] = json!(rule.days);
    }
    body
}

/// What is known of old files in a space: a sentence, what was listed, looked at and removed, and the largest where they are told.
fn old_files(report: &Value) -> anyhow::Result<()> {
    output::say(&output::printable(&text_of(report, "text")));
    if let Ok(at) = text_of(report, "goes_at").parse() {
        output::say(&format!("What is listed goes at {} at the earliest.", times::local(at)));
    }
    if report["running"] == true {
        output::say("Files are being looked at, or removed, now: ask again in a while.");
    }
    let found = [("listed", report.get("list"), "as_of"), ("looked at", report.get("look"), "as_of")];
    let removed = ("removed", report.get("removed"), "at");
    let row = |(what, sums, at): (&str, Option<&Value>, &str)| {
        let sums = sums?;
        let number = |key: &str| sums.get(key).and_then(Value::as_u64).unwrap_or(0);
        let when = text_of(sums, at);
        let when = when.parse().map_or(when, times::local);
        let left = number("saved") + number("kept") + number("skipped") + number("failed");
        let sums = [number("files").to_string(), output::bytes(number("bytes")), left.to_string()];
        Some([vec![what.to_owned(), when], sums.to_vec()].concat())
    };
    let rows = found.into_iter().chain([removed]).filter_map(row).collect();
    output::table(&["WHAT", "WHEN", "FILES", "SIZE", "LEFT ALONE"], rows, "Nothing was listed yet.")?;
    let of = |key: &str| report.get(key).and_then(|found| found["examples"].as_array()).cloned().unwrap_or_default();
    let examples = if report.get("look").is_some() { of("look") } else { of("list") };
    if !examples.is_empty() {
        let row = |file: &Value| {
            let size = file["size_bytes"].as_u64().map_or_else(|| "–".to_owned(), output::bytes);
            vec![size, output::printable(&text_of(file, "path"))]
        };
        output::table(&["SIZE", "THE LARGEST"], examples.iter().map(row).collect(), "")?;
    }
    of_each(report)
}

/// In a group's space: what is listed or was looked at of each member, and what belongs to nobody who is one.
fn of_each(report: &Value) -> anyhow::Result<()> {
    let rows = |key: &str| report.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let sums = |found: &Value| {
        let number = |key: &str| found[key].as_u64().unwrap_or(0);
        [number("files").to_string(), output::bytes(number("bytes"))]
    };
    let when = |found: &Value, key: &str| {
        let at = text_of(found, key);
        at.parse().map_or(at, times::local)
    };
    let members = rows("members");
    if !members.is_empty() {
        let rows_of = |member: &Value| {
            let row = |(what, key): (&str, &str)| {
                let (found, state) = (&member[key], text_of(member, "state").replace('_', " "));
                let first = vec![text_of(member, "person"), what.to_owned(), when(found, "as_of")];
                [first, sums(found).to_vec(), vec![state, when(member, "goes_at")]].concat()
            };
            found_of(member).into_iter().map(row).collect::<Vec<_>>()
        };
        let rows = members.iter().flat_map(rows_of).collect();
        output::table(&["MEMBER", "WHAT", "WHEN", "FILES", "SIZE", "STATE", "GO AT"], rows, "")?;
    }
    let others = rows("others");
    if others.is_empty() {
        return Ok(());
    }
    output::say(
        "Undetermined, and not removed: old files of people who are no members of the group, or have no account here. \
         Look again before you remove any: this is how it was when it was seen.",
    );
    let row = |other: &Value| {
        let uid = other["uid"].as_u64().map_or_else(String::new, |uid| uid.to_string());
        [vec![text_of(other, "person"), uid], sums(other).to_vec(), vec![when(other, "seen_at")]].concat()
    };
    output::table(&["PERSON", "USER ID", "FILES", "SIZE", "SEEN"], others.iter().map(row).collect(), "")
}

/// What there is to say of a member's files, and where it stands: what is listed, and what was looked at since; else that there is nothing.
fn found_of(member: &Value) -> Vec<(&'static str, &'static str)> {
    let at = |key: &str| text_of(&member[key], "as_of").parse::<Timestamp>().ok();
    let listed = member.get("list").map(|_| ("listed", "list"));
    let looked = (at("look") > at("list")).then_some(("looked at", "look"));
    let found: Vec<_> = listed.into_iter().chain(looked).collect();
    if found.is_empty() { vec![("–", "list")] } else { found }
}

/// The sentence, and when a space ends that was just given an end, because a day may be told by other clocks.
fn with_end(sentence: String, end: Option<Timestamp>) -> String {
    match end {
        Some(end) => format!("{sentence} It expires at {}.", times::local(end)),
        None => sentence,
    }
}

fn said(about: &AboutSpace) -> Value {
    let mut body = json!({});
    let given = [
        ("title", json!(about.title)),
        ("hint", json!(about.hint)),
        ("expires_at", json!(about.expires)),
        ("limit_bytes", json!(about.limit.map(|mib| mib.saturating_mul(1 << 20)))),
        ("limit_files", json!(about.limit_files)),
    ];
    for (key, value) in given {
        if !value.is_null() {
            body[key] = value;
        }
    }
    body
}

/// The limit that the platform sets, and whether it is held.
fn limit_of(limit: &Value) -> String {
    let number = |key: &str| limit.get(key).and_then(Value::as_u64);
    let bytes = number("bytes").map(output::bytes);
    let files = number("files").map(|files| format!("{files} files"));
    let most: Vec<String> = bytes.into_iter().chain(files).collect();
    let most = if most.is_empty() { "none".to_owned() } else { most.join(", ") };
    match text_of(limit, "state").as_str() {
        "held" => format!("Limit: {most}."),
        "not_held" => format!("Limit: {most}; not held: {}.", output::printable(&text_of(limit, "text"))),
        _ => format!("Limit: {most}; it is being set."),
    }
}

/// What it is filled with, where files are not spread by that.
fn hint_of(space: &Value) -> Option<String> {
    let hint = text_of(space, "hint");
    match text_of(space, "hint_state").as_str() {
        "wanted" => Some(format!("Hint: {hint}; it is being applied.")),
        "not_applied" => {
            let said = output::printable(&text_of(space, "hint_text"));
            Some(format!("Hint: {hint}; not applied: {said}. It is tried again."))
        }
        _ => None,
    }
}

fn row(space: &Value) -> Vec<String> {
    let whose = match (space.get("owner"), space.get("group")) {
        (Some(_), _) => text_of(space, "owner"),
        (None, Some(_)) => format!("group {}", text_of(space, "group")),
        (None, None) => "everybody".to_owned(),
    };
    let end = text_of(space, "expires_at");
    let end = end.parse().map_or(end, times::local);
    vec![text_of(space, "name"), text_of(space, "kind"), whose, text_of(space, "state"), end, text_of(space, "title")]
}
