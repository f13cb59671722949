//! What the storage's servers did, and who asked for it: a row for each look at the servers of a role. What is in a look is JSON text of whoever
//! writes it down, and nobody reads it here: so one that makes no sense costs that look and no other.

use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    /// Of two portals that look at the same moment one writes it.
    PUT = "INSERT INTO storage_history (role, at, servers, users) VALUES ($1, $2, $3, $4) ON CONFLICT (role, at) DO NOTHING";
    LAST = "SELECT at, servers, users FROM storage_history WHERE role = $1 AND at >= $2 AND at <= $3 ORDER BY at DESC LIMIT $4";
    PRUNE = "DELETE FROM storage_history WHERE at < $1 OR at > $2";
}

/// What a look at the servers of a role came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageLook {
    /// When.
    pub at: Timestamp,
    /// What they did, as JSON; none where that was not told.
    pub servers: Option<String>,
    /// What users asked of them, as JSON; none where that was not told.
    pub users: Option<String>,
}

#[derive(FromRow)]
struct LookRow {
    at: i64,
    servers: Option<String>,
    users: Option<String>,
}

impl LookRow {
    fn into_look(self, role: &str) -> Result<StorageLook, DbError> {
        let place = Place { table: "storage_history", row: role };
        Ok(StorageLook { at: place.time("at", self.at)?, servers: self.servers, users: self.users })
    }
}

impl Db {
    /// Writes down a look at the servers of a role, by its word.
    pub async fn put_storage_look(&self, role: &str, look: &StorageLook) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(PUT)
            .bind(role)
            .bind(micros(look.at))
            .bind(look.servers.as_deref())
            .bind(look.users.as_deref())
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The last `most` looks at the servers of a role from `since` to `until`, newest first.
    pub async fn storage_looks(
        &self,
        role: &str,
        since: Timestamp,
        until: Timestamp,
        most: u32,
    ) -> Result<Vec<StorageLook>, DbError> {
        let rows: Vec<LookRow> = on_db!(self, pool => sqlx::query_as(LAST)
            .bind(role)
            .bind(micros(since))
            .bind(micros(until))
            .bind(i64::from(most))
            .fetch_all(pool).await)?;
        rows.into_iter().map(|row| row.into_look(role)).collect()
    }

    /// Forgets the looks before `before`, and those after `after`, which a clock that was ahead has dated. Says how many went.
    pub async fn prune_storage_history(&self, before: Timestamp, after: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool => sqlx::query(PRUNE)
            .bind(micros(before))
            .bind(micros(after))
            .execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
