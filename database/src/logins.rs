//! Log-ins: browsers that are signed in to the portal.

use eirene_core::audit::AuditEntry;
use eirene_core::secret::SecretHash;
use eirene_core::{Login, LoginId, User};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};
use crate::users::{HOLD_EPOCH, UserRow, user_columns};

/// The condition under which a log-in counts, in every statement that joins log-ins: by the parameters of a [`Counting`].
macro_rules! login_counts {
    ($now:literal, $used_after:literal) => {
        concat!("logins.expires_at > ", $now, " AND logins.last_seen_at > ", $used_after)
    };
}
pub(crate) use login_counts;

/// Which log-ins count: those that expire later than `now` and were used later than `used_after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// The time.
    pub now: Timestamp,
    /// When a log-in must have been used last, so that it has not been idle for too long.
    pub used_after: Timestamp,
}

statements! {
    INSERT = "INSERT INTO logins (id, secret_hash, user_id, created_at, last_seen_at, expires_at, address, user_agent)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    BY_HASH = concat!("SELECT logins.id, logins.created_at, logins.last_seen_at, logins.expires_at, logins.address,
            logins.user_agent, ", user_columns!(), "
        FROM logins JOIN users ON users.id = logins.user_id
        WHERE logins.secret_hash = $1 AND ", login_counts!("$2", "$3"), " AND users.state = 'active'");
    TOUCH = "UPDATE logins SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1";
    DELETE = "DELETE FROM logins WHERE id = $1";
}

#[derive(FromRow)]
struct LoginRow {
    id: String,
    created_at: i64,
    last_seen_at: i64,
    expires_at: i64,
    address: Option<String>,
    user_agent: Option<String>,
    #[sqlx(flatten)]
    user: UserRow,
}

impl LoginRow {
    fn into_login(self) -> Result<(Login, User), DbError> {
        let user = self.user.into_user()?;
        let place = Place { table: "logins", row: &self.id };
        let login = Login {
            id: place.text("id", &self.id)?,
            user: user.id,
            created_at: place.time("created_at", self.created_at)?,
            last_seen_at: place.time("last_seen_at", self.last_seen_at)?,
            expires_at: place.time("expires_at", self.expires_at)?,
            address: self.address,
            user_agent: self.user_agent,
        };
        Ok((login, user))
    }
}

impl Db {
    /// Adds a log-in under the hash of its cookie. False, and nothing is added, when access was voided since the user was read in `epoch`.
    pub async fn insert_login(
        &self,
        epoch: i64,
        login: &Login,
        secret: &SecretHash,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        let user = login.user.to_string();
        in_transaction!(self, tx => {
            let held = sqlx::query(HOLD_EPOCH).bind(user.as_str()).bind(epoch).execute(&mut *tx).await?.rows_affected() > 0;
            if held {
                sqlx::query(INSERT)
                    .bind(login.id.to_string())
                    .bind(secret.as_str())
                    .bind(user.as_str())
                    .bind(micros(login.created_at))
                    .bind(micros(login.last_seen_at))
                    .bind(micros(login.expires_at))
                    .bind(login.address.as_deref())
                    .bind(login.user_agent.as_deref())
                    .execute(&mut *tx).await
                    .map_err(DbError::conflict("log-in"))?;
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(held)
        })
    }

    /// A log-in that counts, by the hash of its cookie, with its user; none while the user is disabled.
    pub async fn login_by_hash(&self, secret: &SecretHash, of: Counting) -> Result<Option<(Login, User)>, DbError> {
        let row: Option<LoginRow> = on_db!(self, pool => sqlx::query_as(BY_HASH)
            .bind(secret.as_str())
            .bind(micros(of.now))
            .bind(micros(of.used_after))
            .fetch_optional(pool).await)?;
        row.map(LoginRow::into_login).transpose()
    }

    /// Notes that a log-in was used.
    pub async fn touch_login(&self, id: LoginId, now: Timestamp) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(TOUCH).bind(micros(now)).bind(id.to_string()).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Ends a log-in and all app log-ins that came from it. False when it was not there.
    pub async fn delete_login(&self, id: LoginId, audit: &AuditEntry) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let done = sqlx::query(DELETE).bind(id.to_string()).execute(&mut *tx).await?;
            if done.rows_affected() > 0 {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(done.rows_affected() > 0)
        })
    }
}
