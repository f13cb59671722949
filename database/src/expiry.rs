//! Removes what is over from every table whose rows end by themselves.

use jiff::Timestamp;

use crate::db::Db;
use crate::error::DbError;
use crate::row::micros;

statements! {
    DELETE_HANDOVERS = "DELETE FROM handovers WHERE expires_at <= $1";
    DELETE_APP_LOGINS = "DELETE FROM app_logins WHERE expires_at <= $1";
    DELETE_LOGINS = "DELETE FROM logins WHERE expires_at <= $1";
    DELETE_TOKENS = "DELETE FROM tokens WHERE expires_at <= $1";
    /// Of one that is not finished there are files to remove first.
    DELETE_UPLOADS = "DELETE FROM uploads WHERE state = 'finished' AND expires_at <= $1";
}

impl Db {
    /// Deletes one-time codes, app log-ins, log-ins, tokens and finished uploads that are over; says how many. Nothing that is over is accepted
    /// even before.
    pub async fn delete_expired(&self, now: Timestamp) -> Result<u64, DbError> {
        let mut deleted = 0;
        for statement in [DELETE_HANDOVERS, DELETE_APP_LOGINS, DELETE_LOGINS, DELETE_TOKENS, DELETE_UPLOADS] {
            deleted += on_db!(self, pool =>
                sqlx::query(statement).bind(micros(now)).execute(pool).await.map(|done| done.rows_affected()))?;
        }
        Ok(deleted)
    }
}
