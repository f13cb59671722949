//! The storage as admins see it: what is wrong first, then what it consists of, then whose spaces are short of room.

use eirene_core::space::SeenUsage;
use eirene_core::storage::{
    Ability, Bytes, Consistency, DefaultQuota, Files, Known, Limit, Partial, Pool, PoolId, Reach, Room, ServerNode,
    Target, Why,
};
use eirene_core::{Space, SpaceOwner, SpaceState};
use eirene_services::spaces::census::Census;
use eirene_services::spaces::level::percent;
use eirene_services::storage::Report;
use eirene_services::storage::judge::{Finding, Severity, server_name, target_name};
use eirene_services::storage::pools::{PoolRoom, Sum};
use eirene_services::storage::snapshot::{Asked, RootSeen};
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::layout::{Layout, Tone};
use super::session::{Chip, sentence};
use super::space::{level_chip, why};
use super::standing::Standing;
use crate::pages::Page;

/// Something that is wrong.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FindingView {
    /// How bad.
    pub(crate) chip: Chip,
    /// What, and its cure.
    pub(crate) text: String,
}

/// Something with a size: a root or a target.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PartView {
    /// Name.
    pub(crate) name: String,
    /// What else it is called or is; empty for nothing.
    pub(crate) about: String,
    /// How it is.
    pub(crate) chips: Vec<Chip>,
    /// What is free of what, in words.
    pub(crate) free: String,
    /// What is used, per cent; none where it is not known.
    pub(crate) percent: Option<u8>,
    /// How many more files fit; empty where nobody says.
    pub(crate) inodes: String,
    /// The pool it is in; empty where it is in none.
    pub(crate) pool: String,
}

/// A server.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerView {
    /// What it does, and its number.
    pub(crate) name: String,
    /// What else it is called; empty for nothing.
    pub(crate) about: String,
    /// Whether it is reached.
    pub(crate) chip: Chip,
    /// Where it is reached, in the words of the storage's tool.
    pub(crate) addresses: Vec<String>,
}

/// A pool and the limits of those who have none of their own.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PoolView {
    /// Name.
    pub(crate) name: String,
    /// Its targets.
    pub(crate) targets: String,
    /// What is free of what, in words.
    pub(crate) free: String,
    /// What is used, per cent; none where it is not known.
    pub(crate) percent: Option<u8>,
    /// How many more files fit; empty where nobody says.
    pub(crate) inodes: String,
    /// Defaults, a sentence each.
    pub(crate) defaults: Vec<String>,
}

/// How many spaces are how full.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LevelView {
    /// How full.
    pub(crate) chip: Chip,
    /// How many.
    pub(crate) count: u64,
}

/// A space that is short of room, or takes much.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct UseView {
    /// Its page.
    pub(crate) href: String,
    /// Name.
    pub(crate) name: String,
    /// Whose.
    pub(crate) owner: String,
    /// How full, or what has become of it.
    pub(crate) chip: Chip,
    /// What it uses and may use, or why that is not known.
    pub(crate) used: String,
}

/// The storage.
#[derive(Debug, Serialize)]
pub(crate) struct StoragePage {
    /// Frame.
    pub(crate) layout: Layout,
    /// What it is.
    pub(crate) adapter: String,
    /// When it was looked at; none before the first look.
    pub(crate) at: Option<Time>,
    /// What is wrong, the worst first.
    pub(crate) findings: Vec<FindingView>,
    /// Directories in which spaces lie.
    pub(crate) roots: Vec<PartView>,
    /// Servers.
    pub(crate) servers: Vec<ServerView>,
    /// Why there are none; empty where there are.
    pub(crate) no_servers: String,
    /// What is doubtful about them.
    pub(crate) server_doubts: Vec<String>,
    /// Targets.
    pub(crate) targets: Vec<PartView>,
    /// Why there are none; empty where there are.
    pub(crate) no_targets: String,
    /// What is doubtful about them.
    pub(crate) target_doubts: Vec<String>,
    /// Pools.
    pub(crate) pools: Vec<PoolView>,
    /// Why there are none; empty where there are.
    pub(crate) no_pools: String,
    /// What is doubtful about them.
    pub(crate) pool_doubts: Vec<String>,
    /// Spaces by level.
    pub(crate) levels: Vec<LevelView>,
    /// Spaces that are short of room.
    pub(crate) short: Vec<UseView>,
    /// Spaces that take the most.
    pub(crate) largest: Vec<UseView>,
}

