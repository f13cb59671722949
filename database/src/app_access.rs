//! How a browser gets to a session's origin: a one-time code, exchanged for an app log-in that lives no longer than the log-in it came from.

use eirene_core::audit::AuditEntry;
use eirene_core::secret::SecretHash;
use eirene_core::{LoginId, SessionId, User, UserId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::logins::{Counting, login_counts};
use crate::row::{Place, micros};
use crate::users::{UserRow, user_columns};

// Both inserts write nothing when the log-in no longer counts: it may be ended by another request at the same moment.
statements! {
    INSERT_HANDOVER = concat!("INSERT INTO handovers (code_hash, session_id, user_id, login_id, expires_at)
        SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), user_id, id, CAST($5 AS BIGINT)
        FROM logins WHERE id = $4 AND user_id = $3 AND ", login_counts!("$6", "$7"));
    TAKE_HANDOVER = "DELETE FROM handovers WHERE code_hash = $1 AND session_id = $2 AND expires_at > $3
        RETURNING user_id, login_id";
    INSERT_APP_LOGIN = concat!("INSERT INTO app_logins (secret_hash, session_id, user_id, login_id, expires_at)
        SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), user_id, id, CAST($5 AS BIGINT)
        FROM logins WHERE id = $4 AND user_id = $3 AND ", login_counts!("$6", "$7"));
    APP_LOGIN = concat!("SELECT logins.id, logins.last_seen_at, ", user_columns!(), "
        FROM app_logins JOIN logins ON logins.id = app_logins.login_id JOIN users ON users.id = app_logins.user_id
        WHERE app_logins.secret_hash = $1 AND app_logins.session_id = $2 AND app_logins.expires_at > $3
            AND ", login_counts!("$3", "$4"), " AND users.state = 'active'");
}

/// A browser that is signed in to a session's app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppLogin {
    /// Who.
    pub user: User,
    /// The portal's log-in that it came from.
    pub login: LoginId,
    /// When that was last used, to the minute or so.
    pub last_seen_at: Timestamp,
}

#[derive(FromRow)]
struct AppLoginRow {
    id: String,
    last_seen_at: i64,
    #[sqlx(flatten)]
    user: UserRow,
}

impl AppLoginRow {
    fn into_app_login(self) -> Result<AppLogin, DbError> {
        let place = Place { table: "logins", row: &self.id };
        let (login, last_seen_at) = (place.text("id", &self.id)?, place.time("last_seen_at", self.last_seen_at)?);
        Ok(AppLogin { user: self.user.into_user()?, login, last_seen_at })
    }
}

/// An app log-in to keep: whose, for which session, and from which log-in it comes.
#[derive(Debug, Clone, Copy)]
pub struct NewAppLogin {
    /// The session whose app it opens.
    pub session: SessionId,
    /// Whose.
    pub user: UserId,
    /// The log-in that it ends with.
    pub login: LoginId,
    /// When it ends by itself.
    pub expires_at: Timestamp,
}

impl Db {
    /// Keeps a one-time code. When the log-in no longer counts nothing is kept, and the code will not work.
    pub async fn insert_handover(
        &self,
        code: &SecretHash,
        session: SessionId,
        user: UserId,
        login: LoginId,
        expires_at: Timestamp,
        of: Counting,
    ) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(INSERT_HANDOVER)
            .bind(code.as_str())
            .bind(session.to_string())
            .bind(user.to_string())
            .bind(login.to_string())
            .bind(micros(expires_at))
            .bind(micros(of.now))
            .bind(micros(of.used_after))
            .execute(pool).await.map(drop))
        .map_err(DbError::conflict("hand-over"))
    }

    /// Takes a one-time code of this session; of several callers one gets it.
    pub async fn take_handover(
        &self,
        code: &SecretHash,
        session: SessionId,
        now: Timestamp,
    ) -> Result<Option<(UserId, LoginId)>, DbError> {
        let row: Option<(String, String)> = on_db!(self, pool => sqlx::query_as(TAKE_HANDOVER)
            .bind(code.as_str())
            .bind(session.to_string())
            .bind(micros(now))
            .fetch_optional(pool).await)?;
        let Some((user, login)) = row else { return Ok(None) };
        let row = session.to_string();
        let place = Place { table: "handovers", row: &row };
        Ok(Some((place.text("user_id", &user)?, place.text("login_id", &login)?)))
    }

    /// Keeps an app log-in under the hash of its cookie. False, and nothing is kept, when the log-in no longer counts.
    pub async fn insert_app_login(
        &self,
        secret: &SecretHash,
        new: &NewAppLogin,
        of: Counting,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let kept = sqlx::query(INSERT_APP_LOGIN)
                .bind(secret.as_str())
                .bind(new.session.to_string())
                .bind(new.user.to_string())
                .bind(new.login.to_string())
                .bind(micros(new.expires_at))
                .bind(micros(of.now))
                .bind(micros(of.used_after))
                .execute(&mut *tx).await
                .map_err(DbError::conflict("app log-in"))?
                .rows_affected() > 0;
            if kept {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(kept)
        })
    }

    /// Who uses an app cookie of this session; none once it has expired, the log-in it came from no longer counts, or the user is disabled.
    pub async fn app_login(
        &self,
        secret: &SecretHash,
        session: SessionId,
        of: Counting,
    ) -> Result<Option<AppLogin>, DbError> {
        let row: Option<AppLoginRow> = on_db!(self, pool => sqlx::query_as(APP_LOGIN)
            .bind(secret.as_str())
            .bind(session.to_string())
            .bind(micros(of.now))
            .bind(micros(of.used_after))
            .fetch_optional(pool).await)?;
        row.map(AppLoginRow::into_app_login).transpose()
    }
}
