//! What can go wrong, as decisions for the caller.

use sqlx::error::ErrorKind;

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// It is locked, lost or overloaded: the same call may succeed later. Nothing is known about a write that was under way.
    #[error("the database cannot be reached at the moment")]
    Unavailable(#[source] sqlx::Error),
    /// There is one already.
    #[error("there is such a {what} already")]
    Conflict {
        /// What there is, in one or two words, for example `user`.
        what: &'static str,
    },
    /// A stored value makes no sense; somebody has to look at that row.
    #[error("the database is inconsistent: column `{column}` of row `{row}` in table `{table}`")]
    Inconsistent {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// The row's key.
        row: String,
    },
    /// A fault of ours or of the installation; trying again is useless.
    #[error("the database refused")]
    Other(#[source] sqlx::Error),
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        if is_unavailable(&error) { Self::Unavailable(error) } else { Self::Other(error) }
    }
}

impl From<sqlx::migrate::MigrateError> for DbError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        Self::from(sqlx::Error::from(error))
    }
}

impl DbError {
    /// Turns a broken uniqueness into [`DbError::Conflict`] with `what`; for statements that can break one.
    pub(crate) fn conflict(what: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| match &error {
            sqlx::Error::Database(database) if database.kind() == ErrorKind::UniqueViolation => Self::Conflict { what },
            _ => Self::from(error),
        }
    }

    /// A value of ours that cannot be written.
    pub(crate) fn encode(error: serde_json::Error) -> Self {
        Self::Other(sqlx::Error::Encode(Box::new(error)))
    }
}

fn is_unavailable(error: &sqlx::Error) -> bool {
    use sqlx::migrate::MigrateError::{Execute, ExecuteMigration};
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(database) => is_passing(database.as_ref()),
        sqlx::Error::Migrate(migrate) => match migrate.as_ref() {
            Execute(inner) | ExecuteMigration(inner, _) => is_unavailable(inner),
            _ => false,
        },
        _ => false,
    }
}

/// Whether an engine's own error goes away by itself or by an operator's hand, without a change to the program.
fn is_passing(error: &dyn sqlx::error::DatabaseError) -> bool {
    let Some(code) = error.code() else { return false };
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return code.parse().is_ok_and(is_passing_in_sqlite);
    }
    is_passing_in_postgres(&code)
}

/// Result codes of SQLite; the low byte is the primary code.
fn is_passing_in_sqlite(code: u32) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    const IOERR: u32 = 10;
    const FULL: u32 = 13;
    const CANTOPEN: u32 = 14;
    const READONLY_DBMOVED: u32 = 8 | (4 << 8);
    code == READONLY_DBMOVED || matches!(code & 0xff, BUSY | LOCKED | IOERR | FULL | CANTOPEN)
}

/// SQLSTATE: lost connections, want of resources, shut-downs, lock timeouts, deadlocks.
fn is_passing_in_postgres(code: &str) -> bool {
    const CLASSES: [&str; 3] = ["08", "53", "58"];
    const CODES: [&str; 8] = ["40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "25P03"];
    CODES.contains(&code) || CLASSES.iter().any(|class| code.starts_with(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_or_lost_database_may_come_back_and_a_wrong_statement_does_not() {
        for code in [5, 261, 517, 6, 262, 10, 778, 13, 14, 1032] {
            assert!(is_passing_in_sqlite(code), "{code}");
        }
        for code in [1, 8, 11, 19, 26, 2067] {
            assert!(!is_passing_in_sqlite(code), "{code}");
        }
        for code in ["08006", "53300", "57P01", "57P03", "55P03", "40P01"] {
            assert!(is_passing_in_postgres(code), "{code}");
        }
        for code in ["23505", "42601", "42P01", "22P02", "28P01", "3D000"] {
            assert!(!is_passing_in_postgres(code), "{code}");
        }
    }

    #[test]
    fn a_lost_connection_is_unavailable_and_a_missing_row_is_ours() {
        assert!(matches!(DbError::from(sqlx::Error::PoolTimedOut), DbError::Unavailable(_)));
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(matches!(DbError::from(sqlx::Error::Io(io)), DbError::Unavailable(_)));
        assert!(matches!(DbError::from(sqlx::Error::RowNotFound), DbError::Other(_)));
    }
}
