//! What `beegfs` (8) is asked, word by word. The launcher allows exactly these forms and puts `--mgmtd-addr=`, `--auth-file=` and
//! `--tls-cert-file=` in front. Releases from 8.4.0 on also get [`NO_ALERTS`], which earlier ones refuse.
//!
//! Rows are asked for as NDJSON: `json` prints several lists when there are more rows than a page holds. `pool list` alone refuses that, and
//! gets a page that holds all.

use eirene_core::storage::{Bytes, Files, Limit, OperationsKind, PoolId, QuotaOf, QuotaRange, Role, SetStripe};

/// Prints no alerts beside the rows. Only 8.4.0 and later know it.
pub(super) const NO_ALERTS: &str = "--disable-alerts";
/// Numbers as they are. [`NO_ALERTS`] goes behind it.
pub(super) const RAW: &str = "--raw";
/// In every question but for the version.
const PLAIN: [&str; 3] = [RAW, "--disable-emojis", "--log-level=0"];

fn rows(columns: &str, words: &[&str]) -> Vec<String> {
    let mut all = vec!["--output=ndjson".to_owned()];
    all.extend(PLAIN.map(str::to_owned));
    if !columns.is_empty() {
        all.push(format!("--columns={columns}"));
    }
    all.extend(words.iter().map(|word| (*word).to_owned()));
    all
}

fn change(words: &[&str]) -> Vec<String> {
    PLAIN.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn node_type(role: Role) -> &'static str {
    match role {
        Role::Storage => "--node-type=storage",
        Role::Metadata | Role::Management => "--node-type=meta",
    }
}

fn limit(limit: Limit<u64>) -> String {
    match limit {
        Limit::Unlimited => "unlimited".into(),
        Limit::At(number) => number.to_string(),
    }
}

fn size(size: Limit<Bytes>) -> String {
    limit(match size {
        Limit::Unlimited => Limit::Unlimited,
        Limit::At(Bytes(bytes)) => Limit::At(bytes),
    })
}

fn count(files: Limit<Files>) -> String {
    limit(match files {
        Limit::Unlimited => Limit::Unlimited,
        Limit::At(Files(files)) => Limit::At(files),
    })
}

pub(super) fn version() -> Vec<String> {
    vec!["version".into()]
}

/// Fails in releases that do not know [`NO_ALERTS`], and asks no server.
pub(super) fn knows_no_alerts() -> Vec<String> {
    vec![NO_ALERTS.into(), "version".into()]
}

pub(super) fn nodes() -> Vec<String> {
    rows(
        "id,type,alias,nics,reachable",
        &["node", "list", "--with-nics", "--reachability-check", "--reachability-error"],
    )
}

/// The columns of used space are not asked for: they have a percentage in them, raw or not.
pub(super) fn targets() -> Vec<String> {
    rows(
        "id,type,alias,node,storage_pool,reachability,last_contact,consistency,cap_pool,space,space_free,inodes,inodes_free",
        &["target", "list", "--state", "--capacity"],
    )
}

pub(super) fn pools() -> Vec<String> {
    let columns =
        "--columns=id,alias,targets,mirrors,user_space_limit,user_inode_limit,group_space_limit,group_inode_limit";
    let mut all = vec!["--output=json".to_owned(), "--page-size=1000000".to_owned()];
    all.extend(PLAIN.map(str::to_owned));
    all.extend([columns, "pool", "list", "--with-limits"].map(str::to_owned));
    all
}

/// What is used, of those who use something.
pub(super) fn usage(range: QuotaRange) -> Vec<String> {
    quotas("list-usage", range)
}

/// The limits of those who have some of their own.
pub(super) fn limits(range: QuotaRange) -> Vec<String> {
    quotas("list-limits", range)
}

fn quotas(list: &str, range: QuotaRange) -> Vec<String> {
    let whose = match range.of {
        QuotaOf::User => "--uids",
        QuotaOf::Group => "--gids",
    };
    rows("id,type,pool,space,inode", &["quota", list, &format!("{whose}={}-{}", range.first, range.last)])
}

/// Lists have plural flags, settings singular ones.
pub(super) fn set_quota(
    of: QuotaOf,
    id: u32,
    pool: PoolId,
    bytes: Option<Limit<Bytes>>,
    files: Option<Limit<Files>>,
) -> Vec<String> {
    let whose = match of {
        QuotaOf::User => format!("--uid={id}"),
        QuotaOf::Group => format!("--gid={id}"),
    };
    let mut all = change(&["quota", "set-limits", &format!("s:{}", pool.0), &whose]);
    all.extend(bytes.map(|bytes| format!("--space={}", size(bytes))));
    all.extend(files.map(|files| format!("--inode={}", count(files))));
    all
}

pub(super) fn set_default_quota(
    of: QuotaOf,
    pool: PoolId,
    bytes: Option<Limit<Bytes>>,
    files: Option<Limit<Files>>,
) -> Vec<String> {
    let whose = match of {
        QuotaOf::User => "user",
        QuotaOf::Group => "group",
    };
    let mut all = change(&["quota", "set-defaults", &format!("s:{}", pool.0)]);
    all.extend(bytes.map(|bytes| format!("--{whose}-space={}", size(bytes))));
    all.extend(files.map(|files| format!("--{whose}-inode={}", count(files))));
    all
}

pub(super) fn entry(path: &str) -> Vec<String> {
    rows(
        "path,entry_id,type,meta_node,meta_mirror,storage_pool,stripe_pattern,storage_targets,storage_mirrors",
        &["entry", "info", "--mount=none", path],
    )
}

pub(super) fn set_stripe(path: &str, wanted: &SetStripe) -> Vec<String> {
    let mut all = change(&["entry", "set", "--mount=none"]);
    all.extend(wanted.chunk.map(|chunk| format!("--chunk-size={}", chunk.0)));
    all.extend(wanted.targets.map(|targets| format!("--num-targets={targets}")));
    all.extend(wanted.pool.map(|pool| format!("--pool=s:{}", pool.0)));
    all.extend(wanted.mirrored.map(|yes| format!("--pattern={}", if yes { "mirrored" } else { "raid0" })));
    all.push(path.to_owned());
    all
}

const STATS: &str = "time,node_id,alias,queue_length,requests,busy_workers,written,read";

/// One server: for all of a role the tool waits without end where one of them hangs, and prints zeros for one that is down.
pub(super) fn server_stats(role: Role, node: u32, seconds: u32) -> Vec<String> {
    rows(STATS, &["stats", "server", &server(role, node), "--interval=0s", &format!("--history={seconds}s")])
}

/// One server: for all of a role the tool has no answer where one of them is down. The type of node chooses the columns.
pub(super) fn operations(role: Role, node: u32, of: OperationsKind) -> Vec<String> {
    let whose = match of {
        OperationsKind::Users => "user",
        OperationsKind::Clients => "client",
    };
    rows("", &["stats", whose, &server(role, node), node_type(role), "--interval=0s"])
}

fn server(role: Role, node: u32) -> String {
    format!("{}:{node}", if role == Role::Storage { "s" } else { "m" })
}