impl Page for StoragePage {
    const TEMPLATE: &'static str = "pages/admin/storage.html";
}

/// The limits of a pool's people, or what the storage said in their place.
pub(crate) type Defaults = Result<DefaultQuota, String>;

impl StoragePage {
    /// Shows what was seen; `defaults` are those of the pools, in their order.
    pub(crate) fn new(words: &Words, layout: Layout, report: &Report, census: &Census, defaults: &[Defaults]) -> Self {
        let snapshot = &report.snapshot;
        let known = items(&snapshot.pools);
        let servers: Vec<ServerView> = items(&snapshot.nodes).iter().map(|node| of_server(words, node)).collect();
        let targets: Vec<PartView> =
            items(&snapshot.targets).iter().map(|target| of_target(words, target, known)).collect();
        let pools: Vec<PoolView> = items(&snapshot.pools)
            .iter()
            .enumerate()
            .map(|(at, pool)| of_pool(words, pool, items(&snapshot.targets), defaults.get(at)))
            .collect();
        Self {
            layout,
            adapter: adapter(words, report),
            at: snapshot.at.map(Time::new),
            findings: report.findings.iter().map(|finding| of_finding(words, finding)).collect(),
            roots: snapshot.roots.iter().map(|root| of_root(words, root)).collect(),
            no_servers: if servers.is_empty() { nothing(words, &snapshot.nodes) } else { String::new() },
            servers,
            server_doubts: doubts(&snapshot.nodes),
            no_targets: if targets.is_empty() { nothing(words, &snapshot.targets) } else { String::new() },
            targets,
            target_doubts: doubts(&snapshot.targets),
            no_pools: if pools.is_empty() { nothing(words, &snapshot.pools) } else { String::new() },
            pools,
            pool_doubts: doubts(&snapshot.pools),
            levels: census
                .levels
                .iter()
                .rev()
                .map(|(level, count)| LevelView { chip: level_chip(words, *level), count: *count })
                .collect(),
            short: census.short.iter().map(|(space, seen)| of_space(words, space, seen)).collect(),
            largest: census.largest.iter().map(|(space, seen)| of_space(words, space, seen)).collect(),
        }
    }
}

/// The adapter with the version of its tool, and that the storage has no valid licence.
fn adapter(words: &Words, report: &Report) -> String {
    let Some(can) = &report.snapshot.capabilities else { return report.adapter.to_owned() };
    let adapter = match can.version.value() {
        Some(version) => format!("{} {version}", report.adapter),
        None => report.adapter.to_owned(),
    };
    if can.licence == Ability::No(Why::Unlicensed) {
        return format!("{adapter}. {}", words.get("storage_page.unlicensed"));
    }
    adapter
}

fn items<T>(asked: &Asked<Partial<Vec<T>>>) -> &[T] {
    asked.got().map_or(&[], |answer| &answer.value)
}

/// What is doubtful about an answer, in the storage's own words.
fn doubts<T>(asked: &Asked<Partial<T>>) -> Vec<String> {
    asked.got().map(|answer| answer.doubts.iter().map(|doubt| doubt.text.clone()).collect()).unwrap_or_default()
}

/// Why there is nothing to show.
fn nothing<T>(words: &Words, asked: &Asked<T>) -> String {
    match asked {
        Asked::Unsupported => words.get("storage_page.not_of_this"),
        Asked::Got(_) => words.get("storage_page.none_told"),
        Asked::Failed(trouble) => words.fill("storage_page.not_told", &[("said", &trouble.text)]),
    }
}

fn of_finding(words: &Words, finding: &Finding) -> FindingView {
    let (key, tone) = match finding.severity {
        Severity::Warning => ("storage_page.warning", Tone::Wait),
        Severity::Broken => ("storage_page.broken", Tone::Bad),
    };
    FindingView { chip: Chip { label: words.get(key), tone }, text: sentence(finding.text.as_str()) }
}

/// What is free of what, and what is used in per cent.
fn room(words: &Words, total: Option<u64>, free: Option<u64>) -> (String, Option<u8>) {
    let size = |bytes: u64| format::bytes(words, bytes);
    match (total, free) {
        (Some(total), Some(free)) => (
            words.fill("storage_page.free_of", &[("free", &size(free)), ("total", &size(total))]),
            Some(percent(total.saturating_sub(free), total).min(100)),
        ),
        (Some(total), None) => (words.fill("storage_page.of_size", &[("total", &size(total))]), None),
        (None, _) => (words.get("storage_page.size_unknown"), None),
    }
}

