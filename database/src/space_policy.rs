//! What policies go by and what they did: evidence, and a record of their looks. The rules are the services'.

use eirene_core::SpaceId;
use eirene_core::space::{Evidence, EvidenceKind, PolicyRun, PolicyStep};
use jiff::{SignedDuration, Timestamp};
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    /// A sight soon after the last counted one counts with it.
    NOTE = "INSERT INTO space_evidence (space_id, what, first_at, last_at, times) VALUES ($1, $2, $3, $3, 1)
        ON CONFLICT (space_id, what) DO UPDATE SET last_at = excluded.last_at, times = space_evidence.times + 1
        WHERE excluded.last_at - space_evidence.last_at >= $4";
    OF_SPACE = "SELECT what, first_at, last_at, times FROM space_evidence WHERE space_id = $1 ORDER BY what";
    FORGET = "DELETE FROM space_evidence WHERE space_id = $1 AND what = $2";
    RECORD = "INSERT INTO policy_runs (space_id, step, outcome, why, at) VALUES ($1, $2, $3, $4, $5)";
    RUNS = "SELECT id, step, outcome, why, at FROM policy_runs
        WHERE space_id = $1 ORDER BY id DESC LIMIT $2";
    PRUNE = "DELETE FROM policy_runs WHERE at < $1";
}

#[derive(FromRow)]
struct EvidenceRow {
    what: String,
    first_at: i64,
    last_at: i64,
    times: i64,
}

#[derive(FromRow)]
struct RunRow {
    id: i64,
    step: Option<String>,
    outcome: String,
    why: String,
    at: i64,
}

impl RunRow {
    fn into_run(self) -> Result<PolicyRun, DbError> {
        let row = self.id.to_string();
        let place = Place { table: "policy_runs", row: &row };
        Ok(PolicyRun {
            step: place.maybe_text("step", self.step.as_deref())?,
            outcome: place.text("outcome", &self.outcome)?,
            at: place.time("at", self.at)?,
            why: self.why,
        })
    }
}

impl Db {
    /// Notes that something was seen of a space. It counts when the last counted sight is at least `apart` ago.
    pub async fn note_evidence(
        &self,
        space: SpaceId,
        what: EvidenceKind,
        at: Timestamp,
        apart: SignedDuration,
    ) -> Result<(), DbError> {
        let apart = i64::try_from(apart.as_micros()).unwrap_or(i64::MAX);
        on_db!(self, pool => sqlx::query(NOTE)
            .bind(space.to_string())
            .bind(what.as_str())
            .bind(micros(at))
            .bind(apart)
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// What was seen of a space.
    pub async fn evidence(&self, space: SpaceId) -> Result<Vec<Evidence>, DbError> {
        let id = space.to_string();
        let rows: Vec<EvidenceRow> =
            on_db!(self, pool => sqlx::query_as(OF_SPACE).bind(id.as_str()).fetch_all(pool).await)?;
        let place = Place { table: "space_evidence", row: &id };
        rows.into_iter()
            .map(|row| {
                Ok(Evidence {
                    what: place.text("what", &row.what)?,
                    first_at: place.time("first_at", row.first_at)?,
                    last_at: place.time("last_at", row.last_at)?,
                    times: place.number("times", row.times)?,
                })
            })
            .collect()
    }

    /// Forgets what is not so any more: the next sight begins anew.
    pub async fn forget_evidence(&self, space: SpaceId, what: EvidenceKind) -> Result<(), DbError> {
        on_db!(self, pool =>
            sqlx::query(FORGET).bind(space.to_string()).bind(what.as_str()).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Records a look of a policy.
    pub async fn record_policy_run(&self, space: SpaceId, run: &PolicyRun) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(RECORD)
            .bind(space.to_string())
            .bind(run.step.map(PolicyStep::as_str))
            .bind(run.outcome.as_str())
            .bind(run.why.as_str())
            .bind(micros(run.at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The last looks of policies at a space, newest first.
    pub async fn policy_runs(&self, space: SpaceId, limit: u32) -> Result<Vec<PolicyRun>, DbError> {
        let rows: Vec<RunRow> = on_db!(self, pool => sqlx::query_as(RUNS)
            .bind(space.to_string())
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(RunRow::into_run).collect()
    }

    /// Removes records of looks before `before`.
    pub async fn prune_policy_runs(&self, before: Timestamp) -> Result<u64, DbError> {
        Ok(on_db!(self, pool =>
            sqlx::query(PRUNE).bind(micros(before)).execute(pool).await.map(|done| done.rows_affected()))?)
    }
}
