//! What the agent of a session proves itself with.
//!
//! Each run of a job (its restart count tells them apart) has a secret. The agent exchanges it for a tunnel key, which is *pending* until the
//! agent has shown that it holds it; as often as the answer is lost it may exchange again, and gets a new pending key each time. With the
//! confirmation the key takes the secret's place. A requeue brings a higher count and a new secret, and voids everything of the run before.

use eirene_core::SessionId;
use eirene_core::secret::SecretHash;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::Place;

statements! {
    SET_SECRET = "INSERT INTO job_credentials (session_id, restart_count, secret_hash) VALUES ($1, $2, $3)
        ON CONFLICT (session_id) DO UPDATE SET restart_count = excluded.restart_count,
            secret_hash = excluded.secret_hash, tunnel_key_hash = NULL, pending_key_hash = NULL
        WHERE job_credentials.restart_count <= excluded.restart_count";
    OF_SESSION = "SELECT restart_count, secret_hash, tunnel_key_hash, pending_key_hash
        FROM job_credentials WHERE session_id = $1";
    SET_PENDING = "UPDATE job_credentials SET pending_key_hash = $1
        WHERE session_id = $2 AND restart_count = $3 AND secret_hash IS NOT NULL";
    CONFIRM = "UPDATE job_credentials SET tunnel_key_hash = $1, pending_key_hash = NULL, secret_hash = NULL
        WHERE session_id = $2 AND restart_count = $3 AND (pending_key_hash = $1 OR tunnel_key_hash = $1)";
}

/// The hashes of what an agent may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentCredentials {
    /// The run they are for.
    pub restart_count: u32,
    /// The job's secret; none once a tunnel key is confirmed.
    pub secret_hash: Option<SecretHash>,
    /// The confirmed tunnel key.
    pub tunnel_key_hash: Option<SecretHash>,
    /// The tunnel key given out last and not yet confirmed.
    pub pending_key_hash: Option<SecretHash>,
}

#[derive(FromRow)]
struct CredentialsRow {
    restart_count: i64,
    secret_hash: Option<String>,
    tunnel_key_hash: Option<String>,
    pending_key_hash: Option<String>,
}

impl Db {
    /// Gives this run of a session's job its secret and voids what was there; false, with nothing changed, when a later run has one already.
    pub async fn set_job_secret(
        &self,
        session: SessionId,
        restart_count: u32,
        secret: &SecretHash,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(SET_SECRET)
            .bind(session.to_string())
            .bind(i64::from(restart_count))
            .bind(secret.as_str())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// What the agent of a session may show; none before the first secret.
    pub async fn agent_credentials(&self, session: SessionId) -> Result<Option<AgentCredentials>, DbError> {
        let id = session.to_string();
        let row: Option<CredentialsRow> =
            on_db!(self, pool => sqlx::query_as(OF_SESSION).bind(id.as_str()).fetch_optional(pool).await)?;
        let Some(row) = row else { return Ok(None) };
        let place = Place { table: "job_credentials", row: &id };
        Ok(Some(AgentCredentials {
            restart_count: place.number("restart_count", row.restart_count)?,
            secret_hash: row.secret_hash.map(SecretHash::from_stored),
            tunnel_key_hash: row.tunnel_key_hash.map(SecretHash::from_stored),
            pending_key_hash: row.pending_key_hash.map(SecretHash::from_stored),
        }))
    }

    /// Keeps a tunnel key given out for the secret of this run, in place of one given out before; false when the secret is void.
    pub async fn set_pending_tunnel_key(
        &self,
        session: SessionId,
        restart_count: u32,
        key: &SecretHash,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(SET_PENDING)
            .bind(key.as_str())
            .bind(session.to_string())
            .bind(i64::from(restart_count))
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }

    /// The agent has shown that it holds `key`: it becomes the tunnel key, the secret is void. Confirming again is true again; false for a
    /// key that another exchange or another run has replaced.
    pub async fn confirm_tunnel_key(
        &self,
        session: SessionId,
        restart_count: u32,
        key: &SecretHash,
    ) -> Result<bool, DbError> {
        let changed = on_db!(self, pool => sqlx::query(CONFIRM)
            .bind(key.as_str())
            .bind(session.to_string())
            .bind(i64::from(restart_count))
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(changed > 0)
    }
}
