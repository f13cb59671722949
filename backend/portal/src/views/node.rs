//! One node, for admins: what it is, what is on it, what it was, and the forms that change it.

use eirene_core::confinement::{ConfinedNode, Confinement, Held};
use eirene_core::node_history::{GONE, IN_SERVICE, NodeChange};
use eirene_core::{JobKind, Session};
use eirene_services::samples::WrongClock;
use eirene_services::upkeep::SeenNode;
use eirene_services::zabbix::NodeInZabbix;
use eirene_words::Words;
use serde::Serialize;

use super::admin::{NodeView, node_chip};
use super::format::Time;
use super::layout::{Layout, Tone};
use super::session::Chip;
use super::space::Fact;
use super::zabbix::ZabbixPart;
use super::{Field, FormError};
use crate::pages::Page;

/// A session or run on the node.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OnNode {
    /// What its owner calls it.
    pub(crate) name: String,
    /// Owner's name.
    pub(crate) owner: String,
    /// Its page.
    pub(crate) href: String,
}

impl OnNode {
    fn new(session: &Session) -> Self {
        let noun = match session.kind() {
            JobKind::Session => "sessions",
            JobKind::Run => "runs",
        };
        Self {
            name: session.name.to_string(),
            owner: session.owner_name.to_string(),
            href: format!("/{noun}/{}", session.id),
        }
    }
}

/// What the node was from a time on.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ChangeView {
    /// Since when.
    pub(crate) at: Time,
    /// What.
    pub(crate) chip: Chip,
    /// The operator's reason; empty for none.
    pub(crate) reason: String,
}

impl ChangeView {
    fn new(words: &Words, change: &NodeChange) -> Self {
        let chip = match change.state.as_str() {
            IN_SERVICE => Chip { label: words.get("nodes.in_service"), tone: Tone::Good },
            GONE => gone(words),
            state => node_chip(false, state),
        };
        Self { at: Time::new(change.at), chip, reason: change.reason.clone().unwrap_or_default() }
    }
}

fn gone(words: &Words) -> Chip {
    Chip { label: words.get("nodes.gone"), tone: Tone::Still }
}

/// The page of a node.
#[derive(Debug, Serialize)]
pub(crate) struct NodePage {
    /// Frame.
    pub(crate) layout: Layout,
    /// Name.
    pub(crate) name: String,
    /// Its page.
    pub(crate) href: String,
    /// State.
    pub(crate) chip: Chip,
    /// The operator's reason; empty for none.
    pub(crate) reason: String,
    /// What of it is in use; empty for a node that is gone, which cannot be changed either.
    pub(crate) facts: Vec<Fact>,
    /// What nothing holds the jobs on it to; empty where something does, or nobody knows.
    pub(crate) unconfined: String,
    /// By how much its clock is wrong; empty where it is right as far as is known.
    pub(crate) clock: String,
    /// Whether it could be brought back.
    pub(crate) may_resume: bool,
    /// Sessions and runs on it.
    pub(crate) jobs: Vec<OnNode>,
    /// What it was, newest first.
    pub(crate) history: Vec<ChangeView>,
    /// What Zabbix says of it; none where no Zabbix is configured.
    pub(crate) zabbix: Option<ZabbixPart>,
    /// Whether the scheduler answers.
    pub(crate) reachable: bool,
    /// The reason in the form.
    pub(crate) wanted: Field,
    /// What was wrong with the form.
    pub(crate) errors: Vec<FormError>,
}

impl Page for NodePage {
    const TEMPLATE: &'static str = "pages/admin/node.html";
}

