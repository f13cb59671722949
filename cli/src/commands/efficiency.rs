//! What sessions and runs hold and use: of one, and for admins of all. What nobody told is a dash, never 0.

use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use serde_json::Value;

use super::text_of;
use crate::api::{Api, Target};
use crate::{output, times};

/// Which report.
#[derive(Debug, Args)]
pub(crate) struct AdminEfficiency {
    /// Days back from now
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=366))]
    days: u16,
    /// Sums by person or by partition
    #[arg(long, value_enum, default_value_t)]
    by: By,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// By whose sessions and runs they are
    #[default]
    Person,
    /// By where they ran
    Partition,
}

/// Of one.
pub(super) async fn of(api: &Api, target: Target, as_json: bool) -> anyhow::Result<()> {
    let usage = api.get(&format!("{}/efficiency", target.path())).await?;
    if as_json {
        return output::json(&usage);
    }
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let hours = |pointer: &str| number(pointer).map_or_else(dash, hours);
    let part = |held: &str, used: &str| percent(number(held), number(used));
    let gib = |pointer: &str| number(pointer).map_or_else(dash, |mib| format!("{:.1} GiB", mib as f64 / 1024.0));
    let mut rows = vec![
        vec!["CPU hours".into(), hours("/cpu_s/held"), hours("/cpu_s/used"), part("/cpu_s/held", "/cpu_s/used")],
        vec![
            "Memory".into(),
            gib("/memory_mib/held"),
            gib("/memory_mib/used"),
            part("/memory_mib/held", "/memory_mib/used"),
        ],
    ];
    if number("/gpu/held_s").is_some_and(|held| held > 0) {
        let known = number("/gpu/known_s").filter(|known| *known > 0);
        let of = |used: &str| {
            vec![hours("/gpu/held_s"), known.map_or_else(dash, |_| hours(used)), percent(known, number(used))]
        };
        for (name, used) in [
            ("GPU hours, computing", "/gpu/busy_s"),
            ("GPU hours, idle", "/gpu/idle_s"),
            ("GPU hours, no program", "/gpu/empty_s"),
        ] {
            rows.push([vec![name.to_owned()], of(used)].concat());
        }
    }
    output::table(&["WHAT", "HELD", "USED", "PART"], rows, "")?;
    for advice in strings(&usage, "advice") {
        output::line(&output::printable(advice))?;
    }
    Ok(())
}

/// Of all.
pub(super) async fn report(api: &Api, which: &AdminEfficiency, as_json: bool) -> anyhow::Result<()> {
    let from = times::now().saturating_sub(SignedDuration::from_hours(24 * i64::from(which.days)))?;
    let by = match which.by {
        By::Person => "person",
        By::Partition => "partition",
    };
    let report = api.get(&format!("efficiency?from={from}&by={by}")).await?;
    if as_json {
        return output::json(&report);
    }
    let mut rows: Vec<_> = items(&report, "groups").map(row).collect();
    let listed = rows.len();
    if let Some(total) = report.get("total").filter(|_| !rows.is_empty()) {
        let mut total = row(total);
        if let Some(name) = total.first_mut() {
            "(all)".clone_into(name);
        }
        rows.push(total);
    }
    let header = ["NAME", "JOBS", "GPU H", "COMPUTING", "IDLE", "NO PROGRAM", "CPU H", "USED", "MEMORY NEEDED"];
    output::table(&header, rows, "No session or run held anything in this time.")?;
    let unlisted = report.get("unlisted").and_then(Value::as_u64).filter(|unlisted| *unlisted > 0);
    if let Some(unlisted) = unlisted {
        output::line(&format!(
            "Listed are the {listed} with the most idle GPU hours. Not listed, but in (all): {unlisted}."
        ))?;
    }
    for example in items(&report, "examples") {
        let text = |key| output::printable(&text_of(example, key));
        output::line(&format!("\n{} {} ({}, {})", text("kind"), text("name"), text("owner"), text("partition")))?;
        for advice in example.get("usage").into_iter().flat_map(|usage| strings(usage, "advice")) {
            output::line(&format!("  {}", output::printable(advice)))?;
        }
    }
    Ok(())
}

fn row(sums: &Value) -> Vec<String> {
    let number = |pointer: &str| sums.pointer(pointer).and_then(Value::as_u64);
    let held = |pointer: &str| number(pointer).filter(|held| *held > 0);
    let known = held("/gpu/known_s");
    let part = |used: &str| percent(known, number(used));
    vec![
        output::printable(&text_of(sums, "name")),
        number("/jobs").unwrap_or_default().to_string(),
        held("/gpu/held_s").map_or_else(dash, hours),
        part("/gpu/busy_s"),
        part("/gpu/idle_s"),
        part("/gpu/empty_s"),
        held("/cpu_s/held").map_or_else(dash, hours),
        percent(held("/cpu_s/held"), number("/cpu_s/used")),
        percent(held("/memory_mib_s/held"), number("/memory_mib_s/used")),
    ]
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn strings<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    items(value, key).filter_map(Value::as_str)
}

fn dash() -> String {
    "–".to_owned()
}

/// A little is said to be little, and only nothing is 0.
fn hours(seconds: u64) -> String {
    match seconds {
        1..180 => "< 0.1".to_owned(),
        _ => format!("{:.1}", seconds as f64 / 3600.0),
    }
}

fn percent(held: Option<u64>, used: Option<u64>) -> String {
    match (held, used) {
        (Some(held), Some(used)) if held > 0 => format!("{:.0} %", (used as f64 / held as f64 * 100.0).min(100.0)),
        _ => dash(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_few_minutes_are_not_no_hours() {
        let said = [0, 1, 179, 180, 3600].map(hours);
        assert_eq!(said, ["0.0", "< 0.1", "< 0.1", "0.1", "1.0"]);
    }

    #[test]
    fn what_nobody_told_is_a_dash() {
        let held_used = json!({"held": 7200, "used": 720});
        let gpu = json!({"held_s": 3600, "known_s": 0, "busy_s": 0, "idle_s": 0, "empty_s": 0});
        let zero = json!({"held": 0, "used": 0});
        let sums = json!({"name": "ada", "jobs": 2, "cpu_s": held_used, "memory_mib_s": zero, "gpu": gpu});
        assert_eq!(row(&sums), ["ada", "2", "1.0", "–", "–", "–", "2.0", "10 %", "–"]);
    }
}
