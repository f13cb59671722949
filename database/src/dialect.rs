//! Everything in which the two engines differ. Elsewhere one SQL text serves both.
//!
//! **Transactions.** A SQLite transaction that reads first and writes later can find that somebody else wrote in between; SQLite then fails at once,
//! whatever the busy timeout. So every transaction here begins with `BEGIN IMMEDIATE`: it waits its turn, and from then on nothing
//! can come in between. PostgreSQL's plain `BEGIN` is enough: a transaction that decides by what it has read locks the owner's row first.
//!
//! **The order of events.** A page resumes after the last number it saw, so a lower number must never appear later than a higher one. SQLite
//! has one writer at a time. In PostgreSQL numbers are drawn before the commit, so writers of events take a lock that is held until then.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::str::FromStr as _;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, PgTransaction, SqlitePool, SqliteTransaction};

use crate::db::{Db, Limits};
use crate::error::DbError;

/// Marks a SQLite file as ours; set by its first migration.
pub(crate) const APPLICATION_ID: i64 = 0x4569_726e;

pub(crate) static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");
pub(crate) static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

const BEGIN_IMMEDIATE: &str = "BEGIN IMMEDIATE";
/// The number is arbitrary; only writers of events use it.
const LOCK_EVENTS: &str = "SELECT pg_advisory_xact_lock(4995142)";
const SQLITE_HAS_MIGRATIONS: &str =
    "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'";
const POSTGRES_HAS_MIGRATIONS: &str =
    "SELECT COUNT(*) FROM pg_tables WHERE schemaname = CURRENT_SCHEMA() AND tablename = '_sqlx_migrations'";
const SQLITE_USERNAMES: &str =
    "SELECT uid, username FROM users WHERE uid IN (SELECT value FROM json_each($1)) ORDER BY username";
const POSTGRES_USERNAMES: &str = "SELECT uid, username FROM users WHERE uid = ANY($1) ORDER BY username";
const POSTGRES_NO_STATEMENT_TIMEOUT: &str = "SET statement_timeout = 0";

/// Every statement of this file, by engine.
#[cfg(test)]
pub(crate) const SQLITE_STATEMENTS: &[&str] = &[BEGIN_IMMEDIATE, SQLITE_HAS_MIGRATIONS, SQLITE_USERNAMES];
#[cfg(test)]
pub(crate) const POSTGRES_STATEMENTS: &[&str] =
    &[LOCK_EVENTS, POSTGRES_HAS_MIGRATIONS, POSTGRES_USERNAMES, POSTGRES_NO_STATEMENT_TIMEOUT];

/// Which engine a database URL is for.
pub(crate) enum Target {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, DbError> {
        if url.starts_with("sqlite:") {
            return Ok(Self::Sqlite(Box::new(SqliteConnectOptions::from_str(url).map_err(DbError::Other)?)));
        }
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            return Ok(Self::Postgres(Box::new(PgConnectOptions::from_str(url).map_err(DbError::Other)?)));
        }
        let cure = "the database's address must begin with `sqlite:` or `postgres:`";
        Err(DbError::Other(sqlx::Error::Configuration(cure.into())))
    }
}

pub(crate) async fn open(url: &str, limits: &Limits) -> Result<Db, DbError> {
    match Target::parse(url)? {
        Target::Sqlite(options) => open_sqlite(*options, is_in_memory(url), limits).await,
        Target::Postgres(options) => open_postgres(*options, limits).await,
    }
}

fn is_in_memory(url: &str) -> bool {
    url.contains(":memory:") || url.contains("mode=memory")
}

/// What every connection to our file is opened with.
pub(crate) fn sqlite_options(options: SqliteConnectOptions, limits: &Limits) -> SqliteConnectOptions {
    options
        .foreign_keys(true)
        .busy_timeout(limits.busy_timeout)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
}

