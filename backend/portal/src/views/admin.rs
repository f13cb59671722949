//! What admins see: people, all sessions, nodes, the audit log.

use eirene_core::audit::AuditEvent;
use eirene_core::scheduler::Node;
use eirene_words::Words;
use serde::Serialize;

use super::format::{self, Time};
use super::layout::{Layout, Tone};
use super::session::{Chip, SessionView, sentence};
use super::{Choice, Field, FormError};
use crate::pages::Page;

/// A person in the list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PersonView {
    /// Name.
    pub(crate) username: String,
    /// Role, in words.
    pub(crate) role: String,
    /// Whether they may sign in.
    pub(crate) chip: Chip,
    /// POSIX user id; empty for none.
    pub(crate) uid: String,
    /// When the account was made.
    pub(crate) created: Time,
    /// Where the account is disabled; empty when it is, or when it is one's own.
    pub(crate) disable_href: String,
    /// Where it is enabled again; empty when it is enabled.
    pub(crate) enable_href: String,
    /// Where the password is replaced.
    pub(crate) reset_href: String,
}

/// A password made for somebody; shown this once.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewPassword {
    /// For whom.
    pub(crate) username: String,
    /// The password.
    pub(crate) password: String,
}

/// People.
#[derive(Debug, Serialize)]
pub(crate) struct PeoplePage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The list.
    pub(crate) people: Vec<PersonView>,
    /// The next page; empty on the last.
    pub(crate) next_href: String,
    /// A password that was made just now.
    pub(crate) new_password: Option<NewPassword>,
    /// Name of the person to add.
    pub(crate) username: Field,
    /// Role of the person to add.
    pub(crate) roles: Vec<Choice>,
    /// What was wrong with the form.
    pub(crate) errors: Vec<FormError>,
}

impl Page for PeoplePage {
    const TEMPLATE: &'static str = "pages/admin/people.html";
}

/// A job that carries our mark and has no session, as after a restored database.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AdoptedView {
    /// Job number.
    pub(crate) job: String,
    /// POSIX user id of its owner.
    pub(crate) uid: String,
    /// When it was last seen.
    pub(crate) seen: Time,
}

/// All sessions.
#[derive(Debug, Serialize)]
pub(crate) struct AllSessionsPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The list.
    pub(crate) sessions: Vec<SessionView>,
    /// Whether only those that live are shown.
    pub(crate) live_only: bool,
    /// The next page; empty on the last.
    pub(crate) next_href: String,
    /// Adopted jobs.
    pub(crate) adopted: Vec<AdoptedView>,
    /// Where the list is fetched again.
    pub(crate) fragment_href: String,
}

impl Page for AllSessionsPage {
    const TEMPLATE: &'static str = "pages/admin/sessions.html";
}

/// The list of all sessions by itself.
#[derive(Debug, Serialize)]
pub(crate) struct AllSessionsFragment {
    /// The list.
    pub(crate) sessions: Vec<SessionView>,
}

impl Page for AllSessionsFragment {
    const TEMPLATE: &'static str = "fragments/all_sessions.html";
}

/// A node in the list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeView {
    /// Name.
    pub(crate) name: String,
    /// State.
    pub(crate) chip: Chip,
    /// The operator's reason; empty for none.
    pub(crate) reason: String,
    /// CPUs in use and in all.
    pub(crate) cpus: String,
    /// The same in per cent.
    pub(crate) cpus_percent: u64,
    /// Memory in use and in all.
    pub(crate) memory: String,
    /// The same in per cent.
    pub(crate) memory_percent: u64,
    /// GPUs by type.
    pub(crate) gpus: Vec<String>,
    /// Partitions.
    pub(crate) partitions: String,
}

