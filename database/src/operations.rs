//! Work on files that outlives a request.

use eirene_core::file_work::{Operation, OperationState};
use eirene_core::{OperationId, UserId};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, micros};

macro_rules! select {
    ($($rest:expr),*) => {
        concat!("SELECT id, user_id, space_id, kind, state, request, progress, problem, created_at, ended_at
        FROM operations ", $($rest),*)
    };
}

// `g` comes after every id.
statements! {
    INSERT = "INSERT INTO operations (id, user_id, space_id, kind, state, request, progress, problem, created_at, ended_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    BY_ID = select!("WHERE id = $1");
    PAGE_OF_USER = select!("WHERE user_id = $3 AND id < COALESCE(CAST($1 AS TEXT), 'g') ORDER BY id DESC LIMIT $2");
    UPDATE = "UPDATE operations SET state = $1, progress = $2, problem = $3, ended_at = $4
        WHERE id = $5 AND state IN ('waiting', 'running')";
    INTERRUPT = "UPDATE operations SET state = 'interrupted', ended_at = $1 WHERE state IN ('waiting', 'running')";
    /// What `cleared` stands for in `progress` cannot come of a name in it: there its quotation marks are escaped.
    INTERRUPTED = select!("WHERE state = 'interrupted' AND kind IN ('copy', 'move', 'extract')
        AND progress NOT LIKE '%\"cleared\":true%'
        AND (kind = 'extract' OR ended_at < $2 OR progress LIKE '%\"given_up\":true%') ORDER BY id LIMIT $1");
    INTERRUPTED_OF_USER = select!("WHERE user_id = $1 AND state = 'interrupted' AND kind IN ('copy', 'move')
        AND progress NOT LIKE '%\"cleared\":true%' AND progress NOT LIKE '%\"given_up\":true%'
        ORDER BY id DESC LIMIT $2");
    LEFT = "UPDATE operations SET progress = $1 WHERE id = $2 AND state = 'interrupted'";
    PRUNE = "DELETE FROM operations WHERE ended_at < $1";
}

#[derive(FromRow)]
struct OperationRow {
    id: String,
    user_id: String,
    space_id: String,
    kind: String,
    state: String,
    request: String,
    progress: String,
    problem: Option<String>,
    created_at: i64,
    ended_at: Option<i64>,
}

impl OperationRow {
    fn into_operation(self) -> Result<Operation, DbError> {
        let place = Place { table: "operations", row: &self.id };
        Ok(Operation {
            id: place.text("id", &self.id)?,
            user: place.text("user_id", &self.user_id)?,
            space: place.text("space_id", &self.space_id)?,
            kind: place.text("kind", &self.kind)?,
            state: place.text("state", &self.state)?,
            request: place.json("request", &self.request)?,
            progress: place.json("progress", &self.progress)?,
            problem: self.problem.as_deref().map(|stored| place.json("problem", stored)).transpose()?,
            created_at: place.time("created_at", self.created_at)?,
            ended_at: place.maybe_time("ended_at", self.ended_at)?,
        })
    }
}

impl Db {
    /// Adds an operation.
    pub async fn insert_operation(&self, operation: &Operation) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(INSERT)
            .bind(operation.id.to_string())
            .bind(operation.user.to_string())
            .bind(operation.space.to_string())
            .bind(operation.kind.as_str())
            .bind(operation.state.as_str())
            .bind(operation.request.to_string())
            .bind(operation.progress.to_string())
            .bind(operation.problem.as_ref().map(Value::to_string))
            .bind(micros(operation.created_at))
            .bind(maybe_micros(operation.ended_at))
            .execute(pool).await.map(drop))
        .map_err(DbError::conflict("operation"))
    }

    /// An operation by id.
    pub async fn operation(&self, id: OperationId) -> Result<Option<Operation>, DbError> {
        let row: Option<OperationRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(OperationRow::into_operation).transpose()
    }

    /// A person's operations, newest first, from after the one with the id `cursor` on.
    pub async fn operations_of(
        &self,
        user: UserId,
        cursor: Option<OperationId>,
        limit: u32,
    ) -> Result<Vec<Operation>, DbError> {
        let rows: Vec<OperationRow> = on_db!(self, pool => sqlx::query_as(PAGE_OF_USER)
            .bind(cursor.map(|id| id.to_string()))
            .bind(i64::from(limit))
            .bind(user.to_string())
            .fetch_all(pool).await)?;
        rows.into_iter().map(OperationRow::into_operation).collect()
    }

    /// Notes how far an operation is; none ends twice, so false when it has ended.
    pub async fn update_operation(
        &self,
        id: OperationId,
        state: OperationState,
        progress: &Value,
        problem: Option<&Value>,
        ended_at: Option<Timestamp>,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(UPDATE)
            .bind(state.as_str())
            .bind(progress.to_string())
            .bind(problem.map(Value::to_string))
            .bind(maybe_micros(ended_at))
            .bind(id.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Ends what was under way when the portal ended; says how many.
    pub async fn interrupt_operations(&self, now: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool =>
            sqlx::query(INTERRUPT).bind(micros(now)).execute(pool).await.map(|done| done.rows_affected()))?)
    }

    /// Copies, moves and extractions that were interrupted and may have left something that is kept for nobody, the oldest
    /// first: an extraction, what ended before `before`, and what was given up.
    pub async fn interrupted_operations(&self, limit: u32, before: Timestamp) -> Result<Vec<Operation>, DbError> {
        let rows: Vec<OperationRow> = on_db!(self, pool => sqlx::query_as(INTERRUPTED)
            .bind(i64::from(limit))
            .bind(micros(before))
            .fetch_all(pool).await)?;
        rows.into_iter().map(OperationRow::into_operation).collect()
    }

    /// A person's copies and moves that were interrupted and may be gone on with, the newest first.
    pub async fn interrupted_of(&self, user: UserId, limit: u32) -> Result<Vec<Operation>, DbError> {
        let rows: Vec<OperationRow> = on_db!(self, pool => sqlx::query_as(INTERRUPTED_OF_USER)
            .bind(user.to_string())
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(OperationRow::into_operation).collect()
    }

    /// Notes what becomes of what an operation left that was interrupted: `progress` has `cleared` in it where nothing is left, and `given_up`
    /// where nobody is to go on with it.
    pub async fn note_left(&self, id: OperationId, progress: &Value) -> Result<(), DbError> {
        Ok(on_db!(self, pool => sqlx::query(LEFT)
            .bind(progress.to_string())
            .bind(id.to_string())
            .execute(pool).await.map(drop))?)
    }

    /// Removes operations that ended before `before`.
    pub async fn prune_operations(&self, before: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool =>
            sqlx::query(PRUNE).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
