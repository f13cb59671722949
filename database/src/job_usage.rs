//! What sessions and runs held and used of the cluster: one row for each of their starts, and sums over them.

use eirene_core::job_usage::{GpuTime, HeldUsed, JobStart, JobUsage, MeasuredJob, UsageBy, UsageSums, Waste};
use eirene_core::{Session, SessionId};
use jiff::Timestamp;
use sqlx::FromRow;

use crate::db::Db;
use crate::error::DbError;
use crate::row::{Place, micros, signed};
use crate::session_row::{SessionRow, session_columns};

macro_rules! usage_columns {
    () => {
        "job_usage.session_id, job_usage.start_count, job_usage.began_at, job_usage.partition_name AS ran_on, job_usage.until, \
         job_usage.is_final, job_usage.wall_s, \
         job_usage.cpu_held_s, job_usage.cpu_used_s, job_usage.memory_held_mib, job_usage.memory_most_mib, \
         job_usage.gpu_held_s, job_usage.gpu_known_s, job_usage.gpu_busy_s, job_usage.gpu_idle_s, job_usage.gpu_empty_s"
    };
}

/// One row for each session, of all its starts for which a condition holds. It runs in the same partition each time, unless an operator has moved it:
/// then all of it counts in one of them.
macro_rules! of_starts {
    ($condition:literal) => {
        concat!(
            "(SELECT session_id, MAX(restart_count) AS start_count, MIN(started_at) AS began_at,
                MAX(partition_name) AS partition_name, MAX(until) AS until,
                MIN(CASE WHEN is_final THEN 1 ELSE 0 END) = 1 AS is_final, CAST(SUM(wall_s) AS BIGINT) AS wall_s,
                CAST(SUM(cpu_held_s) AS BIGINT) AS cpu_held_s, CAST(SUM(cpu_used_s) AS BIGINT) AS cpu_used_s,
                MAX(memory_held_mib) AS memory_held_mib, MAX(memory_most_mib) AS memory_most_mib,
                CAST(SUM(memory_held_mib * wall_s) AS BIGINT) AS memory_held_mib_s,
                CAST(SUM(memory_most_mib * wall_s) AS BIGINT) AS memory_most_mib_s,
                CAST(SUM(gpu_held_s) AS BIGINT) AS gpu_held_s, CAST(SUM(gpu_known_s) AS BIGINT) AS gpu_known_s,
                CAST(SUM(gpu_busy_s) AS BIGINT) AS gpu_busy_s, CAST(SUM(gpu_idle_s) AS BIGINT) AS gpu_idle_s,
                CAST(SUM(gpu_empty_s) AS BIGINT) AS gpu_empty_s
            FROM job_usage WHERE ",
            $condition,
            " GROUP BY session_id) AS job_usage"
        )
    };
}

/// Sessions with those of their starts that took part in a time: begun before its end, and measured after its beginning.
macro_rules! in_time {
    () => {
        concat!(
            " FROM ",
            of_starts!("until >= $1 AND started_at < $2"),
            " JOIN sessions ON sessions.id = job_usage.session_id JOIN users ON users.id = sessions.owner_id"
        )
    };
}

