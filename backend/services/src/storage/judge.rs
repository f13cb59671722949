//! What is wrong with the storage, by a look at it: one sentence each, with the cure. The same for every adapter, because it is judged from what
//! the port says and never from a tool's own verdict.

use eirene_core::Sentence;
use eirene_core::storage::{
    Ability, Bytes, Capabilities, Consistency, Files, Identity, Known, NodeId, Partial, Pool, Reach, Role, Room,
    ServerNode, Target, TargetId, Why,
};
use eirene_words::{say, say_with};
use jiff::{SignedDuration, Timestamp};

use super::pools::PoolRoom;
use super::snapshot::{Asked, RootSeen, Snapshot, Trouble, TroubleKind};

/// A look that is older says nothing of now.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody should look at it.
    Warning,
    /// Something does not work, or soon will not.
    Broken,
}

impl Severity {
    /// The word programs know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable code.
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What it is about: `storage:3`, `pool:1`, `root:scratch`, `homes`; empty for the whole.
    pub about: String,
    /// One sentence with the cure.
    pub text: Sentence,
}

/// Free space below which something is nearly full, per cent: warning and broken.
pub type NearFull = [u8; 2];

/// Everything that is wrong, the worst first.
pub fn judge(snapshot: &Snapshot, near_full: NearFull, now: Timestamp) -> Vec<Finding> {
    let mut found = Findings { near_full, all: Vec::new() };
    match snapshot.at {
        None => return Vec::new(),
        Some(at) if now.duration_since(at) > STALE => {
            found.add("look_too_old", Severity::Warning, String::new(), say_with("finding.look_too_old", &[]));
        }
        Some(_) => {}
    }
    for root in &snapshot.roots {
        found.root(root);
    }
    found.homes(&snapshot.homes);
    let causes = Causes::of(snapshot);
    found.abilities(snapshot, &causes);
    found.versions(snapshot);
    if let Some(nodes) = found.answer("servers", &snapshot.nodes, &causes) {
        found.nodes(nodes);
    }
    let targets = found.answer("targets", &snapshot.targets, &causes);
    if let Some(targets) = targets {
        found.targets(targets);
    }
    if let Some(pools) = found.answer("pools", &snapshot.pools, &causes) {
        found.pools(pools, targets.map_or(&[], |targets| &targets.value));
    }
    // Stable: of the same severity what was found first stays first.
    found.all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found.all
}

/// A target's name in findings, answers and metrics.
pub fn target_name(id: TargetId) -> String {
    format!("{}:{}", role_word(id.role), id.number)
}

/// A server's name in findings and answers.
pub fn server_name(id: &NodeId) -> String {
    format!("{}:{}", role_word(id.role), id.number)
}

/// A role's word.
pub fn role_word(role: Role) -> &'static str {
    match role {
        Role::Management => "management",
        Role::Metadata => "metadata",
        Role::Storage => "storage",
    }
}

/// What lies at a root, by what its spaces were made on. Numbers that the kernel gives a mount tell nothing: they are others after each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtRoot {
    /// The same, and it says so by its marker.
    Same,
    /// Nothing says that it is another one.
    Alike,
    /// Another file system, with a marker of its own.
    Another,
    /// Another one without a marker: what is below the mount point.
    NotMounted,
}

impl AtRoot {
    fn told(made: &Identity, now: &Identity) -> Self {
        let other_root = made.root_inode.zip(now.root_inode).is_some_and(|(made, now)| made != now);
        // Disks are called otherwise after a start; a root that had a marker has one then too.
        let is_disk = |seen: &Identity| seen.source.starts_with("/dev/");
        let renamed = made.marker.is_none() && is_disk(made) && is_disk(now);
        let alike = made.kind == now.kind && (made.source == now.source || renamed) && !other_root;
        if let (Some(made), Some(now)) = (&made.marker, &now.marker) {
            return if made == now { Self::Same } else { Self::Another };
        }
        match &now.marker {
            _ if alike => Self::Alike,
            Some(_) => Self::Another,
            None => Self::NotMounted,
        }
    }
}

