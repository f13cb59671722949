//! Sessions and runs. Whoever changes one reads it, changes the copy and writes it back; the version tells whether somebody else was faster.

use eirene_core::audit::AuditEntry;
use eirene_core::{JobKind, Session, SessionId, UserId};

use crate::audit::append;
use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, maybe_micros, micros};
use crate::session_row::{SessionRow, session_columns};

/// Everything up to the condition. The literal condition for live sessions is that of the partial index.
macro_rules! select {
    ($($rest:expr),*) => {
        concat!("SELECT ", session_columns!(), " FROM sessions JOIN users ON users.id = sessions.owner_id ", $($rest),*)
    };
}

macro_rules! live {
    () => {
        "sessions.state NOT IN ('ended', 'failed')"
    };
}

// The literal conditions that tell runs from sessions are those of the partial indexes.
macro_rules! session {
    () => {
        "sessions.program IS NULL"
    };
}

macro_rules! run {
    () => {
        "sessions.program IS NOT NULL"
    };
}

// `g` comes after every id.
macro_rules! page {
    () => {
        " AND sessions.id < COALESCE(CAST($1 AS TEXT), 'g') ORDER BY sessions.id DESC LIMIT $2"
    };
}

statements! {
    INSERT = "INSERT INTO sessions (id, owner_id, owner_uid, name, app, image, image_path, project, partition_name,
            node_count, cpus, memory_mib, gpus, gpu_type, walltime_min, desired, state, undetermined, reason_code,
            reason_text, marker, submit_begun_at, job_cluster, job_id, job_submitted_at, restart_count, nodes,
            start_estimate, created_at, started_at, ends_at, ended_at, version, idempotency_key, body_hash, program,
            requeue_of, exit_status, scratch, scratch_state)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
            $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40)";
    /// Changes nothing and holds the owner's row until the end of the transaction, so that starts of one person come one after the other.
    HOLD_OWNER = "UPDATE users SET access_epoch = access_epoch WHERE id = $1";
    // The literal conditions are those of the partial index.
    COUNT_LIVE_SESSIONS = concat!("SELECT COUNT(*) FROM sessions WHERE sessions.owner_id = $1 AND sessions.id <> $2 AND ",
        session!(), " AND ", live!());
    COUNT_LIVE_RUNS = concat!("SELECT COUNT(*) FROM sessions WHERE sessions.owner_id = $1 AND sessions.id <> $2 AND ",
        run!(), " AND ", live!());
    LATER_ID = "SELECT id FROM sessions WHERE requeue_of = $1";
    BODY_HASH_BY_KEY = "SELECT id, body_hash FROM sessions WHERE owner_id = $1 AND idempotency_key = $2";
    BY_ID = select!("WHERE sessions.id = $1");
    BY_MARKER = select!("WHERE sessions.marker = $1");
    PAGE = select!("WHERE ", session!(), page!());
    LIVE_PAGE = select!("WHERE ", session!(), " AND ", live!(), page!());
    PAGE_OF_OWNER = select!("WHERE sessions.owner_id = $3 AND ", session!(), page!());
    LIVE_PAGE_OF_OWNER = select!("WHERE sessions.owner_id = $3 AND ", session!(), " AND ", live!(), page!());
    RUNS = select!("WHERE ", run!(), page!());
    LIVE_RUNS = select!("WHERE ", run!(), " AND ", live!(), page!());
    RUNS_OF_OWNER = select!("WHERE sessions.owner_id = $3 AND ", run!(), page!());
    LIVE_RUNS_OF_OWNER = select!("WHERE sessions.owner_id = $3 AND ", run!(), " AND ", live!(), page!());
    REQUEUED_AS = select!("WHERE sessions.requeue_of = $1");
    /// All that a run repeats, through any number of requeues, and of these the oldest that is not over.
    LIVE_BEFORE = concat!("WITH RECURSIVE earlier (id, requeue_of, state) AS (
            SELECT sessions.id, sessions.requeue_of, sessions.state FROM sessions
            WHERE sessions.id = (SELECT later.requeue_of FROM sessions AS later WHERE later.id = $1)
            UNION
            SELECT sessions.id, sessions.requeue_of, sessions.state
            FROM sessions JOIN earlier ON sessions.id = earlier.requeue_of)
        SELECT ", session_columns!(), " FROM earlier JOIN sessions ON sessions.id = earlier.id
            JOIN users ON users.id = sessions.owner_id
        WHERE ", live!(), " ORDER BY sessions.id LIMIT 1");
    LIVE = select!("WHERE ", live!(), " ORDER BY sessions.id");
    LIVE_OF = select!("WHERE sessions.owner_id = $1 AND ", live!(), " ORDER BY sessions.id");
    // The literal condition is that of the partial index.
    WITH_SCRATCH_LEFT = select!("WHERE sessions.scratch_left ORDER BY sessions.id LIMIT $1");
    UPDATE = "UPDATE sessions SET name = $1, desired = $2, state = $3, undetermined = $4, reason_code = $5,
            reason_text = $6, submit_begun_at = $7, job_cluster = $8, job_id = $9, job_submitted_at = $10,
            restart_count = $11, nodes = $12, start_estimate = $13, started_at = $14, ends_at = $15, ended_at = $16,
            exit_status = $17, scratch_state = $18, scratch_left = $19, version = version + 1
        WHERE id = $20 AND version = $21";
}