async fn open_sqlite(options: SqliteConnectOptions, in_memory: bool, limits: &Limits) -> Result<Db, DbError> {
    if !in_memory {
        make_private(options.get_filename()).map_err(|error| DbError::from(sqlx::Error::Io(error)))?;
        // A new file is switched to its write-ahead log by one connection alone: of two that do it at once, SQLite fails one at once.
        sqlite_options(options.clone(), limits).connect().await?.close().await?;
    }
    // A database in memory is gone with its last connection, and more than one would share a cache that locks whole tables. In
    // a file, one connection stays open for good: a restore sees by it that the file is in use.
    let pool = SqlitePoolOptions::new()
        .min_connections(1)
        .max_connections(if in_memory { 1 } else { limits.max_connections })
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(limits.acquire_timeout)
        .connect_with(sqlite_options(options, limits))
        .await?;
    Ok(Db::Sqlite(pool))
}

/// Makes the file with mode 0600 before SQLite would with another one; SQLite gives the same mode to the files beside it. An existing file is
/// not opened: closing it again would drop the locks that this process holds on it.
fn make_private(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let permissions = std::fs::metadata(path)?.permissions();
            let others = permissions.mode() & 0o077;
            if others == 0 { Ok(()) } else { std::fs::set_permissions(path, Permissions::from_mode(0o600)) }
        }
        Err(error) => Err(error),
    }
}

async fn open_postgres(options: PgConnectOptions, limits: &Limits) -> Result<Db, DbError> {
    let options = options.application_name("eirened").options([
        ("lock_timeout", format!("{}ms", limits.busy_timeout.as_millis())),
        ("statement_timeout", "30s".to_owned()),
        ("idle_in_transaction_session_timeout", "30s".to_owned()),
    ]);
    let pool = PgPoolOptions::new()
        .max_connections(limits.max_connections)
        .acquire_timeout(limits.acquire_timeout)
        .connect_with(options)
        .await?;
    Ok(Db::Postgres(pool))
}

pub(crate) async fn migrate(db: &Db) -> Result<(), DbError> {
    match db {
        Db::Sqlite(pool) => SQLITE_MIGRATIONS.run(pool).await?,
        Db::Postgres(pool) => {
            // A migration of a large table may take its time; the connection goes away with the setting.
            let mut connection = pool.acquire().await?.detach();
            sqlx::query(POSTGRES_NO_STATEMENT_TIMEOUT).execute(&mut connection).await?;
            POSTGRES_MIGRATIONS.run(&mut connection).await?;
            sqlx::Connection::close(connection).await?;
        }
    }
    Ok(())
}

/// Whether any migration was ever applied.
pub(crate) async fn has_migrations(db: &Db) -> Result<bool, DbError> {
    let tables: i64 = match db {
        Db::Sqlite(pool) => sqlx::query_scalar(SQLITE_HAS_MIGRATIONS).fetch_one(pool).await?,
        Db::Postgres(pool) => sqlx::query_scalar(POSTGRES_HAS_MIGRATIONS).fetch_one(pool).await?,
    };
    Ok(tables > 0)
}

/// Who has these POSIX user ids, by name. A list of values is one thing to PostgreSQL, and a JSON text to SQLite.
pub(crate) async fn usernames(db: &Db, uids: Vec<i64>) -> Result<Vec<(i64, String)>, DbError> {
    Ok(match db {
        Db::Sqlite(pool) => {
            let uids = serde_json::Value::from(uids).to_string();
            sqlx::query_as(SQLITE_USERNAMES).bind(uids).fetch_all(pool).await?
        }
        Db::Postgres(pool) => sqlx::query_as(POSTGRES_USERNAMES).bind(uids).fetch_all(pool).await?,
    })
}

pub(crate) async fn begin_sqlite(pool: &SqlitePool) -> Result<SqliteTransaction<'static>, DbError> {
    Ok(pool.begin_with(BEGIN_IMMEDIATE).await?)
}

pub(crate) async fn begin_postgres(pool: &PgPool) -> Result<PgTransaction<'static>, DbError> {
    Ok(pool.begin().await?)
}

/// Begins a transaction in which events may be appended on PostgreSQL; see the head of this file.
pub(crate) async fn begin_postgres_events(pool: &PgPool) -> Result<PgTransaction<'static>, DbError> {
    let mut tx = pool.begin().await?;
    sqlx::query(LOCK_EVENTS).execute(&mut *tx).await?;
    Ok(tx)
}