impl NodePage {
    /// Shows the node `name`.
    pub(crate) fn new(words: &Words, layout: Layout, name: &str, seen: &SeenNode, reachable: bool) -> Self {
        let view = seen.node.as_ref().map(|node| NodeView::new(words, node));
        let confined = seen.confined.as_ref().filter(|_| view.is_some());
        let facts = view.as_ref().map(|node| facts(words, node, confined)).unwrap_or_default();
        let (chip, reason) = view.map_or_else(|| (gone(words), String::new()), |node| (node.chip, node.reason));
        Self {
            layout,
            name: name.to_owned(),
            href: format!("/admin/nodes/{name}"),
            chip,
            reason,
            facts,
            unconfined: confined.and_then(unconfined).map(|key| words.get(key)).unwrap_or_default(),
            clock: String::new(),
            may_resume: seen.node.as_ref().is_some_and(|node| !node.available),
            jobs: seen.sessions.iter().map(OnNode::new).collect(),
            history: seen.history.iter().map(|change| ChangeView::new(words, change)).collect(),
            zabbix: None,
            reachable,
            wanted: Field::default(),
            errors: Vec::new(),
        }
    }

    /// The same, with what Zabbix says of the node.
    pub(crate) fn with_zabbix(self, words: &Words, zabbix: &NodeInZabbix) -> Self {
        Self { zabbix: ZabbixPart::new(words, zabbix, &self.name), ..self }
    }

    /// The same, with what agents on it tell of its clock, if that is among the wrong ones.
    pub(crate) fn with_clock(mut self, wrong: &[WrongClock]) -> Self {
        let clock = wrong.iter().find(|clock| clock.node == self.name);
        self.clock = clock.map(|clock| clock.text().to_string()).unwrap_or_default();
        self
    }

    /// The same, with what was wrong with the form that was sent.
    pub(crate) fn refused(mut self, typed: String, errors: Vec<FormError>) -> Self {
        self.wanted = Field { value: typed, error: FormError::text_of(&errors, "reason") };
        self.errors = errors;
        self
    }
}

/// What is to be said where something does not hold the jobs.
fn unconfined(confined: &ConfinedNode) -> Option<&'static str> {
    match (confined.by, confined.held) {
        (Confinement::Nothing, _) => Some("nodes.unconfined"),
        (_, Held::NOTHING) => Some("nodes.unconfined_both"),
        (_, Held { memory: Some(false), .. }) => Some("nodes.unconfined_memory"),
        (_, Held { cpus: Some(false), .. }) => Some("nodes.unconfined_cpus"),
        _ => None,
    }
}

/// The control groups, and what they confine as far as that is known.
fn groups(words: &Words, confined: &ConfinedNode) -> String {
    let version = match confined.by {
        Confinement::CgroupV2 => "nodes.cgroup_v2",
        Confinement::CgroupV1 => "nodes.cgroup_v1",
        Confinement::Nothing => return words.get("nodes.nothing"),
    };
    let held = match (confined.held.memory, confined.held.cpus) {
        (Some(true), Some(true)) => "nodes.held_both",
        (Some(true), Some(false)) => "nodes.held_memory",
        (Some(false), Some(true)) => "nodes.held_cpus",
        (Some(false), Some(false)) => "nodes.held_neither",
        (Some(true), None) => "nodes.memory_held",
        (Some(false), None) => "nodes.memory_free",
        (None, Some(true)) => "nodes.cpus_held",
        (None, Some(false)) => "nodes.cpus_free",
        (None, None) => "nodes.held_unknown",
    };
    words.fill("nodes.groups", &[("version", &words.get(version)), ("held", &words.get(held))])
}

fn facts(words: &Words, node: &NodeView, confined: Option<&ConfinedNode>) -> Vec<Fact> {
    let gpus = if node.gpus.is_empty() { words.get("nodes.no_gpus") } else { node.gpus.join(", ") };
    let confined = confined.map(|confined| ("nodes.confined", groups(words, confined)));
    [
        ("nodes.cpus", node.cpus.clone()),
        ("nodes.memory", node.memory.clone()),
        ("nodes.gpus", gpus),
        ("nodes.partitions", node.partitions.clone()),
    ]
    .into_iter()
    .chain(confined)
    .map(|(key, value)| Fact { label: words.get(key), value })
    .collect()
}