struct Findings {
    near_full: NearFull,
    all: Vec<Finding>,
}

/// What one cause makes of every question, and is said once: that nobody runs the tool, or that the whole storage does not answer.
struct Causes<'a> {
    no_tool: bool,
    away: bool,
    /// Why the tool cannot ask at all: a wrong secret or certificate.
    misconfigured: Option<&'a str>,
}

impl<'a> Causes<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let can = snapshot.capabilities.as_ref();
        Self {
            no_tool: can.is_some_and(|can| can.version == Known::Missing(Why::DidNotAnswer)),
            away: snapshot.nodes.away().is_some(),
            misconfigured: match &snapshot.nodes {
                Asked::Failed(trouble) if is_misconfigured(trouble) => Some(&trouble.text),
                Asked::Failed(_) | Asked::Got(_) | Asked::Unsupported => None,
            },
        }
    }

    fn explain(&self, what: &str, trouble: &Trouble) -> bool {
        let again = self.away && trouble.kind == TroubleKind::Away || self.misconfigured == Some(&trouble.text);
        self.no_tool || again && what != "servers"
    }
}

/// The adapters of BeeGFS, and the generation of the tool each speaks to.
const BEEGFS: [(&str, &str); 2] = [("beegfs7", "7"), ("beegfs8", "8")];

/// The adapter of what is only mounted, and asked of nobody's tool.
pub(crate) const MOUNTED: &str = "posix";

/// Whether a storage is only mounted: then its file systems count for themselves, and there may be several.
pub(super) fn is_only_mounted(can: &Capabilities) -> bool {
    can.name == MOUNTED
}

/// `7.4` of `7.4.7`: what has to be the same for two parts of BeeGFS to work together.
fn release_line(version: &str) -> Option<(&str, &str)> {
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    (!minor.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit())).then_some((major, minor))
}

impl Findings {
    fn add(&mut self, code: &'static str, severity: Severity, about: String, text: Sentence) {
        self.all.push(Finding { code, severity, about, text });
    }

