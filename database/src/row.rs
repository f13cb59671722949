//! From stored values to the types of `eirene-core`. A value that makes no sense is an error that names its place.

use std::str::FromStr;

use eirene_core::text::one_line;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::error::DbError;

/// A row being read.
pub(crate) struct Place<'a> {
    /// Table.
    pub(crate) table: &'static str,
    /// The row's key.
    pub(crate) row: &'a str,
}

impl Place<'_> {
    pub(crate) fn wrong(&self, column: &'static str) -> DbError {
        DbError::Inconsistent { table: self.table, column, row: self.row.to_owned() }
    }

    /// A word, name or id.
    pub(crate) fn text<T: FromStr>(&self, column: &'static str, stored: &str) -> Result<T, DbError> {
        stored.parse().map_err(|_| self.wrong(column))
    }

    /// A text for people. Earlier versions took marks of direction, too: they are read as U+FFFD.
    pub(crate) fn line<T: FromStr>(&self, column: &'static str, stored: &str) -> Result<T, DbError> {
        self.text(column, &one_line(stored, stored.len()))
    }

    /// As [`Place::text`], where there may be none.
    pub(crate) fn maybe_text<T: FromStr>(
        &self,
        column: &'static str,
        stored: Option<&str>,
    ) -> Result<Option<T>, DbError> {
        stored.map(|stored| self.text(column, stored)).transpose()
    }

    /// A whole number.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: &'static str, stored: i64) -> Result<T, DbError> {
        T::try_from(stored).map_err(|_| self.wrong(column))
    }

    /// A time.
    pub(crate) fn time(&self, column: &'static str, stored: i64) -> Result<Timestamp, DbError> {
        Timestamp::from_microsecond(stored).map_err(|_| self.wrong(column))
    }

    /// As [`Place::time`], where there may be none.
    pub(crate) fn maybe_time(&self, column: &'static str, stored: Option<i64>) -> Result<Option<Timestamp>, DbError> {
        stored.map(|stored| self.time(column, stored)).transpose()
    }

    /// A JSON text.
    pub(crate) fn json<T: DeserializeOwned>(&self, column: &'static str, stored: &str) -> Result<T, DbError> {
        serde_json::from_str(stored).map_err(|_| self.wrong(column))
    }
}

/// A time as it is stored.
pub(crate) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// As [`micros`], where there may be none.
pub(crate) fn maybe_micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_microsecond)
}

/// A size or a count as it is stored; what no disk holds is stored as the most there is.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