/// How many more files fit; empty where nobody says.
fn inodes(words: &Words, total: Option<u64>, free: Option<u64>) -> String {
    match (total, free) {
        (Some(total), Some(free)) => {
            let values = [("free", format::number(free)), ("total", format::number(total))];
            words.fill("storage_page.files_free", &values.each_ref().map(|(name, text)| (*name, text.as_str())))
        }
        _ => String::new(),
    }
}

fn of_root(words: &Words, root: &RootSeen) -> PartView {
    let chip = |key: &str, tone| Chip { label: words.get(key), tone };
    let seen = root.file_system.got();
    let (free, percent) = room(words, seen.map(|seen| seen.total.0), seen.map(|seen| seen.available.0));
    let chips = match seen {
        None => vec![chip("storage_page.away", Tone::Bad)],
        Some(seen) if seen.read_only => vec![chip("storage_page.read_only", Tone::Wait)],
        Some(_) => vec![chip("storage_page.there", Tone::Good)],
    };
    let about = seen.map(|seen| seen.identity.kind.clone()).unwrap_or_default();
    let inodes = inodes(
        words,
        seen.and_then(|seen| seen.inodes_total.value()).map(|n| n.0),
        seen.and_then(|seen| seen.inodes_available.value()).map(|n| n.0),
    );
    PartView { name: root.name.to_string(), about, chips, free, percent, inodes, pool: String::new() }
}

fn of_server(words: &Words, node: &ServerNode) -> ServerView {
    let (key, tone) = match node.reachable {
        Known::Known(true) => ("storage_page.reached", Tone::Good),
        Known::Known(false) => ("storage_page.not_reached", Tone::Bad),
        Known::Missing(_) => ("storage_page.reach_not_told", Tone::Doubt),
    };
    ServerView {
        name: server_name(&node.id),
        about: node.id.alias.clone().unwrap_or_default(),
        chip: Chip { label: words.get(key), tone },
        addresses: node.addresses.clone(),
    }
}

fn of_target(words: &Words, target: &Target, pools: &[Pool]) -> PartView {
    let chip = |key: &str, tone| Chip { label: words.get(key), tone };
    let reach = match target.reach {
        Reach::Online => chip("storage_page.online", Tone::Good),
        Reach::ProbablyOffline => chip("storage_page.probably_offline", Tone::Wait),
        Reach::Offline => chip("storage_page.offline", Tone::Bad),
        Reach::Unknown => chip("storage_page.reach_unknown", Tone::Doubt),
    };
    let consistency = match target.consistency {
        Consistency::Good => None,
        Consistency::NeedsResync => Some(chip("storage_page.needs_resync", Tone::Wait)),
        Consistency::Bad => Some(chip("storage_page.bad", Tone::Bad)),
        Consistency::Unknown => Some(chip("storage_page.consistency_unknown", Tone::Doubt)),
    };
    let of_room = match target.room {
        Room::Normal | Room::Unknown => None,
        Room::Low => Some(chip("storage_page.low", Tone::Wait)),
        Room::Emergency => Some(chip("storage_page.emergency", Tone::Bad)),
    };
    let (free, percent) = room(words, target.total.value().map(|n| n.0), target.free.value().map(|n| n.0));
    PartView {
        name: target_name(target.id),
        about: target.alias.clone().unwrap_or_default(),
        chips: [Some(reach), consistency, of_room].into_iter().flatten().collect(),
        free,
        percent,
        inodes: inodes(words, target.inodes_total.value().map(|n| n.0), target.inodes_free.value().map(|n| n.0)),
        pool: target.pool.map(|pool| in_pool(words, pool, pools)).unwrap_or_default(),
    }
}

/// The pool something is in.
fn in_pool(words: &Words, pool: PoolId, pools: &[Pool]) -> String {
    let name = pools.iter().find(|known| known.id == pool).map(pool_name);
    words.fill("storage_page.in_pool", &[("pool", &name.unwrap_or_else(|| pool.0.to_string()))])
}

/// A pool by its name and number.
pub(super) fn pool_name(pool: &Pool) -> String {
    format!("{} ({})", pool.name, pool.id.0)
}