/// What became of a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
pub enum Inserted {
    /// It is new.
    New,
    /// The same key came with the same body before; this is the session it made.
    Existing(Session),
    /// The key came before with another body.
    KeyConflict,
    /// The run that it repeats has been repeated, by this one.
    Requeued(SessionId),
    /// The owner has as many as they may.
    TooMany,
}

/// What goes along with a new session, in one transaction with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start<'a> {
    /// The hash of the key that the owner's program chose, and the hash of its request: of several calls with one key, also at the same moment,
    /// one makes a session and the others find it.
    pub idempotency: Option<(&'a str, &'a str)>,
    /// How many sessions the owner may have that are not over, or runs if it is one. The one that a run repeats makes room for it.
    pub most_live: Option<u32>,
    /// Its line in the audit log.
    pub audit: Option<&'a AuditEntry>,
}

/// What an insert did.
enum Done<'a> {
    Made,
    /// Nothing: the key was there; with the hash of the body that came now.
    Before(&'a str, &'a str),
    /// Nothing: what it repeats has been repeated, by this one.
    Requeued(String),
    TooMany,
}

/// Which sessions to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    /// All.
    All,
    /// Those that are not over.
    Live,
}

impl Db {
    /// Adds a session, where its owner may have one more.
    pub async fn insert_session(&self, session: &Session, start: Start<'_>) -> Result<Inserted, DbError> {
        let nodes = serde_json::to_string(&session.nodes).map_err(DbError::encode)?;
        let program = session.program.as_ref().map(serde_json::to_string).transpose().map_err(DbError::encode)?;
        let scratch = session.scratch.as_ref().map(serde_json::to_string).transpose().map_err(DbError::encode)?;
        let scratch_state = state_of_scratch(session)?;
        let memory_mib = i64::try_from(session.resources.memory_mib).unwrap_or(i64::MAX);
        let owner = session.owner.to_string();
        let repeated = session.requeue_of.map(|id| id.to_string());
        let count = match session.kind() {
            JobKind::Session => COUNT_LIVE_SESSIONS,
            JobKind::Run => COUNT_LIVE_RUNS,
        };
        let done: Result<Done<'_>, DbError> = in_transaction!(self, tx => {
            sqlx::query(HOLD_OWNER).bind(owner.as_str()).execute(&mut *tx).await?;
            let before = match start.idempotency {
                Some((key, body)) => {
                    let known: Option<(String, Option<String>)> =
                        sqlx::query_as(BODY_HASH_BY_KEY).bind(owner.as_str()).bind(key).fetch_optional(&mut *tx).await?;
                    known.map(|_| (key, body))
                }
                None => None,
            };
            let later: Option<String> = match &repeated {
                Some(repeated) => {
                    sqlx::query_scalar(LATER_ID).bind(repeated.as_str()).fetch_optional(&mut *tx).await?
                }
                None => None,
            };
            let has_most = match start.most_live {
                Some(most) => {
                    let live: i64 = sqlx::query_scalar(count)
                        .bind(owner.as_str())
                        .bind(repeated.as_deref().unwrap_or_default())
                        .fetch_one(&mut *tx).await?;
                    live >= i64::from(most)
                }
                None => false,
            };
            let done = if let Some((key, body)) = before {
                Done::Before(key, body)
            } else if let Some(later) = later {
                Done::Requeued(later)
            } else if has_most {
                Done::TooMany
            } else {
                sqlx::query(INSERT)
                    .bind(session.id.to_string())
                    .bind(session.owner.to_string())
                    .bind(i64::from(session.owner_uid))
                    .bind(session.name.as_str())
                    .bind(session.app.as_str())
                    .bind(session.image.as_str())
                    .bind(session.image_path.as_str())
                    .bind(session.project.as_ref().map(AsRef::<str>::as_ref))
                    .bind(session.resources.partition.as_ref().map(AsRef::<str>::as_ref))
                    .bind(i64::from(session.resources.nodes))
                    .bind(i64::from(session.resources.cpus))
                    .bind(memory_mib)
                    .bind(i64::from(session.resources.gpus))
                    .bind(session.resources.gpu_type.as_ref().map(AsRef::<str>::as_ref))
                    .bind(i64::from(session.resources.walltime_min))
                    .bind(session.desired.as_str())
                    .bind(session.state.as_str())
                    .bind(session.undetermined)
                    .bind(session.reason.as_ref().map(|reason| reason.code.as_str()))
                    .bind(session.reason.as_ref().map(|reason| reason.text.as_str()))
                    .bind(session.marker.as_str())
                    .bind(maybe_micros(session.submit_begun_at))
                    .bind(session.job.as_ref().map(|job| job.cluster.as_str()))
                    .bind(session.job.as_ref().map(|job| i64::from(job.id)))
                    .bind(session.job.as_ref().map(|job| micros(job.submitted_at)))
                    .bind(i64::from(session.restart_count))
                    .bind(nodes.as_str())
                    .bind(maybe_micros(session.start_estimate))
                    .bind(micros(session.created_at))
                    .bind(maybe_micros(session.started_at))
                    .bind(maybe_micros(session.ends_at))
                    .bind(maybe_micros(session.ended_at))
                    .bind(session.version)
                    .bind(start.idempotency.map(|(key, _)| key))
                    .bind(start.idempotency.map(|(_, body)| body))
                    .bind(program.as_deref())
                    .bind(session.requeue_of.map(|id| id.to_string()))
                    .bind(session.exit_status.map(i64::from))
                    .bind(scratch.as_deref())
                    .bind(scratch_state.as_deref())
                    .execute(&mut *tx).await
                    .map_err(DbError::conflict("session"))?;
                if let Some(entry) = start.audit {
                    append!(&mut *tx, entry)?;
                }
                Done::Made
            };
            Ok::<Done<'_>, DbError>(done)
        });
        match done? {
            Done::Made => Ok(Inserted::New),
            Done::Before(key, body) => self.made_before(session.owner, key, body).await,
            Done::Requeued(id) => Ok(Inserted::Requeued(Place { table: "sessions", row: &id }.text("id", &id)?)),
            Done::TooMany => Ok(Inserted::TooMany),
        }
    }

    /// The session that was made with the same key. Sessions are never deleted and keys never change, so it is there.
    async fn made_before(&self, owner: UserId, key: &str, body: &str) -> Result<Inserted, DbError> {
        let (id, body_hash): (String, Option<String>) = on_db!(self, pool => sqlx::query_as(BODY_HASH_BY_KEY)
            .bind(owner.to_string()).bind(key).fetch_one(pool).await)?;
        if body_hash.as_deref() != Some(body) {
            return Ok(Inserted::KeyConflict);
        }
        let row: SessionRow = on_db!(self, pool => sqlx::query_as(BY_ID).bind(id).fetch_one(pool).await)?;
        Ok(Inserted::Existing(row.into_session()?))
    }

    /// What an owner's idempotency key has made before; `None` when the key is new. Read-only, so it may be asked before anything is checked.
    pub async fn session_by_key(
        &self,
        owner: UserId,
        key_hash: &str,
        body_hash: &str,
    ) -> Result<Option<Inserted>, DbError> {
        let made: Option<(String, Option<String>)> = on_db!(self, pool => sqlx::query_as(BODY_HASH_BY_KEY)
            .bind(owner.to_string()).bind(key_hash).fetch_optional(pool).await)?;
        match made {
            None => Ok(None),
            Some(_) => self.made_before(owner, key_hash, body_hash).await.map(Some),
        }
    }

    /// A session by id.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, DbError> {
        let row: Option<SessionRow> =
            on_db!(self, pool => sqlx::query_as(BY_ID).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(SessionRow::into_session).transpose()
    }

    /// A session by its marker.
    pub async fn session_by_marker(&self, marker: &str) -> Result<Option<Session>, DbError> {
        let row: Option<SessionRow> =
            on_db!(self, pool => sqlx::query_as(BY_MARKER).bind(marker).fetch_optional(pool).await)?;
        row.map(SessionRow::into_session).transpose()
    }

    /// Sessions, or runs, of one owner or of everybody, newest first, from after the one with the id `cursor` on.
    pub async fn sessions_of(
        &self,
        kind: JobKind,
        owner: Option<UserId>,
        filter: StateFilter,
        cursor: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Session>, DbError> {
        use StateFilter::{All, Live};
        let cursor = cursor.map(|id| id.to_string());
        let limit = i64::from(limit);
        let rows: Vec<SessionRow> = if let Some(owner) = owner {
            let statement = match (kind, filter) {
                (JobKind::Session, All) => PAGE_OF_OWNER,
                (JobKind::Session, Live) => LIVE_PAGE_OF_OWNER,
                (JobKind::Run, All) => RUNS_OF_OWNER,
                (JobKind::Run, Live) => LIVE_RUNS_OF_OWNER,
            };
            let owner = owner.to_string();
            on_db!(self, pool => sqlx::query_as(statement).bind(cursor).bind(limit).bind(owner).fetch_all(pool).await)?
        } else {
            let statement = match (kind, filter) {
                (JobKind::Session, All) => PAGE,
                (JobKind::Session, Live) => LIVE_PAGE,
                (JobKind::Run, All) => RUNS,
                (JobKind::Run, Live) => LIVE_RUNS,
            };
            on_db!(self, pool => sqlx::query_as(statement).bind(cursor).bind(limit).fetch_all(pool).await)?
        };
        rows.into_iter().map(SessionRow::into_session).collect()
    }

    /// The run that repeats `id`, if one does: there is one at most.
    pub async fn requeued_as(&self, id: SessionId) -> Result<Option<Session>, DbError> {
        let row: Option<SessionRow> =
            on_db!(self, pool => sqlx::query_as(REQUEUED_AS).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(SessionRow::into_session).transpose()
    }

    /// The oldest of the runs that `id` repeats, through any number of requeues, that is not over.
    pub async fn live_before(&self, id: SessionId) -> Result<Option<Session>, DbError> {
        let row: Option<SessionRow> =
            on_db!(self, pool => sqlx::query_as(LIVE_BEFORE).bind(id.to_string()).fetch_optional(pool).await)?;
        row.map(SessionRow::into_session).transpose()
    }

    /// All sessions and runs that are not over, oldest first.
    pub async fn live_sessions(&self) -> Result<Vec<Session>, DbError> {
        let rows: Vec<SessionRow> = on_db!(self, pool => sqlx::query_as(LIVE).fetch_all(pool).await)?;
        rows.into_iter().map(SessionRow::into_session).collect()
    }

    /// The sessions and runs of one person that are not over, oldest first.
    pub async fn live_sessions_of(&self, owner: UserId) -> Result<Vec<Session>, DbError> {
        let rows: Vec<SessionRow> =
            on_db!(self, pool => sqlx::query_as(LIVE_OF).bind(owner.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(SessionRow::into_session).collect()
    }

    /// Sessions and runs that are over and have something in their scratch that is to be brought back or told of, oldest first.
    pub async fn sessions_with_scratch_left(&self, limit: u32) -> Result<Vec<Session>, DbError> {
        let rows: Vec<SessionRow> = on_db!(self, pool =>
            sqlx::query_as(WITH_SCRATCH_LEFT).bind(i64::from(limit)).fetch_all(pool).await)?;
        rows.into_iter().map(SessionRow::into_session).collect()
    }

    /// Writes a changed session back when its version is still the stored one, and counts the version up: the copy in the caller's hand has then
    /// the number before. False, with nothing changed, when somebody else was faster. What was asked for (a run's program and
    /// what it repeats too), the owner and the marker stay. With `audit` the change and its line in the audit log are one.
    pub async fn update_session(&self, session: &Session, audit: Option<&AuditEntry>) -> Result<bool, DbError> {
        let nodes = serde_json::to_string(&session.nodes).map_err(DbError::encode)?;
        let scratch_state = state_of_scratch(session)?;
        macro_rules! update {
            ($executor:expr) => {
                sqlx::query(UPDATE)
                    .bind(session.name.as_str())
                    .bind(session.desired.as_str())
                    .bind(session.state.as_str())
                    .bind(session.undetermined)
                    .bind(session.reason.as_ref().map(|reason| reason.code.as_str()))
                    .bind(session.reason.as_ref().map(|reason| reason.text.as_str()))
                    .bind(maybe_micros(session.submit_begun_at))
                    .bind(session.job.as_ref().map(|job| job.cluster.as_str()))
                    .bind(session.job.as_ref().map(|job| i64::from(job.id)))
                    .bind(session.job.as_ref().map(|job| micros(job.submitted_at)))
                    .bind(i64::from(session.restart_count))
                    .bind(nodes.as_str())
                    .bind(maybe_micros(session.start_estimate))
                    .bind(maybe_micros(session.started_at))
                    .bind(maybe_micros(session.ends_at))
                    .bind(maybe_micros(session.ended_at))
                    .bind(session.exit_status.map(i64::from))
                    .bind(scratch_state.as_deref())
                    .bind(session.has_scratch_left())
                    .bind(session.id.to_string())
                    .bind(session.version)
                    .execute($executor)
                    .await
                    .map(|done| done.rows_affected() > 0)
            };
        }
        let Some(entry) = audit else { return Ok(on_db!(self, pool => update!(pool))?) };
        in_transaction!(self, tx => {
            let changed = update!(&mut *tx)?;
            if changed {
                append!(&mut *tx, entry)?;
            }
            Ok::<bool, DbError>(changed)
        })
    }
}

fn state_of_scratch(session: &Session) -> Result<Option<String>, DbError> {
    session.scratch_state.as_ref().map(serde_json::to_string).transpose().map_err(DbError::encode)
}
