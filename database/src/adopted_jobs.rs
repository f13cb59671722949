//! Jobs that carry our mark but have no session here: a database from before they were submitted was restored. They are shown, never cancelled.

use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros};

statements! {
    UPSERT = "INSERT INTO adopted_jobs (marker, cluster, job_id, uid, seen_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (marker, cluster, job_id) DO UPDATE SET uid = excluded.uid, seen_at = excluded.seen_at";
    ALL = "SELECT marker, cluster, job_id, uid, seen_at FROM adopted_jobs ORDER BY cluster, job_id, marker";
    DELETE = "DELETE FROM adopted_jobs WHERE marker = $1";
}

/// A job that was adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedJob {
    /// Its name, which looks like a marker of ours; anyone may have given it that name.
    pub marker: String,
    /// Cluster.
    pub cluster: String,
    /// Job number.
    pub job_id: u32,
    /// POSIX user id of its owner.
    pub uid: u32,
    /// When it was last seen.
    pub seen_at: Timestamp,
}

#[derive(FromRow)]
struct AdoptedRow {
    marker: String,
    cluster: String,
    job_id: i64,
    uid: i64,
    seen_at: i64,
}

impl AdoptedRow {
    fn into_job(self) -> Result<AdoptedJob, DbError> {
        let place = Place { table: "adopted_jobs", row: &self.marker };
        Ok(AdoptedJob {
            job_id: place.number("job_id", self.job_id)?,
            uid: place.number("uid", self.uid)?,
            seen_at: place.time("seen_at", self.seen_at)?,
            cluster: self.cluster,
            marker: self.marker,
        })
    }
}

impl Db {
    /// Notes that such a job was seen.
    pub async fn upsert_adopted(
        &self,
        marker: &str,
        cluster: &str,
        job_id: u32,
        uid: u32,
        seen_at: Timestamp,
    ) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(UPSERT)
            .bind(marker)
            .bind(cluster)
            .bind(i64::from(job_id))
            .bind(i64::from(uid))
            .bind(micros(seen_at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// All adopted jobs.
    pub async fn adopted_jobs(&self) -> Result<Vec<AdoptedJob>, DbError> {
        let rows: Vec<AdoptedRow> = on_db!(self, pool => sqlx::query_as(ALL).fetch_all(pool).await)?;
        rows.into_iter().map(AdoptedRow::into_job).collect()
    }

    /// Forgets the adopted jobs of this name. False when there was none.
    pub async fn delete_adopted(&self, marker: &str) -> Result<bool, DbError> {
        let deleted = on_db!(self, pool =>
            sqlx::query(DELETE).bind(marker).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(deleted > 0)
    }
}