    /// What a question brought; that it brought nothing or something doubtful is a finding.
    fn answer<'a, T>(
        &mut self,
        what: &str,
        asked: &'a Asked<Partial<T>>,
        causes: &Causes<'_>,
    ) -> Option<&'a Partial<T>> {
        match asked {
            Asked::Unsupported => None,
            Asked::Got(answer) => {
                if let Some(doubt) = answer.doubts.first() {
                    let values = [("what", what), ("said", doubt.text.as_str())];
                    let text = say_with("finding.answer_doubtful", &values);
                    self.add("answer_doubtful", Severity::Warning, what.to_owned(), text);
                }
                Some(answer)
            }
            Asked::Failed(trouble) if causes.explain(what, trouble) => None,
            Asked::Failed(trouble) => {
                let (code, text) = failed(what, trouble);
                self.add(code, Severity::Broken, what.to_owned(), text);
                None
            }
        }
    }

    fn root(&mut self, root: &RootSeen) {
        let about = format!("root:{}", root.name);
        let name = [("what", root.name.as_str())];
        let file_system = match &root.file_system {
            Asked::Got(file_system) => file_system,
            Asked::Unsupported => return,
            Asked::Failed(trouble) => {
                let values = [("what", root.name.as_str()), ("said", trouble.text.as_str())];
                let (code, text) = match trouble.kind {
                    TroubleKind::Missing => ("mount_missing", say_with("finding.mount_missing", &values)),
                    TroubleKind::Refused => ("mount_refused", say_with("finding.mount_refused", &values)),
                    TroubleKind::Away => ("mount_stale", say_with("finding.mount_stale", &values)),
                    TroubleKind::Half | TroubleKind::NotUnderstood => {
                        ("not_understood", say_with("finding.not_understood", &values))
                    }
                };
                return self.add(code, Severity::Broken, about, text);
            }
        };
        let now = &file_system.identity;
        let by_spaces = root.made.as_ref().map(|made| AtRoot::told(made, now));
        if by_spaces == Some(AtRoot::NotMounted) {
            // All else that is seen there is of the file system below.
            let values = [("what", root.name.as_str()), ("kind", now.kind.as_str())];
            let text = say_with("finding.root_not_mounted", &values);
            return self.add("root_not_mounted", Severity::Broken, about, text);
        }
        let changed = root.first.as_ref().is_some_and(|first| {
            let other_root = now.root_inode.is_some() && first.root_inode != now.root_inode;
            first.kind != now.kind || first.source != now.source || first.marker != now.marker || other_root
        });
        // What was seen first may have been there because the right one was not mounted then.
        if by_spaces == Some(AtRoot::Another) || changed && by_spaces != Some(AtRoot::Same) {
            let text = say_with("finding.mount_changed", &name);
            self.add("mount_changed", Severity::Broken, about.clone(), text);
        } else if now.marker.is_none() {
            let text = say_with("finding.root_marker_missing", &name);
            self.add("root_marker_missing", Severity::Warning, about.clone(), text);
        }
        if file_system.read_only && root.writable {
            let text = say_with("finding.mount_read_only", &name);
            self.add("mount_read_only", Severity::Broken, about.clone(), text);
        }
        self.room(Some(file_system.total), Some(file_system.available), Bytes(1), "root_near_full", &about);
        let files = (file_system.inodes_total.value().copied(), file_system.inodes_available.value().copied());
        self.files(files.0, files.1, Files(1), &about);
    }

    fn homes(&mut self, homes: &Asked<()>) {
        let Asked::Failed(trouble) = homes else { return };
        let values = [("said", trouble.text.as_str())];
        let (code, severity, text) = match trouble.kind {
            TroubleKind::Missing => ("homes_missing", Severity::Broken, say_with("finding.homes_missing", &values)),
            // It is the launcher's rules or the home's own that refuse, and sessions may start all the same.
            TroubleKind::Refused => ("homes_refused", Severity::Warning, say_with("finding.homes_refused", &values)),
            TroubleKind::Away => ("homes_stale", Severity::Broken, say_with("finding.homes_stale", &values)),
            TroubleKind::Half | TroubleKind::NotUnderstood => {
                let values = [("what", "homes"), ("said", trouble.text.as_str())];
                ("not_understood", Severity::Broken, say_with("finding.not_understood", &values))
            }
        };
        self.add(code, severity, "homes".to_owned(), text);
    }

    fn abilities(&mut self, snapshot: &Snapshot, causes: &Causes<'_>) {
        let Some(can) = &snapshot.capabilities else { return };
        if can.version == Known::Missing(Why::DidNotAnswer) {
            let said = match &snapshot.nodes {
                Asked::Failed(trouble) => Sentence::from_elsewhere(&trouble.text),
                Asked::Got(_) | Asked::Unsupported => say("finding.no_reason"),
            };
            let text = say_with("finding.tool_missing", &[("what", can.name), ("said", said.as_str())]);
            self.add("tool_missing", Severity::Broken, String::new(), text);
            return;
        }
        if is_only_mounted(can) {
            // Nothing is wrong with a file system that counts for nobody.
            return;
        }
        let values = [("what", can.name)];
        match can.quota_read {
            Ability::No(Why::NotEnabled) => {
                let text = say_with("finding.quota_not_enabled", &values);
                self.add("quota_not_enabled", Severity::Warning, String::new(), text);
            }
            Ability::No(Why::Unlicensed) => {
                let text = say("finding.quota_unlicensed");
                self.add("quota_unlicensed", Severity::Warning, String::new(), text);
            }
            Ability::No(Why::Refused) if causes.misconfigured.is_none() => {
                let text = say_with("finding.quota_refused", &values);
                self.add("quota_refused", Severity::Warning, String::new(), text);
            }
            _ => {}
        }
    }

    /// Parts of BeeGFS that do not belong together: the adapter and the tool, the tool and the client that has mounted a root, or a root that
    /// BeeGFS's own numbers say nothing of.
    fn versions(&mut self, snapshot: &Snapshot) {
        let Some(can) = &snapshot.capabilities else { return };
        let Some((_, generation)) = BEEGFS.iter().find(|(name, _)| *name == can.name) else { return };
        let tool = can.version.value();
        let tool_line = tool.and_then(|version| release_line(version));
        if let (Some(version), Some((major, _))) = (tool, tool_line)
            && major != *generation
        {
            let values = [("what", can.name), ("said", version.as_str())];
            self.add("tool_generation", Severity::Broken, String::new(), say_with("finding.tool_generation", &values));
        }
        for root in &snapshot.roots {
            let Some(seen) = root.file_system.got() else { continue };
            let about = format!("root:{}", root.name);
            if seen.identity.kind != "beegfs" {
                // Something else lies there than before, which is said already.
                let mut before = root.first.iter().chain(&root.made);
                if before.any(|before| before.kind != seen.identity.kind) {
                    continue;
                }
                let values = [("what", root.name.as_str()), ("kind", seen.identity.kind.as_str())];
                self.add("not_on_beegfs", Severity::Warning, about, say_with("finding.not_on_beegfs", &values));
                continue;
            }
            let client_line = seen.client_version.as_deref().and_then(release_line);
            if let (Some(tool), Some(client)) = (tool, &seen.client_version)
                && tool_line.is_some()
                && client_line.is_some()
                && tool_line != client_line
            {
                let values = [("what", root.name.as_str()), ("client", client.as_str()), ("tool", tool.as_str())];
                let text = say_with("finding.client_version_differs", &values);
                self.add("client_version_differs", Severity::Warning, about, text);
            }
        }
    }

    fn nodes(&mut self, nodes: &Partial<Vec<ServerNode>>) {
        for node in nodes.value.iter().filter(|node| node.reachable == Known::Known(false)) {
            let about = server_name(&node.id);
            let text = say_with("finding.node_unreachable", &[("what", &about)]);
            self.add("node_unreachable", Severity::Broken, about, text);
        }
    }

    fn targets(&mut self, targets: &Partial<Vec<Target>>) {
        for target in &targets.value {
            let about = target_name(target.id);
            let what = [("what", about.as_str())];
            match target.reach {
                Reach::Offline => {
                    let text = say_with("finding.target_offline", &what);
                    self.add("target_offline", Severity::Broken, about.clone(), text);
                }
                Reach::ProbablyOffline => {
                    let text = say_with("finding.target_probably_offline", &what);
                    self.add("target_probably_offline", Severity::Warning, about.clone(), text);
                }
                Reach::Online | Reach::Unknown => {}
            }
            match target.consistency {
                Consistency::Bad => {
                    let text = say_with("finding.target_bad", &what);
                    self.add("target_bad", Severity::Broken, about.clone(), text);
                }
                Consistency::NeedsResync => {
                    let text = say_with("finding.target_needs_resync", &what);
                    self.add("target_needs_resync", Severity::Warning, about.clone(), text);
                }
                Consistency::Good | Consistency::Unknown => {}
            }
            let (total, free) = (target.total.value().copied(), target.free.value().copied());
            let said = self.room(total, free, target.precision, "target_near_full", &about);
            // The storage has thresholds of its own, some of them absolute; what ours have said already is not said twice.
            let by_its_own = match target.room {
                Room::Emergency => Some((Severity::Broken, "finding.room_emergency")),
                Room::Low => Some((Severity::Warning, "finding.room_low")),
                _ => None,
            };
            if let Some((severity, key)) = by_its_own.filter(|_| !said) {
                self.add("target_near_full", severity, about.clone(), say_with(key, &what));
            }
            let inodes = (target.inodes_total.value().copied(), target.inodes_free.value().copied());
            self.files(inodes.0, inodes.1, target.inodes_precision, &about);
        }
    }

    fn pools(&mut self, pools: &Partial<Vec<Pool>>, targets: &[Target]) {
        for pool in &pools.value {
            // What is wrong with its only target is said of that.
            if pool.targets.len() < 2 {
                continue;
            }
            let about = format!("pool:{}", pool.id.0);
            let PoolRoom { bytes, files } = PoolRoom::of(pool, targets);
            if let Some((total, free)) = bytes.whole() {
                self.room(Some(Bytes(total)), Some(Bytes(free)), Bytes(bytes.precision), "pool_near_full", &about);
            }
            if let Some((total, free)) = files.whole() {
                self.files(Some(Files(total)), Some(Files(free)), Files(files.precision), &about);
            }
        }
    }

    /// Bytes that run out; whether anything was said. Sizes are rounded, so free space counts as if it had been rounded down.
    fn room(
        &mut self,
        total: Option<Bytes>,
        free: Option<Bytes>,
        precision: Bytes,
        code: &'static str,
        about: &str,
    ) -> bool {
        let (Some(total), Some(free)) = (total, free) else { return false };
        let Some((severity, percent)) = self.low(total.0, free.0, precision.0) else { return false };
        let text = say_with("finding.near_full", &[("what", about), ("percent", &percent.to_string())]);
        self.add(code, severity, about.to_owned(), text);
        true
    }

    fn files(&mut self, total: Option<Files>, free: Option<Files>, precision: Files, about: &str) {
        let (Some(total), Some(free)) = (total, free) else { return };
        if let Some((severity, percent)) = self.low(total.0, free.0, precision.0) {
            let percent = percent.to_string();
            let text = say_with("finding.inodes_near_full", &[("what", about), ("percent", &percent)]);
            self.add("inodes_near_full", severity, about.to_owned(), text);
        }
    }

    /// How bad it is that so little is left, and how many per cent.
    fn low(&self, total: u64, free: u64, precision: u64) -> Option<(Severity, u8)> {
        let most_free = u128::from(free) + u128::from(precision.saturating_sub(1));
        let below = |percent: u8| most_free * 100 < u128::from(total) * u128::from(percent);
        let [warning, broken] = self.near_full;
        let severity = if below(broken) {
            Severity::Broken
        } else if below(warning) {
            Severity::Warning
        } else {
            return None;
        };
        let percent = (u128::from(free) * 100).checked_div(u128::from(total)).unwrap_or(0);
        Some((severity, u8::try_from(percent).unwrap_or(100)))
    }
}

/// Whether the launcher's configuration is at fault, which the adapters' sentences name then.
fn is_misconfigured(trouble: &Trouble) -> bool {
    trouble.kind == TroubleKind::Refused && trouble.text.contains("launcher's configuration")
}

fn failed(what: &str, trouble: &Trouble) -> (&'static str, Sentence) {
    // Sentences around it go on.
    let values = [("what", what), ("said", trouble.text.trim_end_matches('.'))];
    match trouble.kind {
        TroubleKind::Away | TroubleKind::Missing => ("storage_away", say_with("finding.storage_away", &values)),
        TroubleKind::Refused if is_misconfigured(trouble) => {
            ("storage_misconfigured", say_with("finding.storage_misconfigured", &values))
        }
        TroubleKind::Refused => ("storage_refuses", say_with("finding.storage_refuses", &values)),
        TroubleKind::Half | TroubleKind::NotUnderstood => {
            ("not_understood", say_with("finding.not_understood", &values))
        }
    }
}

#[cfg(test)]
mod tests;