/// Sums; PostgreSQL's are of another type than what is summed up.
macro_rules! sums {
    ($name:literal, $group:literal) => {
        concat!(
            "SELECT ",
            $name,
            " AS name, COUNT(*) AS jobs,
            CAST(SUM(CASE WHEN job_usage.cpu_held_s IS NULL AND job_usage.memory_held_mib IS NULL THEN 1 ELSE 0 END) AS BIGINT)
                AS unknown_jobs,
            CAST(COALESCE(SUM(job_usage.cpu_held_s), 0) AS BIGINT) AS cpu_held_s,
            CAST(COALESCE(SUM(job_usage.cpu_used_s), 0) AS BIGINT) AS cpu_used_s,
            CAST(COALESCE(SUM(job_usage.memory_held_mib_s), 0) AS BIGINT) AS memory_held_mib_s,
            CAST(COALESCE(SUM(job_usage.memory_most_mib_s), 0) AS BIGINT) AS memory_most_mib_s,
            CAST(SUM(job_usage.gpu_held_s) AS BIGINT) AS gpu_held_s,
            CAST(SUM(job_usage.gpu_known_s) AS BIGINT) AS gpu_known_s,
            CAST(SUM(job_usage.gpu_busy_s) AS BIGINT) AS gpu_busy_s,
            CAST(SUM(job_usage.gpu_idle_s) AS BIGINT) AS gpu_idle_s,
            CAST(SUM(job_usage.gpu_empty_s) AS BIGINT) AS gpu_empty_s",
            in_time!(),
            " GROUP BY ",
            $group,
            " ORDER BY gpu_idle_s DESC, gpu_held_s DESC, cpu_held_s DESC, name"
        )
    };
}

macro_rules! worst {
    ($wasted:literal, $where:literal) => {
        concat!(
            "SELECT ",
            session_columns!(),
            ", ",
            usage_columns!(),
            in_time!(),
            " WHERE ",
            $where,
            " ORDER BY ",
            $wasted,
            " DESC, sessions.id LIMIT $3"
        )
    };
}

