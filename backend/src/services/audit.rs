//! The audit log: who did what to whom. Append-only; only admins read it.

use std::sync::Arc;

use eirene_core::Clock;
use eirene_core::audit::{AuditEvent, NewAuditEvent};
use eirene_database::Db;

use crate::error::AppError;
use crate::services::actor::Actor;

/// Longest page.
const MAX_PAGE: u32 = 200;

/// The audit log.
#[derive(Clone)]
pub struct Audit {
    db: Db,
    clock: Arc<dyn Clock>,
}

/// Which part of the log.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only events before this number.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
    /// Only this actor's.
    pub actor: Option<String>,
    /// Only this action.
    pub action: Option<String>,
}

impl Audit {
    /// The log kept in `db`.
    pub fn new(db: Db, clock: Arc<dyn Clock>) -> Self {
        Self { db, clock }
    }

    /// Writes one event. What was done is done: a failure is logged and does not reach the caller.
    pub async fn record(&self, event: NewAuditEvent) {
        if let Err(error) = self.db.append_audit(&event, self.clock.now()).await {
            tracing::error!(%error, action = event.action, target = event.target, "An audit event could not be written");
        }
    }

    /// Newest events first.
    pub async fn list(&self, actor: &Actor, query: AuditQuery) -> Result<Vec<AuditEvent>, AppError> {
        actor.require_admin()?;
        let limit = query.limit.clamp(1, MAX_PAGE);
        Ok(self.db.audit_events(query.before, limit, query.actor.as_deref(), query.action.as_deref()).await?)
    }
}

/// An audit event of the platform itself.
pub(crate) fn by_system(
    reconciler: &str,
    action: &'static str,
    target: &str,
    outcome: &'static str,
    details: serde_json::Value,
) -> NewAuditEvent {
    NewAuditEvent {
        actor: format!("system:{reconciler}"),
        action,
        target: target.to_owned(),
        outcome,
        details,
        address: None,
        request_id: None,
    }
}
