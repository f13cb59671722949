//! `eirene admin storage`: how the shared storage is, who uses and may use what of it, and what its servers do. What nobody said is a dash, never 0.

use clap::{Args, Subcommand, ValueEnum};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use self::defaults::SetDefaultQuota;
use super::text_of;
use crate::api::Api;
use crate::arguments::memory_mib;
use crate::output;

mod defaults;

#[derive(Debug, Subcommand)]
pub(crate) enum AdminStorage {
    /// Roots, targets, pools and servers, and what is wrong with the cure
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
    /// Set what a user or group may use, by number, where the storage itself keeps such limits
    SetQuota(SetQuota),
    /// The limits of users and groups who have none of their own
    DefaultQuota {
        /// Number of the pool; all of them when it is left out
        pool: Option<u16>,
    },
    /// Set the limits of users or groups who have none of their own, in one pool
    SetDefaultQuota(SetDefaultQuota),
    /// What servers do now, or what users or clients ask of them
    Stats {
        /// Of whom
        #[arg(value_enum, default_value_t)]
        of: Of,
        /// Of the servers that hold names and attributes, in place of those that hold contents
        #[arg(long)]
        metadata: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetQuota {
    /// Number of the user or group
    number: u32,
    /// Of a group, in place of a user
    #[arg(long)]
    group: bool,
    /// Number of the pool; the storage's default one when it is left out
    #[arg(long, value_name = "N")]
    pool: Option<u16>,
    /// How much they may use: `500G`, or `unlimited`; what is left out stays
    #[arg(long, value_name = "SIZE", value_parser = most_bytes, required_unless_present = "limit_files")]
    limit: Option<Most>,
    /// How many files they may have, as the storage counts files: a number, or `unlimited`
    #[arg(long, value_name = "N", value_parser = most_files)]
    limit_files: Option<Most>,
    /// Do not ask, also where they use more already
    #[arg(long)]
    yes: bool,
}

/// A limit, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Most {
    Unlimited,
    At(u64),
}

impl Most {
    /// As the portal's API has it.
    fn word(self) -> Value {
        match self {
            Self::Unlimited => "unlimited".into(),
            Self::At(most) => most.into(),
        }
    }
}

fn most_bytes(text: &str) -> Result<Most, String> {
    if text == "unlimited" {
        return Ok(Most::Unlimited);
    }
    memory_mib(text)?.checked_mul(1 << 20).map(Most::At).ok_or_else(|| "out of range".to_owned())
}

fn most_files(text: &str) -> Result<Most, String> {
    match text {
        "unlimited" => Ok(Most::Unlimited),
        number => number.parse().map(Most::At).map_err(|_| "a number, or `unlimited`".to_owned()),
    }
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
        AdminStorage::SetQuota(wish) => set_quota(api, &wish, as_json).await,
        AdminStorage::DefaultQuota { pool } => defaults::show(api, pool, as_json).await,
        AdminStorage::SetDefaultQuota(wish) => defaults::set(api, &wish, as_json).await,
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
            text_of(root, "total_files"),
            text_of(root, "free_files"),
        ]
    });
    let targets = items(storage, "targets").map(|target| {
        let state = format!("{}, {}", text_of(target, "reach"), text_of(target, "consistency"));
        vec![
            text_of(target, "id"),
            state,
            bytes(target, "total_bytes"),
            bytes(target, "free_bytes"),
            text_of(target, "total_files"),
            text_of(target, "free_files"),
        ]
    });
    let pools = items(storage, "pools").map(pool);
    output::table(
        &["WHAT", "STATE", "SIZE", "FREE", "FILES", "FREE FILES"],
        rows.chain(targets).chain(pools).collect(),
        "There are no roots, targets or pools.",
    )?;
    let servers: Vec<_> = items(storage, "servers").map(server).collect();
    if !servers.is_empty() {
        output::table(&["SERVER", "NAME", "STATE", "ADDRESSES"], servers, "")?;
    }
    for finding in items(storage, "findings") {
        output::line(&format!("{}: {}", text_of(finding, "severity"), text_of(finding, "text")))?;
    }
    Ok(())
}

