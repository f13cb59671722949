//! The database itself: opening, migrating, asking how it is. The nouns have files of their own.

use std::time::Duration;

use sqlx::{PgPool, SqlitePool};

use crate::dialect;
use crate::error::DbError;

statements! {
    PING = "SELECT 1";
    NEWEST_APPLIED = "SELECT MAX(version) FROM _sqlx_migrations WHERE success = TRUE";
}

/// The database, on one of the two engines. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Db {
    /// One file.
    Sqlite(SqlitePool),
    /// A server.
    Postgres(PgPool),
}

/// How long to wait, and how many connections to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a statement waits for a lock.
    pub busy_timeout: Duration,
    /// How long a call waits for a free connection.
    pub acquire_timeout: Duration,
    /// Most connections.
    pub max_connections: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(10), acquire_timeout: Duration::from_secs(10), max_connections: 8 }
    }
}

impl Db {
    /// Opens `sqlite:<path>` (made when missing) or `postgres://…`; changes no schema, see [`Db::migrate`].
    pub async fn open(url: &str) -> Result<Self, DbError> {
        Self::open_with(url, &Limits::default()).await
    }

    /// As [`Db::open`], with limits of one's own.
    pub async fn open_with(url: &str, limits: &Limits) -> Result<Self, DbError> {
        dialect::open(url, limits).await
    }

    /// Applies the migrations that are missing. Refuses a database that a newer program has migrated, or whose migrations were edited.
    pub async fn migrate(&self) -> Result<(), DbError> {
        dialect::migrate(self).await
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(PING).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Number of the last migration that was applied; none for an empty database.
    pub async fn schema_version(&self) -> Result<Option<i64>, DbError> {
        if !dialect::has_migrations(self).await? {
            return Ok(None);
        }
        Ok(on_db!(self, pool => sqlx::query_scalar(NEWEST_APPLIED).fetch_one(pool).await)?)
    }

    /// Number of the last migration this program knows: what [`Db::schema_version`] is after [`Db::migrate`].
    pub fn newest_schema_version() -> i64 {
        dialect::SQLITE_MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default()
    }

    /// Closes all connections, waiting for those in use.
    pub async fn close(&self) {
        on_db!(self, pool => pool.close().await);
    }
}
