//! Audit events: who did what to whom, kept append-only.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::text::one_line;

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEvent {
    /// Position in the log; later events have larger numbers.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// Who: a user name, or `system:<reconciler>`; for failed log-ins the name as typed, cut to 64 characters.
    pub actor: String,
    /// What, `noun.verb`, for example `session.start`.
    pub action: String,
    /// To whom or what: a user name or an id.
    pub target: String,
    /// Whether it was allowed and happened: `ok`, `refused` or `failed`; `begun` where a change outside of the database begins (alone, its outcome is
    /// unknown), and `stopped` where it was ended on the way.
    pub outcome: String,
    /// Details as a JSON object; never a secret.
    pub details: serde_json::Value,
    /// The client's address, where there was one.
    pub address: Option<String>,
    /// The request's id, where there was one.
    pub request_id: Option<String>,
}

/// An audit event about to be written; as an [`AuditEntry`] it has its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAuditEvent {
    /// See [`AuditEvent::actor`].
    pub actor: String,
    /// See [`AuditEvent::action`].
    pub action: &'static str,
    /// See [`AuditEvent::target`].
    pub target: String,
    /// See [`AuditEvent::outcome`].
    pub outcome: &'static str,
    /// See [`AuditEvent::details`].
    pub details: serde_json::Value,
    /// See [`AuditEvent::address`].
    pub address: Option<String>,
    /// See [`AuditEvent::request_id`].
    pub request_id: Option<String>,
}

/// An audit event as it is written: with its time, and printable text alone. The log gives it its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    event: NewAuditEvent,
    at: Timestamp,
}

impl AuditEntry {
    /// The entry for what happened `at`.
    pub fn new(mut event: NewAuditEvent, at: Timestamp) -> Self {
        for text in [Some(&mut event.actor), Some(&mut event.target), event.address.as_mut()].into_iter().flatten() {
            *text = one_line(text, usize::MAX);
        }
        make_printable(&mut event.details);
        Self { event, at }
    }

    /// What happened.
    pub fn event(&self) -> &NewAuditEvent {
        &self.event
    }

    /// When.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

/// Makes every text in `details` one line.
fn make_printable(details: &mut Value) {
    match details {
        Value::String(text) => *text = one_line(text, usize::MAX),
        Value::Array(items) => items.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
