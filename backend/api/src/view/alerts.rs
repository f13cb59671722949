//! Alerts and silences, as the API shows them.

use std::collections::BTreeMap;

use eirene_core::JobKind;
use eirene_core::alert::{AlertRule, AlertSeverity, Silence};
use eirene_services::alerts::Listed;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

fn kind_word(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Session => "session",
        JobKind::Run => "run",
    }
}

/// The session or run that an alert is about.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = AlertJob)]
pub(crate) struct JobView {
    /// `session` or `run`.
    kind: &'static str,
    /// Its id.
    id: String,
    /// What its owner calls it.
    name: String,
    /// Whose it is.
    owner: String,
}

/// Something that somebody should know.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = Alert)]
pub struct AlertView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// By which rule.
    rule: AlertRule,
    /// How bad.
    severity: AlertSeverity,
    /// What is wrong, and what to do.
    text: String,
    /// What it is about, within its rule: the name of a node, or a session's id with node and GPU.
    subject: String,
    /// The session or run it is about; absent where it is about the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    job: Option<JobView>,
    /// The rule's value when it was raised.
    value: f64,
    /// What its text is made of.
    details: BTreeMap<String, String>,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// Until when; absent while it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    ended_at: Option<Timestamp>,
    /// Who has said first that they know.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    acknowledged_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, nullable = false, required = false)]
    acknowledged_at: Option<Timestamp>,
    /// Whether a silence covers it now: one for everybody, or your own.
    silenced: bool,
}

impl From<&Listed> for AlertView {
    fn from(listed: &Listed) -> Self {
        let alert = &listed.known.alert;
        let job = alert.session.zip(listed.known.session.clone()).map(|(id, (name, kind, owner))| JobView {
            kind: kind_word(kind),
            id: id.to_string(),
            name,
            owner: owner.to_string(),
        });
        let (acknowledged_by, acknowledged_at) = alert.acknowledged.clone().unzip();
        Self {
            id: alert.id.to_string(),
            rule: alert.rule,
            severity: alert.severity,
            text: listed.text.as_str().to_owned(),
            subject: alert.subject.clone(),
            job,
            value: alert.value,
            details: alert.details.clone(),
            started_at: alert.started_at,
            ended_at: alert.ended_at,
            acknowledged_by: acknowledged_by.map(|by| by.to_string()),
            acknowledged_at,
            silenced: listed.silenced,
        }
    }
}

/// The session or run that a silence is about.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SilencedJob)]
pub(crate) struct SilencedJobView {
    /// `session` or `run`.
    kind: &'static str,
    /// Its id.
    id: String,
    /// What its owner calls it.
    name: String,
}

/// For a time nobody is told of some alerts, or one person is not told of some about what is theirs. They are still listed.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = AlertSilence)]
pub(crate) struct SilenceView {
    /// Id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    /// Of which rule; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rule: Option<AlertRule>,
    /// About what, as alerts have it as their `subject`; absent for anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    subject: Option<String>,
    /// Who alone is not told, and of what is theirs alone; absent where nobody is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// About which session or run of theirs; absent for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    job: Option<SilencedJobView>,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
    /// Why; empty where somebody has not said.
    reason: String,
    /// Who said so.
    by: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<Silence> for SilenceView {
    fn from(silence: Silence) -> Self {
        Self {
            id: silence.id.to_string(),
            rule: silence.rule,
            subject: silence.subject,
            // Whoever has silenced something for themselves has said so themselves.
            owner: silence.owner.map(|_| silence.by.to_string()),
            job: silence.job.map(|job| SilencedJobView {
                kind: kind_word(job.kind),
                id: job.id.to_string(),
                name: job.name,
            }),
            until: silence.until,
            reason: silence.reason,
            by: silence.by.to_string(),
            created_at: silence.created_at,
        }
    }
}
