//! What open pages are told, kept for a while so that a page can resume after the last event it saw.

use eirene_core::{SessionId, UserId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::dialect;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    APPEND = "INSERT INTO events (session_id, owner_id, kind, data, at) VALUES ($1, $2, $3, $4, $5) RETURNING id";
    AFTER = "SELECT id, session_id, owner_id, kind, data, at FROM events WHERE id > $1 ORDER BY id LIMIT $2";
    LATEST = "SELECT COALESCE(MAX(id), 0) FROM events";
    PRUNE = "DELETE FROM events WHERE at < $1";
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Number; later events have larger ones, and none is used twice.
    pub id: i64,
    /// Session it is about.
    pub session: Option<SessionId>,
    /// Whose pages it is for; none means everybody's.
    pub owner: Option<UserId>,
    /// `state`, `sample`, `log` or `notice`.
    pub kind: String,
    /// What is told.
    pub data: serde_json::Value,
    /// When.
    pub at: Timestamp,
}

#[derive(FromRow)]
struct EventRow {
    id: i64,
    session_id: Option<String>,
    owner_id: Option<String>,
    kind: String,
    data: String,
    at: i64,
}

impl EventRow {
    fn into_event(self) -> Result<Event, DbError> {
        let row = self.id.to_string();
        let place = Place { table: "events", row: &row };
        Ok(Event {
            id: self.id,
            session: place.maybe_text("session_id", self.session_id.as_deref())?,
            owner: place.maybe_text("owner_id", self.owner_id.as_deref())?,
            data: place.json("data", &self.data)?,
            at: place.time("at", self.at)?,
            kind: self.kind,
        })
    }
}

impl Db {
    /// Appends an event and gives its number. Whoever has seen a number will never see a lower one appear.
    pub async fn append_event(
        &self,
        session: Option<SessionId>,
        owner: Option<UserId>,
        kind: &str,
        data: &serde_json::Value,
        at: Timestamp,
    ) -> Result<i64, DbError> {
        let session = session.map(|id| id.to_string());
        let owner = owner.map(|id| id.to_string());
        let data = data.to_string();
        match self {
            Self::Sqlite(pool) => {
                let append =
                    sqlx::query_scalar(APPEND).bind(session).bind(owner).bind(kind).bind(data).bind(micros(at));
                Ok(append.fetch_one(pool).await?)
            }
            Self::Postgres(pool) => {
                let append =
                    sqlx::query_scalar(APPEND).bind(session).bind(owner).bind(kind).bind(data).bind(micros(at));
                let mut tx = dialect::begin_postgres_events(pool).await?;
                let id = append.fetch_one(&mut *tx).await?;
                tx.commit().await?;
                Ok(id)
            }
        }
    }

    /// Events after number `id`, oldest first.
    pub async fn events_after(&self, id: i64, limit: u32) -> Result<Vec<Event>, DbError> {
        let rows: Vec<EventRow> =
            on_db!(self, pool => sqlx::query_as(AFTER).bind(id).bind(i64::from(limit)).fetch_all(pool).await)?;
        rows.into_iter().map(EventRow::into_event).collect()
    }

    /// The largest number there is, 0 when there is no event.
    pub async fn latest_event_id(&self) -> Result<i64, DbError> {
        Ok(on_db!(self, pool => sqlx::query_scalar(LATEST).fetch_one(pool).await)?)
    }

    /// Deletes events from before `before`; says how many.
    pub async fn prune_events(&self, before: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool =>
            sqlx::query(PRUNE).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