impl NodeView {
    /// Shows `node`.
    pub(crate) fn new(words: &Words, node: &Node) -> Self {
        let of = |used: &str, all: &str| words.fill("nodes.of", &[("used", used), ("all", all)]);
        Self {
            name: node.name.to_string(),
            chip: node_chip(node.available, &node.state),
            reason: node.reason.as_deref().map(sentence).unwrap_or_default(),
            cpus: of(&node.cpus_allocated.to_string(), &node.cpus.to_string()),
            cpus_percent: percent(u64::from(node.cpus_allocated), u64::from(node.cpus)),
            memory: of(&format::memory(words, node.memory_allocated_mib), &format::memory(words, node.memory_mib)),
            memory_percent: percent(node.memory_allocated_mib, node.memory_mib),
            gpus: node
                .gpus
                .iter()
                .map(|gpus| {
                    let kind =
                        if gpus.gpu_type.is_empty() { words.get("free.gpu_untyped") } else { gpus.gpu_type.clone() };
                    let used = of(&gpus.allocated.to_string(), &gpus.total.to_string());
                    words.fill("nodes.gpu", &[("type", &kind), ("used", &used)])
                })
                .collect(),
            partitions: node.partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    }
}

/// A node's state, by whether it takes jobs and its word.
pub(crate) fn node_chip(available: bool, state: &str) -> Chip {
    let tone = match state {
        "down" | "unknown" if !available => Tone::Bad,
        _ if !available => Tone::Wait,
        "idle" => Tone::Still,
        _ => Tone::Good,
    };
    Chip { label: capitalised(state), tone }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn percent(part: u64, whole: u64) -> u64 {
    (part.min(whole) * 100).checked_div(whole).unwrap_or(0)
}

/// Nodes.
#[derive(Debug, Serialize)]
pub(crate) struct NodesPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The list.
    pub(crate) nodes: Vec<NodeView>,
    /// When the cluster was last asked.
    pub(crate) at: Option<Time>,
    /// Whether the scheduler answers.
    pub(crate) reachable: bool,
}

impl Page for NodesPage {
    const TEMPLATE: &'static str = "pages/admin/nodes.html";
}

/// A line of the audit log.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AuditView {
    /// When.
    pub(crate) at: Time,
    /// Who.
    pub(crate) actor: String,
    /// What.
    pub(crate) action: String,
    /// To whom or what.
    pub(crate) target: String,
    /// What came of it.
    pub(crate) chip: Chip,
    /// Details, JSON; empty for none.
    pub(crate) details: String,
    /// From where.
    pub(crate) address: String,
}

impl AuditView {
    /// Shows `event`.
    pub(crate) fn new(words: &Words, event: &AuditEvent) -> Self {
        let (key, tone) = match event.outcome.as_str() {
            "ok" => ("audit.ok", Tone::Good),
            "begun" => ("audit.begun", Tone::Still),
            "stopped" => ("audit.stopped", Tone::Still),
            "refused" => ("audit.refused", Tone::Wait),
            _ => ("audit.failed", Tone::Bad),
        };
        let empty = event.details.as_object().is_none_or(serde_json::Map::is_empty);
        Self {
            at: Time::new(event.at),
            actor: event.actor.clone(),
            action: event.action.clone(),
            target: event.target.clone(),
            chip: Chip { label: words.get(key), tone },
            details: if empty { String::new() } else { event.details.to_string() },
            address: event.address.clone().unwrap_or_default(),
        }
    }
}

/// The audit log.
#[derive(Debug, Serialize)]
pub(crate) struct AuditPage {
    /// Frame.
    pub(crate) layout: Layout,
    /// The lines.
    pub(crate) events: Vec<AuditView>,
    /// Only this actor; empty for all.
    pub(crate) actor: Field,
    /// Only this action; empty for all.
    pub(crate) action: Field,
    /// Older lines; empty on the last page.
    pub(crate) older_href: String,
    /// The newest lines; empty when they are shown.
    pub(crate) newest_href: String,
}

impl Page for AuditPage {
    const TEMPLATE: &'static str = "pages/admin/audit.html";
}
