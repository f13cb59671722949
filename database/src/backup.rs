//! Backup of a running SQLite database into one file, and the way back.
//!
//! A restore never leaves the target half written: the backup is copied beside it, the copy is checked, and a rename swaps it in. The server must be
//! stopped; it is noticed when it is not, because a running server holds a connection and so the file cannot leave WAL mode. PostgreSQL has
//! tools of its own for all this.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode};
use sqlx::{Connection as _, SqliteConnection};

use crate::db::Db;
use crate::dialect::{APPLICATION_ID, SQLITE_MIGRATIONS, Target};
use crate::error::DbError;

const VACUUM_INTO: &str = "VACUUM INTO $1";
const INTEGRITY_CHECK: &str = "PRAGMA integrity_check(1)";
const FOREIGN_KEY_CHECK: &str = "SELECT COUNT(*) FROM pragma_foreign_key_check";
const STORED_APPLICATION_ID: &str = "PRAGMA application_id";
const APPLIED: &str = "SELECT version, checksum FROM _sqlx_migrations WHERE success = TRUE ORDER BY version";
const LEAVE_WAL: &str = "PRAGMA journal_mode = DELETE";
const BEGIN_EXCLUSIVE: &str = "BEGIN EXCLUSIVE";

/// Every statement of this file; they are for SQLite alone.
#[cfg(test)]
pub(crate) const SQLITE_STATEMENTS: &[&str] =
    &[VACUUM_INTO, INTEGRITY_CHECK, FOREIGN_KEY_CHECK, STORED_APPLICATION_ID, APPLIED, LEAVE_WAL, BEGIN_EXCLUSIVE];

/// How long a restore waits for somebody else's short read of the target.
const IN_USE_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a backup or a restore was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The database is PostgreSQL.
    #[error("the database is PostgreSQL: use pg_dump to back it up and pg_restore to restore it")]
    UsePostgresTools,
    /// The file to write is there already.
    #[error("`{}` exists already; name a new file", .0.display())]
    Exists(PathBuf),
    /// A copy that a restore works on is there.
    #[error("`{}` is there: another restore is running or was cut off; remove that file when none is running", .0.display())]
    Unfinished(PathBuf),
    /// The database to restore into is open somewhere.
    #[error("`{}` is in use; stop eirened and try again", .0.display())]
    InUse(PathBuf),
    /// The backup is no database of ours, or not a whole one.
    #[error("`{}` cannot be restored: {why}", path.display())]
    NotABackup {
        /// The backup.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What lies where the database should be cannot be replaced safely.
    #[error("`{}` is damaged or incomplete; move it and the files `…-wal` and `…-shm` beside it elsewhere, and try again", .0.display())]
    DamagedTarget(PathBuf),
    /// A file could not be read or written.
    #[error("cannot read or write `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database did not do it.
    #[error("the database did not answer as expected")]
    Database(#[source] DbError),
}

impl From<sqlx::Error> for BackupError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(DbError::from(error))
    }
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

/// `path` with `ending` added to its last part.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Makes a new file (0600) for a copy of the database.
fn create(path: &Path) -> Result<(), BackupError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(BackupError::Exists(path.to_owned())),
        Err(error) => Err(file_error(path)(error)),
    }
}

/// Makes a written file and its name last through a power cut.
fn make_durable(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(file_error(path))?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(file_error(folder))
}

impl Db {
    /// Copies the database, while it is used, into the new file `path` (0600): one moment of it, whole.
    pub async fn backup_to(&self, path: &Path) -> Result<(), BackupError> {
        let Self::Sqlite(pool) = self else { return Err(BackupError::UsePostgresTools) };
        let Some(name) = path.to_str() else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8");
            return Err(file_error(path)(source));
        };
        create(path)?;
        let copied = sqlx::query(VACUUM_INTO).bind(name).execute(pool).await;
        let done = copied.map_err(BackupError::from).and_then(|_| make_durable(path));
        if done.is_err() {
            // An unfinished backup must not be taken for one; the error that is returned says more than one of this.
            let _ = fs::remove_file(path);
        }
        done
    }

    /// Puts `backup` in the place of the SQLite database at `url`, which nobody may have open; what was there stays beside it as
    /// `….replaced`. Gives the schema version of what was restored; [`Db::migrate`] brings it up to date.
    pub async fn restore_from(backup: &Path, url: &str) -> Result<i64, BackupError> {
        let options = match Target::parse(url).map_err(BackupError::Database)? {
            Target::Sqlite(options) => options,
            Target::Postgres(_) => return Err(BackupError::UsePostgresTools),
        };
        let target = options.get_filename().to_owned();
        let copy = beside(&target, ".restoring");
        create(&copy).map_err(|error| match error {
            BackupError::Exists(copy) => BackupError::Unfinished(copy),
            other => other,
        })?;
        let restored = restore(backup, &copy, &target).await;
        if restored.is_err() {
            // Should this fail too, the next restore says so; the error that is returned is the one to mend.
            let _ = fs::remove_file(&copy);
        }
        restored
    }
}

