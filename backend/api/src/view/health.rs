//! How everything is doing that the portal depends on, as the API shows it to admins.

use eirene_services::health::readiness::{Line, Report};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// How everything is doing that the portal depends on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthView {
    /// When it was looked at.
    #[schema(value_type = String, format = DateTime)]
    as_of: Timestamp,
    /// Whether the portal can be used. For that the database alone is needed.
    usable: bool,
    /// Agents of sessions and runs that are connected.
    agents: u64,
    /// A line each.
    dependencies: Vec<DependencyView>,
}

/// How one thing is doing that the portal depends on.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Dependency)]
struct DependencyView {
    /// What it is: `database`, `launcher`, `slurm`, `storage_root`, `storage_homes`, `samples`, `prometheus`, `zabbix`, `traces`,
    /// `webhook` or `reconciler`.
    #[schema(example = "storage_root")]
    kind: &'static str,
    /// Which one, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "project")]
    name: Option<String>,
    /// Whether nothing is wrong with it.
    ok: bool,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trouble: Option<TroubleView>,
    /// Since when it is so, as far as the portal has seen since it was started.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// When it last gave an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    answered_at: Option<Timestamp>,
    /// How long that took, in milliseconds, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    took_ms: Option<u64>,
}

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = DependencyTrouble)]
struct TroubleView {
    /// Stable code.
    #[schema(example = "storage_away")]
    code: &'static str,
    /// What that means, in words.
    text: String,
    /// What to do.
    cure: String,
    /// What it or the system said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
}

impl HealthView {
    /// Shows `report`.
    pub(crate) fn new(report: &Report) -> Self {
        Self {
            as_of: report.at,
            usable: report.is_usable(),
            agents: report.agents as u64,
            dependencies: report.lines.iter().map(DependencyView::new).collect(),
        }
    }
}

impl DependencyView {
    fn new(line: &Line) -> Self {
        let (kind, name) = line.what.kind();
        let trouble = line.trouble.map(|trouble| {
            let (text, cure) = trouble.says();
            let detail = Some(line.detail.clone()).filter(|detail| !detail.is_empty());
            TroubleView { code: trouble.code(), text: text.into(), cure: cure.into(), detail }
        });
        Self {
            kind,
            name: name.map(ToOwned::to_owned),
            ok: trouble.is_none(),
            trouble,
            since: line.since,
            answered_at: line.answered.at(),
            took_ms: line.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}
