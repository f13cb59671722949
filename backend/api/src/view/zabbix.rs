//! What Zabbix says of a node, as the API shows it.

use eirene_services::zabbix::{NodeInZabbix, SeenInZabbix, ShownItem};
use eirene_zabbix::{Problem, Severity};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Whether Zabbix has said anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ZabbixState)]
pub(crate) enum StateWord {
    /// No Zabbix is configured to be read.
    NotConfigured,
    /// It gives no answer.
    Away,
    /// It has answered.
    Seen,
}

/// How bad a problem is, in Zabbix' own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ZabbixSeverity)]
pub(crate) enum SeverityWord {
    /// Nobody has said.
    NotClassified,
    /// Good to know.
    Information,
    /// Something to look at.
    Warning,
    /// Something to do.
    Average,
    /// Something important is broken.
    High,
    /// Nothing goes.
    Disaster,
}

impl From<Severity> for SeverityWord {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::NotClassified => Self::NotClassified,
            Severity::Information => Self::Information,
            Severity::Warning => Self::Warning,
            Severity::Average => Self::Average,
            Severity::High => Self::High,
            Severity::Disaster => Self::Disaster,
        }
    }
}

/// What Zabbix says of a node.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NodeInZabbix)]
pub struct NodeInZabbixView {
    /// Whether it has said anything; without it the rest is empty.
    state: StateWord,
    /// When it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    at: Option<Timestamp>,
    /// What the node's own host is called there; null where there is none that the portal may see.
    #[schema(example = "c1")]
    host: Option<String>,
    /// Problems that go on, the worst first, at most 50: the host's own, and those of the platform's host that are about this node.
    problems: Vec<ProblemView>,
    /// Items of the node's own host, as the configuration names them.
    items: Vec<ItemView>,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ZabbixProblem)]
pub(crate) struct ProblemView {
    /// Number of its event in Zabbix.
    #[schema(example = "1245463")]
    event: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    since: Option<Timestamp>,
    /// What it says; the words of whoever made the trigger.
    name: String,
    /// How bad it is.
    severity: SeverityWord,
    /// Whether somebody has said there that they know.
    acknowledged: bool,
    /// Whether nobody is told of it for now, as in maintenance.
    suppressed: bool,
}

/// An item and its last hour.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ZabbixItem)]
pub(crate) struct ItemView {
    /// Its key.
    #[schema(example = "system.cpu.load[all,avg1]")]
    key: String,
    /// Its name; the words of whoever made it.
    name: String,
    /// Its unit; may be empty.
    units: String,
    /// Its values of the last hour, in order, at most 240.
    points: Vec<PointView>,
}

/// A value of an item.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ZabbixPoint)]
pub(crate) struct PointView {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The value.
    value: f64,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            event: problem.event.to_string(),
            since: Timestamp::from_second(problem.clock).ok(),
            name: problem.name.clone(),
            severity: problem.severity.into(),
            acknowledged: problem.acknowledged,
            suppressed: problem.suppressed,
        }
    }
}

impl From<&ShownItem> for ItemView {
    fn from(ShownItem { item, points }: &ShownItem) -> Self {
        let points = points.iter().filter_map(|point| {
            let at = Timestamp::from_second(point.clock).ok()?;
            Some(PointView { at, value: point.value })
        });
        Self { key: item.key.clone(), name: item.name.clone(), units: item.units.clone(), points: points.collect() }
    }
}

impl From<NodeInZabbix> for NodeInZabbixView {
    fn from(node: NodeInZabbix) -> Self {
        let without = |state| Self { state, at: None, host: None, problems: Vec::new(), items: Vec::new() };
        match node {
            NodeInZabbix::NotConfigured => without(StateWord::NotConfigured),
            NodeInZabbix::Away => without(StateWord::Away),
            NodeInZabbix::Seen(seen) => {
                let SeenInZabbix { at, host, problems, items } = &*seen;
                Self {
                    state: StateWord::Seen,
                    at: Some(*at),
                    host: host.clone(),
                    problems: problems.iter().map(ProblemView::from).collect(),
                    items: items.iter().map(ItemView::from).collect(),
                }
            }
        }
    }
}
