//! The audit log. The engines themselves refuse to change or remove what was written, by triggers.

use eirene_core::audit::{AuditEntry, AuditEvent};
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::Place;

/// Appends an [`AuditEntry`] by an executor: a pool, or the connection of the transaction that makes the change which it tells of.
macro_rules! append {
    ($executor:expr, $entry:expr) => {{
        let (event, at) = ($entry.event(), $entry.at());
        sqlx::query_scalar::<_, i64>($crate::audit::APPEND)
            .bind($crate::row::micros(at))
            .bind(event.actor.as_str())
            .bind(event.action)
            .bind(event.target.as_str())
            .bind(event.outcome)
            .bind(event.details.to_string())
            .bind(event.address.as_deref())
            .bind(event.request_id.as_deref())
            .fetch_one($executor)
            .await
    }};
}
pub(crate) use append;

statements! {
    APPEND = "INSERT INTO audit_events (at, actor, action, target, outcome, details, address, request_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
    PAGE = "SELECT id, at, actor, action, target, outcome, details, address, request_id FROM audit_events
        WHERE id < COALESCE(CAST($1 AS BIGINT), 9223372036854775807)
            AND (CAST($2 AS TEXT) IS NULL OR actor = CAST($2 AS TEXT))
            AND (CAST($3 AS TEXT) IS NULL OR action = CAST($3 AS TEXT))
        ORDER BY id DESC LIMIT $4";
}

#[derive(FromRow)]
struct AuditRow {
    id: i64,
    at: i64,
    actor: String,
    action: String,
    target: String,
    outcome: String,
    details: String,
    address: Option<String>,
    request_id: Option<String>,
}

impl AuditRow {
    fn into_event(self) -> Result<AuditEvent, DbError> {
        let row = self.id.to_string();
        let place = Place { table: "audit_events", row: &row };
        Ok(AuditEvent {
            id: self.id,
            at: place.time("at", self.at)?,
            details: place.json("details", &self.details)?,
            actor: self.actor,
            action: self.action,
            target: self.target,
            outcome: self.outcome,
            address: self.address,
            request_id: self.request_id,
        })
    }
}

impl Db {
    /// Appends to the audit log and gives the event's number. Where something is changed, the entry belongs in the transaction of the change
    /// instead, by the method that makes it.
    pub async fn append_audit(&self, entry: &AuditEntry) -> Result<i64, DbError> {
        Ok(on_db!(self, pool => append!(pool, entry))?)
    }

    /// Audit events before number `before`, newest first; of one actor or one action where these are given.
    pub async fn audit_events(
        &self,
        before: Option<i64>,
        limit: u32,
        actor: Option<&str>,
        action: Option<&str>,
    ) -> Result<Vec<AuditEvent>, DbError> {
        let rows: Vec<AuditRow> = on_db!(self, pool => sqlx::query_as(PAGE)
            .bind(before)
            .bind(actor)
            .bind(action)
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(AuditRow::into_event).collect()
    }
}