statements! {
    /// What is measured of a start that is not over is not put in the place of all of it.
    PUT = "INSERT INTO job_usage (session_id, partition_name, until, is_final, wall_s, cpu_held_s, cpu_used_s, memory_held_mib,
            memory_most_mib, gpu_held_s, gpu_known_s, gpu_busy_s, gpu_idle_s, gpu_empty_s, restart_count, started_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        ON CONFLICT (session_id, restart_count) DO UPDATE
        SET partition_name = excluded.partition_name, until = excluded.until, is_final = excluded.is_final, wall_s = excluded.wall_s,
            cpu_held_s = excluded.cpu_held_s, cpu_used_s = excluded.cpu_used_s, memory_held_mib = excluded.memory_held_mib,
            memory_most_mib = excluded.memory_most_mib, gpu_held_s = excluded.gpu_held_s, gpu_known_s = excluded.gpu_known_s,
            gpu_busy_s = excluded.gpu_busy_s, gpu_idle_s = excluded.gpu_idle_s, gpu_empty_s = excluded.gpu_empty_s,
            started_at = excluded.started_at
        WHERE excluded.is_final OR NOT job_usage.is_final";
    OF_SESSION = concat!("SELECT ", usage_columns!(), " FROM ", of_starts!("session_id = $1 AND restart_count < $2"));
    /// Whoever was killed before the session itself was changed says it again, later: the first word counts.
    PUT_START = "INSERT INTO job_starts (session_id, restart_count, started_at, ended_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (session_id, restart_count) DO NOTHING";
    STARTS = "SELECT session_id, restart_count, started_at, ended_at FROM job_starts WHERE session_id = $1
        ORDER BY restart_count";
    /// Earlier starts that were not measured since they are over.
    DUE_STARTS = concat!("SELECT ", session_columns!(), ", job_starts.restart_count AS start_count,
            job_starts.started_at AS began_at, job_starts.ended_at AS over_at
        FROM job_starts JOIN sessions ON sessions.id = job_starts.session_id JOIN users ON users.id = sessions.owner_id
        LEFT JOIN job_usage ON job_usage.session_id = job_starts.session_id
            AND job_usage.restart_count = job_starts.restart_count
        WHERE job_starts.started_at >= $1 AND job_starts.ended_at < $2
            AND (job_usage.session_id IS NULL OR job_usage.is_final = FALSE)
        ORDER BY job_starts.ended_at, sessions.id LIMIT $3");
    /// Those that were never measured, that are over since, or that were last measured long ago.
    DUE = concat!("SELECT ", session_columns!(), " FROM sessions JOIN users ON users.id = sessions.owner_id
        LEFT JOIN job_usage ON job_usage.session_id = sessions.id AND job_usage.restart_count = sessions.restart_count
        WHERE sessions.started_at >= $1 AND (sessions.ended_at IS NULL OR sessions.ended_at < $3)
            AND (job_usage.session_id IS NULL
                OR (job_usage.is_final = FALSE AND (sessions.ended_at IS NOT NULL OR job_usage.until < $2)))
        ORDER BY job_usage.until NULLS FIRST, sessions.id LIMIT $4");
    BY_PERSON = sums!("users.username", "users.username");
    BY_PARTITION = sums!("job_usage.partition_name", "job_usage.partition_name");
    WORST_GPU = worst!("job_usage.gpu_idle_s", "job_usage.gpu_idle_s > 0");
    WORST_MEMORY = worst!(
        "job_usage.memory_held_mib_s - job_usage.memory_most_mib_s",
        "job_usage.memory_held_mib > job_usage.memory_most_mib * 2"
    );
    WORST_CPU = worst!("job_usage.cpu_held_s - job_usage.cpu_used_s", "job_usage.cpu_held_s > job_usage.cpu_used_s * 2");
}

#[derive(FromRow)]
struct UsageRow {
    session_id: String,
    start_count: i64,
    began_at: i64,
    ran_on: String,
    until: i64,
    is_final: bool,
    wall_s: i64,
    cpu_held_s: Option<i64>,
    cpu_used_s: Option<i64>,
    memory_held_mib: Option<i64>,
    memory_most_mib: Option<i64>,
    gpu_held_s: i64,
    gpu_known_s: i64,
    gpu_busy_s: i64,
    gpu_idle_s: i64,
    gpu_empty_s: i64,
}

impl UsageRow {
    fn into_usage(self) -> Result<JobUsage, DbError> {
        let place = Place { table: "job_usage", row: &self.session_id };
        let pair = |column, held: Option<i64>, used: Option<i64>| match (held, used) {
            (Some(held), Some(used)) => {
                Ok(Some(HeldUsed { held: place.number(column, held)?, used: place.number(column, used)? }))
            }
            (None, None) => Ok(None),
            _ => Err(place.wrong(column)),
        };
        Ok(JobUsage {
            session: place.text("session_id", &self.session_id)?,
            restart_count: place.number("restart_count", self.start_count)?,
            started_at: place.time("started_at", self.began_at)?,
            partition: place.text("partition_name", &self.ran_on)?,
            until: place.time("until", self.until)?,
            is_final: self.is_final,
            wall_s: place.number("wall_s", self.wall_s)?,
            cpu: pair("cpu_held_s", self.cpu_held_s, self.cpu_used_s)?,
            memory_mib: pair("memory_held_mib", self.memory_held_mib, self.memory_most_mib)?,
            gpu: GpuTime {
                held_s: place.number("gpu_held_s", self.gpu_held_s)?,
                known_s: place.number("gpu_known_s", self.gpu_known_s)?,
                busy_s: place.number("gpu_busy_s", self.gpu_busy_s)?,
                idle_s: place.number("gpu_idle_s", self.gpu_idle_s)?,
                empty_s: place.number("gpu_empty_s", self.gpu_empty_s)?,
            },
        })
    }
}

#[derive(FromRow)]
struct MeasuredRow {
    #[sqlx(flatten)]
    session: SessionRow,
    #[sqlx(flatten)]
    usage: UsageRow,
}

/// A session with an earlier start of it.
#[derive(FromRow)]
struct StartedRow {
    #[sqlx(flatten)]
    session: SessionRow,
    start_count: i64,
    began_at: i64,
    over_at: i64,
}

impl StartedRow {
    /// The session as it was when that start was over, but for the nodes it had then, which nobody has written down.
    fn into_session(self) -> Result<Session, DbError> {
        let session = self.session.into_session()?;
        let id = session.id.to_string();
        let place = Place { table: "job_starts", row: &id };
        Ok(Session {
            restart_count: place.number("restart_count", self.start_count)?,
            started_at: Some(place.time("started_at", self.began_at)?),
            ended_at: Some(place.time("ended_at", self.over_at)?),
            nodes: Vec::new(),
            ..session
        })
    }
}

#[derive(FromRow)]
struct StartRow {
    session_id: String,
    restart_count: i64,
    started_at: i64,
    ended_at: i64,
}

impl StartRow {
    fn into_start(self) -> Result<JobStart, DbError> {
        let place = Place { table: "job_starts", row: &self.session_id };
        Ok(JobStart {
            session: place.text("session_id", &self.session_id)?,
            restart_count: place.number("restart_count", self.restart_count)?,
            started_at: place.time("started_at", self.started_at)?,
            ended_at: place.time("ended_at", self.ended_at)?,
        })
    }
}

#[derive(FromRow)]
struct SumsRow {
    name: String,
    jobs: i64,
    unknown_jobs: i64,
    cpu_held_s: i64,
    cpu_used_s: i64,
    memory_held_mib_s: i64,
    memory_most_mib_s: i64,
    gpu_held_s: i64,
    gpu_known_s: i64,
    gpu_busy_s: i64,
    gpu_idle_s: i64,
    gpu_empty_s: i64,
}

impl SumsRow {
    fn into_sums(self) -> Result<UsageSums, DbError> {
        let place = Place { table: "job_usage", row: &self.name };
        Ok(UsageSums {
            jobs: place.number("jobs", self.jobs)?,
            unknown_jobs: place.number("unknown_jobs", self.unknown_jobs)?,
            cpu: HeldUsed {
                held: place.number("cpu_held_s", self.cpu_held_s)?,
                used: place.number("cpu_used_s", self.cpu_used_s)?,
            },
            memory_mib_s: HeldUsed {
                held: place.number("memory_held_mib", self.memory_held_mib_s)?,
                used: place.number("memory_most_mib", self.memory_most_mib_s)?,
            },
            gpu: GpuTime {
                held_s: place.number("gpu_held_s", self.gpu_held_s)?,
                known_s: place.number("gpu_known_s", self.gpu_known_s)?,
                busy_s: place.number("gpu_busy_s", self.gpu_busy_s)?,
                idle_s: place.number("gpu_idle_s", self.gpu_idle_s)?,
                empty_s: place.number("gpu_empty_s", self.gpu_empty_s)?,
            },
            name: self.name,
        })
    }
}

impl Db {
    /// Writes down what a session or run held and used in one of its starts, in the place of what was measured of that before.
    pub async fn put_job_usage(&self, usage: &JobUsage) -> Result<(), DbError> {
        let held = |pair: Option<HeldUsed>| pair.map(|pair| signed(pair.held));
        let used = |pair: Option<HeldUsed>| pair.map(|pair| signed(pair.used));
        on_db!(self, pool => sqlx::query(PUT)
            .bind(usage.session.to_string())
            .bind(usage.partition.to_string())
            .bind(micros(usage.until))
            .bind(usage.is_final)
            .bind(signed(usage.wall_s))
            .bind(held(usage.cpu))
            .bind(used(usage.cpu))
            .bind(held(usage.memory_mib))
            .bind(used(usage.memory_mib))
            .bind(signed(usage.gpu.held_s))
            .bind(signed(usage.gpu.known_s))
            .bind(signed(usage.gpu.busy_s))
            .bind(signed(usage.gpu.idle_s))
            .bind(signed(usage.gpu.empty_s))
            .bind(i64::from(usage.restart_count))
            .bind(micros(usage.started_at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// What a session or run held and used in all its starts, when they were last measured.
    pub async fn job_usage(&self, session: SessionId) -> Result<Option<JobUsage>, DbError> {
        self.usage_of_starts(session, i64::MAX).await
    }

    /// What a session or run held and used in its starts before the one of this restart.
    pub async fn job_usage_before(&self, session: SessionId, restart_count: u32) -> Result<Option<JobUsage>, DbError> {
        self.usage_of_starts(session, i64::from(restart_count)).await
    }

    async fn usage_of_starts(&self, session: SessionId, before: i64) -> Result<Option<JobUsage>, DbError> {
        let row: Option<UsageRow> = on_db!(self, pool => sqlx::query_as(OF_SESSION)
            .bind(session.to_string())
            .bind(before)
            .fetch_optional(pool).await)?;
        row.map(UsageRow::into_usage).transpose()
    }

    /// Writes down a start that is over, because the scheduler has put its session or run back into the queue. What is known of it already stays.
    pub async fn put_job_start(&self, start: &JobStart) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query(PUT_START)
            .bind(start.session.to_string())
            .bind(i64::from(start.restart_count))
            .bind(micros(start.started_at))
            .bind(micros(start.ended_at))
            .execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The starts of a session or run that were over before it was put back into the queue, the first of them first.
    pub async fn job_starts(&self, session: SessionId) -> Result<Vec<JobStart>, DbError> {
        let rows: Vec<StartRow> =
            on_db!(self, pool => sqlx::query_as(STARTS).bind(session.to_string()).fetch_all(pool).await)?;
        rows.into_iter().map(StartRow::into_start).collect()
    }

    /// Earlier starts of sessions and runs, begun since `since`, that were not measured since they were over, before `over`: each is the session as
    /// it was then. The one that was over first comes first.
    pub async fn starts_to_measure(
        &self,
        since: Timestamp,
        over: Timestamp,
        limit: u32,
    ) -> Result<Vec<Session>, DbError> {
        let rows: Vec<StartedRow> = on_db!(self, pool => sqlx::query_as(DUE_STARTS)
            .bind(micros(since))
            .bind(micros(over))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(StartedRow::into_session).collect()
    }

    /// Sessions and runs begun since `since` of which the last start is to be measured: never measured, over (before `over`) since it was, or last
    /// measured before `before`. The oldest measure first.
    pub async fn jobs_to_measure(
        &self,
        since: Timestamp,
        before: Timestamp,
        over: Timestamp,
        limit: u32,
    ) -> Result<Vec<Session>, DbError> {
        let rows: Vec<SessionRow> = on_db!(self, pool => sqlx::query_as(DUE)
            .bind(micros(since))
            .bind(micros(before))
            .bind(micros(over))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter().map(SessionRow::into_session).collect()
    }

    /// Sums over those that ran between `from` and `to`, each start of theirs with all its time; who has idle GPUs first.
    pub async fn usage_sums(&self, by: UsageBy, from: Timestamp, to: Timestamp) -> Result<Vec<UsageSums>, DbError> {
        let statement = match by {
            UsageBy::Person => BY_PERSON,
            UsageBy::Partition => BY_PARTITION,
        };
        let rows: Vec<SumsRow> = on_db!(self, pool => sqlx::query_as(statement)
            .bind(micros(from))
            .bind(micros(to))
            .fetch_all(pool).await)?;
        rows.into_iter().map(SumsRow::into_sums).collect()
    }

    /// Those that ran between `from` and `to` and wasted most; for processors and memory only those that used less than half.
    pub async fn worst_jobs(
        &self,
        waste: Waste,
        from: Timestamp,
        to: Timestamp,
        limit: u32,
    ) -> Result<Vec<MeasuredJob>, DbError> {
        let statement = match waste {
            Waste::Gpu => WORST_GPU,
            Waste::Memory => WORST_MEMORY,
            Waste::Cpu => WORST_CPU,
        };
        let rows: Vec<MeasuredRow> = on_db!(self, pool => sqlx::query_as(statement)
            .bind(micros(from))
            .bind(micros(to))
            .bind(i64::from(limit))
            .fetch_all(pool).await)?;
        rows.into_iter()
            .map(|row| Ok(MeasuredJob { session: row.session.into_session()?, usage: row.usage.into_usage()? }))
            .collect()
    }
}
