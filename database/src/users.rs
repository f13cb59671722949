//! Users and their password hashes.

use std::collections::BTreeMap;

use eirene_core::audit::AuditEntry;
use eirene_core::{Role, User, UserId, UserState, Username};
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::dialect;
use crate::error::DbError;
use crate::row::{Place, micros};

/// The columns of a [`UserRow`], from the table `users`.
macro_rules! user_columns {
    () => {
        "users.id AS user_id, users.username, users.role AS user_role, users.state AS user_state, users.uid AS user_uid, \
         users.created_at AS user_created_at, users.access_epoch AS user_access_epoch"
    };
}
pub(crate) use user_columns;

statements! {
    INSERT = "INSERT INTO users (id, username, password_hash, role, state, uid, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    BY_ID = concat!("SELECT ", user_columns!(), " FROM users WHERE users.id = $1");
    BY_NAME = concat!("SELECT ", user_columns!(), " FROM users WHERE users.username = $1");
    CREDENTIALS = concat!("SELECT ", user_columns!(), ", users.password_hash FROM users WHERE users.username = $1");
    PAGE = concat!("SELECT ", user_columns!(), " FROM users
        WHERE users.username > COALESCE(CAST($1 AS TEXT), '') ORDER BY users.username LIMIT $2");
    SET_STATE = "UPDATE users SET state = $1 WHERE id = $2";
    SET_ROLE = "UPDATE users SET role = $1 WHERE id = $2";
    SET_PASSWORD_HASH = "UPDATE users SET password_hash = $1 WHERE id = $2";
    REHASH = "UPDATE users SET password_hash = $1 WHERE id = $2 AND password_hash = $3";
    NEXT_EPOCH = "UPDATE users SET access_epoch = access_epoch + 1 WHERE id = $1";
    /// Changes nothing and holds the row until the end of the transaction: whoever voids access comes before or after.
    HOLD_EPOCH = "UPDATE users SET access_epoch = access_epoch WHERE id = $1 AND access_epoch = $2 AND state = 'active'";
    COUNT_ADMINS = "SELECT COUNT(*) FROM users WHERE role = 'admin' AND state = 'active'";
    DELETE_APP_LOGINS = "DELETE FROM app_logins WHERE user_id = $1";
    DELETE_HANDOVERS = "DELETE FROM handovers WHERE user_id = $1";
    DELETE_LOGINS = "DELETE FROM logins WHERE user_id = $1";
    DELETE_TOKENS = "DELETE FROM tokens WHERE user_id = $1";
}

/// Ends all that lets a user in. The epoch comes first, because it holds the user's row; then the order is that of the foreign keys.
const VOID_ACCESS: [&str; 5] = [NEXT_EPOCH, DELETE_APP_LOGINS, DELETE_HANDOVERS, DELETE_LOGINS, DELETE_TOKENS];

/// A user as stored, under names that other nouns can join without a clash.
#[derive(FromRow)]
pub(crate) struct UserRow {
    user_id: String,
    username: String,
    user_role: String,
    user_state: String,
    user_uid: Option<i64>,
    user_created_at: i64,
    user_access_epoch: i64,
}

#[derive(FromRow)]
struct CredentialsRow {
    #[sqlx(flatten)]
    user: UserRow,
    password_hash: String,
}

impl UserRow {
    pub(crate) fn into_user(self) -> Result<User, DbError> {
        let place = Place { table: "users", row: &self.user_id };
        Ok(User {
            id: place.text("id", &self.user_id)?,
            username: place.text("username", &self.username)?,
            role: place.text("role", &self.user_role)?,
            state: place.text("state", &self.user_state)?,
            uid: self.user_uid.map(|uid| place.number("uid", uid)).transpose()?,
            created_at: place.time("created_at", self.user_created_at)?,
            access_epoch: self.user_access_epoch,
        })
    }
}

impl Db {
    /// Adds a user; `Conflict` when the name is taken.
    pub async fn insert_user(&self, user: &User, password_hash: &str, audit: &AuditEntry) -> Result<(), DbError> {
        in_transaction!(self, tx => {
            sqlx::query(INSERT)
                .bind(user.id.to_string())
                .bind(user.username.as_str())
                .bind(password_hash)
                .bind(user.role.as_str())
                .bind(user.state.as_str())
                .bind(user.uid.map(i64::from))
                .bind(micros(user.created_at))
                .execute(&mut *tx).await
                .map_err(DbError::conflict("user"))?;
            append!(&mut *tx, audit)?;
            Ok::<(), DbError>(())
        })
    }

    /// A user by id.
    pub async fn user(&self, id: UserId) -> Result<Option<User>, DbError> {
        let row: Option<UserRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(UserRow::into_user).transpose()
    }

    /// A user by name.
    pub async fn user_by_name(&self, name: &Username) -> Result<Option<User>, DbError> {
        let row: Option<UserRow> =
            on_db!(self, pool => sqlx::query_as(BY_NAME).bind(name.as_str()).fetch_optional(pool).await)?;
        row.map(UserRow::into_user).transpose()
    }

    /// The names of users by their POSIX user ids, of those who are users. Of several with one id it is the first name.
    pub async fn usernames(&self, uids: &[u32]) -> Result<BTreeMap<u32, Username>, DbError> {
        let mut names = BTreeMap::new();
        if uids.is_empty() {
            return Ok(names);
        }
        let uids: Vec<i64> = uids.iter().copied().map(i64::from).collect();
        for (uid, name) in dialect::usernames(self, uids).await? {
            let place = Place { table: "users", row: &name };
            names.entry(place.number("uid", uid)?).or_insert(place.text("username", &name)?);
        }
        Ok(names)
    }

    /// A user and the hash of the password, disabled users too.
    pub async fn user_credentials(&self, name: &Username) -> Result<Option<(User, String)>, DbError> {
        let row: Option<CredentialsRow> =
            on_db!(self, pool => sqlx::query_as(CREDENTIALS).bind(name.as_str()).fetch_optional(pool).await)?;
        row.map(|row| Ok((row.user.into_user()?, row.password_hash))).transpose()
    }

    /// Users by name, from after the name `cursor` on.
    pub async fn users(&self, cursor: Option<String>, limit: u32) -> Result<Vec<User>, DbError> {
        let rows: Vec<UserRow> = on_db!(self, pool =>
            sqlx::query_as(PAGE).bind(cursor).bind(i64::from(limit)).fetch_all(pool).await)?;
        rows.into_iter().map(UserRow::into_user).collect()
    }

    /// Enables or disables a user; disabling voids all access in the same transaction. False when there is no such user.
    pub async fn set_user_state(&self, id: UserId, state: UserState, audit: &AuditEntry) -> Result<bool, DbError> {
        let id = id.to_string();
        in_transaction!(self, tx => {
            let done = sqlx::query(SET_STATE).bind(state.as_str()).bind(id.as_str()).execute(&mut *tx).await?;
            if state == UserState::Disabled {
                for statement in VOID_ACCESS {
                    sqlx::query(statement).bind(id.as_str()).execute(&mut *tx).await?;
                }
            }
            if done.rows_affected() > 0 {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(done.rows_affected() > 0)
        })
    }

    /// Gives a user another role; every request reads it anew, so access stays. False when there is no such user.
    pub async fn set_user_role(&self, id: UserId, role: Role) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(SET_ROLE)
            .bind(role.as_str()).bind(id.to_string()).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// Gives a user another password and ends all access that the old one gave. With `epoch`, only when nothing was voided since the user
    /// was read in it: whoever changes a password must not take back what an admin has set meanwhile. False when nothing was changed.
    pub async fn replace_password(
        &self,
        id: UserId,
        hash: &str,
        epoch: Option<i64>,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        let id = id.to_string();
        in_transaction!(self, tx => {
            let held = match epoch {
                Some(epoch) => {
                    let held = sqlx::query(HOLD_EPOCH).bind(id.as_str()).bind(epoch).execute(&mut *tx).await?;
                    held.rows_affected() > 0
                }
                None => true,
            };
            let mut changed = false;
            if held {
                let done = sqlx::query(SET_PASSWORD_HASH).bind(hash).bind(id.as_str()).execute(&mut *tx).await?;
                changed = done.rows_affected() > 0;
                for statement in VOID_ACCESS {
                    sqlx::query(statement).bind(id.as_str()).execute(&mut *tx).await?;
                }
                if changed {
                    append!(&mut *tx, audit)?;
                }
            }
            Ok::<bool, DbError>(changed)
        })
    }

    /// Stores a better hash of the same password; access stays. False when the password has changed since `old` was read.
    pub async fn rehash_password(&self, id: UserId, old: &str, new: &str) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(REHASH)
            .bind(new).bind(id.to_string()).bind(old).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// How many admins there are who may sign in.
    pub async fn count_admins(&self) -> Result<i64, DbError> {
        Ok(on_db!(self, pool => sqlx::query_scalar(COUNT_ADMINS).fetch_one(pool).await)?)
    }
}
