//! What `beegfs-ctl` is asked, word by word. The launcher allows exactly these forms and puts `--cfgFile=` in front.

use eirene_core::storage::{Bytes, Files, Limit, OperationsKind, PoolId, QuotaOf, QuotaRange, Role, SetStripe};

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn node_type(role: Role) -> &'static str {
    match role {
        Role::Management => "--nodetype=management",
        Role::Metadata => "--nodetype=meta",
        Role::Storage => "--nodetype=storage",
    }
}

fn whose(of: QuotaOf) -> &'static str {
    match of {
        QuotaOf::User => "--uid",
        QuotaOf::Group => "--gid",
    }
}

fn size(limit: Limit<Bytes>) -> String {
    match limit {
        Limit::Unlimited => "--sizelimit=unlimited".into(),
        Limit::At(Bytes(bytes)) => format!("--sizelimit={bytes}"),
    }
}

fn files(limit: Limit<Files>) -> String {
    match limit {
        Limit::Unlimited => "--inodelimit=unlimited".into(),
        Limit::At(Files(files)) => format!("--inodelimit={files}"),
    }
}

pub(super) fn version() -> Vec<String> {
    words(["--version"])
}

/// The tool asks the servers themselves, and waits for up to three seconds for those that do not answer.
pub(super) fn nodes(role: Role) -> Vec<String> {
    words(["--listnodes", node_type(role), "--details", "--reachable"])
}

/// The servers, without waiting for those that are down.
pub(super) fn listed(role: Role) -> Vec<String> {
    words(["--listnodes", node_type(role), "--details"])
}

/// Metadata targets have no pools by fullness and no long names.
pub(super) fn targets(role: Role) -> Vec<String> {
    match role {
        Role::Metadata | Role::Management => words(["--listtargets", "--nodetype=meta", "--state", "--spaceinfo"]),
        Role::Storage => {
            words(["--listtargets", "--nodetype=storage", "--state", "--spaceinfo", "--pools", "--longnodes"])
        }
    }
}

pub(super) fn pools() -> Vec<String> {
    words(["--liststoragepools"])
}

/// Without `--withzero` the answer leaves out whoever uses nothing, and nobody can tell that from a half answer. A range of one id is refused: the
/// tool takes its arguments for a set, in which two that are the same are one.
pub(super) fn quotas(range: QuotaRange) -> Vec<String> {
    let (first, last) = (range.first.to_string(), range.last.to_string());
    if first == last {
        return words(["--getquota", whose(range.of), &first, "--withzero", "--csv"]);
    }
    words(["--getquota", whose(range.of), "--range", &first, &last, "--withzero", "--csv"])
}

pub(super) fn default_quota(pool: PoolId) -> Vec<String> {
    words(["--getquota", "--defaultlimits", "--csv", &format!("--storagepoolid={}", pool.0)])
}

pub(super) fn set_quota(
    of: QuotaOf,
    id: u32,
    pool: PoolId,
    size_limit: Limit<Bytes>,
    files_limit: Limit<Files>,
) -> Vec<String> {
    let pool = format!("--storagepoolid={}", pool.0);
    words(["--setquota", whose(of), &id.to_string(), &size(size_limit), &files(files_limit), &pool])
}

pub(super) fn set_default_quota(
    of: QuotaOf,
    pool: PoolId,
    size_limit: Limit<Bytes>,
    files_limit: Limit<Files>,
) -> Vec<String> {
    let pool = format!("--storagepoolid={}", pool.0);
    words(["--setquota", "--default", whose(of), &size(size_limit), &files(files_limit), &pool])
}

/// Takes all limits from number 0, root's.
pub(super) fn free_root(of: QuotaOf, pool: PoolId) -> Vec<String> {
    set_quota(of, 0, pool, Limit::Unlimited, Limit::Unlimited)
}

pub(super) fn entry(path: &str) -> Vec<String> {
    words(["--getentryinfo", "--unmounted", path])
}

pub(super) fn set_stripe(path: &str, wanted: &SetStripe) -> Vec<String> {
    let mut all = words(["--setpattern", "--unmounted"]);
    all.extend(wanted.chunk.map(|chunk| format!("--chunksize={}", chunk.0)));
    all.extend(wanted.targets.map(|targets| format!("--numtargets={targets}")));
    all.extend(wanted.pool.map(|pool| format!("--storagepoolid={}", pool.0)));
    all.extend(wanted.mirrored.map(|yes| format!("--pattern={}", if yes { "buddymirror" } else { "raid0" })));
    all.push(path.to_owned());
    all
}

pub(super) fn server_stats(role: Role, seconds: u32) -> Vec<String> {
    words(["--serverstats", node_type(role), &format!("--history={seconds}"), "--interval=0"])
}

pub(super) fn server_stats_now(role: Role) -> Vec<String> {
    words(["--serverstats", node_type(role), "--interval=0", "--perserver", "--names"])
}

/// Without `--names`: a name may be anything.
pub(super) fn operations(role: Role, of: OperationsKind) -> Vec<String> {
    let mode = match of {
        OperationsKind::Users => "--userstats",
        OperationsKind::Clients => "--clientstats",
    };
    words([mode, node_type(role), "--interval=0"])
}
