//! The three macros everything else is written with.

/// Runs the same expression on whichever engine there is: `on_db!(db, pool => …)`.
macro_rules! on_db {
    ($db:expr, $pool:ident => $body:expr) => {
        match $db {
            $crate::db::Db::Sqlite($pool) => $body,
            $crate::db::Db::Postgres($pool) => $body,
        }
    };
}

/// Runs a block in one transaction: `in_transaction!(db, tx => { … })`. The block's value is a `Result<T, DbError>`; on an error, and when
/// the future is dropped, nothing of it stays. On SQLite the write lock is taken at the start, see [`crate::dialect`].
macro_rules! in_transaction {
    ($db:expr, $tx:ident => $body:block) => {
        match $db {
            $crate::db::Db::Sqlite(pool) => {
                let mut $tx = $crate::dialect::begin_sqlite(pool).await?;
                let value = $body?;
                $tx.commit().await?;
                Ok(value)
            }
            $crate::db::Db::Postgres(pool) => {
                let mut $tx = $crate::dialect::begin_postgres(pool).await?;
                let value = $body?;
                $tx.commit().await?;
                Ok(value)
            }
        }
    };
}

/// Declares a file's SQL statements and, for the test that prepares each of them on both engines, the list of them all.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $sql;)*

        /// Every statement of this file.
        #[cfg(test)]
        pub(crate) const STATEMENTS: &[&str] = &[$($name,)*];
    };
}
