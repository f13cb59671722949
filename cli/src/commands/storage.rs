//! `eirene admin storage`: how the shared storage is, who uses what of it, and what its servers do. What nobody said is a dash, never 0.

use clap::{Subcommand, ValueEnum};
use indicatif::BinaryBytes;
use serde_json::Value;

use super::text_of;
use crate::api::Api;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum AdminStorage {
    /// Targets, and what is wrong with the cure
    Status,
    /// What users or groups use and may use, by number
    Quota {
        /// The first number
        first: u32,
        /// The last number; the first alone when it is left out
        last: Option<u32>,
        /// Of groups, in place of users
        #[arg(long)]
        groups: bool,
    },
    /// What servers do now, or what users or clients ask of them
    Stats {
        #[arg(value_enum, default_value_t)]
        of: Of,
        /// Of the servers that hold names and attributes, in place of those that hold contents
        #[arg(long)]
        metadata: bool,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Of {
    /// What each server did in its last second
    #[default]
    Servers,
    /// Operations of each user
    Users,
    /// Operations of each client
    Clients,
}

pub(super) async fn run(api: &Api, verb: AdminStorage, as_json: bool) -> anyhow::Result<()> {
    match verb {
        AdminStorage::Status => status(&api.get("storage").await?, as_json),
        AdminStorage::Quota { first, last, groups } => {
            let (of, last) = (if groups { "group" } else { "user" }, last.unwrap_or(first));
            quota(&api.get(&format!("storage/quotas?of={of}&first={first}&last={last}")).await?, as_json)
        }
        AdminStorage::Stats { of, metadata } => {
            let role = if metadata { "metadata" } else { "storage" };
            let word = match of {
                Of::Servers => "servers",
                Of::Users => "users",
                Of::Clients => "clients",
            };
            let stats = api.get(&format!("storage/stats?of={word}&role={role}")).await?;
            if as_json {
                return output::json(&stats);
            }
            remarks(&stats);
            if of == Of::Servers { servers(&stats) } else { operations(&stats, of) }
        }
    }
}

fn status(storage: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(storage);
    }
    output::say(&format!(
        "{} {}, seen {}",
        text_of(storage, "adapter"),
        text_of(storage, "version"),
        text_of(storage, "as_of")
    ));
    let rows = items(storage, "roots").map(|root| {
        let state = if root.get("total_bytes").is_some() { "answers" } else { "does not answer" };
        vec![
            format!("root:{}", text_of(root, "name")),
            state.into(),
            bytes(root, "total_bytes"),
            bytes(root, "free_bytes"),
        ]
    });
    let targets = items(storage, "targets").map(|target| {
        let state = format!("{}, {}", text_of(target, "reach"), text_of(target, "consistency"));
        vec![text_of(target, "id"), state, bytes(target, "total_bytes"), bytes(target, "free_bytes")]
    });
    output::table(
        &["WHAT", "STATE", "SIZE", "FREE"],
        rows.chain(targets).collect(),
        "There are no roots and no targets.",
    )?;
    for finding in items(storage, "findings") {
        output::line(&format!("{}: {}", text_of(finding, "severity"), text_of(finding, "text")))?;
    }
    Ok(())
}

fn quota(quotas: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(quotas);
    }
    remarks(quotas);
    let rows = items(quotas, "items").map(|quota| {
        let limit = if quota.get("unlimited") == Some(&Value::Bool(true)) {
            "unlimited".to_owned()
        } else {
            bytes(quota, "limit_bytes")
        };
        let used_files = text_of(quota, "used_files");
        let more = if quota.get("files_at_least") == Some(&Value::Bool(true)) { "+" } else { "" };
        vec![
            text_of(quota, "id"),
            text_of(quota, "pool"),
            bytes(quota, "used_bytes"),
            limit,
            format!("{used_files}{more}"),
            text_of(quota, "limit_files"),
            text_of(quota, "missing"),
        ]
    });
    let header = ["NUMBER", "POOL", "USED", "LIMIT", "FILES", "FILES LIMIT", "NOT KNOWN BECAUSE"];
    output::table(&header, rows.collect(), "There are no quotas to show.")
}

fn servers(stats: &Value) -> anyhow::Result<()> {
    let rows = items(stats, "servers").map(|server| {
        vec![
            text_of(server, "id"),
            bytes(server, "written_bytes_per_s"),
            bytes(server, "read_bytes_per_s"),
            text_of(server, "requests_per_s"),
            text_of(server, "queued"),
            text_of(server, "busy"),
        ]
    });
    let header = ["SERVER", "WRITTEN/S", "READ/S", "REQUESTS/S", "WAITING", "BUSY WORKERS"];
    output::table(&header, rows.collect(), "No server says what it does.")
}

fn operations(stats: &Value, of: Of) -> anyhow::Result<()> {
    let (title, key) = if of == Of::Users { ("USER", "user") } else { ("CLIENT", "client") };
    let rows = items(stats, "operations").map(|row| {
        let mut most: Vec<&Value> = items(row, "operations").collect();
        most.sort_by_key(|operation| std::cmp::Reverse(operation.get("total").and_then(Value::as_u64)));
        let most: Vec<_> = most.iter().take(3).map(|operation| text_of(operation, "name")).collect();
        vec![text_of(row, key), text_of(row, "total"), text_of(row, "per_s"), most.join(", ")]
    });
    let header = [title, "OPERATIONS", "BY THE SECOND", "MOSTLY"];
    output::table(&header, rows.collect(), "Nobody has asked anything.")
}

/// Why there is nothing, or less than one would think.
fn remarks(answer: &Value) {
    if let Some(text) = answer.get("text").and_then(Value::as_str) {
        output::say(text);
    }
    if answer.get("restarted") == Some(&Value::Bool(true)) {
        output::say("A server was started anew since the last count, so there are no rates this time.");
    }
    for doubt in items(answer, "doubts").filter_map(Value::as_str) {
        output::say(&format!("Doubtful: {doubt}"));
    }
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn bytes(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_u64).map_or_else(|| "–".to_owned(), |bytes| BinaryBytes(bytes).to_string())
}