/// What is said of a sum: of one with a hole in it, that only some tell.
fn of_sum(words: &Words, sum: &Sum, said: String) -> String {
    if !sum.at_least || said.is_empty() || sum.total.is_none() {
        return said;
    }
    words.fill("storage_page.at_least", &[("room", &said)])
}

fn of_pool(words: &Words, pool: &Pool, targets: &[Target], defaults: Option<&Defaults>) -> PoolView {
    let PoolRoom { bytes: sum, files } = PoolRoom::of(pool, targets);
    let (free, percent) = room(words, sum.total, sum.free);
    let (free, inodes) = (of_sum(words, &sum, free), of_sum(words, &files, inodes(words, files.total, files.free)));
    let percent = percent.filter(|_| !sum.at_least);
    let targets: Vec<String> = pool.targets.iter().map(ToString::to_string).collect();
    let defaults = match defaults {
        None => vec![words.get("storage_page.no_defaults")],
        Some(Err(said)) => vec![words.fill("storage_page.not_told", &[("said", said)])],
        Some(Ok(defaults)) => {
            let bytes = |limit: Known<Limit<Bytes>>| limited(words, limit, |n| format::bytes(words, n.0));
            let files = |limit: Known<Limit<Files>>| limited(words, limit, |n| format::number(n.0));
            let said = |key: &str, size: &str, files: &str| words.fill(key, &[("size", size), ("files", files)]);
            vec![
                said("storage_page.defaults_user", &bytes(defaults.user_size), &files(defaults.user_files)),
                said("storage_page.defaults_group", &bytes(defaults.group_size), &files(defaults.group_files)),
            ]
        }
    };
    PoolView { name: pool_name(pool), targets: targets.join(", "), free, percent, inodes, defaults }
}

fn limited<T: Copy>(words: &Words, limit: Known<Limit<T>>, shown: impl Fn(T) -> String) -> String {
    match limit {
        Known::Known(Limit::At(most)) => shown(most),
        Known::Known(Limit::Unlimited) => words.get("storage_page.no_limit"),
        Known::Missing(_) => words.get("storage_page.limit_unknown"),
    }
}

/// What a space uses, of what, or why that is not known.
pub(super) fn used(words: &Words, seen: &SeenUsage) -> String {
    let usage = seen.usage;
    let size = |bytes: Bytes| format::bytes(words, bytes.0);
    match (usage.used_bytes, usage.limit_bytes, usage.missing) {
        (Some(used), Some(Limit::At(most)), _) => {
            words.fill("my_spaces.used_of", &[("used", &size(used)), ("limit", &size(most))])
        }
        (Some(used), ..) => size(used),
        (None, _, Some(missing)) => why(words, missing),
        (None, _, None) => words.get("my_spaces.silent"),
    }
}

/// Whose a space is.
pub(super) fn owner(words: &Words, space: &Space) -> String {
    match &space.owner {
        SpaceOwner::Person { name, .. } => name.to_string(),
        SpaceOwner::Group(group) => words.fill("storage_page.group", &[("name", group.as_str())]),
        SpaceOwner::Everybody => words.get("storage_page.everybody"),
    }
}

fn of_space(words: &Words, space: &Space, seen: &SeenUsage) -> UseView {
    // Of what is not there it says nothing how full it was.
    let away = if space.state == SpaceState::Present { None } else { Standing::of(space).chip(words) };
    UseView {
        href: format!("/spaces/{}", space.name),
        name: space.name.to_string(),
        owner: owner(words, space),
        chip: away.unwrap_or_else(|| level_chip(words, seen.level)),
        used: used(words, seen),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eirene_core::storage::Capabilities;
    use eirene_services::storage::snapshot::Snapshot;
    use eirene_words::words;

    use super::*;

    #[test]
    fn a_missing_licence_is_said_once_beside_the_version() {
        for (licence, shown) in [
            (Ability::Yes, "beegfs8 8.3.1"),
            (Ability::Unknown, "beegfs8 8.3.1"),
            (Ability::No(Why::Unlicensed), "beegfs8 8.3.1. This BeeGFS has no valid licence"),
        ] {
            let version = Known::Known("8.3.1".to_owned());
            let capabilities = Some(Capabilities { version, licence, ..Capabilities::none("beegfs8") });
            let snapshot = Arc::new(Snapshot { capabilities, ..Snapshot::default() });
            let report = Report { adapter: "beegfs8", snapshot, findings: Vec::new() };
            assert_eq!(adapter(words(), &report), shown);
        }
    }
}