async fn restore(backup: &Path, copy: &Path, target: &Path) -> Result<i64, BackupError> {
    let wal = beside(backup, "-wal");
    if fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0) {
        let why = format!(
            "`{}` lies beside it, so it is a database in use; make a backup with `eirened backup`",
            wal.display()
        );
        return Err(BackupError::NotABackup { path: backup.to_owned(), why });
    }
    copy_content(backup, copy)?;
    let version = check(backup, copy).await?;
    make_durable(copy)?;
    let locked = lock(target).await?;
    swap(copy, target)?;
    if let Some(locked) = locked {
        locked.close().await?;
    }
    Ok(version)
}

fn copy_content(from: &Path, to: &Path) -> Result<(), BackupError> {
    let mut source = File::open(from).map_err(file_error(from))?;
    let mut written = OpenOptions::new().write(true).open(to).map_err(file_error(to))?;
    io::copy(&mut source, &mut written).map_err(file_error(to))?;
    Ok(())
}

/// Whether the copy of a backup is whole, ours, and of a schema that this program knows.
async fn check(backup: &Path, copy: &Path) -> Result<i64, BackupError> {
    let bad = |why: String| BackupError::NotABackup { path: backup.to_owned(), why };
    // Not WAL, so that no other file comes to lie beside the copy.
    let options = SqliteConnectOptions::new().filename(copy).journal_mode(SqliteJournalMode::Delete);
    let not_ours = |error: sqlx::Error| match &error {
        sqlx::Error::Database(_) => bad(format!("it is no database of Eirene ({error})")),
        _ => BackupError::from(error),
    };
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(not_ours)?;
    let mark: i64 = sqlx::query_scalar(STORED_APPLICATION_ID).fetch_one(&mut connection).await.map_err(not_ours)?;
    if mark != APPLICATION_ID {
        return Err(bad("it is no database of Eirene".to_owned()));
    }
    let integrity: String = sqlx::query_scalar(INTEGRITY_CHECK).fetch_one(&mut connection).await.map_err(not_ours)?;
    if integrity != "ok" {
        return Err(bad(format!("it is damaged ({integrity})")));
    }
    let dangling: i64 = sqlx::query_scalar(FOREIGN_KEY_CHECK).fetch_one(&mut connection).await.map_err(not_ours)?;
    if dangling > 0 {
        return Err(bad(format!("it is damaged ({dangling} rows refer to nothing)")));
    }
    let applied: Vec<(i64, Vec<u8>)> = sqlx::query_as(APPLIED).fetch_all(&mut connection).await.map_err(not_ours)?;
    connection.close().await?;
    for (version, checksum) in &applied {
        let known = SQLITE_MIGRATIONS.iter().find(|migration| migration.version == *version);
        if known.is_none_or(|known| *known.checksum != **checksum) {
            return Err(bad(format!(
                "its schema {version} is not known here; use the eirened that made it, or a newer one"
            )));
        }
    }
    applied.last().map(|(version, _)| *version).ok_or_else(|| bad("it is empty".to_owned()))
}

/// Opens the database that is to be replaced so that nobody else has it open, and nothing of it lies outside its main file. None when there is no file.
async fn lock(target: &Path) -> Result<Option<SqliteConnection>, BackupError> {
    const BUSY: u32 = 5;
    const CORRUPT: u32 = 11;
    const NOT_A_DATABASE: u32 = 26;
    if !target.exists() {
        // What is left of another database would be taken for a part of the restored one.
        let left = ["-wal", "-shm", "-journal"].iter().any(|ending| beside(target, ending).exists());
        return if left { Err(BackupError::DamagedTarget(target.to_owned())) } else { Ok(None) };
    }
    let options = SqliteConnectOptions::new()
        .filename(target)
        .busy_timeout(IN_USE_TIMEOUT)
        .locking_mode(SqliteLockingMode::Exclusive);
    let locked: Result<Option<SqliteConnection>, sqlx::Error> = async {
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let mode: String = sqlx::query_scalar(LEAVE_WAL).fetch_one(&mut connection).await?;
        sqlx::query(BEGIN_EXCLUSIVE).execute(&mut connection).await?;
        Ok((mode == "delete").then_some(connection))
    }
    .await;
    let error = match locked {
        Ok(Some(connection)) => return Ok(Some(connection)),
        Ok(None) => return Err(BackupError::InUse(target.to_owned())),
        Err(error) => error,
    };
    let code = error.as_database_error().and_then(DatabaseError::code).and_then(|code| code.parse::<u32>().ok());
    Err(match code.map(|code| code & 0xff) {
        Some(BUSY) => BackupError::InUse(target.to_owned()),
        Some(CORRUPT | NOT_A_DATABASE) => BackupError::DamagedTarget(target.to_owned()),
        _ => error.into(),
    })
}

/// Keeps what is at `target` as `….replaced` and puts `copy` there in one step.
fn swap(copy: &Path, target: &Path) -> Result<(), BackupError> {
    if target.exists() {
        let replaced = beside(target, ".replaced");
        match fs::remove_file(&replaced) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file_error(&replaced)(error)),
            _ => fs::hard_link(target, &replaced).map_err(file_error(&replaced))?,
        }
    }
    fs::rename(copy, target).map_err(file_error(target))?;
    make_durable(target)
}
