//! API tokens.

use eirene_core::audit::AuditEntry;
use eirene_core::secret::SecretHash;
use eirene_core::{ApiToken, TokenId, User, UserId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, micros};
use crate::users::{HOLD_EPOCH, UserRow, user_columns};

statements! {
    INSERT = "INSERT INTO tokens (id, secret_hash, user_id, name, scopes, created_at, expires_at, last_used_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    BY_HASH = concat!("SELECT tokens.id, tokens.name, tokens.scopes, tokens.created_at, tokens.expires_at,
            tokens.last_used_at, ", user_columns!(), "
        FROM tokens JOIN users ON users.id = tokens.user_id
        WHERE tokens.secret_hash = $1 AND (tokens.expires_at IS NULL OR tokens.expires_at > $2)
            AND users.state = 'active'");
    OF_USER = concat!("SELECT tokens.id, tokens.name, tokens.scopes, tokens.created_at, tokens.expires_at,
            tokens.last_used_at, ", user_columns!(), "
        FROM tokens JOIN users ON users.id = tokens.user_id
        WHERE tokens.user_id = $1 ORDER BY tokens.id DESC");
    TOUCH = "UPDATE tokens SET last_used_at = $1 WHERE id = $2 AND (last_used_at IS NULL OR last_used_at < $1)";
    DELETE = "DELETE FROM tokens WHERE user_id = $1 AND id = $2";
}

#[derive(FromRow)]
struct TokenRow {
    id: String,
    name: String,
    scopes: String,
    created_at: i64,
    expires_at: Option<i64>,
    last_used_at: Option<i64>,
    #[sqlx(flatten)]
    user: UserRow,
}

impl TokenRow {
    fn into_token(self) -> Result<(ApiToken, User), DbError> {
        let user = self.user.into_user()?;
        let place = Place { table: "tokens", row: &self.id };
        let token = ApiToken {
            id: place.text("id", &self.id)?,
            user: user.id,
            scopes: place.json("scopes", &self.scopes)?,
            created_at: place.time("created_at", self.created_at)?,
            expires_at: place.maybe_time("expires_at", self.expires_at)?,
            last_used_at: place.maybe_time("last_used_at", self.last_used_at)?,
            name: self.name,
        };
        Ok((token, user))
    }
}

impl Db {
    /// Adds a token under its hash. False, and nothing is added, when access was voided since the user was read in `epoch`.
    pub async fn insert_token(
        &self,
        epoch: i64,
        token: &ApiToken,
        secret: &SecretHash,
        audit: &AuditEntry,
    ) -> Result<bool, DbError> {
        let user = token.user.to_string();
        let scopes = serde_json::to_string(&token.scopes).map_err(DbError::encode)?;
        in_transaction!(self, tx => {
            let held = sqlx::query(HOLD_EPOCH).bind(user.as_str()).bind(epoch).execute(&mut *tx).await?.rows_affected() > 0;
            if held {
                sqlx::query(INSERT)
                    .bind(token.id.to_string())
                    .bind(secret.as_str())
                    .bind(user.as_str())
                    .bind(token.name.as_str())
                    .bind(scopes.as_str())
                    .bind(micros(token.created_at))
                    .bind(maybe_micros(token.expires_at))
                    .bind(maybe_micros(token.last_used_at))
                    .execute(&mut *tx).await
                    .map_err(DbError::conflict("token"))?;
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(held)
        })
    }

    /// A token that is not over, by its hash, with its user; none while the user is disabled.
    pub async fn token_by_hash(
        &self,
        secret: &SecretHash,
        now: Timestamp,
    ) -> Result<Option<(ApiToken, User)>, DbError> {
        let row: Option<TokenRow> = on_db!(self, pool =>
            sqlx::query_as(BY_HASH).bind(secret.as_str()).bind(micros(now)).fetch_optional(pool).await)?;
        row.map(TokenRow::into_token).transpose()
    }

    /// A user's tokens, newest first.
    pub async fn tokens_of(&self, user: UserId) -> Result<Vec<ApiToken>, DbError> {
        let rows: Vec<TokenRow> =
            on_db!(self, pool => sqlx::query_as(OF_USER).bind(user.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(|row| Ok(row.into_token()?.0)).collect()
    }

    /// Notes that a token was used.
    pub async fn touch_token(&self, id: TokenId, now: Timestamp) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(TOUCH).bind(micros(now)).bind(id.to_string()).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Ends a token of this user. False when the user has no such token.
    pub async fn delete_token(&self, user: UserId, id: TokenId, audit: &AuditEntry) -> Result<bool, DbError> {
        in_transaction!(self, tx => {
            let done = sqlx::query(DELETE).bind(user.to_string()).bind(id.to_string()).execute(&mut *tx).await?;
            if done.rows_affected() > 0 {
                append!(&mut *tx, audit)?;
            }
            Ok::<bool, DbError>(done.rows_affected() > 0)
        })
    }
}