/// A server's line.
fn server(server: &Value) -> Vec<String> {
    let state = match server.get("reachable").and_then(Value::as_bool) {
        Some(true) => "reached",
        Some(false) => "not reached",
        None => "not told",
    };
    let addresses: Vec<_> = items(server, "addresses").filter_map(Value::as_str).collect();
    let addresses = if addresses.is_empty() { "–".to_owned() } else { addresses.join(", ") };
    vec![text_of(server, "id"), text_of(server, "alias"), state.into(), addresses]
}

/// A pool's line: what its targets have together. Where not all of them tell, there may be more, which a `+` says.
fn pool(pool: &Value) -> Vec<String> {
    let is = |key: &str| pool.get(key) == Some(&Value::Bool(true));
    let told = |key: &str, shown: String, at_least: bool| {
        let more = if at_least && pool.get(key).is_some() { "+" } else { "" };
        format!("{shown}{more}")
    };
    let size = |key: &str| told(key, bytes(pool, key), is("bytes_at_least"));
    let files = |key: &str| told(key, text_of(pool, key), is("files_at_least"));
    let half = is("bytes_at_least") || is("files_at_least");
    let state = if half { "not all targets tell" } else { "all targets tell" };
    vec![
        format!("pool:{} {}", text_of(pool, "id"), text_of(pool, "name")),
        state.into(),
        size("total_bytes"),
        size("free_bytes"),
        files("total_files"),
        files("free_files"),
    ]
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

async fn set_quota(api: &Api, wish: &SetQuota, as_json: bool) -> anyhow::Result<()> {
    let (of, number) = (if wish.group { "group" } else { "user" }, wish.number);
    let bounds = |limit: Option<Most>| matches!(limit, Some(Most::At(_)));
    if !wish.yes && (bounds(wish.limit) || bounds(wish.limit_files)) {
        let now = api.get(&format!("storage/quotas?of={of}&first={number}")).await?;
        if let Some(question) = question(&now, &format!("{of} {number}"), wish) {
            output::confirm(&question)?;
        }
    }
    let mut body = json!({});
    let given = [
        ("pool", wish.pool.map(Value::from)),
        ("limit_bytes", wish.limit.map(Most::word)),
        ("limit_files", wish.limit_files.map(Most::word)),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            body[key] = value;
        }
    }
    quota(&api.put(&format!("storage/quotas/{of}/{number}"), &body).await?, as_json)
}

/// What is to be asked before limits are set below what is used, or may be; none where there is room. Without a pool it is not known which is
/// meant, so the fullest counts.
fn question(now: &Value, whose: &str, wish: &SetQuota) -> Option<String> {
    if now.get("missing").is_some() {
        // There are no quotas to be told or set; the portal says so with its reason.
        return None;
    }
    let is_meant = |quota: &Value| {
        let pool = quota.get("pool").and_then(Value::as_u64);
        wish.pool.is_none_or(|wanted| pool == Some(u64::from(wanted)))
    };
    let used = |key: &str| {
        let of_pool = items(now, "items").filter(|quota| is_meant(quota));
        of_pool.filter_map(|quota| quota.get(key).and_then(Value::as_u64)).max()
    };
    let in_files = |files: u64| format!("{files} files");
    let short = [
        less(whose, used("used_bytes"), wish.limit, output::bytes),
        less(whose, used("used_files"), wish.limit_files, in_files),
    ];
    let said: Vec<String> = short.into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("{} Set it?", said.join(" ")))
}

/// What a limit means to whoever uses more already, or may; none where they do not.
fn less(whose: &str, used: Option<u64>, limit: Option<Most>, shown: impl Fn(u64) -> String) -> Option<String> {
    let Some(Most::At(most)) = limit else { return None };
    match used {
        Some(used) if used <= most => None,
        Some(used) => Some(format!("{whose} uses {} and can write nothing more within {}.", shown(used), shown(most))),
        None => Some(format!("It is not known what {whose} uses: it may be more than {}.", shown(most))),
    }
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
        let who = if row["servers"] == true { "servers".to_owned() } else { text_of(row, key) };
        vec![who, text_of(row, "total"), text_of(row, "per_s"), most.join(", ")]
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
