//! Old files: one row a space, with sums and examples. What is listed lies in a file of the service's.

use eirene_core::SpaceId;
use eirene_core::old_files::OldFilesState;
use serde::Serialize;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, signed};

statements! {
    OF_SPACE = "SELECT space_id, exempt, days, seen_at, steady_s, doubt, list, look, removed, version FROM old_files
        WHERE space_id = $1";
    /// A row that is not there has the version 0, which no stored one has.
    PUT = "INSERT INTO old_files (space_id, exempt, days, seen_at, steady_s, doubt, list, look, removed, version)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10 + 1)
        ON CONFLICT (space_id) DO UPDATE
        SET exempt = excluded.exempt, days = excluded.days, seen_at = excluded.seen_at, steady_s = excluded.steady_s,
            doubt = excluded.doubt, list = excluded.list, look = excluded.look, removed = excluded.removed,
            version = excluded.version
        WHERE old_files.version = excluded.version - 1";
}

#[derive(FromRow)]
struct StateRow {
    space_id: String,
    exempt: bool,
    days: Option<i64>,
    seen_at: Option<i64>,
    steady_s: i64,
    doubt: Option<String>,
    list: Option<String>,
    look: Option<String>,
    removed: Option<String>,
    version: i64,
}

impl StateRow {
    fn into_state(self) -> Result<OldFilesState, DbError> {
        let place = Place { table: "old_files", row: &self.space_id };
        Ok(OldFilesState {
            space: place.text("space_id", &self.space_id)?,
            exempt: self.exempt,
            days: self.days.map(|days| place.number("days", days)).transpose()?,
            seen_at: place.maybe_time("seen_at", self.seen_at)?,
            steady_s: place.number("steady_s", self.steady_s)?,
            doubt: place.maybe_text("doubt", self.doubt.as_deref())?,
            list: self.list.map(|list| place.json("list", &list)).transpose()?,
            look: self.look.map(|look| place.json("look", &look)).transpose()?,
            removed: self.removed.map(|removed| place.json("removed", &removed)).transpose()?,
            version: self.version,
        })
    }
}

fn json<T: Serialize>(value: Option<&T>) -> Result<Option<String>, DbError> {
    value.map(serde_json::to_string).transpose().map_err(DbError::encode)
}

impl Db {
    /// What is known of old files in a space; of one of which nothing is known, that.
    pub async fn old_files(&self, space: SpaceId) -> Result<OldFilesState, DbError> {
        let id = space.to_string();
        let row: Option<StateRow> = on_db!(self, pool => sqlx::query_as(OF_SPACE).bind(id).fetch_optional(pool).await)?;
        row.map_or_else(|| Ok(OldFilesState::new(space)), StateRow::into_state)
    }

    /// Writes what is known back when its version is still the stored one, and counts the version up. False, with nothing changed, when somebody
    /// else was faster.
    pub async fn put_old_files(&self, state: &OldFilesState) -> Result<bool, DbError> {
        let (list, look) = (json(state.list.as_ref())?, json(state.look.as_ref())?);
        let removed = json(state.removed.as_ref())?;
        let changed = on_db!(self, pool => sqlx::query(PUT)
            .bind(state.space.to_string())
            .bind(state.exempt)
            .bind(state.days.map(i64::from))
            .bind(maybe_micros(state.seen_at))
            .bind(signed(state.steady_s))
            .bind(state.doubt.map(eirene_core::old_files::OldFilesDoubt::as_str))
            .bind(list)
            .bind(look)
            .bind(removed)
            .bind(state.version)
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }
}
